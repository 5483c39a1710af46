package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// reportProgress prints line(false) once a second when w is a terminal, and
// line(true), if it is not empty, when the returned function is called.
func reportProgress(w io.Writer, line func(final bool) string) (stop func()) {
	done, finished := make(chan struct{}), make(chan struct{})
	terminal := isTerminal(w)
	go func() {
		defer close(finished)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if terminal {
					fmt.Fprintf(w, "\r\033[K%s", line(false))
				}
			}
		}
	}()
	return func() {
		close(done)
		<-finished
		if terminal {
			fmt.Fprint(w, "\r\033[K")
		}
		if last := line(true); last != "" {
			fmt.Fprintln(w, last)
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
