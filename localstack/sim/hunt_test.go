package sim

import (
	"errors"
	"testing"
)

// huntSeeds is how many seeds a planted bug may take to be found.
const huntSeeds = 200

// hunt is a planted bug: a switch in production code, the checker that must
// fire, and the seed at which it last did.
type hunt struct {
	name    string
	plant   func(*Options)
	checker string
	seed    uint64
}

var hunts = []hunt{
	{"shard.AckBeforeFsync", func(o *Options) { o.Shard.AckBeforeFsync = true }, "vote-is-durable", 1},
	{"shard.NoSyncEarly", func(o *Options) { o.Shard.NoSyncEarly = true }, "ack-is-durable", 1},
	{"shard.SkipProposerTerm", func(o *Options) { o.Shard.SkipProposerTerm = true }, "apply-agrees", 1},
	{"shard.ServeBeforeOwnEntry", func(o *Options) { o.Shard.ServeBeforeOwnEntry = true }, "apply-agrees", 1},
	{"shard.AckAtLocalSync", func(o *Options) { o.Shard.AckAtLocalSync = true }, "acked-is-there", 1},
	{"shard.AckBoundUncommitted", func(o *Options) { o.Shard.AckBoundUncommitted = true }, "durable-majority", 1},
	{"shard.HWFromOwnLog", func(o *Options) { o.Shard.HWFromOwnLog = true }, "hw-monotone", 1},
	{"shard.LatestBeforeOwnEntry", func(o *Options) { o.Shard.LatestBeforeOwnEntry = true }, "client-hw-monotone", 1},
	{"shard.DuplicateBeforeFate", func(o *Options) { o.Shard.DuplicateBeforeFate = true }, "acked-is-there", 1},
	{"shard.ReadWithoutQuorum", func(o *Options) { o.Shard.ReadWithoutQuorum = true }, "read-is-linear", 1},
	{"shard.KeepProposedOnDrop", func(o *Options) { o.Shard.KeepProposedOnDrop = true }, "apply-agrees", 1},
	{"shard.TrimBeforeTiered", func(o *Options) { o.Shard.TrimBeforeTiered = true }, "trim-after-tiering", 1},
	{"shard.TrimLateTiered", func(o *Options) { o.Shard.TrimLateTiered = true }, "trim-after-tiering", 1},
	{"shard.PointerBeforeFile", func(o *Options) { o.Shard.PointerBeforeFile = true }, "snapshot-before-pointer", 1},
	{"shard.StreamWithoutEntries", func(o *Options) { o.Shard.StreamWithoutEntries = true }, "trim-after-tiering", 1},
	{"shard.AckSnapshotEarly", func(o *Options) { o.Shard.AckSnapshotEarly = true }, "ack-is-durable", 1},
	{"shard.CommitBelowSnapshot", func(o *Options) { o.Shard.CommitBelowSnapshot = true }, "no-panic", 1},
	{"shard.SkipPayloadCheck", func(o *Options) { o.Shard.SkipPayloadCheck = true }, "committed-agrees", 1},
	{"shard.WaiterByIndex", func(o *Options) { o.Shard.WaiterByIndex = true }, "acked-is-there", 1},

	{"partition.SkipSequenceCheck", func(o *Options) { o.Partition.SkipSequenceCheck = true }, "idempotent-order", 1},
	{"partition.SkipOffsetCheck", func(o *Options) { o.Partition.SkipOffsetCheck = true; o.Shard.SkipProposerTerm = true }, "epoch-is-term", 1},
	{"partition.TierAnywhere", func(o *Options) { o.Partition.TierAnywhere = true }, "segments-contiguous", 1},
	{"partition.KeepTieredEnd", func(o *Options) { o.Partition.KeepTieredEnd = true }, "no-hole", 1},
	{"partition.HWFromApplied", func(o *Options) { o.Partition.HWFromApplied = true }, "hw-within-bound", 1},
	{"partition.LatestAlwaysKnown", func(o *Options) { o.Partition.LatestAlwaysKnown = true }, "client-hw-monotone", 1},
	{"partition.AckInFlightDuplicate", func(o *Options) { o.Partition.AckInFlightDuplicate = true }, "acked-is-there", 1},
	{"partition.SealAboveHW", func(o *Options) { o.Partition.SealAboveHW = true }, "seal-within-bound", 1},
	{"partition.KeepProposed", func(o *Options) { o.Partition.KeepProposed = true }, "apply-agrees", 1},
	{"partition.MapOrder", func(o *Options) { o.Partition.MapOrder = true }, "state-agrees", 1},
	{"partition.AcceptStaleRows", func(o *Options) { o.Partition.AcceptStaleRows = true }, "runs-consistent", 1},

	{"wal.AckBeforeSync", func(o *Options) { o.WAL.AckBeforeSync = true }, "vote-is-durable", 1},
	{"wal.RecycleWithoutRewrite", func(o *Options) { o.WAL.RecycleWithoutRewrite = true }, "no-hole", 1},
	{"wal.IgnoreSyncError", func(o *Options) { o.WAL.IgnoreSyncError = true }, "ack-is-durable", 1},
	{"wal.ShareBlocks", func(o *Options) { o.WAL.ShareBlocks = true }, "log-recovers", 1},
	{"wal.SkipRecoverySync", func(o *Options) { o.WAL.SkipRecoverySync = true }, "log-recovers", 1},
}

func TestPlantedBugs(t *testing.T) {
	for _, h := range hunts {
		t.Run(h.name, func(t *testing.T) {
			other := map[string]int{}
			for i := range uint64(huntSeeds) {
				o := Options{Seed: h.seed + i}
				h.plant(&o)
				_, err := Run(o)
				var f *Failure
				if !errors.As(err, &f) {
					continue
				}
				if f.Checker == h.checker {
					t.Logf("found at seed %d: %s", o.Seed, f.What)
					return
				}
				other[f.Checker]++
				if other[f.Checker] == 1 {
					t.Logf("seed %d: %s: %s", o.Seed, f.Checker, f.What)
				}
			}
			t.Errorf("not found by checker %s within %d seeds; others: %v", h.checker, huntSeeds, other)
		})
	}
}

// TestSeedIsARun proves that a seed decides everything, raft's own randomness
// included.
func TestSeedIsARun(t *testing.T) {
	hashes := map[uint64]uint64{}
	for round := range 3 {
		for seed := uint64(1); seed <= 8; seed++ {
			res, err := Run(Options{Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			if round > 0 && hashes[seed] != res.Hash {
				t.Fatalf("seed %d: run %d has hash %016x, the first %016x", seed, round, res.Hash, hashes[seed])
			}
			hashes[seed] = res.Hash
		}
	}
	seen := map[uint64]bool{}
	for _, h := range hashes {
		if seen[h] {
			t.Fatal("two seeds are the same run")
		}
		seen[h] = true
	}
}
