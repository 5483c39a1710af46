package group

// Bugs break a rule each, so that tests can show that they would notice.
type Bugs struct {
	ConsumerBugs

	ReplyBeforeWritten  bool // answers do not wait for writes
	CommitAnyGeneration bool // a commit's generation is not checked
	ForgetRebalance     bool // that a rebalance has begun is not stored
	TornGeneration      bool // a generation is several writes
	AnswerOldAssignment bool // a sync is answered before the leader assigned
	NoSessionsOnLoad    bool // sessions do not begin with a new leader
	ExpireWaiting       bool // sessions end while members wait for an answer
	KeepSilentMembers   bool // who does not join the next generation is in it all the same
	NoTombstones        bool // deleted offsets are deleted in memory only
	KeepOldStaticID     bool // a replaced member id is not stored
}
