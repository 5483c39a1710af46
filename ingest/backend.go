package ingest

import (
	"context"
	"errors"

	"thermocline/index"
	"thermocline/ingest/partition"
	"thermocline/metadata"
	"thermocline/wal/shard"
)

// ErrNoShards: shards are not placed yet; worth a retry. (Other refusals of a
// Cluster's writes are package metadata's errors.)
var ErrNoShards = errors.New("ingest: no shard is placed yet")

// NewTopic is what a topic is created from.
type NewTopic struct {
	Name              string
	Partitions        int
	ReplicationFactor int16
	Config            map[string]string
}

// View is the cached view of the cluster. Its methods do no I/O and may be
// called from anywhere; what they return is immutable.
type View interface {
	ClusterID() string
	Self() metadata.BrokerID
	// Brokers lists the live ones, by id.
	Brokers() []metadata.Broker
	// Controller is -1 while unknown.
	Controller() metadata.BrokerID
	Topics() []*metadata.Topic
	TopicByName(name string) (*metadata.Topic, bool)
	TopicByID(id metadata.TopicID) (*metadata.Topic, bool)
	// Collision finds the topic whose name differs from name only in '.' and '_'.
	Collision(name string) (*metadata.Topic, bool)
	Shard(id metadata.ShardID) (metadata.Shard, bool)
	// Leader is the shard's leader as far as this broker knows, and its term.
	Leader(id metadata.ShardID) (metadata.BrokerID, uint64, bool)
	// CoordinatorSlots is the shard of each coordinator slot; empty until they
	// are placed. metadata.CoordinatorSlot hashes keys to slots.
	CoordinatorSlots() []metadata.ShardID
	// DynamicConfig is what was set at run time; empty with revision 0 if nothing was.
	DynamicConfig(kind metadata.ConfigKind, name string) metadata.DynamicConfig
	// DynamicConfigs lists those of a kind that are not empty.
	DynamicConfigs(kind metadata.ConfigKind) []metadata.DynamicConfig
	// ConfigVersion rises with each change of any dynamic config; cheap.
	ConfigVersion() int64
}

// Cluster is View and the writes to it.
type Cluster interface {
	View
	// FindTopic is TopicByName for requests that change a topic: one that this
	// broker has not heard of yet is looked for in the metadata store, since
	// the client may have created it through another broker just now.
	// metadata.ErrNotFound if there is none.
	FindTopic(ctx context.Context, name string) (*metadata.Topic, error)
	CreateTopic(ctx context.Context, t NewTopic) (*metadata.Topic, error)
	DeleteTopic(ctx context.Context, id metadata.TopicID) error
	AddPartitions(ctx context.Context, id metadata.TopicID, total int) (*metadata.Topic, error)
	// AlterTopic replaces the topic's config unless its row is no longer of that revision.
	AlterTopic(ctx context.Context, id metadata.TopicID, revision int64, config map[string]string) error
	// AlterConfig replaces a dynamic config unless it is no longer of that
	// revision (metadata.ErrFenced).
	AlterConfig(ctx context.Context, c metadata.DynamicConfig) error
	// TransferLeader asks the shard's leader, if that is this broker, to hand
	// over to another replica. It does not wait.
	TransferLeader(id metadata.ShardID, to metadata.BrokerID)
	// AllocateProducerID returns an id that was never given to anyone.
	AllocateProducerID(ctx context.Context) (int64, error)
}

// Replicas finds this broker's replica of a shard.
type Replicas interface {
	Replica(id metadata.ShardID) (Replica, bool)
}

// Replica is one shard replica on this broker; shard.Runner and its state machine.
type Replica interface {
	// Propose queues p, or returns false: then neither Copied nor Done is
	// called, and Intake says why.
	Propose(p *shard.Proposal) bool
	// Intake is why Propose has just refused a proposal of that class:
	// shard.ErrBusy when its queue is full, else an error that will not go
	// away by waiting a little.
	Intake(class shard.Class) error
	Leadership() shard.Leadership
	// ReadIndex calls done once this replica is confirmed to lead and has
	// applied everything that was acknowledged before the call.
	ReadIndex(done func(error))
	State() *partition.Set
	// Follows tells whether another replica keeps up with this one, as far as
	// this one knows; false unless it leads.
	Follows(r metadata.ReplicaID) bool
	Payload(index, term uint64) (shard.PayloadView, error)
}

// Cold reads what is in the object store.
type Cold interface {
	Read(ctx context.Context, r index.ReadRequest) (*index.Data, error)
	OffsetForTime(ctx context.Context, p index.Partition, from, ts int64) (index.Found, bool, error)
	MaxTimestamp(ctx context.Context, p index.Partition, from int64) (index.Found, bool, error)
	EpochEnd(ctx context.Context, p index.Partition, epoch int32) (found int32, end int64, ok bool, err error)
}
