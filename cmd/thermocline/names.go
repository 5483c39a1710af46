package main

import (
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// namesOf wants one argument or more, each the name of a thing of a kind.
func namesOf(kind, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("name a %s, as in %s %s", kind, cmd.CommandPath(), example)
		}
		return nil
	}
}

// nameOf wants one argument, the name of a thing of a kind.
func nameOf(kind, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("%s takes one %s, not %d", cmd.CommandPath(), kind, len(args))
		}
		return namesOf(kind, example)(cmd, args)
	}
}

// nameShown is how much of a name is shown in tables and errors: Kafka's topics
// have at most 249 characters, and groups have no limit of their own.
const nameShown = 300

// shown is a name as a terminal may show it: one that has anything but plain
// printable characters is quoted, and one that is very long shortened.
func shown(name string) string {
	if len(name) > nameShown {
		cut := nameShown
		for cut > 0 && !utf8.RuneStart(name[cut]) {
			cut--
		}
		return shown(name[:cut]) + "… (" + strconv.Itoa(len(name)) + " bytes)"
	}
	plain := name != "" && utf8.ValidString(name)
	for _, r := range name {
		plain = plain && unicode.IsPrint(r) && r != '"'
	}
	if plain {
		return name
	}
	return strconv.Quote(name)
}
