package wal

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"thermocline/wal/vfs"
)

// patch writes bytes into a file, past the log.
func patch(t *testing.T, fs vfs.FS, name string, off int64, b []byte) {
	t.Helper()
	f, err := fs.Open("wal/" + name)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAtv([][]byte{b}, off)
	if err == nil {
		err = f.Sync()
	}
	if err = withClose(err, f); err != nil {
		t.Fatal(err)
	}
}

// written makes a log of three files with one group per entry and goes idle.
func written(t *testing.T) (*vfs.Mem, *Log) {
	t.Helper()
	mem := vfs.NewMem(1)
	l, _ := open(t, mem, smallFiles)
	for i := uint64(1); len(l.files) < 3; i++ {
		commit(t, l, &Append{Shard: 1, Entries: []Entry{entry(i, 1, strings.Repeat("p", 5000))}, Hard: &HardState{Term: 1}})
	}
	if err := l.Idle(); err != nil {
		t.Fatal(err)
	}
	return mem, l
}

func wantCorrupt(t *testing.T, fs vfs.FS, file string, off int64) {
	t.Helper()
	l, _, err := Open(fs, "wal", smallFiles)
	var c *CorruptionError
	if !errors.As(err, &c) || !errors.Is(err, ErrCorrupt) {
		if err == nil {
			err = l.Close()
		}
		t.Fatalf("got %v, want a corruption error", err)
	}
	if !strings.HasSuffix(c.File, file) || c.Offset != off {
		t.Fatalf("damage reported in %s at %d, want %s at %d: %v", c.File, c.Offset, file, off, err)
	}
	// Reporting changes nothing, and gives up the lock.
	if _, _, err := Open(fs, "wal", smallFiles); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("second open: %v", err)
	}
}

func TestZeroedHeaders(t *testing.T) {
	for i := range 3 {
		mem, l := written(t)
		c := mem.Crash(1)
		patch(t, c, l.files[i].name, 0, make([]byte, blockSize))
		wantCorrupt(t, c, l.files[i].name, 0)
	}
}

func TestZeroedBlocks(t *testing.T) {
	mem, l := written(t)
	for i, f := range l.files {
		end := f.off
		if i == 2 {
			end -= blockSize // the closing record itself is named by nothing
		}
		for off := int64(blockSize); off < end; off += 2 * blockSize { // each group takes two blocks
			c := mem.Crash(1)
			patch(t, c, f.name, off, make([]byte, blockSize))
			wantCorrupt(t, c, f.name, off)
		}
	}
}

func TestMissingFile(t *testing.T) {
	mem, l := written(t)
	c := mem.Crash(1)
	if err := c.Remove("wal/" + l.files[1].name); err != nil {
		t.Fatal(err)
	}
	wantCorrupt(t, c, l.files[0].name, l.files[0].off)
	c = mem.Crash(1)
	if err := c.Remove("wal/" + l.files[0].name); err != nil {
		t.Fatal(err)
	}
	l2, got, err := Open(c, "wal", smallFiles)
	if err != nil {
		t.Fatal(err) // nothing says where a shard without pointer begins
	}
	defer l2.closeFiles()
	if got[1].Entries[0].Index == 1 {
		t.Fatal("entries of the missing file")
	}
}

// TestHolesAreReported: a shard that is not whole from its trim point to its
// snapshot and commit index has lost entries, even if every file reads well.
func TestHolesAreReported(t *testing.T) {
	fill := func(l *Log, s ShardID, from uint64, files int) uint64 {
		for ; len(l.files) < files; from++ {
			commit(t, l, &Append{Shard: s, Entries: []Entry{entry(from, 1, strings.Repeat("h", 3000))}})
		}
		return from
	}
	for name, build := range map[string]func(l *Log){
		"first entries": func(l *Log) {
			next := fill(l, 1, 1, 2)
			commit(t, l, &Append{Shard: 1, Snapshot: &SnapshotPointer{Index: next - 1, Term: 1, Trimmed: 1, TrimmedTerm: 1}})
		},
		"all entries": func(l *Log) {
			commit(t, l, &Append{Shard: 1, Entries: []Entry{entry(1, 1, "a"), entry(2, 1, "b")}})
			fill(l, 2, 1, 2)
			commit(t, l, &Append{Shard: 1, Snapshot: &SnapshotPointer{Index: 2, Term: 1, Trimmed: 1, TrimmedTerm: 1}})
		},
		"some in the middle": func(l *Log) {
			commit(t, l, &Append{Shard: 1, Entries: []Entry{entry(1, 1, "a"), entry(2, 1, "b")}})
			fill(l, 2, 1, 2)
			s := l.shards[1]
			l.begin(1000) // a copy of the first entry only
			l.emptying.buf = make([]byte, 0, 1000)
			if err := l.copyEntry(&liveRecord{shard: s, index: 1}, s.log.get(1)); err != nil {
				t.Fatal(err)
			}
			if err := l.write(0); err != nil {
				t.Fatal(err)
			}
			commit(t, l, &Append{Shard: 1, Entries: []Entry{entry(3, 1, "c")}})
		},
		"the committed end": func(l *Log) {
			commit(t, l, &Append{Shard: 1, Entries: []Entry{entry(1, 1, "a")}})
			fill(l, 2, 1, 2)
			s := l.shards[1]
			l.begin(1000)
			l.emptying.buf = make([]byte, 0, 1000)
			if err := l.copyEntry(&liveRecord{shard: s, index: 1}, s.log.get(1)); err != nil {
				t.Fatal(err)
			}
			l.g.add(s, hardRecord(1, HardState{Term: 1, Commit: 5}, 0, l.g.body[:0]), nil)
			if err := l.write(0); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem(1)
			l, _ := open(t, mem, smallFiles)
			build(l)
			c := mem.Crash(1)
			if err := c.Remove("wal/" + l.files[0].name); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Open(c, "wal", smallFiles); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "shard 1") {
				t.Fatalf("got %v, want corruption of shard 1", err)
			}
		})
	}
}

// TestTornTail cuts the last group at every 256 bytes: what was before it is
// there, the cut is logged, and the log goes on.
func TestTornTail(t *testing.T) {
	mem, l := written(t)
	last := l.active
	at := last.off
	n := uint64(len(l.shards[1].log.slots))
	e := entry(n+1, 1, strings.Repeat("t", 7000))
	commit(t, l, &Append{Shard: 1, Entries: []Entry{e}})
	for cut := at; cut < at+groupHeaderLen+entrySize(&e); cut += 256 {
		c := mem.Crash(1)
		patch(t, c, last.name, cut, bytes.Repeat([]byte{0xa5}, int(at+2*blockSize-cut)))
		var logged bytes.Buffer
		o := smallFiles
		o.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		l2, got, err := Open(c, "wal", o)
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if len(got[1].Entries) != int(n) {
			t.Fatalf("cut at %d: %d entries, want %d", cut, len(got[1].Entries), n)
		}
		if cut > at && !strings.Contains(logged.String(), "torn") {
			t.Fatalf("cut at %d: not logged: %s", cut, logged.String())
		}
		commit(t, l2, &Append{Shard: 1, Entries: []Entry{e}})
		if err := l2.Close(); err != nil {
			t.Fatal(err)
		}
		l3, got, err := Open(c, "wal", smallFiles)
		if err != nil || len(got[1].Entries) != int(n)+1 {
			t.Fatalf("cut at %d: after going on: %d entries, %v", cut, len(got[1].Entries), err)
		}
		wantPayload(t, l3, 1, e)
		if err := l3.Close(); err != nil {
			t.Fatal(err)
		}
		wantOnlyTorn(t, c, last.name, cut > at)
	}
}

// wantOnlyTorn: what an earlier start has cut is shown as that, once, and
// nothing as damage; damage below it is still shown as such.
func wantOnlyTorn(t *testing.T, fs *vfs.Mem, file string, cut bool) {
	t.Helper()
	look := func() (torn, damage int) {
		err := Scan(fs, "wal", func(r ScanRecord) error {
			switch {
			case r.Kind != ScanDamage:
			case r.Torn && r.File == file:
				torn++
			default:
				damage++
				t.Logf("%s at %d: %s", r.File, r.Offset, r.Problem)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return torn, damage
	}
	if torn, damage := look(); damage != 0 || cut != (torn == 1) {
		t.Fatalf("a log that was cut and went on: %d torn tails, %d damages", torn, damage)
	}
	patch(t, fs, file, blockSize+groupHeaderLen+8, []byte{0xff, 0xfe})
	if _, damage := look(); damage == 0 {
		t.Fatal("damage below the cut was not shown")
	}
}

func entrySize(e *Entry) int64 {
	return recordHeaderLen + int64(len(e.Descriptor)+len(e.Payload))
}

// TestDamageFoundByReads: damage after recovery is found by the read, and by
// recycling, which takes the log out of service.
func TestDamageFoundByReads(t *testing.T) {
	mem, l := written(t)
	at := l.shards[1].log.slots[2]
	patch(t, mem, at.file.name, int64(at.off)+100, []byte{0xff})
	_, err := l.ReadPayload(1, 3, 1, grab)
	var c *CorruptionError
	if !errors.As(err, &c) || !strings.HasSuffix(c.File, at.file.name) {
		t.Fatalf("read of a damaged payload: %v", err)
	}
	if _, err := l.ReadPayload(1, 2, 1, grab); err != nil {
		t.Fatalf("read of its neighbour: %v", err)
	}
	if err := l.emptyWhole(); !errors.Is(err, ErrFailed) || !errors.Is(err, ErrCorrupt) {
		t.Fatalf("recycling: %v", err)
	}
	if !errors.Is(l.Err(), ErrCorrupt) {
		t.Fatalf("the log is in service: %v", l.Err())
	}
}

func TestNewerVersionsAreRefused(t *testing.T) {
	mem, l := written(t)
	f := l.files[1]
	for _, what := range []struct {
		off    int64
		encode func(b []byte)
	}{
		{0, func(b []byte) {
			h := fileHeader{use: f.use, start: f.start, length: f.length}
			h.encode(b)
			b[8] = 2
			le.PutUint32(b[60:], checksum(b[:60]))
		}},
		{blockSize, func(b []byte) {
			h := groupHeader{use: f.use, pos: f.start + blockSize, length: 5000, records: 1}
			h.encode(b)
			b[4] = 2
			le.PutUint32(b[44:], checksum(b[:44]))
		}},
	} {
		c := mem.Crash(1)
		b := make([]byte, fileHeaderLen)
		what.encode(b)
		patch(t, c, f.name, what.off, b)
		if _, _, err := Open(c, "wal", smallFiles); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "version 2") {
			t.Errorf("version 2 at %d: %v", what.off, err)
		}
	}
}

// TestSecondOpenIsRefused: one process, one log.
func TestSecondOpenIsRefused(t *testing.T) {
	for name, fs := range map[string]vfs.FS{"mem": vfs.NewMem(1), "os": vfs.OS(t.TempDir())} {
		open(t, fs, smallFiles)
		if _, _, err := Open(fs, "wal", smallFiles); err == nil {
			t.Errorf("%s: opened twice", name)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{FileBytes: 64 << 20, MaxBytes: 100 << 20},
		{FileBytes: 4 << 30, MaxBytes: 64 << 30},
		{MaxBytes: 1000},
	} {
		if _, _, err := Open(vfs.NewMem(1), "wal", o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if o, err := (Options{MaxBytes: 64 << 20}).withDefaults(); err != nil || o.FileBytes != 4<<20 {
		t.Errorf("defaults for 64 MiB: %+v, %v", o, err)
	}
}

// TestInvalidAppends: what breaks the rules is refused, leaves no trace, and
// hurts nobody in the same group.
func TestInvalidAppends(t *testing.T) {
	long := string(make([]byte, maxFileName+1))
	for name, bad := range map[string]*Append{
		"gap":               {Entries: []Entry{entry(9, 1, "")}},
		"gap inside":        {Entries: []Entry{entry(4, 1, ""), entry(6, 1, "")}},
		"index 0":           {Entries: []Entry{entry(0, 1, "")}},
		"trimmed":           {Entries: []Entry{entry(1, 1, "")}},
		"term back":         {Hard: &HardState{Term: 1, Commit: 2}},
		"second vote":       {Hard: &HardState{Term: 2, Vote: 4, Commit: 2}},
		"commit back":       {Hard: &HardState{Term: 2, Vote: 3, Commit: 1}},
		"descriptor":        {Entries: []Entry{{Index: 4, Term: 2, Descriptor: make([]byte, maxDescriptor+1)}}},
		"snapshot unstaged": {Snapshot: &SnapshotPointer{Index: 50, Term: 2, Trimmed: 40}},
		"snapshot back":     {Snapshot: &SnapshotPointer{Index: 1, Term: 9, Trimmed: 1}},
		"trim back":         {Snapshot: &SnapshotPointer{Index: 3, Term: 1, Trimmed: 0}},
		"trim beyond":       {Snapshot: &SnapshotPointer{Index: 3, Term: 1, Trimmed: 4}},
		"file name":         {Snapshot: &SnapshotPointer{Index: 3, Term: 1, Trimmed: 3, File: long}},
		"remove and more":   {Remove: true, Hard: &HardState{Term: 9}},
		"staged index 0":    {Staged: true, Entries: []Entry{entry(0, 1, "")}},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem(1)
			l, _ := open(t, mem, smallFiles)
			commit(t, l, &Append{Shard: 1, Entries: []Entry{entry(1, 1, "a"), entry(2, 1, "b"), entry(3, 1, "c")},
				Hard: &HardState{Term: 2, Vote: 3, Commit: 2}})
			commit(t, l, &Append{Shard: 1, Snapshot: &SnapshotPointer{Index: 2, Term: 1, Trimmed: 1, TrimmedTerm: 1}})
			bad.Shard = 1
			var order []string
			note := func(who string) func(error) {
				return func(err error) { order = append(order, fmt.Sprintf("%s %v", who, errors.Is(err, ErrInvalid))) }
			}
			bad.Done = note("bad")
			err := l.Commit([]*Append{
				{Shard: 2, Entries: []Entry{entry(1, 1, "")}, Done: note("before")}, bad,
				{Shard: 1, Entries: []Entry{entry(4, 2, "")}, Done: note("after")},
			})
			if !errors.Is(err, ErrInvalid) || l.Err() != nil {
				t.Fatalf("commit: %v, in service: %v", err, l.Err())
			}
			if got := strings.Join(order, ", "); got != "before false, bad true, after false" {
				t.Fatalf("answers: %s", got)
			}
			_, got, err := Open(mem.Crash(1), "wal", smallFiles)
			if err != nil {
				t.Fatal(err)
			}
			r := got[1]
			if len(r.Entries) != 3 || r.Entries[0].Index != 2 || r.Entries[2].Index != 4 || r.Hard != (HardState{Term: 2, Vote: 3, Commit: 2}) || r.Snapshot.Index != 2 || len(got[2].Entries) != 1 {
				t.Fatalf("recovered %+v", r)
			}
		})
	}
}
