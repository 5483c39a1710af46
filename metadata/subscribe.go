package metadata

import "sync"

// dirtyMax bounds the topics that a subscription remembers; beyond it the
// subscriber is told to look at everything.
const dirtyMax = 4096

// Dirty is what has changed since the last Take.
type Dirty struct {
	// Cluster: brokers, shards, hints or the controller.
	Cluster bool
	// Deleted: the list of deleted topics that shards still hold.
	Deleted bool
	// Topics that were created, changed or deleted, each once.
	Topics []TopicID
	// All: too many topics to name; look at all of them.
	All bool
}

// Subscription tells one goroutine of changes. Changes are gathered while the
// subscriber is busy, so a slow one costs bounded memory and misses nothing.
type Subscription struct {
	// C has an element while there is something to Take.
	C <-chan struct{}

	view  *View
	c     chan struct{}
	mu    sync.Mutex
	dirty Dirty
	named map[TopicID]struct{}
}

// Subscribe starts a subscription, with everything marked as changed.
func (v *View) Subscribe() *Subscription {
	s := &Subscription{view: v, c: make(chan struct{}, 1), named: map[TopicID]struct{}{}}
	s.C = s.c
	s.dirty = Dirty{Cluster: true, Deleted: true, All: true}
	s.c <- struct{}{}
	v.mu.Lock()
	v.subs[s] = struct{}{}
	v.mu.Unlock()
	return s
}

// Take returns what has changed since the last Take. The view shows at least
// these changes by then.
func (s *Subscription) Take() Dirty {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.dirty
	s.dirty = Dirty{}
	clear(s.named)
	return d
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.view.mu.Lock()
	delete(s.view.subs, s)
	s.view.mu.Unlock()
}

// mark adds a delivery's changes and wakes the subscriber.
func (s *Subscription) mark(b *batch) {
	if !b.cluster && !b.deleted && len(b.topics) == 0 {
		return
	}
	s.mu.Lock()
	s.dirty.Cluster = s.dirty.Cluster || b.cluster
	s.dirty.Deleted = s.dirty.Deleted || b.deleted
	for _, id := range b.topics {
		if _, named := s.named[id]; named || s.dirty.All {
			continue
		}
		if len(s.named) == dirtyMax {
			s.dirty.All, s.dirty.Topics = true, nil
			break
		}
		s.named[id] = struct{}{}
		s.dirty.Topics = append(s.dirty.Topics, id)
	}
	s.mu.Unlock()
	select {
	case s.c <- struct{}{}:
	default:
	}
}
