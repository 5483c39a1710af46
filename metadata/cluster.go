package metadata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// Cluster is the small part of the metadata at one revision: everything but
// the topics. It never changes; a View replaces it as a whole.
type Cluster struct {
	Info     ClusterInfo
	Revision int64
	// Controller is NoBroker while nobody holds the office.
	Controller BrokerID
	// Fence is the guard that holds while Controller stays in office, and
	// Office the lease that the office ends with.
	Fence  Guard
	Office LeaseID
	// Brokers and Shards are in order of their ids. Brokers whose lease has
	// lapsed are among them, with Alive false.
	Brokers []*Broker
	Shards  []*Shard
	// Coordinators are the shards of the coordinator slots, by slot; empty
	// while the cluster is forming.
	Coordinators []ShardID
	hints        map[ShardID]LeaderHint
}

// NewCluster builds a Cluster from its parts: for tests, and for tools that
// have read the rows by themselves.
func NewCluster(info ClusterInfo, brokers []*Broker, shards []*Shard, hints []LeaderHint) *Cluster {
	c := &Cluster{
		Info: info, Controller: NoBroker, Fence: Guard{Key: keyController},
		Brokers: slices.Clone(brokers), Shards: slices.Clone(shards), hints: make(map[ShardID]LeaderHint, len(hints)),
	}
	slices.SortFunc(c.Brokers, func(a, b *Broker) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(c.Shards, func(a, b *Shard) int { return cmp.Compare(a.ID, b.ID) })
	for _, h := range hints {
		c.hints[h.Shard] = h
	}
	return c
}

// Broker returns a registration, alive or not, or nil.
func (c *Cluster) Broker(id BrokerID) *Broker {
	at, ok := slices.BinarySearchFunc(c.Brokers, id, func(b *Broker, id BrokerID) int { return cmp.Compare(b.ID, id) })
	if !ok {
		return nil
	}
	return c.Brokers[at]
}

// Alive tells whether a broker is registered and its lease holds.
func (c *Cluster) Alive(id BrokerID) bool {
	b := c.Broker(id)
	return b != nil && b.Alive
}

// Shard returns a shard's placement, or nil.
func (c *Cluster) Shard(id ShardID) *Shard {
	at, ok := slices.BinarySearchFunc(c.Shards, id, func(s *Shard, id ShardID) int { return cmp.Compare(s.ID, id) })
	if !ok {
		return nil
	}
	return c.Shards[at]
}

// Leader returns what the shard's leader last said of itself.
func (c *Cluster) Leader(id ShardID) (LeaderHint, bool) {
	h, ok := c.hints[id]
	return h, ok
}

// Replicas returns a broker's replicas: the shards that it hosts, or is to
// host, with the given data directory.
func (c *Cluster) Replicas(id ReplicaID) []*Shard {
	var on []*Shard
	for _, s := range c.Shards {
		if _, ok := s.BrokerOf(id); ok {
			on = append(on, s)
		}
	}
	return on
}

// EnsureCluster returns the cluster row, and writes the proposed one if there
// is none: the first broker of a cluster names it.
func EnsureCluster(ctx context.Context, s Store, proposed ClusterInfo) (ClusterInfo, error) {
	for range updateAttempts {
		r, err := s.Get(ctx, keyCluster)
		if err == nil {
			return decodeCluster(r)
		}
		if !errors.Is(err, ErrNotFound) {
			return ClusterInfo{}, fmt.Errorf("cluster id: %w", err)
		}
		_, err = s.Commit(ctx, Txn{
			Guards: []Guard{{Key: keyCluster}},
			Writes: []Write{{Key: keyCluster, Value: encodeCluster(proposed)}},
		})
		if err != nil && !errors.Is(err, ErrFenced) {
			return ClusterInfo{}, fmt.Errorf("cluster id: %w", err)
		}
	}
	return ClusterInfo{}, fmt.Errorf("cluster id: row came and went %d times: %w", updateAttempts, ErrFenced)
}

// Campaign tries to become controller for as long as lease lives. ErrFenced:
// somebody is already. The Guard returned belongs to every write of the office.
func Campaign(ctx context.Context, s Store, b BrokerID, lease LeaseID) (Guard, error) {
	rev, err := s.Commit(ctx, Txn{
		Guards: []Guard{{Key: keyController}},
		Writes: []Write{{Key: keyController, Value: encodeController(b), Lease: lease}},
	})
	if err != nil {
		return Guard{}, fmt.Errorf("broker %d stands for controller: %w", b, err)
	}
	return Guard{Key: keyController, Revision: rev}, nil
}

// Resign gives the office up, if it is still held by fence.
func Resign(ctx context.Context, s Store, fence Guard) error {
	_, err := s.Commit(ctx, Txn{Guards: []Guard{fence}, Writes: []Write{{Key: fence.Key, Delete: true}}})
	if err != nil && !errors.Is(err, ErrFenced) {
		return fmt.Errorf("resign as controller: %w", err)
	}
	return nil
}
