package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	// Only limits the run to rows whose name contains one of these.
	Only []string
	// Settings are extra broker settings.
	Settings map[string]string
	Out      io.Writer
}

// Row is one line of the table.
type Row struct {
	Name string
	Unit string
	// Values by column; missing ones are shown as a dash.
	Values map[string]float64
	Higher bool // larger is better
	Target string
	Note   string
}

// Columns, in order.
const (
	Ours       = "thermocline"
	KafkaPlain = "kafka"
	KafkaFsync = "kafka fsync"
	Floor      = "machine"
)

// target is a cluster under load: ours, or a peer.
type target struct {
	column string
	seeds  []string
	pids   []int
	close  func() error
}

// Run measures everything asked for and prints the table.
func Run(ctx context.Context, o Options) error {
	if o.Duration == 0 {
		o.Duration = 20 * time.Second
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

// put records one value of a row.
func (r *runner) put(column, name, unit string, v float64, higher bool, target string) {
	row, ok := r.rows[name]
	if !ok {
		row = &Row{Name: name, Unit: unit, Values: map[string]float64{}, Higher: higher, Target: target}
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
		errs = append(errs, r.loads(ctx, t), t.close())
	}
	return errors.Join(errs...)
}

// targets lists what is measured; each is started alone.
func (r *runner) targets() []func(context.Context) (*target, error) {
	list := []func(context.Context) (*target, error){r.ours}
	if r.o.Peer == "kafka" {
		for _, fsync := range []bool{false, true} {
			list = append(list, func(ctx context.Context) (*target, error) { return r.kafka(ctx, fsync) })
		}
	}
	return list
}

func (r *runner) ours(ctx context.Context) (*target, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	start := time.Now()
	settings := map[string]string{"wal.max.bytes": "2GiB", "log.level": "warn"}
	for k, v := range r.o.Settings {
		settings[k] = v
	}
	c, err := processes.Start(ctx, processes.Options{
		Binary: r.o.Binary, Dir: filepath.Join(r.o.Dir, "ours"), StoreDir: r.o.BucketDir, Settings: settings,
	})
	if err != nil {
		return nil, err
	}
	t := &target{column: Ours, seeds: c.Bootstrap(), close: c.Close}
	for _, p := range c.Brokers {
		t.pids = append(t.pids, p.PID())
	}
	return t, r.started(ctx, t, start)
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
	r.put(t.column, "start to first ack", "s", time.Since(start).Seconds(), false, "< 5")
	var resident int64
	for _, pid := range t.pids {
		n, err := ResidentBytes(pid)
		if err != nil {
			return errors.Join(err, t.close())
		}
		resident += n
	}
	r.put(t.column, "memory of three idle brokers", "MiB", float64(resident)/(1<<20), false, "< 500")
	return nil
}
