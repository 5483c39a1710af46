package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"thermocline/metadata"
)

var (
	// ErrPartitions: a number of partitions that cannot be.
	ErrPartitions = errors.New("controller: invalid number of partitions")
	// ErrReplicationFactor: more replicas than the cluster's shards have.
	ErrReplicationFactor = errors.New("controller: invalid replication factor")
	// ErrLimit: a limit of the cluster is reached.
	ErrLimit = errors.New("controller: limit reached")
)

const (
	// defaultClusterPartitionsMax: 100,000 partitions are ordinary; the bound
	// keeps a slip of the pen from filling every broker's memory.
	defaultClusterPartitionsMax = 400_000
	// viewWait bounds how long an answer waits for this broker's own view, so
	// that a client that created a topic also finds it here.
	viewWait = 2 * time.Second
)

// TopicsConfig says what Topics may do.
type TopicsConfig struct {
	Store metadata.Store
	View  *metadata.View
	// ShardReplicas is shard.replicas: the largest replication factor, and
	// what a client gets that leaves it to the broker.
	ShardReplicas int
	// DefaultPartitions is num.partitions; 0 is 1.
	DefaultPartitions int
	// TopicPartitionsMax and ClusterPartitionsMax bound what clients may ask
	// for; 0 is metadata.PartitionsMax and 400,000.
	TopicPartitionsMax, ClusterPartitionsMax int
	// NewID draws a topic's id.
	NewID func() (metadata.TopicID, error)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Topics creates, changes and deletes topics. Every broker may: each change is
// one guarded transaction, placed by the broker's view.
type Topics struct{ c TopicsConfig }

// NewTopics checks the config.
func NewTopics(c TopicsConfig) (*Topics, error) {
	if c.Store == nil || c.View == nil || c.NewID == nil || c.ShardReplicas < 1 {
		return nil, errors.New("controller: topics need a store, a view, a source of ids and at least one replica")
	}
	if c.DefaultPartitions == 0 {
		c.DefaultPartitions = 1
	}
	if c.TopicPartitionsMax == 0 || c.TopicPartitionsMax > metadata.PartitionsMax {
		c.TopicPartitionsMax = metadata.PartitionsMax
	}
	if c.ClusterPartitionsMax == 0 {
		c.ClusterPartitionsMax = defaultClusterPartitionsMax
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Topics{c: c}, nil
}

// Spec is a topic that somebody wants.
type Spec struct {
	Name string
	// Partitions -1 is the default.
	Partitions int
	// ReplicationFactor -1 is the shards' own.
	ReplicationFactor int
	// Leaders, if not nil, is each partition's first replica: a client's
	// manual assignment, as far as shards can follow it.
	Leaders []metadata.BrokerID
	// Config has been checked by the caller.
	Config map[string]string
}

// Plan checks a wish against the view and answers with the topic that Create
// would write: for requests that only validate.
func (t *Topics) Plan(s Spec) (*metadata.Topic, error) {
	if err := metadata.CheckTopicName(s.Name); err != nil {
		return nil, err
	}
	if t.c.View.Topic(s.Name) != nil {
		return nil, fmt.Errorf("topic %s: %w", s.Name, metadata.ErrExists)
	}
	if other := t.c.View.Collision(s.Name); other != nil {
		return nil, fmt.Errorf("topic %s collides with topic %s: %w", s.Name, other.Name, metadata.ErrInvalidTopic)
	}
	n, err := t.partitions(s)
	if err != nil {
		return nil, err
	}
	factor, err := t.factor(s.ReplicationFactor)
	if err != nil {
		return nil, err
	}
	loads, total := t.c.View.Loads()
	if total+n > t.c.ClusterPartitionsMax {
		return nil, fmt.Errorf("topic %s: expected at most %d partitions in the cluster, found %d and %d more: %w",
			s.Name, t.c.ClusterPartitionsMax, total, n, ErrLimit)
	}
	id, err := t.c.NewID()
	if err != nil {
		return nil, err
	}
	shards, err := Place(t.c.View.Cluster(), loads, Placement{Topic: id, Add: n, Leaders: s.Leaders})
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", s.Name, err)
	}
	return &metadata.Topic{
		Name: s.Name, ID: id, Shards: shards, Config: maps.Clone(s.Config),
		Created: time.UnixMilli(t.c.Now().UnixMilli()), ReplicationFactor: factor,
	}, nil
}

func (t *Topics) partitions(s Spec) (int, error) {
	n := s.Partitions
	switch {
	case s.Leaders != nil && n == -1:
		n = len(s.Leaders)
	case n == -1:
		n = t.c.DefaultPartitions
	}
	if n < 1 || n > t.c.TopicPartitionsMax {
		return 0, fmt.Errorf("topic %s: expected 1 to %d partitions, found %d: %w", s.Name, t.c.TopicPartitionsMax, n, ErrPartitions)
	}
	return n, nil
}

func (t *Topics) factor(asked int) (int16, error) {
	if asked == -1 {
		asked = t.c.ShardReplicas
	}
	if asked < 1 || asked > t.c.ShardReplicas {
		return 0, fmt.Errorf("replication factor: expected 1 to %d (shard.replicas), found %d: %w", t.c.ShardReplicas, asked, ErrReplicationFactor)
	}
	return int16(asked), nil
}

// Create plans and writes a topic.
func (t *Topics) Create(ctx context.Context, s Spec) (*metadata.Topic, error) {
	plan, err := t.Plan(s)
	if err != nil {
		return nil, err
	}
	made, err := metadata.CreateTopic(ctx, t.c.Store, *plan)
	if err != nil {
		return nil, err
	}
	t.see(ctx, made.Revision)
	return made, nil
}

// Delete deletes a topic by name; a zero id means whichever has the name.
func (t *Topics) Delete(ctx context.Context, name string, id metadata.TopicID) error {
	_, rev, err := metadata.DeleteTopic(ctx, t.c.Store, name, id)
	if err != nil {
		return err
	}
	t.see(ctx, rev)
	return nil
}

// AlterConfig lets change edit the topic's config, possibly more than once.
func (t *Topics) AlterConfig(ctx context.Context, name string, change func(config map[string]string) error) (*metadata.Topic, error) {
	changed, err := metadata.UpdateTopic(ctx, t.c.Store, name, func(topic *metadata.Topic) error { return change(topic.Config) })
	if err != nil {
		return nil, err
	}
	t.see(ctx, changed.Revision)
	return changed, nil
}

// AddPartitions grows a topic to a total number of partitions. leaders, if not
// nil, are the first replicas of the new ones. With validateOnly nothing is written.
func (t *Topics) AddPartitions(ctx context.Context, name string, total int, leaders []metadata.BrokerID, validateOnly bool) (*metadata.Topic, error) {
	grow := func(topic *metadata.Topic) error {
		have := len(topic.Shards)
		if total <= have || total > t.c.TopicPartitionsMax {
			return fmt.Errorf("topic %s has %d partitions: expected more, up to %d, found %d: %w", name, have, t.c.TopicPartitionsMax, total, ErrPartitions)
		}
		loads, all := t.c.View.Loads()
		if all+total-have > t.c.ClusterPartitionsMax {
			return fmt.Errorf("topic %s: expected at most %d partitions in the cluster, found %d and %d more: %w",
				name, t.c.ClusterPartitionsMax, all, total-have, ErrLimit)
		}
		more, err := Place(t.c.View.Cluster(), loads, Placement{Topic: topic.ID, Existing: topic.Shards, Add: total - have, Leaders: leaders})
		if err != nil {
			return fmt.Errorf("topic %s: %w", name, err)
		}
		topic.Shards = append(topic.Shards, more...)
		return nil
	}
	if validateOnly {
		topic := t.c.View.Topic(name)
		if topic == nil {
			return nil, fmt.Errorf("topic %s: %w", name, metadata.ErrNotFound)
		}
		grown := *topic
		grown.Shards = append([]metadata.ShardID(nil), topic.Shards...)
		return &grown, grow(&grown)
	}
	grown, err := metadata.UpdateTopic(ctx, t.c.Store, name, grow)
	if err != nil {
		return nil, err
	}
	t.see(ctx, grown.Revision)
	return grown, nil
}

// see waits until this broker's view shows what has just been written. The
// write stands either way, so a view that lags is no error.
func (t *Topics) see(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, viewWait)
	defer cancel()
	_ = t.c.View.Wait(ctx, revision)
}
