package broker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"

	"thermocline/cmd/config"
	"thermocline/ingest"
	"thermocline/ingest/brokerconfig"
	"thermocline/metadata"
	"thermocline/metadata/controller"
)

// serveKafka opens the doors to clients.
func (b *Broker) serveKafka() error {
	topics, err := controller.NewTopics(controller.TopicsConfig{
		Store: b.store, View: b.view, ShardReplicas: b.cfg.ShardReplicas, DefaultPartitions: b.cfg.NumPartitions,
		NewID: func() (metadata.TopicID, error) { return metadata.NewTopicID(rand.Reader) },
	})
	if err != nil {
		return err
	}
	c := &cluster{self: b.id, view: b.view, topics: topics, shards: b.shards, store: b.store}
	b.server, err = ingest.NewServer(b.ingestConfig(), c, b.shards, b.tier.reader, b.coordinators)
	if err != nil {
		return err
	}
	b.work.Go(func() {
		if err := b.server.Serve(b.kafka); err != nil && !errors.Is(err, ingest.ErrServerClosed) && !errors.Is(err, net.ErrClosed) && b.ctx.Err() == nil {
			b.fail(fmt.Errorf("kafka listener: %w", err))
		}
	})
	return nil
}

func (b *Broker) ingestConfig() ingest.Config {
	c := ingest.DefaultConfig()
	c.MaxRequestBytes = int(b.cfg.RequestMaxBytes)
	c.QueuedMaxBytes = int64(b.cfg.QueuedMaxBytes)
	c.MaxConnections = b.cfg.MaxConnections
	c.AutoCreateTopics = b.cfg.AutoCreate
	c.NumPartitions = int32(b.cfg.NumPartitions)
	c.ReplicationFactor = int16(b.cfg.ReplicationFactor)
	c.ShardReplicas = int16(b.cfg.ShardReplicas)
	c.MessageMaxBytes = int(b.cfg.MessageMaxBytes)
	v := b.cfg.Broker()
	c.FetchMaxBytes = int(v.Int("fetch.max.bytes"))
	c.FetchMemory = max(c.FetchMemory, int64(c.FetchMaxBytes))
	c.FetchSessions = int(v.Int("max.incremental.fetch.session.cache.slots"))
	c.MaxIdle = v.Millis("connections.max.idle.ms")
	c.DeleteTopics = v.Bool("delete.topic.enable")
	if n := v.Int("max.connections.per.ip"); n < math.MaxInt32 {
		c.MaxConnectionsPerIP = int(n)
	}
	c.DataDir, c.StoreName = b.cfg.DataDir, b.uploads.String()
	c.Static, c.Own = b.staticSettings()
	c.Logger = b.log
	if h, ok := b.log.Handler().(Leveled); ok {
		c.LogLevel = h.LevelVar()
	}
	c.Volume = func() (total, free int64) {
		t, f, err := b.fs.Space(".")
		if err != nil {
			return -1, -1
		}
		return int64(t), int64(f)
	}
	return c
}

// Leveled is a log handler whose level can be changed while it is used: then
// clients may change it.
type Leveled interface {
	slog.Handler
	LevelVar() *slog.LevelVar
}

// staticSettings are the settings that DescribeConfigs shows of a broker, and
// what it needs to know of those that Kafka does not have. The store's URL may
// hold a secret; its name does not.
func (b *Broker) staticSettings() (map[string]string, []brokerconfig.Def) {
	out := map[string]string{}
	var own []brokerconfig.Def
	for _, s := range config.Settings() {
		out[s.Key] = b.cfg.KafkaValue(s.Key)
		if _, known := brokerconfig.Lookup(s.Key); !known {
			own = append(own, brokerconfig.Own(s.Key, s.Default, s.Doc))
		}
	}
	out["store.url"] = b.uploads.String()
	return out, own
}
