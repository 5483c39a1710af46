package ingest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/topicconfig"
	"thermocline/metadata"
)

// CreateTopics v2-7.
//
// v4 lets partitions and replication factor be -1 for the defaults, v5 returns
// counts and configs, v7 the topic id. The replication factor is the shard's:
// up to shard.replicas is accepted, and the answer tells the real one. A manual
// assignment is taken as a number of partitions: which shard a partition lives
// in is the controller's to say, so an assignment is accepted only if each
// partition's replicas are those of some shard.
func createTopicsAPI() api {
	h, n := serve(kmsg.NewPtrCreateTopicsRequest, (*Server).handleCreateTopics)
	return api{key: 19, name: "CreateTopics", min: 2, max: 7, handle: h, newRequest: n}
}

func (s *Server) handleCreateTopics(r *request, req *kmsg.CreateTopicsRequest) {
	r.conn.goAsync(r, func() {
		ctx, cancel := context.WithTimeout(r.conn.ctx, adminWait(req.TimeoutMillis))
		defer cancel()
		resp := kmsg.NewPtrCreateTopicsResponse()
		resp.Version = r.version
		twice := duplicates(req.Topics, func(t *kmsg.CreateTopicsRequestTopic) string { return t.Topic })
		for i := range req.Topics {
			t := &req.Topics[i]
			if again, told := twice[t.Topic]; again {
				twice[t.Topic] = false // one answer for all that name it
				resp.Topics = append(resp.Topics, createFailed(t.Topic, errNamedTwice))
				continue
			} else if told {
				continue
			}
			resp.Topics = append(resp.Topics, s.createTopic(ctx, t, req.ValidateOnly, len(req.Topics)))
		}
		r.finish(resp)
	})
}

var errNamedTwice = refuse(kerr.InvalidRequest, "the request names the topic twice")

// adminWait is a client's timeout_ms within bounds.
func adminWait(ms int32) time.Duration {
	if ms <= 0 {
		return metadataWait
	}
	return min(time.Duration(ms)*time.Millisecond, 4*metadataWait)
}

// duplicates tells which names appear more than once.
func duplicates[T any](list []T, name func(*T) string) map[string]bool {
	seen := make(map[string]bool, len(list))
	twice := map[string]bool{}
	for i := range list {
		n := name(&list[i])
		if seen[n] {
			twice[n] = true
		}
		seen[n] = true
	}
	return twice
}

func createFailed(name string, err error) kmsg.CreateTopicsResponseTopic {
	ct := kmsg.NewCreateTopicsResponseTopic()
	ct.Topic, ct.ErrorCode, ct.ErrorMessage = name, code(err), message(err)
	ct.NumPartitions, ct.ReplicationFactor = -1, -1
	return ct
}

func (s *Server) createTopic(ctx context.Context, t *kmsg.CreateTopicsRequestTopic, validateOnly bool, topics int) kmsg.CreateTopicsResponseTopic {
	if topics > maxCreateTopics {
		return createFailed(t.Topic, refuse(kerr.InvalidRequest, fmt.Sprintf("the request names %d topics, at most %d are allowed", topics, maxCreateTopics)))
	}
	nt, err := s.newTopic(t)
	if err != nil {
		return createFailed(t.Topic, err)
	}
	ct := kmsg.NewCreateTopicsResponseTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = t.Topic, int32(nt.Partitions), nt.ReplicationFactor
	if !validateOnly {
		row, err := s.cluster.CreateTopic(ctx, nt)
		if err != nil {
			return createFailed(t.Topic, err)
		}
		ct.TopicID, ct.NumPartitions = row.ID, int32(len(row.Shards))
		if len(row.Shards) > 0 {
			if n := len(newPlacement(s.cluster).of(row.Shards[0]).replicas); n > 0 {
				ct.ReplicationFactor = int16(n)
			}
		}
	}
	d := configDescriber{srv: s, values: s.settings()}
	for _, c := range d.topic(nt.Config, nil) {
		ct.Configs = append(ct.Configs, kmsg.CreateTopicsResponseTopicConfig{
			Name: c.Name, Value: c.Value, ReadOnly: c.ReadOnly, Source: int8(c.Source), IsSensitive: c.IsSensitive,
		})
	}
	return ct
}

// newTopic checks everything that can be checked without the store.
func (s *Server) newTopic(t *kmsg.CreateTopicsRequestTopic) (NewTopic, error) {
	nt := NewTopic{Name: t.Topic, Partitions: int(t.NumPartitions), ReplicationFactor: t.ReplicationFactor, Config: map[string]string{}}
	if err := metadata.CheckTopicName(t.Topic); err != nil {
		return nt, err
	}
	if _, ok := s.cluster.TopicByName(t.Topic); ok {
		return nt, refuse(kerr.TopicAlreadyExists, fmt.Sprintf("topic %q already exists", t.Topic))
	}
	if other, ok := s.cluster.Collision(t.Topic); ok {
		return nt, refuse(kerr.InvalidTopicException, fmt.Sprintf("topic %q collides with topic %q: they differ only in '.' and '_'", t.Topic, other.Name))
	}
	for _, c := range t.Configs {
		if c.Value == nil || len(*c.Value) > maxConfigValue {
			return nt, refuse(kerr.InvalidConfig, fmt.Sprintf("value of %s is null or longer than %d bytes", c.Name, maxConfigValue))
		}
		nt.Config[c.Name] = *c.Value
	}
	if err := topicconfig.Validate(nt.Config, s.configLimits()); err != nil {
		return nt, err
	}
	if len(t.ReplicaAssignment) > 0 {
		if nt.Partitions != -1 || nt.ReplicationFactor != -1 {
			return nt, refuse(kerr.InvalidRequest, "partitions and replication factor must be -1 beside a replica assignment")
		}
		if err := s.checkAssignment(t.ReplicaAssignment); err != nil {
			return nt, err
		}
		nt.Partitions = len(t.ReplicaAssignment)
	}
	if nt.Partitions == -1 {
		nt.Partitions = int(s.cfg.NumPartitions)
	}
	if nt.ReplicationFactor == -1 {
		nt.ReplicationFactor = s.cfg.replicationFactor()
	}
	switch {
	case nt.ReplicationFactor < 1, nt.ReplicationFactor > s.cfg.ShardReplicas && nt.Partitions >= 1: // in Kafka's order
		return nt, refuse(kerr.InvalidReplicationFactor,
			fmt.Sprintf("replication factor is %d: write 1 to %d (shard.replicas: every partition has the replicas of its shard)", nt.ReplicationFactor, s.cfg.ShardReplicas))
	case nt.Partitions < 1 || nt.Partitions > maxPartitionsPerTopic:
		return nt, refuse(kerr.InvalidPartitions, fmt.Sprintf("number of partitions is %d: write 1 to %d", nt.Partitions, maxPartitionsPerTopic))
	}
	return nt, nil
}

// configLimits are what the cluster can keep: a majority is what the ack
// policy quorum guarantees.
func (s *Server) configLimits() topicconfig.Limits {
	return topicconfig.Limits{MaxMessageBytes: int64(s.cfg.MaxRequestBytes), MinInsyncMax: int64(s.cfg.ShardReplicas/2 + 1)}
}

func (s *Server) checkAssignment(list []kmsg.CreateTopicsRequestTopicReplicaAssignment) error {
	if len(list) > maxPartitionsPerTopic {
		return refuse(kerr.InvalidPartitions, fmt.Sprintf("number of partitions is %d: write at most %d", len(list), maxPartitionsPerTopic))
	}
	seen := make([]bool, len(list))
	sets := s.replicaSets()
	for _, a := range list {
		if a.Partition < 0 || int(a.Partition) >= len(list) || seen[a.Partition] {
			return refuse(kerr.InvalidReplicaAssignment, "partitions of an assignment must be numbered from 0 without gaps")
		}
		seen[a.Partition] = true
		if err := sets.check(a.Replicas); err != nil {
			return err
		}
	}
	return nil
}

// replicaSets are the sets of brokers that hold some shard, each sorted.
type replicaSets [][]int32

func (s *Server) replicaSets() replicaSets {
	var sets replicaSets
	place := newPlacement(s.cluster)
	for _, id := range s.knownShards() {
		set := slices.Sorted(slices.Values(place.of(id).replicas))
		if !slices.ContainsFunc(sets, func(o []int32) bool { return slices.Equal(o, set) }) {
			sets = append(sets, set)
		}
	}
	return sets
}

// check accepts a list of replicas only if some shard has exactly these.
func (sets replicaSets) check(replicas []int32) error {
	want := slices.Sorted(slices.Values(replicas))
	if slices.ContainsFunc(sets, func(o []int32) bool { return slices.Equal(o, want) }) {
		return nil
	}
	return refuse(kerr.InvalidReplicaAssignment, fmt.Sprintf("replicas %v are not those of any shard: leave placement to the cluster", replicas))
}
