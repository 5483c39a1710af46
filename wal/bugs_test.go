package wal

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"thermocline/wal/vfs"
)

// TestPlantedBugs plants each mistake and sees that a crash test finds it. A hunt
// that finds nothing means that the tests no longer see that rule.
func TestPlantedBugs(t *testing.T) {
	hunts := []struct {
		name string
		bugs Bugs
		hunt func(seed uint64, o Options) error
	}{
		{"AckBeforeSync", Bugs{AckBeforeSync: true}, huntCrashes},
		{"SkipClosingRecord", Bugs{SkipClosingRecord: true}, huntFlips},
		{"RecycleWithoutRewrite", Bugs{RecycleWithoutRewrite: true}, huntCrashes},
		{"ReuseUseNumber", Bugs{ReuseUseNumber: true}, huntLives},
		{"IgnoreSyncError", Bugs{IgnoreSyncError: true}, huntFailures},
		{"RetryAfterError", Bugs{RetryAfterError: true}, huntFailures},
		{"SkipRecoverySync", Bugs{SkipRecoverySync: true}, huntLives},
		{"ShareBlocks", Bugs{ShareBlocks: true}, huntCrashes},
		{"CutAnywhere", Bugs{CutAnywhere: true}, huntFlips},
	}
	for _, h := range hunts {
		t.Run(h.name, func(t *testing.T) {
			o := smallFiles
			o.Bugs = h.bugs
			const seeds = 40
			for seed := range uint64(seeds) {
				if err := h.hunt(seed, o); err != nil {
					t.Logf("found with seed %d: %v", seed, err)
					return
				}
			}
			t.Fatalf("not found with %d seeds", seeds)
		})
	}
}

func huntCrashes(seed uint64, o Options) error { return crashEverywhere(seed, 60, o) }
func huntLives(seed uint64, o Options) error   { return lives(seed, 12, o) }
func huntFailures(seed uint64, o Options) error {
	return failEverywhere(seed, 15, &vfs.Fault{Err: syscall.EIO}, o)
}
func huntFlips(seed uint64, o Options) error { return flipEverywhere(seed, 10, 97, o) }

// flipEverywhere writes a log, lets it go idle, and flips one bit every stride
// bytes of its files: recovery finds everything or reports corruption.
func flipEverywhere(seed uint64, groups int, stride int64, o Options) error {
	mem := vfs.NewMem(seed)
	h := &history{states: []model{{}}}
	l, _, err := Open(mem, "wal", o)
	if err != nil {
		return err
	}
	if err := h.play(l, newScript(seed), groups); err != nil {
		return err
	}
	// The last append is synced and the log idle: from here all of it counts.
	h.acked = len(h.states) - 1
	if err := l.Idle(); err != nil {
		return err
	}
	corrupt := 0
	for _, f := range l.files {
		for off := int64(0); off < f.off; off += stride {
			err := recoverFlipped(h, mem.Crash(0), f.name, &vfs.Flip{Off: off, Bit: uint8(off % 8)}, o)
			if errors.Is(err, ErrCorrupt) {
				corrupt++
			} else if err != nil {
				return fmt.Errorf("seed %d, bit flipped in %s at %d: %w", seed, f.name, off, err)
			}
		}
	}
	if corrupt == 0 {
		return errors.New("no flip was reported")
	}
	return nil
}

// recoverFlipped recovers with one bit wrong in every read that covers it.
func recoverFlipped(h *history, mem *vfs.Mem, name string, flip *vfs.Flip, o Options) error {
	fs := vfs.NewFaulty(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpRead && op.Name == "wal/"+name {
			return &vfs.Fault{Flip: flip}
		}
		return nil
	})
	l, got, err := Open(fs, "wal", o)
	if err != nil {
		var c *CorruptionError
		if errors.As(err, &c) && (c.File == "" || c.Expected == "" || c.Found == "") {
			return fmt.Errorf("an error that does not say where and what: %+v", c)
		}
		return err
	}
	defer l.closeFiles()
	if _, diff := h.match(l, got); diff != "" {
		return errors.New(diff)
	}
	return nil
}

func TestFlippedBits(t *testing.T) {
	for seed := range uint64(3) {
		if err := flipEverywhere(seed, 25, 211, smallFiles); err != nil {
			t.Fatal(err)
		}
	}
}
