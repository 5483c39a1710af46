package transport

import (
	"io"

	"go.etcd.io/raft/v3/raftpb"
)

// Payload is one entry's bytes on the way out. Load is called on the sending
// goroutine and may read the WAL; the bytes stay valid until Release, which is
// called exactly once, also when the message is dropped.
type Payload interface {
	Len() int
	Load() ([]byte, error)
	Release()
}

// SnapshotSource writes one shard snapshot as a stream (its layout is the
// shard package's): state, then the raw entries that the receiver must hold.
// Close is called exactly once.
type SnapshotSource interface {
	WriteTo(w io.Writer) (int64, error)
	Close() error
}

// Message is what one replica sends to another: Raft's message, and beside it
// what Raft must not see. Payloads[i] belongs to Raft.Entries[i] and is nil
// for an entry without payload.
type Message struct {
	Shard    uint32
	From, To uint64 // replica ids
	// HW is the sender's high watermark, as a Raft index of this shard.
	HW       uint64
	Raft     *raftpb.Message
	Payloads []Payload
	// Snapshot is set for MsgSnap and sent on a connection of its own.
	Snapshot SnapshotSource
}

// Inbound is a message as it arrives. Payloads are buffers from the Buffers
// given to the transport; who receives the message owns them. Payloads is
// empty, or has one element for each entry, nil where there is none.
type Inbound struct {
	Shard    uint32
	From, To uint64
	HW       uint64
	Raft     *raftpb.Message
	Payloads [][]byte
}

// Buffers lends buffers for inbound payloads, so that a follower's bytes go
// from the socket into the buffer that the log writes from.
type Buffers interface {
	Get(n int) []byte // len n; contents undefined
	Put(b []byte)
}

// Handler takes what arrives. Receive may block its connection for
// back-pressure, never for I/O; heartbeats and votes have a connection of their
// own, so that messages without entries should not be held up. Unreachable and
// SnapshotSent come from one goroutine of the transport's and may merge several
// events for the same shard and replica into one; after Close nothing comes.
// What blocks a method must be released before Close is called, which waits.
type Handler interface {
	Receive(in *Inbound)
	// ReceiveSnapshot reads the whole stream and returns once all of it is
	// durable and stepped, or an error.
	ReceiveSnapshot(in *Inbound, r io.Reader) error
	// Unreachable says that messages to that replica were dropped.
	Unreachable(shard uint32, to uint64)
	// SnapshotSent tells the outcome of a Message with a Snapshot.
	SnapshotSent(shard uint32, to uint64, err error)
}

// Resolver tells where a replica lives: the peer address of the broker that
// has its data directory. ok is false while it is unknown.
type Resolver func(replica uint64) (addr string, ok bool)
