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
package group
