package wal

import (
	"errors"
	"fmt"
	"io"
	"path"
)

// emptying is the work on the oldest file: which of its records were live when
// it began. Each is looked at again when its turn comes.
type emptying struct {
	file *logFile
	todo []liveRecord
	buf  []byte // descriptors and payloads on their way from the old file to the new
}

// liveRecord names one record to rewrite: an entry by index, or the shard's hard
// state and snapshot pointer.
type liveRecord struct {
	shard  *shardState
	staged bool
	index  uint64 // 0: hard state and pointer
}

// Recycling before the budget demands it: a file that was written before is
// synced in half the time, and a log that trims needs few of them.
const (
	// spareFrom is how many files the log has before the oldest is recycled
	// early: reads of entries that were just trimmed find them for a while.
	spareFrom = 4
	// spareLive is what may live in it, to be rewritten: hard states and
	// pointers of idle shards.
	spareLive = 64 << 10
)

// maxCopyBuf is the buffer size that is kept from one step to the next.
const maxCopyBuf = 2 * copyStep

// Maintain does one step of recycling ahead of need, when the budget would be
// reached within two more files, or the next rotation would find no free file
// and next to nothing lives in the oldest one: it rewrites up to max live bytes of the oldest
// file, or retires it. It reports whether there is more to do. Called after
// groups it keeps Commit from having to do all of it at the end of a file.
func (l *Log) Maintain(max int64) (more bool, err error) {
	if err := l.usable(); err != nil {
		return false, err
	}
	if !l.pressed() {
		return false, nil
	}
	if _, err := l.emptyOldest(min(max, copyStep)); err != nil {
		return false, err
	}
	if l.tight() {
		// The copies filled a file: another one would exceed the budget, so this
		// is no time for small steps.
		if err := l.makeRoom(0, false); err != nil {
			return false, err
		}
	}
	return l.pressed(), nil
}

// pressed tells whether recycling should go ahead: a file is to be had for next
// to nothing, or two more files do not fit and there is dead space to be gained
// by it.
func (l *Log) pressed() bool {
	if l.active != nil && len(l.free) == 0 && len(l.files) > spareFrom && l.files[0].live <= spareLive {
		return true
	}
	reach := l.reach()
	return l.active != nil && len(l.files) > 1 && reach+2*l.o.FileBytes > l.o.MaxBytes &&
		reach-l.liveBytes() >= 2*l.o.FileBytes
}

// emptyOldest rewrites up to max live bytes of the oldest file into the active
// one; when nothing lives in it any more it is retired, and done is true. There
// must be a younger file.
func (l *Log) emptyOldest(max int64) (done bool, err error) {
	f := l.files[0]
	if l.emptying.file != f {
		l.emptying.file = f
		l.emptying.todo = l.listLive(f, l.emptying.todo[:0])
	}
	if !l.o.Bugs.RecycleWithoutRewrite {
		if err := l.rewrite(f, max); err != nil {
			return false, err
		}
		if len(l.emptying.todo) > 0 {
			return false, nil
		}
	}
	l.emptying.file = nil
	return true, l.retire(0)
}

// listLive finds the live records of f, shard by shard in the order of ids.
func (l *Log) listLive(f *logFile, todo []liveRecord) []liveRecord {
	for _, s := range l.order {
		if s.hardFile == f || s.ptrFile == f {
			todo = append(todo, liveRecord{shard: s})
		}
		if f.live == 0 {
			continue
		}
		for i := range s.log.slots {
			if index := s.log.first + uint64(i); s.log.slots[i].file == f && index > s.ptr.Trimmed {
				todo = append(todo, liveRecord{shard: s, index: index})
			}
		}
		for i := range s.staged.slots {
			if s.staged.slots[i].file == f {
				todo = append(todo, liveRecord{shard: s, index: s.staged.first + uint64(i), staged: true})
			}
		}
	}
	return todo
}

// entry returns the slot of a record that is still live in f, or nil.
func (r *liveRecord) entry(l *Log, f *logFile) *slot {
	if l.shards[r.shard.id] != r.shard {
		return nil // removed since
	}
	at := r.shard.staged.get(r.index)
	if !r.staged {
		at = r.shard.log.get(r.index)
		if r.index <= r.shard.ptr.Trimmed {
			return nil
		}
	}
	if at == nil || at.file != f {
		return nil
	}
	return at
}

// rewrite copies the next live records of f, up to max bytes or what the active
// file has room for, as one group.
func (l *Log) rewrite(f *logFile, max int64) error {
	n, size, need := l.pick(f, max)
	if n == 0 && need > 0 {
		if err := l.rotate(need); err != nil {
			return err
		}
		n, size, _ = l.pick(f, max)
	}
	if size > 0 {
		if err := l.copyRecords(f, l.emptying.todo[:n], size); err != nil {
			return err
		}
	}
	todo := l.emptying.todo
	l.emptying.todo = append(todo[:0], todo[n:]...)
	return nil
}

// pick chooses how many of the records to do go into one group: their count and
// size. When not even the first fits, need is what it takes.
func (l *Log) pick(f *logFile, max int64) (n int, size, need int64) {
	room := l.active.room() - groupHeaderLen
	for n < len(l.emptying.todo) {
		one := l.emptying.todo[n].size(l, f)
		if size > 0 && size+one > max {
			break
		}
		if size+one > room {
			return n, size, groupHeaderLen + one
		}
		size += one
		n++
	}
	return n, size, 0
}

// size is what the record's copy takes: 0 when it is not live any more.
func (r *liveRecord) size(l *Log, f *logFile) int64 {
	if r.index > 0 {
		if at := r.entry(l, f); at != nil {
			return at.size()
		}
		return 0
	}
	if l.shards[r.shard.id] != r.shard {
		return 0
	}
	var n int64
	if r.shard.hardFile == f {
		n += r.shard.hardSize()
	}
	if r.shard.ptrFile == f {
		n += r.shard.ptrSize()
	}
	return n
}

// copyRecords writes one group of copies. Their originals stay what counts until
// it is durable.
func (l *Log) copyRecords(f *logFile, todo []liveRecord, size int64) error {
	if int64(cap(l.emptying.buf)) < size {
		l.emptying.buf = make([]byte, 0, size)
	}
	l.emptying.buf = l.emptying.buf[:0]
	l.begin(size)
	for i := range todo {
		r := &todo[i]
		if r.index == 0 {
			l.copyShard(r.shard, f)
		} else if at := r.entry(l, f); at != nil {
			if err := l.copyEntry(r, at); err != nil {
				return l.fail("rewriting "+f.name, err)
			}
		}
	}
	err := l.write(0)
	l.stats.rewritten.Add(size)
	if cap(l.emptying.buf) > maxCopyBuf {
		l.emptying.buf = nil
	}
	return err
}

// copyShard copies a shard's hard state and pointer, from memory.
func (l *Log) copyShard(s *shardState, f *logFile) {
	if l.shards[s.id] != s {
		return
	}
	if s.hardFile == f {
		l.g.add(s, hardRecord(s.id, s.hard, flagCopy, l.g.body[:0]), nil)
	}
	if s.ptrFile == f {
		l.g.add(s, pointerRecord(s.id, &s.ptr, flagCopy, l.g.body[:0]), nil)
	}
}

// copyEntry copies one entry from its file, checked: damage is found here at the
// latest, and not handed on with a fresh checksum.
func (l *Log) copyEntry(r *liveRecord, at *slot) error {
	from := len(l.emptying.buf)
	b := l.emptying.buf[from : from+int(at.size())]
	l.emptying.buf = l.emptying.buf[:from+len(b)]
	if n, err := at.file.file.ReadAt(b, int64(at.off)); err != nil && (!errors.Is(err, io.EOF) || n < len(b)) {
		return fmt.Errorf("read of %s at %d: %w", at.file.name, at.off, err)
	}
	use, start := l.checkBase(at.file)
	rec, payload, expected, found := decodeRecord(b, use, start+Position(at.off))
	if found == "" && (rec.shard != r.shard.id || rec.index != r.index || rec.term != at.term) {
		expected = fmt.Sprintf("shard %d, index %d, term %d", r.shard.id, r.index, at.term)
		found = fmt.Sprintf("shard %d, index %d, term %d", rec.shard, rec.index, rec.term)
	}
	if found != "" {
		return &CorruptionError{File: path.Join(l.dir, at.file.name), Offset: int64(at.off), Expected: expected, Found: found}
	}
	rec.flags = flagCopy
	if r.staged {
		rec.flags |= flagStaged
	}
	l.g.add(r.shard, rec, payload)
	return nil
}
