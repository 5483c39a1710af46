package tiering

import (
	"cmp"
	"fmt"
	"slices"

	"thermocline/tiering/format"
	"thermocline/wal/batch"
)

// readAhead is how much of a spool is read at once when it is walked.
const readAhead = 1 << 20

// placement says where a batch of a payload goes in the segment.
type placement struct {
	index, term uint64
	pos, len    uint32
	first       int64
	at          int64
}

// place lays the range's batches out, partition after partition, and returns
// them in the order of the log, so that each payload is read once.
func place(r *format.SealRange) (list []placement, end int64) {
	n := 0
	for i := range r.Partitions {
		n += len(r.Partitions[i].Batches)
	}
	list = make([]placement, 0, n)
	end = format.SegmentHeaderLen
	for i := range r.Partitions {
		for _, b := range r.Partitions[i].Batches {
			list = append(list, placement{index: b.Index, term: b.Term, pos: b.Pos, len: b.Len, first: b.First, at: end})
			end += int64(b.Len)
		}
	}
	slices.SortFunc(list, func(a, b placement) int {
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.pos, b.pos))
	})
	return list, end
}

// copyPayloads puts every batch at its place.
func copyPayloads(src Source, list []placement, s *spool) error {
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].index == list[0].index {
			n++
		}
		if err := copyPayload(src, list[:n], s); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

func copyPayload(src Source, list []placement, s *spool) error {
	p, err := src.Payload(list[0].index, list[0].term)
	if err != nil {
		return fmt.Errorf("tiering: payload of entry %d, term %d: %w", list[0].index, list[0].term, err)
	}
	defer p.Release()
	data := p.Bytes()
	for _, l := range list {
		if uint64(l.pos)+uint64(l.len) > uint64(len(data)) {
			return fmt.Errorf("tiering: entry %d: expected a batch of %d bytes at %d, the payload has %d", l.index, l.len, l.pos, len(data))
		}
		if _, err := s.WriteAt(data[l.pos:l.pos+l.len], l.at); err != nil {
			return fmt.Errorf("tiering: spool: %w", err)
		}
	}
	return nil
}

// buildSegment makes the segment of a sealed range. Two passes: the first puts
// the batches at their places in the order of the log, since reading the
// payloads partition by partition would read each of them many times; the
// second walks the result front to back, checks every batch, and writes the
// indexes behind.
func buildSegment(src Source, r *format.SealRange, info format.SegmentInfo, s *spool) (format.SegmentRow, error) {
	list, end := place(r)
	if err := copyPayloads(src, list, s); err != nil {
		return format.SegmentRow{}, err
	}
	out := &appender{s: s, from: format.SegmentHeaderLen, skip: end}
	w, err := format.NewWriter(out, info)
	if err != nil {
		return format.SegmentRow{}, err
	}
	win := window{s: s}
	at := int64(format.SegmentHeaderLen)
	for i := range r.Partitions {
		p := &r.Partitions[i]
		if len(p.Batches) == 0 {
			continue
		}
		if err := w.BeginPartition(p.Ref, p.Key, p.Topic); err != nil {
			return format.SegmentRow{}, err
		}
		for _, ref := range p.Batches {
			b, err := win.batch(at, &ref)
			if err != nil {
				return format.SegmentRow{}, fmt.Errorf("tiering: %s/%d: %w", p.Topic, p.Key.Partition, err)
			}
			if err := w.Add(b); err != nil {
				return format.SegmentRow{}, err
			}
			at += int64(ref.Len)
		}
	}
	return w.Finish()
}

// window reads a spool front to back.
type window struct {
	s     *spool
	buf   []byte
	start int64
}

// batch returns the batch that lies at a position, valid until the next call,
// after comparing it with what the shard's state says about it.
func (w *window) batch(at int64, ref *format.TailRef) (batch.Batch, error) {
	n := int64(ref.Len)
	if at < w.start || at+n > w.start+int64(len(w.buf)) {
		size := min(max(n, readAhead), w.s.Size()-at)
		if int64(cap(w.buf)) < size {
			w.buf = make([]byte, size)
		}
		w.buf, w.start = w.buf[:size], at
		if got, err := w.s.ReadAt(w.buf, at); got < len(w.buf) {
			return nil, fmt.Errorf("spool: expected %d bytes at %d, found %d: %w", len(w.buf), at, got, err)
		}
	}
	b, rest, err := batch.Next(w.buf[at-w.start : at-w.start+n])
	switch {
	case err != nil:
		return nil, fmt.Errorf("entry %d, position %d: %w", ref.Index, ref.Pos, err)
	case len(rest) != 0 || b.BaseOffset() != ref.First || b.LastOffset() != ref.Last || b.LeaderEpoch() != ref.Epoch:
		return nil, fmt.Errorf("entry %d, position %d: expected offsets %d to %d of epoch %d in %d bytes, found %d to %d of %d in %d: %w", ref.Index, ref.Pos,
			ref.First, ref.Last, ref.Epoch, ref.Len, b.BaseOffset(), b.LastOffset(), b.LeaderEpoch(), len(b), batch.ErrCorrupt)
	}
	return b, nil
}
