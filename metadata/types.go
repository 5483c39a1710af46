package metadata

import "time"

// BrokerID is Kafka's node.id.
type BrokerID int32

// ReplicaID names one data directory: drawn at random when the directory is
// made, never reused. Raft and every record about replicas name it.
type ReplicaID uint64

// ShardID numbers shards from 1.
type ShardID uint32

// TopicID is Kafka's topic UUID; a re-created topic gets a new one.
type TopicID [16]byte

// Broker is a registration, kept alive by a lease.
type Broker struct {
	ID      BrokerID
	Replica ReplicaID
	Rack    string
	// KafkaHost and KafkaPort are what clients are told (advertised.listeners).
	KafkaHost string
	KafkaPort int32
	// PeerAddr is host:port of the broker's replication listener.
	PeerAddr string
	// Epoch rises with each registration of this broker.
	Epoch   int64
	Version string
}

// Replica is one member of a shard.
type Replica struct {
	ID     ReplicaID
	Broker BrokerID
}

// Shard is one placement row.
type Shard struct {
	ID       ShardID
	Replicas []Replica
	// Home is the broker that should lead it.
	Home BrokerID
	// Incarnation rises when the shard is rebuilt from a survivor.
	Incarnation uint32
}

// LeaderHint is what a shard's leader last wrote about itself. Raft decides
// who leads; this row only tells brokers that do not host the shard.
type LeaderHint struct {
	Shard  ShardID
	Broker BrokerID
	Term   uint64
}

// Topic is one topic row.
type Topic struct {
	Name string
	ID   TopicID
	// Shards[i] is the shard that owns partition i.
	Shards []ShardID
	// Config holds only what was set on the topic.
	Config map[string]string
	// Revision orders versions of the row (the store's revision).
	Revision int64
	Created  time.Time
	// ReplicationFactor as asked at creation; shown to clients.
	ReplicationFactor int16
}
