package wal

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"thermocline/wal/vfs"
)

// Open takes the lock on dir, reads everything that the log holds there and
// returns it, by shard. What it returns is durable: the last file was synced. A
// torn tail, which holds nothing that was acked, is cut and logged; damage to
// what was synced is a *CorruptionError and changes nothing. Snapshot files that
// no pointer names are removed.
func Open(fs vfs.FS, dir string, o Options) (*Log, map[ShardID]*RecoveredShard, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, nil, err
	}
	if err := fs.MkdirAll(dir); err != nil {
		return nil, nil, fmt.Errorf("wal: directory: %w", err)
	}
	lock, err := fs.Lock(path.Join(dir, lockName))
	if err != nil {
		return nil, nil, fmt.Errorf("wal: %w", err)
	}
	l := &Log{fs: fs, dir: dir, o: o, lock: lock, shards: map[ShardID]*shardState{}, nextUse: 1}
	recovered, err := l.recover()
	if err == nil {
		err = l.removeStaleSnapshots()
	}
	if err != nil {
		return nil, nil, withClose(err, closerFunc(l.closeFiles))
	}
	return l, recovered, nil
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// listFiles returns the use numbers of the log's files in ascending order, and
// the free files. Use numbers may have gaps: a crash can use one up.
func listFiles(fs vfs.FS, dir string) (live []uint64, free []freeFile, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("wal: list: %w", err)
	}
	for _, n := range names {
		if use, ok := parseName(n, livePrefix); ok {
			live = append(live, use)
		} else if use, ok := parseName(n, freePrefix); ok {
			free = append(free, freeFile{name: n, use: use})
		}
	}
	slices.Sort(live)
	return live, free, nil
}

// recover reads the files in order.
func (l *Log) recover() (map[ShardID]*RecoveredShard, error) {
	live, free, err := listFiles(l.fs, l.dir)
	if err != nil {
		return nil, err
	}
	scanners := make([]*scanner, 0, len(live))
	for _, use := range live {
		s, err := l.openFile(use)
		if err != nil {
			return nil, err
		}
		scanners = append(scanners, s)
		l.nextUse = max(l.nextUse, use+1)
		l.nextStart = s.head.start + Position(s.head.length)
	}
	if err := l.checkOrder(scanners); err != nil {
		return nil, err
	}
	for i, s := range scanners {
		if err := l.recoverFile(s, l.files[i], scanners[i+1:]); err != nil {
			return nil, err
		}
	}
	if err := l.takeFree(free); err != nil {
		return nil, err
	}
	if err := l.settle(); err != nil {
		return nil, err
	}
	return l.handOver()
}

// openFile opens a live file and reads its header, which was durable before the
// file got its name.
func (l *Log) openFile(use uint64) (*scanner, error) {
	name := liveName(use)
	file, err := l.fs.Open(path.Join(l.dir, name))
	if err != nil {
		return nil, fmt.Errorf("wal: open: %w", err)
	}
	f := &logFile{name: name, file: file, use: use}
	l.files = append(l.files, f)
	s, d, err := openScanner(file, name)
	if err != nil {
		return nil, err
	}
	if d != nil {
		return nil, l.damaged(name, d)
	}
	s.use, s.start = use, s.head.start
	f.start, f.length, f.size, f.off = s.head.start, s.head.length, s.size, blockSize
	s.use, s.start = l.checkBase(f)
	return s, nil
}

// damaged turns damage into the error for it.
func (l *Log) damaged(name string, d *damage) error {
	if d.expected == versionExpected {
		return fmt.Errorf("%s at offset %d: expected %s, found %s: %w", name, d.off, d.expected, d.found, ErrVersion)
	}
	return &CorruptionError{File: path.Join(l.dir, name), Offset: d.off, Expected: d.expected, Found: d.found}
}

// checkOrder sees that positions grow from file to file. A gap is no error: a
// file without groups may have been retired. One with groups that is missing
// shows by the synced end that the next header names.
func (l *Log) checkOrder(scanners []*scanner) error {
	for i := 1; i < len(scanners); i++ {
		was, is := &scanners[i-1].head, &scanners[i].head
		if least := was.start + Position(was.length); is.start < least {
			return l.damaged(scanners[i].name, &damage{expected: fmt.Sprintf("a start position from %d", least), found: fmt.Sprint(is.start)})
		}
	}
	return nil
}

// recoverFile reads one file's groups. The next file's header names the end of
// what was synced in this one; in the last file only later groups do.
func (l *Log) recoverFile(s *scanner, f *logFile, later []*scanner) error {
	if f == l.files[0] {
		l.end = s.head.synced
	}
	off := int64(blockSize)
	for {
		if len(later) > 0 && l.end == later[0].head.synced && !l.o.Bugs.CutAnywhere {
			return nil
		}
		h, d, err := s.group(off, func(r *record, at int64) error { return l.recoverRecord(r, f, at) })
		if err != nil {
			return err
		}
		if d == nil && h.synced != l.end {
			d = &damage{off: off, expected: fmt.Sprintf("synced end %d", l.end), found: fmt.Sprint(h.synced)}
			return l.damaged(s.name, d)
		}
		if d != nil {
			return l.stopAt(s, off, d, later)
		}
		l.end = s.start + Position(off) + Position(h.length)
		l.unclosed = true
		off = l.nextOffset(off + int64(h.length))
		f.off = off
	}
}

// recoverRecord takes one record into the state.
func (l *Log) recoverRecord(r *record, f *logFile, off int64) error {
	s := l.shards[r.shard]
	if r.kind == kindRemove {
		if s != nil {
			s.remove()
			l.dropShard(s)
		}
		return nil
	}
	if s == nil {
		s = newShardState(r.shard, true)
		l.addShard(s)
	}
	if err := s.apply(r, f, off); err != nil {
		return &CorruptionError{
			File: path.Join(l.dir, f.name), Offset: off,
			Expected: fmt.Sprintf("for shard %d %v", r.shard, err), Found: fmt.Sprintf("%v at index %d, term %d", r.kind, r.index, r.term),
		}
	}
	return nil
}

// stopAt decides what it means that no good group stands at off: the end of the
// log, a torn tail, or damage to what was synced.
func (l *Log) stopAt(s *scanner, off int64, d *damage, later []*scanner) error {
	if l.o.Bugs.CutAnywhere {
		return nil
	}
	if d.expected == versionExpected {
		return l.damaged(s.name, d)
	}
	if len(later) > 0 {
		d.expected = fmt.Sprintf("%s below the synced end %d that %s names", d.expected, later[0].head.synced, later[0].name)
		return l.damaged(s.name, d)
	}
	at, h, ok, err := s.findHeader(off, l.nextOffset(1))
	if err != nil {
		return err
	}
	if ok {
		d.expected = fmt.Sprintf("%s below the synced end %d that the group at %d names", d.expected, h.synced, at)
		return l.damaged(s.name, d)
	}
	if d.header {
		l.o.Logger.Warn("wal: cut a torn group at the end of the log", "file", s.name, "offset", off, "expected", d.expected, "found", d.found)
	}
	return nil
}

// takeFree notes the free files. Their numbers count: one may have been on its
// way to become a file of the log.
func (l *Log) takeFree(free []freeFile) error {
	for _, f := range free {
		l.nextUse = max(l.nextUse, f.use+1)
		file, err := l.fs.Open(path.Join(l.dir, f.name))
		if err != nil {
			return fmt.Errorf("wal: open: %w", err)
		}
		f.size, err = file.Size()
		if err = withClose(err, file); err != nil {
			return fmt.Errorf("wal: %s: %w", f.name, err)
		}
		l.free = append(l.free, f)
	}
	return l.dropFree()
}

// settle makes durable what recovery read: after kill -9 the last group and the
// last rename may be in the page cache only, and whoever gets the recovered
// entries will count them as stored.
func (l *Log) settle() error {
	if l.o.Bugs.SkipRecoverySync {
		return nil
	}
	if n := len(l.files); n > 0 {
		if err := l.files[n-1].file.Sync(); err != nil {
			return fmt.Errorf("wal: fdatasync of %s: %w", l.files[n-1].name, err)
		}
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return fmt.Errorf("wal: sync of the directory: %w", err)
	}
	return nil
}

// handOver checks that nothing is missing in any shard and builds what Open
// returns.
func (l *Log) handOver() (map[ShardID]*RecoveredShard, error) {
	out := make(map[ShardID]*RecoveredShard, len(l.order))
	for _, s := range l.order {
		s.staged.cutFrom(0, 0)
		n := 0
		for n < len(s.log.slots) && s.log.first+uint64(n) <= s.ptr.Trimmed {
			n++
		}
		s.log.dropFront(n)
		if err := s.complete(); err != nil {
			return nil, &CorruptionError{File: l.dir, Expected: fmt.Sprintf("for shard %d %s", s.id, err.expected), Found: err.found}
		}
		r := &RecoveredShard{Hard: s.hard, Snapshot: s.ptr}
		r.Hard.Commit = max(r.Hard.Commit, s.ptr.Index)
		for i := range s.log.slots {
			at := &s.log.slots[i]
			r.Entries = append(r.Entries, EntryMeta{
				Index: s.log.first + uint64(i), Term: at.term, Type: at.typ,
				Descriptor: s.log.descs[i], PayloadLen: at.payLen, PayloadCRC: at.payCRC,
			})
		}
		s.log.descs, s.staged.descs = nil, nil
		out[s.id] = r
	}
	return out, nil
}

// complete sees that the entries reach without a hole from the trim point to the
// snapshot and to the commit index.
func (s *shardState) complete() *damage {
	for i := range s.log.slots {
		if s.log.slots[i].file == nil {
			return &damage{expected: fmt.Sprintf("entry %d", s.log.first+uint64(i)), found: "none"}
		}
	}
	if s.ptrFile != nil {
		if !s.log.empty() && s.log.first != s.ptr.Trimmed+1 {
			return &damage{expected: fmt.Sprintf("entries from %d", s.ptr.Trimmed+1), found: fmt.Sprint(s.log.first)}
		}
		if s.log.empty() && s.ptr.Trimmed < s.ptr.Index || !s.log.empty() && s.log.last() < s.ptr.Index {
			return &damage{expected: fmt.Sprintf("entries up to the snapshot's %d", s.ptr.Index), found: fmt.Sprintf("%d entries", len(s.log.slots))}
		}
	}
	if last := s.lastIndex(); last > 0 && s.hard.Commit > last {
		return &damage{expected: fmt.Sprintf("entries up to the commit index %d", s.hard.Commit), found: fmt.Sprint(last)}
	}
	return nil
}

// removeStaleSnapshots removes snapshot files that no shard's pointer names:
// unfinished ones, and those that a newer one has replaced.
func (l *Log) removeStaleSnapshots() error {
	named := map[string]bool{}
	for _, s := range l.order {
		if s.ptr.File != "" {
			named[s.ptr.File] = true
		}
	}
	names, err := l.fs.List(l.dir)
	if err != nil {
		return fmt.Errorf("wal: list: %w", err)
	}
	for _, n := range names {
		if !strings.HasSuffix(n, SnapshotSuffix) && !strings.HasSuffix(n, SnapshotSuffix+tempSuffix) || named[n] {
			continue
		}
		if err := l.fs.Remove(path.Join(l.dir, n)); err != nil {
			return fmt.Errorf("wal: remove stale snapshot: %w", err)
		}
	}
	return nil
}
