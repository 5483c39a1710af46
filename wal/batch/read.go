package batch

import "fmt"

// Header is one record header. A nil Value is null.
type Header struct {
	Key   []byte
	Value []byte
}

// Record is one record of a batch. Its slices are valid until the callback
// that got it returns. A nil Key or Value is null.
type Record struct {
	OffsetDelta int32
	// Timestamp is the record's own, or the batch's append time; -1: none.
	Timestamp int64
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Iterate calls fn for each record until it returns false. It holds one record
// at a time, whatever the batch decompresses to, up to MaxUncompressedBytes.
// Offset deltas must rise but need not be dense, since a log cleaner may have
// removed records. The CRC is not checked here.
func Iterate(b Batch, fn func(Record) bool) error {
	if err := checkLength(b); err != nil {
		return err
	}
	var w window
	if err := w.open(b, MaxUncompressedBytes); err != nil {
		return err
	}
	defer w.close()
	it := iterator{w: &w, b: b, last: -1}
	n := b.Count()
	if n < 0 {
		return fmt.Errorf("batch record count: expected at least 0, found %d: %w", n, ErrCorrupt)
	}
	for i := range n {
		if bad := it.next(); bad != "" {
			if w.err != nil {
				return w.err
			}
			return fmt.Errorf("record %d of %d: %s: %w", i, n, bad, ErrCorrupt)
		}
		if !fn(it.rec) {
			return nil
		}
	}
	if !w.atEnd() {
		if w.err != nil {
			return w.err
		}
		return fmt.Errorf("batch records: bytes after the last of %d: %w", n, ErrCorrupt)
	}
	return nil
}

type iterator struct {
	w    *window
	b    Batch
	rec  Record
	last int32 // offset delta of the record before
}

// next reads one record whole; header slices are used again for the next.
func (it *iterator) next() flaw {
	w := it.w
	w.need(maxVarint32)
	length, n := varint32(w.buf[w.r:w.w])
	switch {
	case n < 0:
		return flawVarint
	case n == 0:
		return flawEnds
	case length < minRecord-1:
		return flawLength
	}
	w.r += n
	if !w.whole(int(length)) {
		return flawEnds
	}
	p := w.buf[w.r : w.r+int(length)]
	w.r += int(length)
	var f fields
	if bad := scanRecord(p, &f); bad != "" {
		return bad
	}
	if f.offsetDelta <= it.last || f.offsetDelta > it.b.LastOffsetDelta() {
		return flaw("offset delta " + itoa(int(f.offsetDelta)) + " after " + itoa(int(it.last)))
	}
	it.last = f.offsetDelta
	ts, ok := addTimestamp(it.b.FirstTimestamp(), f.timestampDelta)
	if it.b.TimestampType() == LogAppendTime {
		ts, ok = it.b.MaxTimestamp(), true
	}
	if !ok {
		return "timestamp is negative or out of range"
	}
	it.take(p, &f, ts)
	return ""
}

// take cuts the parts out of a body that scanRecord has found sound.
func (it *iterator) take(p []byte, f *fields, ts int64) {
	p = p[1+varintSize(p[1:]):]
	p = p[varintSize(p):]
	r := Record{OffsetDelta: f.offsetDelta, Timestamp: ts, Headers: it.rec.Headers[:0]}
	r.Key, p = takeBytes(p)
	r.Value, p = takeBytes(p)
	count, n := varint32(p)
	p = p[n:]
	for range count {
		var h Header
		h.Key, p = takeBytes(p)
		h.Value, p = takeBytes(p)
		r.Headers = append(r.Headers, h)
	}
	it.rec = r
}

func varintSize(p []byte) int {
	n := 1
	for p[n-1] >= 0x80 {
		n++
	}
	return n
}

func takeBytes(p []byte) (taken, rest []byte) {
	length, n := varint32(p)
	p = p[n:]
	if length < 0 {
		return nil, p
	}
	return p[:length:length], p[length:]
}

// walkTimes calls fn with each record's offset and timestamp, holding nothing.
func walkTimes(b Batch, fn func(offset, timestamp int64) bool) error {
	if err := checkLength(b); err != nil {
		return err
	}
	var w window
	if err := w.open(b, MaxUncompressedBytes); err != nil {
		return err
	}
	defer w.close()
	stamped := b.TimestampType() == LogAppendTime
	for i, n := 0, b.Count(); i < n; i++ {
		var f fields
		if bad := nextRecord(&w, &f); bad != "" {
			if w.err != nil {
				return w.err
			}
			return fmt.Errorf("record %d of %d: %s: %w", i, n, bad, ErrCorrupt)
		}
		ts, ok := addTimestamp(b.FirstTimestamp(), f.timestampDelta)
		if stamped {
			ts, ok = b.MaxTimestamp(), true
		}
		if !ok || f.offsetDelta < 0 || f.offsetDelta > b.LastOffsetDelta() {
			return fmt.Errorf("record %d of %d: timestamp or offset out of range: %w", i, n, ErrCorrupt)
		}
		if !fn(b.BaseOffset()+int64(f.offsetDelta), ts) {
			return nil
		}
	}
	return nil
}

// FindTime finds the first record whose timestamp is ts or later; ok is false
// when there is none. Control batches are never found: their times are not the
// users'.
func FindTime(b Batch, ts int64) (offset, timestamp int64, ok bool, err error) {
	if b.IsControl() || b.MaxTimestamp() < ts {
		return 0, 0, false, nil
	}
	err = walkTimes(b, func(o, t int64) bool {
		if t >= ts {
			offset, timestamp, ok = o, t, true
		}
		return !ok
	})
	if err != nil {
		return 0, 0, false, err
	}
	return offset, timestamp, ok, nil
}

// FindMaxTime finds the first record with the largest timestamp. Both are -1
// for control batches and for batches without records or timestamps.
func FindMaxTime(b Batch) (offset, timestamp int64, err error) {
	offset, timestamp = -1, -1
	if b.IsControl() {
		return offset, timestamp, nil
	}
	err = walkTimes(b, func(o, t int64) bool {
		if t > timestamp {
			offset, timestamp = o, t
		}
		return timestamp < b.MaxTimestamp() // nothing later can be larger
	})
	if err != nil {
		return -1, -1, err
	}
	return offset, timestamp, nil
}
