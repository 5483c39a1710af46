package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"thermocline/wal/vfs"
)

func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 >> (i % 5))
	}
	return b
}

func save(fs vfs.FS, name string, data []byte) error {
	return WriteSnapshot(fs, "wal", name, func(w io.Writer) error {
		// In pieces of odd sizes.
		for rest := data; len(rest) > 0; {
			n, err := w.Write(rest[:min(len(rest), 70_001)])
			if err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	})
}

func load(fs vfs.FS, name string) ([]byte, error) {
	r, err := OpenSnapshot(fs, "wal", name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

func TestSnapshotRoundTrip(t *testing.T) {
	for name, fs := range map[string]vfs.FS{"mem": vfs.NewMem(1), "os": vfs.OS(t.TempDir())} {
		if err := fs.MkdirAll("wal"); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 1, snapshotChunk - 1, snapshotChunk, snapshotChunk + 1, 3*snapshotChunk + 5} {
			file := fmt.Sprint("a", n, SnapshotSuffix)
			if err := save(fs, file, content(n)); err != nil {
				t.Fatal(err)
			}
			got, err := load(fs, file)
			if err != nil || !bytes.Equal(got, content(n)) {
				t.Errorf("%s: %d bytes: got %d, %v", name, n, len(got), err)
			}
		}
		for _, bad := range []string{"a", "x/a.snap", ".snapx", strings.Repeat("l", 300) + SnapshotSuffix} {
			if err := save(fs, bad, nil); err == nil {
				t.Errorf("%s: name %q was accepted", name, bad)
			}
		}
	}
}

// TestSnapshotCrash crashes before every operation: the file is whole or not
// there, and after WriteSnapshot returned it is there.
func TestSnapshotCrash(t *testing.T) {
	mem := vfs.NewMem(1)
	if err := mem.MkdirAll("wal"); err != nil {
		t.Fatal(err)
	}
	data := content(40_000)
	check := func(c *vfs.Mem, must bool) {
		t.Helper()
		got, err := load(c, "s.snap")
		switch {
		case err == nil && bytes.Equal(got, data):
		case !must && err != nil && !errors.Is(err, ErrCorrupt):
		default:
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
	}
	fs := vfs.NewFaulty(mem, func(vfs.Op) error {
		for seed := range uint64(20) {
			check(mem.Crash(seed), false)
		}
		return nil
	})
	if err := save(fs, "s.snap", data); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		check(mem.Crash(seed), true)
	}
}

func TestSnapshotFailures(t *testing.T) {
	data := content(snapshotChunk + 100)
	for n := 1; ; n++ {
		mem := vfs.NewMem(1)
		if err := mem.MkdirAll("wal"); err != nil {
			t.Fatal(err)
		}
		failed := false
		fs := vfs.NewFaulty(mem, vfs.FailNth(n, syscall.EIO, func(op vfs.Op) bool {
			failed = failed || op.N == n
			return true
		}))
		err := save(fs, "s.snap", data)
		if !failed {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("operation %d failed: %v", n, err)
		}
	}
	mem := vfs.NewMem(1)
	if err := mem.MkdirAll("wal"); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	err := WriteSnapshot(mem, "wal", "s.snap", func(io.Writer) error { return refused })
	if names, _ := mem.List("wal"); !errors.Is(err, refused) || len(names) != 0 {
		t.Fatalf("%v, and %v is left", err, names)
	}
}

// TestSnapshotDamage flips bits and cuts the file: nothing passes for whole.
func TestSnapshotDamage(t *testing.T) {
	mem := vfs.NewMem(1)
	if err := mem.MkdirAll("wal"); err != nil {
		t.Fatal(err)
	}
	data := content(2*snapshotChunk + 100)
	if err := save(mem, "s.snap", data); err != nil {
		t.Fatal(err)
	}
	f, err := mem.Open("wal/s.snap")
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	for off := int64(0); off < size; off += 9973 {
		fs := vfs.NewFaulty(mem, func(op vfs.Op) error {
			return &vfs.Fault{Flip: &vfs.Flip{Off: off, Bit: 3}}
		})
		if got, err := load(fs, "s.snap"); !errors.Is(err, ErrCorrupt) || !bytes.HasPrefix(data, got) {
			t.Fatalf("bit flipped at %d: %d bytes, %v", off, len(got), err)
		}
	}
	for cut := size - 1; cut >= 0; cut -= 4999 {
		c := mem.Crash(0)
		f, err := c.Open("wal/s.snap")
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(cut); err != nil {
			t.Fatal(err)
		}
		if got, err := load(c, "s.snap"); !errors.Is(err, ErrCorrupt) || !bytes.HasPrefix(data, got) {
			t.Fatalf("cut at %d: %d bytes, %v", cut, len(got), err)
		}
	}
	newer := make([]byte, snapshotHeaderLen)
	copy(newer, snapshotMagic[:])
	newer[8] = snapshotVersion + 1
	le.PutUint32(newer[12:], checksum(newer[:12]))
	patch(t, mem, "s.snap", 0, newer)
	if _, err := load(mem, "s.snap"); !errors.Is(err, ErrVersion) {
		t.Errorf("newer version: %v", err)
	}
}

// TestStaleSnapshotsGo: opening the log removes snapshot files that no pointer
// names, finished or not, and nothing else.
func TestStaleSnapshotsGo(t *testing.T) {
	mem := vfs.NewMem(1)
	l, _ := open(t, mem, smallFiles)
	for _, n := range []string{"a.snap", "b.snap", "c.snap"} {
		if err := save(mem, n, content(10)); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []string{"d.snap" + tempSuffix, "other"} {
		if _, err := mem.Create("wal/" + n); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range []string{"a.snap", "b.snap"} {
		p := uint64(i + 1)
		commit(t, l, &Append{Shard: 1, Snapshot: &SnapshotPointer{Index: p, Term: 1, File: n, Trimmed: p}})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, mem, smallFiles)
	names, err := mem.List("wal")
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, n := range names {
		if !strings.HasSuffix(n, logSuffix) {
			left = append(left, n)
		}
	}
	if got := strings.Join(left, " "); got != "b.snap other" {
		t.Fatalf("left: %s", got)
	}
	if err := RemoveSnapshot(mem, "wal", "b.snap"); err != nil {
		t.Fatal(err)
	}
	if err := RemoveSnapshot(mem, "wal", "other"); err == nil {
		t.Fatal("removed what is no snapshot")
	}
}
