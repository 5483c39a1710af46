package ingest

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/metadata"
)

// DescribeTopicPartitions v0 (KIP-966).
//
// Topics come in order of their names, at most max.request.partition.size.limit
// partitions in one answer; the cursor says where the next one goes on. There
// is no list of eligible leaders beside the replicas: Raft elects, so that it
// is empty.
func describeTopicPartitionsAPI() api {
	h, n := serve(kmsg.NewPtrDescribeTopicPartitionsRequest, (*Server).handleDescribeTopicPartitions)
	return api{key: 75, name: "DescribeTopicPartitions", handle: h, newRequest: n}
}

func (s *Server) handleDescribeTopicPartitions(r *request, req *kmsg.DescribeTopicPartitionsRequest) {
	resp := kmsg.NewPtrDescribeTopicPartitionsResponse()
	resp.Version = r.version
	names, err := s.namesFrom(req)
	if err != nil {
		for _, t := range req.Topics {
			dt := kmsg.NewDescribeTopicPartitionsResponseTopic()
			name := t.Topic
			dt.Topic, dt.ErrorCode = &name, code(err)
			resp.Topics = append(resp.Topics, dt)
		}
		r.finish(resp)
		return
	}
	room := int(max(1, min(int64(req.ResponsePartitionLimit), s.settings().Int("max.request.partition.size.limit"))))
	d := partitionDescriber{srv: s, place: newPlacement(s.cluster), resp: resp, room: room}
	for _, name := range names {
		from := 0
		if c := req.Cursor; c != nil && c.Topic == name {
			from = int(c.Partition)
		}
		if !d.topic(name, from) {
			break
		}
	}
	r.finish(resp)
}

// namesFrom lists the topics to describe, in order: those asked for, or all,
// from the cursor's on.
func (s *Server) namesFrom(req *kmsg.DescribeTopicPartitionsRequest) ([]string, error) {
	var names []string
	for i := range req.Topics {
		names = append(names, req.Topics[i].Topic)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	all := len(names) == 0
	if all {
		for _, t := range s.sortedTopics() {
			names = append(names, t.Name)
		}
	}
	c := req.Cursor
	if c == nil {
		return names, nil
	}
	at, found := slices.BinarySearchFunc(names, c.Topic, strings.Compare)
	if c.Partition < 0 || !found && !all {
		return nil, kerr.InvalidRequest
	}
	return names[at:], nil
}

// partitionDescriber fills one answer within its room.
type partitionDescriber struct {
	srv   *Server
	place *placement
	resp  *kmsg.DescribeTopicPartitionsResponse
	room  int
}

// topic describes a topic's partitions, or returns false, with the cursor set,
// once there is no room.
func (d *partitionDescriber) topic(name string, from int) bool {
	row, ok := d.srv.cluster.TopicByName(name)
	if metadata.ReservedTopic(name) {
		ok = false
	}
	if d.room == 0 {
		d.next(name, 0)
		return false
	}
	dt := kmsg.NewDescribeTopicPartitionsResponseTopic()
	dt.Topic, dt.AuthorizedOperations = &name, topicOperations
	dt.IsInternal = metadata.ReservedTopic(name)
	if !ok {
		dt.ErrorCode = unknownTopic(name).Code
		d.resp.Topics = append(d.resp.Topics, dt)
		return true
	}
	dt.TopicID = row.ID
	to := min(len(row.Shards), max(from, 0)+d.room)
	for p := from; p < to; p++ {
		dt.Partitions = append(dt.Partitions, d.partition(int32(p), row.Shards[p]))
	}
	d.resp.Topics = append(d.resp.Topics, dt)
	d.room -= len(dt.Partitions)
	if to < len(row.Shards) {
		d.next(name, to)
		return false
	}
	return true
}

// unknownTopic is the error for a topic that does not exist.
func unknownTopic(name string) *kerr.Error {
	if metadata.CheckTopicName(name) != nil && !metadata.ReservedTopic(name) {
		return kerr.InvalidTopicException
	}
	return kerr.UnknownTopicOrPartition
}

func (d *partitionDescriber) partition(p int32, shard metadata.ShardID) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	at := d.place.of(shard)
	dp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	dp.Partition, dp.LeaderID, dp.LeaderEpoch = p, at.leader, at.epoch
	dp.Replicas, dp.ISR, dp.OfflineReplicas = at.replicas, at.live, at.offline
	dp.EligibleLeaderReplicas, dp.LastKnownELR = []int32{}, []int32{}
	if at.leader < 0 {
		dp.ErrorCode = kerr.LeaderNotAvailable.Code
	}
	return dp
}

func (d *partitionDescriber) next(topic string, partition int) {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, int32(partition)
	d.resp.NextCursor = &c
}
