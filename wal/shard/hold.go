package shard

import (
	"context"
	"fmt"
	"time"
)

// HeldSnapshot is a replica's newest snapshot file, which stays until Release.
type HeldSnapshot struct {
	// File is its name in the log's directory; shard.OpenSnapshot reads it.
	File        string
	Index, Term uint64
	release     func()
}

// Release gives the file back; call it once.
func (h *HeldSnapshot) Release() { h.release() }

// holdSnapshot keeps the newest snapshot's file, if it is of index or later.
func (c *Core) holdSnapshot(index uint64) *HeldSnapshot {
	if c.failed != nil || c.file == "" || c.st.snap.GetIndex() < index {
		return nil
	}
	file := c.file
	c.files.add(file, 1)
	return &HeldSnapshot{
		File: file, Index: c.st.snap.GetIndex(), Term: c.st.snap.GetTerm(),
		release: func() { c.files.add(file, -1) },
	}
}

// holdEvery is the pause between looks at whether a snapshot is written.
const holdEvery = 100 * time.Millisecond

// HoldSnapshot asks for a snapshot of all that is applied now, waits until it
// is written, and holds its file.
func (r *Runner) HoldSnapshot(ctx context.Context) (*HeldSnapshot, error) {
	tick := time.NewTicker(holdEvery)
	defer tick.Stop()
	var wanted uint64
	for {
		got := make(chan *HeldSnapshot, 1)
		if !r.post(func() {
			if wanted == 0 {
				wanted = r.core.Applied()
			}
			h := r.core.holdSnapshot(wanted)
			if h == nil {
				r.core.RequestSnapshot()
				r.drain()
			}
			got <- h
		}) {
			return nil, ErrStopped
		}
		select {
		case h := <-got:
			if h != nil {
				return h, nil
			}
		case <-r.done:
			return nil, ErrStopped
		}
		select {
		case <-tick.C:
		case <-r.done:
			return nil, ErrStopped
		case <-ctx.Done():
			return nil, fmt.Errorf("shard %d: waiting for a snapshot of index %d: %w", r.c.Core.Shard, wanted, context.Cause(ctx))
		}
	}
}

// Held describes a snapshot file that somebody else keeps; Release does nothing.
func Held(file string, index, term uint64) *HeldSnapshot {
	return &HeldSnapshot{File: file, Index: index, Term: term, release: func() {}}
}
