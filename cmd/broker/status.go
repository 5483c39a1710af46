package broker

import (
	"context"
	"time"

	"thermocline/ingest/partition"
	"thermocline/wal"
	"thermocline/wal/shard"
)

// Status is what /status shows of a broker.
type Status struct {
	Broker  int32         `json:"broker"`
	Replica string        `json:"replica"`
	Cluster string        `json:"cluster"`
	Kafka   string        `json:"kafka"`
	Ready   string        `json:"ready"`
	Log     LogStatus     `json:"log"`
	Shards  []ShardStatus `json:"shards"`
	// MetadataAge is how long ago the metadata store was heard of.
	MetadataAge string `json:"metadata_age"`
}

// LogStatus is the write-ahead log's state.
type LogStatus struct {
	wal.Usage
	// Error is why the log is out of service; empty while it is well.
	Error string `json:"error,omitempty"`
}

// ShardStatus is one replica's state.
type ShardStatus struct {
	shard.Status
	Partitions partition.Status `json:"partitions"`
	// Replacing is a planned change of the shard's replicas.
	Replacing *ReplacementStatus `json:"replacing,omitempty"`
}

// statusTimeout bounds how long a busy shard may take to describe itself.
const statusTimeout = time.Second

// Status describes the broker.
func (b *Broker) Status() Status {
	s := Status{
		Broker: int32(b.id), Replica: b.replica.String(), Cluster: b.view.Cluster().Info.ID, Kafka: b.KafkaAddr(), Ready: "yes",
		Log:         LogStatus{Usage: b.writer.Usage()},
		MetadataAge: time.Since(b.view.Health().LastContact).Round(time.Millisecond).String(),
	}
	if err := b.Ready(); err != nil {
		s.Ready = err.Error()
	}
	if err := b.writer.Err(); err != nil {
		s.Log.Error = err.Error()
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	for _, o := range b.shards.all() {
		st, err := o.runner.Status(ctx)
		if err != nil && st.Failed == "" {
			st.Failed = err.Error()
		}
		s.Shards = append(s.Shards, ShardStatus{st, o.set.Status(), b.replacer.status(o.id)})
	}
	return s
}
