package index

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"thermocline/tiering/format"
	"thermocline/tiering/object"
)

// Kinds of index parts, for cache keys.
const (
	kindDirectory uint8 = iota
	kindFence
	kindPage
	kindPartition
)

// directory is a level-0 segment's, as it is kept.
type directory struct {
	format.Directory
	ref format.SegmentRef
	key string
	// unreadable is why the object cannot be read, for good: it is missing or
	// damaged. Such a directory is never kept.
	unreadable error
}

func (r *Reader) parseDirectory(row *format.SegmentRow, tail []byte) (*directory, int64, error) {
	seg, err := format.ParseSegment(tail, row.Size)
	if err != nil {
		return nil, 0, err
	}
	ref, err := row.Ref()
	if err != nil {
		return nil, 0, err
	}
	d := &directory{Directory: seg.Directory, ref: ref, key: row.Key}
	for i := range d.Extents {
		d.Extents[i].Segment = row.ID
	}
	return d, int64(len(d.Extents))*format.ExtentLen + int64(len(d.Epochs))*8 + 256, nil
}

// levelZero returns the directories of the segments that are in no run, oldest first.
func (r *Reader) levelZero(ctx context.Context, m *format.Manifest) ([]*directory, error) {
	dirs, err := r.readable(ctx, m)
	for _, d := range dirs {
		if err == nil {
			err = d.unreadable
		}
	}
	return dirs, err
}

// readable is levelZero that goes on without a missing or damaged object, and
// says in its place what is wrong: what lies before it can still be read.
func (r *Reader) readable(ctx context.Context, m *format.Manifest) ([]*directory, error) {
	rows := m.LevelZero()
	out := make([]*directory, len(rows))
	missing := 0
	for i := range rows {
		if v, ok := r.dirs.peek(cacheKey{object: rows[i].Key}); ok {
			out[i] = v.(*directory)
		} else {
			missing++
		}
	}
	if missing == 0 {
		return out, nil
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.o.Connections)
	for i := range rows {
		if out[i] != nil {
			continue
		}
		g.Go(func() error {
			d, err := r.directory(gctx, &rows[i])
			if lost(err) {
				d, err = &directory{key: rows[i].Key, unreadable: err}, nil
			}
			out[i] = d
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return out, nil
}

// lost tells whether an object is missing or damaged, which no later try mends.
func lost(err error) bool {
	return !Retriable(err) && (errors.Is(err, object.ErrNotFound) || damaged(err))
}

func damaged(err error) bool {
	return errors.Is(err, format.ErrCorrupt) || errors.Is(err, object.ErrCorrupt)
}

func (r *Reader) directory(ctx context.Context, row *format.SegmentRow) (*directory, error) {
	v, err := r.dirs.get(ctx, cacheKey{object: row.Key}, func(ctx context.Context) (any, int64, error) {
		var d *directory
		var size int64
		tail := make([]byte, row.FooterLen)
		err := r.get(ctx, row.Key, row.Size-int64(row.FooterLen), tail, func(p []byte) (err error) {
			d, size, err = r.parseDirectory(row, p)
			return err
		})
		return d, size, err
	})
	if err != nil {
		return nil, err
	}
	return v.(*directory), nil
}

// fenceBlock returns one block of the manifest's fence object.
func (r *Reader) fenceBlock(ctx context.Context, m *format.Manifest, n int) (*format.FenceBlock, error) {
	v, err := r.blocks.get(ctx, cacheKey{m.Fence.Key, kindFence, uint32(n)}, func(ctx context.Context) (any, int64, error) {
		var b *format.FenceBlock
		err := r.get(ctx, m.Fence.Key, int64(n)*format.PageLen, make([]byte, format.PageLen), func(p []byte) (err error) {
			if b, err = format.ParseFenceBlock(p); err == nil && (b.Shard != m.Shard || int(b.Number) != n) {
				err = fmt.Errorf("expected fence block %d of shard %d, found %d of %d: %w", n, m.Shard, b.Number, b.Shard, format.ErrCorrupt)
			}
			return err
		})
		return b, format.PageLen, err
	})
	if err != nil {
		return nil, err
	}
	return v.(*format.FenceBlock), nil
}

// page returns the page that a fence names.
func (r *Reader) page(ctx context.Context, m *format.Manifest, f *format.Fence) (*format.Page, error) {
	run, ok := m.Run(f.Run)
	if !ok {
		return nil, fmt.Errorf("index: %s: a fence names run %d, which the manifest does not have: %w", m.Fence.Key, f.Run, format.ErrCorrupt)
	}
	v, err := r.blocks.get(ctx, cacheKey{run.Key, kindPage, f.Page}, func(ctx context.Context) (any, int64, error) {
		var pg *format.Page
		err := r.get(ctx, run.Key, int64(f.Page)*format.PageLen, make([]byte, format.PageLen), func(p []byte) (err error) {
			if pg, err = format.ParsePage(p); err == nil && (pg.Run != f.Run || pg.Number != f.Page) {
				err = fmt.Errorf("expected page %d of run %d, found %d of %d: %w", f.Page, f.Run, pg.Number, pg.Run, format.ErrCorrupt)
			}
			return err
		})
		return pg, format.PageLen + format.PageLen/2, err
	})
	if err != nil {
		return nil, err
	}
	return v.(*format.Page), nil
}

// partitionIndex returns what a segment holds about a partition: two GETs when cold.
func (r *Reader) partitionIndex(ctx context.Context, seg format.SegmentRef, ref format.PartitionRef) (*format.PartitionIndex, error) {
	key := seg.Name.Key()
	v, err := r.blocks.get(ctx, cacheKey{key, kindPartition, uint32(ref)}, func(ctx context.Context) (any, int64, error) {
		var s *format.Segment
		err := r.get(ctx, key, seg.Size-int64(seg.FooterLen), make([]byte, seg.FooterLen), func(p []byte) (err error) {
			s, err = format.ParseSegment(p, seg.Size)
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		at, n, ok := s.Index(ref)
		if !ok {
			return nil, 0, r.fail(key, seg.Size, nil, fmt.Errorf("no index of partition %d: %w", ref, format.ErrCorrupt))
		}
		var x *format.PartitionIndex
		err = r.get(ctx, key, at, make([]byte, n), func(p []byte) (err error) {
			x, err = format.ParsePartitionIndex(p)
			return err
		})
		return x, int64(n) + 256, err
	})
	if err != nil {
		return nil, err
	}
	return v.(*format.PartitionIndex), nil
}
