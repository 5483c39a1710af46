package broker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"thermocline/metadata"
	"thermocline/metadata/controller"
	metadatamemory "thermocline/metadata/memory"
	"thermocline/wal/shard"
)

// clustersTried bounds the clusters of TestNewClusterIsLedAtHome. On a machine
// that stands still for seconds any leader may be lost at any time; that all of a
// cluster's leaders are at home by chance is one case in 27.
const clustersTried = 5

// A new cluster's shards are led by their homes from their first election on,
// so that there is nothing for the balancer to move a few seconds later.
func TestNewClusterIsLedAtHome(t *testing.T) {
	var err error
	for range clustersTried {
		t.Run("cluster", func(t *testing.T) { err = ledAtHome(t, startBrokers(t, 3)) })
		if err == nil {
			return
		}
		t.Logf("tried again: %v", err)
	}
	t.Error(err)
}

// ledAtHome says which shards are not led by their home, in their first term,
// once every broker has heard of all leaders.
func ledAtHome(t *testing.T, brokers []*Broker) error {
	t.Helper()
	var errs []error
	for _, b := range brokers {
		until(t, func() error {
			for _, row := range b.view.Cluster().Shards {
				if _, ok := b.view.Cluster().Leader(row.ID); !ok {
					return fmt.Errorf("broker %d knows of no leader of shard %d", b.id, row.ID)
				}
			}
			return nil
		})
		// A new shard's snapshot is of term 1; its first leader's term follows.
		const first = 2
		c := b.view.Cluster()
		for _, o := range b.shards.all() {
			if l, home := o.runner.Leadership(), homeOf(c.Shard(o.id)); l.Leader != home || l.Term != first {
				errs = append(errs, fmt.Errorf("broker %d, shard %d: replica %d leads in term %d, expected the home, %d, in term %d", b.id, o.id, l.Leader, l.Term, home, first))
			}
		}
		if moves := controller.Balance(c); len(moves) > 0 {
			errs = append(errs, fmt.Errorf("broker %d: expected nothing to be moved, found %v", b.id, moves))
		}
	}
	return errors.Join(errs...)
}

// A broker starts the replicas that are to lead before those that wait for them.
func TestHomesStartFirst(t *testing.T) {
	rows := []*metadata.Shard{{ID: 1, Home: 2}, {ID: 2, Home: 1}, {ID: 3, Home: 3}, {ID: 4, Home: 1}}
	var order []metadata.ShardID
	for _, row := range homesFirst(rows, 1) {
		order = append(order, row.ID)
	}
	if fmt.Sprint(order) != "[2 4 1 3]" {
		t.Errorf("expected the shards at home first, found %v", order)
	}
	row := &metadata.Shard{Home: 2, Replicas: []metadata.Replica{{ID: 11, Broker: 1}, {ID: 12, Broker: 2}}}
	if h := homeOf(row); h != shard.ReplicaID(12) {
		t.Errorf("expected replica 12 as the home, found %d", h)
	}
	if row.Home = 3; homeOf(row) != 0 {
		t.Errorf("expected no home where it has no replica, found %d", homeOf(row))
	}
}

// The answer to who makes a topic waits for its shards' first leaders, and
// for no others; without leaders it comes all the same.
func TestNewTopicWaitsForLeaders(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store := metadatamemory.New()
	view, err := metadata.OpenView(ctx, store, metadata.ViewOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	lease, err := store.Lease(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	fence, err := metadata.Campaign(ctx, store, 1, lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	home := []metadata.Replica{{ID: 7, Broker: 1}}
	rev, err := metadata.CreateShards(ctx, store, fence, []metadata.Shard{
		{ID: 1, Home: 1, Replicas: home}, {ID: 2, Home: 1, Replicas: home}, {ID: 3, Home: 1, Replicas: home},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := view.Wait(ctx, rev); err != nil {
		t.Fatal(err)
	}
	if n := len(view.Cluster().Shards); n != 3 {
		t.Fatalf("expected 3 shards, found %d", n)
	}
	c := &cluster{view: view, store: store}
	lead := func(id metadata.ShardID) {
		if err := metadata.WriteHint(ctx, store, metadata.LeaderHint{Shard: id, Broker: 1, Term: 2}); err != nil {
			t.Fatal(err)
		}
	}
	returned := make(chan bool, 1)
	go func() {
		c.waitLeaders(ctx, []metadata.ShardID{1, 2, 1}, time.Minute)
		_, one := view.Cluster().Leader(1)
		_, two := view.Cluster().Leader(2)
		returned <- one && two
	}()
	lead(1)
	lead(2)
	if both := <-returned; !both {
		t.Error("expected the answer to wait for the leaders of shards 1 and 2")
	}
	short, stop := context.WithTimeout(ctx, 40*time.Millisecond) // of which a quarter is waited
	defer stop()
	c.waitLeaders(short, []metadata.ShardID{3}, time.Minute)
	if _, led := view.Cluster().Leader(3); led {
		t.Error("shard 3 has a leader: nobody said so")
	}
}
