package partition

import (
	"thermocline/metadata"
	"thermocline/tiering/format"
)

// View returns one consistent look at a partition; false if it is not here.
func (s *Set) View(k Key) (View, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.byKey[k]
	if p == nil {
		return View{}, false
	}
	st := p.state
	v := View{
		Key: k, Topic: p.topic.cur.name, Ref: st.ref, Config: p.topic.cur.config,
		LogStart: st.logStart, TieredEnd: st.tieredEnd,
		// No transaction can be open yet: the last stable offset is the HW.
		HW: p.hw, LSO: p.hw, LogEnd: st.logEnd,
		Epoch: leaderEpoch(st, s.term), LatestKnown: s.ready,
		Manifest: s.manifest, MaxTimestampTail: st.maxTime,
		HotBytes: st.tail.bytes, ColdBytes: st.coldBytes,
	}
	return v, true
}

// Keys returns all partitions, in no order.
func (s *Set) Keys() []Key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	keys := make([]Key, 0, len(s.parts))
	for _, p := range s.parts {
		keys = append(keys, p.state.key)
	}
	return keys
}

// Topic is a topic as a shard has it.
type Topic struct {
	ID       metadata.TopicID
	Name     string
	Config   map[string]string // immutable
	Revision int64
}

// Topics returns the topics of which there are partitions here, in no order.
func (s *Set) Topics() []Topic {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := make([]Topic, 0, len(s.topics))
	for _, t := range s.topics {
		list = append(list, Topic{t.cur.id, t.cur.name, t.cur.config, t.cur.revision})
	}
	return list
}

// Tail appends to dst the rows of whole batches from the one that holds offset
// on: none that begins at or after upTo, and no more than maxBytes, but for the
// first if minOne. It appends nothing when offset is not in the tail: if the
// caller's View said that it is, segments were committed in between, and a new
// View tells where it is now.
func (s *Set) Tail(k Key, offset int64, maxBytes int, minOne bool, upTo int64, dst []TailRef) []TailRef {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.byKey[k]
	if p == nil {
		return dst
	}
	t := &p.state.tail
	i := t.findOffset(offset)
	if i == t.rows || t.at(i).First > offset {
		return dst
	}
	for ; i < t.rows; i++ {
		r := t.at(i)
		if r.First >= upTo || (int(r.Len) > maxBytes && !minOne) {
			break
		}
		dst = append(dst, *r)
		maxBytes -= int(r.Len)
		minOne = false
	}
	return dst
}

// FindTail returns the first batch of the tail that begins below upTo and has
// a record of timestamp ts or later.
func (s *Set) FindTail(k Key, ts, upTo int64) (TailRef, bool) {
	return s.findRow(k, func(t *tail) int { return t.findTime(ts, upTo) })
}

// FindTailMax returns the first batch of the tail, among those that begin
// below upTo, with the largest timestamp.
func (s *Set) FindTailMax(k Key, upTo int64) (TailRef, bool) {
	return s.findRow(k, func(t *tail) int { return t.findMax(upTo) })
}

func (s *Set) findRow(k Key, find func(*tail) int) (TailRef, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if p := s.byKey[k]; p != nil {
		if i := find(&p.state.tail); i >= 0 {
			return *p.state.tail.at(i), true
		}
	}
	return TailRef{}, false
}

// EpochEnd answers OffsetForLeaderEpoch from what the tail knows: the largest
// epoch not above the asked one, and the offset at which it ends. ok is false
// when only the store may know, since the tail's first epoch is above it: end
// is then where that one begins. An epoch above the current one gives -1, -1.
func (s *Set) EpochEnd(k Key, epoch int32) (found int32, end int64, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.byKey[k]
	if p == nil {
		return -1, -1, false
	}
	st := p.state
	current := leaderEpoch(st, s.term)
	switch {
	case epoch > current:
		return -1, -1, true
	case epoch == current:
		return current, st.logEnd, true
	}
	end = st.logEnd
	for i := len(st.epochs) - 1; i >= 0; i-- {
		if st.epochs[i].epoch <= epoch {
			return st.epochs[i].epoch, end, true
		}
		end = st.epochs[i].first
	}
	return -1, end, false
}

// Manifest returns the shard's current view of the store.
func (s *Set) Manifest() *format.Manifest {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.manifest
}

// ProducerState is what a partition remembers of a producer.
type ProducerState struct {
	ID            int64
	Epoch         int16
	LastSequence  int32 // -1 when its epoch has no batch yet
	LastUnixMilli int64
}

// Producers returns a partition's producers, in no order.
func (s *Set) Producers(k Key) []ProducerState {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.byKey[k]
	if p == nil {
		return nil
	}
	out := make([]ProducerState, p.state.producers.count)
	for i := range out {
		pr := p.state.producers.at(i)
		out[i] = ProducerState{pr.id, pr.epoch, pr.lastSequence(), pr.lastTime}
	}
	return out
}

// Status is a Set as a whole.
type Status struct {
	Index, Term, HW uint64
	Ready           bool
	Partitions, Hot int
	Topics          int
}

// Status returns where the Set is.
func (s *Set) Status() Status {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return Status{s.index, s.term, s.hw, s.ready, len(s.parts), len(s.hot), len(s.topics)}
}

// Stats count what a Set has done and holds.
type Stats struct {
	Batches, Bytes, Duplicates, Refused int64 // since the start
	TailRows, TailBytes, Producers      int64 // now

	CoordinatorWrites                    int64 // since the start
	CoordinatorRecords, CoordinatorBytes int64 // now, of all slots; the bound is MaxCoordinatorBytes
}

// Stats returns a snapshot of the counters.
func (s *Set) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stats
}
