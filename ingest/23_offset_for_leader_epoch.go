package ingest

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/partition"
)

// OffsetForLeaderEpoch v2-4.
//
// The largest epoch not above the asked one, and the offset where it ends:
// exact at any age, from the tail or from the store's pages. An epoch above
// the current one gives -1, -1; one below every known one gives itself and the
// log start, as Kafka does. Only the leader answers.
func offsetForLeaderEpochAPI() api {
	h, n := serve(kmsg.NewPtrOffsetForLeaderEpochRequest, (*Server).handleOffsetForLeaderEpoch)
	return api{key: 23, name: "OffsetForLeaderEpoch", min: 2, max: 4, handle: h, newRequest: n}
}

func (s *Server) handleOffsetForLeaderEpoch(r *request, req *kmsg.OffsetForLeaderEpochRequest) {
	r.conn.goAsync(r, func() {
		ctx, cancel := context.WithTimeout(r.conn.ctx, coldWait)
		defer cancel()
		wait := patience{most: creationWait}
		resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
		resp.Version = r.version
		for i := range req.Topics {
			from := &req.Topics[i]
			to := kmsg.NewOffsetForLeaderEpochResponseTopic()
			to.Topic = from.Topic
			for j := range from.Partitions {
				p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				p.Partition = from.Partitions[j].Partition
				found, end, err := s.leaderEpochEnd(ctx, from.Topic, &from.Partitions[j], &wait)
				p.ErrorCode, p.LeaderEpoch, p.EndOffset = code(err), found, end
				to.Partitions = append(to.Partitions, p)
			}
			resp.Topics = append(resp.Topics, to)
		}
		r.finish(resp)
	})
}

func (s *Server) leaderEpochEnd(ctx context.Context, topic string, p *kmsg.OffsetForLeaderEpochRequestTopicPartition, wait *patience) (int32, int64, error) {
	t, v, err := s.leaderView(ctx, topic, p.Partition, p.CurrentLeaderEpoch, wait)
	if err != nil {
		return -1, -1, err
	}
	return s.epochEnd(ctx, &t, &v, p.LeaderEpoch)
}

// leaderView finds a partition that this broker leads, checks the client's
// idea of its epoch, and takes a view.
func (s *Server) leaderView(ctx context.Context, topic string, p, epoch int32, wait *patience) (target, partition.View, error) {
	row, err := s.topic(topic, [16]byte{}, false)
	if err != nil {
		return target{}, partition.View{}, err
	}
	t, err := s.locate(row, p)
	if err == nil {
		err = t.leads()
	}
	if err != nil {
		return t, partition.View{}, err
	}
	v, err := s.viewOf(ctx, &t, wait)
	if err == nil {
		err = checkEpoch(epoch, &v)
	}
	return t, v, err
}

// epochEnd finds the largest epoch not above the asked one, and its end.
func (s *Server) epochEnd(ctx context.Context, t *target, v *partition.View, epoch int32) (int32, int64, error) {
	if epoch < 0 {
		return -1, -1, nil
	}
	found, end, ok := t.replica.State().EpochEnd(t.key, epoch)
	if ok {
		return found, end, nil
	}
	if v.TieredEnd > v.LogStart {
		coldFound, coldEnd, ok, err := s.cold.EpochEnd(ctx, indexPartition(v), epoch)
		if err != nil {
			return -1, -1, err
		}
		if ok {
			return coldFound, coldEnd, nil
		}
	}
	return epoch, v.LogStart, nil
}
