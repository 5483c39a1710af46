// Package tieringtest is a shard as tiering sees one, without Raft: entries in
// memory, a high watermark, and commits that are checked as apply checks them.
// Tests of tiering and of index fill a bucket with it.
package tieringtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"thermocline/metadata"
	"thermocline/tiering"
	"thermocline/tiering/format"
	"thermocline/wal/batch"
)

// Partition is one partition's whole history, for comparison.
type Partition struct {
	Ref     format.PartitionRef
	Key     format.Key
	Topic   string
	Next    int64 // next offset
	Batches []batch.Batch
	rows    []format.TailRef // not tiered
}

// TieredEnd is the first offset that is not in the store.
func (p *Partition) TieredEnd() int64 {
	if len(p.rows) > 0 {
		return p.rows[0].First
	}
	return p.Next
}

// Shard implements tiering.Source and tiering.Committer.
type Shard struct {
	mu       sync.Mutex
	parts    map[format.PartitionRef]*Partition
	payloads map[uint64][]byte
	index    uint64
	hw       uint64
	held     int
	manifest *format.Manifest
	nextID   format.SegmentID

	// Epoch is stamped into batches that are appended.
	Epoch int32
	// Urgent is what Pending says.
	Urgent bool
	// OnCommit, if set, decides about each commit of a segment before it is
	// applied; applied tells that it shall be applied all the same.
	OnCommit func(row format.SegmentRow) (applied bool, err error)
	// OnRun is OnCommit for runs.
	OnRun func(run format.RunRow) (applied bool, err error)
}

// New returns an empty shard, at index 1 as after bootstrap.
func New(id uint32) *Shard {
	return &Shard{parts: map[format.PartitionRef]*Partition{}, payloads: map[uint64][]byte{}, index: 1, hw: 1,
		manifest: &format.Manifest{Shard: id, TieredIndex: 1}, nextID: 1, Epoch: 1}
}

// Partition returns the partition with that reference, made when it is new:
// three to a topic.
func (s *Shard) Partition(ref format.PartitionRef) *Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.partition(ref)
}

func (s *Shard) partition(ref format.PartitionRef) *Partition {
	p := s.parts[ref]
	if p == nil {
		n := ref / 3
		p = &Partition{Ref: ref, Topic: fmt.Sprintf("topic-%05d", n), Key: format.Key{Topic: metadata.TopicID{byte(n), byte(n >> 8), 1}, Partition: int32(ref % 3)}}
		s.parts[ref] = p
	}
	return p
}

// Refs lists the partitions.
func (s *Shard) Refs() []format.PartitionRef {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []format.PartitionRef
	for ref := range s.parts {
		out = append(out, ref)
	}
	slices.Sort(out)
	return out
}

// Append commits one entry with one batch for each of refs, stamped, and moves
// the high watermark to it.
func (s *Shard) Append(refs []format.PartitionRef, make func(ref format.PartitionRef, next int64) batch.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index++
	s.hw = s.index
	payload := []byte("head") // batches do not begin at the payload's start
	for _, ref := range refs {
		p := s.partition(ref)
		b := batch.Batch(slices.Clone(make(ref, p.Next)))
		b.Stamp(p.Next, s.Epoch)
		p.rows = append(p.rows, format.TailRef{Index: s.index, Term: uint64(s.Epoch), Pos: uint32(len(payload)), Len: uint32(len(b)),
			First: b.BaseOffset(), Last: b.LastOffset(), MaxTimestamp: b.MaxTimestamp(), Epoch: s.Epoch})
		p.Batches = append(p.Batches, b)
		p.Next = b.LastOffset() + 1
		payload = append(payload, b...)
	}
	s.payloads[s.index] = payload
}

// Damage flips a byte of an entry's payload.
func (s *Shard) Damage(index uint64, at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.payloads[index][at] ^= 1
}

// Index is the last entry's.
func (s *Shard) Index() uint64 { s.mu.Lock(); defer s.mu.Unlock(); return s.index }

// SetHW moves the acknowledgement bound.
func (s *Shard) SetHW(hw uint64) { s.mu.Lock(); s.hw = hw; s.mu.Unlock() }

// Held is the number of payloads that have not been released.
func (s *Shard) Held() int { s.mu.Lock(); defer s.mu.Unlock(); return s.held }

// Pending implements tiering.Source.
func (s *Shard) Pending() (tiering.Pending, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var p tiering.Pending
	for _, part := range s.parts {
		for _, r := range part.rows {
			if r.Index <= s.hw {
				p.Bytes += int64(r.Len)
				if p.OldestIndex == 0 || r.Index < p.OldestIndex {
					p.OldestIndex = r.Index
				}
			}
		}
	}
	p.OldestUnixMilli = 1 << 60 // a clock far ahead: only the sealer's own counts
	p.Urgent = s.Urgent
	return p, p.Bytes > 0
}

// Seal implements tiering.Source.
func (s *Shard) Seal(maxBytes int64) (*format.SealRange, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &format.SealRange{First: s.manifest.TieredIndex + 1}
	for i := r.First; i <= s.hw && r.Bytes < maxBytes; i++ {
		r.Bytes += int64(len(s.payloads[i]))
		r.Last = i
	}
	for _, p := range s.parts {
		n := 0
		for n < len(p.rows) && p.rows[n].Index <= r.Last {
			n++
		}
		if n > 0 {
			r.Partitions = append(r.Partitions, format.SealedPartition{Ref: p.Ref, Key: p.Key, Topic: p.Topic, Batches: slices.Clone(p.rows[:n])})
		}
	}
	slices.SortFunc(r.Partitions, func(a, b format.SealedPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Key.Partition, b.Key.Partition))
	})
	return r, len(r.Partitions) > 0
}

type payload struct {
	s *Shard
	p []byte
}

func (p payload) Bytes() []byte { return p.p }
func (p payload) Release()      { p.s.mu.Lock(); p.s.held--; p.s.mu.Unlock() }

// Payload implements tiering.Source.
func (s *Shard) Payload(index, term uint64) (tiering.Payload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.payloads[index]
	if !ok {
		return nil, fmt.Errorf("tieringtest: no payload of entry %d, term %d", index, term)
	}
	s.held++
	return payload{s, p}, nil
}

// Manifest implements tiering.Source.
func (s *Shard) Manifest() *format.Manifest { s.mu.Lock(); defer s.mu.Unlock(); return s.manifest }

// CommitSegment implements tiering.Committer.
func (s *Shard) CommitSegment(_ context.Context, row format.SegmentRow) (format.SegmentID, error) {
	var err error
	if s.OnCommit != nil {
		var applied bool
		if applied, err = s.OnCommit(row); err != nil && !applied {
			return 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if row.FirstIndex != s.manifest.TieredIndex+1 || row.LastIndex > s.hw {
		return 0, fmt.Errorf("segment %d to %d at tiered index %d: %w", row.FirstIndex, row.LastIndex, s.manifest.TieredIndex, tiering.ErrRefused)
	}
	m := *s.manifest
	row.ID = s.nextID
	s.nextID++
	m.Segments = append(slices.Clone(m.Segments), row)
	m.TieredIndex = row.LastIndex
	s.manifest = &m
	for _, p := range s.parts {
		for len(p.rows) > 0 && p.rows[0].Index <= row.LastIndex {
			p.rows = p.rows[1:]
		}
	}
	for i := row.FirstIndex; i <= row.LastIndex; i++ {
		delete(s.payloads, i) // trimmed
	}
	if err != nil {
		return 0, err
	}
	return row.ID, nil
}

// CommitRun implements tiering.Committer.
func (s *Shard) CommitRun(_ context.Context, run format.RunRow, replaces []uint32, fence format.FenceRow) error {
	var err error
	if s.OnRun != nil {
		var applied bool
		if applied, err = s.OnRun(run); err != nil && !applied {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m := *s.manifest
	if len(replaces) == 0 && (len(m.LevelZero()) == 0 || m.LevelZero()[0].ID != run.First) {
		return fmt.Errorf("run of %d to %d: %w", run.First, run.Last, tiering.ErrRefused)
	}
	m.Runs = slices.DeleteFunc(slices.Clone(m.Runs), func(r format.RunRow) bool { return slices.Contains(replaces, r.ID) })
	if len(m.Runs)+len(replaces) != len(s.manifest.Runs) {
		return fmt.Errorf("run replaces %v: %w", replaces, tiering.ErrRefused)
	}
	m.Runs = append(m.Runs, run)
	slices.SortFunc(m.Runs, func(a, b format.RunRow) int { return cmp.Compare(a.First, b.First) })
	m.Fence = fence
	m.Segments = slices.DeleteFunc(slices.Clone(m.Segments), func(r format.SegmentRow) bool { return r.ID <= run.Last })
	s.manifest = &m
	return err
}
