package faults_test

import (
	"testing"
	"time"

	"thermocline/localstack/faults"
	"thermocline/localstack/faults/history"
)

const partitions = int32(12)

// small segments: tiering, snapshots and trims go on while brokers die.
var smallSegments = map[string]string{"tiering.segment.bytes": "4MiB", "tiering.segment.ms": "2s", "wal.max.bytes": "256MiB", "wal.file.bytes": "8MiB"}

// TestKilledLeaders: the busiest leader dies ten times under load, then all
// brokers at once, and every acknowledged record is where it was acknowledged.
func TestKilledLeaders(t *testing.T) {
	t.Parallel()
	c, ctx := cluster(t, smallSegments)
	must(t, faults.CreateTopic(ctx, c, "killed", partitions, nil))
	r := history.NewRecorder()
	run := load(t, c, r, history.Load{Topic: "killed", Partitions: partitions, Producers: 3, ValueBytes: 200, Rate: 3000, Skip: history.NoSkip})
	must(t, progress(ctx, r, partitions, 50))
	for round := range 10 {
		leaders, err := faults.Leaders(ctx, c, "killed", nil)
		must(t, err)
		victim := faults.Busiest(leaders)
		must(t, c.Brokers[victim].Kill())
		if err := progress(ctx, r, partitions, 20); err != nil {
			t.Fatalf("round %d, broker %d killed: %v", round, victim+1, err)
		}
		must(t, faults.Restart(ctx, c, victim))
	}
	for _, b := range c.Brokers {
		must(t, b.Kill())
	}
	for i := range c.Brokers {
		must(t, c.RestartBroker(i))
	}
	must(t, faults.ReadyAll(ctx, c))
	must(t, progress(ctx, r, partitions, 20))
	must(t, run.Stop(ctx))
	verify(t, ctx, c, "killed", partitions, r)
}

// TestStoppedLeader: a leader that does not run for longer than an election
// takes, and then goes on, acknowledges nothing that the new leader has not.
func TestStoppedLeader(t *testing.T) {
	t.Parallel()
	c, ctx := cluster(t, smallSegments)
	must(t, faults.CreateTopic(ctx, c, "stopped", partitions, nil))
	r := history.NewRecorder()
	run := load(t, c, r, history.Load{Topic: "stopped", Partitions: partitions, Producers: 3, ValueBytes: 200, Rate: 3000, Skip: history.NoSkip})
	must(t, progress(ctx, r, partitions, 50))
	for range 3 {
		leaders, err := faults.Leaders(ctx, c, "stopped", nil)
		must(t, err)
		victim := faults.Busiest(leaders)
		must(t, c.Brokers[victim].Pause())
		// Longer than the election, and until the others lead all.
		pause := time.NewTimer(3 * time.Second)
		err = progress(ctx, r, partitions, 20)
		<-pause.C
		must(t, c.Brokers[victim].Continue())
		must(t, err)
		must(t, progress(ctx, r, partitions, 20))
		must(t, faults.Ready(ctx, c, victim))
	}
	must(t, run.Stop(ctx))
	verify(t, ctx, c, "stopped", partitions, r)
}

// TestRollingRestart: brokers that are stopped by SIGTERM hand over first, so
// that producers see nothing but a refresh.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	c, ctx := cluster(t, smallSegments)
	must(t, faults.CreateTopic(ctx, c, "rolled", partitions, nil))
	r := history.NewRecorder()
	run := load(t, c, r, history.Load{Topic: "rolled", Partitions: partitions, Producers: 3, ValueBytes: 200, Rate: 3000, Skip: history.NoSkip})
	must(t, progress(ctx, r, partitions, 50))
	for i := range c.Brokers {
		must(t, c.Brokers[i].Stop())
		must(t, progress(ctx, r, partitions, 10))
		must(t, faults.Restart(ctx, c, i))
		must(t, progress(ctx, r, partitions, 10))
	}
	must(t, run.Stop(ctx))
	if errs := r.Errors(); len(errs) > 0 {
		t.Errorf("producers saw errors: %v", errs)
	}
	verify(t, ctx, c, "rolled", partitions, r)
}
