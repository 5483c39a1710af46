// Package tiering moves sealed ranges of a shard's log into the object store:
// seal, build one segment, PUT, verify, commit through the shard. The shard
// then drops the tail's rows, takes a snapshot when it is worth one, and trims.
// It also keeps the directory of what is in the store: eight new segments
// become a run of pages, eight runs of a level one of the next.
//
// A Sealer belongs to one term of one shard's leader: cmd starts it when the
// leader is ready and stops it when leadership ends. What it has uploaded and
// not committed by then is an orphan, which ListOrphans finds.
//
// The order PUT, verify, commit is the whole of the safety argument:
//
//   - An object's name is drawn for one PUT and never used again, whatever that
//     PUT answered: a late or repeated write can only make an orphan.
//   - The commit names the object, its size and checksum, and the exact range
//     of Raft indexes. Apply accepts it only right at the tiered end, so that of
//     two leaders' uploads of the same range one is refused and collected.
//   - Nothing local is dropped before apply has accepted the commit.
package tiering
