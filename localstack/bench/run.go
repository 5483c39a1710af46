package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"thermocline/localstack/processes"
)

// Options of a run.
type Options struct {
	// Binary is the thermocline executable, also started for the bare nodes.
	Binary string
	// Dir holds the brokers' data: on the disk that is to be measured.
	Dir string
	// BucketDir holds the bucket. By default it is in memory (/dev/shm), since
	// three brokers and a store on one disk are not what users have.
	BucketDir string
	// Peer is "kafka" to measure Apache Kafka beside, or empty.
	Peer string
	// KafkaLibs is where Apache Kafka's jars are kept.
	KafkaLibs string
	// Duration of each load.
	Duration time.Duration
	// Quick shrinks what takes minutes: the figures are for comparing two
	// versions, not for judging one.
	Quick bool
	// Only limits the run to rows whose name contains one of these.
	Only []string
	// Settings are extra broker settings.
	Settings map[string]string
	Out      io.Writer
}

// target is a cluster under load: ours, or a peer.
type target struct {
	column string
	seeds  []string
	pids   []int
	close  func() error
}

// joinClose closes a cluster and joins the errors.
func joinClose(err error, t *target) error { return errors.Join(err, t.close()) }

// Run measures everything asked for and prints the table.
func Run(ctx context.Context, o Options) error {
	if o.Duration == 0 {
		o.Duration = 20 * time.Second
		if o.Quick {
			o.Duration = 5 * time.Second
		}
	}
	if o.BucketDir == "" {
		dir, err := os.MkdirTemp("/dev/shm", "thermocline-bench-")
		if err != nil {
			return fmt.Errorf("bench: a bucket in memory (name a directory with --bucket to do without): %w", err)
		}
		defer os.RemoveAll(dir)
		o.BucketDir = dir
	}
	dir, err := os.MkdirTemp(o.Dir, "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o.Dir = dir
	r := &runner{o: o, rows: map[string]*Row{}}
	r.say("bucket in %s, brokers' data in %s, %v per load", o.BucketDir, dir, o.Duration)
	if o.Quick {
		r.say("quick: short loads, fewer partitions, rounds and segments than the budget's rows say")
	}
	err = r.all(ctx)
	r.print()
	return err
}

type runner struct {
	o     Options
	rows  map[string]*Row
	order []string
}

func (r *runner) say(format string, args ...any) { fmt.Fprintf(r.o.Out, "# "+format+"\n", args...) }

func (r *runner) wanted(name string) bool {
	return len(r.o.Only) == 0 || slices.ContainsFunc(r.o.Only, func(s string) bool { return strings.Contains(name, s) })
}

// wantedAny tells whether any of the rows is asked for.
func (r *runner) wantedAny(names ...string) bool { return slices.ContainsFunc(names, r.wanted) }

// put records one value of a row.
func (r *runner) put(column, name, unit string, v float64, higher bool) {
	row, ok := r.rows[name]
	if !ok {
		row = &Row{Name: name, Unit: unit, Values: map[string]float64{}, Higher: higher}
		r.rows[name] = row
		r.order = append(r.order, name)
	}
	row.Values[column] = v
	r.say("%s: %s %.4g %s", column, name, v, unit)
}

func (r *runner) all(ctx context.Context) error {
	if err := r.machine(ctx); err != nil {
		return err
	}
	var errs []error
	for _, open := range r.targets() {
		t, err := open(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		err = r.settled(ctx, t.seeds)
		if err == nil {
			err = r.loads(ctx, t)
		}
		errs = append(errs, err, t.close())
	}
	for _, own := range []func(context.Context) error{r.tieringOff, r.replays, r.many, r.state, r.lookups} {
		if ctx.Err() != nil {
			break
		}
		errs = append(errs, own(ctx))
	}
	return errors.Join(errs...)
}

// targets lists what is measured; each is started alone.
func (r *runner) targets() []func(context.Context) (*target, error) {
	var list []func(context.Context) (*target, error)
	if !r.wantedAny(mainRows...) {
		return nil
	}
	list = append(list, r.ours)
	if r.o.Peer == "kafka" {
		for _, fsync := range []bool{false, true} {
			list = append(list, func(ctx context.Context) (*target, error) { return r.kafka(ctx, fsync) })
		}
	}
	return list
}

// ours is the cluster of the main loads, with tiering on.
func (r *runner) ours(ctx context.Context) (*target, error) {
	start := time.Now()
	t, err := r.cluster(ctx, "ours", nil)
	if err != nil {
		return nil, err
	}
	return t, r.started(ctx, t, start)
}

// cluster starts three brokers with settings of their own beside those of the
// run, and a store process unless a setting names a store.
func (r *runner) cluster(ctx context.Context, name string, own map[string]string) (*target, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	settings := map[string]string{"wal.max.bytes": "2GiB", "log.level": "warn"}
	maps.Copy(settings, own)
	maps.Copy(settings, r.o.Settings)
	dir := filepath.Join(r.o.Dir, name)
	c, err := processes.Start(ctx, processes.Options{
		Binary: r.o.Binary, Dir: dir, StoreDir: filepath.Join(r.o.BucketDir, name), Settings: settings,
	})
	if err != nil {
		return nil, err
	}
	t := &target{column: Ours, seeds: c.Bootstrap()}
	t.close = func() error {
		// What a cluster leaves would only take the next one's disk and memory.
		return errors.Join(c.Close(), os.RemoveAll(dir), os.RemoveAll(filepath.Join(r.o.BucketDir, name)))
	}
	for _, p := range c.Brokers {
		t.pids = append(t.pids, p.PID())
	}
	return t, nil
}

// settledCluster is cluster with the leaders where they stay.
func (r *runner) settledCluster(ctx context.Context, name string, own map[string]string) (*target, error) {
	t, err := r.cluster(ctx, name, own)
	if err != nil {
		return nil, err
	}
	if err := r.settled(ctx, t.seeds); err != nil {
		return nil, joinClose(err, t)
	}
	return t, nil
}

func (r *runner) kafka(ctx context.Context, fsync bool) (*target, error) {
	libs, err := KafkaJars(ctx, r.o.KafkaLibs)
	if err != nil {
		return nil, err
	}
	column, dir := KafkaPlain, "kafka"
	if fsync {
		column, dir = KafkaFsync, "kafka-fsync"
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	start := time.Now()
	k, err := StartKafka(ctx, libs, filepath.Join(r.o.Dir, dir), fsync)
	if err != nil {
		return nil, err
	}
	t := &target{column: column, seeds: k.Bootstrap(), pids: k.PIDs(), close: k.Close}
	return t, r.started(ctx, t, start)
}

// started measures from the start of the first process to the first ack, and
// the memory of the idle cluster.
func (r *runner) started(ctx context.Context, t *target, start time.Time) error {
	if err := CreateTopic(ctx, t.seeds, "first", 1); err != nil {
		return errors.Join(err, t.close())
	}
	if _, err := Produce(ctx, t.seeds, Load{Topic: "first", RecordBytes: 100, Duration: time.Millisecond}, t.pids); err != nil {
		return errors.Join(err, t.close())
	}
	r.put(t.column, rowStart, "s", time.Since(start).Seconds(), false)
	var resident int64
	for _, pid := range t.pids {
		n, err := ResidentBytes(pid)
		if err != nil {
			return errors.Join(err, t.close())
		}
		resident += n
	}
	r.put(t.column, rowIdle, "MiB", float64(resident)/(1<<20), false)
	return nil
}

// settleWithin is how long leaders may take to be spread over the brokers.
const settleWithin = time.Minute

// settled waits until every broker leads as much as the others: a change of
// leader in the middle of a load would be what the load measures. It says so
// when that does not come about.
func (r *runner) settled(ctx context.Context, seeds []string) error {
	const topic = "settled"
	if err := CreateTopic(ctx, seeds, topic, partitions); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		leaders, _, err := partitionLeaders(within, seeds, topic)
		even := err == nil && len(leaders) == len(seeds)
		for _, led := range leaders {
			even = even && len(led) == partitions/len(seeds)
		}
		if even {
			r.say("leaders are spread over the brokers")
			return nil
		}
		select {
		case <-within.Done():
			r.say("leaders are not spread over the brokers after %v: %v, %v", settleWithin, leaders, err)
			return ctx.Err()
		case <-tick.C:
		}
	}
}
