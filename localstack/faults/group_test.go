package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"thermocline/localstack/faults"
	"thermocline/localstack/faults/history"
	"thermocline/localstack/faults/members"
	"thermocline/localstack/processes"
)

// protocols are the two that a consumer may speak.
var protocols = []struct {
	name string
	next bool
}{{"classic", false}, {"consumer", true}}

// TestGroupsWhileBrokersDie: groups of four members of each protocol read 12
// partitions while producers write and brokers are killed in turn, group
// coordinators with them. No record is skipped, repetitions begin where the
// group had committed, and the lag returns to zero.
func TestGroupsWhileBrokersDie(t *testing.T) {
	t.Parallel()
	c, ctx := cluster(t, smallSegments)
	must(t, faults.CreateTopic(ctx, c, "grouped", partitions, nil))
	made := history.NewRecorder()
	run := load(t, c, made, history.Load{Topic: "grouped", Partitions: partitions, Producers: 2, ValueBytes: 100, Rate: 1000, Skip: history.NoSkip})
	groups := map[string]*members.Recorder{}
	for _, protocol := range protocols {
		r := members.NewRecorder()
		groups[protocol.name] = r
		for i := range 4 {
			member(t, r, members.Options{
				Bootstrap: c.Bootstrap(), Group: protocol.name, Topic: "grouped",
				Name: fmt.Sprintf("%s-%d", protocol.name, i), NextGeneration: protocol.next,
			})
		}
	}
	must(t, reading(ctx, groups, 1000))
	for i := range c.Brokers {
		must(t, c.Brokers[i].Kill())
		if err := reading(ctx, groups, 2000); err != nil {
			t.Fatalf("broker %d killed: %v", i+1, err)
		}
		must(t, faults.Restart(ctx, c, i))
		must(t, reading(ctx, groups, 500))
	}
	must(t, run.Stop(ctx))
	settle(t, ctx, c, "grouped", groups)
}

// TestGroupMembersComeAndGo: members of both protocols join, leave, hang and
// crash at random. No two that never hung own a partition at one time, and a
// former owner's commits are refused.
func TestGroupMembersComeAndGo(t *testing.T) {
	t.Parallel()
	c, ctx := cluster(t, map[string]string{
		"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000",
		"group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "3000",
		"group.consumer.min.heartbeat.interval.ms": "200", "group.consumer.heartbeat.interval.ms": "300",
	})
	must(t, faults.CreateTopic(ctx, c, "churned", partitions, nil))
	made := history.NewRecorder()
	run := load(t, c, made, history.Load{Topic: "churned", Partitions: partitions, Producers: 1, ValueBytes: 100, Rate: 1000, Skip: history.NoSkip})
	groups := map[string]*members.Recorder{}
	for _, protocol := range protocols {
		groups[protocol.name] = members.NewRecorder()
	}
	errs := make(chan error, len(protocols))
	for seed, protocol := range protocols {
		go func() {
			errs <- churn(t, ctx, groups[protocol.name], rand.New(rand.NewPCG(uint64(seed), 1)), members.Options{
				Bootstrap: c.Bootstrap(), Group: protocol.name, Topic: "churned", NextGeneration: protocol.next, Session: 3 * time.Second,
			})
		}()
	}
	for range protocols {
		must(t, <-errs)
	}
	must(t, run.Stop(ctx))
	settle(t, ctx, c, "churned", groups)
}

// churn changes a group's members some thirty times, and leaves three.
func churn(t *testing.T, ctx context.Context, r *members.Recorder, rng *rand.Rand, o members.Options) error {
	var live, frozen, every []*members.Member
	started := 0
	var leaving sync.WaitGroup
	defer leaving.Wait()
	t.Cleanup(func() {
		for i, m := range every {
			if t.Failed() {
				t.Logf("%s-%d: owns %v, errors %v", o.Group, i, m.Owned(), m.Errors())
			}
		}
	})
	start := func() error {
		o.Name = fmt.Sprintf("%s-%d", o.Group, started)
		started++
		m, err := members.Start(r, o)
		if err == nil {
			live, every = append(live, m), append(every, m)
		}
		return err
	}
	take := func(from *[]*members.Member) *members.Member {
		i := rng.IntN(len(*from))
		m := (*from)[i]
		*from = append((*from)[:i], (*from)[i+1:]...)
		return m
	}
	for range 4 {
		if err := start(); err != nil {
			return err
		}
	}
	pause := time.NewTicker(500 * time.Millisecond)
	defer pause.Stop()
	for range 30 {
		switch rng.IntN(5) {
		case 0, 1:
			if len(live) < 8 {
				if err := start(); err != nil {
					return err
				}
			}
		case 2:
			if len(live) > 2 {
				leaving.Go(take(&live).Leave)
			}
		case 3:
			if len(live) > 2 && len(frozen) < 3 {
				m := take(&live)
				m.Freeze()
				frozen = append(frozen, m)
			} else if len(frozen) > 0 {
				m := take(&frozen)
				m.Thaw()
				live = append(live, m)
			}
		case 4:
			if len(live) > 2 {
				take(&live).Crash()
			}
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for _, m := range frozen {
		m.Crash()
	}
	for len(live) < 3 {
		if err := start(); err != nil {
			return err
		}
	}
	for _, m := range live {
		t.Cleanup(m.Leave)
	}
	return nil
}

// member starts a member that leaves at the test's end.
func member(t *testing.T, r *members.Recorder, o members.Options) *members.Member {
	t.Helper()
	m, err := members.Start(r, o)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s: owns %v, errors %v", o.Name, m.Owned(), m.Errors())
		}
		m.Leave()
	})
	return m
}

// reading waits until each group has read n more records.
func reading(ctx context.Context, groups map[string]*members.Recorder, n int64) error {
	before := map[string]int64{}
	for name, r := range groups {
		before[name] = r.Total()
	}
	return faults.Until(ctx, "the groups read on", func() error {
		for name, r := range groups {
			if r.Total() < before[name]+n {
				return fmt.Errorf("group %s: %d more records, expected %d", name, r.Total()-before[name], n)
			}
		}
		return nil
	})
}

// settle waits until no group has a lag, then checks the histories.
func settle(t *testing.T, ctx context.Context, c *processes.Cluster, topic string, groups map[string]*members.Recorder) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.MetadataMinAge(100*time.Millisecond))
	must(t, err)
	defer cl.Close()
	admin := kadm.NewClient(cl)
	ends, err := admin.ListEndOffsets(ctx, topic)
	must(t, errors.Join(err, ends.Error()))
	log := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) { log[o.Partition] = o.Offset })
	for name, r := range groups {
		must(t, faults.Until(ctx, "the lag of group "+name+" is zero", func() error { return lag(ctx, admin, name, topic, log) }))
		h := r.History()
		t.Logf("group %s: %d records read of %d, %d intervals, %d commits", name, r.Total(), total(log), len(h.Intervals), len(h.Commits))
		if err := members.Check(h, log); err != nil {
			t.Errorf("group %s: %v", name, err)
		}
	}
}

// lag tells what a group has left to commit.
func lag(ctx context.Context, admin *kadm.Client, group, topic string, ends map[int32]int64) error {
	committed, err := admin.FetchOffsets(ctx, group)
	if err = errors.Join(err, committed.Error()); err != nil {
		return err
	}
	left := int64(0)
	for p, end := range ends {
		o, _ := committed.Lookup(topic, p)
		left += end - max(o.At, 0)
	}
	if left != 0 {
		return fmt.Errorf("%d records of %d are left", left, total(ends))
	}
	return nil
}

func total(ends map[int32]int64) int64 {
	n := int64(0)
	for _, e := range ends {
		n += e
	}
	return n
}
