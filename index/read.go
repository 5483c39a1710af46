package index

import (
	"context"
	"fmt"

	"thermocline/tiering/format"
	"thermocline/wal/batch"
)

// Read returns whole batches from the one that holds the offset on. It waits
// for the first of them only; what else is there already is added, up to
// MaxBytes. When ctx ends first, the GET goes on, and a repeated Read finds it.
func (r *Reader) Read(ctx context.Context, req ReadRequest) (*Data, error) {
	p := &req.Partition
	if req.Offset < p.LogStart || req.Offset >= p.TieredEnd {
		return nil, fmt.Errorf("index: partition %d: expected an offset in [%d, %d), found %d: %w", p.Ref, p.LogStart, p.TieredEnd, req.Offset, ErrOffset)
	}
	if req.UpTo <= 0 || req.UpTo > p.TieredEnd {
		req.UpTo = p.TieredEnd
	}
	window := r.streams.window(&req)
	c, err := r.seek(ctx, p, req.Offset, noMinTime)
	if err != nil {
		return nil, err
	}
	t := taker{r: r, req: &req, left: req.MaxBytes, data: &Data{NextOffset: req.Offset}}
	err = t.run(ctx, c, window)
	if err != nil && t.data.Bytes == 0 {
		t.release()
		return nil, err
	}
	t.data.release = t.release
	r.count.reads.Add(1)
	r.count.delivered.Add(int64(t.data.Bytes))
	if t.data.Bytes > 0 {
		budget := r.o.DataBytes * aheadShareNum / aheadShareDen
		if st := r.streams.advance(&req, t.data.NextOffset, min(r.o.ReadAheadMax, budget), budget); st != nil {
			r.lookAhead(st)
		}
	}
	return t.data, nil
}

// taker collects an answer.
type taker struct {
	r    *Reader
	req  *ReadRequest
	left int
	data *Data
	pins []pin
	full bool
}

func (t *taker) release() {
	for _, p := range t.pins {
		p.c.unpin(p.s)
	}
	t.pins = nil
}

// run waits for the first piece that has something for the request; after that
// it takes only what costs no GET, neither of data nor of the index.
func (t *taker) run(ctx context.Context, c *cursor, window int64) error {
	for !t.full && (t.data.Bytes == 0 || t.left > 0 && c.cheap()) {
		x, ok, err := c.next(ctx)
		if err != nil {
			return err
		}
		if !ok || x.FirstOffset >= t.req.UpTo {
			if !ok && t.data.Bytes == 0 {
				t.data.NextOffset = t.req.Partition.TieredEnd
			}
			return nil
		}
		if t.data.Bytes > 0 {
			p, ok := t.r.data.pinLoaded(&x)
			if !ok {
				return nil
			}
			t.take(p)
			continue
		}
		p, err := t.first(ctx, c, x, window)
		if err != nil {
			return err
		}
		t.take(p)
	}
	return nil
}

// first gets a piece that nothing is known of, and for a sequential reader a
// GET's worth of what follows: read-ahead has not come so far.
func (t *taker) first(ctx context.Context, c *cursor, x piece, window int64) (pin, error) {
	group, known := []piece{x}, t.r.data.known(&x)
	if window > 0 && !known {
		look := *c // a copy looks, since what follows is taken piece by piece
		group = t.r.group(ctx, &look, x, window)
	}
	p, err := t.r.data.pin(ctx, group)
	if err != nil && damaged(err) && ctx.Err() == nil && (known || len(group) > 1) {
		// The damage may lie in what was fetched together with this piece.
		return t.r.data.pin(ctx, group[:1])
	}
	return p, err
}

// group extends a piece by those that lie right behind it and are not known. An
// error ends it: the reader meets it when it comes there.
func (r *Reader) group(ctx context.Context, c *cursor, x piece, window int64) []piece {
	group, bytes := []piece{x}, int64(x.Length)
	for size := getBytes(window); bytes < size; {
		if !c.cheap() {
			break
		}
		next, ok, err := c.next(ctx)
		if err != nil || !ok || !follows(group, &next) || bytes+int64(next.Length) > size || r.data.known(&next) {
			return group
		}
		group = append(group, next)
		bytes += int64(next.Length)
	}
	return group
}

// take adds what the request wants of a piece.
func (t *taker) take(p pin) {
	b, e := p.bytes(), &p.s.pieces[p.n]
	if e.FirstOffset >= t.req.Offset && p.end() <= t.req.UpTo && len(b) <= t.left {
		t.add(p, b, p.end(), true)
		return
	}
	from, to, next := t.cut(b)
	t.full = to < len(b)
	if from == to {
		t.r.data.unpin(p.s)
		return
	}
	t.add(p, b[from:to], next, to == len(b))
}

func (t *taker) add(p pin, b []byte, next int64, whole bool) {
	t.pins = append(t.pins, p)
	t.r.data.read(p, whole)
	t.data.Pieces = append(t.data.Pieces, b)
	t.data.Bytes += len(b)
	t.left -= len(b)
	t.data.NextOffset = next
}

// cut finds the batches of verified bytes that the request wants.
func (t *taker) cut(b []byte) (from, to int, next int64) {
	rest, left := b, t.left
	for len(rest) > 0 {
		one, after, err := batch.Next(rest)
		if err != nil {
			break // verified bytes parse
		}
		switch {
		case one.LastOffset() < t.req.Offset:
			from += len(one)
		case one.BaseOffset() >= t.req.UpTo:
			return from, max(from, to), next
		case len(one) > left && !(t.req.MinOne && t.data.Bytes == 0 && to <= from):
			return from, max(from, to), next
		default:
			left -= len(one)
			to = len(b) - len(after)
			next = one.LastOffset() + 1
		}
		rest = after
	}
	return from, max(from, to), next
}

// each calls fn with every batch of a piece that ends at or above from, until
// it returns false.
func (r *Reader) each(ctx context.Context, x *piece, from int64, fn func(batch.Batch) (bool, error)) error {
	p, err := r.data.pin(ctx, []piece{*x})
	if err != nil {
		return err
	}
	defer r.data.unpin(p.s)
	r.data.read(p, false)
	for rest := p.bytes(); len(rest) > 0; {
		b, after, err := batch.Next(rest)
		if err != nil {
			return r.fail(x.key, int64(x.Position), p.bytes(), fmt.Errorf("%v: %w", err, format.ErrCorrupt))
		}
		if b.LastOffset() >= from {
			if more, err := fn(b); !more || err != nil {
				return err
			}
		}
		rest = after
	}
	return nil
}
