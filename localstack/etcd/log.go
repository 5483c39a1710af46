package etcd

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newZap makes etcd write to a broker's log. etcd calls much of its daily life
// info and much of its start-up a warning, so each level counts one less here.
func newZap(l *slog.Logger) *zap.Logger {
	return zap.New(&slogCore{handler: l.With("part", "etcd").Handler()})
}

// listenerEnded is what etcd says, as of an error, for each of its listeners when
// it closes, also after a start that failed. A listener that ends while the
// member runs is told by Server.Err.
const listenerEnded = "setting up serving from embedded etcd failed."

// slogCore is a zapcore.Core over a slog.Handler.
type slogCore struct{ handler slog.Handler }

func slogLevel(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.DPanicLevel:
		return slog.LevelError
	case l == zapcore.ErrorLevel:
		return slog.LevelWarn
	case l == zapcore.WarnLevel:
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}

// Enabled implements zapcore.Core.
func (c *slogCore) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), slogLevel(l))
}

// With implements zapcore.Core.
func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{handler: c.handler.WithAttrs(attrs(fields))}
}

// Check implements zapcore.Core.
func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements zapcore.Core.
func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := slogLevel(e.Level)
	if e.Message == listenerEnded {
		level = slog.LevelDebug
	}
	if !c.handler.Enabled(context.Background(), level) {
		return nil
	}
	r := slog.NewRecord(e.Time, level, e.Message, 0)
	r.AddAttrs(attrs(fields)...)
	return c.handler.Handle(context.Background(), r)
}

// Sync implements zapcore.Core.
func (c *slogCore) Sync() error { return nil }

func attrs(fields []zapcore.Field) []slog.Attr {
	m := zapcore.NewMapObjectEncoder()
	out := make([]slog.Attr, 0, len(fields))
	for i := range fields {
		fields[i].AddTo(m)
		if v, ok := m.Fields[fields[i].Key]; ok {
			out = append(out, slog.Any(fields[i].Key, v))
		}
	}
	return out
}
