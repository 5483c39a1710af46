package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"thermocline/wal/vfs"
)

// diskBytes adds up the log files as the file system has them.
func diskBytes(t *testing.T, fs vfs.FS) int64 {
	t.Helper()
	names, err := fs.List("wal")
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, n := range names {
		if !strings.HasSuffix(n, logSuffix) {
			continue
		}
		f, err := fs.Open(path.Join("wal", n))
		if err != nil {
			t.Fatal(err)
		}
		size, err := f.Size()
		if err = withClose(err, f); err != nil {
			t.Fatal(err)
		}
		total += size
	}
	return total
}

// TestIdleShardPinsNothing writes twenty times the budget to one shard, which
// trims, while another wrote once and keeps what it has.
func TestIdleShardPinsNothing(t *testing.T) {
	for _, maintain := range []bool{false, true} {
		t.Run(fmt.Sprintf("maintain %v", maintain), func(t *testing.T) {
			mem := vfs.NewMem(1)
			l, _ := open(t, mem, smallFiles)
			idle := []Entry{entry(1, 1, "kept"), entry(2, 1, strings.Repeat("k", 3000))}
			commit(t, l, &Append{Shard: 2, Entries: idle, Hard: &HardState{Term: 1, Vote: 3, Commit: 2}})
			commit(t, l, &Append{Shard: 3, Hard: &HardState{Term: 7, Vote: 1}})
			written, index := int64(0), uint64(0)
			for written < 20*smallFiles.MaxBytes {
				index++
				e := entry(index, 1, strings.Repeat("w", 2000))
				commit(t, l, &Append{Shard: 1, Entries: []Entry{e}})
				written += int64(len(e.Payload))
				if index%10 == 0 {
					commit(t, l, &Append{Shard: 1, Snapshot: &SnapshotPointer{Index: index, Term: 1, File: "s.snap", Trimmed: index - 3, TrimmedTerm: 1}})
				}
				if maintain {
					if _, err := l.Maintain(4096); err != nil {
						t.Fatal(err)
					}
				}
				if got, most := diskBytes(t, mem), smallFiles.MaxBytes+smallFiles.FileBytes; got > most {
					t.Fatalf("at index %d: %d bytes on disk, budget and one file are %d", index, got, most)
				}
			}
			u := l.Usage()
			if got := diskBytes(t, mem); u.Disk != got {
				t.Errorf("Usage says %d bytes on disk, there are %d", u.Disk, got)
			}
			if u.Used > u.Max/2 || u.Used < 3000 {
				t.Errorf("usage %+v with a few live entries", u)
			}
			if s := l.Stats(); s.Recycled < 100 || s.Rewritten > written/4 {
				t.Errorf("recycled %d files, rewrote %d bytes of %d", s.Recycled, s.Rewritten, written)
			}
			if pos, ok := l.OldestLive(2); !ok || l.End()-pos > Position(2*smallFiles.MaxBytes) {
				t.Errorf("oldest live entry of the idle shard at %d, end %d", pos, l.End())
			}
			l2, got, err := Open(mem.Crash(1), "wal", smallFiles)
			if err != nil {
				t.Fatal(err)
			}
			defer l2.closeFiles()
			for _, e := range idle {
				wantPayload(t, l2, 2, e)
			}
			if got[2].Hard != (HardState{Term: 1, Vote: 3, Commit: 2}) || got[3].Hard != (HardState{Term: 7, Vote: 1}) {
				t.Errorf("hard states of idle shards: %+v, %+v", got[2].Hard, got[3].Hard)
			}
		})
	}
}

// TestFullLogFreesItself fills a log that nobody trims: data is refused before
// the budget is exceeded, what frees it passes, and then data passes again.
func TestFullLogFreesItself(t *testing.T) {
	mem := vfs.NewMem(1)
	l, _ := open(t, mem, smallFiles)
	index, err := uint64(0), error(nil)
	for err == nil {
		index++
		err = l.Commit([]*Append{{Shard: 1, Entries: []Entry{entry(index, 1, strings.Repeat("w", 1500))}}})
	}
	if !errors.Is(err, ErrFull) || l.Err() != nil {
		t.Fatalf("a full log: %v, in service: %v", err, l.Err())
	}
	if u := l.Usage(); u.Used < u.Max {
		t.Errorf("data was refused at %d of %d bytes", u.Used, u.Max)
	}
	// Hard states and pointers of other shards still pass, many times over.
	for i := range uint64(500) {
		commit(t, l, &Append{Shard: 2, Hard: &HardState{Term: i + 1}})
		commit(t, l, &Append{Shard: 1, Entries: []Entry{entry(index+i, 1, "")}})
		if got, most := diskBytes(t, mem), smallFiles.MaxBytes+smallFiles.FileBytes; got > most {
			t.Fatalf("%d bytes on disk, budget and one file are %d", got, most)
		}
	}
	index += 499
	commit(t, l, &Append{Shard: 1, Snapshot: &SnapshotPointer{Index: index, Term: 1, File: "s.snap", Trimmed: index, TrimmedTerm: 1}})
	for range 200 {
		index++
		commit(t, l, &Append{Shard: 1, Entries: []Entry{entry(index, 1, strings.Repeat("w", 1500))}})
		if index%20 == 0 {
			commit(t, l, &Append{Shard: 1, Snapshot: &SnapshotPointer{Index: index, Term: 1, File: "s.snap", Trimmed: index, TrimmedTerm: 1}})
		}
	}
}

// TestIntakeBelowMaxIsNeverRefused keeps a log as full as intake may make it,
// with entries of up to an eighth of a file and shards that trim at very
// different times: nothing is refused and the budget holds.
func TestIntakeBelowMaxIsNeverRefused(t *testing.T) {
	o := Options{FileBytes: 128 << 10, MaxBytes: 2 << 20}
	for seed := range uint64(4) {
		mem := vfs.NewMem(seed)
		l, _, err := Open(mem, "wal", o)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		const shards = 4
		first, next := [shards]uint64{1, 1, 1, 1}, [shards]uint64{1, 1, 1, 1}
		for i := range 6000 {
			u := l.Usage()
			s := rng.IntN(shards)
			if u.Used >= u.Max {
				// Trim half of one shard: the one behind all others is often the last.
				for s = range shards {
					if next[s] > first[s]+8 && (s == shards-1 || rng.IntN(2) == 0) {
						break
					}
				}
				at := first[s] + (next[s]-first[s])/2
				if at == first[s] {
					continue
				}
				first[s] = at + 1
				commit(t, l, &Append{Shard: ShardID(s), Snapshot: &SnapshotPointer{Index: at, Term: 1, Trimmed: at, TrimmedTerm: 1}})
				continue
			}
			commit(t, l, &Append{Shard: ShardID(s), Entries: []Entry{entry(next[s], 1, strings.Repeat("i", rng.IntN(int(o.FileBytes/8))))}})
			next[s]++
			if seed%2 == 0 {
				if _, err := l.Maintain(4096); err != nil {
					t.Fatal(err)
				}
			}
			if i%50 == 0 {
				if got, most := diskBytes(t, mem), o.MaxBytes+o.FileBytes; got > most {
					t.Fatalf("seed %d: %d bytes on disk, budget and one file are %d", seed, got, most)
				}
			}
		}
		if s := l.Stats(); s.Rewritten > s.Bytes*9/10 {
			t.Errorf("seed %d: wrote %d bytes, of them %d again", seed, s.Bytes, s.Rewritten)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOversizedAppend: an append larger than a file gets a file of its own.
func TestOversizedAppend(t *testing.T) {
	mem := vfs.NewMem(1)
	l, _ := open(t, mem, smallFiles)
	big := []Entry{entry(1, 1, strings.Repeat("b", 50_000)), entry(2, 1, strings.Repeat("c", 10_000))}
	commit(t, l, &Append{Shard: 1, Entries: big})
	for i := range uint64(100) {
		commit(t, l, &Append{Shard: 2, Entries: []Entry{entry(i+1, 1, strings.Repeat("d", 3000))}},
			&Append{Shard: 2, Snapshot: &SnapshotPointer{Index: i + 1, Term: 1, Trimmed: i + 1, TrimmedTerm: 1}})
	}
	l2, _, err := Open(mem.Crash(1), "wal", smallFiles)
	if err != nil {
		t.Fatal(err)
	}
	defer l2.closeFiles()
	for _, e := range big {
		wantPayload(t, l, 1, e)
		wantPayload(t, l2, 1, e)
	}
}

// TestReadsRaceRecycling reads entries while their files are recycled: right
// bytes or ErrTrimmed, never anything else; entries that are live are always
// found, also while they move.
func TestReadsRaceRecycling(t *testing.T) {
	l, _ := open(t, vfs.NewMem(1), smallFiles)
	payload := func(i uint64) string { return strings.Repeat(fmt.Sprintf("<%d>", i), 300) }
	kept := entry(1, 1, payload(1))
	commit(t, l, &Append{Shard: 2, Entries: []Entry{kept}})
	var newest atomic.Uint64
	var stop atomic.Bool
	var trimmed atomic.Int64
	var wg sync.WaitGroup
	for r := range 2 {
		wg.Go(func() {
			for n := uint64(0); !stop.Load(); n++ {
				if got, err := l.ReadPayload(2, 1, 1, grab); err != nil || !bytes.Equal(got, kept.Payload) {
					t.Errorf("live entry: %d bytes, %v", len(got), err)
					return
				}
				last := newest.Load()
				if last == 0 {
					continue
				}
				i := last - min(last-1, (n*7+uint64(r))%150)
				got, err := l.ReadPayload(1, i, 1, grab)
				switch {
				case errors.Is(err, ErrTrimmed):
					trimmed.Add(1)
				case err != nil || string(got) != payload(i):
					t.Errorf("index %d: %d bytes, %v", i, len(got), err)
					return
				}
			}
		})
	}
	for i := uint64(1); i <= 3000 || trimmed.Load() == 0 && i < 100_000; i++ {
		commit(t, l, &Append{Shard: 1, Entries: []Entry{entry(i, 1, payload(i))}})
		newest.Store(i)
		if i%5 == 0 {
			commit(t, l, &Append{Shard: 1, Snapshot: &SnapshotPointer{Index: i, Term: 1, Trimmed: i - 2, TrimmedTerm: 1}})
		}
	}
	stop.Store(true)
	wg.Wait()
	if trimmed.Load() == 0 {
		t.Error("no read met a recycled file")
	}
	if _, err := l.ReadPayload(1, 1, 1, grab); !errors.Is(err, ErrTrimmed) {
		t.Errorf("the first entry: %v", err)
	}
}

// TestTrimmedStaysReadable: trimming alone takes nothing from readers.
func TestTrimmedStaysReadable(t *testing.T) {
	l, _ := open(t, vfs.NewMem(1), smallFiles)
	e := []Entry{entry(1, 1, "one"), entry(2, 1, "two"), entry(3, 1, "three")}
	commit(t, l, &Append{Shard: 1, Entries: e})
	commit(t, l, &Append{Shard: 1, Snapshot: &SnapshotPointer{Index: 3, Term: 1, Trimmed: 2, TrimmedTerm: 1}})
	for _, e := range e {
		wantPayload(t, l, 1, e)
	}
	for _, want := range []struct {
		shard       ShardID
		index, term uint64
	}{{1, 4, 1}, {1, 3, 2}, {5, 1, 1}} {
		if _, err := l.ReadPayload(want.shard, want.index, want.term, grab); !errors.Is(err, ErrNotFound) {
			t.Errorf("shard %d, index %d, term %d: %v", want.shard, want.index, want.term, err)
		}
	}
}

// TestRestartsUseUpNothing starts a log again and again, with a record or two in
// each life: files without records go, the others are recycled.
func TestRestartsUseUpNothing(t *testing.T) {
	mem := vfs.NewMem(1)
	for i := range uint64(100) {
		l, _, err := Open(mem, "wal", smallFiles)
		if err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			commit(t, l, &Append{Shard: 1, Hard: &HardState{Term: i + 1}})
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	names, err := mem.List("wal")
	if err != nil || len(names) > 10 {
		t.Fatalf("%d files after 100 starts (%v)", len(names), err)
	}
}
