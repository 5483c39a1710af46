package ingest

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreatePartitions v0-3.
//
// Count is the new total. An assignment is checked as in CreateTopics.
func createPartitionsAPI() api {
	h, n := serve(kmsg.NewPtrCreatePartitionsRequest, (*Server).handleCreatePartitions)
	return api{key: 37, name: "CreatePartitions", max: 3, handle: h, newRequest: n}
}

func (s *Server) handleCreatePartitions(r *request, req *kmsg.CreatePartitionsRequest) {
	r.conn.goAsync(r, func() {
		ctx, cancel := context.WithTimeout(r.conn.ctx, adminWait(req.TimeoutMillis))
		defer cancel()
		resp := kmsg.NewPtrCreatePartitionsResponse()
		resp.Version = r.version
		twice := duplicates(req.Topics, func(t *kmsg.CreatePartitionsRequestTopic) string { return t.Topic })
		for i := range req.Topics {
			t, err := &req.Topics[i], errNamedTwice
			switch again, told := twice[t.Topic]; {
			case again:
				twice[t.Topic] = false // one answer for all that name it
			case told:
				continue
			default:
				err = s.addPartitions(ctx, t, req.ValidateOnly)
			}
			cp := kmsg.NewCreatePartitionsResponseTopic()
			cp.Topic, cp.ErrorCode, cp.ErrorMessage = t.Topic, code(err), message(err)
			resp.Topics = append(resp.Topics, cp)
		}
		r.finish(resp)
	})
}

func (s *Server) addPartitions(ctx context.Context, t *kmsg.CreatePartitionsRequestTopic, validateOnly bool) error {
	row, err := s.cluster.FindTopic(ctx, t.Topic)
	if err != nil {
		return err
	}
	have := len(row.Shards)
	if int(t.Count) <= have {
		return refuse(kerr.InvalidPartitions, fmt.Sprintf("topic has %d partitions: the new total must be higher than that, found %d", have, t.Count))
	}
	if t.Count > maxPartitionsPerTopic {
		return refuse(kerr.InvalidPartitions, fmt.Sprintf("number of partitions is %d: write at most %d", t.Count, maxPartitionsPerTopic))
	}
	if t.Assignment != nil {
		if len(t.Assignment) != int(t.Count)-have {
			return refuse(kerr.InvalidReplicaAssignment, fmt.Sprintf("expected an assignment of %d partitions, found %d", int(t.Count)-have, len(t.Assignment)))
		}
		sets := s.replicaSets()
		for _, a := range t.Assignment {
			if err := sets.check(a.Replicas); err != nil {
				return err
			}
		}
	}
	if validateOnly {
		return nil
	}
	_, err = s.cluster.AddPartitions(ctx, row.ID, int(t.Count))
	return err
}
