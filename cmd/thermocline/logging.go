package main

import (
	"io"
	"log/slog"
)

// newLogger writes structured logs in the form and from the level that the
// settings name.
func newLogger(w io.Writer, level, form string) *slog.Logger {
	var l slog.Level
	_ = l.UnmarshalText([]byte(level)) // validated with the settings; else info
	o := &slog.HandlerOptions{Level: l}
	if form == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
