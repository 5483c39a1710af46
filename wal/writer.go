package wal

import (
	"errors"
	"sync"
	"time"
)

// Bounds of the Writer's queue and groups.
const (
	// maxQueued bounds the appends in the queue, and maxQueuedBytes their bytes:
	// several groups' worth, so that the log never waits for work while there is
	// some, and small beside the budgets for in-flight payloads. Submit blocks
	// beyond it.
	maxQueued      = 4096
	maxQueuedBytes = 64 << 20
	// groupAppends and groupBytes bound one group commit: 8 MiB take about 15 ms
	// to write and sync, and a larger group gains nothing.
	groupAppends = 512
	groupBytes   = 8 << 20
	// closeAfter is the idle time after which the closing record is written: half
	// of what the format promises, so that a late timer keeps the promise.
	closeAfter = 50 * time.Millisecond
)

// Writer owns a Log: its one goroutine commits what comes through Submit, in
// groups of whatever has come while the last group was being written, writes
// the closing record of an idle log, and recycles files ahead of need. It is the
// broker's log; shards see it as shard.Log.
type Writer struct {
	log *Log

	mu       sync.Mutex
	notFull  sync.Cond // queue and bytes within bounds
	queue    []*Append
	bytes    int64 // queued
	writing  int64 // of the group that is with the log
	stopping bool
	stopped  bool // the goroutine takes nothing any more
	stopErr  error

	wake   chan struct{} // has room for one: there is something to do
	done   chan struct{}
	failed chan struct{}
	err    error // of the final Close

	taking []*Append // the goroutine's own, as is
	ahead  *filler
}

// NewWriter starts the goroutine that owns l from now on. Close stops it.
func NewWriter(l *Log) *Writer {
	if l.o.Clock == nil {
		start := time.Now()
		l.o.Clock = func() time.Duration { return time.Since(start) }
	}
	w := &Writer{
		log:    l,
		wake:   make(chan struct{}, 1),
		done:   make(chan struct{}),
		failed: make(chan struct{}),
	}
	w.ahead = newFiller(l, func(fill func()) {
		go func() { // ends with the file, or when the filler is closed
			fill()
			w.signal()
		}()
	})
	w.notFull.L = &w.mu
	go w.run()
	return w
}

// Submit queues an append; appends of one shard complete in order. It blocks
// while the queue is full. After Close, or once the log is out of service, Done
// gets the error; only then may it be called from the submitting goroutine.
func (w *Writer) Submit(a *Append) {
	size := sizeOf(a).size
	w.mu.Lock()
	for !w.stopped && len(w.queue) > 0 && (len(w.queue) >= maxQueued || w.bytes+size > maxQueuedBytes) {
		w.notFull.Wait()
	}
	if w.stopped || w.stopping {
		err := w.stopErr
		w.mu.Unlock()
		if err == nil {
			err = ErrClosed
		}
		answer([]*Append{a}, err)
		return
	}
	w.queue = append(w.queue, a)
	w.bytes += size
	w.mu.Unlock()
	w.signal()
}

func (w *Writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// RemoveShard drops a shard from the log and waits until that is durable.
func (w *Writer) RemoveShard(id ShardID) error {
	done := make(chan error, 1)
	w.Submit(&Append{Shard: id, Remove: true, Done: func(err error) { done <- err }})
	return <-done
}

// ReadPayload returns the payload of an entry: see Log.ReadPayload.
func (w *Writer) ReadPayload(s ShardID, index, term uint64, get func(n int) []byte) ([]byte, error) {
	return w.log.ReadPayload(s, index, term, get)
}

// Usage returns how full the log is.
//
// What is queued or being written counts as used: intake that goes by it must
// not take the same room twice while a sync takes long.
func (w *Writer) Usage() Usage {
	u := w.log.Usage()
	w.mu.Lock()
	defer w.mu.Unlock()
	u.Used += w.bytes + w.writing
	return u
}

// End is the synced end of the log.
func (w *Writer) End() Position { return w.log.End() }

// OldestLive is the position of a shard's oldest untrimmed entry.
func (w *Writer) OldestLive(s ShardID) (Position, bool) { return w.log.OldestLive(s) }

// Err returns why the log is out of service, or nil.
func (w *Writer) Err() error { return w.log.Err() }

// Failed is closed when the log goes out of service; Err then says why.
func (w *Writer) Failed() <-chan struct{} { return w.failed }

// Stats returns the log's counters and the queue's length.
func (w *Writer) Stats() Stats {
	s := w.log.Stats()
	w.mu.Lock()
	defer w.mu.Unlock()
	s.QueueLen, s.QueueBytes = int64(len(w.queue)), w.bytes
	return s
}

// Close commits what is queued, writes the closing record and closes the log.
func (w *Writer) Close() error {
	w.mu.Lock()
	w.stopping = true
	w.mu.Unlock()
	w.signal()
	<-w.done
	return w.err
}

// run is the goroutine.
func (w *Writer) run() {
	defer close(w.done)
	idle := time.NewTimer(closeAfter)
	defer idle.Stop()
	for {
		_ = w.ahead.step() // as below
		group, stopping := w.take()
		if len(group) == 0 {
			if stopping {
				w.stop(ErrClosed)
				w.ahead.close()
				w.err = w.log.Close()
				return
			}
			if !w.rest(idle) {
				return
			}
			continue
		}
		// What an append got went to its Done; here only the log's health counts.
		_ = w.log.Commit(group)
		_, _ = w.log.Maintain(copyStep)
		if w.log.Err() != nil {
			w.giveUp()
			return
		}
		idle.Reset(closeAfter)
	}
}

// take moves the front of the queue, at most one group's worth, to the goroutine.
func (w *Writer) take() (group []*Append, stopping bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.taking)
	w.taking = w.taking[:0]
	n, total := 0, int64(0)
	for n < len(w.queue) && n < groupAppends {
		size := sizeOf(w.queue[n]).size
		if n > 0 && total+size > groupBytes {
			break
		}
		total += size
		n++
	}
	w.taking = append(w.taking, w.queue[:n]...)
	rest := copy(w.queue, w.queue[n:])
	clear(w.queue[rest:])
	w.queue = w.queue[:rest]
	w.bytes -= total
	w.writing = total
	if n > 0 {
		w.notFull.Broadcast()
	}
	return w.taking, w.stopping
}

// rest waits for work and closes the log's end meanwhile. It returns false when
// that failed, and the log is given up.
func (w *Writer) rest(idle *time.Timer) bool {
	select {
	case <-w.wake:
	case <-idle.C:
		if err := w.log.Idle(); err != nil {
			w.giveUp()
			return false
		}
	}
	return true
}

// stop refuses everything from now on, also what waits in Submit.
func (w *Writer) stop(err error) {
	w.mu.Lock()
	queue := w.queue
	w.queue, w.bytes, w.stopped, w.stopErr = nil, 0, true, err
	w.notFull.Broadcast()
	w.mu.Unlock()
	answer(queue, err)
}

// giveUp takes the writer out of service after a failure: everything queued gets
// the error. Payloads stay readable until Close.
func (w *Writer) giveUp() {
	close(w.failed)
	w.stop(w.log.Err())
	w.ahead.close()
	for {
		w.mu.Lock()
		stopping := w.stopping
		w.mu.Unlock()
		if stopping {
			break
		}
		<-w.wake
	}
	w.err = errors.Join(w.log.Err(), w.log.Close())
}
