// Package memory is an object store in the process's memory: for tests, for
// the simulator (it starts no goroutine and asks the clock that it is given),
// and, in discard mode, for benches that measure everything but the upload.
package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"thermocline/tiering/object"
)

// KeepDefault is what discard mode keeps of an object's end when not told
// otherwise: enough for the footer and the directory of most segments.
const KeepDefault = 64 << 10

// Options says what kind of memory store.
type Options struct {
	// Discard keeps of every object its size, its checksum and its last Keep
	// bytes (KeepDefault if zero), and trusts the checksum. Objects that small
	// are kept whole. Reads of what is gone are refused. Only for benches.
	Discard bool
	Keep    int64
	// Now is the clock for Info.ModifiedUnixMilli; nil is the real one.
	Now func() time.Time
}

// Store implements object.Store.
type Store struct {
	o Options

	mu      sync.RWMutex
	objects map[string]*entry
	sorted  []string // keys in order; nil when it must be built again
}

// entry is immutable but for Corrupt: readers copy from body without the lock.
type entry struct {
	size     int64
	lost     int64 // bytes at the front that discard mode dropped
	body     []byte
	crc      uint32
	modified int64
}

// New returns an empty store.
func New(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Keep <= 0 {
		o.Keep = KeepDefault
	}
	return &Store{o: o, objects: map[string]*entry{}}
}

var (
	sharedMu sync.Mutex
	shared   = map[string]*Store{}
)

// Shared returns the process's store of that name, made with o the first time:
// one bucket for all brokers in a process, and for both of a broker's clients.
func Shared(name string, o Options) *Store {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if shared[name] == nil {
		shared[name] = New(o)
	}
	return shared[name]
}

// Put implements object.Store.
func (s *Store) Put(ctx context.Context, key string, body object.Body, o object.PutOptions) error {
	if err := object.CheckKey(key); err != nil {
		return object.NewError("put", key, object.ErrRefused, err)
	}
	if err := object.Ended(ctx, "put", key); err != nil {
		return err
	}
	e := &entry{size: body.Size(), crc: o.CRC32C, modified: s.o.Now().UnixMilli()}
	if s.o.Discard {
		e.lost = max(0, e.size-s.o.Keep)
	}
	e.body = make([]byte, e.size-e.lost)
	if n, err := body.ReadAt(e.body, e.lost); n < len(e.body) {
		return object.NewError("put", key, object.ErrCorrupt, fmt.Errorf("body: expected %d bytes, read %d: %w", len(e.body), n, err))
	}
	if crc := object.CRC32C(e.body); e.lost == 0 && crc != o.CRC32C {
		return object.NewError("put", key, object.ErrCorrupt, fmt.Errorf("expected CRC32C %08x, found %08x", o.CRC32C, crc))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, taken := s.objects[key]
	if taken && o.IfAbsent {
		return object.NewError("put", key, object.ErrExists, nil)
	}
	if !taken {
		s.sorted = nil
	}
	s.objects[key] = e
	return nil
}

func (s *Store) find(ctx context.Context, op, key string) (*entry, error) {
	if err := object.CheckKey(key); err != nil {
		return nil, object.NewError(op, key, object.ErrRefused, err)
	}
	if err := object.Ended(ctx, op, key); err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	e := s.objects[key]
	if e == nil {
		return nil, object.NewError(op, key, object.ErrNotFound, nil)
	}
	return e, nil
}

// GetRange implements object.Store.
func (s *Store) GetRange(ctx context.Context, key string, offset int64, p []byte) (int, error) {
	e, err := s.find(ctx, "get", key)
	switch {
	case err != nil:
		return 0, err
	case offset < 0:
		return 0, object.NewError("get", key, object.ErrRefused, fmt.Errorf("offset %d", offset))
	case offset >= e.size:
		return 0, object.NewError("get", key, object.ErrRange, fmt.Errorf("offset %d of %d bytes", offset, e.size))
	case offset < e.lost:
		return 0, object.NewError("get", key, object.ErrRefused, fmt.Errorf("offset %d: discard mode keeps from %d on", offset, e.lost))
	}
	return copy(p, e.body[offset-e.lost:]), nil
}

// Head implements object.Store.
func (s *Store) Head(ctx context.Context, key string) (object.Info, error) {
	e, err := s.find(ctx, "head", key)
	if err != nil {
		return object.Info{}, err
	}
	return object.Info{Key: key, Size: e.size, CRC32C: e.crc, HasCRC: true, ModifiedUnixMilli: e.modified}, nil
}

// List implements object.Store. It sees the keys as they were when it began.
func (s *Store) List(ctx context.Context, prefix, after string, fn func(object.Info) bool) error {
	keys := s.Keys()
	from, found := slices.BinarySearch(keys, max(prefix, after))
	if found && keys[from] == after {
		from++
	}
	for _, key := range keys[from:] {
		if !strings.HasPrefix(key, prefix) {
			return nil
		}
		e, err := s.find(ctx, "list", key)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			continue // deleted meanwhile
		}
		if !fn(object.Info{Key: key, Size: e.size, ModifiedUnixMilli: e.modified}) {
			return nil
		}
	}
	return object.Ended(ctx, "list", prefix)
}

// Delete implements object.Store.
func (s *Store) Delete(ctx context.Context, keys []string) (map[string]error, error) {
	if err := object.Ended(ctx, "delete", ""); err != nil {
		return nil, err
	}
	var failed map[string]error
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if err := object.CheckKey(key); err != nil {
			if failed == nil {
				failed = map[string]error{}
			}
			failed[key] = object.NewError("delete", key, object.ErrRefused, err)
			continue
		}
		if s.objects[key] != nil {
			delete(s.objects, key)
			s.sorted = nil
		}
	}
	return failed, nil
}

// String implements object.Store.
func (s *Store) String() string {
	if s.o.Discard {
		return "memory:?discard=true"
	}
	return "memory:"
}

// Keys returns all keys in order. The slice is shared: do not change it.
func (s *Store) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sorted == nil {
		s.sorted = make([]string, 0, len(s.objects))
		for key := range s.objects {
			s.sorted = append(s.sorted, key)
		}
		slices.Sort(s.sorted)
	}
	return s.sorted
}

// Bytes is the sum of all objects' sizes.
func (s *Store) Bytes() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	sum := int64(0)
	for _, e := range s.objects {
		sum += e.size
	}
	return sum
}

// Corrupt flips the lowest bit of one byte of an object, as a failing store
// would: the checksum that Head names stays. It reports whether that byte is there.
func (s *Store) Corrupt(key string, offset int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil || offset < e.lost || offset >= e.size {
		return false
	}
	changed := *e
	changed.body = slices.Clone(e.body)
	changed.body[offset-e.lost] ^= 1
	s.objects[key] = &changed
	return true
}
