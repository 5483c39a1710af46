package wal

import (
	"strings"
	"testing"

	"thermocline/wal/vfs"
)

// TestSmallGroupsGrowFilesInSteps: a small group that lets its file grow takes
// it to the next step, so that those after it let it be as it is; a large group
// adds no zeroes, and nothing goes beyond a file's length.
func TestSmallGroupsGrowFilesInSteps(t *testing.T) {
	ends := map[int64]int{} // of writes: how many ended there
	mem := vfs.NewMem(1)
	fs := vfs.NewFaulty(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite {
			ends[op.Off+int64(op.Len)]++
		}
		return nil
	})
	o := Options{FileBytes: 2*growStep + growStep/2, MaxBytes: 64 * growStep}
	l, _ := open(t, fs, o)
	var written []Entry
	add := func(size int) {
		t.Helper()
		e := entry(uint64(len(written)+1), 1, strings.Repeat("x", size))
		commit(t, l, &Append{Shard: 1, Entries: []Entry{e}})
		written = append(written, e)
	}
	for range 10 {
		add(1000)
	}
	if f := l.active; f.size != growStep || ends[growStep] != 1 {
		t.Errorf("after ten small groups: %d bytes on disk, %d writes up to there; expected %d, and one", f.size, ends[growStep], growStep)
	}
	add(growStep)
	if f := l.active; f.size != f.off || f.size >= growStep+growStep/2 {
		t.Errorf("after a large group: %d bytes on disk, the next group at %d; expected the same", f.size, f.off)
	}
	add(1000)
	if f := l.active; f.size != 2*growStep {
		t.Errorf("after another small group: %d bytes on disk, expected %d", f.size, 2*growStep)
	}
	add(growBelow + 1)
	add(growBelow + 1)
	add(1000)
	if f := l.active; f.size != f.length {
		t.Errorf("near a file's end: %d bytes on disk, expected %d", f.size, f.length)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, got := open(t, mem, o)
	if n := len(got[1].Entries); n != len(written) {
		t.Fatalf("recovered %d entries of %d", n, len(written))
	}
	for _, e := range written {
		wantPayload(t, l, 1, e)
	}
}
