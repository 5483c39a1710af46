package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"thermocline/index"
)

const (
	// sayColdFailure is how often the failed reads of one object are logged: its
	// readers ask again and again.
	sayColdFailure = time.Minute
	// maxColdFailures bounds the objects that are named within that time. When a
	// store is away, all of them fail, and a few tell enough.
	maxColdFailures = 32
)

// coldFailures decides which failed reads of the store are logged.
type coldFailures struct {
	mu   sync.Mutex
	said map[string]time.Time // by object
	held int                  // not logged since the last one that was
}

// admit tells whether a failure of what is named may be logged now, and how many
// were not since the last one.
func (c *coldFailures) admit(name string, now time.Time) (held int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := c.said[name]
	if !known && len(c.said) >= maxColdFailures {
		for n, at := range c.said {
			if now.Sub(at) >= sayColdFailure {
				delete(c.said, n)
			}
		}
	}
	if known && now.Sub(last) < sayColdFailure || !known && len(c.said) >= maxColdFailures {
		c.held++
		return 0, false
	}
	if c.said == nil {
		c.said = map[string]time.Time{}
	}
	c.said[name] = now
	held, c.held = c.held, 0
	return held, true
}

// coldFailed says which records cannot be read from the store, and why: clients
// show no more than a code, for as long as it lasts.
func (s *Server) coldFailed(t *target, offset int64, err error) {
	if s.ctx.Err() != nil || errors.Is(err, index.ErrClosed) || errors.Is(err, index.ErrOffset) {
		return // the broker stops, or the log's start has moved on
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v: %w", coldWait, err)
	}
	topic, partition, object := t.row.Name, t.key.Partition, ""
	if named := (*index.ObjectError)(nil); errors.As(err, &named) {
		object = named.Key
	}
	name := object
	if name == "" {
		name = fmt.Sprintf("%s-%d", topic, partition)
	}
	held, ok := s.coldFailures.admit(name, s.now())
	if !ok {
		return
	}
	args := []any{"topic", topic, "partition", partition, "offset", offset, "object", object, "error", err}
	if held > 0 {
		args = append(args, "suppressed", held)
	}
	s.log.Warn("records cannot be read from the object store: their readers are told KAFKA_STORAGE_ERROR, and ask again", args...)
}
