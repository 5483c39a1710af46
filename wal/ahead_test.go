package wal

import (
	"errors"
	"strings"
	"testing"

	"thermocline/wal/vfs"
)

// filling is a log whose files are a quarter of a fill's step.
var filling = Options{FileBytes: 256 << 10, MaxBytes: 16 << 20, FillPerSecond: 1 << 40}

// TestWriterFillsAhead: with a fill, a file was written before the log needs it;
// it is as long as it will ever be, and what goes into it is read back after a
// restart.
func TestWriterFillsAhead(t *testing.T) {
	mem := vfs.NewMem(1)
	w := newWriter(t, mem, filling)
	var written []Entry
	for index := uint64(1); w.Stats().Recycled == 0; index++ {
		if index > 500 {
			t.Fatal("no file that was written ahead is in use after 500 entries")
		}
		e := entry(index, 1, strings.Repeat("x", 20_000))
		if err := wait(w, &Append{Shard: 1, Entries: []Entry{e}}); err != nil {
			t.Fatal(err)
		}
		written = append(written, e)
	}
	if u := w.Usage(); u.Disk < filling.FileBytes {
		t.Errorf("%d bytes on disk, expected a whole file of %d", u.Disk, filling.FileBytes)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, got := open(t, mem, filling)
	if n := len(got[1].Entries); n != len(written) {
		t.Fatalf("recovered %d entries of %d", n, len(written))
	}
	wantPayload(t, l, 1, written[len(written)-1])
}

// TestFillFails: a log goes on with files that grow, and tries again with the
// next one.
func TestFillFails(t *testing.T) {
	tries := 0
	full := errors.New("disk full")
	fs := vfs.NewFaulty(vfs.NewMem(1), func(op vfs.Op) error {
		// A fill begins where a header goes, and is longer.
		if op.Kind == vfs.OpWrite && op.Off == 0 && op.Len > blockSize {
			tries++
			return full
		}
		return nil
	})
	w := newWriter(t, fs, filling)
	for index := uint64(1); index <= 60; index++ {
		if err := wait(w, &Append{Shard: 1, Entries: []Entry{entry(index, 1, strings.Repeat("x", 20_000))}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if files := int(w.Stats().Files); tries == 0 || tries > files+1 || files < 3 {
		t.Errorf("%d tries to write ahead with %d files", tries, files)
	}
	if _, free, err := listFiles(fs, "wal"); err != nil || len(free) > 0 {
		t.Errorf("free files are left: %v, %v", free, err)
	}
}

// TestCloseEndsAFill, which would go on for hours.
func TestCloseEndsAFill(t *testing.T) {
	mem := vfs.NewMem(1)
	w := newWriter(t, mem, Options{FileBytes: 64 << 20, MaxBytes: 1 << 30, FillPerSecond: 1 << 10})
	if err := wait(w, &Append{Shard: 1, Entries: []Entry{entry(1, 1, "x")}}); err != nil {
		t.Fatal(err)
	}
	if u := w.Usage(); u.Disk < 64<<20 {
		t.Errorf("%d bytes on disk: the file that is being written ahead is missing", u.Disk)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, free, err := listFiles(mem, "wal"); err != nil || len(free) > 0 {
		t.Errorf("free files are left: %v, %v", free, err)
	}
}

// TestDeadFilesGoRound: a log far below its budget that trims goes round a few
// files instead of growing up to the budget.
func TestDeadFilesGoRound(t *testing.T) {
	mem := vfs.NewMem(1)
	o := Options{FileBytes: 64 << 10, MaxBytes: 16 << 20}
	l, _ := open(t, mem, o)
	commit(t, l, &Append{Shard: 2, Hard: &HardState{Term: 7, Vote: 1}})
	for index := uint64(1); index <= 500; index++ {
		commit(t, l, &Append{Shard: 1, Entries: []Entry{entry(index, 1, strings.Repeat("x", 8_000))}})
		if index%10 == 0 {
			commit(t, l, &Append{Shard: 1, Snapshot: &SnapshotPointer{Index: index, Term: 1, File: "s.snap", Trimmed: index, TrimmedTerm: 1}})
		}
		if _, err := l.Maintain(copyStep); err != nil {
			t.Fatal(err)
		}
	}
	if u, most := l.Usage(), int64(spareFrom+4)*o.FileBytes; u.Disk > most {
		t.Errorf("%d bytes on disk, expected at most %d", u.Disk, most)
	}
	if s := l.Stats(); s.Recycled < s.Files-spareFrom-4 {
		t.Errorf("%d of %d files are recycled ones", s.Recycled, s.Files)
	}
	if hard := l.shards[2].hard; hard.Term != 7 {
		t.Errorf("the idle shard's hard state is %+v", hard)
	}
}
