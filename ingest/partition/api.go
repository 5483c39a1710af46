package partition

import (
	"errors"

	"thermocline/metadata"
	"thermocline/tiering/format"
	"thermocline/wal/batch"
)

// Why a command is refused. ingest maps each to one Kafka error.
var (
	// ErrNotNextOffset: a batch was stamped for an offset or leader epoch that
	// is not the next; the log has gone on without it (NOT_LEADER_OR_FOLLOWER,
	// the client sends it again).
	ErrNotNextOffset = errors.New("partition: batch does not continue the log")
	// ErrInvalidCommand: a command breaks a limit or is of an unknown type.
	ErrInvalidCommand = errors.New("partition: invalid command")
	// ErrCorrupt: a payload or an image cannot be parsed.
	ErrCorrupt = errors.New("partition: corrupt")
	// ErrNewerVersion: a payload or an image was written by a newer binary.
	ErrNewerVersion       = errors.New("partition: written by a newer version")
	ErrUnknownPartition   = errors.New("partition: not in this shard")
	ErrPartitionExists    = errors.New("partition: exists already")
	ErrOutOfOrderSequence = errors.New("partition: out of order sequence number")
	ErrFencedProducer     = errors.New("partition: producer epoch is older than the current one")
	ErrUnknownProducer    = errors.New("partition: producer id unknown or expired")
	ErrDuplicateSequence  = errors.New("partition: duplicate older than the remembered batches")
	ErrOffsetOutOfRange   = errors.New("partition: offset out of range")
	ErrNotNextSegment     = errors.New("partition: tiering commit does not start at the tiered end")
	ErrStaleRows          = errors.New("partition: replacement names rows that are not current")
)

// Key names a partition across shards.
type Key = format.Key

// Commands: what Prepare understands (as pointers).
type (
	// Produce appends one batch that has passed the gate. Result: ProduceResult.
	Produce struct {
		Key   Key
		Batch batch.Batch // read only; stamped in the payload's copy
		Info  batch.Info
	}
	// CreatePartition adds a partition. Result: nil.
	CreatePartition struct {
		Key  Key
		Name string // topic name
		// EpochBase is added to the Raft term to form leader epochs.
		EpochBase int32
		Config    map[string]string
	}
	// DeletePartition drops a partition and its tail. Result: nil.
	DeletePartition struct{ Key Key }
	// SetConfig replaces a topic's config in this shard. Result: nil.
	SetConfig struct {
		Topic  metadata.TopicID
		Config map[string]string
		// Revision orders replacements; an older one is ignored.
		Revision int64
	}
	// DeleteRecords moves the log start up to Offset (-1: HW). Result: int64, the new log start.
	DeleteRecords struct {
		Key    Key
		Offset int64
	}
	// AllocateProducerIDs takes a block of Count ids. Result: int64, the first.
	AllocateProducerIDs struct{ Count int64 }
	// TierSegment commits an uploaded and verified segment. Row.ID is assigned
	// by apply. Result: format.SegmentID.
	TierSegment struct{ Row format.SegmentRow }
	// CommitRun adds a directory run that replaces Replaces (run ids), and the
	// fence object that goes with it. Result: nil.
	CommitRun struct {
		Run      format.RunRow
		Replaces []uint32
		Fence    format.FenceRow
	}
)

// ProduceResult is what a produce waiter gets.
type ProduceResult struct {
	BaseOffset int64
	LogStart   int64
	Epoch      int32
}

// View is one consistent look at a partition: everything that answers a bound
// uses one View.
type View struct {
	Key       Key
	Topic     string
	Ref       format.PartitionRef
	Config    map[string]string // immutable
	LogStart  int64
	TieredEnd int64 // first offset that is not in the store (LogStart if nothing is)
	HW        int64
	LSO       int64
	LogEnd    int64
	Epoch     int32 // current leader epoch
	// LatestKnown is false while a new leader may not yet tell the log's end.
	LatestKnown         bool
	Manifest            *format.Manifest
	MaxTimestampTail    int64 // -1 when the tail is empty
	HotBytes, ColdBytes int64
}

// What a sealed range consists of; tiering builds segments from it.
type (
	// TailRef is one batch of the tail: where its bytes are in an entry's payload.
	TailRef = format.TailRef
	// SealedPartition is one partition's share of a sealed range.
	SealedPartition = format.SealedPartition
	// SealRange is a range of the shard's log, whole entries, ready to become a segment.
	SealRange = format.SealRange
)
