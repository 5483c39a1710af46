package ingest

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/metadata"
)

// OffsetCommit v2-10.
//
// Answered when the offsets are acknowledged as a record is: by the shard's
// acknowledgement bound. v10 names topics by id. Topics and partitions that do
// not exist are refused one by one, the others committed, as Kafka does.
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
		partitions, refusal := s.nameCommitted(&t, r.version)
		resp.Topics[i] = commitErrors(&t, refusal)
		t.Partitions = slices.DeleteFunc(slices.Clone(t.Partitions), func(p kmsg.OffsetCommitRequestTopicPartition) bool {
			return !exists(p.Partition, partitions)
		})
		if refusal == nil && len(t.Partitions) > 0 {
			known.Topics, places = append(known.Topics, t), append(places, i)
		}
	}
	if len(known.Topics) == 0 && len(req.Topics) > 0 {
		for i := range req.Topics {
			resp.Topics[i].Partitions = missingBeside(&req.Topics[i], resp.Topics[i].Partitions)
		}
		r.finishGroup(resp)
		return
	}
	stop := r.abortWithConnection()
	s.callGroup(r, req.Group, &known, func(from kmsg.Response, k *kerr.Error) {
		stop()
		for n, i := range places {
			if k != nil {
				resp.Topics[i].Partitions = commitErrors(&known.Topics[n], k).Partitions
			} else {
				resp.Topics[i].Partitions = from.(*kmsg.OffsetCommitResponse).Topics[n].Partitions
			}
		}
		for i := range req.Topics {
			resp.Topics[i].Partitions = missingBeside(&req.Topics[i], resp.Topics[i].Partitions)
		}
		r.finishGroup(resp)
	})
}

// exists tells whether a topic of that many partitions has one of that number.
func exists(partition int32, partitions int) bool {
	return partition >= 0 && int(partition) < partitions
}

// missingBeside adds the partitions that nobody has answered for, since they
// do not exist: answers are in the request's order.
func missingBeside(t *kmsg.OffsetCommitRequestTopic, answered []kmsg.OffsetCommitResponseTopicPartition) []kmsg.OffsetCommitResponseTopicPartition {
	out := make([]kmsg.OffsetCommitResponseTopicPartition, 0, len(t.Partitions))
	for i := range t.Partitions {
		if len(answered) > 0 && answered[0].Partition == t.Partitions[i].Partition {
			out, answered = append(out, answered[0]), answered[1:]
			continue
		}
		p := kmsg.NewOffsetCommitResponseTopicPartition()
		p.Partition, p.ErrorCode = t.Partitions[i].Partition, kerr.UnknownTopicOrPartition.Code
		out = append(out, p)
	}
	return out
}

// nameCommitted fills in the name of a topic that is named by its id, and
// tells how many partitions it has, or what is wrong with it.
func (s *Server) nameCommitted(t *kmsg.OffsetCommitRequestTopic, version int16) (int, *kerr.Error) {
	row, ok := s.cluster.TopicByName(t.Topic)
	unknown := kerr.UnknownTopicOrPartition
	if version >= 10 {
		row, ok = s.cluster.TopicByID(metadata.TopicID(t.TopicID))
		unknown = kerr.UnknownTopicID
	}
	if !ok {
		return 0, unknown
	}
	t.Topic = row.Name
	return len(row.Shards), nil
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
