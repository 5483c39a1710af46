package index

import (
	"container/list"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// cacheKey names a part of an object: a block by its number, a partition index
// by its partition.
type cacheKey struct {
	object string
	kind   uint8
	number uint32
}

// cache keeps decoded index parts, least recently used out first. Equal loads
// run once; a load goes on when its caller leaves.
type cache struct {
	r     *Reader
	loads *semaphore.Weighted

	mu      sync.Mutex
	max     int64
	used    int64
	entries map[cacheKey]*cacheEntry
	lru     list.List // of *cacheEntry, loaded ones, newest first
}

type cacheEntry struct {
	key   cacheKey
	done  chan struct{}
	value any
	err   error
	size  int64
	elem  *list.Element
}

func newCache(r *Reader, max int64) *cache {
	return &cache{r: r, max: max, entries: map[cacheKey]*cacheEntry{}, loads: semaphore.NewWeighted(indexLoads)}
}

func (c *cache) held() int64 { c.mu.Lock(); defer c.mu.Unlock(); return c.used }

// peek returns what is there already.
func (c *cache) peek(key cacheKey) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil && e.elem != nil {
		c.lru.MoveToFront(e.elem)
		return e.value, true
	}
	return nil, false
}

// get returns the value of key, loading it if need be. The load runs under the
// reader's own context, within LoadTimeout.
func (c *cache) get(ctx context.Context, key cacheKey, load func(context.Context) (any, int64, error)) (any, error) {
	if v, ok := c.peek(key); ok {
		c.r.count.indexHits.Add(1)
		return v, nil
	}
	e, err := c.begin(ctx, key, load)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.done:
		return e.value, e.err
	case <-ctx.Done():
		return nil, fmt.Errorf("index: %s: %w", key.object, context.Cause(ctx))
	}
}

// begin returns the entry of a load that is under way, or starts one.
func (c *cache) begin(ctx context.Context, key cacheKey, load func(context.Context) (any, int64, error)) (*cacheEntry, error) {
	c.mu.Lock()
	e := c.entries[key]
	c.mu.Unlock()
	if e != nil {
		return e, nil
	}
	// Admission before the entry: a goroutine exists only for an admitted load.
	if err := c.loads.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("index: %s: %w", key.object, context.Cause(ctx))
	}
	c.mu.Lock()
	if e = c.entries[key]; e != nil {
		c.mu.Unlock()
		c.loads.Release(1)
		return e, nil
	}
	e = &cacheEntry{key: key, done: make(chan struct{})}
	c.entries[key] = e
	c.mu.Unlock()
	c.r.count.indexMisses.Add(1)
	if !c.r.spawn(func() { defer c.loads.Release(1); c.fill(e, load) }) {
		c.loads.Release(1)
		c.finish(e, nil, 0, ErrClosed)
	}
	return e, nil
}

func (c *cache) fill(e *cacheEntry, load func(context.Context) (any, int64, error)) {
	ctx, cancel := context.WithTimeout(c.r.life, c.r.o.LoadTimeout)
	defer cancel()
	v, size, err := load(ctx)
	c.finish(e, v, size, err)
}

func (c *cache) finish(e *cacheEntry, v any, size int64, err error) {
	c.mu.Lock()
	e.value, e.size, e.err = v, size, err
	if err != nil {
		delete(c.entries, e.key) // the next caller tries again
	} else {
		e.elem = c.lru.PushFront(e)
		c.used += size
		c.evict()
	}
	c.mu.Unlock()
	close(e.done)
}

// put adds a value that needed no load.
func (c *cache) put(key cacheKey, v any, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[key] != nil {
		return
	}
	e := &cacheEntry{key: key, done: make(chan struct{}), value: v, size: size}
	close(e.done)
	c.entries[key] = e
	e.elem = c.lru.PushFront(e)
	c.used += size
	c.evict()
}

// evict drops the oldest, but never the newest: one larger than the bound is
// still of use to whoever loaded it.
func (c *cache) evict() {
	for c.used > c.max && c.lru.Len() > 1 {
		e := c.lru.Remove(c.lru.Back()).(*cacheEntry)
		e.elem = nil
		c.used -= e.size
		delete(c.entries, e.key)
	}
}

// wait sleeps for a backoff with jitter; false when ctx has ended.
func (r *Reader) wait(ctx context.Context, attempt int) bool {
	d := r.o.BackoffMax
	if attempt < 16 {
		d = min(d, r.o.BackoffMin<<attempt)
	}
	t := time.NewTimer(d/2 + time.Duration(rand.Int64N(int64(d/2)+1)))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
