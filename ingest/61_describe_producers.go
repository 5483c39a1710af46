package ingest

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/partition"
)

// DescribeProducers v0: what a partition's leader remembers of its producers.
func describeProducersAPI() api {
	h, n := serve(kmsg.NewPtrDescribeProducersRequest, (*Server).handleDescribeProducers)
	return api{key: 61, name: "DescribeProducers", handle: h, newRequest: n}
}

func (s *Server) handleDescribeProducers(r *request, req *kmsg.DescribeProducersRequest) {
	resp := kmsg.NewPtrDescribeProducersResponse()
	resp.Version = r.version
	for i := range req.Topics {
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = req.Topics[i].Topic
		for _, p := range req.Topics[i].Partitions {
			rp := kmsg.NewDescribeProducersResponseTopicPartition()
			rp.Partition = p
			var err error
			rp.ActiveProducers, err = s.producers(rt.Topic, p)
			rp.ErrorCode, rp.ErrorMessage = code(err), message(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	r.finish(resp)
}

func (s *Server) producers(topic string, p int32) ([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, error) {
	row, ok := s.cluster.TopicByName(topic)
	if !ok {
		return nil, unknownTopic(topic)
	}
	t, err := s.locate(row, p)
	if err == nil {
		err = t.leads()
	}
	if err != nil {
		return nil, err
	}
	known := t.replica.State().Producers(t.key)
	slices.SortFunc(known, func(a, b partition.ProducerState) int { return cmp.Compare(a.ID, b.ID) })
	out := make([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, 0, len(known))
	for _, k := range known {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch, a.LastSequence, a.LastTimestamp = k.ID, int32(k.Epoch), k.LastSequence, k.LastUnixMilli
		a.CoordinatorEpoch, a.CurrentTxnStartOffset = -1, -1
		out = append(out, a)
	}
	return out, nil
}
