package partition

import (
	"sync"
	"sync/atomic"
)

// MaxSubscriptions bounds the subscriptions of one Set (80 bytes each): far
// above what long polls within the connection limits hold, so that only a leak
// or an attack meets it.
const MaxSubscriptions = 1 << 20

// Waiter is one long poll: it is woken once when any partition that it is
// subscribed to, in any Set, changes in what a client may see: high watermark,
// last stable offset, log start, existence; also when the replica begins or
// ceases to tell the log's end. A woken Waiter stays subscribed; Rearm lets it
// be woken again. A Waiter's methods belong to one goroutine.
//
// To miss nothing: subscribe (or rearm), then look at the Views, then wait.
type Waiter struct {
	c     chan struct{}
	fired atomic.Bool
	subs  []*subscription
}

// subscription is a Waiter's place in the list of one partition's watchers.
type subscription struct {
	set        *Set
	key        Key
	w          *Waiter
	prev, next *subscription
}

// watchers are a Set's subscriptions by partition. Partitions without any cost
// nothing, changes without any subscription one atomic load.
type watchers struct {
	n     atomic.Int64
	mu    sync.Mutex
	lists map[Key]*subscription
}

// NewWaiter returns a Waiter without subscriptions.
func NewWaiter() *Waiter { return &Waiter{c: make(chan struct{}, 1)} }

// C receives one value when the Waiter is woken.
func (w *Waiter) C() <-chan struct{} { return w.c }

// Rearm makes the Waiter ready to be woken again.
func (w *Waiter) Rearm() {
	select {
	case <-w.c:
	default:
	}
	// A change that comes before this store wakes nobody, but is visible to
	// the Views that the caller looks at afterwards.
	w.fired.Store(false)
}

func (w *Waiter) fire() {
	if w.fired.Load() || w.fired.Swap(true) {
		return
	}
	select {
	case w.c <- struct{}{}:
	default:
	}
}

// Close ends all subscriptions.
func (w *Waiter) Close() {
	for _, sub := range w.subs {
		sub.set.watch.remove(sub)
	}
	w.subs = nil
}

// Subscribe adds keys to what wakes w. It returns false, and adds nothing more,
// when the Set has too many subscriptions: the poll should be answered at once.
// A partition need not exist: its creation wakes too.
func (s *Set) Subscribe(w *Waiter, keys ...Key) bool {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	for _, k := range keys {
		if s.watch.n.Load() >= MaxSubscriptions {
			return false
		}
		sub := &subscription{set: s, key: k, w: w}
		s.watch.add(sub)
		w.subs = append(w.subs, sub)
	}
	return true
}

func (l *watchers) add(sub *subscription) {
	if l.lists == nil {
		l.lists = make(map[Key]*subscription)
	}
	if head := l.lists[sub.key]; head != nil {
		sub.next, head.prev = head, sub
	}
	l.lists[sub.key] = sub
	l.n.Add(1)
}

func (l *watchers) remove(sub *subscription) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sub.next != nil {
		sub.next.prev = sub.prev
	}
	switch {
	case sub.prev != nil:
		sub.prev.next = sub.next
	case sub.next != nil:
		l.lists[sub.key] = sub.next
	default:
		delete(l.lists, sub.key)
	}
	sub.prev, sub.next = nil, nil
	l.n.Add(-1)
}

// wake fires the watchers of what the current call has changed. The shard's
// goroutine calls it after it has released mu: whoever is woken sees the change.
func (s *Set) wake() {
	keys, all := s.wakeKeys[:0], s.wakeAll
	for i, p := range s.changed {
		p.changed = false
		keys = append(keys, p.state.key)
		s.changed[i] = nil
	}
	s.changed, s.wakeKeys, s.wakeAll = s.changed[:0], keys, false
	if s.watch.n.Load() == 0 {
		return
	}
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	if all {
		for _, head := range s.watch.lists {
			fireAll(head)
		}
		return
	}
	for _, k := range keys {
		fireAll(s.watch.lists[k])
	}
}

func fireAll(sub *subscription) {
	for ; sub != nil; sub = sub.next {
		sub.w.fire()
	}
}
