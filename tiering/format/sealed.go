package format

import "thermocline/metadata"

// Key names a partition across shards.
type Key struct {
	Topic     metadata.TopicID
	Partition int32
}

// TailRef is one batch of the tail: where its bytes are in an entry's payload.
type TailRef struct {
	Index, Term  uint64
	Pos, Len     uint32
	First, Last  int64
	MaxTimestamp int64
	Epoch        int32
}

// SealedPartition is one partition's share of a sealed range, in offset order.
type SealedPartition struct {
	Ref     PartitionRef
	Key     Key
	Topic   string
	Batches []TailRef
}

// SealRange is a range of the shard's log, whole entries, ready to become a
// segment. Partitions are ordered by topic name, partition.
type SealRange struct {
	First, Last uint64 // Raft indexes, inclusive
	Bytes       int64
	Partitions  []SealedPartition
}
