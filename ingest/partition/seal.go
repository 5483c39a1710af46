package partition

import (
	"cmp"
	"slices"
)

// sealStride is how many partitions Seal looks at before it lets the shard's
// goroutine in: some 20 µs.
const sealStride = 256

// Pending is what could be sealed now.
type Pending struct {
	// Bytes of rows that are acknowledged and not in the store.
	Bytes int64
	// OldestIndex and OldestUnixMilli are of the first entry with such rows.
	OldestIndex     uint64
	OldestUnixMilli int64
}

// sealBound is the last index that may be sealed.
func (s *Set) sealBound() uint64 {
	if s.opt.Bugs.SealAboveHW {
		return s.index
	}
	return min(s.hw, s.index)
}

// SealPending returns what the sealer's triggers need; false if nothing can be
// sealed. Its work follows the entries that wait for the acknowledgement bound.
func (s *Set) SealPending() (Pending, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	bound := s.sealBound()
	if s.entries.len() == 0 || s.entries.at(0).index > bound {
		return Pending{}, false
	}
	first := s.entries.at(0)
	p := Pending{Bytes: s.stats.TailBytes, OldestIndex: first.index, OldestUnixMilli: first.time}
	for i := s.entries.len() - 1; s.entries.at(i).index > bound; i-- {
		p.Bytes -= s.entries.at(i).bytes
	}
	return p, true
}

// Seal returns the next range of the log that is not in the store: whole
// entries from the tiered index on, up to the acknowledgement bound, at least
// one, and no more once they have maxBytes. It returns false when there is
// nothing, or when a segment was committed meanwhile. The rows stay in the
// tails until a TierSegment of the range is applied.
//
// Partitions are looked at in strides, between which the shard goes on: rows
// within the bound change only by a tiering commit, by deletion, or by a
// restored image, and the first and last of these are noticed at the end.
func (s *Set) Seal(maxBytes int64) (*SealRange, bool) {
	s.mu.RLock()
	r, ok := s.sealRange(maxBytes)
	hot := slices.Clone(s.hot)
	restored := s.restored
	s.mu.RUnlock()
	if !ok {
		return nil, false
	}
	for part := range slices.Chunk(hot, sealStride) {
		s.mu.RLock()
		for _, p := range part {
			r.add(p)
		}
		s.mu.RUnlock()
	}
	s.mu.RLock()
	ok = s.manifest.TieredIndex+1 == r.First && s.restored == restored
	s.mu.RUnlock()
	if !ok || len(r.Partitions) == 0 {
		return nil, false
	}
	slices.SortFunc(r.Partitions, func(a, b SealedPartition) int {
		if c := cmp.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(a.Key.Partition, b.Key.Partition), cmp.Compare(a.Ref, b.Ref))
	})
	return &r.SealRange, true
}

// sealing is a range that is being collected.
type sealing struct{ SealRange }

// sealRange chooses the indexes.
func (s *Set) sealRange(maxBytes int64) (r sealing, ok bool) {
	bound := s.sealBound()
	r.First = s.manifest.TieredIndex + 1
	var bytes int64
	n := 0
	for ; n < s.entries.len() && s.entries.at(n).index <= bound && (n == 0 || bytes < maxBytes); n++ {
		bytes += s.entries.at(n).bytes
	}
	if n == 0 {
		return r, false
	}
	// Entries without rows that follow go along: they cost nothing.
	r.Last = bound
	if n < s.entries.len() {
		r.Last = min(bound, s.entries.at(n).index-1)
	}
	return r, r.First <= r.Last
}

// add takes p's rows within the range.
func (r *sealing) add(p *part) {
	t := &p.state.tail
	n := t.findIndexAfter(r.Last)
	if n == 0 || p.gone {
		return
	}
	sp := SealedPartition{Ref: p.state.ref, Key: p.state.key, Topic: p.topic.cur.name, Batches: make([]TailRef, 0, n)}
	for i := 0; i < n; i++ {
		sp.Batches = append(sp.Batches, *t.at(i))
		r.Bytes += int64(t.at(i).Len)
	}
	r.Partitions = append(r.Partitions, sp)
}
