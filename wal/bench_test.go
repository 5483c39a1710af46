package wal

import (
	"fmt"
	"testing"

	"thermocline/wal/vfs"
)

// trimEvery keeps the benchmarks' logs short, so that files are recycled as in a
// broker whose data is tiered.
const trimEvery = 64 << 20

// BenchmarkCommit measures one group of one append on real files, recycled as in
// steady state once the budget has been written. Compare with BenchmarkBare.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			l, _, err := Open(vfs.OS(b.TempDir()), "wal", Options{FileBytes: 16 << 20, MaxBytes: 128 << 20})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			c := newCommitter(l, size)
			for written := 0; written < 256<<20 && size >= 64<<10; written += size { // reach the steady state
				c.commit(b)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				c.commit(b)
			}
		})
	}
}

// committer appends entries of one size and trims behind them.
type committer struct {
	l        *Log
	a        *Append
	group    []*Append
	trim     *Append
	unsealed int
}

func newCommitter(l *Log, size int) *committer {
	e := entry(0, 1, string(make([]byte, size)))
	e.Descriptor = make([]byte, 56)
	return &committer{
		l: l, a: &Append{Shard: 1, Entries: []Entry{e}}, group: make([]*Append, 1),
		trim: &Append{Shard: 1, Snapshot: &SnapshotPointer{Term: 1, TrimmedTerm: 1, File: "bench.snap"}},
	}
}

func (c *committer) commit(b testing.TB) {
	c.a.Entries[0].Index++
	c.group[0] = c.a
	if err := c.l.Commit(c.group); err != nil {
		b.Fatal(err)
	}
	if c.unsealed += len(c.a.Entries[0].Payload); c.unsealed < min(trimEvery, int(c.l.o.MaxBytes/4)) {
		return
	}
	c.unsealed = 0
	c.trim.Snapshot.Index, c.trim.Snapshot.Trimmed = c.a.Entries[0].Index, c.a.Entries[0].Index
	c.group[0] = c.trim
	if err := c.l.Commit(c.group); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkBare is the floor: the same bytes in whole blocks by one pwritev and
// one fdatasync, round a file that was written before, or at the end of a
// growing one.
func BenchmarkBare(b *testing.B) {
	const length = 64 << 20
	for _, grown := range []bool{false, true} {
		for _, size := range []int{8 << 10, 68 << 10, 1<<20 + 4<<10} {
			name := "prewritten"
			if grown {
				name = "growing"
			}
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) {
				f, err := vfs.OS(b.TempDir()).Create("bare")
				if err != nil {
					b.Fatal(err)
				}
				defer f.Close()
				bufs := [][]byte{make([]byte, size)}
				if !grown {
					for off := int64(0); off < length; off += int64(size) {
						if _, err := f.WriteAtv(bufs, off); err != nil {
							b.Fatal(err)
						}
					}
					if err := f.Sync(); err != nil {
						b.Fatal(err)
					}
				}
				off := int64(0)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					if _, err := f.WriteAtv(bufs, off); err != nil {
						b.Fatal(err)
					}
					if err := f.Sync(); err != nil {
						b.Fatal(err)
					}
					if off += int64(size); off+int64(size) > length {
						off = 0
						if grown {
							if err := f.Truncate(0); err != nil {
								b.Fatal(err)
							}
						}
					}
				}
			})
		}
	}
}

// nullFS takes writes and keeps nothing: what is left is the log's own work.
type nullFS struct{ vfs.FS }

type nullFile struct{ vfs.File }

func (f nullFS) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	return nullFile{file}, err
}

func (f nullFS) Open(name string) (vfs.File, error) {
	file, err := f.FS.Open(name)
	return nullFile{file}, err
}

func (nullFile) Sync() error { return nil }

func (nullFile) WriteAtv(bufs [][]byte, _ int64) (int, error) {
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	return n, nil
}

// TestCommitAllocates: a group commit allocates next to nothing.
func TestCommitAllocates(t *testing.T) {
	l, _, err := Open(nullFS{vfs.NewMem(1)}, "wal", Options{FileBytes: 64 << 20, MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	var group []*Append
	for s := range ShardID(8) {
		e := entry(0, 1, string(make([]byte, 3000)))
		e.Descriptor = make([]byte, 56)
		small := entry(1, 1, string(make([]byte, 100)))
		group = append(group, &Append{Shard: s, Entries: []Entry{e, small}, Hard: &HardState{Term: 1}, Done: func(error) {}})
	}
	commitNext := func() {
		for _, a := range group {
			a.Entries[0].Index = a.Entries[1].Index
			a.Entries[1].Index++
		}
		if err := l.Commit(group); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range group {
		a.Entries[1].Index = 1
	}
	if got := testing.AllocsPerRun(1000, commitNext); got > 2 {
		t.Errorf("a group of 8 appends makes %.1f allocations", got)
	}
}

// BenchmarkGroup measures the log's own work for a group of 64 appends with 4 KiB
// each: no disk.
func BenchmarkGroup(b *testing.B) {
	l, _, err := Open(nullFS{vfs.NewMem(1)}, "wal", Options{FileBytes: 64 << 20, MaxBytes: 4 << 30})
	if err != nil {
		b.Fatal(err)
	}
	group := make([]*Append, 64)
	for i := range group {
		e := entry(0, 1, string(make([]byte, 4096)))
		e.Descriptor = make([]byte, 56)
		group[i] = &Append{Shard: ShardID(i), Entries: []Entry{e}}
	}
	b.SetBytes(64 * 4096)
	b.ReportAllocs()
	for i := range b.N {
		for _, a := range group {
			a.Entries[0].Index = uint64(i + 1)
		}
		if err := l.Commit(group); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 999 {
			for j := range group {
				p := &SnapshotPointer{Index: uint64(i + 1), Term: 1, Trimmed: uint64(i + 1), TrimmedTerm: 1}
				if err := l.Commit([]*Append{{Shard: ShardID(j), Snapshot: p}}); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}
