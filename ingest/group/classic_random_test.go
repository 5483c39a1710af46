package group

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"strings"
	"testing"
)

var (
	seeds = flag.Int("seeds", 60, "how many random worlds to run")
	seed  = flag.Uint64("seed", 0, "run this random world only")
)

// runClassic runs one random world, and tells what broke.
func runClassic(seed uint64, bugs Bugs, white bool, steps int) (w *classicWorld, err error) {
	w = newClassicWorld(seed, bugs)
	w.white = white
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(broken)
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("%s", b.what)
		}
	}()
	for range 2 {
		for range steps / 2 {
			w.step()
		}
		w.farewell()
		w.calm()
	}
	w.end()
	return w, nil
}

func TestRandomWorlds(t *testing.T) {
	first, last := uint64(1), uint64(*seeds)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	counts := map[string]int{}
	for s := first; s <= last; s++ {
		w, err := runClassic(s, Bugs{}, s%4 == 1, 3000)
		if err != nil {
			t.Fatalf("%s\nseed %d at %d: %v", strings.Join(w.trace[max(0, len(w.trace)-60):], "\n"), s, w.now, err)
		}
		for k, n := range w.counts {
			counts[k] += n
		}
	}
	t.Logf("%v", counts)
}

// TestPlantedBugs shows that the clients' view alone finds each.
func TestPlantedBugs(t *testing.T) {
	for name, bugs := range map[string]Bugs{
		"ReplyBeforeWritten":  {ReplyBeforeWritten: true},
		"CommitAnyGeneration": {CommitAnyGeneration: true},
		"ForgetRebalance":     {ForgetRebalance: true},
		"TornGeneration":      {TornGeneration: true},
		"AnswerOldAssignment": {AnswerOldAssignment: true},
		"NoSessionsOnLoad":    {NoSessionsOnLoad: true},
		"ExpireWaiting":       {ExpireWaiting: true},
		"KeepSilentMembers":   {KeepSilentMembers: true},
		"NoTombstones":        {NoTombstones: true},
		"KeepOldStaticID":     {KeepOldStaticID: true},
	} {
		t.Run(name, func(t *testing.T) {
			for s := uint64(1); s <= 300; s++ {
				if _, err := runClassic(s, bugs, false, 3000); err != nil {
					t.Logf("seed %d: %v", s, err)
					return
				}
			}
			t.Fatal("300 random worlds do not notice")
		})
	}
}

// TestEqualCallsGiveEqualRecords: nothing in the Coordinator is left to chance.
func TestEqualCallsGiveEqualRecords(t *testing.T) {
	for s := uint64(1); s <= 10; s++ {
		one, err := runClassic(s, Bugs{}, false, 2000)
		if err != nil {
			t.Fatal(err)
		}
		two, err := runClassic(s, Bugs{}, false, 2000)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := strings.Join(one.trace, "\n"), strings.Join(two.trace, "\n"); a != b {
			t.Fatalf("seed %d: two runs differ:\n%s\n\n%s", s, a, b)
		}
		if !maps.EqualFunc(one.store, two.store, bytes.Equal) {
			t.Fatalf("seed %d: two runs left other records", s)
		}
	}
}
