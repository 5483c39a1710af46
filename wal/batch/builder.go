package batch

import "math"

// Producer is the identity of an idempotent producer.
type Producer struct {
	ID       int64
	Epoch    int16
	Sequence int32 // of the first record
}

// BuilderOptions describe a batch to build. The zero value is a plain batch at
// offset 0, uncompressed, of no producer.
type BuilderOptions struct {
	BaseOffset  int64
	LeaderEpoch int32
	Codec       Codec // CodecProducer means None
	Level       int   // zero: the codec's default
	// LogAppendTime sets the attribute; the batch's time is then the largest
	// timestamp that was added.
	LogAppendTime bool
	Producer      *Producer
	Transactional bool
	Control       bool
}

// Builder makes batches: for tests, for benches, and for the broker's own
// records (control markers). It is for one goroutine, and one batch at a time.
type Builder struct {
	o       BuilderOptions
	records []byte
	count   int32
	first   int64
	max     int64
}

// NewBuilder begins an empty batch.
func NewBuilder(o BuilderOptions) *Builder {
	return &Builder{o: o, max: -1}
}

// Add appends a record. A nil key or value is null; the bytes are copied.
func (bl *Builder) Add(timestamp int64, key, value []byte, headers ...Header) *Builder {
	if bl.count == 0 {
		bl.first = timestamp
	}
	bl.max = max(bl.max, timestamp)
	delta := timestamp - bl.first
	size := 1 + varintLen(delta) + varintLen(int64(bl.count)) + bytesLen(key) + bytesLen(value) + varintLen(int64(len(headers)))
	for _, h := range headers {
		size += varintLen(int64(len(h.Key))) + len(h.Key) + bytesLen(h.Value)
	}
	r := appendVarint(bl.records, int64(size))
	r = append(r, 0)
	r = appendVarint(r, delta)
	r = appendVarint(r, int64(bl.count))
	r = appendBytes(r, key)
	r = appendBytes(r, value)
	r = appendVarint(r, int64(len(headers)))
	for _, h := range headers {
		r = appendVarint(r, int64(len(h.Key)))
		r = append(r, h.Key...)
		r = appendBytes(r, h.Value)
	}
	bl.records = r
	bl.count++
	return bl
}

// Size is the batch's size if it were built now, without compression.
func (bl *Builder) Size() int { return HeaderLen + len(bl.records) }

// Len is the number of records added so far.
func (bl *Builder) Len() int { return int(bl.count) }

// Build returns the batch and leaves the builder empty, for another one with
// the same options. Without a record it returns nil. It panics on a codec that
// does not exist: the options are the program's, never input.
func (bl *Builder) Build() Batch {
	if bl.count == 0 {
		return nil
	}
	b := make(Batch, HeaderLen+len(bl.records))
	copy(b[HeaderLen:], bl.records)
	b[offMagic] = Magic
	b.Stamp(bl.o.BaseOffset, bl.o.LeaderEpoch)
	b.putI16(offAttributes, bl.attributes())
	b.putI32(offLastOffsetDelta, bl.count-1)
	b.putI64(offFirstTimestamp, bl.first)
	b.putI64(offMaxTimestamp, bl.max)
	p := Producer{ID: NoProducer, Epoch: -1, Sequence: -1}
	if bl.o.Producer != nil {
		p = *bl.o.Producer
	}
	b.putI64(offProducerID, p.ID)
	b.putI16(offProducerEpoch, p.Epoch)
	b.putI32(offBaseSequence, p.Sequence)
	b.putI32(offCount, bl.count)
	b.seal()
	if c := bl.o.Codec; c != None && c != CodecProducer {
		var err error
		if b, err = recompress(b, c, bl.o.Level, len(bl.records), math.MaxInt32); err != nil {
			panic("batch: build: " + err.Error())
		}
	}
	bl.records, bl.count, bl.max = bl.records[:0], 0, -1
	return b
}

func (bl *Builder) attributes() int16 {
	var a int16
	if bl.o.LogAppendTime {
		a |= attrLogAppendTime
	}
	if bl.o.Transactional {
		a |= attrTransactional
	}
	if bl.o.Control {
		a |= attrControl
	}
	return a
}

func bytesLen(p []byte) int {
	if p == nil {
		return 1 // -1 is one byte
	}
	return varintLen(int64(len(p))) + len(p)
}

func appendBytes(dst, p []byte) []byte {
	if p == nil {
		return appendVarint(dst, -1)
	}
	return append(appendVarint(dst, int64(len(p))), p...)
}
