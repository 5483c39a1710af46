package format

// Row types: what shard state keeps of the store, and what tiering commits
// propose. Everything here is plain data with an encoding in encode.go.

// SegmentID numbers a shard's segments in commit order, from 1. Apply assigns
// it; it is never reused.
type SegmentID uint32

// PartitionRef is a partition's number inside its shard, assigned by apply and
// never reused there.
type PartitionRef uint32

// SegmentRow is one segment object: the sealed range of a shard's log that it
// holds, and what a reader needs to open and verify it.
type SegmentRow struct {
	ID  SegmentID
	Key string // object key below the cluster's prefix
	// FirstIndex and LastIndex bound the Raft indexes inside, both inclusive.
	FirstIndex, LastIndex uint64
	Size                  int64
	CRC32C                uint32
	// FooterLen is the length of the trailing part that holds the directory and
	// the footer: one ranged GET of the last FooterLen bytes opens the segment.
	FooterLen    uint32
	MaxTimestamp int64
	Batches      uint32
	Records      uint64
}

// RunRow is one directory run: checksummed pages, sorted by (partition,
// offset), over the segments First..Last.
type RunRow struct {
	ID          uint32
	Level       uint8
	Key         string
	First, Last SegmentID
	Pages       uint32
	Size        int64
	CRC32C      uint32
}

// FenceRow is the shard's fence object: one 32-byte fence per (partition, run
// page), in blocks whose first keys the row keeps.
type FenceRow struct {
	Key    string
	Size   int64
	CRC32C uint32
	Blocks []FenceKey
}

// FenceKey is the first (partition, offset) of a fence block.
type FenceKey struct {
	Partition PartitionRef
	Offset    int64
}

// Manifest is one shard's view of the store. It is immutable: apply replaces
// it whole. Segments holds every row that a run or a reader still needs, by
// ID ascending; those with ID > Runs' last are level 0.
type Manifest struct {
	Shard    uint32
	Segments []SegmentRow
	Runs     []RunRow
	Fence    FenceRow
	// TieredIndex is the last Raft index that is in the store.
	TieredIndex uint64
}
