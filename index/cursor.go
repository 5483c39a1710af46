package index

import (
	"context"
	"fmt"
	"sort"

	"thermocline/tiering/format"
)

// piece is one extent with what is needed to read it.
type piece struct {
	format.Extent
	epoch int32
	seg   format.SegmentRef
	key   string
}

// cursor walks a partition's extents in offset order: those in runs by fence
// and page, then those of level 0. After seek it stands on the extent that may
// hold the offset: the last that begins at or below it, else the first above.
type cursor struct {
	r *Reader
	m *format.Manifest
	p format.PartitionRef
	// minTime skips extents, and whole pages, whose own maximum is below it.
	minTime int64

	dirs []*directory

	// In the runs: fence fi of block number bn; page is loaded on demand.
	inRuns bool
	bn, fi int
	block  *format.FenceBlock
	page   *format.Page
	i, hi  int // extents of the page, or of dirs[d]
	// In level 0.
	d int

	// floor is the offset that seek got while the cursor has not moved: the
	// page's entry is then chosen by it.
	floor   int64
	atFloor bool
}

const noMinTime = -1 << 63

// seek places a cursor.
func (r *Reader) seek(ctx context.Context, p *Partition, offset, minTime int64) (*cursor, error) {
	c := &cursor{r: r, m: p.Manifest, p: p.Ref, minTime: minTime, floor: offset}
	var err error
	if c.dirs, err = r.readable(ctx, p.Manifest); err != nil {
		return nil, err
	}
	for d := len(c.dirs) - 1; d >= 0; d-- {
		if c.dirs[d].unreadable != nil {
			continue // if the offset is in there, the walk from the one before meets it
		}
		if i, below, ok := c.dirs[d].Floor(c.p, offset); ok && !below {
			c.d, c.i = d, i
			_, c.hi = c.dirs[d].Of(c.p)
			return c, nil
		}
	}
	if err := c.seekFence(ctx, offset); err != nil {
		return nil, err
	}
	if !c.inRuns {
		if err := c.enterLevelZero(0); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// seekFence places the cursor on the last fence at or below offset, else on
// the partition's first; inRuns stays false when the runs have none at all.
func (c *cursor) seekFence(ctx context.Context, offset int64) error {
	blocks := c.m.Fence.Blocks
	// The last block whose first key is at or below (partition, offset).
	n := sort.Search(len(blocks), func(i int) bool {
		b := &blocks[i]
		return b.Partition > c.p || b.Partition == c.p && b.Offset > offset
	})
	if n > 0 {
		b, err := c.r.fenceBlock(ctx, c.m, n-1)
		if err != nil {
			return err
		}
		lo, hi := b.Of(c.p)
		i := lo + sort.Search(hi-lo, func(k int) bool { return b.Fences[lo+k].FirstOffset > offset })
		switch {
		case i > lo:
			c.setFence(b, n-1, i-1)
			c.atFloor = true
			return nil
		case lo < hi:
			c.setFence(b, n-1, lo)
			return nil
		}
	}
	if n < len(blocks) && blocks[n].Partition == c.p {
		b, err := c.r.fenceBlock(ctx, c.m, n)
		if err != nil {
			return err
		}
		c.setFence(b, n, 0)
	}
	return nil
}

func (c *cursor) setFence(b *format.FenceBlock, bn, fi int) {
	c.inRuns, c.block, c.bn, c.fi, c.page = true, b, bn, fi, nil
}

// nextFence moves to the partition's next fence, or to level 0.
func (c *cursor) nextFence(ctx context.Context) error {
	c.atFloor, c.page = false, nil
	if c.fi++; c.fi < len(c.block.Fences) {
		if c.block.Fences[c.fi].Partition == c.p {
			return nil
		}
	} else if n := c.bn + 1; n < len(c.m.Fence.Blocks) && c.m.Fence.Blocks[n].Partition == c.p {
		b, err := c.r.fenceBlock(ctx, c.m, n)
		if err != nil {
			return err
		}
		c.setFence(b, n, 0)
		return nil
	}
	c.inRuns = false
	return c.enterLevelZero(0)
}

// enterLevelZero goes to the first directory from d on that has the partition.
// It does not pass one that cannot be read, which may have it.
func (c *cursor) enterLevelZero(d int) error {
	for c.d = d; c.d < len(c.dirs); c.d++ {
		if err := c.dirs[c.d].unreadable; err != nil {
			return err
		}
		if c.i, c.hi = c.dirs[c.d].Of(c.p); c.i < c.hi {
			return nil
		}
	}
	return nil
}

// next returns the extent under the cursor and moves behind it; false at the end.
func (c *cursor) next(ctx context.Context) (piece, bool, error) {
	for {
		if c.inRuns {
			if err := c.openPage(ctx); err != nil {
				return piece{}, false, err
			}
			if !c.inRuns {
				continue
			}
		} else if c.d >= len(c.dirs) {
			return piece{}, false, nil
		}
		if c.i == c.hi {
			var err error
			if c.inRuns {
				err = c.nextFence(ctx)
			} else {
				err = c.enterLevelZero(c.d + 1)
			}
			if err != nil {
				return piece{}, false, err
			}
			continue
		}
		x, err := c.current()
		c.i++
		if err != nil || x.MaxTimestamp >= c.minTime {
			return x, err == nil, err
		}
	}
}

// cheap tells whether the next step needs no GET.
func (c *cursor) cheap() bool {
	if !c.inRuns || c.page != nil && c.i < c.hi {
		return true
	}
	fi := c.fi
	if c.page != nil {
		fi++
	}
	if fi == len(c.block.Fences) {
		n := c.bn + 1
		return n == len(c.m.Fence.Blocks) || c.m.Fence.Blocks[n].Partition != c.p
	}
	f := &c.block.Fences[fi]
	if f.Partition != c.p {
		return true
	}
	run, ok := c.m.Run(f.Run)
	if !ok {
		return false
	}
	_, ok = c.r.blocks.peek(cacheKey{run.Key, kindPage, f.Page})
	return ok
}

// openPage loads the page of the current fence, passing those that minTime rules out.
func (c *cursor) openPage(ctx context.Context) error {
	for c.inRuns && c.page == nil {
		f := &c.block.Fences[c.fi]
		if f.MaxTimestamp < c.minTime {
			if err := c.nextFence(ctx); err != nil {
				return err
			}
			continue
		}
		pg, err := c.r.page(ctx, c.m, f)
		if err != nil {
			return err
		}
		c.i, c.hi = pg.Directory.Of(c.p)
		if c.i == c.hi || pg.Directory.Extents[c.i].FirstOffset != f.FirstOffset {
			return fmt.Errorf("index: run %d, page %d: expected partition %d from offset %d, as its fence says: %w", f.Run, f.Page, c.p, f.FirstOffset, format.ErrCorrupt)
		}
		if c.atFloor {
			c.i, _, _ = pg.Directory.Floor(c.p, c.floor)
		}
		c.page = pg
	}
	return nil
}

func (c *cursor) current() (piece, error) {
	if !c.inRuns {
		d := c.dirs[c.d]
		return piece{Extent: d.Extents[c.i], epoch: d.Epoch(c.i), seg: d.ref, key: d.key}, nil
	}
	e := c.page.Directory.Extents[c.i]
	seg, ok := c.page.Segment(e.Segment)
	if !ok {
		return piece{}, fmt.Errorf("index: run %d, page %d: segment %d is not named: %w", c.page.Run, c.page.Number, e.Segment, format.ErrCorrupt)
	}
	return piece{Extent: e, epoch: c.page.Directory.Epoch(c.i), seg: seg, key: seg.Name.Key()}, nil
}
