package shard

import (
	"io"

	"thermocline/wal"
)

// ReplicaID names one data directory's replica of a shard; Raft's node id.
type ReplicaID uint64

// Kind tells what an entry's payload holds.
type Kind uint8

const (
	// KindNoop has no payload: a new leader's first entry.
	KindNoop Kind = iota
	// KindItems is a sequence of items, each appended by one Prepare.
	KindItems
	// KindConfChange carries a replica change; its data is Raft's own.
	KindConfChange
)

// Applied is one committed entry as the state machine sees it.
type Applied struct {
	Index, Term uint64
	Kind        Kind
	// TimeUnixMilli is the proposer's clock when it proposed: the only time
	// that apply may use.
	TimeUnixMilli int64
	// Payload is valid during the call only; its items are in order of Prepare.
	Payload []byte
}

// Acks says when a proposal's waiter is answered.
type Acks int8

const (
	// AcksAll waits for the acknowledgement bound (and apply).
	AcksAll Acks = -1
	// AcksNone is answered at once when the item is proposed.
	AcksNone Acks = 0
	// AcksLeader waits for the leader's own fsync.
	AcksLeader Acks = 1
)

// Prepared is the state machine's verdict on one command.
type Prepared struct {
	// Err refuses the command: nothing was appended, the waiter gets Err.
	Err error
	// Result is what the waiter will get, as far as known before apply: the
	// answer of AcksNone and AcksLeader, and of Final.
	Result any
	// Final answers the waiter at once (a duplicate of an applied item): nothing was appended.
	Final bool
	// SameAs, if not zero, is the ticket of an item still in flight that this
	// command repeats: the waiter shares that item's fate. Nothing was appended.
	SameAs uint64
}

// StateMachine is what a shard replicates. The shard's goroutine calls every
// method but Image.Encode. It is deterministic: Apply and Restore are pure
// functions of state and input; there is no clock, I/O or randomness inside.
type StateMachine interface {
	// Size bounds the bytes that Prepare will append for cmd.
	Size(cmd any) int
	// Prepare, on a leader, checks cmd against applied plus proposed state,
	// stamps it for term, and appends one item to payload, which has room for
	// Size(cmd). ticket identifies the item until it is applied or reset.
	Prepare(cmd any, term, ticket uint64, nowUnixMilli int64, payload []byte) ([]byte, Prepared)
	// Apply repeats every check and changes the state. It calls emit once for
	// each item in order: the outcome for the item's waiter. An error is
	// corruption (the payload cannot be parsed): the replica stops.
	Apply(e Applied, emit func(item int, result any, err error)) error
	// SkipEntry tells of an index that changes nothing: no-ops, configuration
	// changes and entries refused because they carry another proposer's term.
	SkipEntry(index, term uint64)
	// ResetProposed drops everything that is prepared and not applied.
	ResetProposed()
	// SetHW tells that every index up to and including hw is acknowledged
	// (never goes back; may exceed the applied index on followers) and whether
	// clients may be told of the end of the log (false from a change of leader
	// until the acknowledgement bound has reached the first entry of the term).
	SetHW(hw uint64, leaderReady bool)
	// TrimmableIndex is the last index whose data is in the object store.
	TrimmableIndex() uint64
	// Image returns an immutable view of the applied state, in O(changed).
	Image() Image
	// Restore replaces the state by an encoded image.
	Restore(r io.Reader) error
}

// Image is a frozen state; Encode may run on another goroutine.
type Image interface {
	Index() uint64
	SizeEstimate() int
	Encode(w io.Writer) error
}

// Class orders proposals by what a full log must still take.
type Class uint8

const (
	// ClassClient is client data: throttled from 75 % of the log's budget and
	// refused at 100 %.
	ClassClient Class = iota
	// ClassSystem is what frees a full log (tiering commits) or changes the
	// shard itself: never gated.
	ClassSystem
)

// Proposal is a unit of commands offered to a shard's leader: in a produce
// request, all batches for this shard.
type Proposal struct {
	Commands []any
	// Bytes is the sum of the commands' sizes, for the queue's bound.
	Bytes int
	Acks  Acks
	// Class says which part of the log's budget the commands may use.
	Class Class
	// Copied, if not nil, is called exactly once, before or beside Done, when
	// every command has been copied or refused: the caller's buffers are free.
	Copied func()
	// Done gets one outcome for each command, exactly once, from the shard's
	// goroutine; it must not block. Outcomes belong to the callee.
	Done func(outcomes []Outcome)
}

// Outcome is one command's fate.
type Outcome struct {
	Result any
	// Err is the state machine's refusal, or one of this package's: not
	// leader, dropped (nothing is known to have been written), unknown fate
	// (leadership was lost; it may or may not be in the log), log full, stopped.
	Err error
}

// Leadership is a replica's view of who leads.
type Leadership struct {
	Leader ReplicaID // 0 while unknown
	Term   uint64
	// Ready: this replica leads and has applied the first entry of its own term.
	Ready bool
}

// PayloadView is a payload held for reading; Release it when the last byte has
// been used.
type PayloadView interface {
	Bytes() []byte
	Release()
}

// Log is the part of the WAL that a shard uses; wal.Writer implements it.
type Log interface {
	// Submit queues an append; appends of one shard complete in order.
	Submit(a *wal.Append)
	// ReadPayload returns the payload of a live entry from the log's files,
	// into a buffer that get lends (length n). It verifies the checksum.
	ReadPayload(s wal.ShardID, index, term uint64, get func(n int) []byte) ([]byte, error)
}
