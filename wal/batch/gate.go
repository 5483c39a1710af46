package batch

import (
	"fmt"
	"math"
)

// Gate validates a batch from a client. It returns b itself, or a new batch
// when something under the CRC had to change: log append time, a max timestamp
// that is not the maximum, another codec. Base offset and leader epoch are not
// looked at; the leader stamps them later. b is only read.
func Gate(b Batch, o *GateOptions) (Batch, Info, error) {
	maxBytes := limitOr(o.MaxBytes, MaxBatchBytes)
	if err := checkLength(b); err != nil {
		return nil, Info{}, err
	}
	if len(b) > maxBytes {
		return nil, Info{}, fmt.Errorf("batch: expected at most %d bytes, found %d: %w", maxBytes, len(b), ErrTooLarge)
	}
	if err := b.CheckCRC(); err != nil {
		return nil, Info{}, err
	}
	if err := checkHeader(b); err != nil {
		return nil, Info{}, err
	}
	c := checker{o: o, first: b.FirstTimestamp(), max: -1}
	if err := c.walk(b); err != nil {
		return nil, Info{}, err
	}
	info := Info{Records: b.Count(), MaxTimestamp: c.max, Uncompressed: c.uncompressed}
	if o.LogAppendTime {
		info.MaxTimestamp = o.NowUnixMilli
	}
	out, err := rewrite(b, o, info, maxBytes)
	if err != nil {
		return nil, Info{}, err
	}
	return out, info, nil
}

func limitOr(n, limit int) int {
	if n <= 0 || n > limit {
		return limit
	}
	return n
}

// checkHeader checks what the header alone can tell.
func checkHeader(b Batch) error {
	attr := b.Attributes()
	switch {
	case !b.Codec().valid():
		return fmt.Errorf("batch codec: expected at most %d, found %d: %w", Zstd, b.Codec(), ErrCodec)
	case b.IsControl():
		return fmt.Errorf("batch attributes: control batches come from brokers only, found %#04x: %w", uint16(attr), ErrInvalidRecord)
	case attr&^attrClient != 0:
		return fmt.Errorf("batch attributes: expected bits %#04x at most, found %#04x: %w", attrClient, uint16(attr), ErrInvalidRecord)
	case b.TimestampType() != CreateTime:
		return fmt.Errorf("batch timestamp type: expected create time, found log append time: %w", ErrTimestamp)
	}
	count := b.Count()
	if count < 1 {
		return fmt.Errorf("batch record count: expected at least 1, found %d: %w", count, ErrInvalidRecord)
	}
	if int64(b.LastOffsetDelta()) != int64(count)-1 {
		return fmt.Errorf("batch last offset delta: expected %d, found %d: %w", count-1, b.LastOffsetDelta(), ErrInvalidRecord)
	}
	if b.Codec() == None && len(b.Records()) < count*minRecord {
		return fmt.Errorf("batch record count: %d records need at least %d bytes, found %d: %w", count, count*minRecord, len(b.Records()), ErrInvalidRecord)
	}
	return checkProducer(b)
}

// checkProducer checks the shape of the idempotent fields. Without a producer
// id, epoch and sequence mean nothing and may be anything: KafkaJS sends 0 and
// 0 there, sarama -1 and 0.
func checkProducer(b Batch) error {
	switch pid := b.ProducerID(); {
	case pid == NoProducer && b.IsTransactional():
		return fmt.Errorf("batch producer id: a transactional batch needs one, found none: %w", ErrInvalidRecord)
	case pid == NoProducer:
		return nil
	case pid < 0:
		return fmt.Errorf("batch producer id: expected at least -1, found %d: %w", pid, ErrInvalidRecord)
	case b.ProducerEpoch() < 0:
		return fmt.Errorf("batch producer epoch: expected at least 0, found %d: %w", b.ProducerEpoch(), ErrInvalidRecord)
	case b.BaseSequence() < 0:
		return fmt.Errorf("batch base sequence: expected at least 0, found %d: %w", b.BaseSequence(), ErrInvalidRecord)
	}
	return nil
}

// checker walks a batch's records and collects what they say.
type checker struct {
	o            *GateOptions
	first, max   int64
	uncompressed int
	// lo and hi are the allowed timestamps; -1 is allowed besides (no timestamp).
	lo, hi int64
	bad    *RecordsError
}

func (c *checker) walk(b Batch) error {
	c.bounds()
	var w window
	if err := w.open(b, limitOr(c.o.MaxUncompressed, MaxUncompressedBytes)); err != nil {
		return err
	}
	defer w.close()
	for i, n := 0, b.Count(); i < n; i++ {
		var f fields
		if bad := nextRecord(&w, &f); bad != "" {
			if w.err != nil {
				return w.err
			}
			// What follows cannot be found, so this is the only one to name.
			return c.fatal(i, bad)
		}
		if int(f.offsetDelta) != i {
			return c.fatal(i, flaw("offset delta is "+itoa(int(f.offsetDelta))))
		}
		c.content(i, &f)
	}
	if !w.atEnd() {
		if w.err != nil {
			return w.err
		}
		return fmt.Errorf("batch records: bytes after the last of %d: %w", b.Count(), ErrInvalidRecord)
	}
	c.uncompressed = w.total
	if c.bad != nil {
		return c.bad
	}
	return nil
}

// nextRecord reads one record at the window's front and passes it.
func nextRecord(w *window, f *fields) flaw {
	if w.have() < maxVarint32 {
		w.need(maxVarint32)
	}
	var length int32
	u, n := varintShort(w.buf[:w.w], w.r)
	if n != 0 {
		length = int32(u>>1) ^ -int32(u&1)
	} else {
		length, n = varint32(w.buf[w.r:w.w])
	}
	switch {
	case n < 0:
		return flawVarint
	case n == 0:
		return flawEnds
	case length < 0:
		return flawLength
	}
	w.r += n
	if int(length) > len(w.buf) {
		l := longRecord{w: w, left: int(length)}
		return l.scan(f)
	}
	if w.have() < int(length) {
		if w.need(int(length)); w.have() < int(length) {
			return flawEnds
		}
	}
	bad := scanRecord(w.buf[w.r:w.r+int(length)], f)
	w.r += int(length)
	return bad
}

// bounds sets lo and hi from the options, saturating.
func (c *checker) bounds() {
	c.lo, c.hi = -1, math.MaxInt64
	now := c.o.NowUnixMilli
	if now == 0 || c.o.LogAppendTime {
		return
	}
	if d := c.o.TimestampBeforeMax; d >= 0 {
		c.lo = max(-1, now-min(d, now+1))
	}
	if d := c.o.TimestampAfterMax; d >= 0 && d < math.MaxInt64-now {
		c.hi = now + d
	}
}

// content checks what a sound record says.
func (c *checker) content(i int, f *fields) {
	ts, ok := addTimestamp(c.first, f.timestampDelta)
	switch {
	case c.o.LogAppendTime: // the producer's times are about to be overruled
	case !ok:
		c.add(ErrTimestamp, i, "timestamp is negative or out of range")
	case ts != -1 && (ts < c.lo || ts > c.hi):
		c.add(ErrTimestamp, i, fmt.Sprintf("timestamp %d is not within %d and %d", ts, c.lo, c.hi))
	case ts > c.max:
		c.max = ts
	}
	if f.nullKey && c.o.KeysRequired {
		c.add(ErrInvalidRecord, i, "a compacted topic needs a key")
	}
}

// add notes a bad record. A bad timestamp among them names the whole, as in Kafka.
func (c *checker) add(kind error, i int, message string) {
	if c.bad == nil {
		c.bad = &RecordsError{Kind: kind}
	}
	if kind == ErrTimestamp {
		c.bad.Kind = ErrTimestamp
	}
	if n := len(c.bad.Records); n < MaxRecordErrors && (n == 0 || c.bad.Records[n-1].Index != i) {
		c.bad.Records = append(c.bad.Records, RecordError{Index: i, Message: message})
	}
}

// fatal ends the walk at record i.
func (c *checker) fatal(i int, f flaw) error {
	c.add(ErrInvalidRecord, i, string(f))
	return c.bad
}
