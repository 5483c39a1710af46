package metadata

import (
	"encoding/hex"
	"slices"
	"strconv"
	"time"
)

// BrokerID is Kafka's node.id.
type BrokerID int32

// NoBroker stands for "none" where a broker is named.
const NoBroker BrokerID = -1

// ReplicaID names one data directory: drawn at random when the directory is
// made, never reused. Raft and every record about replicas name it.
type ReplicaID uint64

// String prints the id as it stands in file names and logs.
func (r ReplicaID) String() string { return "r" + strconv.FormatUint(uint64(r), 16) }

// ShardID numbers shards from 1.
type ShardID uint32

// TopicID is Kafka's topic UUID; a re-created topic gets a new one.
type TopicID [16]byte

// String is the id in hexadecimal, as it stands in keys and logs.
func (t TopicID) String() string { return hex.EncodeToString(t[:]) }

// ClusterInfo is the cluster row: written once, by whoever comes first.
type ClusterInfo struct {
	// ID is what clients see as cluster id.
	ID      string
	Created time.Time
}

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
	// Alive is false when the broker's lease has lapsed while the store was
	// healthy. It is a View's judgement, not part of the row.
	Alive bool
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
	// Replacing is a planned change of one replica, nil while there is none:
	// Replicas are still those of before. Raft's configuration says how far it
	// has come.
	Replacing *Replacement
	// Revision orders versions of the row (the store's revision).
	Revision int64
}

// Replacement puts a replica in another one's place. Old and New may be equal
// when the plan was taken back: what was done of it is to be undone.
type Replacement struct{ Old, New Replica }

// Target is the shard's replicas as they are to be: after a planned change, if
// there is one.
func (s *Shard) Target() []Replica {
	target := slices.Clone(s.Replicas)
	if p := s.Replacing; p != nil {
		for i := range target {
			if target[i].ID == p.Old.ID {
				target[i] = p.New
			}
		}
	}
	return target
}

// BrokerOf returns the broker that has a replica, also one that is joining.
func (s *Shard) BrokerOf(id ReplicaID) (BrokerID, bool) {
	for _, r := range s.Replicas {
		if r.ID == id {
			return r.Broker, true
		}
	}
	if p := s.Replacing; p != nil && p.New.ID == id {
		return p.New.Broker, true
	}
	return NoBroker, false
}

// On returns the shard's replica on a broker.
func (s *Shard) On(b BrokerID) (Replica, bool) {
	for _, r := range s.Replicas {
		if r.Broker == b {
			return r, true
		}
	}
	return Replica{}, false
}

// LeaderHint is what a shard's leader last wrote about itself. Raft decides
// who leads; this row only tells brokers that do not host the shard.
type LeaderHint struct {
	Shard  ShardID
	Broker BrokerID
	Term   uint64
}

// SnapshotPointer names the newest snapshot of a shard in the object store.
type SnapshotPointer struct {
	Shard       ShardID
	Object      string
	Index, Term uint64
}

// Topic is one topic row. A Topic that a View handed out never changes.
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
	// ReplicationFactor as asked at creation (the cluster's own when the
	// client left it to the broker). What clients are shown is the shard's.
	ReplicationFactor int16
}
