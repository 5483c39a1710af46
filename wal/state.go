package wal

import (
	"fmt"
)

// slot is where an entry's record lies. A slot without file is a hole: recovery
// may see a copied entry before those that precede it.
type slot struct {
	file    *logFile
	term    uint64
	off     uint32 // of the record in the file, in units of one byte
	descLen uint32
	payLen  uint32
	payCRC  uint32
	typ     uint8
}

func (s *slot) size() int64 { return recordHeaderLen + int64(s.descLen) + int64(s.payLen) }

// run is a stretch of a shard's entries by index: slots[0] has index first.
type run struct {
	first uint64
	slots []slot
	// descs holds the descriptors beside slots while a log is recovered; nil
	// otherwise.
	descs [][]byte
}

// maxSpan bounds the distance between two entries of one run: no log has as
// many, and a damaged index must not make recovery allocate without bound.
const maxSpan = 1 << 27

func (r *run) empty() bool  { return len(r.slots) == 0 }
func (r *run) last() uint64 { return r.first + uint64(len(r.slots)) - 1 }

// get returns the slot of index, or nil.
func (r *run) get(index uint64) *slot {
	if index < r.first || index-r.first >= uint64(len(r.slots)) || r.slots[index-r.first].file == nil {
		return nil
	}
	return &r.slots[index-r.first]
}

// kill takes the slots from lo to hi (exclusive, as offsets) out of their files'
// live bytes.
func (r *run) kill(lo, hi uint64) {
	for i := lo; i < hi && i < uint64(len(r.slots)); i++ {
		if s := &r.slots[i]; s.file != nil {
			s.file.live -= s.size()
		}
	}
}

// cutFrom drops the entries at index and above.
func (r *run) cutFrom(index uint64, trimmed uint64) {
	if r.empty() || index > r.last() {
		return
	}
	keep := uint64(0)
	if index > r.first {
		keep = index - r.first
	}
	// What lies at or below trimmed no longer counts as live.
	dead := keep
	if trimmed >= r.first {
		dead = max(keep, trimmed-r.first+1)
	}
	r.kill(dead, uint64(len(r.slots)))
	clear(r.slots[keep:])
	r.slots = r.slots[:keep]
	if r.descs != nil {
		r.descs = r.descs[:keep]
	}
}

// dropFront forgets the first n slots, which are dead.
func (r *run) dropFront(n int) {
	clear(r.slots[:n])
	r.slots = r.slots[n:]
	if r.descs != nil {
		r.descs = r.descs[n:]
	}
	r.first += uint64(n)
}

// place puts a slot at index, growing the run by holes where needed.
func (r *run) place(index uint64, s slot, desc []byte) {
	if r.empty() {
		r.first = index
	}
	if index < r.first {
		n := r.first - index
		r.slots = append(make([]slot, n, n+uint64(len(r.slots))), r.slots...)
		if r.descs != nil {
			r.descs = append(make([][]byte, n, n+uint64(len(r.descs))), r.descs...)
		}
		r.first = index
	}
	for r.first+uint64(len(r.slots)) <= index {
		r.slots = append(r.slots, slot{})
		if r.descs != nil {
			r.descs = append(r.descs, nil)
		}
	}
	at := &r.slots[index-r.first]
	if at.file != nil {
		at.file.live -= at.size()
	}
	*at = s
	s.file.live += s.size()
	if r.descs != nil {
		r.descs[index-r.first] = desc
	}
}

// spans tells whether index may join the run within maxSpan.
func (r *run) spans(index uint64) bool {
	if r.empty() {
		return true
	}
	if index < r.first {
		return r.last()-index < maxSpan
	}
	return index-r.first < maxSpan
}

// shardState is what the log knows of one shard replica. Invariants at rest:
// ptr.Trimmed <= ptr.Index; the run holds every index from trimmed+1 to its last
// one; slots at or below trimmed are dead but readable until their file goes.
type shardState struct {
	id  ShardID
	log run
	// staged is the run that a snapshot stream has brought so far.
	staged run

	hard     HardState
	hardFile *logFile // where the newest hard state is stored; nil while there is none
	// lazyHard marks a hard state from NoSync appends that no file holds yet.
	lazyHard bool

	ptr     SnapshotPointer
	ptrFile *logFile

	// The rest is of the group being built.
	plannedLast uint64 // last index as it will be when the group is durable
	inGroup     bool   // the group has an append of this shard
	barrier     bool   // that append changes more than the log's end
	plannedHard HardState
}

func newShardState(id ShardID, recovering bool) *shardState {
	s := &shardState{id: id}
	if recovering {
		s.log.descs = [][]byte{}
		s.staged.descs = [][]byte{}
	}
	return s
}

func (s *shardState) hardSize() int64 { return recordHeaderLen + hardBodyLen }

func (s *shardState) ptrSize() int64 {
	return recordHeaderLen + pointerBodyLen + int64(len(s.ptr.File))
}

// lastIndex is the log's last index: of its entries, or the snapshot's.
func (s *shardState) lastIndex() uint64 {
	if s.log.empty() {
		return s.ptr.Index
	}
	return max(s.log.last(), s.ptr.Index)
}

// term returns the term of an entry that is not trimmed, or of the snapshot or
// the trim point.
func (s *shardState) term(index uint64) (uint64, bool) {
	if at := s.log.get(index); at != nil && index > s.ptr.Trimmed {
		return at.term, true
	}
	switch {
	case s.ptrFile == nil || index == 0:
		return 0, false
	case index == s.ptr.Index:
		return s.ptr.Term, true
	case index == s.ptr.Trimmed:
		return s.ptr.TrimmedTerm, true
	}
	return 0, false
}

// apply takes one record into the state: recovery does so for each record that
// it reads, commit for each that it wrote, so both come to the same state. An
// error means that the record does not fit, which is corruption.
func (s *shardState) apply(r *record, f *logFile, off int64) error {
	switch r.kind {
	case kindEntry:
		return s.applyEntry(r, f, off)
	case kindHard:
		h, ok := r.hard()
		if !ok {
			return fmt.Errorf("hard state of %d bytes, found %d", hardBodyLen, len(r.desc))
		}
		s.setHard(h, f)
		return nil
	case kindPointer:
		p, ok := r.pointer()
		if !ok || p.Trimmed > p.Index {
			return fmt.Errorf("snapshot pointer with a trim point up to %d, found %d bytes, %d", p.Index, len(r.desc), p.Trimmed)
		}
		s.setPointer(p, r.flags, f)
		return nil
	}
	return fmt.Errorf("a record kind of version %d, found %v", formatVersion, r.kind)
}

func (s *shardState) applyEntry(r *record, f *logFile, off int64) error {
	if r.index == 0 {
		return fmt.Errorf("an entry index above 0")
	}
	at := slot{
		file: f, term: r.term, off: uint32(off), typ: r.entryType,
		descLen: uint32(len(r.desc)), payLen: r.payloadLen, payCRC: r.payloadCRC,
	}
	to := &s.log
	if r.flags&flagStaged != 0 {
		to = &s.staged
	}
	switch {
	case r.flags&flagRunStart != 0:
		to.cutFrom(0, 0)
	case r.flags&(flagStaged|flagCopy) != 0:
	case r.index <= s.ptr.Trimmed:
		return fmt.Errorf("an entry above the trimmed %d, found index %d", s.ptr.Trimmed, r.index)
	default:
		// A gap before the entry is no error here: while recovery reads, entries
		// from recycled files may still be to come, as copies. It looks for holes
		// at its end.
		to.cutFrom(r.index, s.ptr.Trimmed)
	}
	if to == &s.log && r.index <= s.ptr.Trimmed {
		return nil // a copy of what was trimmed since
	}
	if !to.spans(r.index) {
		return fmt.Errorf("an index near %d, found %d", to.first, r.index)
	}
	var desc []byte
	if to.descs != nil {
		desc = append([]byte{}, r.desc...)
	}
	to.place(r.index, at, desc)
	return nil
}

func (s *shardState) setHard(h HardState, f *logFile) {
	if s.hardFile != nil {
		s.hardFile.live -= s.hardSize()
	}
	s.hard, s.hardFile = h, f
	f.live += s.hardSize()
}

// setPointer takes a new snapshot pointer. An installing one replaces the log by
// the staged entries; any releases what it trims.
func (s *shardState) setPointer(p SnapshotPointer, flags uint8, f *logFile) {
	if s.ptrFile != nil {
		s.ptrFile.live -= s.ptrSize()
	}
	trimmedBefore := s.ptr.Trimmed
	s.ptr, s.ptrFile = p, f
	f.live += s.ptrSize()
	if flags&flagInstall != 0 {
		s.log.cutFrom(0, trimmedBefore)
		s.log, s.staged = s.staged, s.log
		s.staged.cutFrom(0, 0)
		s.log.cutFrom(p.Index+1, 0)
		s.trim(0, p.Trimmed)
		return
	}
	if flags&flagCopy == 0 && !s.staged.empty() && s.staged.last() == p.Index {
		s.staged.cutFrom(0, 0)
	}
	s.trim(trimmedBefore, p.Trimmed)
}

// trim takes the entries above from, up to and including to, out of the live
// bytes. They stay readable.
func (s *shardState) trim(from, to uint64) {
	if s.log.empty() || to < s.log.first {
		return
	}
	lo := uint64(0)
	if from >= s.log.first {
		lo = from - s.log.first + 1
	}
	s.log.kill(lo, to-s.log.first+1)
}

// remove takes everything of the shard out of the live bytes.
func (s *shardState) remove() {
	s.log.cutFrom(0, s.ptr.Trimmed)
	s.staged.cutFrom(0, 0)
	if s.hardFile != nil {
		s.hardFile.live -= s.hardSize()
	}
	if s.ptrFile != nil {
		s.ptrFile.live -= s.ptrSize()
	}
}

// forget drops trimmed slots of a file that is to be recycled.
func (s *shardState) forget(f *logFile) {
	n := 0
	for n < len(s.log.slots) && s.log.first+uint64(n) <= s.ptr.Trimmed {
		if at := s.log.slots[n].file; at != nil && at != f {
			break
		}
		n++
	}
	s.log.dropFront(n)
}
