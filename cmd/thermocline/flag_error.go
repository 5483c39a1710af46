package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// plainFlagError says what is wrong with a flag's value without the name of the
// function that noticed.
func plainFlagError(_ *cobra.Command, err error) error {
	var number *strconv.NumError
	text, _, found := strings.Cut(err.Error(), ": strconv.")
	if !found || !errors.As(err, &number) {
		return err
	}
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%s: the number is out of range", text)
	case number.Func == "ParseBool":
		return fmt.Errorf("%s: write true or false", text)
	}
	return fmt.Errorf("%s: write a whole number", text)
}
