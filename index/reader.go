package index

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"

	"thermocline/tiering/format"
	"thermocline/tiering/object"
)

// Reader reads the store. All methods are safe for concurrent use.
type Reader struct {
	store object.Store
	o     Options
	count counters

	dirs    *cache
	blocks  *cache
	data    *dataCache
	streams *streams

	// conns admits GETs; ahead, a part of it, those that nobody waits for.
	conns, ahead *semaphore.Weighted
	tasks        *semaphore.Weighted

	life   context.Context
	cancel context.CancelCauseFunc
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// NewReader returns a reader; Close ends it.
func NewReader(store object.Store, o Options) *Reader {
	r := &Reader{store: store, o: o.withDefaults()}
	r.life, r.cancel = context.WithCancelCause(context.Background())
	n := int64(r.o.Connections)
	r.conns = semaphore.NewWeighted(n)
	r.ahead = semaphore.NewWeighted(n - n/8)
	r.tasks = semaphore.NewWeighted(aheadTasks)
	r.dirs = newCache(r, r.o.DirectoryBytes)
	r.blocks = newCache(r, r.o.BlockBytes)
	r.data = newDataCache(r, r.o.DataBytes)
	r.streams = newStreams()
	return r
}

// Close ends every GET and waits for the goroutines. Data that has been
// returned stays valid.
func (r *Reader) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel(ErrClosed)
	r.wg.Wait()
}

// spawn runs fn on a goroutine that Close waits for; false when closed.
func (r *Reader) spawn(fn func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		fn()
	}()
	return true
}

// Stats returns a snapshot of the counters.
func (r *Reader) Stats() Stats {
	c := &r.count
	return Stats{
		Gets: c.gets.Load(), GetBytes: c.getBytes.Load(), Failures: c.failures.Load(), Reads: c.reads.Load(), Delivered: c.delivered.Load(),
		Hits: c.hits.Load(), Shared: c.shared.Load(), Misses: c.misses.Load(), Ahead: c.ahead.Load(), AheadUnused: c.aheadUnused.Load(),
		IndexHits: c.indexHits.Load(), IndexMisses: c.indexMisses.Load(),
		DataBytes: r.data.held(), BlockBytes: r.blocks.held(), DirectoryBytes: r.dirs.held(), Streams: int64(r.streams.len()),
	}
}

// Warm loads the directories of a manifest's level 0 that are not there yet: a
// broker calls it at start and after commits, off the path of fetches.
func (r *Reader) Warm(ctx context.Context, m *format.Manifest) error {
	_, err := r.levelZero(ctx, m)
	return err
}

// Learn takes the directory of a segment that this broker has just committed,
// from the segment's last FooterLen bytes, so that no GET is needed for it.
func (r *Reader) Learn(row format.SegmentRow, tail []byte) error {
	d, size, err := r.parseDirectory(&row, tail)
	if err != nil {
		return err
	}
	r.dirs.put(cacheKey{object: row.Key}, d, size)
	return nil
}

// span of bytes of an object, verified by check.
func (r *Reader) get(ctx context.Context, object string, at int64, p []byte, check func([]byte) error) error {
	if err := r.conns.Acquire(ctx, 1); err != nil {
		return r.fail(object, at, p, context.Cause(ctx))
	}
	defer r.conns.Release(1)
	return r.getAdmitted(ctx, object, at, p, check)
}

// getAdmitted is get by a caller that holds a connection. It repeats what may
// succeed: an unavailable store until ctx ends, damaged bytes a few times.
func (r *Reader) getAdmitted(ctx context.Context, key string, at int64, p []byte, check func([]byte) error) error {
	full := format.ObjectKey(r.o.Cluster, key)
	for attempt, damaged := 0, 0; ; attempt++ {
		err := r.attempt(ctx, full, at, p)
		if err == nil {
			if err = check(p); err == nil {
				r.count.gets.Add(1)
				r.count.getBytes.Add(int64(len(p)))
				return nil
			}
		}
		r.count.failures.Add(1)
		switch {
		case ctx.Err() != nil:
			return r.fail(key, at, p, errors.Join(context.Cause(ctx), err))
		case errors.Is(err, format.ErrCorrupt) || errors.Is(err, object.ErrCorrupt):
			if damaged++; damaged == corruptAttempts {
				return r.fail(key, at, p, err)
			}
		case !errors.Is(err, object.ErrUnavailable):
			return r.fail(key, at, p, err)
		}
		if !r.wait(ctx, attempt) {
			return r.fail(key, at, p, errors.Join(context.Cause(ctx), err))
		}
	}
}

func (r *Reader) fail(key string, at int64, p []byte, err error) error {
	return &ObjectError{Key: format.ObjectKey(r.o.Cluster, key), At: at, Bytes: len(p), Err: err}
}

func (r *Reader) attempt(ctx context.Context, full string, at int64, p []byte) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.AttemptTimeout)
	defer cancel()
	n, err := r.store.GetRange(ctx, full, at, p)
	if errors.Is(err, object.ErrRange) || err == nil && n < len(p) {
		return fmt.Errorf("expected %d bytes, found %d: the object is shorter than its row says: %w", len(p), n, format.ErrCorrupt)
	}
	return err
}

func isUnavailable(err error) bool { return errors.Is(err, object.ErrUnavailable) }
