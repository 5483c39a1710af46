// Package objecttest holds the acceptance test that every object store adapter
// passes.
package objecttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"thermocline/tiering/object"
)

// Options says what of the test applies, and how large it is.
type Options struct {
	// LargeBytes is the size of the large upload; 0 is 1 MiB. Adapters with
	// multipart give something beyond several parts.
	LargeBytes int
	// ListKeys is how many keys the paging test writes; 0 is 1,200, more than
	// a page of S3 holds.
	ListKeys int
}

// Acceptance runs the whole test. newStore returns an empty store, or one with
// a prefix of its own, which lives at least as long as the t that it is given.
func Acceptance(t *testing.T, newStore func(t *testing.T) object.Store, o Options) {
	if o.LargeBytes == 0 {
		o.LargeBytes = 1 << 20
	}
	if o.ListKeys == 0 {
		o.ListKeys = 1200
	}
	for _, c := range []struct {
		name string
		run  func(*testing.T, object.Store, Options)
	}{
		{"put and get", putAndGet},
		{"ranges", ranges},
		{"missing", missing},
		{"overwrite", overwrite},
		{"odd keys", oddKeys},
		{"refused keys", refusedKeys},
		{"list order", listOrder},
		{"list pages", listPages},
		{"delete", deleteBatches},
		{"create only", createOnly},
		{"create-only race", createOnlyRace},
		{"wrong checksum", wrongChecksum},
		{"large", large},
		{"concurrent", concurrent},
		{"cancelled", cancelled},
		{"self-check", selfCheck},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, newStore(t), o) })
	}
}

// Put uploads body with its checksum and fails the test if that fails.
func Put(t *testing.T, s object.Store, key string, body []byte) {
	t.Helper()
	if err := s.Put(t.Context(), key, bytes.NewReader(body), object.PutOptions{CRC32C: object.CRC32C(body)}); err != nil {
		t.Fatal(err)
	}
}

// Get reads a whole object and fails the test if that fails.
func Get(t *testing.T, s object.Store, key string) []byte {
	t.Helper()
	info, err := s.Head(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, info.Size)
	n, err := s.GetRange(t.Context(), key, 0, p)
	if err != nil || int64(n) != info.Size {
		t.Fatalf("get %q: expected %d bytes, got %d: %v", key, info.Size, n, err)
	}
	return p
}

// Random returns n bytes that are the same for the same seed.
func Random(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	p := make([]byte, n)
	for i := 0; i < n; i += 8 {
		v := r.Uint64()
		for j := i; j < min(i+8, n); j++ {
			p[j] = byte(v)
			v >>= 8
		}
	}
	return p
}

func expect(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: expected %v, got %v", what, want, err)
	}
}

func keysOf(t *testing.T, s object.Store, prefix, after string) []string {
	t.Helper()
	keys := []string{}
	if err := s.List(t.Context(), prefix, after, func(i object.Info) bool { keys = append(keys, i.Key); return true }); err != nil {
		t.Fatal(err)
	}
	return keys
}

func putAndGet(t *testing.T, s object.Store, _ Options) {
	for i, n := range []int{0, 1, 4095, 70_000} {
		key, body := fmt.Sprintf("put/%d", n), Random(uint64(i), n)
		before := time.Now()
		Put(t, s, key, body)
		info, err := s.Head(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if info.Key != key || info.Size != int64(n) || info.HasCRC && info.CRC32C != object.CRC32C(body) {
			t.Errorf("head %q: expected %d bytes with CRC32C %08x, got %+v", key, n, object.CRC32C(body), info)
		}
		if age := before.Sub(time.UnixMilli(info.ModifiedUnixMilli)).Abs(); age > time.Minute {
			t.Errorf("head %q: modified %v from now", key, age)
		}
		if n > 0 && !bytes.Equal(Get(t, s, key), body) {
			t.Errorf("get %q: other bytes than were put", key)
		}
	}
	_, err := s.GetRange(t.Context(), "put/0", 0, make([]byte, 1))
	expect(t, "first byte of an empty object", err, object.ErrRange)
	if s.String() == "" {
		t.Error("the store has no name")
	}
}

func ranges(t *testing.T, s object.Store, _ Options) {
	body := Random(7, 10_000)
	Put(t, s, "r", body)
	for _, r := range []struct{ from, n int }{{0, 1}, {0, 10_000}, {0, 20_000}, {1, 9_999}, {9_999, 1}, {9_999, 100}, {5_000, 123}, {42, 0}} {
		p := make([]byte, r.n)
		n, err := s.GetRange(t.Context(), "r", int64(r.from), p)
		if err != nil {
			t.Errorf("%d bytes at %d: %v", r.n, r.from, err)
		} else if want := body[r.from:min(r.from+r.n, len(body))]; !bytes.Equal(p[:n], want) {
			t.Errorf("%d bytes at %d: got %d, not the right ones", r.n, r.from, n)
		}
	}
	for _, from := range []int64{10_000, 10_001, 1 << 40} {
		_, err := s.GetRange(t.Context(), "r", from, make([]byte, 5))
		expect(t, fmt.Sprintf("range at %d", from), err, object.ErrRange)
	}
	_, err := s.GetRange(t.Context(), "r", -1, make([]byte, 5))
	expect(t, "range at -1", err, object.ErrRefused)
}

func missing(t *testing.T, s object.Store, _ Options) {
	_, err := s.GetRange(t.Context(), "no/such/key", 0, make([]byte, 5))
	expect(t, "get", err, object.ErrNotFound)
	if err == nil || !strings.Contains(err.Error(), "no/such/key") {
		t.Errorf("the error does not name the key: %v", err)
	}
	_, err = s.Head(t.Context(), "no/such/key")
	expect(t, "head", err, object.ErrNotFound)
	if keys := keysOf(t, s, "no/", ""); len(keys) != 0 {
		t.Errorf("list: expected nothing, got %q", keys)
	}
}

func overwrite(t *testing.T, s object.Store, _ Options) {
	for i, n := range []int{500, 20, 9000} {
		body := Random(uint64(100+i), n)
		Put(t, s, "same", body)
		if !bytes.Equal(Get(t, s, "same"), body) {
			t.Fatalf("after overwrite %d: other bytes", i)
		}
	}
}

func oddKeys(t *testing.T, s object.Store, _ Options) {
	keys := []string{"a b/c+d", "per%cent/%2F", "ümlaut/日本", "q?x=1&y=2#z", "deep/1/2/3/4/5/6/7/8/9", ".hidden/.x", "folder.o/name.o", "quote'\"<>&", "tilde~!*()", strings.Repeat("k", 200)}
	for i, key := range keys {
		Put(t, s, "odd/"+key, []byte(fmt.Sprint(i)))
	}
	var want []string
	for i, key := range keys {
		if got := string(Get(t, s, "odd/"+key)); got != fmt.Sprint(i) {
			t.Errorf("%q: expected %d, got %q", key, i, got)
		}
		want = append(want, "odd/"+key)
	}
	slices.Sort(want)
	if got := keysOf(t, s, "odd/", ""); !slices.Equal(got, want) {
		t.Errorf("list: expected %q, got %q", want, got)
	}
	if failed, err := s.Delete(t.Context(), want); err != nil || len(failed) > 0 {
		t.Errorf("delete: %v %v", failed, err)
	}
	if got := keysOf(t, s, "odd/", ""); len(got) > 0 {
		t.Errorf("after delete: %q", got)
	}
}

func refusedKeys(t *testing.T, s object.Store, _ Options) {
	for _, key := range []string{"", "/a", "a/", "a//b", "a/../b", ".", "a\x00b", "a\xffb", strings.Repeat("long/", 400)} {
		expect(t, fmt.Sprintf("put %.20q", key), s.Put(t.Context(), key, bytes.NewReader(nil), object.PutOptions{}), object.ErrRefused)
		_, err := s.GetRange(t.Context(), key, 0, make([]byte, 1))
		expect(t, fmt.Sprintf("get %.20q", key), err, object.ErrRefused)
		_, err = s.Head(t.Context(), key)
		expect(t, fmt.Sprintf("head %.20q", key), err, object.ErrRefused)
		failed, err := s.Delete(t.Context(), []string{key})
		expect(t, fmt.Sprintf("delete %.20q", key), errors.Join(failed[key], err), object.ErrRefused)
	}
}

func listOrder(t *testing.T, s object.Store, _ Options) {
	keys := []string{"l/a", "l/a!b", "l/a-c", "l/a.b/x", "l/a/b", "l/a/b0", "l/a0", "l/b/c/d", "l/b/c/e", "l/b/c0", "l/bb", "m"}
	if s.Put(t.Context(), "l/a", bytes.NewReader(nil), object.PutOptions{}) == nil &&
		s.Put(t.Context(), "l/a/b", bytes.NewReader(nil), object.PutOptions{}) != nil {
		// Some stores keep objects as files, and cannot have "l/a" beside "l/a/b".
		if failed, err := s.Delete(t.Context(), []string{"l/a"}); err != nil || len(failed) > 0 {
			t.Fatal(failed, err)
		}
		keys = keys[1:]
	}
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(keys)) {
		Put(t, s, keys[i], []byte(keys[i]))
	}
	for _, prefix := range []string{"", "l", "l/", "l/a", "l/a/", "l/b/c", "l/b/c/", "l/zz", "m", "n"} {
		for _, after := range append([]string{"", "l/a/", "l/azz", "l/b", "zzz"}, keys...) {
			want := []string{}
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) && key > after {
					want = append(want, key)
				}
			}
			if got := keysOf(t, s, prefix, after); !slices.Equal(got, want) {
				t.Errorf("list %q after %q: expected %q, got %q", prefix, after, want, got)
			}
		}
	}
	var sizes []int64
	err := s.List(t.Context(), "l/b", "", func(i object.Info) bool { sizes = append(sizes, i.Size); return len(sizes) < 2 })
	if err != nil || !slices.Equal(sizes, []int64{7, 7}) {
		t.Errorf("a listing that stops after two: expected sizes 7 and 7, got %v, %v", sizes, err)
	}
}

// each runs fn for 0..n-1, sixteen at a time.
func each(n int, fn func(int)) {
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := w; i < n; i += 16 {
				fn(i)
			}
		})
	}
	wg.Wait()
}

func listPages(t *testing.T, s object.Store, o Options) {
	want := make([]string, o.ListKeys)
	for i := range want {
		want[i] = fmt.Sprintf("pages/%06d", i)
	}
	each(len(want), func(i int) {
		if err := s.Put(t.Context(), want[i], bytes.NewReader(nil), object.PutOptions{}); err != nil {
			t.Error(err)
		}
	})
	if got := keysOf(t, s, "pages/", ""); !slices.Equal(got, want) {
		t.Fatalf("list: expected %d keys in order, got %d", len(want), len(got))
	}
	if got := keysOf(t, s, "pages/", want[100]); !slices.Equal(got, want[101:]) {
		t.Errorf("list after the 101st: expected %d keys, got %d", len(want)-101, len(got))
	}
	if failed, err := s.Delete(t.Context(), want); err != nil || len(failed) > 0 {
		t.Fatalf("delete of %d keys: %d failed, %v", len(want), len(failed), err)
	}
	if got := keysOf(t, s, "pages/", ""); len(got) > 0 {
		t.Errorf("after delete: %d keys", len(got))
	}
}

func deleteBatches(t *testing.T, s object.Store, _ Options) {
	Put(t, s, "d/a", []byte("a"))
	Put(t, s, "d/b", []byte("b"))
	Put(t, s, "d/c", []byte("c"))
	failed, err := s.Delete(t.Context(), []string{"d/a", "d/never", "e/never/either", "d/a/below", "d/c", "d/c"})
	if err != nil || len(failed) > 0 {
		t.Errorf("missing keys must not fail: %v %v", failed, err)
	}
	if got := keysOf(t, s, "d/", ""); !slices.Equal(got, []string{"d/b"}) {
		t.Errorf("expected d/b to be left, got %q", got)
	}
	if failed, err := s.Delete(t.Context(), nil); err != nil || len(failed) > 0 {
		t.Errorf("delete of nothing: %v %v", failed, err)
	}
	failed, err = s.Delete(t.Context(), []string{"bad//key", "d/b"})
	if err != nil || len(failed) != 1 || failed["bad//key"] == nil {
		t.Errorf("one bad key among good ones: expected its error, got %v %v", failed, err)
	}
	_, err = s.Head(t.Context(), "d/b")
	expect(t, "the good key beside a bad one", err, object.ErrNotFound)
}

func createOnly(t *testing.T, s object.Store, _ Options) {
	first, second := []byte("first"), []byte("second")
	o := object.PutOptions{IfAbsent: true, CRC32C: object.CRC32C(first)}
	if err := s.Put(t.Context(), "once/x", bytes.NewReader(first), o); err != nil {
		t.Fatal(err)
	}
	o.CRC32C = object.CRC32C(second)
	err := s.Put(t.Context(), "once/x", bytes.NewReader(second), o)
	expect(t, "second create", err, object.ErrExists)
	if got := Get(t, s, "once/x"); !bytes.Equal(got, first) {
		t.Errorf("the loser's body is there: %q", got)
	}
	if _, err := s.Delete(t.Context(), []string{"once/x"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "once/x", bytes.NewReader(second), o); err != nil {
		t.Errorf("create after delete: %v", err)
	}
}

func createOnlyRace(t *testing.T, s object.Store, o Options) {
	for round := range 5 {
		key := fmt.Sprintf("race/%d", round)
		var mu sync.Mutex
		var won []int
		each(16, func(i int) {
			body := fmt.Appendf(nil, "writer %d", i)
			err := s.Put(t.Context(), key, bytes.NewReader(body), object.PutOptions{IfAbsent: true, CRC32C: object.CRC32C(body)})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won = append(won, i)
			} else if !errors.Is(err, object.ErrExists) {
				t.Errorf("loser: %v", err)
			}
		})
		if len(won) != 1 {
			t.Fatalf("round %d: expected one winner, got %v", round, won)
		}
		if got, want := string(Get(t, s, key)), fmt.Sprintf("writer %d", won[0]); got != want {
			t.Errorf("round %d: expected the winner's body %q, got %q", round, want, got)
		}
	}
}

func wrongChecksum(t *testing.T, s object.Store, o Options) {
	Put(t, s, "crc", []byte("old"))
	for _, n := range []int{10, o.LargeBytes} {
		body := Random(5, n)
		err := s.Put(t.Context(), "crc", bytes.NewReader(body), object.PutOptions{CRC32C: object.CRC32C(body) ^ 0x10})
		expect(t, fmt.Sprintf("wrong checksum of %d bytes", n), err, object.ErrCorrupt)
	}
	if got := Get(t, s, "crc"); string(got) != "old" {
		t.Errorf("the old object was lost: %d bytes", len(got))
	}
}

func large(t *testing.T, s object.Store, o Options) {
	body := Random(9, o.LargeBytes)
	crc := object.CRC32C(body)
	Put(t, s, "large/x", body)
	info, err := s.Head(t.Context(), "large/x")
	if err != nil || info.Size != int64(len(body)) || info.HasCRC && info.CRC32C != crc {
		t.Errorf("head: expected %d bytes with %08x, got %+v, %v", len(body), crc, info, err)
	}
	if !bytes.Equal(Get(t, s, "large/x"), body) {
		t.Error("other bytes than were put")
	}
	err = s.Put(t.Context(), "large/x", bytes.NewReader(Random(10, o.LargeBytes)), object.PutOptions{IfAbsent: true, CRC32C: object.CRC32C(Random(10, o.LargeBytes))})
	expect(t, "large create-only of a taken key", err, object.ErrExists)
	if err := s.Put(t.Context(), "large/y", bytes.NewReader(body), object.PutOptions{IfAbsent: true, CRC32C: crc}); err != nil {
		t.Errorf("large create-only of a free key: %v", err)
	}
	if got := keysOf(t, s, "large/", ""); !slices.Equal(got, []string{"large/x", "large/y"}) {
		t.Errorf("expected large/x and large/y, got %q", got)
	}
}

func concurrent(t *testing.T, s object.Store, _ Options) {
	each(64, func(i int) {
		key, body := fmt.Sprintf("c/%d", i%40), Random(uint64(i%40), 3000+i%40)
		if err := s.Put(t.Context(), key, bytes.NewReader(body), object.PutOptions{CRC32C: object.CRC32C(body)}); err != nil {
			t.Error(err)
			return
		}
		p := make([]byte, len(body)+1)
		if n, err := s.GetRange(t.Context(), key, 0, p); err != nil || !bytes.Equal(p[:n], body) {
			t.Errorf("%s: got %d bytes, %v", key, n, err)
		}
	})
	if got := keysOf(t, s, "c/", ""); len(got) != 40 {
		t.Errorf("expected 40 keys, got %d", len(got))
	}
}

func cancelled(t *testing.T, s object.Store, o Options) {
	Put(t, s, "x", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check := func(what string, err error) {
		t.Helper()
		expect(t, what, err, object.ErrUnavailable)
		expect(t, what, err, context.Canceled)
		if object.Retryable(err) {
			t.Errorf("%s: cancelled by the caller, yet said to be worth a retry", what)
		}
	}
	check("put", s.Put(ctx, "y", bytes.NewReader(nil), object.PutOptions{}))
	_, err := s.GetRange(ctx, "x", 0, make([]byte, 1))
	check("get", err)
	_, err = s.Head(ctx, "x")
	check("head", err)
	check("list", s.List(ctx, "", "", func(object.Info) bool { return true }))
	_, err = s.Delete(ctx, []string{"x"})
	check("delete", err)
	if got := keysOf(t, s, "", ""); !slices.Equal(got, []string{"x"}) {
		t.Errorf("expected x only, got %q", got)
	}
	cancelledMidway(t, s, o)
}

// stopping is a body whose reader ends the context after some bytes.
type stopping struct {
	*bytes.Reader
	at   int64
	stop context.CancelFunc
}

func (b stopping) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > b.at {
		b.stop()
	}
	return b.Reader.ReadAt(p, off)
}

func cancelledMidway(t *testing.T, s object.Store, o Options) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := Random(3, o.LargeBytes)
	err := s.Put(ctx, "midway", stopping{bytes.NewReader(body), int64(len(body) / 2), cancel}, object.PutOptions{CRC32C: object.CRC32C(body)})
	if err == nil { // it was all read already: the object must be whole
		if !bytes.Equal(Get(t, s, "midway"), body) {
			t.Error("cancelled midway, said to be done, and other bytes are there")
		}
		return
	}
	expect(t, "put cancelled midway", err, context.Canceled)
	if _, err := s.Head(t.Context(), "midway"); err == nil && !bytes.Equal(Get(t, s, "midway"), body) {
		t.Error("cancelled midway: a part of the object is there")
	}
}

func selfCheck(t *testing.T, s object.Store, _ Options) {
	for _, err := range object.SelfCheck(t.Context(), s) {
		t.Error(err)
	}
	if left := keysOf(t, s, "", ""); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
