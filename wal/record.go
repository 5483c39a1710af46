package wal

// ShardID names a shard inside the log.
type ShardID uint32

// Position is a byte position in the log as a whole: 64 bits, never repeated,
// also not by recycled files.
type Position uint64

// Entry is one Raft entry as the log stores it.
type Entry struct {
	Index, Term uint64
	// Type is raftpb's entry type (0 normal, 1 and 2 configuration changes).
	Type uint8
	// Descriptor is Raft's entry data: at most 64 bytes for a normal entry, a
	// marshalled change (up to 64 KiB) for a configuration change.
	Descriptor []byte
	// Payload is nil for entries without one. Its CRC32C stands in the
	// descriptor; the record's own checksum covers it by PayloadCRC.
	Payload    []byte
	PayloadCRC uint32
}

// HardState is Raft's durable triple of one shard replica.
type HardState struct {
	Term, Vote, Commit uint64
}

// SnapshotPointer names the newest durable snapshot file of a shard replica.
type SnapshotPointer struct {
	Index, Term uint64
	// File is the snapshot's base name in the log's directory.
	File string
	// Trimmed is the last index that the log no longer needs to hold: the log
	// may begin below the snapshot (Trimmed <= Index), since snapshots do not
	// carry payloads that are not yet in the object store.
	Trimmed, TrimmedTerm uint64
}

// Append is one shard's unit of work for the log. Everything in it becomes
// durable together, before Done is called with nil.
type Append struct {
	Shard   ShardID
	Entries []Entry // contiguous; an index at or below the last one replaces the suffix
	Hard    *HardState
	// Snapshot's file must be durable before the Append is submitted.
	Snapshot *SnapshotPointer
	// Staged entries do not continue the log (they come with a snapshot
	// stream): they count only once a Snapshot whose Index ends their run follows.
	// The first append of a stream begins the run anew wherever its index is not
	// the next one; an append with neither entries nor snapshot drops the run.
	Staged bool
	// Remove drops the shard and everything that the log holds of it. Nothing else
	// may be in the append.
	Remove bool
	// NoSync marks an append without entries, snapshot or change of term or
	// vote: it is written with the next group, and its Done waits for every
	// earlier append of the shard only.
	NoSync bool
	// Done is called exactly once, from the log's goroutine; it must not block.
	Done func(error)
}

// EntryMeta is an entry without its payload: what recovery hands to Raft's
// in-memory storage.
type EntryMeta struct {
	Index, Term uint64
	Type        uint8
	Descriptor  []byte
	PayloadLen  uint32
	PayloadCRC  uint32
}

// RecoveredShard is what the log holds of one shard after a start.
type RecoveredShard struct {
	Hard     HardState
	Snapshot SnapshotPointer // zero when there is none
	Entries  []EntryMeta     // contiguous, from Snapshot.Trimmed+1
}
