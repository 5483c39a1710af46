// Package shard replicates one shard's state machine: a Raft log whose entries
// are descriptors, with the payloads beside it.
//
// Core is a pure step machine around raft.RawNode; Runner drives it with a
// clock, the broker's log and the transport. Raft sees 56 bytes per entry,
// since it clones every proposal and reads entries synchronously; payloads live
// in a table by reference count, which is the tail cache, and travel in WAL
// records and peer frames next to their descriptors.
//
// # Entry descriptor, version 1 (little-endian)
//
//	 0  u8   version = 1
//	 1  u8   kind (Kind)
//	 2  u16  0
//	 4  u32  payload length
//	 8  u64  proposer's term
//	16  u64  proposer's high watermark, a Raft index
//	24  u64  payload id: replica
//	32  u64  payload id: sequence
//	40  i64  proposer's clock, unix milliseconds
//	48  u32  CRC32C of the payload
//	52  u32  CRC32C of bytes 0..51
//
// A configuration change's entry is raftpb.ConfChangeV2; its context is
// proposer's term u64, replica u64, sequence u64.
//
// # Snapshot file and stream, version 1
//
// A file is wal.WriteSnapshot's format; inside it a header, then the state to
// its end. A stream is the same header, the state in chunks, then entries.
//
//	 0  u32  magic "TCSN"
//	 4  u8   version = 1
//	 5  u8×3 0
//	 8  u32  shard
//	12  u32  raw entries that follow the state (streams)
//	16  u64  index
//	24  u64  term of index
//	32  u64  writer's high watermark
//	40  u64  trimmed: the raw entries are trimmed+1..index (streams)
//	48  u64  term of trimmed (streams)
//	56  u32  length n of the replica set
//	60  u32  0
//	64  n    replica set, raftpb.ConfState
//	64+n u32 CRC32C of everything before
//
// A stream's state comes in chunks: u32 length (1..65536), bytes, u32 CRC32C of the
// bytes; its end: u32 0, u64 total length, u32 CRC32C of the whole state.
// A stream goes on with its entries:
//
//	 0  u64  index
//	 8  u64  term
//	16  u8   raftpb entry type, then u8×3 0
//	20  u32  length d of the Raft data
//	24  u32  length p of the payload
//	28  u32  CRC32C of the payload
//	32  d    Raft data
//	32+d u32 CRC32C of everything before
//	36+d p   payload
//
// and ends with u32 "TCSE". To change a layout: raise the version, keep reading
// the old one, and add a golden file; a newer version is refused by name.
//
// # What is promised to whom
//
// A replica answers Raft (votes, append acknowledgements) only when the append
// that they rest on, and every earlier one of the shard, is durable. Waiters
// are answered by Core.ackBound, the one acknowledgement bound. Snapshots keep
// one order: file durable, pointer durable, trim; a received one is
// acknowledged when state, raw entries and pointer are durable together.
package shard
