package shard

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"thermocline/wal"
)

// storage is Raft's view of the durable log: descriptors of the untrimmed
// entries, in memory, so that Raft's synchronous reads never touch the disk.
// The log may begin below the newest snapshot (trimmed <= snap.Index), since
// a snapshot carries no payload that is not in the object store yet:
// FirstIndex is trimmed+1, Snapshot names the newest one's metadata.
//
// Invariants: entries are contiguous from trimmed+1; snap.Index <= last index.
// Only the shard's goroutine calls it.
type storage struct {
	hard wal.HardState
	// conf, if not nil, is the replica set as of the applied index: Raft begins
	// again from there, where a start begins from the snapshot's.
	conf                 *raftpb.ConfState
	snap                 *raftpb.SnapshotMetadata // nil while there is none
	trimmed, trimmedTerm uint64
	entries              []*raftpb.Entry
	// payloadLens are the payload sizes beside entries.
	payloadLens []uint32
	bytes       int64 // sum of payloadLens
}

var _ raft.Storage = (*storage)(nil)

func (s *storage) last() uint64 { return s.trimmed + uint64(len(s.entries)) }

// InitialState implements raft.Storage.
func (s *storage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	hs := &raftpb.HardState{Term: new(s.hard.Term), Vote: new(s.hard.Vote), Commit: new(s.hard.Commit)}
	cs := s.conf
	if cs == nil {
		cs = s.snap.GetConfState()
	}
	if cs == nil {
		cs = &raftpb.ConfState{}
	}
	return hs, proto.Clone(cs).(*raftpb.ConfState), nil
}

// Entries implements raft.Storage. The slice is capped, so that Raft's append
// to it copies.
func (s *storage) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if lo <= s.trimmed {
		return nil, raft.ErrCompacted
	}
	if hi > s.last()+1 {
		return nil, raft.ErrUnavailable
	}
	ents := s.entries[lo-s.trimmed-1 : hi-s.trimmed-1]
	var size uint64
	for i, e := range ents {
		size += uint64(proto.Size(e))
		if size > maxSize && i > 0 {
			ents = ents[:i]
			break
		}
	}
	return ents[:len(ents):len(ents)], nil
}

// Term implements raft.Storage.
func (s *storage) Term(i uint64) (uint64, error) {
	switch {
	case i < s.trimmed:
		return 0, raft.ErrCompacted
	case i == s.trimmed:
		return s.trimmedTerm, nil
	case i > s.last():
		return 0, raft.ErrUnavailable
	}
	return s.entries[i-s.trimmed-1].GetTerm(), nil
}

// LastIndex implements raft.Storage.
func (s *storage) LastIndex() (uint64, error) { return s.last(), nil }

// FirstIndex implements raft.Storage.
func (s *storage) FirstIndex() (uint64, error) { return s.trimmed + 1, nil }

// Snapshot implements raft.Storage.
func (s *storage) Snapshot() (*raftpb.Snapshot, error) {
	if s.snap.GetIndex() == 0 {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &raftpb.Snapshot{Metadata: cloneMeta(s.snap)}, nil
}

// append makes durable entries visible; those at or above ents[0] are replaced.
func (s *storage) append(ents []*raftpb.Entry, lens []uint32) error {
	if len(ents) == 0 {
		return nil
	}
	for len(ents) > 0 && ents[0].GetIndex() <= s.trimmed {
		ents, lens = ents[1:], lens[1:]
	}
	if len(ents) == 0 {
		return nil
	}
	first := ents[0].GetIndex()
	if first > s.last()+1 {
		return fmt.Errorf("shard: append leaves a hole: expected index %d, found %d", s.last()+1, first)
	}
	keep := int(first - s.trimmed - 1)
	for _, n := range s.payloadLens[keep:] {
		s.bytes -= int64(n)
	}
	if keep < len(s.entries) {
		// Raft may still hold the old suffix's slice: never write into it.
		s.entries = append([]*raftpb.Entry(nil), s.entries[:keep]...)
	}
	s.entries = append(s.entries, ents...)
	s.payloadLens = append(s.payloadLens[:keep], lens...)
	for _, n := range lens {
		s.bytes += int64(n)
	}
	return nil
}

// bytesThrough sums the payload bytes up to and including index.
func (s *storage) bytesThrough(index uint64) int64 {
	if index >= s.last() {
		return s.bytes
	}
	var n int64
	for i := s.trimmed + 1; i <= index; i++ {
		n += int64(s.payloadLens[i-s.trimmed-1])
	}
	return n
}

// trim forgets the entries up to and including to.
func (s *storage) trim(to uint64) {
	if to <= s.trimmed {
		return
	}
	term, err := s.Term(to)
	if err != nil {
		return
	}
	n := int(to - s.trimmed)
	for _, l := range s.payloadLens[:n] {
		s.bytes -= int64(l)
	}
	// Copied, so that the trimmed entries' memory is freed.
	s.entries = append([]*raftpb.Entry(nil), s.entries[n:]...)
	s.payloadLens = append([]uint32(nil), s.payloadLens[n:]...)
	s.trimmed, s.trimmedTerm = to, term
}

// replace sets the whole log: a received snapshot with its raw entries.
func (s *storage) replace(meta *raftpb.SnapshotMetadata, trimmed, trimmedTerm uint64, ents []*raftpb.Entry, lens []uint32) {
	s.setSnapshot(meta)
	s.trimmed, s.trimmedTerm = trimmed, trimmedTerm
	s.entries, s.payloadLens, s.bytes = ents, lens, 0
	for _, n := range lens {
		s.bytes += int64(n)
	}
}

func (s *storage) setSnapshot(meta *raftpb.SnapshotMetadata) { s.snap = cloneMeta(meta) }

func cloneMeta(m *raftpb.SnapshotMetadata) *raftpb.SnapshotMetadata {
	return proto.Clone(m).(*raftpb.SnapshotMetadata)
}
