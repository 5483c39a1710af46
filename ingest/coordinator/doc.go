// Package coordinator runs group coordinators: for each coordinator slot of
// the shards that this broker has replicas of, one goroutine, which works
// while the shard is led here.
//
// # A slot's life
//
//	following --leadership--> loading --all records read--> serving
//	    ^                        |                             |
//	    |                        | cannot be read              | a write failed
//	    |                        v                             v
//	    +------- lost ------- damaged, paused <----------------+
//	                             |
//	                             +--after a pause--> loading
//
// Loading begins with a ReadIndex: a quorum confirms that this broker leads,
// and everything acknowledged before is applied. Then the slot's records
// (partition.Set.Slot) go into a new group.Coordinator. Calls that come while
// it loads wait in the queue.
//
// Serving: each pass takes what has come (outcomes of writes, changed topics
// and settings, calls), lets timers fire, and proposes the writes that this
// made, in order, each upon the one before (partition.CoordinatorWrite.After).
// Answers that depend on a write leave when it is acknowledged; the
// Coordinator sees to that. Requests that only read (OffsetFetch, Describe,
// ListGroups) and DeleteGroups are first confirmed by a ReadIndex that begins
// after they came; all that come while one is under way share the next. So a
// deposed leader cannot answer with what was true before.
//
// # When a write fails
//
// Its fate is unknown, or that of what was built on it is. The Coordinator is
// unloaded, which answers everyone with NOT_COORDINATOR, and once the last of
// its proposals is answered a new one is loaded. Should a lost write come to be
// applied nevertheless, the new Coordinator's first write is refused, for its
// number is not the next, and it loads again.
//
// A shard that has no room at the moment (its queue or its log is full) is no
// failure for a while: the slot stops taking calls, whose queue is bounded, and
// tries again.
package coordinator
