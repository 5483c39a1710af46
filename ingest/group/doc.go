// Package group is the pure coordinator of consumer groups: one Coordinator
// owns the groups of one coordinator slot. It speaks both of Kafka's group
// protocols (the classic one, and KIP-848's), and keeps committed offsets.
//
// A Coordinator has no clock, no I/O, no goroutine and no randomness of its
// own: time comes with each call, ids from Options.NewID, and what must
// survive leaves as records that somebody else replicates. Equal calls give
// equal answers and equal records.
//
// # How it is driven
//
// The slot's records are a map from key to value, replicated by the shard that
// the slot is placed on. A new leader makes a Coordinator, calls Load for each
// record and Loaded at the end. From then on each call may leave a Write: its
// records change the map as one, and Writes are numbered in order. The driver
// replicates them in that order and tells Written when one is acknowledged.
//
// An answer leaves when every Write that was made before it has been written:
// nobody ever hears of a generation, an assignment or an offset that a new
// leader might not know. When a Write fails, its fate is unknown, so that
// nothing built on it can be trusted: the driver calls Unload, which answers
// everyone who waits with NOT_COORDINATOR, and begins anew from the replicated
// records. There is no other way back, hence no undo.
//
// # What is stored, and when
//
// A classic group is a record of its own and one for each member; an offset is
// a record. A generation (the group with all members that changed, and
// tombstones of those that are gone) is one Write, made when the join phase
// ends; the assignment is another, made when the leader has sent it. A member
// that leaves, and a static member whose id is replaced, are written at once,
// and so is that a rebalance has begun, so that a new leader goes on with it.
// What is not stored: ids that were given out and not used yet, members that
// wait for their first generation, and when a session was last heard of. They
// begin anew with a new leader, whose members join or beat again.
//
// # Where the classic protocol is not Kafka's
//
// Answers were compared with Kafka 4.3.1's, by scripts and by random calls.
// On purpose these differ:
//
//   - A generation is stored before it is told, not with its assignment only.
//   - A join or sync that is sent again while the first waits answers the first
//     with REBALANCE_IN_PROGRESS; Kafka never answers it.
//   - A join with an id that was given out and an instance id is a member that
//     is not known; Kafka's coordinator fails.
//   - An id that was given out and leaves does not rebalance a stable group.
//   - Which of several protocols wins a tie, and who leads when the leader goes,
//     is chance in Kafka: here the first by name, and who joined first.
//   - Names, numbers and sizes are bounded.
//
// # Records
//
// Numbers are big-endian. A string is u32 length and bytes; an optional string
// is a byte 0, or a byte 1 and a string. Keys begin with the group, so that its
// records are neighbours, its own the first; Load takes them in that order.
//
//	key    u16 length of the group's name, name, u8 kind, rest
//	kind   1   classic group        rest: empty
//	kind   2   member of it         rest: the member's id
//	kind   3   committed offset     rest: topic's name, u32 partition
//	kind   16  consumer group       rest: empty
//	kind   17  member's profile     rest: the member's id
//	kind   18  member's target      rest: the member's id
//	kind   19  member's standing    rest: the member's id
//
// The first byte of each value is its version; versions above the newest that
// is known are refused, and so are kinds.
//
//	classic group, version 1
//	u8 version   u8 state   u32 generation   u64 since   string protocol type
//	string protocol   string leader's member id
//
//	  state  1 empty, 2 preparing a rebalance, 3 completing it, 4 stable
//	  since  when it came to that state, in ms; retention counts from it
//	  an empty protocol type, protocol or leader: none
//
//	member, version 1
//	u8 version   u64 order   optional string instance id   string client id
//	string client's host   u32 rebalance time-out   u32 session time-out
//	u32 n   n × ( string protocol   string metadata )   string assignment
//
//	  order  counts the members of the group as they joined, from 1
//	  time-outs are in ms; metadata and assignment are the clients' own
//
//	committed offset, version 1
//	u8 version   u64 offset   u32 leader epoch   u64 committed at   u64 expires at
//	16 bytes topic id   string metadata
//
//	  leader epoch  -1: not told       topic id  zeros: not known
//	  expires at    -1: by the retention of the cluster; times are in ms
//
// A consumer group (KIP-848) has a record of its own, and for each member its
// profile, what it has, and, unless that is empty, what it shall have. Whatever
// one call changes of a group is in one Write.
//
//	consumer group, version 1
//	u8 version   u32 group epoch   u32 target epoch   u64 hash of topics
//
//	  target epoch    the group epoch that the targets were computed for
//	  hash of topics  sum of the FNV-1a hashes of (16 bytes topic id, u32
//	                  partitions) of the subscribed topics, at the group epoch
//
//	profile, version 1
//	u8 version   string instance id   string rack   string client id
//	string client's host   u32 rebalance time-out   string assignor
//	string regular expression   u32 n   n × string topic   u8 classic
//	if classic: u32 session time-out   u32 n   n × ( string protocol   string metadata )
//
//	  an empty instance id, rack, assignor or expression: none; topics are sorted
//	  classic  1: the member uses the classic protocol (migrate.go), else 0
//
//	target, version 1
//	u8 version   u32 topics   topics × ( 16 bytes topic id   u32 n   n × u32 partition )
//
//	standing, version 1
//	u8 version   u8 state   u32 epoch   u32 previous epoch   assigned   revoking
//	assigned, revoking: u32 topics
//	topics × ( 16 bytes topic id   u32 n   n × ( u32 partition   u32 since ) )
//
//	  state     1 stable, 2 unrevoked, 3 unreleased (consumer.go)
//	  epoch     -2: a static member that is away
//	  revoking  what it is to give up and has not; others cannot have it
//	  since     the epoch from which on the member's commits count (KIP-1251)
//	  topics are sorted by id, partitions by number; a partition is in one list
//	  of one member at most, or loading fails
package group
