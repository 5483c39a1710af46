package ingest

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetCommit v2-10.
//
// Answered when the offsets are acknowledged as a record is: by the shard's
// acknowledgement bound. v10 names topics by id. Topics that do not exist are
// refused one by one, the others committed, as Kafka does.
func offsetCommitAPI() api {
	h, n := serve(kmsg.NewPtrOffsetCommitRequest, (*Server).handleOffsetCommit)
	return api{key: 8, name: "OffsetCommit", min: 2, max: 10, handle: h, newRequest: n}
}

func (s *Server) handleOffsetCommit(r *request, req *kmsg.OffsetCommitRequest) {
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	known := *req
	known.Topics = nil
	var places []int // of known.Topics in req.Topics
	for i := range req.Topics {
		t := req.Topics[i]
		refusal := s.nameCommitted(&t, r.version)
		resp.Topics[i] = commitErrors(&t, refusal)
		if refusal == nil {
			known.Topics, places = append(known.Topics, t), append(places, i)
		}
	}
	if len(known.Topics) == 0 && len(req.Topics) > 0 {
		r.finishGroup(resp)
		return
	}
	stop := r.abortWithConnection()
	s.callGroup(r, req.Group, &known, func(from kmsg.Response, k *kerr.Error) {
		stop()
		for n, i := range places {
			if k != nil {
				resp.Topics[i] = commitErrors(&known.Topics[n], k)
			} else {
				resp.Topics[i].Partitions = from.(*kmsg.OffsetCommitResponse).Topics[n].Partitions
			}
		}
		r.finishGroup(resp)
	})
}

// nameCommitted fills in the name of a topic that is named by its id, or says
// what is wrong with it.
func (s *Server) nameCommitted(t *kmsg.OffsetCommitRequestTopic, version int16) *kerr.Error {
	if version < 10 {
		if !s.topicExists(t.Topic) {
			return kerr.UnknownTopicOrPartition
		}
		return nil
	}
	name, ok := s.topicName(t.TopicID)
	if !ok {
		return kerr.UnknownTopicID
	}
	t.Topic = name
	return nil
}

// commitErrors answers every partition of a topic with k; nil: with none yet.
func commitErrors(t *kmsg.OffsetCommitRequestTopic, k *kerr.Error) kmsg.OffsetCommitResponseTopic {
	out := kmsg.NewOffsetCommitResponseTopic()
	out.Topic, out.TopicID = t.Topic, t.TopicID
	if k == nil {
		return out
	}
	for i := range t.Partitions {
		p := kmsg.NewOffsetCommitResponseTopicPartition()
		p.Partition, p.ErrorCode = t.Partitions[i].Partition, k.Code
		out.Partitions = append(out.Partitions, p)
	}
	return out
}
