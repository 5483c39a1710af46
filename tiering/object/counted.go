package object

import (
	"context"
	"sync/atomic"
	"time"
)

// Op is a kind of operation, as an index into Stats.
type Op int

// The operations of a Store.
const (
	OpPut Op = iota
	OpGet
	OpHead
	OpList
	OpDelete
	opCount
)

// Ops lists them in the order of Stats, for exporters.
var Ops = [opCount]Op{OpPut, OpGet, OpHead, OpList, OpDelete}

// String names the operation as metrics do.
func (o Op) String() string {
	return [...]string{"put", "get", "head", "list", "delete"}[o]
}

// OpStats counts one kind of operation. Failures are errors other than the
// answers that Expected names; Nanos is the time spent, whatever the outcome.
type OpStats struct{ Calls, Failures, Bytes, Nanos int64 }

// Stats is a snapshot of a Counted store, indexed by Op. Bytes are those of
// bodies for OpPut and OpGet, keys for OpList and OpDelete.
type Stats [opCount]OpStats

// Counted is a Store that counts what goes through it.
type Counted struct {
	inner Store
	ops   [opCount]struct{ calls, failures, bytes, nanos atomic.Int64 }
}

// NewCounted wraps s.
func NewCounted(s Store) *Counted { return &Counted{inner: s} }

// Stats returns the counters as they are now.
func (c *Counted) Stats() Stats {
	var s Stats
	for i := range c.ops {
		o := &c.ops[i]
		s[i] = OpStats{Calls: o.calls.Load(), Failures: o.failures.Load(), Bytes: o.bytes.Load(), Nanos: o.nanos.Load()}
	}
	return s
}

func (c *Counted) note(op Op, start time.Time, bytes int64, err error) {
	o := &c.ops[op]
	o.calls.Add(1)
	o.nanos.Add(int64(time.Since(start)))
	o.bytes.Add(bytes)
	if err != nil && !Expected(err) {
		o.failures.Add(1)
	}
}

// Put implements Store.
func (c *Counted) Put(ctx context.Context, key string, body Body, o PutOptions) error {
	start := time.Now()
	err := c.inner.Put(ctx, key, body, o)
	n := int64(0)
	if err == nil {
		n = body.Size()
	}
	c.note(OpPut, start, n, err)
	return err
}

// GetRange implements Store.
func (c *Counted) GetRange(ctx context.Context, key string, offset int64, p []byte) (int, error) {
	start := time.Now()
	n, err := c.inner.GetRange(ctx, key, offset, p)
	c.note(OpGet, start, int64(n), err)
	return n, err
}

// Head implements Store.
func (c *Counted) Head(ctx context.Context, key string) (Info, error) {
	start := time.Now()
	info, err := c.inner.Head(ctx, key)
	c.note(OpHead, start, 0, err)
	return info, err
}

// List implements Store.
func (c *Counted) List(ctx context.Context, prefix, after string, fn func(Info) bool) error {
	start, n := time.Now(), int64(0)
	err := c.inner.List(ctx, prefix, after, func(i Info) bool { n++; return fn(i) })
	c.note(OpList, start, n, err)
	return err
}

// Delete implements Store.
func (c *Counted) Delete(ctx context.Context, keys []string) (map[string]error, error) {
	start := time.Now()
	failed, err := c.inner.Delete(ctx, keys)
	if err == nil && len(failed) > 0 {
		c.ops[OpDelete].failures.Add(1)
	}
	c.note(OpDelete, start, int64(len(keys)-len(failed)), err)
	return failed, err
}

// String implements Store.
func (c *Counted) String() string { return c.inner.String() }

// Unwrap returns the store inside.
func (c *Counted) Unwrap() Store { return c.inner }

// Close closes the store inside.
func (c *Counted) Close() error { return Close(c.inner) }
