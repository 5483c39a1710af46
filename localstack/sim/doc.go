// Package sim runs whole shards in one goroutine: three nodes with the real
// log on a crashable memory file system, the real shard core, the real
// partition state, messages through the transport's frame codec, and tiering
// commits against a store in memory. Time is virtual; the network, the disks,
// the clocks, crashes and clients are events drawn from one seed, so that a
// seed is a run.
//
// After each event checkers compare what the replicas and the clients see with
// one model of the truth (model.go), built from the entries that any replica
// applies first. A violation names its checker. Planted bugs (switches in
// production code) show that each checker can fire.
//
// Beside producers and readers there are coordinators: two for the one slot of
// each shard, each believing that the slot is its own (slots.go). What one has
// loaded and not read again must never hide what the other has written.
//
// # Fault atlas
//
// Faults never destroy more than the design promises to survive: a crash loses
// what one node had not synced (any mixture of its unsynced blocks), never what
// it had; any number of nodes may crash at once, none loses its disk; payloads
// may be damaged in transit, never at rest; clocks run at 0.8 to 1.25 of the
// true speed and are off by up to two seconds.
//
// # Determinism
//
// Raft draws its election timeouts from crypto/rand: Run replaces rand.Reader
// by the seed's own source while it runs, so only one run may be under way in a
// process.
package sim
