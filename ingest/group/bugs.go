package group

// Bugs break a rule each, so that tests can show that they would notice.
type Bugs struct {
	ConsumerBugs

	ReplyBeforeWritten  bool // answers do not wait for writes
	CommitAnyGeneration bool // a commit's generation is not checked
}
