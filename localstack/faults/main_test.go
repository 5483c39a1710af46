package faults_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"thermocline/localstack/faults"
	"thermocline/localstack/faults/clustertest"
	"thermocline/localstack/faults/history"
	"thermocline/localstack/processes"
)

var binary string

func TestMain(m *testing.M) {
	os.Exit(processes.Main(m, &binary, ""))
}

// patience bounds each test: far beyond what a loaded machine takes.
const patience = 3 * time.Minute

// cluster starts three brokers with a store on disk, without a server between.
func cluster(t *testing.T, settings map[string]string, change ...func(*processes.Options)) (*processes.Cluster, context.Context) {
	t.Helper()
	o := processes.Options{Binary: binary, Settings: map[string]string{}}
	maps.Copy(o.Settings, settings)
	for _, f := range change {
		f(&o)
	}
	return clustertest.Start(t, patience, o)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// load starts producers that the test's end stops at the latest.
func load(t *testing.T, c *processes.Cluster, r *history.Recorder, l history.Load) *history.Running {
	t.Helper()
	l.Bootstrap = c.Bootstrap()
	run, err := history.Start(r, l)
	must(t, err)
	t.Cleanup(func() {
		// After a failure only: nobody waits for the answers any more.
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = run.Stop(ended)
	})
	return run
}

// progress waits until each partition has n more acknowledged records.
func progress(ctx context.Context, r *history.Recorder, partitions int32, n int64) error {
	before := make([]int64, partitions)
	for p := range partitions {
		before[p] = r.AckedIn(p)
	}
	return faults.Until(ctx, "records are acknowledged in every partition", func() error {
		for p := range partitions {
			if r.AckedIn(p) < before[p]+n {
				return fmt.Errorf("partition %d: %d more, expected %d", p, r.AckedIn(p)-before[p], n)
			}
		}
		return nil
	})
}

func all(n int32) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// verify checks a whole history: reads every partition from its leader, then
// kills each broker in turn and reads what it led from the next leader.
func verify(t *testing.T, ctx context.Context, c *processes.Cluster, topic string, partitions int32, r *history.Recorder) {
	t.Helper()
	ops := r.Ops()
	t.Logf("%d calls, %d acknowledged, longest pause %v, errors %v", len(ops), r.Acked(), history.Longest(ops).Round(time.Millisecond), r.Errors())
	leaders, err := faults.Leaders(ctx, c, topic, nil)
	must(t, err)
	logs, err := history.Read(ctx, c.Bootstrap(), topic, all(partitions), ops)
	must(t, err)
	if err := history.Check(ops, logs); err != nil {
		t.Fatalf("on the leaders: %v", err)
	}
	// A read in between may have met a moved leader: what was led where is
	// taken again each time.
	next := map[int32][]history.Entry{}
	for i := range c.Brokers {
		var moved []int32
		for p, b := range leaders {
			if _, done := next[p]; b == i && !done {
				moved = append(moved, p)
			}
		}
		if len(moved) == 0 {
			continue
		}
		must(t, c.Brokers[i].Kill())
		_, err = faults.Leaders(ctx, c, topic, func(_ int32, b int) bool { return b != i })
		must(t, err)
		again, err := history.Read(ctx, c.Bootstrap(), topic, moved, ops)
		must(t, err)
		for p, log := range again {
			next[p] = log
		}
		must(t, faults.Restart(ctx, c, i))
	}
	if len(next) != int(partitions) {
		t.Fatalf("%d of %d partitions were read from a second leader", len(next), partitions)
	}
	if err := history.Check(ops, next); err != nil {
		t.Fatalf("on the next leaders: %v", err)
	}
}
