package wal

import (
	"fmt"
	"path"
)

// Usage is how full the log is.
type Usage struct {
	// Used counts the bytes that the log still needs: untrimmed entries, newest
	// hard states and snapshot pointers. What is dead can be recycled at once, so
	// this is what intake of client data is gated by, against Max.
	Used int64
	// Max is what Used may come to: the budget without its reserves.
	Max int64
	// Disk is what all log files take on the disk now, and Budget what they may
	// (Options.MaxBytes; exceeded by one file at most, and for a moment).
	Disk, Budget int64
}

// Usage may be called from any goroutine.
func (l *Log) Usage() Usage {
	l.mu.RLock()
	defer l.mu.RUnlock()
	u := Usage{Used: l.liveBytes(), Max: l.o.MaxBytes - l.reserve(), Budget: l.o.MaxBytes, Disk: l.filling}
	for _, f := range l.files {
		u.Disk += f.size
	}
	for _, f := range l.free {
		u.Disk += f.size
	}
	return u
}

// reserve is what intake may not use. Between Usage's Max and dataLimit there is
// room for what was under way when intake stopped.
func (l *Log) reserve() int64 {
	return max(reserveFiles*l.o.FileBytes, l.o.MaxBytes/8) + l.headers()
}

// headers is what the file headers take of the budget.
func (l *Log) headers() int64 { return l.o.MaxBytes / l.o.FileBytes * blockSize }

// dataLimit is where the log itself refuses payloads: two files of the reserve
// are for what passes the intake, the rest for what must always pass.
func (l *Log) dataLimit() int64 {
	return l.o.MaxBytes - (reserveFiles-2)*l.o.FileBytes - l.headers()
}

func (l *Log) liveBytes() int64 {
	var n int64
	for _, f := range l.files {
		n += f.live
	}
	return n
}

// reach is how much of the budget the files with records take, counted whole.
func (l *Log) reach() int64 {
	var n int64
	for _, f := range l.files {
		n += f.length
	}
	return n
}

// End is the synced end of the log.
func (l *Log) End() Position {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.end
}

// OldestLive is the position of a shard's oldest untrimmed entry; ok is false
// when it has none. A shard for which End minus it exceeds half of the budget is
// to be sealed, or recycling has to carry its entries along again and again.
func (l *Log) OldestLive(id ShardID) (pos Position, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := l.shards[id]
	if s == nil || s.log.empty() {
		return 0, false
	}
	at := s.log.get(max(s.log.first, s.ptr.Trimmed+1))
	if at == nil {
		return 0, false
	}
	return at.file.start + Position(at.off), true
}

// makeRoom opens a new active file for a group of need bytes, and empties the
// oldest ones until another rotation fits into the budget.
func (l *Log) makeRoom(need int64, data bool) error {
	// What lives in an emptied file goes into the active one, which may fill up,
	// and so on round the log. After one round nothing more is to be gained.
	for tries := len(l.files) + 2; tries > 0; {
		switch {
		case l.active != nil && l.tight():
			if err := l.emptyWhole(); err != nil {
				return err
			}
			tries--
		case l.active != nil && l.active.room() >= need:
			return l.dropEmpty()
		default:
			if err := l.rotate(need); err != nil {
				return err
			}
		}
	}
	if l.active.room() >= need {
		return nil
	}
	if data {
		return fmt.Errorf("no room for a group of %d bytes with %d of %d bytes live: %w", need, l.liveBytes(), l.o.MaxBytes, ErrFull)
	}
	return l.rotate(need)
}

// tight tells whether another rotation would exceed the budget, and there is a
// file to be emptied.
func (l *Log) tight() bool {
	return l.reach()+l.o.FileBytes > l.o.MaxBytes && len(l.files) > 1
}

// emptyWhole empties the oldest file at once.
func (l *Log) emptyWhole() error {
	for {
		if done, err := l.emptyOldest(copyStep); done || err != nil {
			return err
		}
	}
}

// rotate makes the next file the active one: a free file if there is one, else a
// new one. Its header names the synced end. The steps are such that a crash
// between any two leaves either a free file, which means nothing, or a complete
// file of the log:
//
//	write the header into free-N, fdatasync, rename to wal-M, sync the directory
func (l *Log) rotate(need int64) error {
	length := max(l.o.FileBytes, blockSize+roundUp(need))
	f, err := l.prepare(length)
	if err != nil {
		return l.fail("new file", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files = append(l.files, f)
	l.active = f
	l.nextUse++
	l.nextStart += Position(length)
	l.unclosed = false
	l.stats.files.Add(1)
	return nil
}

func (l *Log) prepare(length int64) (*logFile, error) {
	from := freeFile{name: freeName(l.nextUse)}
	open := l.fs.Create
	if n := len(l.free); n > 0 && length == l.o.FileBytes {
		from, open = l.free[n-1], l.fs.Open
		l.mu.Lock()
		l.free = l.free[:n-1]
		l.mu.Unlock()
		l.stats.recycled.Add(1)
	}
	file, err := open(path.Join(l.dir, from.name))
	if err != nil {
		return nil, err
	}
	f := &logFile{
		name: liveName(l.nextUse), file: file, use: l.nextUse, start: l.nextStart,
		length: length, size: max(from.size, blockSize), off: blockSize,
	}
	h := fileHeader{use: f.use, start: f.start, length: length, synced: l.end}
	h.encode(l.head[:])
	if _, err = file.WriteAtv([][]byte{l.head[:]}, 0); err == nil {
		err = l.sync(f)
	}
	if err == nil {
		err = l.fs.Rename(path.Join(l.dir, from.name), path.Join(l.dir, f.name))
	}
	if err == nil {
		err = l.fs.SyncDir(l.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("%s from %s: %w", f.name, from.name, withClose(err, file))
	}
	return f, nil
}

// dropEmpty retires the file before the active one if it has no group: a start
// opened it and wrote nothing. Else a broker that is started again and again
// would use up the budget.
func (l *Log) dropEmpty() error {
	if n := len(l.files); n > 1 && l.files[n-2].off == blockSize {
		return l.retire(n - 2)
	}
	return nil
}

// retire takes file i, with nothing live in it, out of the log: the oldest, or
// one without groups. It is marked as gone before anything can be written to it
// again.
func (l *Log) retire(i int) error {
	f := l.files[i]
	if err := l.fs.Rename(path.Join(l.dir, f.name), path.Join(l.dir, freeName(f.use))); err != nil {
		return l.fail("rename of "+f.name, err)
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return l.fail("sync of the directory", err)
	}
	l.mu.Lock()
	f.gone.Store(true)
	for _, s := range l.order {
		s.forget(f)
	}
	l.files = append(l.files[:i], l.files[i+1:]...)
	l.free = append(l.free, freeFile{name: freeName(f.use), use: f.use, size: f.size})
	l.mu.Unlock()
	if err := f.file.Close(); err != nil {
		return l.fail("close of "+f.name, err)
	}
	return l.dropFree()
}

// dropFree removes free files that the budget has no room for, and those of
// another size than new files have.
func (l *Log) dropFree() error {
	for i := len(l.free) - 1; i >= 0; i-- {
		f := l.free[i]
		kept := int64(len(l.free)) * l.o.FileBytes
		if f.size <= l.o.FileBytes && l.reach()+kept <= l.o.MaxBytes {
			continue
		}
		if err := l.fs.Remove(path.Join(l.dir, f.name)); err != nil {
			return l.fail("remove of "+f.name, err)
		}
		l.mu.Lock()
		l.free = append(l.free[:i], l.free[i+1:]...)
		l.mu.Unlock()
	}
	return nil
}
