package main

import (
	"context"
	"io"
	"log/slog"
	"slices"
)

// newLogger writes structured logs in the form and from the level that the
// settings name. Its handler tells a broker where the level can be changed.
func newLogger(w io.Writer, level, form string) *slog.Logger {
	l := new(slog.LevelVar)
	_ = l.UnmarshalText([]byte(level)) // validated with the settings; else info
	o := &slog.HandlerOptions{Level: l}
	if form == "json" {
		return slog.New(leveled{once{Handler: slog.NewJSONHandler(w, o)}, l})
	}
	return slog.New(leveled{once{Handler: slog.NewTextHandler(w, o)}, l})
}

// once leaves out of a record what the logger says of every record: a part that
// names its shard or broker may have been given a logger that does so too.
type once struct {
	slog.Handler
	said []slog.Attr
}

// Handle implements slog.Handler.
func (h once) Handle(ctx context.Context, r slog.Record) error {
	again := false
	r.Attrs(func(a slog.Attr) bool {
		again = h.has(a)
		return !again
	})
	if !again {
		return h.Handler.Handle(ctx, r)
	}
	short := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if !h.has(a) {
			short.AddAttrs(a)
		}
		return true
	})
	return h.Handler.Handle(ctx, short)
}

func (h once) has(a slog.Attr) bool {
	return slices.ContainsFunc(h.said, func(s slog.Attr) bool { return s.Key == a.Key && s.Value.String() == a.Value.String() })
}

// WithAttrs implements slog.Handler.
func (h once) WithAttrs(list []slog.Attr) slog.Handler {
	fresh := slices.DeleteFunc(slices.Clone(list), h.has)
	if len(fresh) == 0 {
		return h
	}
	return once{h.Handler.WithAttrs(fresh), append(slices.Clip(h.said), fresh...)}
}

// WithGroup implements slog.Handler. In a group the same key is another one.
func (h once) WithGroup(name string) slog.Handler { return once{Handler: h.Handler.WithGroup(name)} }

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
