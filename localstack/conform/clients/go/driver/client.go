package driver

import (
	"context"
	"time"
)

// Header is one header of a record; Value nil is a null.
type Header struct {
	Key   string
	Value []byte
}

// Record is a record as sent or read. Key and Value nil are nulls.
type Record struct {
	Topic string
	// Partition to send to, or read from.
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte
	Headers   []Header
	Timestamp time.Time
}

// ProducerOptions shape a producer. All wait for acks of all replicas.
type ProducerOptions struct {
	// Codec is none, gzip, snappy, lz4 or zstd.
	Codec      string
	Idempotent bool
	// MaxBytes raises the client's own limit of a record, if not 0.
	MaxBytes int
}

// Producer sends records to the partitions that they name.
type Producer interface {
	// Send returns once all records are acknowledged, or with an error of one.
	Send(ctx context.Context, records []Record) error
	Close() error
}

// Start offsets besides real ones.
const (
	Earliest int64 = -2
	Latest   int64 = -1
)

// Consumer reads records, of partitions assigned by hand or by a group.
type Consumer interface {
	// Poll waits up to wait for records.
	Poll(ctx context.Context, wait time.Duration) ([]Record, error)
	// Seek moves to an offset (or Earliest, Latest).
	Seek(ctx context.Context, topic string, partition int32, offset int64) error
	Pause(topic string, partition int32) error
	Resume(topic string, partition int32) error
	// Commit commits what Poll has returned.
	Commit(ctx context.Context) error
	// Close leaves the group, if there is one, without a commit.
	Close() error
}

// Admin is the admin side of a client.
type Admin interface {
	// CreateTopic creates a topic with the cluster's replication factor.
	CreateTopic(ctx context.Context, topic string, partitions int32, config map[string]string) error
	DeleteTopic(ctx context.Context, topic string) error
	Topics(ctx context.Context) ([]string, error)
	// Partitions is the number of partitions; an error if there is no such topic.
	Partitions(ctx context.Context, topic string) (int, error)
	AddPartitions(ctx context.Context, topic string, total int32) error
	TopicConfig(ctx context.Context, topic string) (map[string]string, error)
	SetTopicConfig(ctx context.Context, topic, key, value string) error
	Groups(ctx context.Context) ([]string, error)
	// Group tells the state (Stable, Empty, Dead) and the number of members.
	Group(ctx context.Context, group string) (state string, members int, err error)
	// Committed is a group's offset of a partition, -1 for none.
	Committed(ctx context.Context, group, topic string, partition int32) (int64, error)
	SetCommitted(ctx context.Context, group, topic string, partition int32, offset int64) error
	DeleteGroup(ctx context.Context, group string) error
	// Offset is the first offset (Earliest), the next one (Latest), or the
	// first one with a timestamp not before at (milliseconds); -1 for none.
	Offset(ctx context.Context, topic string, partition int32, at int64) (int64, error)
	DeleteRecords(ctx context.Context, topic string, partition int32, before int64) error
}

// Client is one client library.
type Client interface {
	Admin
	// Version of the library.
	Version() string
	Producer(o ProducerOptions) (Producer, error)
	// Reader reads partitions from an offset (or Earliest, Latest).
	Reader(ctx context.Context, topic string, partitions []int32, from int64) (Consumer, error)
	// Member joins a group, from the earliest offset where none is committed.
	Member(ctx context.Context, group, topic string) (Consumer, error)
}

// Connector makes a client for a cluster.
type Connector func(bootstrap []string) (Client, error)
