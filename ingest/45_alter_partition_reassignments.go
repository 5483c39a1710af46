package ingest

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterPartitionReassignments v0-1.
//
// A partition's replicas are those of its shard, which the cluster places.
// What a request asks for is accepted when it is so already, in any order;
// anything else is INVALID_REPLICA_ASSIGNMENT. Null replicas cancel a
// reassignment: there never is one. v1 adds whether the number of replicas may
// change.
func alterPartitionReassignmentsAPI() api {
	h, n := serve(kmsg.NewPtrAlterPartitionAssignmentsRequest, (*Server).handleAlterPartitionReassignments)
	return api{key: 45, name: "AlterPartitionReassignments", max: 1, handle: h, newRequest: n}
}

func (s *Server) handleAlterPartitionReassignments(r *request, req *kmsg.AlterPartitionAssignmentsRequest) {
	resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
	resp.Version, resp.AllowReplicationFactorChange = r.version, req.AllowReplicationFactorChange
	place := newPlacement(s.cluster)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			err := s.reassign(place, t.Topic, p.Partition, p.Replicas)
			rp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.ErrorMessage = p.Partition, code(err), message(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	r.finish(resp)
}

func (s *Server) reassign(place *placement, topic string, p int32, replicas []int32) error {
	row, ok := s.cluster.TopicByName(topic)
	if !ok {
		return refuse(kerr.UnknownTopicOrPartition, fmt.Sprintf("topic %q does not exist", topic))
	}
	if p < 0 || int(p) >= len(row.Shards) {
		return refuse(kerr.UnknownTopicOrPartition, fmt.Sprintf("topic %s has no partition %d", topic, p))
	}
	if replicas == nil {
		return refuse(kerr.NoReassignmentInProgress, "no reassignment is in progress")
	}
	now := slices.Sorted(slices.Values(place.of(row.Shards[p]).replicas))
	if !slices.Equal(slices.Sorted(slices.Values(replicas)), now) {
		return refuse(kerr.InvalidReplicaAssignment,
			fmt.Sprintf("expected the replicas of the partition's shard, %v, found %v: replicas are placed per shard, by the cluster", now, replicas))
	}
	return nil
}
