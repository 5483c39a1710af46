package ingest

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/partition"
	"thermocline/metadata"
)

// Fetch sessions (KIP-227): the broker remembers what a consumer fetches, so
// that a request lists only changes and an answer only what has news.
//
// What a request's (session id, epoch) asks for:
//
//	(0, 0)   a full fetch, and a session if there is room
//	(0, -1)  a full fetch without a session
//	(N, 0)   as (0, 0), after closing session N
//	(N, -1)  as (0, -1), after closing session N
//	(N, >0)  an incremental fetch; the epoch is one above the last one's, and
//	         1 comes after the largest

// fetchPart is one partition of a fetch: what is asked, and in a session also
// what the client was told last.
type fetchPart struct {
	topic       string // empty when the request names ids
	topicID     metadata.TopicID
	partition   int32
	offset      int64
	maxBytes    int32
	leaderEpoch int32 // the client's idea of it, -1: do not check
	lastEpoch   int32 // of the last record fetched, -1: do not check

	told                      bool
	toldHW, toldLSO, toldFrom int64
}

// partKey names a partition in a session.
type partKey struct {
	topic     string
	topicID   metadata.TopicID
	partition int32
}

func (p *fetchPart) key() partKey { return partKey{p.topic, p.topicID, p.partition} }

// fetchSession is one session. turn is held by the request that uses it.
type fetchSession struct {
	id   int32
	turn chan struct{} // capacity 1
	byID bool

	// Guarded by turn.
	epoch int32 // the next request's
	parts map[partKey]*fetchPart
	order []*fetchPart
	start int // where the next answer begins to look, for fairness
	// waiter is subscribed to all partitions if watched. quiet: the last look
	// found nothing to tell and nothing to wait for but the waiter, so that the
	// next long poll needs no look of its own: idle partitions cost nothing.
	waiter         *partition.Waiter
	watched, quiet bool

	// Guarded by the cache's lock.
	made   time.Time
	used   time.Time
	size   int
	closed bool
}

// sessionIdle is Kafka's min.incremental.fetch.session.eviction.ms: a session
// unused for so long may be evicted for a new one, and one that was made so
// long ago for a larger one.
const sessionIdle = 2 * time.Minute

// sessionCache holds the sessions of all connections, bounded by slots and by
// the partitions in them.
type sessionCache struct {
	slots int
	mu    sync.Mutex
	m     map[int32]*fetchSession
	parts int
}

func newSessionCache(slots int) *sessionCache {
	return &sessionCache{slots: slots, m: map[int32]*fetchSession{}}
}

func (c *sessionCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.m)
}

// open makes a session for parts, or returns nil when there is no room.
func (c *sessionCache) open(parts []*fetchPart, byID bool, now time.Time) *fetchSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(parts) == 0 || len(parts) > maxFetchSessionPartitions {
		return nil
	}
	for len(c.m) >= c.slots || c.parts+len(parts) > maxSessionPartitions {
		if !c.evict(now, len(parts)) {
			return nil
		}
	}
	s := &fetchSession{turn: make(chan struct{}, 1), byID: byID, epoch: 1, parts: make(map[partKey]*fetchPart, len(parts)), made: now, used: now, size: len(parts)}
	for s.id == 0 || c.m[s.id] != nil {
		s.id = rand.Int32()
	}
	for _, p := range parts {
		s.put(p)
	}
	s.size = len(s.order)
	s.turn <- struct{}{} // held by the request that made it
	c.m[s.id] = s
	c.parts += s.size
	return s
}

// evict removes the session that was unused longest, if that is long enough,
// else the smallest of those that had their time, if the new one is larger:
// Kafka's rules, without the privilege of followers, which do not fetch here.
func (c *sessionCache) evict(now time.Time, size int) bool {
	var oldest, smallest *fetchSession
	for _, s := range c.m {
		if oldest == nil || s.used.Before(oldest.used) {
			oldest = s
		}
		if now.Sub(s.made) >= sessionIdle && (smallest == nil || s.size < smallest.size) {
			smallest = s
		}
	}
	switch {
	case oldest != nil && now.Sub(oldest.used) >= sessionIdle:
		c.drop(oldest)
	case smallest != nil && smallest.size < size:
		c.drop(smallest)
	default:
		return false
	}
	return true
}

func (c *sessionCache) drop(s *fetchSession) {
	delete(c.m, s.id)
	c.parts -= s.size
	s.closed = true
	select {
	case s.turn <- struct{}{}:
		s.unwatch()
		<-s.turn
	default: // who has the turn does it in done
	}
}

// done ends a request's turn.
func (c *sessionCache) done(s *fetchSession) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.closed {
		s.unwatch()
	}
	<-s.turn
}

// close removes a session, if there is one of that id.
func (c *sessionCache) close(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.m[id]; s != nil {
		c.drop(s)
	}
}

// use finds a session and takes its turn.
func (c *sessionCache) use(ctx context.Context, id int32, now time.Time) (*fetchSession, error) {
	c.mu.Lock()
	s := c.m[id]
	if s != nil {
		s.used = now
	}
	c.mu.Unlock()
	if s == nil {
		return nil, kerr.FetchSessionIDNotFound
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.mu.Lock()
	closed := s.closed
	c.mu.Unlock()
	if closed {
		c.done(s)
		return nil, kerr.FetchSessionIDNotFound
	}
	return s, nil
}

// resize accounts for a session's partitions after a change.
func (c *sessionCache) resize(s *fetchSession) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.closed {
		c.parts += len(s.order) - s.size
		s.size = len(s.order)
	}
}

// put adds a partition or changes what is asked of it.
func (s *fetchSession) put(p *fetchPart) {
	s.quiet = false
	old := s.parts[p.key()]
	if old == nil {
		s.watched = false
		s.parts[p.key()] = p
		s.order = append(s.order, p)
		return
	}
	old.offset, old.maxBytes, old.leaderEpoch, old.lastEpoch = p.offset, p.maxBytes, p.leaderEpoch, p.lastEpoch
}

// unwatch ends the session's subscriptions.
func (s *fetchSession) unwatch() {
	if s.waiter != nil {
		s.waiter.Close()
	}
	s.waiter, s.watched, s.quiet = nil, false, false
}

// fired tells whether anything has changed since the last look.
func (s *fetchSession) fired() bool {
	select {
	case <-s.waiter.C():
		return true
	default:
		return false
	}
}

// forget removes partitions.
func (s *fetchSession) forget(keys []partKey) {
	gone := make(map[*fetchPart]bool, len(keys))
	for _, k := range keys {
		if p := s.parts[k]; p != nil {
			gone[p] = true
			delete(s.parts, k)
		}
	}
	if len(gone) == 0 {
		return
	}
	s.watched, s.quiet = false, false
	kept := s.order[:0]
	for _, p := range s.order {
		if !gone[p] {
			kept = append(kept, p)
		}
	}
	clear(s.order[len(kept):])
	s.order = kept
}

// continueWith checks the epoch of an incremental request and applies its changes.
func (s *fetchSession) continueWith(req *kmsg.FetchRequest, parts []*fetchPart) error {
	if req.SessionEpoch != s.epoch {
		return kerr.InvalidFetchSessionEpoch
	}
	if byID := req.Version >= 13; byID != s.byID {
		return kerr.FetchSessionTopicIDError
	}
	if s.epoch++; s.epoch <= 0 {
		s.epoch = 1
	}
	var gone []partKey
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, p := range t.Partitions {
			gone = append(gone, partKey{t.Topic, t.TopicID, p})
		}
	}
	s.forget(gone)
	for _, p := range parts {
		s.put(p)
	}
	if len(s.order) > maxFetchSessionPartitions {
		return kerr.InvalidRequest
	}
	return nil
}

// fetchParts flattens what a request lists.
func fetchParts(req *kmsg.FetchRequest) []*fetchPart {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	all := make([]fetchPart, 0, n)
	out := make([]*fetchPart, 0, n)
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			all = append(all, fetchPart{
				topic: t.Topic, topicID: t.TopicID, partition: p.Partition, offset: p.FetchOffset, maxBytes: p.PartitionMaxBytes,
				leaderEpoch: p.CurrentLeaderEpoch, lastEpoch: p.LastFetchedEpoch,
			})
			out = append(out, &all[len(all)-1])
		}
	}
	return out
}
