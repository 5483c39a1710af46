package ingest

import (
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
		if s.topicExists(t.Topic) {
			known.Topics = append(known.Topics, t)
			continue
		}
		to := kmsg.NewOffsetDeleteResponseTopic()
		to.Topic = t.Topic
		for _, p := range t.Partitions {
			to.Partitions = append(to.Partitions, kmsg.OffsetDeleteResponseTopicPartition{
				Partition: p.Partition, ErrorCode: kerr.UnknownTopicOrPartition.Code,
			})
		}
		unknown = append(unknown, to)
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
			resp.Topics = append(resp.Topics, unknown...)
		}
		r.finishGroup(resp)
	})
}
