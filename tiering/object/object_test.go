package object_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"thermocline/tiering/object"
	"thermocline/tiering/object/memory"
	"thermocline/tiering/object/objecttest"
)

func TestCombineCRC32C(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		body := objecttest.Random(r.Uint64(), 1+r.IntN(100_000))
		cut := r.IntN(len(body) + 1)
		got := object.CombineCRC32C(object.CRC32C(body[:cut]), object.CRC32C(body[cut:]), int64(len(body)-cut))
		if want := object.CRC32C(body); got != want {
			t.Fatalf("%d bytes cut at %d: expected %08x, got %08x", len(body), cut, want, got)
		}
	}
}

func TestChecksumOfABodyThatIsTooShort(t *testing.T) {
	if _, err := object.ChecksumRange(bytes.NewReader(make([]byte, 10)), 5, 6); err == nil {
		t.Error("expected an error for bytes that are not there")
	}
	body := objecttest.Random(1, 1_000_000)
	if crc, err := object.Checksum(bytes.NewReader(body)); err != nil || crc != object.CRC32C(body) {
		t.Errorf("expected %08x, got %08x, %v", object.CRC32C(body), crc, err)
	}
}

func TestErrors(t *testing.T) {
	err := error(object.NewError("put", "k", object.ErrUnavailable, errors.New("reset")))
	if got := err.Error(); got != `put "k": object: store unavailable: reset` {
		t.Errorf("message: %s", got)
	}
	for _, c := range []struct {
		err                 error
		retryable, expected bool
	}{
		{err, true, false},
		{fmt.Errorf("more: %w", err), true, false},
		{object.NewError("put", "k", object.ErrUnavailable, context.Canceled), false, false},
		{object.NewError("put", "k", object.ErrDenied, nil), false, false},
		{object.NewError("put", "k", object.ErrExists, nil), false, true},
		{nil, false, false},
	} {
		if object.Retryable(c.err) != c.retryable || object.Expected(c.err) != c.expected {
			t.Errorf("%v: expected retryable %v, expected %v", c.err, c.retryable, c.expected)
		}
	}
}

func TestCounted(t *testing.T) {
	inner := memory.New(memory.Options{})
	s := object.NewCounted(inner)
	objecttest.Put(t, s, "a", make([]byte, 70))
	objecttest.Put(t, s, "b", make([]byte, 30))
	_, missing := s.Head(t.Context(), "none")
	_, got := s.GetRange(t.Context(), "a", 50, make([]byte, 100))
	listed := s.List(t.Context(), "", "", func(object.Info) bool { return true })
	failed, deleted := s.Delete(t.Context(), []string{"a", "bad//key"})
	refused := s.Put(t.Context(), "bad//key", bytes.NewReader(nil), object.PutOptions{})
	if !errors.Is(missing, object.ErrNotFound) || got != nil || listed != nil || len(failed) != 1 || deleted != nil || refused == nil {
		t.Fatal(missing, got, listed, failed, deleted, refused)
	}
	stats := s.Stats()
	want := map[object.Op]object.OpStats{
		object.OpPut:    {Calls: 3, Failures: 1, Bytes: 100},
		object.OpGet:    {Calls: 1, Bytes: 20},
		object.OpHead:   {Calls: 1},
		object.OpList:   {Calls: 1, Bytes: 2},
		object.OpDelete: {Calls: 1, Failures: 1, Bytes: 1},
	}
	for _, op := range object.Ops {
		found := stats[op]
		if found.Nanos <= 0 {
			t.Errorf("%v: no time was counted", op)
		}
		found.Nanos = 0
		if found != want[op] {
			t.Errorf("%v: expected %+v, got %+v", op, want[op], found)
		}
	}
	if m, ok := object.As[*memory.Store](s); !ok || m != inner {
		t.Error("As does not find the store inside")
	}
	if _, ok := object.As[object.Probe](s); ok {
		t.Error("As finds what is not there")
	}
}

// lying is a store with one defect, for SelfCheck to find.
type lying struct {
	object.Store
	put  func(*object.PutOptions)
	get  func(p []byte) error
	list func(keys []object.Info) []object.Info
	del  func(keys []string) []string
}

func (l lying) Put(ctx context.Context, key string, body object.Body, o object.PutOptions) error {
	if l.put != nil {
		l.put(&o)
		crc, err := object.Checksum(body)
		if err != nil {
			return err
		}
		if o.CRC32C == 0 {
			o.CRC32C = crc
		}
	}
	return l.Store.Put(ctx, key, body, o)
}

func (l lying) GetRange(ctx context.Context, key string, offset int64, p []byte) (int, error) {
	n, err := l.Store.GetRange(ctx, key, offset, p)
	if l.get != nil && err == nil {
		err = l.get(p[:n])
	}
	return n, err
}

func (l lying) List(ctx context.Context, prefix, after string, fn func(object.Info) bool) error {
	var all []object.Info
	err := l.Store.List(ctx, prefix, after, func(i object.Info) bool { all = append(all, i); return true })
	if l.list != nil {
		all = l.list(all)
	}
	for _, i := range all {
		if !fn(i) {
			break
		}
	}
	return err
}

func (l lying) Delete(ctx context.Context, keys []string) (map[string]error, error) {
	if l.del != nil {
		keys = l.del(keys)
	}
	return l.Store.Delete(ctx, keys)
}

func TestSelfCheckFindsDefects(t *testing.T) {
	for _, c := range []struct {
		name, says string
		store      lying
	}{
		{"no create-only", "create-only PUT", lying{put: func(o *object.PutOptions) { o.IfAbsent = false }}},
		{"no checksum", "wrong checksum", lying{put: func(o *object.PutOptions) { o.CRC32C = 0 }}},
		{"range from the start", "ranged GET", lying{get: func(p []byte) error { p[0] ^= 1; return nil }}},
		{"one page only", "LIST in pages", lying{list: func(all []object.Info) []object.Info { return all[:min(2, len(all))] }}},
		{"nothing is deleted", "listed after it was deleted", lying{del: func([]string) []string { return nil }}},
	} {
		c.store.Store = memory.New(memory.Options{})
		wrong := errors.Join(object.SelfCheck(t.Context(), c.store)...)
		if wrong == nil || !strings.Contains(wrong.Error(), c.says) {
			t.Errorf("%s: expected a complaint with %q, got: %v", c.name, c.says, wrong)
		}
	}
}
