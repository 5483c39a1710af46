package broker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"thermocline/metadata"
	"thermocline/wal/shard"
)

// TestGroupSurvivesItsCoordinator: a group's members, who know nothing of it,
// read everything once while the leadership of their coordinator's shard moves,
// and what they committed is where the next member begins.
func TestGroupSurvivesItsCoordinator(t *testing.T) {
	brokers := startBrokers(t, 3)
	addr := brokers[0].KafkaAddr()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const records = 300
	producer := client(t, addr, kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("orders"))
	produce := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if err := producer.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	produce(0, records)
	seen := map[string]int{}
	first := client(t, addr, kgo.ConsumerGroup("shipping"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(), kgo.HeartbeatInterval(100*time.Millisecond))
	consume(ctx, t, first, seen, records)
	if err := first.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	moveCoordinator(ctx, t, brokers, "shipping")
	produce(records, records+50)
	consume(ctx, t, first, seen, records+50)
	if err := first.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatalf("commit at the new coordinator: %v", err)
	}
	first.Close()
	moveCoordinator(ctx, t, brokers, "shipping")
	produce(records+50, records+100)
	second := client(t, addr, kgo.ConsumerGroup("shipping"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit())
	consume(ctx, t, second, seen, records+100)
	for value, times := range seen {
		if times != 1 {
			t.Errorf("record %s was read %d times", value, times)
		}
	}
}

func client(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// consume polls until so many different records were seen.
func consume(ctx context.Context, t *testing.T, c *kgo.Client, seen map[string]int, records int) {
	t.Helper()
	for len(seen) < records {
		fetches := c.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read %d of %d records", len(seen), records)
		}
		fetches.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
	}
}

// moveCoordinator hands the shard of a group's slot to another broker, and
// waits until that one serves the slot.
func moveCoordinator(ctx context.Context, t *testing.T, brokers []*Broker, groupID string) {
	t.Helper()
	slots := brokers[0].view.CoordinatorSlots()
	id := slots[metadata.CoordinatorSlot(groupID, len(slots))]
	leader := func() *Broker {
		for _, b := range brokers {
			if o, ok := b.shards.get(id); ok && o.runner.Leadership().Ready {
				return b
			}
		}
		return nil
	}
	from := leader()
	until(t, func() error {
		if from == nil {
			from = leader()
			return errors.New("the shard has no leader")
		}
		if now := leader(); now != nil && now != from {
			return nil
		}
		o, _ := from.shards.get(id)
		for _, b := range brokers {
			if b != from {
				o.runner.TransferLeader(shard.ReplicaID(b.replica))
				break
			}
		}
		return errors.New("the shard's leadership does not move")
	})
	until(t, func() error {
		if b := leader(); b == nil || b.coordinators.Stats().Serving == 0 {
			return errors.New("the new leader serves no slot")
		}
		return nil
	})
}

// TestCoordinatorsOfAllSlots: once a cluster is there, each slot has one coordinator.
func TestCoordinatorsOfAllSlots(t *testing.T) {
	brokers := startBrokers(t, 3)
	until(t, func() error {
		serving := 0
		for _, b := range brokers {
			serving += b.coordinators.Stats().Serving
		}
		if serving != metadata.CoordinatorSlots {
			return fmt.Errorf("slots: expected %d served, found %d", metadata.CoordinatorSlots, serving)
		}
		return nil
	})
}

func TestMemberIDs(t *testing.T) {
	a, b := newMemberID(), newMemberID()
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if a == b || !uuid.MatchString(a) || !uuid.MatchString(b) {
		t.Fatalf("expected two different UUIDs, found %q and %q", a, b)
	}
}

// TestOffsetsGoWithTheirTopic: what was committed for a topic is forgotten when
// the topic is deleted.
func TestOffsetsGoWithTheirTopic(t *testing.T) {
	brokers := startBrokers(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	admin := kadm.NewClient(client(t, brokers[0].KafkaAddr()))
	var offsets kadm.Offsets
	offsets.AddOffset("bills", 0, 7, -1)
	until(t, func() error {
		if _, err := admin.CreateTopic(ctx, 1, 1, nil, "bills"); err != nil {
			return err
		}
		return nil
	})
	until(t, func() error { return admin.CommitAllOffsets(ctx, "clerks", offsets) })
	fetched := func() int64 {
		t.Helper()
		got, err := admin.FetchOffsets(ctx, "clerks")
		if err != nil {
			t.Fatal(err)
		}
		if o, ok := got.Lookup("bills", 0); ok {
			return o.At
		}
		return -1
	}
	if at := fetched(); at != 7 {
		t.Fatalf("committed: expected 7, found %d", at)
	}
	if _, err := admin.DeleteTopic(ctx, "bills"); err != nil {
		t.Fatal(err)
	}
	until(t, func() error {
		if at := fetched(); at != -1 {
			return fmt.Errorf("committed for a deleted topic: expected nothing, found %d", at)
		}
		return nil
	})
}
