package wal

import "fmt"

// check holds an append against the rules of record.go and the budget, and adds
// up what it needs. Nothing is changed: what is refused leaves no trace.
func (l *Log) check(s *shardState, a *Append) (plan, error) {
	if err := s.checkShape(a); err != nil {
		return plan{}, fmt.Errorf("%w: shard %d: %w", ErrInvalid, s.id, err)
	}
	p := sizeOf(a)
	if p.size > maxAppend {
		return plan{}, fmt.Errorf("%w: shard %d: expected at most %d bytes, found %d", ErrInvalid, s.id, maxAppend, p.size)
	}
	if p.data > 0 {
		limit := l.dataLimit()
		if a.Staged {
			// A snapshot stream replaces more than it brings: a full log needs it.
			limit += l.o.FileBytes
		}
		if live := l.planned.live + l.planned.size + p.size; live > limit {
			return plan{}, fmt.Errorf("shard %d: expected at most %d live bytes, found %d: %w", s.id, limit, live, ErrFull)
		}
	}
	return p, nil
}

// hasData tells whether an append brings payloads, which a full log refuses.
func hasData(a *Append) bool {
	for i := range a.Entries {
		if len(a.Entries[i].Payload) > 0 {
			return true
		}
	}
	return false
}

// sizeOf adds up an append's records.
func sizeOf(a *Append) (p plan) {
	add := func(desc, payload int) {
		p.size += recordHeaderLen + int64(desc) + int64(payload)
		p.meta += metaSize(desc, payload)
	}
	for i := range a.Entries {
		e := &a.Entries[i]
		add(len(e.Descriptor), len(e.Payload))
		p.data += int64(len(e.Payload))
	}
	if a.Hard != nil {
		add(hardBodyLen, 0)
	}
	if a.Snapshot != nil {
		add(pointerBodyLen+len(a.Snapshot.File), 0)
	}
	if a.Remove {
		add(0, 0)
	}
	return p
}

func (s *shardState) checkShape(a *Append) error {
	if a.Remove && (len(a.Entries) > 0 || a.Hard != nil || a.Snapshot != nil) {
		return fmt.Errorf("expected nothing beside the removal")
	}
	for i := range a.Entries {
		e := &a.Entries[i]
		if i > 0 && e.Index != a.Entries[i-1].Index+1 {
			return fmt.Errorf("expected entry %d, found %d", a.Entries[i-1].Index+1, e.Index)
		}
		if len(e.Descriptor) > maxDescriptor {
			return fmt.Errorf("entry %d: expected a descriptor of at most %d bytes, found %d", e.Index, maxDescriptor, len(e.Descriptor))
		}
	}
	if err := s.checkHard(a.Hard); err != nil {
		return err
	}
	if a.Snapshot != nil {
		if err := s.checkSnapshot(a); err != nil {
			return err
		}
	}
	if len(a.Entries) == 0 || a.Staged {
		if len(a.Entries) > 0 && a.Entries[0].Index == 0 {
			return fmt.Errorf("expected an index above 0")
		}
		return nil
	}
	return s.checkEntries(a)
}

// checkEntries sees that the entries continue the log or replace part of it
// that is not trimmed.
func (s *shardState) checkEntries(a *Append) error {
	first := a.Entries[0].Index
	last, trimmed := s.plannedLast, s.ptr.Trimmed
	if a.Snapshot != nil {
		trimmed = a.Snapshot.Trimmed
		if install, _ := s.installs(a); install {
			last = a.Snapshot.Index
		}
	}
	fresh := last == 0 && s.ptrFile == nil && a.Snapshot == nil
	if first == 0 || first <= trimmed || !fresh && first > last+1 {
		return fmt.Errorf("expected an index from %d to %d, found %d", trimmed+1, last+1, first)
	}
	return nil
}

func (s *shardState) checkHard(h *HardState) error {
	if h == nil {
		return nil
	}
	was := s.plannedHard
	if h.Term < was.Term || h.Term == was.Term && was.Vote != 0 && h.Vote != was.Vote {
		return fmt.Errorf("expected a hard state from term %d, vote %d, found term %d, vote %d", was.Term, was.Vote, h.Term, h.Vote)
	}
	if h.Commit < was.Commit {
		return fmt.Errorf("expected a commit index from %d, found %d", was.Commit, h.Commit)
	}
	return nil
}

func (s *shardState) checkSnapshot(a *Append) error {
	p := a.Snapshot
	if p.Trimmed > p.Index || len(p.File) > maxFileName {
		return fmt.Errorf("expected a snapshot pointer with trimmed <= %d and a file name of at most %d bytes, found %d, %q", p.Index, maxFileName, p.Trimmed, p.File)
	}
	_, err := s.installs(a)
	return err
}

// beginsRun tells whether a staged entry at index starts a run of its own.
func (s *shardState) beginsRun(index uint64) bool {
	return s.staged.empty() || index != s.staged.last()+1
}

// installs tells whether the append's snapshot pointer replaces the shard's log
// by the staged entries, as Raft does with a snapshot that its log does not
// reach or contradicts. A pointer within the log is of an own snapshot: it only
// trims.
func (s *shardState) installs(a *Append) (bool, error) {
	p := a.Snapshot
	if term, ok := s.term(p.Index); ok && term == p.Term {
		if p.Trimmed < s.ptr.Trimmed {
			return false, fmt.Errorf("expected a trim point from %d, found %d", s.ptr.Trimmed, p.Trimmed)
		}
		return false, nil
	}
	if s.ptrFile == nil && !s.log.empty() && p.Index < s.log.first {
		return false, nil // the state that the shard began with: it trims nothing
	}
	if p.Index < s.ptr.Index {
		return false, fmt.Errorf("expected a snapshot index from %d, found %d", s.ptr.Index, p.Index)
	}
	if p.Trimmed == p.Index {
		return true, nil
	}
	first, last := s.staged.first, uint64(0)
	if !s.staged.empty() {
		last = s.staged.last()
	}
	if n := len(a.Entries); a.Staged && n > 0 {
		if s.beginsRun(a.Entries[0].Index) {
			first = a.Entries[0].Index
		}
		last = a.Entries[n-1].Index
	}
	if last != p.Index || first > p.Trimmed+1 {
		return false, fmt.Errorf("expected staged entries from %d to %d, found %d to %d", p.Trimmed+1, p.Index, first, last)
	}
	return true, nil
}
