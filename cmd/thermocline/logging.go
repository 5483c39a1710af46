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
func onlyErrors(log *slog.Logger) *slog.Logger {
	return slog.New(floor{log.Handler(), slog.LevelError})
}

// calmed silences what a part says below the level of warnings, unless all is
// to be seen: an etcd member that waits for the others repeats itself several
// times a second, and the broker says in one line whom it waits for. Once ctx
// ends it is errors only, since what is being closed fails in many ways.
func calmed(ctx context.Context, log *slog.Logger) *slog.Logger {
	if log.Enabled(ctx, slog.LevelDebug) {
		return log
	}
	least := &slog.LevelVar{}
	least.Set(slog.LevelWarn)
	context.AfterFunc(ctx, func() { least.Set(slog.LevelError) })
	return slog.New(floor{log.Handler(), least})
}

// floor passes on records from a level up.
type floor struct {
	slog.Handler
	least slog.Leveler
}

// Enabled implements slog.Handler.
func (h floor) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.least.Level() && h.Handler.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (h floor) WithAttrs(a []slog.Attr) slog.Handler { return floor{h.Handler.WithAttrs(a), h.least} }

// WithGroup implements slog.Handler.
func (h floor) WithGroup(name string) slog.Handler { return floor{h.Handler.WithGroup(name), h.least} }
