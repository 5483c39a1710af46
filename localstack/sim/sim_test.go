package sim

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
)

var (
	seedsFlag = flag.Int("sim.seeds", 1000, "number of seeds")
	seedFlag  = flag.Uint64("sim.seed", 0, "run this seed only")
	stepFlag  = flag.Int("sim.step", 0, "internal: a worker takes every step-th seed")
	fromFlag  = flag.Uint64("sim.from", 1, "first seed")
)

// workersMax bounds the processes that share the seeds.
const workersMax = 4

func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400) // short runs, little that lives
	os.Exit(m.Run())
}

// TestSeeds runs the seeds. rand.Reader belongs to one run at a time, so the
// cores are used by processes: each worker is this test in a process of its own.
func TestSeeds(t *testing.T) {
	switch {
	case *seedFlag != 0:
		runSeeds(t, *seedFlag, 1, 1)
	case *stepFlag > 0:
		runSeeds(t, *fromFlag, *seedsFlag, uint64(*stepFlag))
	case testing.CoverMode() != "" || *seedsFlag < 20:
		runSeeds(t, *fromFlag, min(*seedsFlag, 150), 1)
	default:
		shareSeeds(t)
	}
}

func shareSeeds(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	workers := min(runtime.GOMAXPROCS(0), workersMax)
	var wg sync.WaitGroup
	for i := range workers {
		n := (*seedsFlag - i + workers - 1) / workers
		wg.Go(func() {
			cmd := exec.Command(self, "-test.run=^TestSeeds$", "-test.v", fmt.Sprintf("-sim.seeds=%d", n),
				fmt.Sprintf("-sim.from=%d", *fromFlag+uint64(i)), fmt.Sprintf("-sim.step=%d", workers))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("worker %d: %v\n%s", i, err, out)
				return
			}
			t.Logf("worker %d:\n%s", i, out)
		})
	}
	wg.Wait()
}

func runSeeds(t *testing.T, first uint64, n int, step uint64) {
	var total Counts
	events := 0
	for i := range uint64(n) {
		res, err := Run(Options{Seed: first + i*step})
		if err != nil {
			t.Fatal(err)
		}
		total.Add(res.Counts)
		events += res.Events
	}
	t.Logf("%d seeds, %d events: %+v", n, events, total)
	if n >= 100 {
		total.check(t)
	}
}

// check sees that everything that the simulator is for has happened.
func (c Counts) check(t *testing.T) {
	for _, x := range []struct {
		what string
		n    int
	}{
		{"acked", c.Acked}, {"resent", c.Resent}, {"dropped", c.Dropped}, {"refused", c.Refused}, {"crashes", c.Crashes},
		{"elections", c.Elections}, {"transfers", c.Transfers}, {"snapshots", c.Snapshots}, {"streams", c.Streams},
		{"tiered", c.Tiered}, {"fetches", c.Fetches}, {"cold fetches", c.ColdFetches}, {"latest", c.Latest},
		{"lost", c.Lost}, {"duplicated", c.Duplicated}, {"corrupted", c.Corrupted}, {"held", c.Held},
		{"log failures", c.LogFailures}, {"unknown", c.Unknown}, {"deletes", c.Deletes},
		{"changes of replicas", c.Changes}, {"woken polls", c.Woken},
		{"disks lost", c.DisksLost}, {"replicas replaced", c.Replaced},
		{"appends refused by a full log", c.Full},
		{"coordinator writes", c.SlotWrites}, {"coordinator slots loaded", c.SlotLoads},
	} {
		if x.n == 0 {
			t.Errorf("nothing %s in all seeds: the simulator does not test it", x.what)
		}
	}
}
