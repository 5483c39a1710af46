// Package memory is a metadata.Store in memory, for tests and simulations: it
// keeps the rules of the etcd store, lets leases lapse only on command, and can
// be unavailable or lose answers.
package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"thermocline/metadata"
)

// historyMax bounds the changes that watches can start from; older ones are
// compacted, which a watcher that lags must survive anyway.
const historyMax = 1 << 16

// Store is a metadata.Store. Its zero value is not usable; call New.
type Store struct {
	mu       sync.Mutex
	rows     map[string]metadata.Row
	revision int64
	// history holds every change above revision compacted, in order.
	history   []metadata.Change
	compacted int64
	leases    map[metadata.LeaseID]*lease
	nextLease metadata.LeaseID
	// wake is closed and replaced whenever something changed for watchers.
	wake        chan struct{}
	unavailable bool
	loseAnswers int
	closed      bool
	watchers    sync.WaitGroup
	done        chan struct{}
}

type lease struct {
	keys map[string]struct{}
	lost chan struct{}
	told bool // lost is closed
	gone bool
}

var _ metadata.Store = (*Store)(nil)

// New makes an empty store.
func New() *Store {
	return &Store{
		rows:     map[string]metadata.Row{},
		revision: 1, // as a fresh etcd
		leases:   map[metadata.LeaseID]*lease{},
		wake:     make(chan struct{}),
		done:     make(chan struct{}),
	}
}

// usable tells why a call cannot be served. Callers hold mu.
func (s *Store) usable(ctx context.Context) error {
	switch {
	case s.closed:
		return metadata.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	case s.unavailable:
		return fmt.Errorf("memory store is switched off: %w", metadata.ErrUnavailable)
	}
	return nil
}

// Get implements metadata.Store.
func (s *Store) Get(ctx context.Context, key string) (metadata.Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return metadata.Row{}, err
	}
	r, ok := s.rows[key]
	if !ok {
		return metadata.Row{}, fmt.Errorf("row %s: %w", key, metadata.ErrNotFound)
	}
	return r, nil
}

// List implements metadata.Store.
func (s *Store) List(ctx context.Context, prefix string) (metadata.Listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return metadata.Listing{}, err
	}
	l := metadata.Listing{Revision: s.revision}
	for key, r := range s.rows {
		if strings.HasPrefix(key, prefix) {
			l.Rows = append(l.Rows, r)
		}
	}
	slices.SortFunc(l.Rows, func(a, b metadata.Row) int { return cmp.Compare(a.Key, b.Key) })
	return l, nil
}

// Commit implements metadata.Store.
func (s *Store) Commit(ctx context.Context, t metadata.Txn) (int64, error) {
	if err := t.Check(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return 0, err
	}
	for _, g := range t.Guards {
		if found := s.rows[g.Key].Modified; found != g.Revision {
			return 0, fmt.Errorf("row %s: expected revision %d, found %d: %w", g.Key, g.Revision, found, metadata.ErrFenced)
		}
	}
	for i := range t.Writes {
		if id := t.Writes[i].Lease; id != 0 && s.leases[id] == nil {
			return 0, fmt.Errorf("row %s: lease %d: %w", t.Writes[i].Key, id, metadata.ErrLeaseLost)
		}
	}
	s.write(t.Writes)
	if s.loseAnswers > 0 {
		s.loseAnswers--
		return 0, fmt.Errorf("memory store lost an answer: %w", metadata.ErrUnavailable)
	}
	return s.revision, nil
}

// write applies the writes under one new revision. Callers hold mu.
func (s *Store) write(writes []metadata.Write) {
	next := s.revision + 1
	changed := false
	for i := range writes {
		w := &writes[i]
		old, existed := s.rows[w.Key]
		if w.Delete && !existed {
			continue
		}
		changed = true
		if l := s.leases[old.Lease]; l != nil {
			delete(l.keys, w.Key)
		}
		if w.Delete {
			delete(s.rows, w.Key)
			s.history = append(s.history, metadata.Change{Row: metadata.Row{Key: w.Key, Modified: next}, Deleted: true})
			continue
		}
		r := metadata.Row{Key: w.Key, Value: slices.Clone(w.Value), Modified: next, Lease: w.Lease}
		s.rows[w.Key] = r
		if l := s.leases[w.Lease]; l != nil {
			l.keys[w.Key] = struct{}{}
		}
		s.history = append(s.history, metadata.Change{Row: r})
	}
	if !changed {
		return
	}
	s.revision = next
	if len(s.history) > historyMax {
		s.compactTo(s.history[len(s.history)/2].Row.Modified)
	}
	s.broadcast()
}

// broadcast wakes every watcher. Callers hold mu.
func (s *Store) broadcast() {
	close(s.wake)
	s.wake = make(chan struct{})
}

// compactTo forgets the changes up to a revision. Callers hold mu.
func (s *Store) compactTo(revision int64) {
	keep, _ := slices.BinarySearchFunc(s.history, revision+1, func(c metadata.Change, r int64) int {
		return cmp.Compare(c.Row.Modified, r)
	})
	s.history = slices.Clone(s.history[keep:])
	s.compacted = max(s.compacted, revision)
}

// Watch implements metadata.Store. While the store is unavailable a watch
// stands still, as etcd's client lets it.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) <-chan metadata.Changes {
	out := make(chan metadata.Changes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		close(out)
		return out
	}
	s.watchers.Add(1)
	go s.watch(ctx, prefix, after, out)
	return out
}

func (s *Store) watch(ctx context.Context, prefix string, after int64, out chan<- metadata.Changes) {
	defer s.watchers.Done()
	defer close(out)
	for {
		c, wake := s.since(prefix, after)
		if c.Err == nil && len(c.Changes) == 0 {
			select {
			case <-wake:
				continue
			case <-ctx.Done():
				return
			case <-s.done:
				return
			}
		}
		select {
		case out <- c:
			after = c.Revision
		case <-ctx.Done():
			return
		case <-s.done:
			return
		}
		if c.Err != nil {
			return
		}
	}
}

// since collects what happened below prefix after a revision, or returns what
// to wait for.
func (s *Store) since(prefix string, after int64) (metadata.Changes, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unavailable {
		return metadata.Changes{}, s.wake
	}
	if after < s.compacted {
		return metadata.Changes{Err: fmt.Errorf("watch after %d: %w", after, metadata.ErrCompacted)}, nil
	}
	from, _ := slices.BinarySearchFunc(s.history, after+1, func(c metadata.Change, r int64) int {
		return cmp.Compare(c.Row.Modified, r)
	})
	c := metadata.Changes{Revision: s.revision}
	for _, ch := range s.history[from:] {
		if strings.HasPrefix(ch.Row.Key, prefix) {
			c.Changes = append(c.Changes, ch)
		}
	}
	return c, s.wake
}

// Lease implements metadata.Store. The lease lives until it is released or
// expired on command.
func (s *Store) Lease(ctx context.Context, _ time.Duration) (*metadata.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	s.nextLease++
	id := s.nextLease
	l := &lease{keys: map[string]struct{}{}, lost: make(chan struct{})}
	s.leases[id] = l
	release := func(ctx context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.usable(ctx); err != nil {
			return err
		}
		s.expire(id)
		return nil
	}
	return &metadata.Lease{ID: id, Lost: l.lost, Release: release}, nil
}

// expire ends a lease and deletes its rows. Callers hold mu.
func (s *Store) expire(id metadata.LeaseID) {
	l := s.leases[id]
	if l == nil || l.gone {
		return
	}
	l.gone = true
	var writes []metadata.Write
	for key := range l.keys {
		writes = append(writes, metadata.Write{Key: key, Delete: true})
	}
	slices.SortFunc(writes, func(a, b metadata.Write) int { return cmp.Compare(a.Key, b.Key) })
	s.write(writes)
	if s.unavailable {
		return // its owner hears of it when the store is back
	}
	s.tell(id, l)
}

func (s *Store) tell(id metadata.LeaseID, l *lease) {
	delete(s.leases, id)
	if !l.told {
		l.told = true
		close(l.lost)
	}
}

// Close implements metadata.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	s.mu.Unlock()
	s.watchers.Wait()
	return nil
}

// Leases lists the leases that are alive, oldest first.
func (s *Store) Leases() []metadata.LeaseID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []metadata.LeaseID
	for id, l := range s.leases {
		if !l.gone {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Expire lets a lease lapse: its rows are deleted.
func (s *Store) Expire(id metadata.LeaseID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(id)
}

// SetUnavailable switches the store off or on again. Off, every call answers
// ErrUnavailable and watches stand still.
func (s *Store) SetUnavailable(off bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unavailable = off
	if off {
		return
	}
	for id, l := range s.leases {
		if l.gone {
			s.tell(id, l)
		}
	}
	s.broadcast()
}

// LoseAnswers lets the next n commits happen and answer ErrUnavailable.
func (s *Store) LoseAnswers(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseAnswers = n
}

// Compact forgets the changes so far, so that watches from the past fail.
func (s *Store) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compactTo(s.revision)
	s.broadcast()
}

// Revision is the revision of the newest write.
func (s *Store) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}
