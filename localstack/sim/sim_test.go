package sim

import (
	"flag"
	"testing"
)

var (
	seedsFlag = flag.Int("sim.seeds", 1000, "number of seeds")
	seedFlag  = flag.Uint64("sim.seed", 0, "run this seed only, and print its trace")
)

func TestSeeds(t *testing.T) {
	first, n := uint64(1), *seedsFlag
	if *seedFlag != 0 {
		first, n = *seedFlag, 1
	}
	var total Counts
	events := 0
	for i := range uint64(n) {
		res, err := Run(Options{Seed: first + i})
		if err != nil {
			t.Fatal(err)
		}
		total.Add(res.Counts)
		events += res.Events
	}
	t.Logf("%d seeds, %d events: %+v", n, events, total)
}
