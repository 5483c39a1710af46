package shard

import (
	"context"
	"fmt"
	"log/slog"
)

// raftLogger lets raft write to slog. Raft's information is about every vote
// and message: debug for us.
type raftLogger struct{ l *slog.Logger }

func (r raftLogger) log(level slog.Level, msg string) { r.l.Log(context.Background(), level, msg) }

func (r raftLogger) on(level slog.Level) bool { return r.l.Enabled(context.Background(), level) }

// Debug implements raft.Logger, as do the rest.
func (r raftLogger) Debug(v ...any) { r.print(slog.LevelDebug, v...) }

// Debugf formats at level debug.
func (r raftLogger) Debugf(f string, v ...any) { r.printf(slog.LevelDebug, f, v...) }

// Info is debug for us.
func (r raftLogger) Info(v ...any) { r.print(slog.LevelDebug, v...) }

// Infof is debug for us.
func (r raftLogger) Infof(f string, v ...any) { r.printf(slog.LevelDebug, f, v...) }

// Warning is information for us: raft warns of every lost quorum.
func (r raftLogger) Warning(v ...any) { r.print(slog.LevelInfo, v...) }

// Warningf is information for us.
func (r raftLogger) Warningf(f string, v ...any) { r.printf(slog.LevelInfo, f, v...) }

// Error logs an error.
func (r raftLogger) Error(v ...any) { r.print(slog.LevelError, v...) }

// Errorf logs an error.
func (r raftLogger) Errorf(f string, v ...any) { r.printf(slog.LevelError, f, v...) }

// Fatal is a broken invariant inside raft: it must not be survived.
func (r raftLogger) Fatal(v ...any) { r.Panic(v...) }

// Fatalf is a broken invariant inside raft.
func (r raftLogger) Fatalf(f string, v ...any) { r.Panicf(f, v...) }

// Panic is a broken invariant inside raft.
func (r raftLogger) Panic(v ...any) { panic(fmt.Sprint(v...)) }

// Panicf is a broken invariant inside raft.
func (r raftLogger) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }

func (r raftLogger) print(level slog.Level, v ...any) {
	if r.on(level) {
		r.log(level, fmt.Sprint(v...))
	}
}

func (r raftLogger) printf(level slog.Level, f string, v ...any) {
	if r.on(level) {
		r.log(level, fmt.Sprintf(f, v...))
	}
}
