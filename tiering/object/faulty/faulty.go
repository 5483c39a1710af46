// Package faulty wraps an object store with faults and with the speed of a far
// one: bursts of 503, requests that hang, reads that break off, writes that
// were carried out but answered with an error, a store that is away, and a
// link with a latency and a bandwidth per connection. Faults are drawn from a
// seeded source, so one sequence of calls meets one sequence of faults.
package faulty

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"thermocline/tiering/object"
)

// Causes that a test can look for, below object.ErrUnavailable.
var (
	// ErrSlowDown stands for a 503.
	ErrSlowDown = errors.New("injected: 503 SlowDown")
	// ErrAway is what every request gets while the store is away.
	ErrAway = errors.New("injected: store is away")
	// ErrCut is what a read gets that broke off; some bytes have come.
	ErrCut = errors.New("injected: connection reset in the body")
	// ErrUnclear is what a write gets that has been carried out all the same.
	ErrUnclear = errors.New("injected: no answer, though the request was carried out")
)

// Faults are odds between 0 and 1, one draw of each per operation.
type Faults struct {
	// Unavailable starts a burst: this operation and the next Burst-1 fail
	// before they do anything.
	Unavailable float64
	Burst       int
	// Hang waits until the caller's context ends.
	Hang float64
	// Cut makes a read deliver a random part of its bytes, then fail.
	Cut float64
	// Unclear carries a Put or Delete out, then fails.
	Unclear float64
}

// Link is the speed of the way to the store. Zero values do not limit.
type Link struct {
	// FirstByte is what every request takes before data flows.
	FirstByte time.Duration
	// BytesPerSecond is what one connection carries.
	BytesPerSecond int64
	// Conns is how many requests are served at the same time; others wait.
	Conns int
}

// Op names one operation for a Hook.
type Op struct {
	Kind object.Op
	// Key is the key, a List's prefix, or a Delete's first key.
	Key string
	// N counts the store's operations from 1 on.
	N int64
}

// Hook decides about one operation: nil lets it through. An error that wraps
// ErrUnclear is answered after the operation was carried out, any other before;
// an *object.Error as it is, others as the cause of ErrUnavailable.
type Hook func(Op) error

// Store implements object.Store around another.
type Store struct {
	inner object.Store

	mu     sync.Mutex
	rand   *rand.Rand
	faults Faults
	burst  int
	away   bool
	hook   Hook
	link   Link
	conns  chan struct{}
	n      int64
	counts [len(object.Ops)]Count
}

// Count is what one kind of operation has come to: calls, those that were
// failed on purpose, and bytes (keys for List and Delete) that went through.
type Count struct{ Calls, Injected, Bytes int64 }

// New wraps inner; nothing fails until told to.
func New(inner object.Store, seed uint64) *Store {
	return &Store{inner: inner, rand: rand.New(rand.NewPCG(seed, 0x7468_6572_6d6f))}
}

// SetFaults replaces the odds.
func (s *Store) SetFaults(f Faults) { s.mu.Lock(); s.faults, s.burst = f, 0; s.mu.Unlock() }

// SetAway makes the store answer nothing but ErrAway, or brings it back.
func (s *Store) SetAway(away bool) { s.mu.Lock(); s.away = away; s.mu.Unlock() }

// SetHook replaces the hook; nil removes it.
func (s *Store) SetHook(h Hook) { s.mu.Lock(); s.hook = h; s.mu.Unlock() }

// SetLink replaces the link. Requests under way keep the old one.
func (s *Store) SetLink(l Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link, s.conns = l, nil
	if l.Conns > 0 {
		s.conns = make(chan struct{}, l.Conns)
	}
}

// FailNth returns a hook that fails the n-th operation from now on, and
// reports by the returned function whether it has come to that.
func (s *Store) FailNth(n int64, err error) (Hook, func() bool) {
	s.mu.Lock()
	first := s.n
	s.mu.Unlock()
	var mu sync.Mutex
	met := false
	hook := func(op Op) error {
		if op.N != first+n {
			return nil
		}
		mu.Lock()
		met = true
		mu.Unlock()
		return err
	}
	return hook, func() bool { mu.Lock(); defer mu.Unlock(); return met }
}

// Counts returns the counters of one kind of operation.
func (s *Store) Counts(op object.Op) Count {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[op]
}

// Unwrap returns the store inside.
func (s *Store) Unwrap() object.Store { return s.inner }

// Close closes the store inside.
func (s *Store) Close() error { return object.Close(s.inner) }

// String implements object.Store.
func (s *Store) String() string { return s.inner.String() }

// fate is what was drawn for one operation.
type fate struct {
	before, after error
	hang          bool
	cut           float64 // share of the bytes to deliver, if after is ErrCut
	link          Link
	conns         chan struct{}
}

// draw decides one operation's fate. It always draws the same number of random
// numbers, so that changing one of the odds does not shift the others.
func (s *Store) draw(kind object.Op, key string) fate {
	s.mu.Lock()
	s.n++
	op := Op{Kind: kind, Key: key, N: s.n}
	var r [5]float64
	for i := range r {
		r[i] = s.rand.Float64()
	}
	f := fate{cut: r[4], link: s.link, conns: s.conns}
	switch o := s.faults; {
	case s.away:
		f.before = ErrAway
	case s.burst > 0:
		s.burst--
		f.before = ErrSlowDown
	case r[0] < o.Unavailable:
		s.burst = max(0, o.Burst-1)
		f.before = ErrSlowDown
	case r[1] < o.Hang:
		f.hang = true
	case kind == object.OpGet && r[2] < o.Cut:
		f.after = ErrCut
	case (kind == object.OpPut || kind == object.OpDelete) && r[3] < o.Unclear:
		f.after = ErrUnclear
	}
	hook := s.hook
	s.mu.Unlock()
	if hook != nil {
		if err := hook(op); errors.Is(err, ErrUnclear) {
			f.after = err
		} else if err != nil {
			f.before = err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[kind].Calls++
	if f.before != nil || f.after != nil || f.hang {
		s.counts[kind].Injected++
	}
	return f
}

func (s *Store) count(kind object.Op, n int64) {
	s.mu.Lock()
	s.counts[kind].Bytes += n
	s.mu.Unlock()
}

// enter waits for a connection and the first byte, and fails what was drawn to
// fail. leave must be called if err is nil.
func (f *fate) enter(ctx context.Context, op, key string) (leave func(bytes int64) error, err error) {
	if f.hang {
		<-ctx.Done()
	}
	if err := object.Ended(ctx, op, key); err != nil {
		return nil, err
	}
	if typed := (*object.Error)(nil); errors.As(f.before, &typed) {
		return nil, f.before // a hook's own choice of kind
	}
	if f.before != nil {
		return nil, object.NewError(op, key, object.ErrUnavailable, f.before)
	}
	start := time.Now()
	if f.conns != nil {
		select {
		case f.conns <- struct{}{}:
			start = time.Now()
		case <-ctx.Done():
			return nil, object.Ended(ctx, op, key)
		}
	}
	return func(bytes int64) error {
		defer func() {
			if f.conns != nil {
				<-f.conns
			}
		}()
		took := f.link.FirstByte
		if f.link.BytesPerSecond > 0 {
			took += time.Duration(float64(bytes) / float64(f.link.BytesPerSecond) * float64(time.Second))
		}
		return wait(ctx, time.Until(start.Add(took)), op, key)
	}, nil
}

func wait(ctx context.Context, d time.Duration, op, key string) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return object.Ended(ctx, op, key)
	}
}

// Put implements object.Store.
func (s *Store) Put(ctx context.Context, key string, body object.Body, o object.PutOptions) error {
	f := s.draw(object.OpPut, key)
	leave, err := f.enter(ctx, "put", key)
	if err != nil {
		return err
	}
	err = s.inner.Put(ctx, key, body, o)
	if err == nil {
		s.count(object.OpPut, body.Size())
	}
	if lerr := leave(body.Size()); err == nil {
		err = lerr
	}
	if err == nil && f.after != nil {
		err = object.NewError("put", key, object.ErrUnavailable, f.after)
	}
	return err
}

// GetRange implements object.Store.
func (s *Store) GetRange(ctx context.Context, key string, offset int64, p []byte) (int, error) {
	f := s.draw(object.OpGet, key)
	leave, err := f.enter(ctx, "get", key)
	if err != nil {
		return 0, err
	}
	n, err := s.inner.GetRange(ctx, key, offset, p)
	if err == nil && f.after != nil {
		n = int(float64(n) * f.cut)
		clear(p[n:])
		err = object.NewError("get", key, object.ErrUnavailable, f.after)
	}
	s.count(object.OpGet, int64(n))
	if lerr := leave(int64(n)); err == nil {
		err = lerr
	}
	return n, err
}

// Head implements object.Store.
func (s *Store) Head(ctx context.Context, key string) (object.Info, error) {
	f := s.draw(object.OpHead, key)
	leave, err := f.enter(ctx, "head", key)
	if err != nil {
		return object.Info{}, err
	}
	info, err := s.inner.Head(ctx, key)
	if lerr := leave(0); err == nil {
		err = lerr
	}
	return info, err
}

// List implements object.Store. Each page of a real store is a request; here
// the whole listing is one.
func (s *Store) List(ctx context.Context, prefix, after string, fn func(object.Info) bool) error {
	f := s.draw(object.OpList, prefix)
	leave, err := f.enter(ctx, "list", prefix)
	if err != nil {
		return err
	}
	n := int64(0)
	err = s.inner.List(ctx, prefix, after, func(i object.Info) bool { n++; return fn(i) })
	s.count(object.OpList, n)
	if lerr := leave(0); err == nil {
		err = lerr
	}
	return err
}

// Delete implements object.Store.
func (s *Store) Delete(ctx context.Context, keys []string) (map[string]error, error) {
	first := ""
	if len(keys) > 0 {
		first = keys[0]
	}
	f := s.draw(object.OpDelete, first)
	leave, err := f.enter(ctx, "delete", first)
	if err != nil {
		return nil, err
	}
	failed, err := s.inner.Delete(ctx, keys)
	s.count(object.OpDelete, int64(len(keys)-len(failed)))
	if lerr := leave(0); err == nil {
		err = lerr
	}
	if err == nil && f.after != nil {
		err = object.NewError("delete", first, object.ErrUnavailable, f.after)
	}
	return failed, err
}
