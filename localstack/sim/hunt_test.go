package sim

import (
	"errors"
	"testing"
)

// huntSeeds is how many seeds a planted bug may take to be found.
const huntSeeds = 200

// harderSeeds is how many seeds TestHarderSeeds runs.
const harderSeeds = 60

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
	{"shard.NoSyncEarly", func(o *Options) { o.Shard.NoSyncEarly = true }, "ack-is-durable", 5},
	{"shard.SkipProposerTerm", func(o *Options) { o.tune = holding; o.Shard.SkipProposerTerm = true }, "apply-agrees", 3},
	{"shard.ServeBeforeOwnEntry", func(o *Options) { o.Shard.ServeBeforeOwnEntry = true }, "apply-agrees", 18},
	{"shard.AckAtLocalSync", func(o *Options) { o.Shard.AckAtLocalSync = true }, "acked-is-there", 1},
	{"shard.AckBoundUncommitted", func(o *Options) { o.Shard.AckBoundUncommitted = true }, "durable-majority", 1},
	{"shard.HWFromOwnLog", func(o *Options) { o.Shard.HWFromOwnLog = true }, "hw-monotone", 1},
	{"shard.LatestBeforeOwnEntry", func(o *Options) { o.tune = deposing; o.Shard.LatestBeforeOwnEntry = true }, "client-hw-monotone", 18},
	{"shard.DuplicateBeforeFate", func(o *Options) { o.Shard.DuplicateBeforeFate = true }, "acked-is-there", 20},
	{"shard.ReadWithoutQuorum", func(o *Options) { o.tune = deposing; o.Shard.ReadWithoutQuorum = true }, "read-is-linear", 21},
	{"shard.KeepProposedOnDrop", func(o *Options) { o.tune = dropping; o.Shard.KeepProposedOnDrop = true }, "apply-agrees", 1},
	{"shard.TrimBeforeTiered", func(o *Options) { o.Shard.TrimBeforeTiered = true }, "trim-after-tiering", 2},
	{"shard.TrimLateTiered", func(o *Options) { o.Shard.TrimLateTiered = true }, "trim-after-tiering", 6},
	{"shard.PointerBeforeFile", func(o *Options) { o.Shard.PointerBeforeFile = true }, "snapshot-before-pointer", 2},
	{"shard.StreamWithoutEntries", func(o *Options) { o.Shard.StreamWithoutEntries = true }, "trim-after-tiering", 4},
	{"shard.AckSnapshotEarly", func(o *Options) { o.Shard.AckSnapshotEarly = true }, "ack-is-durable", 3},
	{"shard.CommitBelowSnapshot", func(o *Options) { o.Shard.CommitBelowSnapshot = true }, "no-panic", 3},
	{"shard.SkipPayloadCheck", func(o *Options) { o.Shard.SkipPayloadCheck = true }, "committed-agrees", 5},
	{"shard.WaiterByIndex", func(o *Options) { o.Shard.WaiterByIndex = true }, "acked-is-there", 18},
	{"shard.PromoteBeforeCaughtUp", func(o *Options) { o.tune = losing; o.Shard.PromoteBeforeCaughtUp = true }, "promoted-has-commit", 1},
	{"shard.RemoveBeforePromotion", func(o *Options) { o.tune = losing; o.Shard.RemoveBeforePromotion = true }, "quorum-kept", 1},
	{"shard.AnswerRefused", func(o *Options) { o.tune = filling; o.Shard.AnswerRefused = true }, "ack-is-durable", 1},
	{"KeepReplicaID", func(o *Options) { o.tune = losing; o.KeepReplicaID = true }, "committed-agrees", 1},

	{"partition.SkipSequenceCheck", func(o *Options) { o.Partition.SkipSequenceCheck = true }, "idempotent-order", 1},
	{"partition.SkipOffsetCheck", func(o *Options) {
		o.tune = holding
		o.Partition.SkipOffsetCheck = true
		o.Shard.SkipProposerTerm = true
	}, "epoch-is-term", 3},
	{"partition.TierAnywhere", func(o *Options) { o.Partition.TierAnywhere = true }, "segments-contiguous", 11},
	{"partition.KeepTieredEnd", func(o *Options) { o.Partition.KeepTieredEnd = true }, "no-hole", 6},
	{"partition.HWFromApplied", func(o *Options) { o.Partition.HWFromApplied = true }, "hw-within-bound", 1},
	{"partition.LatestAlwaysKnown", func(o *Options) { o.tune = deposing; o.Partition.LatestAlwaysKnown = true }, "client-hw-monotone", 18},
	{"partition.AckInFlightDuplicate", func(o *Options) { o.Partition.AckInFlightDuplicate = true }, "acked-is-there", 20},
	{"partition.SealAboveHW", func(o *Options) { o.Partition.SealAboveHW = true }, "seal-within-bound", 3},
	{"partition.KeepProposed", func(o *Options) { o.Partition.KeepProposed = true }, "apply-agrees", 1},
	{"partition.MapOrder", func(o *Options) { o.Partition.MapOrder = true }, "state-agrees", 1},
	{"partition.AcceptStaleRows", func(o *Options) { o.Partition.AcceptStaleRows = true }, "runs-consistent", 13},

	{"partition.SkipWriteNumberCheck", func(o *Options) { o.Partition.SkipWriteNumberCheck = true }, "slot-write-once", 1},
	{"partition.ImageWithoutSlots", func(o *Options) { o.Partition.ImageWithoutSlots = true }, "apply-agrees", 2},
	{"LoadUnconfirmed", func(o *Options) { o.tune = deposing; o.LoadUnconfirmed = true }, "slot-has-acked", 1},

	{"wal.AckBeforeSync", func(o *Options) { o.WAL.AckBeforeSync = true }, "vote-is-durable", 1},
	{"wal.RecycleWithoutRewrite", func(o *Options) { o.WAL.RecycleWithoutRewrite = true }, "no-hole", 7},
	{"wal.IgnoreSyncError", func(o *Options) { o.tune = failing; o.WAL.IgnoreSyncError = true }, "ack-is-durable", 1},
	{"wal.ShareBlocks", func(o *Options) { o.tune = tearing; o.WAL.ShareBlocks = true }, "log-recovers", 37},
	{"wal.SkipRecoverySync", func(o *Options) { o.tune = tearing; o.WAL.SkipRecoverySync = true }, "log-recovers", 20},
}

// What some bugs need more of than a seed usually draws.
func deposing(p *plan) { p.deposed, p.crashEvery, p.loss = true, 0, 0 }
func holding(p *plan)  { p.hold, p.transferEvery = 0.3, 900 }
func dropping(p *plan) { p.raftBytes = 56 * 2 }
func tearing(p *plan)  { p.tornCommit = 0.01 }
func failing(p *plan)  { p.syncError = 0.01 }
func losing(p *plan)   { p.loseEvery = 1500 }
func filling(p *plan)  { p.logFull = 0.05 }

// TestHarderSeeds asks every seed for what only some draw: lost disks and logs
// without room, together with whatever else the seed brings.
func TestHarderSeeds(t *testing.T) {
	var total Counts
	for seed := uint64(1); seed <= harderSeeds; seed++ {
		res, err := Run(Options{Seed: seed, tune: func(p *plan) {
			losing(p)
			p.logFull = 0.02
		}})
		if err != nil {
			t.Fatal(err)
		}
		total.Add(res.Counts)
	}
	t.Logf("%d seeds: %d disks lost, %d replicas replaced, %d appends refused, %d crashes", harderSeeds, total.DisksLost, total.Replaced, total.Full, total.Crashes)
	if total.DisksLost == 0 || total.Replaced == 0 || total.Full == 0 {
		t.Error("nothing happened: the simulator does not test it")
	}
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
