package controller

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"thermocline/metadata"
)

var (
	// ErrNoShards: the cluster is forming, its shards are not made yet. Try again.
	ErrNoShards = errors.New("controller: no shards yet")
	// ErrAssignment: no shard has the broker as home that a partition's
	// assignment asks for as leader.
	ErrAssignment = errors.New("controller: assignment cannot be met")
	// ErrTooFewBrokers: fewer brokers than a shard has replicas.
	ErrTooFewBrokers = errors.New("controller: too few brokers")
)

// InitialShards lays the first shards of a cluster out: perBroker shards at
// home on each broker, homes rotating, so that any run of shards is spread;
// the other replicas rotate too, on racks of their own as far as there are any.
func InitialShards(brokers []*metadata.Broker, perBroker, replicas int) ([]metadata.Shard, error) {
	n := len(brokers)
	if n < replicas || replicas < 1 {
		return nil, fmt.Errorf("initial shards: expected at least %d brokers, found %d: %w", replicas, n, ErrTooFewBrokers)
	}
	if total := perBroker * n; total < 1 || total > metadata.ShardsPerTxnMax {
		return nil, fmt.Errorf("initial shards: expected 1 to %d shards, found %d (%d brokers, %d per broker): %w",
			metadata.ShardsPerTxnMax, total, n, perBroker, metadata.ErrTooLarge)
	}
	order := alternateRacks(brokers)
	shards := make([]metadata.Shard, 0, perBroker*n)
	for i := range perBroker * n {
		// In round k the followers begin k steps further along, so that a
		// broker's shards do not all share the same followers.
		home, round := i%n, i/n
		shards = append(shards, metadata.Shard{
			ID: metadata.ShardID(i + 1), Home: order[home].ID, Replicas: members(order, home, round, replicas),
		})
	}
	return shards, nil
}

// members picks a shard's replicas: the home first, then, in a rotated order,
// brokers of racks that are not in yet, then any.
func members(order []*metadata.Broker, home, round, replicas int) []metadata.Replica {
	n := len(order)
	picked := []metadata.Replica{{ID: order[home].Replica, Broker: order[home].ID}}
	racks := map[string]bool{order[home].Rack: true}
	for _, anyRack := range []bool{false, true} {
		for step := 0; step < n-1 && len(picked) < replicas; step++ {
			b := order[(home+1+(step+round)%(n-1))%n]
			in := slices.ContainsFunc(picked, func(r metadata.Replica) bool { return r.Broker == b.ID })
			if in || racks[b.Rack] && !anyRack {
				continue
			}
			racks[b.Rack] = true
			picked = append(picked, metadata.Replica{ID: b.Replica, Broker: b.ID})
		}
	}
	return picked
}

// alternateRacks orders brokers by id, taking one of each rack in turn.
func alternateRacks(brokers []*metadata.Broker) []*metadata.Broker {
	sorted := slices.Clone(brokers)
	slices.SortFunc(sorted, func(a, b *metadata.Broker) int { return int(a.ID) - int(b.ID) })
	var racks []string
	byRack := map[string][]*metadata.Broker{}
	for _, b := range sorted {
		if byRack[b.Rack] == nil {
			racks = append(racks, b.Rack)
		}
		byRack[b.Rack] = append(byRack[b.Rack], b)
	}
	order := make([]*metadata.Broker, 0, len(sorted))
	for len(order) < len(sorted) {
		for _, rack := range racks {
			if of := byRack[rack]; len(of) > 0 {
				order = append(order, of[0])
				byRack[rack] = of[1:]
			}
		}
	}
	return order
}

// Placement is a question to Place.
type Placement struct {
	// Topic breaks ties: topics begin at different shards.
	Topic metadata.TopicID
	// Existing are the shards of the topic's partitions so far.
	Existing []metadata.ShardID
	// Add is how many partitions to place.
	Add int
	// Leaders, if not nil, asks for the broker that leads each new partition.
	Leaders []metadata.BrokerID
}

// Place chooses the shards of a topic's new partitions: first so that the
// topic is even over brokers and then over shards, since one topic may carry
// all the load; then where fewest partitions are; then in rotation. The same
// question has the same answer.
func Place(c *metadata.Cluster, loads map[metadata.ShardID]int, q Placement) ([]metadata.ShardID, error) {
	if len(c.Shards) == 0 {
		return nil, ErrNoShards
	}
	if q.Leaders != nil && len(q.Leaders) != q.Add {
		return nil, fmt.Errorf("assignment of %d of %d partitions: %w", len(q.Leaders), q.Add, ErrAssignment)
	}
	onShard := map[metadata.ShardID]int{}
	onBroker := map[metadata.BrokerID]int{}
	for _, id := range q.Existing {
		onShard[id]++
		if s := c.Shard(id); s != nil {
			onBroker[s.Home]++
		}
	}
	start := int(binary.BigEndian.Uint32(q.Topic[:4]) % uint32(len(c.Shards)))
	placed := make([]metadata.ShardID, 0, q.Add)
	for i := range q.Add {
		var best *metadata.Shard
		var bestCost [3]int
		for k := range c.Shards {
			s := c.Shards[(start+k)%len(c.Shards)]
			if q.Leaders != nil && s.Home != q.Leaders[i] {
				continue
			}
			cost := [3]int{onBroker[s.Home], onShard[s.ID], loads[s.ID] + onShard[s.ID]}
			if best == nil || slices.Compare(cost[:], bestCost[:]) < 0 {
				best, bestCost = s, cost
			}
		}
		if best == nil {
			return nil, fmt.Errorf("partition %d: no shard is at home on broker %d: %w", len(q.Existing)+i, q.Leaders[i], ErrAssignment)
		}
		onShard[best.ID]++
		onBroker[best.Home]++
		placed = append(placed, best.ID)
	}
	return placed, nil
}
