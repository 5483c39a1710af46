package group

// ConsumerBugs break rules of KIP-848's groups.
type ConsumerBugs struct {
	TakeLivingInstance bool // a static member that has not left is replaced
	RevokeUnasked      bool // revoked partitions are free without the member's word
	AssignOwned        bool // partitions go to a new owner while the old one has them
	KeepTarget         bool // a group epoch does not make a new target
	ForgetStanding     bool // what a member has is not stored
	CommitAnyEpoch     bool // commits of any epoch are taken
	TakeFenced         bool // a fenced classic member joins a consumer group with what it had
	LendUpgraded       bool // an upgraded group forgets what its members have
	SleepAfterLast     bool // a downgraded group does not rebalance
	SessionForever     bool // members that fell silent stay
}
