package index

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"thermocline/tiering/format"
)

// dataCache holds the bytes of extents, in spans: one GET, contiguous pieces of
// one segment. Bytes are reserved before a GET begins and given back when the
// span is dropped, so used never exceeds max (but for one span larger than
// max, which is admitted when nothing else is held).
//
// A loaded span is in exactly one list, by what is known of its future:
// passed (a sequential reader has been through), kept (read, not to its end),
// or ahead (fetched and not read yet). A span that is loading, or held by a
// reader, is never dropped.
type dataCache struct {
	r   *Reader
	max int64

	mu     sync.Mutex
	used   int64
	unread int64 // bytes fetched ahead, or being so, that nobody has read
	pieces map[pieceKey]slot
	passed list.List // of *span; each list: oldest at the back
	kept   list.List
	ahead  list.List
	queue  list.List // of chan struct{}: who waits for room, first come first served
}

type pieceKey struct {
	object string
	at     uint32
}

// slot is where a piece is: part n of a span.
type slot struct {
	s *span
	n int
}

type span struct {
	pieces []piece
	ends   []int64 // offset after each piece's last batch; set when loaded
	buf    []byte
	done   chan struct{} // closed when loaded or failed
	err    error
	charge int64

	// Under the cache's mutex.
	loaded bool
	refs   int
	unread bool // counts in dataCache.unread
	seen   []bool
	left   int // pieces that nobody has read to the end
	list   *list.List
	elem   *list.Element
	since  time.Time
}

func newDataCache(r *Reader, max int64) *dataCache {
	return &dataCache{r: r, max: max, pieces: map[pieceKey]slot{}}
}

func (c *dataCache) held() int64 { c.mu.Lock(); defer c.mu.Unlock(); return c.used }

func (p *piece) dataKey() pieceKey { return pieceKey{p.key, p.Position} }

// known tells whether a piece is loaded or is being so.
func (c *dataCache) known(p *piece) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.pieces[p.dataKey()]
	return ok
}

// pin is a piece held for reading.
type pin struct {
	c *dataCache
	s *span
	n int
}

func (p pin) bytes() []byte {
	first := p.s.pieces[0].Position
	e := &p.s.pieces[p.n]
	from := int(e.Position - first)
	return p.s.buf[from : from+int(e.Length) : from+int(e.Length)]
}

// end is the offset after the piece's last batch.
func (p pin) end() int64 { return p.s.ends[p.n] }

// pin returns group[0], waiting for it, and starts a GET of the whole group if
// it is not known. The others must follow it contiguously and not be known.
func (c *dataCache) pin(ctx context.Context, group []piece) (pin, error) {
	var turn *list.Element
	for {
		c.mu.Lock()
		if s, ok := c.pieces[group[0].dataKey()]; ok {
			s.s.refs++
			if s.s.loaded {
				c.r.count.hits.Add(1)
			} else {
				c.r.count.shared.Add(1)
			}
			c.leave(turn)
			c.mu.Unlock()
			return c.await(ctx, s)
		}
		s := c.newSpan(group, false)
		if c.queue.Front() == turn && c.reserve(s, true) { // both nil: nobody waits
			s.refs++
			c.register(s)
			c.leave(turn)
			c.mu.Unlock()
			c.r.count.misses.Add(1)
			if !c.r.spawn(func() { c.load(s, false) }) {
				c.finish(s, ErrClosed)
			}
			return c.await(ctx, slot{s, 0})
		}
		if turn == nil {
			turn = c.queue.PushBack(make(chan struct{}, 1))
		}
		c.mu.Unlock()
		select {
		case <-turn.Value.(chan struct{}):
		case <-c.r.life.Done():
			c.mu.Lock()
			c.leave(turn)
			c.mu.Unlock()
			return pin{}, ErrClosed
		case <-ctx.Done():
			c.mu.Lock()
			c.leave(turn)
			c.mu.Unlock()
			return pin{}, fmt.Errorf("index: %s: waiting for room in the data cache: %w", group[0].key, context.Cause(ctx))
		}
	}
}

// leave gives up a place in the queue; the next one then tries.
func (c *dataCache) leave(turn *list.Element) {
	if turn != nil {
		c.queue.Remove(turn)
		c.wake()
	}
}

// wake tells the first who waits that room may have come.
func (c *dataCache) wake() {
	if e := c.queue.Front(); e != nil {
		select {
		case e.Value.(chan struct{}) <- struct{}{}:
		default: // told already
		}
	}
}

// pinLoaded returns a piece if it is there.
func (c *dataCache) pinLoaded(p *piece) (pin, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.pieces[p.dataKey()]
	if !ok || !s.s.loaded {
		return pin{}, false
	}
	s.s.refs++
	c.r.count.hits.Add(1)
	return pin{c, s.s, s.n}, true
}

func (c *dataCache) await(ctx context.Context, s slot) (pin, error) {
	select {
	case <-s.s.done:
	case <-ctx.Done():
		c.unpin(s.s)
		return pin{}, fmt.Errorf("index: %s: %w", s.s.pieces[0].key, context.Cause(ctx))
	}
	if s.s.err != nil {
		c.unpin(s.s)
		return pin{}, s.s.err
	}
	return pin{c, s.s, s.n}, nil
}

// prefetch starts a GET of a group that is not known, once there is a
// connection for what nobody waits for; false when there is no room, or when
// it is no longer wanted by then.
func (c *dataCache) prefetch(ctx context.Context, group []piece, wanted func() bool) bool {
	if c.r.ahead.Acquire(ctx, 1) != nil {
		return false
	}
	// ahead leaves connections over, so this one does not wait long; whoever
	// waits for data is in the same queue, and before other read-ahead.
	if c.r.conns.Acquire(ctx, 1) != nil {
		c.r.ahead.Release(1)
		return false
	}
	if !wanted() {
		c.r.conns.Release(1)
		c.r.ahead.Release(1)
		return false
	}
	c.mu.Lock()
	s := c.newSpan(group, true)
	_, taken := c.pieces[group[0].dataKey()]
	ok := !taken && c.queue.Len() == 0 && c.reserve(s, false)
	if ok {
		c.register(s)
	}
	c.mu.Unlock()
	if ok {
		c.r.count.ahead.Add(s.charge)
		if c.r.spawn(func() { defer c.r.ahead.Release(1); c.load(s, true) }) {
			return true
		}
		c.finish(s, ErrClosed)
	}
	c.r.conns.Release(1)
	c.r.ahead.Release(1)
	return taken
}

func (c *dataCache) newSpan(group []piece, ahead bool) *span {
	s := &span{pieces: group, done: make(chan struct{}), unread: ahead, left: len(group)}
	for i := range group {
		s.charge += int64(group[i].Length)
	}
	s.charge = max(s.charge, chargeMin)
	return s
}

func (c *dataCache) register(s *span) {
	for i := range s.pieces {
		if _, taken := c.pieces[s.pieces[i].dataKey()]; !taken {
			c.pieces[s.pieces[i].dataKey()] = slot{s, i}
		}
	}
	s.seen = make([]bool, len(s.pieces))
	s.since = time.Now()
}

// reserve takes a span's bytes, dropping others for it: passed ones, then the
// least recently used, then read-ahead that nobody came for, which for other
// read-ahead must be stale.
func (c *dataCache) reserve(s *span, demand bool) bool {
	if s.unread && c.unread+s.charge > c.max*aheadShareNum/aheadShareDen {
		c.dropStale(s.charge)
		if c.unread+s.charge > c.max*aheadShareNum/aheadShareDen {
			return false
		}
	}
	for _, l := range []*list.List{&c.passed, &c.kept} {
		for e := l.Back(); e != nil && c.used+s.charge > c.max; {
			x := e.Value.(*span)
			e = e.Prev()
			c.drop(x)
		}
	}
	for e := c.ahead.Back(); e != nil && c.used+s.charge > c.max; {
		x := e.Value.(*span)
		e = e.Prev()
		if demand || time.Since(x.since) > aheadStale {
			c.drop(x)
		}
	}
	if c.used+s.charge > c.max && c.used > 0 {
		return false
	}
	c.used += s.charge
	if s.unread {
		c.unread += s.charge
	}
	return true
}

func (c *dataCache) dropStale(need int64) {
	for e := c.ahead.Back(); e != nil && need > 0; {
		x := e.Value.(*span)
		e = e.Prev()
		if time.Since(x.since) <= aheadStale {
			return
		}
		need -= x.charge
		c.drop(x)
	}
}

// drop removes a loaded span unless someone holds it.
func (c *dataCache) drop(s *span) {
	if s.refs > 0 {
		return
	}
	c.unlist(s)
	c.forget(s)
}

func (c *dataCache) unlist(s *span) {
	if s.elem != nil {
		s.list.Remove(s.elem)
		s.list, s.elem = nil, nil
	}
}

// forget gives a span's bytes back.
func (c *dataCache) forget(s *span) {
	for i := range s.pieces {
		if k := s.pieces[i].dataKey(); c.pieces[k].s == s {
			delete(c.pieces, k)
		}
	}
	c.used -= s.charge
	if s.unread {
		s.unread = false
		c.unread -= s.charge
		c.r.count.aheadUnused.Add(s.charge)
	}
	c.wake()
}

// load fetches and verifies a span. A prefetch holds a connection already.
func (c *dataCache) load(s *span, admitted bool) {
	ctx, cancel := context.WithTimeout(c.r.life, c.r.o.LoadTimeout)
	defer cancel()
	first, last := &s.pieces[0], &s.pieces[len(s.pieces)-1]
	s.buf = make([]byte, int64(last.Position)+int64(last.Length)-int64(first.Position))
	var err error
	if admitted {
		err = c.r.getAdmitted(ctx, first.key, int64(first.Position), s.buf, s.verify)
		c.r.conns.Release(1)
	} else {
		err = c.r.get(ctx, first.key, int64(first.Position), s.buf, s.verify)
	}
	c.finish(s, err)
}

// verify checks every batch of every piece.
func (s *span) verify(buf []byte) error {
	s.ends = s.ends[:0]
	for i := range s.pieces {
		e := &s.pieces[i]
		from := e.Position - s.pieces[0].Position
		end, err := format.VerifyExtent(&e.Extent, e.epoch, buf[from:from+e.Length])
		if err != nil {
			return err
		}
		s.ends = append(s.ends, end)
	}
	return nil
}

func (c *dataCache) finish(s *span, err error) {
	c.mu.Lock()
	s.err = err
	s.loaded = err == nil
	switch {
	case err != nil:
		c.forget(s)
	case s.refs == 0:
		c.enlist(s)
	}
	c.mu.Unlock()
	close(s.done)
}

// enlist puts a span that nobody holds where it belongs.
func (c *dataCache) enlist(s *span) {
	c.unlist(s)
	switch {
	case s.left == 0:
		s.list = &c.passed
	case s.unread:
		s.list = &c.ahead
	default:
		s.list = &c.kept
	}
	s.elem = s.list.PushFront(s)
	c.wake()
}

// unpin gives a span back. One that failed is forgotten already.
func (c *dataCache) unpin(s *span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.refs--; s.refs == 0 && s.loaded {
		c.enlist(s)
	}
}

// read marks a piece as delivered; whole tells that it was to its end, by a
// reader that goes on.
func (c *dataCache) read(p pin, whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.s.unread {
		p.s.unread = false
		c.unread -= p.s.charge
	}
	if whole && !p.s.seen[p.n] {
		p.s.seen[p.n] = true
		p.s.left--
	}
}
