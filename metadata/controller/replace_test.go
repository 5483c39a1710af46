package controller

import (
	"reflect"
	"testing"

	"thermocline/metadata"
	"thermocline/metadata/memory"
)

func TestReplacements(t *testing.T) {
	on := func(id, broker int) metadata.Replica {
		return metadata.Replica{ID: metadata.ReplicaID(id), Broker: metadata.BrokerID(broker)}
	}
	plan := func(old, next metadata.Replica) *metadata.Replacement {
		return &metadata.Replacement{Old: old, New: next}
	}
	for _, c := range []struct {
		name  string
		alive bool
		now   int // broker 3's replica
		row   *metadata.Replacement
		want  *metadata.Replacement
	}{
		{"all as it was", true, 103, nil, nil},
		{"gone, not back yet", false, 103, nil, nil},
		{"back, empty, and dead", false, 203, nil, nil},
		{"back and empty", true, 203, nil, plan(on(103, 3), on(203, 3))},
		{"planned already", true, 203, plan(on(103, 3), on(203, 3)), nil},
		{"emptied once more", true, 303, plan(on(103, 3), on(203, 3)), plan(on(103, 3), on(303, 3))},
		{"back with what was lost", true, 103, plan(on(103, 3), on(203, 3)), plan(on(103, 3), on(103, 3))},
		{"taken back already", true, 103, plan(on(103, 3), on(103, 3)), nil},
		{"planned, and dead", false, 203, plan(on(103, 3), on(203, 3)), nil},
	} {
		brokers := []*metadata.Broker{
			{ID: 1, Replica: 101, Alive: true}, {ID: 2, Replica: 102, Alive: true}, {ID: 3, Replica: metadata.ReplicaID(c.now), Alive: c.alive},
		}
		s := &metadata.Shard{ID: 5, Replicas: []metadata.Replica{on(101, 1), on(102, 2), on(103, 3)}, Home: 1, Replacing: c.row}
		got := Replacements(metadata.NewCluster(metadata.ClusterInfo{}, brokers, []*metadata.Shard{s}, nil))
		if c.want == nil && len(got) > 0 || c.want != nil && (len(got) != 1 || !reflect.DeepEqual(got[0].Replacement, *c.want)) {
			t.Errorf("%s: expected %v, found %v", c.name, c.want, got)
		}
	}
}

// A broker that comes back with another data directory is planned into every
// shard of its old one, and the row ends up naming it.
func TestReplacementIsPlannedAndFinished(t *testing.T) {
	ctx := context20(t)
	s := memory.New()
	nodes := []*node{newNode(ctx, t, s, 1, nil), newNode(ctx, t, s, 2, nil), newNode(ctx, t, s, 3, nil)}
	v := nodes[0].view
	waitFor(ctx, t, v, "first shards", func(c *metadata.Cluster) bool { return len(c.Shards) == 6 })
	nodes[2].stop()
	reg, err := metadata.Register(ctx, s, metadata.RegisterOptions{Broker: metadata.Broker{ID: 3, Replica: 203}})
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close(ctx)
	waitFor(ctx, t, v, "plans", func(c *metadata.Cluster) bool {
		for _, sh := range c.Shards {
			if p := sh.Replacing; p == nil || p.Old.ID != 103 || p.New != (metadata.Replica{ID: 203, Broker: 3}) {
				return false
			}
		}
		return true
	})
	if on := v.Cluster().Replicas(203); len(on) != 6 {
		t.Fatalf("shards that the new replica is to host: expected 6, found %d", len(on))
	}
	row, err := metadata.GetShard(ctx, s, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := metadata.FinishReplacement(ctx, s, row); err != nil {
		t.Fatal(err)
	}
	waitFor(ctx, t, v, "the end of the change", func(c *metadata.Cluster) bool {
		sh := c.Shard(1)
		r, ok := sh.On(3)
		return sh.Replacing == nil && ok && r.ID == 203 && len(sh.Replicas) == 3
	})
	if err := metadata.FinishReplacement(ctx, s, row); err == nil {
		t.Fatal("a row that has changed was written over")
	}
}
