package shard

import "errors"

// What a waiter may get beside the state machine's refusals.
var (
	// ErrNotLeader: another replica leads, or nobody. Nothing was written.
	ErrNotLeader = errors.New("shard: not the leader")
	// ErrNotReady: this replica leads and may not yet take requests. Nothing was written.
	ErrNotReady = errors.New("shard: leader is not ready")
	// ErrDropped: the entry was refused before or at apply. Nothing was written.
	ErrDropped = errors.New("shard: proposal dropped")
	// ErrUnknownFate: leadership was lost; the commands may or may not be in the log.
	ErrUnknownFate = errors.New("shard: fate unknown after a change of leader")
	// ErrLogFull: the log's budget is used up. Nothing was written.
	ErrLogFull = errors.New("shard: log budget is used up")
	// ErrStopped: the replica is closed or out of service.
	ErrStopped = errors.New("shard: replica is out of service")
	// ErrBusy: a bounded queue is full.
	ErrBusy = errors.New("shard: queue is full")
	// ErrPayload: a payload is missing or does not match its descriptor.
	ErrPayload = errors.New("shard: payload mismatch")
	// ErrSnapshot: a snapshot file or stream is damaged or of another shape.
	ErrSnapshot = errors.New("shard: bad snapshot")
)
