package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// snapshotOf reads a whole file system, for comparison.
func snapshotOf(t *testing.T, m *Mem) string {
	t.Helper()
	var out strings.Builder
	for _, n := range must(m.List("."))(t) {
		h := must(m.Open(n))(t)
		fmt.Fprintf(&out, "%s %x\n", n, content(t, h))
		ok(t, h.Close())
	}
	return out.String()
}

func TestCrashIsDeterministic(t *testing.T) {
	build := func() *Mem {
		m := NewMem(7)
		for i := range 5 {
			h := must(m.Create(fmt.Sprint("f", i)))(t)
			put(t, h, 0, strings.Repeat("a", 3*BlockSize))
			if i%2 == 0 {
				ok(t, h.Sync())
				ok(t, m.SyncDir("."))
				put(t, h, 100, strings.Repeat("b", 2*BlockSize))
			}
		}
		ok(t, m.Rename("f1", "g"))
		return m
	}
	a, b := build(), build()
	different := map[string]bool{}
	for seed := range uint64(50) {
		x, y := snapshotOf(t, a.Crash(seed)), snapshotOf(t, b.Crash(seed))
		if x != y {
			t.Fatalf("seed %d: the same crash gave two results", seed)
		}
		different[x] = true
	}
	if len(different) < 20 {
		t.Fatalf("50 seeds gave only %d different results", len(different))
	}
}

// TestCrashKeepsSynced: synced blocks and durable names survive every crash;
// what was not synced is sometimes kept, sometimes lost, sometimes torn.
func TestCrashKeepsSynced(t *testing.T) {
	m := NewMem(1)
	h := must(m.Create("f"))(t)
	put(t, h, 0, strings.Repeat("a", 2*BlockSize))
	ok(t, h.Sync())
	ok(t, m.SyncDir("."))
	put(t, h, BlockSize, strings.Repeat("b", 2*BlockSize))
	kept, lost, torn, short := 0, 0, 0, 0
	for seed := range uint64(400) {
		c := m.Crash(seed)
		got := content(t, must(c.Open("f"))(t))
		if got[:BlockSize] != strings.Repeat("a", BlockSize) {
			t.Fatalf("seed %d: a synced block changed", seed)
		}
		if len(got) == 2*BlockSize {
			short++
		}
		switch got[BlockSize : 2*BlockSize] {
		case strings.Repeat("a", BlockSize):
			lost++
		case strings.Repeat("b", BlockSize):
			kept++
		default:
			torn++
		}
	}
	if kept < 20 || lost < 20 || torn < 20 || short < 20 {
		t.Fatalf("odds: kept %d, lost %d, torn %d, short %d of 400", kept, lost, torn, short)
	}
	if got := content(t, h); len(got) != 3*BlockSize {
		t.Fatalf("the crash changed the original: %d bytes", len(got))
	}
}

func TestCrashLosesNames(t *testing.T) {
	m := NewMem(1)
	old := must(m.Create("old"))(t)
	put(t, old, 0, "x")
	ok(t, old.Sync())
	ok(t, m.SyncDir("."))
	h := must(m.Create("new"))(t)
	put(t, h, 0, "y")
	ok(t, h.Sync())
	ok(t, m.Rename("old", "moved"))
	seen := map[string]int{}
	for seed := range uint64(200) {
		names := must(m.Crash(seed).List("."))(t)
		seen[strings.Join(names, " ")]++
	}
	for _, want := range []string{"old", "moved", "new old", "moved new"} {
		if seen[want] < 5 {
			t.Errorf("state %q seen %d times in 200: %v", want, seen[want], seen)
		}
		delete(seen, want)
	}
	if len(seen) != 0 {
		t.Errorf("states that no crash leaves: %v", seen)
	}
	ok(t, m.SyncDir("."))
	for seed := range uint64(20) {
		if names := must(m.Crash(seed).List("."))(t); strings.Join(names, " ") != "moved new" {
			t.Fatalf("seed %d: durable names changed: %v", seed, names)
		}
	}
}

func TestCrashAfterTruncateMayBringBack(t *testing.T) {
	m := NewMem(1)
	h := must(m.Create("f"))(t)
	put(t, h, 0, strings.Repeat("a", BlockSize))
	ok(t, h.Sync())
	ok(t, m.SyncDir("."))
	ok(t, h.Truncate(0))
	sizes := map[int]int{}
	for seed := range uint64(100) {
		sizes[len(content(t, must(m.Crash(seed).Open("f"))(t)))]++
	}
	if sizes[0] == 0 || sizes[BlockSize] == 0 || len(sizes) != 2 {
		t.Fatalf("sizes after a crash: %v", sizes)
	}
}

func TestMemFull(t *testing.T) {
	m := NewMem(1)
	m.SetCapacity(2 * BlockSize)
	h := must(m.Create("f"))(t)
	n, err := h.WriteAtv([][]byte{make([]byte, 3*BlockSize)}, 0)
	if n != 2*BlockSize || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("write to a full volume: %d, %v", n, err)
	}
	if _, free, _ := m.Space("."); free != 0 {
		t.Fatalf("free: %d", free)
	}
	ok(t, m.Remove("f"))
	if _, free, _ := m.Space("."); free != 2*BlockSize {
		t.Fatalf("free after remove: %d", free)
	}
}

func TestFaulty(t *testing.T) {
	m := NewMem(1)
	f := NewFaulty(m, FailNth(2, ErrInjected, OfKind("f*", OpWrite)))
	h := must(f.Create("f1"))(t)
	put(t, h, 0, "hello")
	if _, err := h.WriteAtv([][]byte{[]byte("J")}, 0); !errors.Is(err, ErrInjected) {
		t.Fatalf("second write: %v", err)
	}
	put(t, h, 5, "!")
	if got := content(t, h); got != "hello!" {
		t.Fatalf("the failed write had an effect: %q", got)
	}
	f.SetJudge(FailNth(1, &Fault{Err: syscall.EIO, Done: true}, OfKind("", OpWrite)))
	if _, err := h.WriteAtv([][]byte{[]byte("J")}, 0); !errors.Is(err, syscall.EIO) {
		t.Fatalf("write that works and fails: %v", err)
	}
	if got := content(t, h); got != "Jello!" {
		t.Fatalf("the write was to be done: %q", got)
	}
	f.SetJudge(FailNth(1, &Fault{Err: syscall.ENOSPC, Short: 3}, OfKind("", OpWrite)))
	if n, err := h.WriteAtv([][]byte{[]byte("ab"), []byte("cd")}, 0); n != 3 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("short write: %d, %v", n, err)
	}
	if got := content(t, h); got != "abclo!" {
		t.Fatalf("short write left %q", got)
	}
	f.SetJudge(func(op Op) error {
		return &Fault{Flip: &Flip{Off: 1, Bit: 0}}
	})
	b := make([]byte, 2)
	if n, err := h.ReadAt(b, 0); n != 2 || err != nil || !bytes.Equal(b, []byte("ac")) {
		t.Fatalf("flipped read: %d, %v, %q", n, err, b)
	}
	f.SetJudge(FailNth(1, syscall.EIO, OfKind("", OpSync)))
	if err := h.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("sync: %v", err)
	}
	f.SetJudge(FailNth(1, syscall.EIO, OfKind("", OpRead)))
	if n, err := h.ReadAt(b, 0); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Fatalf("failed read: %d, %v", n, err)
	}
	for _, op := range []struct {
		kind Kind
		run  func() error
	}{
		{OpCreate, func() error { _, err := f.Create("x"); return err }},
		{OpOpen, func() error { _, err := f.Open("f1"); return err }},
		{OpRename, func() error { return f.Rename("f1", "f2") }},
		{OpRemove, func() error { return f.Remove("f1") }},
		{OpList, func() error { _, err := f.List("."); return err }},
		{OpMkdir, func() error { return f.MkdirAll("d") }},
		{OpSyncDir, func() error { return f.SyncDir(".") }},
		{OpTruncate, func() error { return h.Truncate(0) }},
	} {
		f.SetJudge(FailNth(1, ErrInjected, OfKind("", op.kind)))
		if err := op.run(); !errors.Is(err, ErrInjected) {
			t.Errorf("%v passed: %v", op.kind, err)
		}
	}
	if got := snapshotOf(t, m); !strings.HasPrefix(got, "f1 ") {
		t.Errorf("failed operations had an effect: %s", got)
	}
}
