package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"testing"
)

// TestContract holds OS and Mem to the same behaviour.
func TestContract(t *testing.T) {
	systems := map[string]func(t *testing.T) FS{
		"os":     func(t *testing.T) FS { return OS(t.TempDir()) },
		"mem":    func(t *testing.T) FS { return NewMem(1) },
		"faulty": func(t *testing.T) FS { return NewFaulty(NewMem(1), nil) },
	}
	checks := map[string]func(t *testing.T, f FS){
		"names":    checkNames,
		"vectored": checkVectored,
		"holes":    checkHoles,
		"truncate": checkTruncate,
		"lock":     checkLock,
		"unlinked": checkUnlinked,
		"closed":   checkClosed,
	}
	for system, open := range systems {
		for name, check := range checks {
			t.Run(system+"/"+name, func(t *testing.T) { check(t, open(t)) })
		}
	}
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, f File, off int64, pieces ...string) {
	t.Helper()
	total := 0
	var bufs [][]byte
	for _, p := range pieces {
		total += len(p)
		bufs = append(bufs, []byte(p))
	}
	if n, err := f.WriteAtv(bufs, off); err != nil || n != total {
		t.Fatalf("write at %d: %d of %d bytes, %v", off, n, total, err)
	}
}

func content(t *testing.T, f File) string {
	t.Helper()
	size := must(f.Size())(t)
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); int64(n) != size || err != nil && err != io.EOF {
		t.Fatalf("read %d of %d bytes: %v", n, size, err)
	}
	return string(b)
}

func checkNames(t *testing.T, f FS) {
	if _, err := f.Create("a/b/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("create in a missing directory: %v", err)
	}
	ok(t, f.MkdirAll("a/b"))
	ok(t, f.MkdirAll("a/b"))
	if _, err := f.Open("a/b/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("open of a missing file: %v", err)
	}
	for _, n := range []string{"y", "x", "z"} {
		h := must(f.Create("a/b/" + n))(t)
		put(t, h, 0, n)
		ok(t, h.Close())
	}
	ok(t, f.SyncDir("a/b"))
	ok(t, f.Rename("a/b/x", "a/b/y"))
	ok(t, f.Remove("a/b/z"))
	if err := f.Remove("a/b/z"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("second remove: %v", err)
	}
	if err := f.Rename("a/b/z", "a/b/q"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("rename of a missing file: %v", err)
	}
	if got := must(f.List("a/b"))(t); !slices.Equal(got, []string{"y"}) {
		t.Fatalf("list: %v", got)
	}
	if got := must(f.List("a"))(t); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("list of the parent: %v", got)
	}
	h := must(f.Open("a/b/y"))(t)
	if got := content(t, h); got != "x" {
		t.Fatalf("renamed file holds %q", got)
	}
	ok(t, h.Close())
	total, free, err := f.Space("a/b")
	if err != nil || total == 0 || free > total {
		t.Fatalf("space: %d of %d, %v", free, total, err)
	}
}

func checkVectored(t *testing.T, f FS) {
	h := must(f.Create("v"))(t)
	// More pieces than one system call takes, some of them empty.
	var want bytes.Buffer
	var bufs [][]byte
	for i := range 2500 {
		p := bytes.Repeat([]byte{byte('a' + i%26)}, i%7)
		want.Write(p)
		bufs = append(bufs, p)
	}
	if n, err := h.WriteAtv(bufs, 0); err != nil || n != want.Len() {
		t.Fatalf("wrote %d of %d: %v", n, want.Len(), err)
	}
	ok(t, h.Sync())
	if content(t, h) != want.String() {
		t.Fatal("other content than was written")
	}
	if n, err := h.WriteAtv(nil, 5); n != 0 || err != nil {
		t.Fatalf("empty write: %d, %v", n, err)
	}
	b := make([]byte, 10)
	if n, err := h.ReadAt(b, int64(want.Len()-3)); n != 3 || err != io.EOF {
		t.Fatalf("read across the end: %d, %v", n, err)
	}
	if n, err := h.ReadAt(b, int64(want.Len())); n != 0 || err != io.EOF {
		t.Fatalf("read at the end: %d, %v", n, err)
	}
	ok(t, h.Close())
}

func checkHoles(t *testing.T, f FS) {
	h := must(f.Create("h"))(t)
	put(t, h, 10000, "tail")
	got := content(t, h)
	if len(got) != 10004 || got[10000:] != "tail" || got[:10000] != string(make([]byte, 10000)) {
		t.Fatal("a hole does not read as zeroes")
	}
	put(t, h, 4090, "across")
	if got := content(t, h); got[4090:4096] != "across" {
		t.Fatal("a write into a hole is lost")
	}
	ok(t, h.Close())
}

func checkTruncate(t *testing.T, f FS) {
	h := must(f.Create("t"))(t)
	put(t, h, 0, "0123456789")
	ok(t, h.Truncate(4))
	ok(t, h.Truncate(6))
	if got := content(t, h); got != "0123\x00\x00" {
		t.Fatalf("after truncation: %q", got)
	}
	ok(t, h.Close())
	h = must(f.Create("t"))(t)
	if got := content(t, h); got != "" {
		t.Fatalf("create kept %q", got)
	}
	ok(t, h.Close())
}

func checkLock(t *testing.T, f FS) {
	l := must(f.Lock("LOCK"))(t)
	if _, err := f.Lock("LOCK"); err == nil {
		t.Fatal("the lock was taken twice")
	}
	ok(t, l.Close())
	l = must(f.Lock("LOCK"))(t)
	ok(t, l.Close())
}

func checkUnlinked(t *testing.T, f FS) {
	h := must(f.Create("u"))(t)
	put(t, h, 0, "kept")
	ok(t, f.Remove("u"))
	if got := content(t, h); got != "kept" {
		t.Fatalf("an open file lost its contents with its name: %q", got)
	}
	ok(t, h.Close())
}

func checkClosed(t *testing.T, f FS) {
	h := must(f.Create("c"))(t)
	ok(t, h.Close())
	if _, err := h.ReadAt(make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("read of a closed file: %v", err)
	}
	if _, err := h.WriteAtv([][]byte{{1}}, 0); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("write to a closed file: %v", err)
	}
	if err := h.Sync(); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("sync of a closed file: %v", err)
	}
}
