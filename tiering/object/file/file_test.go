package file

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"thermocline/tiering/object"
	"thermocline/tiering/object/objecttest"
)

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAcceptance(t *testing.T) {
	objecttest.Acceptance(t, func(t *testing.T) object.Store {
		s := open(t, t.TempDir())
		s.sync = func(*os.File) error { return nil } // TestPutSyncsInOrder looks at that
		return s
	}, objecttest.Options{})
}

func TestPutSyncsInOrder(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "new", "store"))
	var synced []string
	named := false
	name := filepath.Join(s.dir, "a", "b", "c.o")
	s.sync = func(f *os.File) error {
		rel, err := filepath.Rel(s.dir, f.Name())
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(rel, uploads+"/put-") {
			rel = "upload"
		}
		if _, err := os.Stat(name); err == nil && !named {
			named = true
			synced = append(synced, "NAMED")
		}
		synced = append(synced, rel)
		return f.Sync()
	}
	objecttest.Put(t, s, "a/b/c", []byte("x"))
	if want := []string{"upload", ".", "a", "NAMED", "a/b"}; !slices.Equal(synced, want) {
		t.Errorf("expected %q, got %q", want, synced)
	}
	synced = nil
	objecttest.Put(t, s, "a/b/d", []byte("x"))
	if want := []string{"upload", "a/b"}; !slices.Equal(synced, want) {
		t.Errorf("in a folder that is durable: expected %q, got %q", want, synced)
	}
}

func TestFailedSyncFailsThePut(t *testing.T) {
	for n := 1; ; n++ {
		s := open(t, t.TempDir())
		calls := 0
		s.sync = func(f *os.File) error {
			if calls++; calls == n {
				return errors.New("no fsync today")
			}
			return f.Sync()
		}
		err := s.Put(t.Context(), "a/b/c", bytes.NewReader([]byte("x")), object.PutOptions{CRC32C: object.CRC32C([]byte("x"))})
		if calls < n {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		if !errors.Is(err, object.ErrUnavailable) {
			t.Errorf("sync %d failed: expected the put to fail, got %v", n, err)
		}
		left, err := os.ReadDir(filepath.Join(s.dir, uploads))
		if err != nil || len(left) > 0 {
			t.Errorf("sync %d failed: uploads left behind: %v, %v", n, left, err)
		}
	}
}

func TestOpenRemovesOldUploadsOnly(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	old, young := filepath.Join(dir, uploads, "put-1"), filepath.Join(dir, uploads, "put-2")
	for _, name := range []string{old, young} {
		if err := os.WriteFile(name, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-2 * staleAfter)
	if err := os.Chtimes(old, before, before); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if _, err := os.Stat(old); err == nil {
		t.Error("a stale upload was not removed")
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("a young upload was removed: %v", err)
	}
}

func TestDamagedTrailers(t *testing.T) {
	s := open(t, t.TempDir())
	objecttest.Put(t, s, "x", []byte("body"))
	name := filepath.Join(s.dir, "x.o")
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(good[:4]) != "body" || len(good) != 4+trailerBytes {
		t.Fatalf("not the documented layout: %q", good)
	}
	newer := slices.Clone(good)
	binary.LittleEndian.PutUint32(newer[4+8:], version+1)
	for what, bad := range map[string][]byte{
		"cut":       good[:len(good)-1],
		"too short": good[:3],
		"longer":    append([]byte{'x'}, good...),
		"bit":       append(slices.Clone(good[:14]), append([]byte{good[14] ^ 1}, good[15:]...)...),
		"newer":     newer,
	} {
		if err := os.WriteFile(name, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := s.Head(t.Context(), "x")
		if !errors.Is(err, object.ErrCorrupt) {
			t.Errorf("%s: expected ErrCorrupt, got %v", what, err)
		}
		if what == "newer" && !strings.Contains(err.Error(), "version 2") {
			t.Errorf("a newer version is not named: %v", err)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, key := range []string{"a/b", "x.o/y.o", ".x", "%", "a b", "ü", "..."} {
		f.Add(key)
	}
	s := &Store{dir: "/store"}
	f.Fuzz(func(t *testing.T, key string) {
		if object.CheckKey(key) != nil {
			return
		}
		path, err := s.path(key)
		if err != nil {
			return
		}
		rel, ok := strings.CutPrefix(path, "/store/")
		if !ok || filepath.Clean(path) != path || strings.HasPrefix(rel, ".") {
			t.Fatalf("%q leaves the store or meets our own files: %q", key, path)
		}
		var back []string
		names := strings.Split(rel, "/")
		for i, name := range names {
			stem, isObject := strings.CutSuffix(name, objectSuffix)
			if isObject != (i == len(names)-1) {
				t.Fatalf("%q: folder and object cannot be told apart in %q", key, path)
			}
			segment, ok := unescape(stem)
			if !ok {
				t.Fatalf("%q: cannot read back %q", key, name)
			}
			back = append(back, segment)
		}
		if got := strings.Join(back, "/"); got != key {
			t.Fatalf("expected %q, got %q back from %q", key, got, path)
		}
	})
}
