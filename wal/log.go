package wal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"sync"
	"sync/atomic"

	"thermocline/wal/vfs"
)

// Log is a broker's write-ahead log. It is synchronous and deterministic: it
// starts no goroutine and reads no clock of its own. One owner calls Commit,
// Idle, Maintain and Close (Writer is that owner in a broker); ReadPayload,
// Usage, OldestLive, End, Stats and Err may run beside them.
//
// The owner alone changes state; mu is held for writing while it does, and for
// reading by everyone else. The owner reads without it.
type Log struct {
	fs   vfs.FS
	dir  string
	o    Options
	lock io.Closer

	mu     sync.RWMutex
	shards map[ShardID]*shardState
	order  []*shardState // by id: whatever walks all shards does so in this order
	files  []*logFile    // with records, oldest first
	active *logFile      // the last of files, or nil until the first write after a start
	free   []freeFile
	// filling is the size of the file that is being written ahead.
	filling int64

	nextUse   uint64
	nextStart Position
	end       Position // synced end of the last group
	unclosed  bool     // nothing names the synced end yet

	g        group
	head     [blockSize]byte // a file header block
	batch    []*Append       // the appends of the group being built
	planned  plan
	lazy     []*shardState // with a hard state that no file holds yet
	emptying emptying

	failed atomic.Pointer[error]
	closed bool
	stats  stats
}

// freeFile is a file that may be recycled; its contents mean nothing.
type freeFile struct {
	name string
	use  uint64
	size int64
}

// plan adds up what the group being built will need.
type plan struct {
	size int64 // of its records
	meta int64 // of that in the group's scratch buffer
	data int64 // bytes of entries with payload
	live int64 // live bytes in the log before it
}

// Err returns why the log is out of service, or nil.
func (l *Log) Err() error {
	if p := l.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// fail takes the log out of service for good: after a failed write or fdatasync
// nobody knows what the disk holds, and a second try may report success for
// pages that the kernel has dropped.
func (l *Log) fail(what string, err error) error {
	err = fmt.Errorf("%w: %s: %w%s", ErrFailed, what, err, remedy(err))
	if l.o.Bugs.RetryAfterError {
		return err
	}
	l.failed.CompareAndSwap(nil, &err)
	return l.Err()
}

// Commit makes the appends durable, in order, and calls each one's Done exactly
// once. It writes one group with one fdatasync unless the group must be split: at
// the end of a file, or before an append that depends on an earlier one of its
// shard in more than the log's end. A returned error is the first that an append
// got; it matches ErrFailed when the log is out of service.
func (l *Log) Commit(appends []*Append) error {
	var first error
	for len(appends) > 0 {
		n, err := l.commitSome(appends)
		if err != nil && first == nil {
			first = err
		}
		appends = appends[n:]
	}
	return first
}

// commitSome commits a group from the front of appends, or refuses the first
// append, and returns how many appends were answered.
func (l *Log) commitSome(appends []*Append) (int, error) {
	if err := l.usable(); err != nil {
		answer(appends, err)
		return len(appends), err
	}
	n, room, err := l.fill(appends)
	if n == 0 && err == nil {
		// The first append does not fit into the active file.
		if err = l.makeRoom(room, hasData(appends[0])); err == nil {
			return 0, nil
		}
	}
	if n == 0 {
		answer(appends[:1], err)
		return 1, err
	}
	err = nil
	if len(l.batch) > 0 {
		err = l.writeBatch()
	}
	l.endBatch()
	return n, err
}

func (l *Log) usable() error {
	if l.closed {
		return ErrClosed
	}
	return l.Err()
}

func answer(appends []*Append, err error) {
	for _, a := range appends {
		if a.Done != nil {
			a.Done(err)
		}
	}
}

// fill takes appends from the front into the batch as long as they can share a
// group, and returns how many it took or answered. When it is none, err says why
// the first was refused, or room what it needs.
func (l *Log) fill(appends []*Append) (n int, room int64, err error) {
	l.planned = plan{live: l.liveBytes()}
	l.batch = l.batch[:0]
	available := int64(0)
	if l.active != nil {
		available = l.active.room() - groupHeaderLen
	}
	for _, s := range l.lazy {
		l.planned.size += s.hardSize()
		l.planned.meta += s.hardSize()
	}
	for i, a := range appends {
		s := l.shard(a.Shard)
		barrier := a.Snapshot != nil || a.Staged || a.Remove
		if s.inGroup && (barrier || s.barrier) {
			return i, 0, nil
		}
		if !s.inGroup {
			s.plannedLast, s.plannedHard = s.lastIndex(), s.hard
		}
		if len(l.batch) > 0 && l.planned.size+s.hardSize() > available {
			return i, 0, nil // no room even for a hard state that rides along
		}
		if !s.inGroup && l.takeLazily(s, a) {
			continue
		}
		p, err := l.check(s, a)
		if err != nil {
			return i, 0, err
		}
		if p.size == 0 && !s.inGroup {
			l.takeEmpty(s, a)
			continue
		}
		if l.planned.size+p.size > available {
			return i, l.planned.size + p.size + groupHeaderLen, nil
		}
		l.planned.size += p.size
		l.planned.meta += p.meta
		l.planned.data += p.data
		l.take(s, a, barrier)
	}
	return len(appends), 0, nil
}

// take puts a checked append into the batch.
func (l *Log) take(s *shardState, a *Append, barrier bool) {
	l.batch = append(l.batch, a)
	s.inGroup, s.barrier = true, barrier
	if n := len(a.Entries); n > 0 && !a.Staged {
		s.plannedLast = a.Entries[n-1].Index
	}
	if a.Hard != nil {
		s.plannedHard = *a.Hard
	}
}

// takeEmpty answers an append without a record, when none of its shard comes
// before it. A staged one drops what a stream has brought; recovery drops that
// by itself, since the next run is marked as a new one.
func (l *Log) takeEmpty(s *shardState, a *Append) {
	if a.Staged {
		l.mu.Lock()
		s.staged.cutFrom(0, 0)
		l.mu.Unlock()
	}
	if a.Done != nil {
		a.Done(nil)
	}
}

// takeLazily answers an append that needs no sync and has none to wait for: what
// it says is written with the next group.
func (l *Log) takeLazily(s *shardState, a *Append) bool {
	if !a.NoSync || len(a.Entries) > 0 || a.Snapshot != nil || a.Staged || a.Remove {
		return false
	}
	if h := a.Hard; h != nil {
		if h.Term != s.hard.Term || h.Vote != s.hard.Vote {
			return false
		}
		if h.Commit > s.hard.Commit {
			l.mu.Lock()
			s.hard.Commit = h.Commit
			l.mu.Unlock()
			if !s.lazyHard {
				s.lazyHard = true
				l.lazy = append(l.lazy, s)
				l.planned.size += s.hardSize()
				l.planned.meta += s.hardSize()
			}
		}
	}
	if a.Done != nil {
		a.Done(nil)
	}
	return true
}

// shard returns a shard's state, made if need be.
func (l *Log) shard(id ShardID) *shardState {
	if s := l.shards[id]; s != nil {
		return s
	}
	s := newShardState(id, false)
	l.mu.Lock()
	l.addShard(s)
	l.mu.Unlock()
	return s
}

// addShard keeps order sorted; mu is held.
func (l *Log) addShard(s *shardState) {
	l.shards[s.id] = s
	i := len(l.order)
	for i > 0 && l.order[i-1].id > s.id {
		i--
	}
	l.order = append(l.order, nil)
	copy(l.order[i+1:], l.order[i:])
	l.order[i] = s
}

func (l *Log) dropShard(s *shardState) {
	delete(l.shards, s.id)
	for i, o := range l.order {
		if o == s {
			l.order = append(l.order[:i], l.order[i+1:]...)
			break
		}
	}
	for i, o := range l.lazy {
		if o == s {
			l.lazy = append(l.lazy[:i], l.lazy[i+1:]...)
			break
		}
	}
}

// writeBatch writes the batch as one group and answers its appends.
func (l *Log) writeBatch() error {
	l.begin(l.planned.meta)
	l.addLazy()
	for _, a := range l.batch {
		l.encode(l.shards[a.Shard], a)
	}
	l.stats.appends.Add(int64(len(l.batch)))
	err := l.write(0)
	answer(l.batch, err)
	return err
}

// endBatch forgets the batch and the marks it left.
func (l *Log) endBatch() {
	for i, a := range l.batch {
		if s := l.shards[a.Shard]; s != nil {
			s.inGroup, s.barrier = false, false
		}
		l.batch[i] = nil
	}
	l.batch = l.batch[:0]
}

// begin starts a group in the active file.
func (l *Log) begin(meta int64) {
	use, start := l.checkBase(l.active)
	l.g.begin(l.active, use, start, meta)
}

// checkBase is the use number and start position that checksums in f cover.
func (l *Log) checkBase(f *logFile) (uint64, Position) {
	if l.o.Bugs.ReuseUseNumber {
		return 1, 0
	}
	return f.use, f.start
}

// addLazy puts the waiting hard states into the group.
func (l *Log) addLazy() {
	l.g.lazy = true
	for _, s := range l.lazy {
		l.g.add(s, hardRecord(s.id, s.hard, 0, l.g.body[:0]), nil)
	}
}

// encode puts one append's records into the group: a stream's entries come
// before the pointer that makes them count, others after the pointer they follow.
func (l *Log) encode(s *shardState, a *Append) {
	if a.Remove {
		l.g.add(s, record{kind: kindRemove, shard: s.id}, nil)
		return
	}
	if a.Snapshot != nil && !a.Staged {
		l.encodePointer(s, a)
	}
	for i := range a.Entries {
		e := &a.Entries[i]
		r := record{
			kind: kindEntry, entryType: e.Type, shard: s.id, index: e.Index, term: e.Term,
			desc: e.Descriptor, payloadLen: uint32(len(e.Payload)), payloadCRC: e.PayloadCRC,
		}
		if a.Staged {
			r.flags |= flagStaged
			if i == 0 && s.beginsRun(e.Index) {
				r.flags |= flagRunStart
			}
		}
		l.g.add(s, r, e.Payload)
	}
	if a.Hard != nil {
		l.g.add(s, hardRecord(s.id, *a.Hard, 0, l.g.body[:0]), nil)
	}
	if a.Snapshot != nil && a.Staged {
		l.encodePointer(s, a)
	}
}

func (l *Log) encodePointer(s *shardState, a *Append) {
	flags := uint8(0)
	if install, _ := s.installs(a); install {
		flags = flagInstall
	}
	l.g.add(s, pointerRecord(s.id, a.Snapshot, flags, l.g.body[:0]), nil)
}

// write puts the group on the disk, and takes its records into the state once
// they are durable: a reader never finds an entry that may not be there.
func (l *Log) write(flags uint8) error {
	defer l.g.release()
	l.g.finish(flags, l.end)
	f := l.active
	total := roundUp(l.g.off+l.g.size) - l.g.off
	if l.g.off+total > f.length {
		return l.fail("group", fmt.Errorf("expected to end within %d bytes of %s, found %d", f.length, f.name, l.g.off+total))
	}
	total += l.g.grow(f, total)
	pieces := l.g.pieces
	if n, err := f.file.WriteAtv(pieces, l.g.off); err != nil {
		return l.fail(fmt.Sprintf("write of %s at %d: expected %d bytes, found %d", f.name, l.g.off, total, n), err)
	} else if int64(n) != total {
		return l.fail(fmt.Sprintf("write of %s at %d: expected %d bytes, found %d", f.name, l.g.off, total, n), io.ErrShortWrite)
	}
	if l.o.Bugs.AckBeforeSync {
		answer(l.batch, nil)
		l.endBatch()
	}
	if err := l.sync(f); err != nil {
		return l.fail("fdatasync of "+f.name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = l.g.start + Position(l.g.off+l.g.size)
	f.off = l.nextOffset(l.g.off + l.g.size)
	f.size = max(f.size, l.g.off+total)
	l.unclosed = flags&groupClosing == 0
	l.stats.groups.Add(1)
	l.stats.bytes.Add(total)
	if l.g.lazy {
		for _, s := range l.lazy {
			s.lazyHard = false
		}
		l.lazy = l.lazy[:0]
	}
	for i := range l.g.records {
		p := &l.g.records[i]
		if p.rec.kind == kindRemove {
			p.shard.remove()
			l.dropShard(p.shard)
		} else if err := p.shard.apply(&p.rec, f, p.off); err != nil {
			return l.fail("state", fmt.Errorf("shard %d: expected %w", p.shard.id, err))
		}
	}
	return nil
}

// nextOffset is where a group may start behind one that ends at off.
func (l *Log) nextOffset(off int64) int64 {
	if l.o.Bugs.ShareBlocks {
		return (off + 63) / 64 * 64
	}
	return roundUp(off)
}

func (l *Log) sync(f *logFile) error {
	var err error
	if l.o.Clock == nil {
		err = f.file.Sync()
	} else {
		before := l.o.Clock()
		err = f.file.Sync()
		l.stats.observeSync(l.o.Clock() - before)
	}
	if l.o.Bugs.IgnoreSyncError {
		return nil
	}
	return err
}

// Idle is to be called when nothing was committed for a while, 100 ms at most:
// it writes the closing record that names the synced end, so that damage below
// it can be told from a torn tail. It does nothing when the end is named already.
func (l *Log) Idle() error {
	if err := l.usable(); err != nil {
		return err
	}
	if !l.unclosed || l.o.Bugs.SkipClosingRecord {
		return nil
	}
	need := int64(groupHeaderLen)
	for _, s := range l.lazy {
		need += s.hardSize()
	}
	if l.active == nil || l.active.room() < need {
		// The new file's header names the end.
		if err := l.makeRoom(need, false); err != nil || !l.unclosed {
			return err
		}
	}
	l.begin(need)
	l.addLazy()
	return l.write(groupClosing)
}

// RemoveShard drops a shard and everything the log holds of it.
func (l *Log) RemoveShard(id ShardID) error {
	return l.Commit([]*Append{{Shard: id, Remove: true}})
}

// ReadPayload returns the payload of an entry, in the first bytes of a buffer
// that get lends (get must return at least n bytes). Trimmed entries stay
// readable until their file is recycled; then it is ErrTrimmed. The bytes are
// checked against the entry's CRC32C. It may be called from any goroutine.
func (l *Log) ReadPayload(id ShardID, index, term uint64, get func(n int) []byte) ([]byte, error) {
	var buf []byte
	var last *logFile
	for {
		at, err := l.find(id, index, term)
		if err != nil {
			return nil, err
		}
		if at.file == last {
			// It still leads to a file that went while it was read: trimmed.
			return nil, fmt.Errorf("shard %d, index %d: %w", id, index, ErrTrimmed)
		}
		last = at.file
		if buf == nil {
			buf = get(int(at.payLen))[:at.payLen]
		}
		if at.payLen == 0 {
			return buf, nil
		}
		off := int64(at.off) + recordHeaderLen + int64(at.descLen)
		n, err := at.file.file.ReadAt(buf, off)
		if at.file.gone.Load() {
			continue
		}
		if err != nil && (!errors.Is(err, io.EOF) || n < len(buf)) {
			return nil, fmt.Errorf("wal: read of shard %d, index %d in %s at %d: %w", id, index, at.file.name, off, err)
		}
		if got := crc32.Checksum(buf, castagnoli); got != at.payCRC {
			return nil, &CorruptionError{
				File: path.Join(l.dir, at.file.name), Offset: off,
				Expected: fmt.Sprintf("payload checksum %08x", at.payCRC), Found: fmt.Sprintf("%08x", got),
			}
		}
		return buf, nil
	}
}

// find returns a copy of an entry's slot.
func (l *Log) find(id ShardID, index, term uint64) (slot, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := l.shards[id]
	if s == nil {
		return slot{}, fmt.Errorf("shard %d, index %d: %w", id, index, ErrNotFound)
	}
	at := s.log.get(index)
	if at == nil {
		at = s.staged.get(index)
	}
	switch {
	case at == nil && index <= s.ptr.Trimmed:
		return slot{}, fmt.Errorf("shard %d, index %d: expected above %d: %w", id, index, s.ptr.Trimmed, ErrTrimmed)
	case at == nil:
		return slot{}, fmt.Errorf("shard %d, index %d: %w", id, index, ErrNotFound)
	case at.term != term:
		return slot{}, fmt.Errorf("shard %d, index %d: expected term %d, found %d: %w", id, index, term, at.term, ErrNotFound)
	}
	return *at, nil
}

// Close writes the closing record, closes the files and gives up the lock. The
// log accepts nothing afterwards.
func (l *Log) Close() error {
	if l.closed {
		return nil
	}
	var err error
	if l.Err() == nil {
		err = l.Idle()
	}
	l.closed = true
	return errors.Join(err, l.closeFiles())
}

func (l *Log) closeFiles() error {
	var errs []error
	for _, f := range l.files {
		errs = append(errs, f.file.Close())
	}
	if l.lock != nil {
		errs = append(errs, l.lock.Close())
	}
	return errors.Join(errs...)
}
