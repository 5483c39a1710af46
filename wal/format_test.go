package wal

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"thermocline/wal/vfs"
)

var writeGolden = flag.Bool("golden.new", false, "write the golden files of a new format version; existing ones are never rewritten")

// goldenLog writes a log with every kind of record.
func goldenLog(t *testing.T) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem(1)
	l, _ := open(t, mem, Options{FileBytes: 16 << 10, MaxBytes: 128 << 10})
	e := entry(2, 3, "a payload")
	e.Type = 1
	commit(t, l,
		&Append{Shard: 1, Entries: []Entry{entry(1, 3, strings.Repeat("p", 1500)), e}, Hard: &HardState{Term: 3, Vote: 9, Commit: 1}},
		&Append{Shard: 2, Entries: []Entry{entry(1, 1, "")}},
	)
	commit(t, l, &Append{Shard: 1, Snapshot: &SnapshotPointer{Index: 2, Term: 3, File: "own.snap", Trimmed: 1, TrimmedTerm: 3}})
	commit(t, l, &Append{Shard: 3, Staged: true, Entries: []Entry{entry(8, 2, "s"), entry(9, 2, "t")}})
	commit(t, l, // in the second file
		&Append{Shard: 3, Snapshot: &SnapshotPointer{Index: 9, Term: 2, File: "got.snap", Trimmed: 7, TrimmedTerm: 2}},
		&Append{Shard: 2, Remove: true},
	)
	if err := l.emptyWhole(); err != nil { // copies of all that lives in the first
		t.Fatal(err)
	}
	if err := l.Idle(); err != nil {
		t.Fatal(err)
	}
	return mem
}

// describe scans a log into lines.
func describe(t *testing.T, fs vfs.FS) string {
	t.Helper()
	var out strings.Builder
	err := Scan(fs, "wal", func(r ScanRecord) error {
		fmt.Fprintf(&out, "%s %s @%d pos %d len %d", r.Kind, r.File, r.Offset, r.Position, r.Length)
		switch r.Kind {
		case ScanFile, ScanGroup, ScanClosing:
			fmt.Fprintf(&out, " records %d synced %d", r.Records, r.Synced)
		case ScanDamage:
			fmt.Fprintf(&out, " torn %v: %s", r.Torn, r.Problem)
		default:
			fmt.Fprintf(&out, " shard %d index %d term %d type %d desc %d payload %d copy %v staged %v install %v",
				r.Shard, r.Index, r.Term, r.Type, r.DescriptorLen, r.PayloadLen, r.Copy, r.Staged, r.Install)
		}
		if r.Hard != nil {
			fmt.Fprintf(&out, " %+v", *r.Hard)
		}
		if r.Snapshot != nil {
			fmt.Fprintf(&out, " %+v", *r.Snapshot)
		}
		out.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// readAll reads one file of the log.
func readAll(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open("wal/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return b
}

// TestGolden reads the golden log of version 1, and sees that today's code still
// writes it byte for byte.
func TestGolden(t *testing.T) {
	dir := filepath.Join("testdata", "v1")
	mem := goldenLog(t)
	names, err := mem.List("wal")
	if err != nil {
		t.Fatal(err)
	}
	if *writeGolden {
		writeNew(t, dir, mem, names)
	}
	kept := vfs.NewMem(1)
	if err := kept.MkdirAll("wal"); err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		want, err := os.ReadFile(filepath.Join(dir, n))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kept.Create("wal/" + n); err != nil {
			t.Fatal(err)
		}
		patch(t, kept, n, 0, want)
		if got := readAll(t, mem, n); !bytes.Equal(got, want) {
			t.Errorf("%s: today's code writes other bytes than version 1", n)
		}
	}
	want, err := os.ReadFile(filepath.Join(dir, "scan.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if got := describe(t, kept); got != string(want) {
		t.Errorf("the golden log reads as\n%s\nwant\n%s", got, want)
	}
	l, got, err := Open(kept, "wal", Options{FileBytes: 16 << 10, MaxBytes: 128 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer l.closeFiles()
	if len(got) != 2 || len(got[1].Entries) != 1 || got[1].Hard.Vote != 9 || len(got[3].Entries) != 2 || got[3].Snapshot.File != "got.snap" {
		t.Errorf("recovered %+v, %+v", got[1], got[3])
	}
	wantPayload(t, l, 3, entry(9, 2, "t"))
}

func writeNew(t *testing.T, dir string, mem *vfs.Mem, names []string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatalf("golden files of a version are written once: %v", err)
	}
	for _, n := range names {
		if err := os.WriteFile(filepath.Join(dir, n), readAll(t, mem, n), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "scan.txt"), []byte(describe(t, mem)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestScanShowsDamage: Scan goes on behind damage and tells a torn tail from it,
// changes nothing, and works beside the log's owner.
func TestScanShowsDamage(t *testing.T) {
	mem, l := written(t)
	clean := describe(t, mem)
	if strings.Contains(clean, "damage") {
		t.Fatalf("damage in a good log:\n%s", clean)
	}
	patch(t, mem, l.files[0].name, blockSize+500, []byte("damage"))
	patch(t, mem, l.files[1].name, 3, []byte("damage"))
	got := describe(t, mem)
	if n := strings.Count(got, "damage"); n != 2 || strings.Contains(got, "torn true") {
		t.Errorf("two damaged places show as\n%s", got)
	}
	if before, after := strings.Count(clean, "\nentry"), strings.Count(got, "\nentry"); after < before/2 {
		t.Errorf("%d of %d entries shown behind damage", after, before)
	}
	c := mem.Crash(1)
	commit(t, l, &Append{Shard: 5, Entries: []Entry{entry(1, 1, strings.Repeat("t", 6000))}})
	patch(t, mem, l.active.name, l.active.off-blockSize, []byte("torn"))
	if got := describe(t, mem); strings.Count(got, "torn true") != 1 {
		t.Errorf("a torn tail shows as\n%s", got)
	}
	stop := errors.New("stop")
	if err := Scan(c, "wal", func(ScanRecord) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the callback's error: %v", err)
	}
}
