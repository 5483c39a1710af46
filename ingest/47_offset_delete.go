package ingest

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetDelete v0. Offsets of topics that the group reads at the moment stay
// (GROUP_SUBSCRIBED_TO_TOPIC).
func offsetDeleteAPI() api {
	h, n := serve(kmsg.NewPtrOffsetDeleteRequest, (*Server).handleOffsetDelete)
	return api{key: 47, name: "OffsetDelete", max: 0, handle: h, newRequest: n}
}

func (s *Server) handleOffsetDelete(r *request, req *kmsg.OffsetDeleteRequest) {
	known := *req
	known.Topics = nil
	var unknown []kmsg.OffsetDeleteResponseTopic
	for _, t := range req.Topics {
		there, missing := s.deletable(t)
		if len(there.Partitions) > 0 || len(missing.Partitions) == 0 && s.topicExists(t.Topic) {
			known.Topics = append(known.Topics, there)
		}
		if len(missing.Partitions) > 0 {
			unknown = append(unknown, missing)
		}
	}
	stop := r.abortWithConnection()
	s.callGroup(r, req.Group, &known, func(from kmsg.Response, k *kerr.Error) {
		stop()
		resp := kmsg.NewPtrOffsetDeleteResponse()
		if k != nil {
			resp.ErrorCode = k.Code
		} else {
			resp = from.(*kmsg.OffsetDeleteResponse)
		}
		if resp.ErrorCode == 0 {
			resp.Topics = joinDeleted(resp.Topics, unknown)
		}
		r.finishGroup(resp)
	})
}

// deletable parts a topic's partitions into those that exist, and the answers
// for those that do not.
func (s *Server) deletable(t kmsg.OffsetDeleteRequestTopic) (there kmsg.OffsetDeleteRequestTopic, missing kmsg.OffsetDeleteResponseTopic) {
	partitions := 0
	if row, ok := s.cluster.TopicByName(t.Topic); ok {
		partitions = len(row.Shards)
	}
	there.Topic, missing.Topic = t.Topic, t.Topic
	for _, p := range t.Partitions {
		if exists(p.Partition, partitions) {
			there.Partitions = append(there.Partitions, p)
			continue
		}
		missing.Partitions = append(missing.Partitions, kmsg.OffsetDeleteResponseTopicPartition{
			Partition: p.Partition, ErrorCode: kerr.UnknownTopicOrPartition.Code,
		})
	}
	return there, missing
}

// joinDeleted adds answers, to a topic that has some already where there is one.
func joinDeleted(topics, more []kmsg.OffsetDeleteResponseTopic) []kmsg.OffsetDeleteResponseTopic {
	for _, m := range more {
		i := slices.IndexFunc(topics, func(t kmsg.OffsetDeleteResponseTopic) bool { return t.Topic == m.Topic })
		if i < 0 {
			topics = append(topics, m)
			continue
		}
		topics[i].Partitions = append(topics[i].Partitions, m.Partitions...)
	}
	return topics
}
