package main

import (
	"context"
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

// onlyErrors silences what a part says below the level of errors: the embedded
// etcd of a local stack warns of states that are normal when it begins.
func onlyErrors(log *slog.Logger) *slog.Logger { return slog.New(errorsOnly{log.Handler()}) }

type errorsOnly struct{ slog.Handler }

func (h errorsOnly) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError && h.Handler.Enabled(ctx, l)
}

func (h errorsOnly) WithAttrs(a []slog.Attr) slog.Handler { return errorsOnly{h.Handler.WithAttrs(a)} }
func (h errorsOnly) WithGroup(name string) slog.Handler   { return errorsOnly{h.Handler.WithGroup(name)} }
