package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"thermocline/metadata"
)

// brokers makes n live brokers; racks, if any, are given to them in turn.
func brokers(n int, racks ...string) []*metadata.Broker {
	var out []*metadata.Broker
	for i := range n {
		b := &metadata.Broker{ID: metadata.BrokerID(i + 1), Replica: metadata.ReplicaID(100 + i + 1), Epoch: 1, Alive: true}
		if len(racks) > 0 {
			b.Rack = racks[i%len(racks)]
		}
		out = append(out, b)
	}
	return out
}

func draw(shards []metadata.Shard) string {
	var lines []string
	for _, s := range shards {
		var on []string
		for _, r := range s.Replicas {
			on = append(on, fmt.Sprint(r.Broker))
		}
		lines = append(lines, fmt.Sprintf("%d: %s", s.ID, strings.Join(on, " ")))
	}
	return strings.Join(lines, "\n")
}

func TestInitialShards(t *testing.T) {
	tests := []struct {
		name                string
		brokers             []*metadata.Broker
		perBroker, replicas int
		want                string // shard: home and other replicas
		err                 error
	}{
		{"one broker", brokers(1), 2, 1, "1: 1\n2: 1", nil},
		{"three brokers", brokers(3), 2, 3, "1: 1 2 3\n2: 2 3 1\n3: 3 1 2\n4: 1 3 2\n5: 2 1 3\n6: 3 2 1", nil},
		{"five brokers, three replicas", brokers(5), 1, 3, "1: 1 2 3\n2: 2 3 4\n3: 3 4 5\n4: 4 5 1\n5: 5 1 2", nil},
		{"racks of two", brokers(4, "a", "a", "b", "b"), 1, 2, "1: 1 3\n2: 3 2\n3: 2 4\n4: 4 1", nil},
		{"fewer racks than replicas", brokers(3, "a", "a", "b"), 1, 3, "1: 1 3 2\n2: 3 2 1\n3: 2 3 1", nil},
		{"too few brokers", brokers(2), 2, 3, "", ErrTooFewBrokers},
		{"too many shards", brokers(64), 2, 3, "", metadata.ErrTooLarge},
		{"no shards", brokers(3), 0, 3, "", metadata.ErrTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := InitialShards(tt.brokers, tt.perBroker, tt.replicas)
			if !errors.Is(err, tt.err) {
				t.Fatalf("expected error %v, found %v", tt.err, err)
			}
			if drawn := draw(got); drawn != tt.want {
				t.Fatalf("expected\n%s\nfound\n%s", tt.want, drawn)
			}
		})
	}
}

// Whatever the sizes: homes and replicas are even, replicas are distinct, and
// the order in which brokers are listed does not matter.
func TestInitialShardsAreEven(t *testing.T) {
	for n := 1; n <= 12; n++ {
		for per := 1; per <= 4; per++ {
			for replicas := 1; replicas <= min(n, 5); replicas++ {
				bs := brokers(n)
				shards, err := InitialShards(bs, per, replicas)
				if err != nil {
					t.Fatal(err)
				}
				homes, on := map[metadata.BrokerID]int{}, map[metadata.BrokerID]int{}
				for _, s := range shards {
					homes[s.Home]++
					seen := map[metadata.BrokerID]bool{}
					for _, r := range s.Replicas {
						on[r.Broker]++
						seen[r.Broker] = true
					}
					if len(seen) != replicas || s.Replicas[0].Broker != s.Home {
						t.Fatalf("n=%d per=%d r=%d: shard %+v", n, per, replicas, s)
					}
				}
				for _, b := range bs {
					if homes[b.ID] != per || on[b.ID] != per*replicas {
						t.Fatalf("n=%d per=%d r=%d: broker %d is home of %d and has %d replicas", n, per, replicas, b.ID, homes[b.ID], on[b.ID])
					}
				}
				slices.Reverse(bs)
				again, err := InitialShards(bs, per, replicas)
				if err != nil || draw(again) != draw(shards) {
					t.Fatalf("n=%d per=%d r=%d: the order of brokers matters: %v", n, per, replicas, err)
				}
			}
		}
	}
}

// cluster is n brokers with per shards each, and hints as given.
func cluster(t *testing.T, n, per int, hints ...metadata.LeaderHint) *metadata.Cluster {
	t.Helper()
	bs := brokers(n)
	shards, err := InitialShards(bs, per, min(n, 3))
	if err != nil {
		t.Fatal(err)
	}
	var ptrs []*metadata.Shard
	for i := range shards {
		ptrs = append(ptrs, &shards[i])
	}
	return metadata.NewCluster(metadata.ClusterInfo{}, bs, ptrs, hints)
}

func TestPlace(t *testing.T) {
	three := cluster(t, 3, 2) // shards 1..6, homes 1 2 3 1 2 3
	id := func(b byte) metadata.TopicID { return metadata.TopicID{0, 0, 0, b} }
	tests := []struct {
		name  string
		loads map[metadata.ShardID]int
		q     Placement
		want  []metadata.ShardID
		err   error
	}{
		{"over brokers first", nil, Placement{Add: 6}, []metadata.ShardID{1, 2, 3, 4, 5, 6}, nil},
		{"begins by id", nil, Placement{Topic: id(4), Add: 3}, []metadata.ShardID{5, 6, 1}, nil},
		{"few go where least is", map[metadata.ShardID]int{1: 9, 2: 9, 3: 9, 4: 1, 5: 9, 6: 9}, Placement{Add: 1}, []metadata.ShardID{4}, nil},
		{"loads do not unbalance a topic", map[metadata.ShardID]int{1: 900}, Placement{Add: 6}, []metadata.ShardID{2, 3, 4, 5, 6, 1}, nil},
		{"grows evenly", nil, Placement{Existing: []metadata.ShardID{1, 2}, Add: 2}, []metadata.ShardID{3, 4}, nil},
		{"follows an assignment", nil, Placement{Add: 3, Leaders: []metadata.BrokerID{2, 2, 1}}, []metadata.ShardID{2, 5, 1}, nil},
		{"unknown broker", nil, Placement{Add: 1, Leaders: []metadata.BrokerID{9}}, nil, ErrAssignment},
		{"assignment of another length", nil, Placement{Add: 2, Leaders: []metadata.BrokerID{1}}, nil, ErrAssignment},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 { // twice: the answer does not depend on map order
				got, err := Place(three, tt.loads, tt.q)
				if !errors.Is(err, tt.err) || !slices.Equal(got, tt.want) {
					t.Fatalf("expected %v, %v, found %v, %v", tt.want, tt.err, got, err)
				}
			}
		})
	}
	if _, err := Place(metadata.NewCluster(metadata.ClusterInfo{}, nil, nil, nil), nil, Placement{Add: 1}); !errors.Is(err, ErrNoShards) {
		t.Fatalf("no shards: expected ErrNoShards, found %v", err)
	}
}

// Many small topics end up evenly, since ties begin at different shards and
// loads count.
func TestPlaceManyTopics(t *testing.T) {
	c := cluster(t, 3, 2)
	loads := map[metadata.ShardID]int{}
	for i := range 1000 {
		got, err := Place(c, loads, Placement{Topic: metadata.TopicID{byte(i), byte(i >> 8), byte(i * 7)}, Add: 1 + i%4})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range got {
			loads[s]++
		}
	}
	low, high := loads[1], loads[1]
	for _, n := range loads {
		low, high = min(low, n), max(high, n)
	}
	if high-low > 10 {
		t.Fatalf("partitions per shard: expected them within 10, found %v", loads)
	}
}
