package main

import (
	"context"
	"io"
	"log/slog"
)

// newLogger writes structured logs in the form and from the level that the
// settings name. Its handler tells a broker where the level can be changed.
func newLogger(w io.Writer, level, form string) *slog.Logger {
	l := new(slog.LevelVar)
	_ = l.UnmarshalText([]byte(level)) // validated with the settings; else info
	o := &slog.HandlerOptions{Level: l}
	if form == "json" {
		return slog.New(leveled{slog.NewJSONHandler(w, o), l})
	}
	return slog.New(leveled{slog.NewTextHandler(w, o), l})
}

// leveled is a handler that knows its level (broker.Leveled).
type leveled struct {
	slog.Handler
	level *slog.LevelVar
}

// LevelVar is where the level can be changed.
func (h leveled) LevelVar() *slog.LevelVar { return h.level }

func (h leveled) WithAttrs(a []slog.Attr) slog.Handler {
	return leveled{h.Handler.WithAttrs(a), h.level}
}
func (h leveled) WithGroup(name string) slog.Handler {
	return leveled{h.Handler.WithGroup(name), h.level}
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
