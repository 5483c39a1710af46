package ingest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/metadata"
)

// ElectLeaders v0-2.
//
// v1 adds the type: preferred (0), or unclean (1), which is never needed, since
// only a replica with all acknowledged records can lead. A preferred election
// moves the partition's shard to its home: at once when this broker leads it,
// else the balancer of its leader does so within half a minute, and the answer
// waits for it. Null topics mean all; then what needs no election is left out.
func electLeadersAPI() api {
	h, n := serve(kmsg.NewPtrElectLeadersRequest, (*Server).handleElectLeaders)
	return api{key: 43, name: "ElectLeaders", max: 2, handle: h, newRequest: n}
}

const (
	electPreferred = 0
	electUnclean   = 1
	// electPoll is the pause between looks at who leads.
	electPoll = 10 * time.Millisecond
)

func (s *Server) handleElectLeaders(r *request, req *kmsg.ElectLeadersRequest) {
	r.conn.goAsync(r, func() {
		ctx, cancel := context.WithTimeout(r.conn.ctx, adminWait(req.TimeoutMillis))
		defer cancel()
		resp := kmsg.NewPtrElectLeadersResponse()
		resp.Version = r.version
		topics := req.Topics
		if topics == nil {
			topics = s.allPartitions()
		}
		e := election{srv: s, kind: req.ElectionType, moved: map[metadata.ShardID]error{}}
		if e.kind != electPreferred && e.kind != electUnclean {
			resp.ErrorCode = kerr.InvalidRequest.Code
		}
		for i := range topics {
			rt := kmsg.NewElectLeadersResponseTopic()
			rt.Topic = topics[i].Topic
			for _, p := range topics[i].Partitions {
				err := e.elect(ctx, rt.Topic, p)
				if req.Topics == nil && code(err) == kerr.ElectionNotNeeded.Code {
					continue
				}
				rp := kmsg.NewElectLeadersResponseTopicPartition()
				rp.Partition, rp.ErrorCode, rp.ErrorMessage = p, code(err), message(err)
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		r.finish(resp)
	})
}

// allPartitions names every partition.
func (s *Server) allPartitions() []kmsg.ElectLeadersRequestTopic {
	var out []kmsg.ElectLeadersRequestTopic
	for _, row := range s.sortedTopics() {
		t := kmsg.NewElectLeadersRequestTopic()
		t.Topic = row.Name
		for p := range row.Shards {
			t.Partitions = append(t.Partitions, int32(p))
		}
		out = append(out, t)
	}
	return out
}

// election is one request's work; each shard is moved once.
type election struct {
	srv   *Server
	kind  int8
	moved map[metadata.ShardID]error
}

func (e *election) elect(ctx context.Context, topic string, p int32) error {
	if e.kind != electPreferred && e.kind != electUnclean {
		return refuse(kerr.InvalidRequest, fmt.Sprintf("election type is %d: write 0 (preferred) or 1 (unclean)", e.kind))
	}
	row, ok := e.srv.cluster.TopicByName(topic)
	if !ok {
		return refuse(kerr.UnknownTopicOrPartition, fmt.Sprintf("topic %q does not exist", topic))
	}
	if p < 0 || int(p) >= len(row.Shards) {
		return refuse(kerr.UnknownTopicOrPartition, fmt.Sprintf("topic %s has no partition %d", topic, p))
	}
	id := row.Shards[p]
	err, done := e.moved[id]
	if !done {
		err = e.shard(ctx, id)
		e.moved[id] = err
	}
	return err
}

// shard brings one shard's leadership home.
func (e *election) shard(ctx context.Context, id metadata.ShardID) error {
	at := newPlacement(e.srv.cluster).of(id)
	switch {
	case e.kind == electUnclean && at.leader >= 0:
		return refuse(kerr.ElectionNotNeeded, "the partition has a leader")
	case e.kind == electUnclean:
		return refuse(kerr.EligibleLeadersNotAvailable, "the partition's replicas elect among themselves once a majority of them is there")
	case len(at.replicas) == 0:
		return refuse(kerr.PreferredLeaderNotAvailable, "the partition is not placed yet")
	case at.leader == at.replicas[0]:
		return refuse(kerr.ElectionNotNeeded, "the preferred replica leads already")
	case !slices.Contains(at.live, at.replicas[0]):
		return refuse(kerr.PreferredLeaderNotAvailable, fmt.Sprintf("broker %d, the preferred replica, is not there", at.replicas[0]))
	}
	return e.move(ctx, id, metadata.BrokerID(at.replicas[0]))
}

// move asks for the hand-over and waits until it has happened.
func (e *election) move(ctx context.Context, id metadata.ShardID, to metadata.BrokerID) error {
	e.srv.cluster.TransferLeader(id, to)
	tick := time.NewTicker(electPoll)
	defer tick.Stop()
	for {
		if leader, _, ok := e.srv.cluster.Leader(id); ok && leader == to {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return refuse(kerr.RequestTimedOut, fmt.Sprintf("broker %d does not lead yet", to))
		}
	}
}
