package wal

import (
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// SyncBuckets are the upper bounds of the fdatasync latency histogram; a last
// bucket holds what took longer.
var SyncBuckets = [...]time.Duration{
	100 * time.Microsecond, 200 * time.Microsecond, 400 * time.Microsecond, 800 * time.Microsecond,
	1600 * time.Microsecond, 3200 * time.Microsecond, 6400 * time.Microsecond, 12800 * time.Microsecond,
	25600 * time.Microsecond, 51200 * time.Microsecond, 102400 * time.Microsecond, 409600 * time.Microsecond,
}

// Stats counts what the log did since it was opened.
type Stats struct {
	Groups, Appends, Bytes int64 // group commits, appends in them, bytes with padding
	Files, Recycled        int64 // files begun, and those of them that were recycled or written ahead
	Filled                 int64 // files written ahead
	Rewritten              int64 // live bytes rewritten by recycling
	Syncs                  int64
	SyncTime               time.Duration
	SyncCounts             [len(SyncBuckets) + 1]int64
	// QueueLen and QueueBytes are the Writer's queue now.
	QueueLen, QueueBytes int64
}

// stats is the same in atomics.
type stats struct {
	groups, appends, bytes atomic.Int64
	files, recycled        atomic.Int64
	filled                 atomic.Int64
	rewritten              atomic.Int64
	syncs, syncNanos       atomic.Int64
	syncCounts             [len(SyncBuckets) + 1]atomic.Int64
}

func (s *stats) observeSync(d time.Duration) {
	s.syncs.Add(1)
	s.syncNanos.Add(int64(d))
	for i, bound := range SyncBuckets {
		if d <= bound {
			s.syncCounts[i].Add(1)
			return
		}
	}
	s.syncCounts[len(SyncBuckets)].Add(1)
}

// Stats may be called from any goroutine.
func (l *Log) Stats() Stats {
	s := &l.stats
	out := Stats{
		Groups: s.groups.Load(), Appends: s.appends.Load(), Bytes: s.bytes.Load(),
		Files: s.files.Load(), Recycled: s.recycled.Load(), Filled: s.filled.Load(), Rewritten: s.rewritten.Load(),
		Syncs: s.syncs.Load(), SyncTime: time.Duration(s.syncNanos.Load()),
	}
	for i := range s.syncCounts {
		out.SyncCounts[i] = s.syncCounts[i].Load()
	}
	return out
}

// withClose closes c and joins its error to err.
func withClose(err error, c io.Closer) error { return errors.Join(err, c.Close()) }
