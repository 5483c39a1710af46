package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"strconv"
)

// Where the fields of the header lie; see the package comment.
const (
	offBaseOffset      = 0
	offLength          = 8
	offLeaderEpoch     = 12
	offMagic           = 16
	offCRC             = 17
	offAttributes      = 21
	offLastOffsetDelta = 23
	offFirstTimestamp  = 27
	offMaxTimestamp    = 35
	offProducerID      = 43
	offProducerEpoch   = 51
	offBaseSequence    = 53
	offCount           = 57

	// HeaderLen is the size of a batch's header.
	HeaderLen = 61
	// lengthBase is what the length field does not count.
	lengthBase = offLeaderEpoch
)

// Attribute bits.
const (
	attrCodecMask     = 0x07
	attrLogAppendTime = 1 << 3
	attrTransactional = 1 << 4
	attrControl       = 1 << 5
	attrDeleteHorizon = 1 << 6
	// attrClient are the bits that a client may set.
	attrClient = attrCodecMask | attrLogAppendTime | attrTransactional
)

// Magic is the only format version that this package reads and writes.
const Magic = 2

// NoProducer is the producer id of batches without idempotence.
const NoProducer = -1

// TimestampType says whose clock a batch's timestamps are.
type TimestampType int8

const (
	// CreateTime: the producer's, one for each record.
	CreateTime TimestampType = iota
	// LogAppendTime: the broker's, one for the whole batch.
	LogAppendTime
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Next splits the first batch off buf by its length field. It checks length
// and magic, and nothing else. A partial batch gives ErrTruncated, also when
// buf is empty; the rest is then buf.
func Next(buf []byte) (b Batch, rest []byte, err error) {
	if len(buf) < offMagic+1 {
		return nil, buf, fmt.Errorf("batch header: %d bytes: %w", len(buf), ErrTruncated)
	}
	// Old formats keep length and magic at the same places, so that they are
	// told by name and not by their nonsense of a length.
	if m := buf[offMagic]; m != Magic {
		return nil, buf, fmt.Errorf("batch magic: expected %d, found %d: %w", Magic, int8(m), ErrMagic)
	}
	n := int64(int32(binary.BigEndian.Uint32(buf[offLength:])))
	if n < HeaderLen-lengthBase || n > MaxBatchBytes {
		return nil, buf, fmt.Errorf("batch length: expected %d to %d, found %d: %w", HeaderLen-lengthBase, MaxBatchBytes, n, ErrCorrupt)
	}
	total := int(n) + lengthBase
	if len(buf) < total {
		return nil, buf, fmt.Errorf("batch: expected %d bytes, found %d: %w", total, len(buf), ErrTruncated)
	}
	return Batch(buf[:total:total]), buf[total:], nil
}

// checkLength checks that b is one whole batch of v2, to the byte.
func checkLength(b []byte) error {
	one, rest, err := Next(b)
	if err != nil {
		return err
	}
	if len(rest) != 0 {
		return fmt.Errorf("batch: expected %d bytes, found %d: %w", len(one), len(b), ErrCorrupt)
	}
	return nil
}

func (b Batch) i64(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
func (b Batch) i32(at int) int32 { return int32(binary.BigEndian.Uint32(b[at:])) }
func (b Batch) i16(at int) int16 { return int16(binary.BigEndian.Uint16(b[at:])) }

func (b Batch) putI64(at int, v int64) { binary.BigEndian.PutUint64(b[at:], uint64(v)) }
func (b Batch) putI32(at int, v int32) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }
func (b Batch) putI16(at int, v int16) { binary.BigEndian.PutUint16(b[at:], uint16(v)) }

// BaseOffset is the offset of the first record (of what was the first, before compaction).
func (b Batch) BaseOffset() int64 { return b.i64(offBaseOffset) }

// LastOffset is BaseOffset plus LastOffsetDelta; the next batch begins after it.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) }

// LeaderEpoch is the epoch of the leader that stamped the batch.
func (b Batch) LeaderEpoch() int32 { return b.i32(offLeaderEpoch) }

// Magic is the format version.
func (b Batch) Magic() int8 { return int8(b[offMagic]) }

// CRC is the stored checksum.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[offCRC:]) }

// Attributes are the flag bits; see the package comment.
func (b Batch) Attributes() int16 { return b.i16(offAttributes) }

// Codec is the compression of the records.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & attrCodecMask) }

// IsTransactional tells whether the batch belongs to a transaction.
func (b Batch) IsTransactional() bool { return b.Attributes()&attrTransactional != 0 }

// IsControl tells whether the batch is a marker, which no consumer sees.
func (b Batch) IsControl() bool { return b.Attributes()&attrControl != 0 }

// TimestampType says whose clock the timestamps are.
func (b Batch) TimestampType() TimestampType {
	if b.Attributes()&attrLogAppendTime != 0 {
		return LogAppendTime
	}
	return CreateTime
}

// LastOffsetDelta is the distance of the last offset from BaseOffset.
func (b Batch) LastOffsetDelta() int32 { return b.i32(offLastOffsetDelta) }

// FirstTimestamp is what the records' timestamp deltas are relative to.
func (b Batch) FirstTimestamp() int64 { return b.i64(offFirstTimestamp) }

// MaxTimestamp is the largest timestamp of any record; -1 when none has one.
func (b Batch) MaxTimestamp() int64 { return b.i64(offMaxTimestamp) }

// ProducerID is NoProducer for batches without idempotence: then one may not
// look at ProducerEpoch and BaseSequence, where several clients send zeros.
func (b Batch) ProducerID() int64 { return b.i64(offProducerID) }

// ProducerEpoch fences older instances of the same producer.
func (b Batch) ProducerEpoch() int16 { return b.i16(offProducerEpoch) }

// BaseSequence is the producer's sequence number of the first record.
func (b Batch) BaseSequence() int32 { return b.i32(offBaseSequence) }

// LastSequence is the sequence number of the last record. Sequences wrap from
// the largest int32 to zero, as in Kafka.
func (b Batch) LastSequence() int32 {
	return int32((int64(b.BaseSequence()) + int64(b.LastOffsetDelta())) & math.MaxInt32)
}

// Count is the number of records that the header names.
func (b Batch) Count() int { return int(b.i32(offCount)) }

// Records is the records section: compressed as Codec says.
func (b Batch) Records() []byte { return b[HeaderLen:] }

// Stamp writes what the leader decides, in place. Both fields lie outside the CRC.
func (b Batch) Stamp(baseOffset int64, leaderEpoch int32) {
	b.putI64(offBaseOffset, baseOffset)
	b.putI32(offLeaderEpoch, leaderEpoch)
}

// CheckCRC compares the stored checksum with the bytes.
func (b Batch) CheckCRC() error {
	if found := b.computeCRC(); found != b.CRC() {
		return fmt.Errorf("batch crc: expected %08x, found %08x: %w", b.CRC(), found, ErrCorrupt)
	}
	return nil
}

func (b Batch) computeCRC() uint32 { return crc32.Checksum(b[offAttributes:], castagnoli) }

// seal writes length and CRC after the rest has been set.
func (b Batch) seal() {
	b.putI32(offLength, int32(len(b)-lengthBase))
	binary.BigEndian.PutUint32(b[offCRC:], b.computeCRC())
}

func itoa(n int) string { return strconv.Itoa(n) }
