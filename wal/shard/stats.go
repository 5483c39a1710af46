package shard

import "sync/atomic"

// Stats counts what one shard replica, or all of a broker's, have done.
type Stats struct {
	Proposed, ProposedBytes, Dropped, Refused, Applied atomic.Uint64
	BadMessages, ReadRounds                            atomic.Uint64
	Snapshots, SnapshotErrors                          atomic.Uint64
	StreamsSent, StreamsReceived                       atomic.Uint64
	QueueFull, Throttled, LogFull                      atomic.Uint64
	// LogRefused is how often the log had no room for entries that Raft sent.
	LogRefused atomic.Uint64
	// Replacements are planned changes of a replica that were led to their end here.
	Replacements atomic.Uint64
	// Promotions are learners that this replica, leading, proposed as voters.
	Promotions atomic.Uint64
}
