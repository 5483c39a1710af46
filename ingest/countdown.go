package ingest

import "sync/atomic"

// countdown calls done once, when one has been called as often as there were parts.
type countdown struct {
	left atomic.Int64
	done func()
}

// newCountdown calls done at once when there are no parts.
func newCountdown(parts int, done func()) *countdown {
	c := &countdown{done: done}
	c.left.Store(int64(parts))
	if parts == 0 {
		done()
	}
	return c
}

func (c *countdown) one() {
	if c.left.Add(-1) == 0 {
		c.done()
	}
}
