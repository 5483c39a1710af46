package ingest

import (
	"fmt"
	"log/slog"
	"time"

	"thermocline/ingest/brokerconfig"
)

// Config is what a server is told. Fields have Kafka's meaning where Kafka has
// the setting; its name is given.
type Config struct {
	// MaxRequestBytes is socket.request.max.bytes.
	MaxRequestBytes int
	// QueuedMaxBytes is queued.max.request.bytes: memory for the requests of all connections.
	QueuedMaxBytes int64
	// FetchMaxBytes is fetch.max.bytes: the most that one fetch is answered.
	FetchMaxBytes int
	// FetchMemory bounds the bytes of all fetch answers under way.
	FetchMemory int64
	// MaxConnections is max.connections, MaxConnectionsPerIP max.connections.per.ip (0: no limit).
	MaxConnections, MaxConnectionsPerIP int
	// MaxIdle is connections.max.idle.ms.
	MaxIdle time.Duration
	// FetchSessions is max.incremental.fetch.session.cache.slots.
	FetchSessions int
	// AutoCreateTopics is auto.create.topics.enable.
	AutoCreateTopics bool
	// NumPartitions is num.partitions.
	NumPartitions int32
	// ReplicationFactor is default.replication.factor (0: ShardReplicas).
	ReplicationFactor int16
	// ShardReplicas is shard.replicas: the most a topic may ask for.
	ShardReplicas int16
	// MessageMaxBytes is message.max.bytes, the default of max.message.bytes.
	MessageMaxBytes int
	// MaxUncompressed bounds one batch after decompression.
	MaxUncompressed int
	// DeleteTopics is delete.topic.enable.
	DeleteTopics bool
	// DataDir is shown by DescribeLogDirs.
	DataDir string
	// StoreName names the object store in DescribeLogDirs, without secrets.
	StoreName string
	// Volume, if set, tells the size of DataDir's volume and what is free.
	Volume func() (total, free int64)
	// Static are further settings as they would be written, by name: Kafka's,
	// and those that Own describes.
	Static map[string]string
	// Own describes the broker's settings that Kafka does not have.
	Own    []brokerconfig.Def
	Logger *slog.Logger
	// LogLevel is the level of Logger, to be read and set by clients; nil: Info,
	// without effect on Logger.
	LogLevel *slog.LevelVar
	// Now is the clock (time.Now if nil).
	Now func() time.Time
}

// DefaultConfig returns Kafka's defaults where Kafka has the setting.
func DefaultConfig() Config {
	return Config{
		MaxRequestBytes:  100 << 20,
		QueuedMaxBytes:   512 << 20,
		FetchMaxBytes:    55 << 20,
		FetchMemory:      512 << 20,
		MaxConnections:   10_000,
		MaxIdle:          10 * time.Minute,
		FetchSessions:    1000,
		AutoCreateTopics: true,
		NumPartitions:    1,
		ShardReplicas:    3,
		MessageMaxBytes:  1048588,
		MaxUncompressed:  128 << 20,
		DeleteTopics:     true,
		DataDir:          "./data",
	}
}

// Validate says what is wrong and what to write instead.
func (c *Config) Validate() error {
	switch {
	case c.MaxRequestBytes < 1<<20 || c.MaxRequestBytes > 1<<30:
		return fmt.Errorf("ingest: socket.request.max.bytes is %d: write 1 MiB to 1 GiB", c.MaxRequestBytes)
	case c.QueuedMaxBytes < int64(c.MaxRequestBytes) || c.QueuedMaxBytes < maxSmallFrame*decodeFactor:
		return fmt.Errorf("ingest: queued.max.request.bytes is %d: write at least socket.request.max.bytes (%d) and %d",
			c.QueuedMaxBytes, c.MaxRequestBytes, maxSmallFrame*decodeFactor)
	case c.FetchMaxBytes < 1024:
		return fmt.Errorf("ingest: fetch.max.bytes is %d: write at least 1024", c.FetchMaxBytes)
	case c.FetchMemory < int64(c.FetchMaxBytes):
		return fmt.Errorf("ingest: fetch memory is %d: write at least fetch.max.bytes (%d)", c.FetchMemory, c.FetchMaxBytes)
	case c.MaxConnections < 1:
		return fmt.Errorf("ingest: max.connections is %d: write at least 1", c.MaxConnections)
	case c.MaxIdle < time.Second:
		return fmt.Errorf("ingest: connections.max.idle.ms is %v: write at least one second", c.MaxIdle)
	case c.NumPartitions < 1 || c.NumPartitions > maxPartitionsPerTopic:
		return fmt.Errorf("ingest: num.partitions is %d: write 1 to %d", c.NumPartitions, maxPartitionsPerTopic)
	case c.ShardReplicas < 1:
		return fmt.Errorf("ingest: shard.replicas is %d: write at least 1", c.ShardReplicas)
	case c.ReplicationFactor < 0 || c.ReplicationFactor > c.ShardReplicas:
		return fmt.Errorf("ingest: default.replication.factor is %d: write 1 to shard.replicas (%d)", c.ReplicationFactor, c.ShardReplicas)
	case c.MessageMaxBytes < 1 || c.MessageMaxBytes > c.MaxRequestBytes:
		return fmt.Errorf("ingest: message.max.bytes is %d: write at most socket.request.max.bytes (%d)", c.MessageMaxBytes, c.MaxRequestBytes)
	case c.MaxUncompressed < c.MessageMaxBytes:
		return fmt.Errorf("ingest: largest uncompressed batch is %d: write at least message.max.bytes (%d)", c.MaxUncompressed, c.MessageMaxBytes)
	}
	return nil
}

func (c *Config) replicationFactor() int16 {
	if c.ReplicationFactor > 0 {
		return c.ReplicationFactor
	}
	return c.ShardReplicas
}
