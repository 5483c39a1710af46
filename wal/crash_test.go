package wal

import (
	"errors"
	"flag"
	"fmt"
	"syscall"
	"testing"

	"thermocline/wal/vfs"
)

var crashSeeds = flag.Int("crash.seeds", 4, "scripts that the crash tests run")

// crashEverywhere runs a script and crashes it before every operation that
// changes the disk, with several outcomes each: every acked append is there,
// nothing is invented, and recovery finds the same again.
func crashEverywhere(seed uint64, groups int, o Options) error {
	mem := vfs.NewMem(seed)
	h := &history{states: []model{{}}}
	var failed error
	faulty := vfs.NewFaulty(mem, func(op vfs.Op) error {
		if failed != nil || !op.Kind.Changes() {
			return nil
		}
		for c := range uint64(3) {
			// Crash at the write too: Mem tears what the next sync would save.
			if _, err := h.verify(mem.Crash(uint64(op.N)*10+c), c, o); err != nil {
				failed = fmt.Errorf("seed %d, crash %d before %v of %s (operation %d): %w", seed, c, op.Kind, op.Name, op.N, err)
				return nil
			}
		}
		return nil
	})
	l, _, err := Open(faulty, "wal", o)
	if err != nil {
		return err
	}
	if err := errors.Join(h.play(l, newScript(seed), groups), failed); err != nil {
		return err
	}
	if err := errors.Join(l.Close(), failed); err != nil {
		return err
	}
	if _, err := h.verify(mem.Crash(0), 0, o); err != nil {
		return fmt.Errorf("seed %d, after close: %w", seed, err)
	}
	return nil
}

func TestCrashBeforeEveryOperation(t *testing.T) {
	for seed := range uint64(*crashSeeds) {
		if err := crashEverywhere(seed, 60, smallFiles); err != nil {
			t.Fatal(err)
		}
	}
}

// lives plays a script through several crashes: each life starts from what the
// one before it left, so stale records of earlier lives and uses lie around.
func lives(seed uint64, n int, o Options) error {
	mem := vfs.NewMem(seed)
	s := newScript(seed)
	h := &history{states: []model{{}}}
	for life := range n {
		faulty := vfs.NewFaulty(mem, nil)
		l, got, err := Open(faulty, "wal", o)
		if err != nil {
			return fmt.Errorf("seed %d, life %d: %w", seed, life, err)
		}
		k, diff := h.match(l, got)
		if diff != "" {
			return fmt.Errorf("seed %d, life %d: no state from %d to %d: %s", seed, life, h.acked, len(h.states)-1, diff)
		}
		s.resume(h.states[k], got)
		h = &history{states: []model{s.m}}
		// The cut comes at some operation of this life, before or after it.
		at := 1 + int(s.rng.Uint64N(120))
		after := s.rng.IntN(2) == 0
		faulty.SetJudge(vfs.FailNth(at, &vfs.Fault{Err: vfs.ErrInjected, Done: after}, func(op vfs.Op) bool { return op.Kind.Changes() }))
		if err := h.play(l, s, 40); err != nil && !errors.Is(err, vfs.ErrInjected) {
			return fmt.Errorf("seed %d, life %d: %w", seed, life, err)
		}
		if s.rng.IntN(4) > 0 {
			mem = mem.Crash(uint64(life))
		} else if err := l.lock.Close(); err != nil { // kill -9: the page cache stays
			return err
		}
	}
	return nil
}

// resume takes up a script where a crash left it.
func (s *script) resume(m model, got map[ShardID]*RecoveredShard) {
	s.m = model{}
	for id, sh := range m {
		now := *sh
		now.staged = nil
		if r := got[id]; r != nil {
			now.hard, now.surely = r.Hard, r.Hard.Commit
		}
		s.m[id] = &now
	}
}

func TestCrashLives(t *testing.T) {
	for seed := range uint64(*crashSeeds) * 4 {
		if err := lives(seed, 12, smallFiles); err != nil {
			t.Fatal(err)
		}
	}
}

// failEverywhere fails the n-th operation, for every n: the log goes out of
// service, nothing is acked afterwards, and a crash then loses nothing acked.
func failEverywhere(seed uint64, groups int, fault error, o Options) error {
	for n := 1; ; n++ {
		mem := vfs.NewMem(seed)
		h := &history{states: []model{{}}}
		changes := 0
		faulty := vfs.NewFaulty(mem, vfs.FailNth(n, fault, func(op vfs.Op) bool {
			if op.Kind.Changes() {
				changes++
			}
			return op.Kind.Changes()
		}))
		l, _, err := Open(faulty, "wal", o)
		if err != nil {
			if !errors.Is(err, syscall.EIO) {
				return err
			}
			continue
		}
		s := newScript(seed)
		err = h.play(l, s, groups)
		if err == nil {
			err = l.Close()
			if err == nil && n > changes {
				return nil // every operation has had its turn
			}
		}
		if err := poisoned(l, h, s, err); err != nil {
			return fmt.Errorf("seed %d, operation %d failed: %w", seed, n, err)
		}
		for c := range uint64(2) {
			if _, err := h.verify(mem.Crash(c), c, o); err != nil {
				return fmt.Errorf("seed %d, operation %d failed, crash %d: %w", seed, n, c, err)
			}
		}
	}
}

// poisoned checks a log after a failure: it says why it is out of service, and
// every later append gets that.
func poisoned(l *Log, h *history, s *script, err error) error {
	if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		return fmt.Errorf("got %w, want %v with %v", err, ErrFailed, syscall.EIO)
	}
	if l.Err() == nil {
		return errors.New("the log is still in service")
	}
	acked := h.acked
	if err := h.play(l, s, 3); !errors.Is(err, syscall.EIO) && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("a later append got %w", err)
	}
	if h.acked != acked {
		return errors.New("a later append was acked")
	}
	return nil
}

func TestFailEveryOperation(t *testing.T) {
	for name, fault := range map[string]*vfs.Fault{
		"without effect": {Err: syscall.EIO},
		"done":           {Err: syscall.EIO, Done: true},
		"half":           {Err: syscall.EIO, Short: 4096 + 700},
	} {
		t.Run(name, func(t *testing.T) {
			if err := failEverywhere(3, 25, fault, smallFiles); err != nil {
				t.Fatal(err)
			}
		})
	}
}
