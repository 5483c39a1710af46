package wal

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"thermocline/wal/vfs"
)

// wait submits an append and returns what its Done gets.
func wait(w *Writer, a *Append) error {
	done := make(chan error, 1)
	a.Done = func(err error) { done <- err }
	w.Submit(a)
	return <-done
}

func newWriter(t *testing.T, fs vfs.FS, o Options) *Writer {
	t.Helper()
	l, _, err := Open(fs, "wal", o)
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(l)
	t.Cleanup(func() {
		if err := w.Close(); err != nil && !errors.Is(err, ErrFailed) {
			t.Error(err)
		}
	})
	return w
}

// TestWriterGroups: what comes while a group is being written goes into the next
// one together, and completes in order for each shard.
func TestWriterGroups(t *testing.T) {
	gate := make(chan struct{})
	var once sync.Once
	entered := make(chan struct{})
	fs := vfs.NewFaulty(vfs.NewMem(1), func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && op.Name != "" {
			once.Do(func() {
				close(entered)
				<-gate
			})
		}
		return nil
	})
	w := newWriter(t, fs, Options{})
	var mu sync.Mutex
	last := map[ShardID]uint64{}
	var wg sync.WaitGroup
	submit := func(s ShardID, index uint64) {
		wg.Add(1)
		w.Submit(&Append{Shard: s, Entries: []Entry{entry(index, 1, "x")}, Done: func(err error) {
			defer wg.Done()
			mu.Lock()
			defer mu.Unlock()
			if err != nil || last[s]+1 != index {
				t.Errorf("shard %d, index %d after %d: %v", s, index, last[s], err)
			}
			last[s] = index
		}})
	}
	submit(1, 1)
	<-entered // the first file's header is being synced
	for i := uint64(1); i <= 100; i++ {
		submit(2, i)
		submit(3, i)
	}
	if s := w.Stats(); s.QueueLen < 199 || s.QueueBytes == 0 {
		t.Errorf("queue of %d appends, %d bytes", s.QueueLen, s.QueueBytes)
	}
	// What waits and what is being written counts before it is synced.
	if u, queued := w.Usage().Used, w.Stats().QueueBytes; u <= queued {
		t.Errorf("%d bytes used with %d queued and a group under way", u, queued)
	}
	close(gate)
	wg.Wait()
	s := w.Stats()
	if s.Groups > 4 || s.Appends != 201 || s.QueueLen != 0 {
		t.Errorf("%d groups for %d appends, %d queued", s.Groups, s.Appends, s.QueueLen)
	}
	var counted int64
	for _, n := range s.SyncCounts {
		counted += n
	}
	if s.Syncs == 0 || counted != s.Syncs || s.SyncTime <= 0 {
		t.Errorf("%d syncs, %d in the histogram, %v", s.Syncs, counted, s.SyncTime)
	}
}

// TestWriterNamesTheEnd: an idle log writes its closing record by itself, and
// once only.
func TestWriterNamesTheEnd(t *testing.T) {
	mem := vfs.NewMem(1)
	closing := make(chan struct{}, 100)
	fs := vfs.NewFaulty(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && op.Len == blockSize && op.Off > blockSize {
			closing <- struct{}{}
		}
		return nil
	})
	w := newWriter(t, fs, Options{})
	if err := wait(w, &Append{Shard: 1, Entries: []Entry{entry(1, 1, "x")}}); err != nil {
		t.Fatal(err)
	}
	<-closing
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if len(closing) != 0 {
		t.Error("a second closing record")
	}
	var kinds []ScanKind
	if err := Scan(mem, "wal", func(r ScanRecord) error { kinds = append(kinds, r.Kind); return nil }); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(kinds); got != "[file group entry closing]" {
		t.Errorf("the log holds %s", got)
	}
}

// TestWriterFails: when a group fails, all that are in it and all that come
// later get the error, the state is visible, and payloads stay readable.
func TestWriterFails(t *testing.T) {
	for _, kind := range []vfs.Kind{vfs.OpWrite, vfs.OpSync} {
		t.Run(kind.String(), func(t *testing.T) {
			fs := vfs.NewFaulty(vfs.NewMem(1), nil)
			w := newWriter(t, fs, Options{})
			e := entry(1, 1, "payload")
			if err := wait(w, &Append{Shard: 1, Entries: []Entry{e}}); err != nil {
				t.Fatal(err)
			}
			if w.Err() != nil {
				t.Fatal(w.Err())
			}
			// The first to fail is held up until the others are queued behind it.
			queued := make(chan struct{})
			fs.SetJudge(func(op vfs.Op) error {
				if op.Kind == kind {
					<-queued
					return syscall.EIO
				}
				return nil
			})
			errs := make(chan error, 10)
			for i := range uint64(10) {
				w.Submit(&Append{Shard: ShardID(1 + i%3), Entries: []Entry{entry(2+i/3, 1, "y")}, Done: func(err error) { errs <- err }})
			}
			close(queued)
			for range 10 {
				if err := <-errs; !errors.Is(err, syscall.EIO) || !errors.Is(err, ErrFailed) {
					t.Errorf("a waiter got %v", err)
				}
			}
			<-w.Failed()
			if err := w.Err(); !errors.Is(err, syscall.EIO) {
				t.Errorf("state: %v", err)
			}
			fs.SetJudge(nil)
			if err := wait(w, &Append{Shard: 9, Hard: &HardState{Term: 1}}); !errors.Is(err, syscall.EIO) {
				t.Errorf("a later append got %v", err)
			}
			if err := wait(w, &Append{Shard: 9, NoSync: true}); !errors.Is(err, syscall.EIO) {
				t.Errorf("a later append without sync got %v", err)
			}
			got, err := w.ReadPayload(1, 1, 1, grab)
			if err != nil || !bytes.Equal(got, e.Payload) {
				t.Errorf("read: %q, %v", got, err)
			}
			if err := w.Close(); !errors.Is(err, syscall.EIO) {
				t.Errorf("close: %v", err)
			}
		})
	}
}

// TestWriterFailsWhenIdle: a closing record that cannot be written takes the log
// out of service like any other write.
func TestWriterFailsWhenIdle(t *testing.T) {
	// The append is the first file's first group; what is written behind it is the
	// closing record.
	fs := vfs.NewFaulty(vfs.NewMem(1), func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && op.Off > blockSize {
			return syscall.EIO
		}
		return nil
	})
	w := newWriter(t, fs, Options{})
	if err := wait(w, &Append{Shard: 1, Entries: []Entry{entry(1, 1, "x")}}); err != nil {
		t.Fatal(err)
	}
	if pos, ok := w.OldestLive(1); !ok || pos >= w.End() || w.Usage().Used == 0 {
		t.Errorf("oldest entry at %d, end %d, usage %+v", pos, w.End(), w.Usage())
	}
	<-w.Failed()
	if err := w.Err(); !errors.Is(err, syscall.EIO) {
		t.Errorf("state: %v", err)
	}
}

// TestWriterClose commits what is queued and refuses what comes later.
func TestWriterClose(t *testing.T) {
	mem := vfs.NewMem(1)
	w := newWriter(t, mem, Options{})
	errs := make(chan error, 50)
	for i := range uint64(50) {
		w.Submit(&Append{Shard: 1, Entries: []Entry{entry(i+1, 1, "x")}, Done: func(err error) { errs <- err }})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if err := wait(w, &Append{Shard: 1}); !errors.Is(err, ErrClosed) {
		t.Fatalf("after close: %v", err)
	}
	_, got, err := Open(mem, "wal", Options{})
	if err != nil || len(got[1].Entries) != 50 {
		t.Fatalf("%d entries, %v", len(got[1].Entries), err)
	}
}

// TestWriterQueueIsBounded: Submit blocks when the queue is full, and goes on
// when there is room again.
func TestWriterQueueIsBounded(t *testing.T) {
	gate := make(chan struct{})
	fs := vfs.NewFaulty(vfs.NewMem(1), func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			<-gate
		}
		return nil
	})
	w := newWriter(t, fs, Options{})
	const n = maxQueued + groupAppends + 100
	var wg sync.WaitGroup
	wg.Add(n)
	submitted := make(chan int, n)
	go func() {
		for i := range n {
			w.Submit(&Append{Shard: 1, Hard: &HardState{Term: uint64(i + 1)}, Done: func(err error) {
				if err != nil {
					t.Error(err)
				}
				wg.Done()
			}})
			submitted <- i
		}
	}()
	for range maxQueued {
		<-submitted
	}
	if s := w.Stats(); s.QueueLen > maxQueued {
		t.Errorf("%d appends queued, at most %d may be", s.QueueLen, maxQueued)
	}
	close(gate)
	wg.Wait()
}

// TestNoSyncWaitsForEarlier: an append without sync is answered when the shard's
// earlier ones are durable, not before, and costs no write of its own.
func TestNoSyncWaitsForEarlier(t *testing.T) {
	mem := vfs.NewMem(1)
	l, _ := open(t, mem, Options{})
	var order []string
	note := func(s string) func(error) {
		return func(err error) { order = append(order, fmt.Sprint(s, " ", err)) }
	}
	commit(t, l,
		&Append{Shard: 1, Entries: []Entry{entry(1, 1, "x")}, Hard: &HardState{Term: 1}, Done: note("entry")},
		&Append{Shard: 2, NoSync: true, Done: note("other shard")},
		&Append{Shard: 1, NoSync: true, Hard: &HardState{Term: 1, Commit: 1}, Done: note("same shard")},
	)
	if got := fmt.Sprint(order); got != "[other shard <nil> entry <nil> same shard <nil>]" {
		t.Errorf("answered: %s", got)
	}
	groups := l.Stats().Groups
	commit(t, l, &Append{Shard: 1, NoSync: true, Hard: &HardState{Term: 1, Commit: 1}}, &Append{Shard: 3, NoSync: true})
	if l.Stats().Groups != groups {
		t.Error("appends without sync were written on their own")
	}
	// A vote is never taken for one.
	commit(t, l, &Append{Shard: 1, NoSync: true, Hard: &HardState{Term: 2, Vote: 7, Commit: 1}})
	if l.Stats().Groups != groups+1 {
		t.Error("a vote was not written")
	}
}

// TestHardStatesRideAlongWithinTheFile: hard states that wait for the next group
// never make it longer than the file.
func TestHardStatesRideAlongWithinTheFile(t *testing.T) {
	mem := vfs.NewMem(1)
	l, _ := open(t, mem, smallFiles)
	const shards = 20
	var setup []*Append
	for s := ShardID(1); s <= shards; s++ {
		setup = append(setup, &Append{Shard: s, Hard: &HardState{Term: 1}})
	}
	commit(t, l, setup...)
	for i := uint64(1); i <= 60; i++ {
		// Fills the file to within a few hard states.
		size := l.active.room() - 2*groupHeaderLen - 100
		if size < 1000 {
			size = 1000
		}
		group := []*Append{{Shard: 99, Entries: []Entry{entry(i, 1, strings.Repeat("f", int(size)))}}}
		for s := ShardID(1); s <= shards; s++ {
			group = append(group, &Append{Shard: s, NoSync: true, Hard: &HardState{Term: 1, Commit: i}})
		}
		commit(t, l, group...)
		commit(t, l, &Append{Shard: 99, Snapshot: &SnapshotPointer{Index: i, Term: 1, Trimmed: i, TrimmedTerm: 1}})
		l2, got, err := Open(mem.Crash(i), "wal", smallFiles)
		if err != nil {
			t.Fatal(err)
		}
		if err := l2.closeFiles(); err != nil {
			t.Fatal(err)
		}
		if got[shards].Hard.Commit < i-1 {
			t.Fatalf("commit %d of %d", got[shards].Hard.Commit, i)
		}
	}
}

// TestStagedEntries: what a snapshot stream brings counts only when its pointer
// follows, and another stream voids it.
func TestStagedEntries(t *testing.T) {
	mem := vfs.NewMem(1)
	l, _ := open(t, mem, smallFiles)
	commit(t, l, &Append{Shard: 1, Entries: []Entry{entry(1, 1, "old"), entry(2, 1, "old")}, Hard: &HardState{Term: 1}})
	staged := func(first uint64, payload string) *Append {
		return &Append{Shard: 1, Staged: true, Entries: []Entry{entry(first, 3, payload), entry(first+1, 3, payload)}}
	}
	commit(t, l, staged(10, "void"), staged(12, "void"))
	recovered := func() *RecoveredShard {
		_, got, err := Open(mem.Crash(1), "wal", smallFiles)
		if err != nil {
			t.Fatal(err)
		}
		return got[1]
	}
	if r := recovered(); len(r.Entries) != 2 || r.Entries[1].Index != 2 {
		t.Fatalf("staged entries count: %+v", r)
	}
	commit(t, l, &Append{Shard: 1, Staged: true}) // the stream broke off
	pointer := &SnapshotPointer{Index: 13, Term: 3, File: "x.snap", Trimmed: 9, TrimmedTerm: 2}
	if err := l.Commit([]*Append{{Shard: 1, Snapshot: pointer}}); !errors.Is(err, ErrInvalid) {
		t.Fatalf("pointer to a stream that broke off: %v", err)
	}
	commit(t, l, staged(10, "new"), staged(12, "new"))
	commit(t, l, &Append{Shard: 1, Snapshot: pointer, Hard: &HardState{Term: 3, Commit: 13}, Entries: []Entry{entry(14, 3, "behind")}})
	r := recovered()
	if len(r.Entries) != 5 || r.Entries[0].Index != 10 || r.Entries[4].Index != 14 || r.Snapshot != *pointer || r.Hard.Commit != 13 {
		t.Fatalf("recovered %+v", r)
	}
	wantPayload(t, l, 1, entry(12, 3, "new"))
	if _, err := l.ReadPayload(1, 2, 1, grab); err == nil {
		t.Error("an entry of the replaced log is still there")
	}
}

func TestRemoveShard(t *testing.T) {
	mem := vfs.NewMem(1)
	w := newWriter(t, mem, smallFiles)
	for i := range ShardID(3) {
		if err := wait(w, &Append{Shard: i, Entries: []Entry{entry(1, 1, "x")}, Hard: &HardState{Term: 4}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.RemoveShard(1); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ReadPayload(1, 1, 1, grab); !errors.Is(err, ErrNotFound) {
		t.Errorf("read of a removed shard: %v", err)
	}
	_, got, err := Open(mem.Crash(1), "wal", smallFiles)
	if err != nil || len(got) != 2 || got[1] != nil {
		t.Fatalf("recovered %d shards, %v", len(got), err)
	}
	// The same id may begin anew, from another index and an older term.
	if err := wait(w, &Append{Shard: 1, Entries: []Entry{entry(7, 1, "y")}, Hard: &HardState{Term: 1}}); err != nil {
		t.Fatal(err)
	}
	_, got, err = Open(mem.Crash(1), "wal", smallFiles)
	if err != nil || len(got[1].Entries) != 1 || got[1].Hard.Term != 1 {
		t.Fatalf("recovered %+v, %v", got[1], err)
	}
}
