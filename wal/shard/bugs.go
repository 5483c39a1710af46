package shard

// Bugs plants known mistakes, one per Rule that this package keeps: the
// simulator turns each on and demands that a checker finds it. All are off
// outside tests; the zero value is the correct program.
type Bugs struct {
	// AckBeforeFsync answers raft's responses (votes, append acknowledgements,
	// the leader's own vote) before the append is durable.
	AckBeforeFsync bool
	// NoSyncEarly answers an append without entries at once, although earlier
	// appends of the shard are not durable yet.
	NoSyncEarly bool
	// SkipProposerTerm applies entries whose proposer's term is not their own.
	SkipProposerTerm bool
	// ServeBeforeOwnEntry takes requests as soon as raft says leader.
	ServeBeforeOwnEntry bool
	// AckAtLocalSync answers acks=all after the leader's own fsync.
	AckAtLocalSync bool
	// AckBoundUncommitted raises the acknowledgement bound to the log's end.
	AckBoundUncommitted bool
	// HWFromOwnLog lets a new leader begin from the bound of its applied
	// entries instead of the highest high watermark that it knows.
	HWFromOwnLog bool
	// LatestBeforeOwnEntry lets a new leader tell the end of the log before
	// the bound has reached the first entry of its term.
	LatestBeforeOwnEntry bool
	// DuplicateBeforeFate answers a duplicate of an item in flight at once.
	DuplicateBeforeFate bool
	// ReadWithoutQuorum confirms reads without asking anybody.
	ReadWithoutQuorum bool
	// KeepProposedOnDrop goes on from the running state after a dropped proposal.
	KeepProposedOnDrop bool
	// TrimBeforeTiered trims up to the snapshot, also what is not in the store.
	TrimBeforeTiered bool
	// TrimLateTiered trims by what is tiered when the snapshot has been
	// written, not by what the snapshot itself knows to be tiered.
	TrimLateTiered bool
	// PointerBeforeFile sends a snapshot's pointer to the log before its file
	// is written.
	PointerBeforeFile bool
	// StreamWithoutEntries sends a snapshot without the untiered raw entries.
	StreamWithoutEntries bool
	// AckSnapshotEarly acknowledges a received snapshot before it is durable.
	AckSnapshotEarly bool
	// CommitBelowSnapshot hands raft the stored commit index at a start, also
	// when the snapshot is ahead of it.
	CommitBelowSnapshot bool
	// SkipPayloadCheck steps messages whose payloads do not match.
	SkipPayloadCheck bool
	// WaiterByIndex answers a waiter whose index was applied by any term.
	WaiterByIndex bool
	// PromoteBeforeCaughtUp makes a learner a voter as soon as it is known.
	PromoteBeforeCaughtUp bool
	// AnswerRefused acknowledges entries that the log had no room for.
	AnswerRefused bool
	// RemoveBeforePromotion takes the replica that is to go out of the
	// configuration before another has its place.
	RemoveBeforePromotion bool
}
