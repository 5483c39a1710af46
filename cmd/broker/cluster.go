package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"thermocline/ingest"
	"thermocline/ingest/partition"
	"thermocline/metadata"
	"thermocline/metadata/controller"
	"thermocline/wal/shard"
)

// producerIDBlock is how many producer ids one committed entry takes.
const producerIDBlock = 1000

// cluster is what the protocol handlers know of the cluster (ingest.Cluster):
// the watched metadata, corrected by what this broker's own replicas know of
// their leaders, which is newer and needs no etcd.
type cluster struct {
	self   metadata.BrokerID
	view   *metadata.View
	topics *controller.Topics
	shards *shards
	store  metadata.Store

	mu     sync.Mutex
	liveOf *metadata.Cluster // for which live was computed
	live   []metadata.Broker

	// ids has a lock of its own: taking a block waits for a quorum, and nobody
	// who asks for the brokers may wait with it.
	ids     sync.Mutex
	nextID  int64
	idsLeft int64
}

var _ ingest.Cluster = (*cluster)(nil)

func (c *cluster) ClusterID() string       { return c.view.Cluster().Info.ID }
func (c *cluster) Self() metadata.BrokerID { return c.self }

func (c *cluster) CoordinatorSlots() []metadata.ShardID { return c.view.CoordinatorSlots() }

// Brokers lists live brokers; computed once for each version of the metadata.
func (c *cluster) Brokers() []metadata.Broker {
	now := c.view.Cluster()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.liveOf != now {
		c.live = nil
		for _, b := range now.Brokers {
			// Who answers is alive, also while it stops. An empty list would let
			// librdkafka forget all brokers, and never come back.
			if b.Alive || b.ID == c.self {
				c.live = append(c.live, *b)
			}
		}
		c.liveOf = now
	}
	return c.live
}

// Controller names a live broker; every broker takes admin requests, so any
// will do when nobody holds the office.
func (c *cluster) Controller() metadata.BrokerID {
	now := c.view.Cluster()
	if now.Controller != metadata.NoBroker && now.Alive(now.Controller) {
		return now.Controller
	}
	return c.self
}

func (c *cluster) Topics() []*metadata.Topic { return c.view.Topics() }

func (c *cluster) TopicByName(name string) (*metadata.Topic, bool) {
	t := c.view.Topic(name)
	return t, t != nil
}

// FindTopic asks the store for what the view does not have, and brings the view
// up to what it found.
func (c *cluster) FindTopic(ctx context.Context, name string) (*metadata.Topic, error) {
	if t := c.view.Topic(name); t != nil {
		return t, nil
	}
	row, err := metadata.GetTopic(ctx, c.store, name)
	if err != nil {
		return nil, err
	}
	return row, c.view.Wait(ctx, row.Revision)
}

func (c *cluster) TopicByID(id metadata.TopicID) (*metadata.Topic, bool) {
	t := c.view.TopicByID(id)
	return t, t != nil
}

func (c *cluster) Collision(name string) (*metadata.Topic, bool) {
	t := c.view.Collision(name)
	return t, t != nil
}

func (c *cluster) Shard(id metadata.ShardID) (metadata.Shard, bool) {
	s := c.view.Cluster().Shard(id)
	if s == nil {
		return metadata.Shard{}, false
	}
	return *s, true
}

// Leader asks this broker's own replica first; the hint in the metadata store
// is for shards that live elsewhere.
func (c *cluster) Leader(id metadata.ShardID) (metadata.BrokerID, uint64, bool) {
	now := c.view.Cluster()
	hint, hinted := now.Leader(id)
	if own, ok := c.shards.get(id); ok {
		l := own.runner.Leadership()
		if row := now.Shard(id); row != nil && l.Leader != 0 && (!hinted || l.Term >= hint.Term) {
			if at, ok := row.BrokerOf(metadata.ReplicaID(l.Leader)); ok {
				return at, l.Term, true
			}
		}
	}
	return hint.Broker, hint.Term, hinted
}

func (c *cluster) CreateTopic(ctx context.Context, t ingest.NewTopic) (*metadata.Topic, error) {
	row, err := c.topics.Create(ctx, controller.Spec{
		Name: t.Name, Partitions: t.Partitions, ReplicationFactor: int(t.ReplicationFactor), Config: t.Config,
	})
	if errors.Is(err, controller.ErrNoShards) {
		return nil, fmt.Errorf("%w: %w", ingest.ErrNoShards, err)
	}
	if err != nil {
		return nil, err
	}
	if err := c.view.Wait(ctx, row.Revision); err != nil {
		return row, err
	}
	c.waitLeaders(ctx, row.Shards, leadersWait)
	return row, nil
}

// leadersWait bounds how long a new topic's answer waits for leaders.
const leadersWait = 3 * time.Second

// waitLeaders waits until each of the shards has been led once, at most that long. A
// new cluster's first topic may be made before its shards' first elections are
// over; a client that asks who leads and hears "nobody" asks again when its cached
// metadata are old enough, which in most clients is seconds later. The topic
// exists either way. Of the caller's time three quarters stay, for other topics.
func (c *cluster) waitLeaders(ctx context.Context, shards []metadata.ShardID, most time.Duration) {
	if end, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(end)/4)
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	// The hint counts, not what the replica here knows: what is in this broker's
	// view is on its way to every other one's.
	_ = c.view.WaitFor(ctx, func() bool {
		now := c.view.Cluster()
		return !slices.ContainsFunc(now.Shards, func(s *metadata.Shard) bool {
			_, led := now.Leader(s.ID)
			return !led && slices.Contains(shards, s.ID)
		})
	})
}

func (c *cluster) DeleteTopic(ctx context.Context, id metadata.TopicID) error {
	t := c.view.TopicByID(id)
	if t == nil {
		return metadata.ErrNotFound
	}
	if err := c.topics.Delete(ctx, t.Name, id); err != nil {
		return err
	}
	return c.view.WaitFor(ctx, func() bool { return c.view.TopicByID(id) == nil })
}

func (c *cluster) AddPartitions(ctx context.Context, id metadata.TopicID, total int) (*metadata.Topic, error) {
	t := c.view.TopicByID(id)
	if t == nil {
		return nil, metadata.ErrNotFound
	}
	row, err := c.topics.AddPartitions(ctx, t.Name, total, nil, false)
	if err != nil {
		return nil, err
	}
	return row, c.view.Wait(ctx, row.Revision)
}

func (c *cluster) AlterTopic(ctx context.Context, id metadata.TopicID, revision int64, config map[string]string) error {
	t := c.view.TopicByID(id)
	if t == nil {
		return metadata.ErrNotFound
	}
	if t.Revision != revision {
		return metadata.ErrFenced
	}
	row, err := c.topics.AlterConfig(ctx, t.Name, func(set map[string]string) error {
		if !maps.Equal(set, t.Config) {
			return metadata.ErrFenced // somebody else changed it since it was read
		}
		clear(set)
		maps.Copy(set, config)
		return nil
	})
	if err != nil {
		return err
	}
	return c.view.Wait(ctx, row.Revision)
}

func (c *cluster) DynamicConfig(kind metadata.ConfigKind, name string) metadata.DynamicConfig {
	return c.view.Config(kind, name)
}

func (c *cluster) DynamicConfigs(kind metadata.ConfigKind) []metadata.DynamicConfig {
	return c.view.Configs(kind)
}

func (c *cluster) ConfigVersion() int64 { return c.view.ConfigVersion() }

func (c *cluster) AlterConfig(ctx context.Context, d metadata.DynamicConfig) error {
	revision, err := metadata.AlterConfig(ctx, c.store, d)
	if err != nil {
		return err
	}
	return c.view.Wait(ctx, revision)
}

// TransferLeader works for shards led here; others go home by themselves,
// within the balancer's time.
func (c *cluster) TransferLeader(id metadata.ShardID, to metadata.BrokerID) {
	o, ok := c.shards.get(id)
	if !ok || !o.runner.Leadership().Ready {
		return
	}
	if row := c.view.Cluster().Shard(id); row != nil {
		if r, on := row.On(to); on {
			o.runner.TransferLeader(shard.ReplicaID(r.ID))
		}
	}
}

// AllocateProducerID hands out ids of a block that a shard led here committed.
func (c *cluster) AllocateProducerID(ctx context.Context) (int64, error) {
	c.ids.Lock()
	defer c.ids.Unlock()
	if c.idsLeft == 0 {
		first, err := c.takeBlock(ctx)
		if err != nil {
			return 0, err
		}
		c.nextID, c.idsLeft = first, producerIDBlock
	}
	id := c.nextID
	c.nextID++
	c.idsLeft--
	return id, nil
}

func (c *cluster) takeBlock(ctx context.Context) (int64, error) {
	err := fmt.Errorf("no shard is led by this broker yet: %w", shard.ErrNotLeader)
	for _, s := range c.shards.all() {
		if !s.runner.Leadership().Ready {
			continue
		}
		var result any
		result, err = s.command(ctx, &partition.AllocateProducerIDs{Count: producerIDBlock})
		if err == nil {
			return result.(int64), nil
		}
	}
	return 0, err
}
