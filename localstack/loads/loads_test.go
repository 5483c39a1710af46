//go:build loads

package loads

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"thermocline/localstack/faults"
	"thermocline/localstack/processes"
)

// members is how many members one group has, partitions they read, and groups of
// one member there are.
var members = flag.Int("members", 1000, "members of one group, partitions that it reads, groups of one member")

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "thermocline-loads")
	if err == nil {
		binary, err = faults.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func cluster(t *testing.T) (*processes.Cluster, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	dir := t.TempDir()
	c, err := processes.Start(ctx, processes.Options{Binary: binary, Dir: dir, Settings: map[string]string{"store.url": "file://" + filepath.Join(dir, "bucket")}})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	must(t, faults.ReadyAll(ctx, c))
	return c, ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// consumer is a client with the partitions that it has at the moment.
type consumer struct {
	cl    *kgo.Client
	owned atomic.Int64
	read  atomic.Int64
	moved atomic.Int64 // partitions that it was given or that were taken from it
}

// witness counts what the clients say of sessions that end, by reason.
type witness struct {
	mu   sync.Mutex
	said map[string]int
}

func (w *witness) Level() kgo.LogLevel { return kgo.LogLevelInfo }

// Log implements kgo.Logger.
func (w *witness) Log(_ kgo.LogLevel, msg string, keyvals ...any) {
	switch msg {
	case "heartbeat errored", "forced rejoin quitting heartbeat loop", "group manage loop errored":
	default:
		return
	}
	for i := 0; i+1 < len(keyvals); i += 2 {
		if key := keyvals[i]; key == "err" || key == "why" {
			msg += fmt.Sprintf(": %v", keyvals[i+1])
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said[msg]++
}

// take returns what was said since the last take.
func (w *witness) take() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = map[string]int{}
	return said
}

func consume(ctx context.Context, t *testing.T, wg *sync.WaitGroup, c *processes.Cluster, group, topic string, next bool, log kgo.Logger) *consumer {
	t.Helper()
	m := &consumer{}
	count := func(sign int64) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			m.owned.Add(sign * int64(len(parts[topic])))
			m.moved.Add(int64(len(parts[topic])))
		}
	}
	if next {
		ctx = context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true) //nolint:staticcheck // the client looks for this string
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.WithContext(ctx),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(5*time.Second), kgo.FetchMaxWait(5*time.Second),
		kgo.OnPartitionsAssigned(count(1)), kgo.OnPartitionsRevoked(count(-1)), kgo.OnPartitionsLost(count(-1)),
		kgo.MaxConcurrentFetches(1), kgo.WithLogger(log))
	must(t, err)
	m.cl = cl
	wg.Go(func() {
		for ctx.Err() == nil {
			m.read.Add(int64(cl.PollFetches(ctx).NumRecords()))
		}
	})
	return m
}

// closeAll leaves with bounded parallelism.
func closeAll(list []*consumer) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 50)
	for _, m := range list {
		slots <- struct{}{}
		wg.Go(func() {
			m.cl.Close()
			<-slots
		})
	}
	wg.Wait()
}

func sum(list []*consumer, of func(*consumer) int64) int64 {
	n := int64(0)
	for _, m := range list {
		n += of(m)
	}
	return n
}

func owned(m *consumer) int64 { return m.owned.Load() }
func read(m *consumer) int64  { return m.read.Load() }

// TestThousandMembers: one group of a thousand members over a thousand partitions.
func TestThousandMembers(t *testing.T) {
	for _, next := range []bool{false, true} {
		t.Run(map[bool]string{false: "classic", true: "consumer"}[next], func(t *testing.T) { thousandMembers(t, next) })
	}
}

func thousandMembers(t *testing.T, next bool) {
	thousand := *members
	c, ctx := cluster(t)
	must(t, faults.CreateTopic(ctx, c, "wide", int32(thousand), nil))
	fill(t, ctx, c, "wide", int32(thousand))
	var wg sync.WaitGroup
	polling, stop := context.WithCancel(ctx)
	defer wg.Wait()
	defer stop()
	var list []*consumer
	said := &witness{said: map[string]int{}}
	begun := time.Now()
	for range thousand {
		list = append(list, consume(polling, t, &wg, c, "crowd", "wide", next, said))
	}
	balanced := func(members int) func() error {
		return func() error {
			if n := sum(list, owned); n != int64(thousand) {
				return fmt.Errorf("%d partitions of %d are owned", n, thousand)
			}
			for _, m := range list[:members] {
				if n := m.owned.Load(); n < 1 {
					return fmt.Errorf("a member owns %d partitions", n)
				}
			}
			return nil
		}
	}
	must(t, faults.Until(ctx, "every member owns one partition", balanced(thousand)))
	t.Logf("members started to all balanced: %v", time.Since(begun).Round(time.Millisecond))
	must(t, faults.Until(ctx, "everything is read", func() error {
		if n := sum(list, read); n < int64(thousand) {
			return fmt.Errorf("%d records", n)
		}
		return nil
	}))
	begun = time.Now()
	gone := list[thousand-10:]
	list = list[:thousand-10]
	closeAll(gone)
	must(t, faults.Until(ctx, "the others own all", balanced(len(list))))
	t.Logf("ten members left to all balanced: %v", time.Since(begun).Round(time.Millisecond))

	must(t, faults.Until(ctx, "the rebalance is over", func() error { return stable(ctx, c, "crowd", next) }))
	victim := coordinator(t, ctx, c, "crowd")
	said.take()
	moves := sum(list, func(m *consumer) int64 { return m.moved.Load() })
	begun = time.Now()
	must(t, c.Brokers[victim].Kill())
	must(t, faults.Until(ctx, "another broker coordinates", func() error { return stable(ctx, c, "crowd", next) }))
	t.Logf("coordinator killed to its successor tells of a stable group: %v", time.Since(begun).Round(time.Millisecond))
	fill(t, ctx, c, "wide", int32(thousand))
	must(t, faults.Until(ctx, "everything is read after the coordinator died", func() error {
		if n := sum(list, read); n < int64(2*thousand-20) {
			return fmt.Errorf("%d records", n)
		}
		return nil
	}))
	t.Logf("coordinator killed to %d records written and read: %v; partitions that moved: %d; sessions that ended: %v", thousand, time.Since(begun).Round(time.Millisecond),
		sum(list, func(m *consumer) int64 { return m.moved.Load() })-moves, said.take())
	begun = time.Now()
	stop()
	closeAll(list)
	t.Logf("all left: %v", time.Since(begun).Round(time.Millisecond))
}

// TestThousandGroups: a thousand groups of one member read one topic.
func TestThousandGroups(t *testing.T) {
	thousand := *members
	c, ctx := cluster(t)
	must(t, faults.CreateTopic(ctx, c, "shared", 3, nil))
	fill(t, ctx, c, "shared", 3)
	var wg sync.WaitGroup
	polling, stop := context.WithCancel(ctx)
	defer wg.Wait()
	defer stop()
	var list []*consumer
	said := &witness{said: map[string]int{}}
	begun := time.Now()
	for i := range thousand {
		list = append(list, consume(polling, t, &wg, c, fmt.Sprintf("group-%03d", i), "shared", i%2 == 1, said))
	}
	all := func(n int64) func() error {
		return func() error {
			for i, m := range list {
				if m.read.Load() < n {
					return fmt.Errorf("group %d has read %d records of %d", i, m.read.Load(), n)
				}
			}
			return nil
		}
	}
	must(t, faults.Until(ctx, "every group has read", all(3)))
	t.Logf("groups started to all have read: %v", time.Since(begun).Round(time.Millisecond))
	begun = time.Now()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...))
	must(t, err)
	defer cl.Close()
	listed, err := kadm.NewClient(cl).ListGroups(ctx)
	must(t, err)
	if len(listed) != thousand {
		t.Errorf("%d groups are listed, expected %d", len(listed), thousand)
	}
	t.Logf("listing %d groups: %v", len(listed), time.Since(begun).Round(time.Millisecond))
	begun = time.Now()
	said.take()
	must(t, c.Brokers[0].Kill())
	fill(t, ctx, c, "shared", 3)
	t.Logf("broker killed to three records written: %v", time.Since(begun).Round(time.Millisecond))
	must(t, faults.Until(ctx, "every group goes on after a broker died", all(6)))
	t.Logf("broker killed to all groups have read on: %v; sessions that ended: %v", time.Since(begun).Round(time.Millisecond), said.take())
	stop()
	closeAll(list)
}

// fill writes one record to each partition.
func fill(t *testing.T, ctx context.Context, c *processes.Cluster, topic string, partitions int32) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(t, err)
	defer cl.Close()
	var records []*kgo.Record
	for p := range partitions {
		records = append(records, &kgo.Record{Partition: p, Value: []byte("v")})
	}
	must(t, cl.ProduceSync(ctx, records...).FirstErr())
}

// stable tells what is wrong with a group whose members are to have their
// assignments.
func stable(ctx context.Context, c *processes.Cluster, group string, next bool) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...))
	if err != nil {
		return err
	}
	defer cl.Close()
	state, adm := "", kadm.NewClient(cl)
	if next {
		described, asked := adm.DescribeConsumerGroups(ctx, group)
		state, err = described[group].State, errors.Join(asked, described.Error())
	} else {
		described, asked := adm.DescribeGroups(ctx, group)
		state, err = described[group].State, errors.Join(asked, described.Error())
	}
	if err == nil && state != "Stable" {
		err = fmt.Errorf("group %s is %s", group, state)
	}
	return err
}

// coordinator is the number of the broker that coordinates a group.
func coordinator(t *testing.T, ctx context.Context, c *processes.Cluster, group string) int {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...))
	must(t, err)
	defer cl.Close()
	found := kadm.NewClient(cl).FindGroupCoordinators(ctx, group)
	must(t, found.Error())
	return int(found[group].NodeID) - 1
}
