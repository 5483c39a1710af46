package index

import (
	"context"
	"errors"
	"fmt"
	"sort"

	"thermocline/tiering/format"
	"thermocline/wal/batch"
)

// OffsetForTime finds the first record, by offset, that has a timestamp of ts
// or later, at from or above. Markers are never found.
func (r *Reader) OffsetForTime(ctx context.Context, p Partition, from, ts int64) (Found, bool, error) {
	from = max(from, p.LogStart)
	if from >= p.TieredEnd {
		return Found{}, false, nil
	}
	c, err := r.seek(ctx, &p, from, ts)
	if err != nil {
		return Found{}, false, err
	}
	for {
		x, ok, err := c.next(ctx)
		if err != nil || !ok || x.FirstOffset >= p.TieredEnd {
			return Found{}, false, err
		}
		var f Found
		found := false
		err = r.each(ctx, &x, from, func(b batch.Batch) (more bool, err error) {
			if b.IsControl() || b.MaxTimestamp() < ts {
				return true, nil
			}
			f.Epoch = b.LeaderEpoch()
			f.Offset, f.Timestamp, found, err = findFrom(b, from, ts)
			return !found, err
		})
		if err != nil || found {
			return f, found && err == nil, err
		}
	}
}

// findFrom is batch.FindTime for records at or above from.
func findFrom(b batch.Batch, from, ts int64) (offset, timestamp int64, ok bool, err error) {
	if b.BaseOffset() >= from {
		return batch.FindTime(b, ts)
	}
	err = batch.Iterate(b, func(rec batch.Record) bool {
		o := b.BaseOffset() + int64(rec.OffsetDelta)
		if o >= from && rec.Timestamp >= ts {
			offset, timestamp, ok = o, rec.Timestamp, true
		}
		return !ok
	})
	return offset, timestamp, ok && err == nil, err
}

// MaxTimestamp finds the first record with the largest timestamp at from or above.
func (r *Reader) MaxTimestamp(ctx context.Context, p Partition, from int64) (Found, bool, error) {
	from = max(from, p.LogStart)
	best := Found{Offset: -1, Timestamp: -1}
	if from >= p.TieredEnd {
		return best, false, nil
	}
	bound, err := r.maxBound(ctx, &p, from)
	if err != nil {
		return best, false, err
	}
	// Extents below the first that begins above from may hold their maximum
	// below it, so bound may be too high by their part: go down until a record
	// has the bound. Only the extent that holds from can be wrong, so this ends
	// after two steps.
	for bound.ts >= 0 {
		c, err := r.seek(ctx, &p, bound.offset, bound.ts)
		if err != nil {
			return best, false, err
		}
		x, ok, err := c.next(ctx)
		if err != nil || !ok {
			return best, false, err
		}
		if best, err = r.maxIn(ctx, &x, from); err != nil {
			return best, false, err
		}
		if best.Timestamp >= bound.second {
			return best, best.Timestamp >= 0, nil
		}
		bound = maxima{offset: bound.secondOffset, ts: bound.second, second: -1}
	}
	return best, best.Timestamp >= 0, nil
}

// maxima are the largest own maximum of any extent and where it is; when that
// is the extent that holds from, also the largest of the others.
type maxima struct {
	offset, ts           int64
	secondOffset, second int64
}

func (r *Reader) maxBound(ctx context.Context, p *Partition, from int64) (maxima, error) {
	m := maxima{ts: -1, second: -1}
	c, err := r.seek(ctx, p, from, noMinTime)
	if err != nil {
		return m, err
	}
	// The extent that holds from, exactly one.
	x, ok, err := c.next(ctx)
	if err != nil || !ok {
		return m, err
	}
	m.offset, m.ts = x.FirstOffset, x.MaxTimestamp
	err = c.eachMaximum(ctx, func(offset, ts int64) {
		if offset < p.TieredEnd && ts > m.second {
			m.secondOffset, m.second = offset, ts
		}
	})
	if m.second > m.ts {
		m = maxima{offset: m.secondOffset, ts: m.second, second: -1}
	}
	return m, err
}

// eachMaximum calls fn with the own maximum of each extent that follows, or,
// where a fence tells it, of a page's worth of them.
func (c *cursor) eachMaximum(ctx context.Context, fn func(offset, ts int64)) error {
	for {
		for c.inRuns && (c.page == nil || c.i == c.hi) {
			if c.page == nil {
				f := &c.block.Fences[c.fi]
				fn(f.FirstOffset, f.MaxTimestamp)
			}
			if err := c.nextFence(ctx); err != nil {
				return err
			}
		}
		x, ok, err := c.nextLoaded()
		if err != nil || !ok {
			return err
		}
		fn(x.FirstOffset, x.MaxTimestamp)
	}
}

// nextLoaded is next without going to another page.
func (c *cursor) nextLoaded() (piece, bool, error) {
	for !c.inRuns && c.d < len(c.dirs) && c.i == c.hi {
		if err := c.enterLevelZero(c.d + 1); err != nil {
			return piece{}, false, err
		}
	}
	if !c.inRuns && c.d >= len(c.dirs) {
		return piece{}, false, nil
	}
	x, err := c.current()
	c.i++
	return x, err == nil, err
}

// maxIn finds the first record with the largest timestamp of a piece, at from or above.
func (r *Reader) maxIn(ctx context.Context, x *piece, from int64) (Found, error) {
	best := Found{Offset: -1, Timestamp: -1}
	err := r.each(ctx, x, from, func(b batch.Batch) (bool, error) {
		if b.IsControl() || b.MaxTimestamp() <= best.Timestamp {
			return true, nil
		}
		err := batch.Iterate(b, func(rec batch.Record) bool {
			if o := b.BaseOffset() + int64(rec.OffsetDelta); o >= from && rec.Timestamp > best.Timestamp {
				best = Found{Offset: o, Timestamp: rec.Timestamp, Epoch: b.LeaderEpoch()}
			}
			return best.Timestamp < b.MaxTimestamp()
		})
		return true, err
	})
	return best, err
}

// EpochEnd answers OffsetForLeaderEpoch from what is in the store: the largest
// epoch not above the asked one, and the offset at which the next one begins
// (TieredEnd when none does in the store). ok is false when all epochs of
// records at LogStart or above are larger.
func (r *Reader) EpochEnd(ctx context.Context, p Partition, epoch int32) (found int32, end int64, ok bool, err error) {
	end = p.TieredEnd
	if p.LogStart >= p.TieredEnd {
		return -1, end, false, nil
	}
	dirs, err := r.levelZero(ctx, p.Manifest)
	if err != nil {
		return -1, end, false, err
	}
	for d := len(dirs) - 1; d >= 0; d-- {
		if found, ok = floorEpoch(&dirs[d].Directory, p.Ref, epoch, &end); ok {
			return found, end, end > p.LogStart, nil
		}
	}
	f, next, err := r.floorEpochFence(ctx, &p, epoch)
	if err != nil {
		return -1, end, false, err
	}
	if next != nil {
		end = min(end, next.FirstOffset)
	}
	if f == nil {
		return -1, end, false, nil
	}
	pg, err := r.page(ctx, p.Manifest, f)
	if err != nil {
		return -1, end, false, err
	}
	found, ok = floorEpoch(&pg.Directory, p.Ref, epoch, &end)
	return found, end, ok && end > p.LogStart, nil
}

// floorEpoch finds the last extent of a partition whose epoch is not above the
// asked one, and lowers end to where the next one begins.
func floorEpoch(d *format.Directory, ref format.PartitionRef, epoch int32, end *int64) (int32, bool) {
	lo, hi := d.Of(ref)
	n := sort.Search(hi-lo, func(i int) bool { return d.Epoch(lo+i) > epoch })
	if n < hi-lo {
		*end = d.Extents[lo+n].FirstOffset
	}
	if n == 0 {
		return -1, false
	}
	return d.Epoch(lo + n - 1), true
}

// floorEpochFence finds the partition's last fence whose first epoch is not
// above the asked one, and the fence that follows it. Epochs rise with offsets,
// so a partition of many fence blocks is searched by halves.
func (r *Reader) floorEpochFence(ctx context.Context, p *Partition, epoch int32) (f, next *format.Fence, err error) {
	blocks := p.Manifest.Fence.Blocks
	// Blocks [lo, hi) begin with the partition; the one before may end with it.
	lo := sort.Search(len(blocks), func(i int) bool { return blocks[i].Partition >= p.Ref })
	hi := lo + sort.Search(len(blocks)-lo, func(i int) bool { return blocks[lo+i].Partition > p.Ref })
	above := sort.Search(hi-lo, func(i int) bool {
		if err != nil {
			return true
		}
		var b *format.FenceBlock
		if b, err = r.fenceBlock(ctx, p.Manifest, lo+i); err != nil {
			return true
		}
		return b.Fences[0].Epoch > epoch
	})
	if err != nil {
		return nil, nil, err
	}
	if n := lo + above; n < hi {
		b, err := r.fenceBlock(ctx, p.Manifest, n)
		if err != nil {
			return nil, nil, err
		}
		next = &b.Fences[0]
	}
	if lo+above == 0 {
		return nil, next, nil
	}
	b, err := r.fenceBlock(ctx, p.Manifest, lo+above-1)
	if err != nil {
		return nil, nil, err
	}
	from, to := b.Of(p.Ref)
	n := sort.Search(to-from, func(i int) bool { return b.Fences[from+i].Epoch > epoch })
	if n < to-from {
		next = &b.Fences[from+n]
	}
	if n == 0 {
		return nil, next, nil
	}
	return &b.Fences[from+n-1], next, nil
}

// Aborted lists the aborted transactions that overlap the offsets [from, to),
// from the indexes of the segments that hold them.
func (r *Reader) Aborted(ctx context.Context, p Partition, from, to int64) ([]format.AbortedTransaction, error) {
	c, err := r.seek(ctx, &p, from, noMinTime)
	if err != nil {
		return nil, err
	}
	var out []format.AbortedTransaction
	for last := ""; ; {
		x, ok, err := c.next(ctx)
		if err != nil || !ok || x.FirstOffset >= min(to, p.TieredEnd) {
			return out, err
		}
		if x.key == last {
			continue
		}
		last = x.key
		idx, err := r.partitionIndex(ctx, x.seg, p.Ref)
		if err != nil {
			return nil, fmt.Errorf("index: aborted transactions: %w", err)
		}
		for _, a := range idx.Aborted {
			if a.FirstOffset < to && a.LastOffset >= from {
				out = append(out, a)
			}
		}
	}
}

// Retriable tells whether a later try of the same call may succeed.
func Retriable(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || isUnavailable(err)
}
