package ingest

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/partition"
	"thermocline/metadata"
)

// ListOffsets v1-11.
//
// v2 adds the isolation level, v4 leader epochs, v6 flexible encoding, v7 -3,
// v8 -4, v9 -5, v10 timeout_ms (look-ups may read the store), v11 -6. Every
// answer comes from one view of its partition; only the leader answers. The
// latest offset is told after leadership was confirmed (ReadIndex), never by lease.
func listOffsetsAPI() api {
	h, n := serve(kmsg.NewPtrListOffsetsRequest, (*Server).handleListOffsets)
	return api{key: 2, name: "ListOffsets", min: 1, max: 11, handle: h, newRequest: n}
}

// The timestamps with a meaning of their own, and since when.
const (
	latestOffset          = -1
	earliestOffset        = -2
	maxTimestampOffset    = -3 // v7
	earliestLocalOffset   = -4 // v8
	latestTieredOffset    = -5 // v9
	earliestPendingOffset = -6 // v11
)

// specialSince is the first version that knows a special timestamp.
func specialSince(ts int64) int16 {
	switch ts {
	case maxTimestampOffset:
		return 7
	case earliestLocalOffset:
		return 8
	case latestTieredOffset:
		return 9
	case earliestPendingOffset:
		return 11
	}
	return 1
}

// listed is one partition's answer.
type listed struct {
	offset, timestamp int64
	epoch             int32
}

var notListed = listed{offset: -1, timestamp: -1, epoch: -1}

func (s *Server) handleListOffsets(r *request, req *kmsg.ListOffsetsRequest) {
	r.conn.goAsync(r, func() {
		limit := coldWait
		if r.version >= 10 && req.TimeoutMillis > 0 {
			limit = min(time.Duration(req.TimeoutMillis)*time.Millisecond, 2*coldWait)
		}
		ctx, cancel := context.WithTimeout(r.conn.ctx, limit)
		defer cancel()
		op := listOp{srv: s, req: req, wait: patience{most: creationWait}, confirmed: s.confirmAll(ctx, req)}
		resp := kmsg.NewPtrListOffsetsResponse()
		resp.Version = r.version
		for i := range req.Topics {
			from := &req.Topics[i]
			to := kmsg.NewListOffsetsResponseTopic()
			to.Topic = from.Topic
			for j := range from.Partitions {
				p := kmsg.NewListOffsetsResponseTopicPartition()
				p.Partition = from.Partitions[j].Partition
				found, err := op.list(ctx, from.Topic, &from.Partitions[j])
				if err != nil {
					found, r.failed = notListed, true
				}
				p.ErrorCode, p.Offset, p.Timestamp, p.LeaderEpoch = code(err), found.offset, found.timestamp, found.epoch
				to.Partitions = append(to.Partitions, p)
			}
			resp.Topics = append(resp.Topics, to)
		}
		r.finish(resp)
	})
}

// listOp answers one request.
type listOp struct {
	srv       *Server
	req       *kmsg.ListOffsetsRequest
	wait      patience
	confirmed map[metadata.ShardID]error
}

// confirmAll confirms leadership, once for each shard of which the request
// asks for a latest offset, all at the same time.
func (s *Server) confirmAll(ctx context.Context, req *kmsg.ListOffsetsRequest) map[metadata.ShardID]error {
	asked, out := map[metadata.ShardID]bool{}, map[metadata.ShardID]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range req.Topics {
		row, err := s.topic(req.Topics[i].Topic, metadata.TopicID{}, false)
		if err != nil {
			continue
		}
		for _, p := range req.Topics[i].Partitions {
			t, err := s.locate(row, p.Partition)
			if err != nil || asked[t.shard] || p.Timestamp != latestOffset {
				continue
			}
			asked[t.shard] = true
			wg.Go(func() {
				err := confirm(ctx, t.replica)
				mu.Lock()
				out[t.shard] = err
				mu.Unlock()
			})
		}
	}
	wg.Wait()
	return out
}

// confirm waits until a replica is known to lead.
func confirm(ctx context.Context, r Replica) error {
	ctx, cancel := context.WithTimeout(ctx, readIndexWait)
	defer cancel()
	done := make(chan error, 1)
	r.ReadIndex(func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (op *listOp) list(ctx context.Context, topic string, p *kmsg.ListOffsetsRequestTopicPartition) (listed, error) {
	if p.Timestamp < earliestPendingOffset || specialSince(p.Timestamp) > op.req.Version {
		return notListed, kerr.UnsupportedVersion
	}
	t, v, err := op.srv.leaderView(ctx, topic, p.Partition, p.CurrentLeaderEpoch, &op.wait)
	if err != nil {
		return notListed, err
	}
	upTo := v.HW
	if op.req.IsolationLevel == 1 {
		upTo = v.LSO
	}
	switch p.Timestamp {
	case latestOffset:
		if err := op.confirmed[t.shard]; err != nil {
			return notListed, err
		}
		if !v.LatestKnown {
			return notListed, kerr.OffsetNotAvailable
		}
		return listed{upTo, -1, v.Epoch}, nil
	case earliestOffset:
		return listed{v.LogStart, -1, epochAt(&t, v.LogStart)}, nil
	case earliestLocalOffset, earliestPendingOffset:
		// The log is trimmed as soon as it is tiered: what is local is what
		// waits for its upload.
		return listed{v.TieredEnd, -1, epochAt(&t, v.TieredEnd)}, nil
	case latestTieredOffset:
		if v.TieredEnd == v.LogStart {
			return notListed, nil
		}
		return listed{v.TieredEnd - 1, -1, -1}, nil
	case maxTimestampOffset:
		return op.srv.findMaxTime(ctx, &t, upTo)
	}
	return op.srv.findTime(ctx, &t, p.Timestamp, upTo)
}

// epochAt is the leader epoch of an offset if it is in the tail, else -1: the
// client then does not check for truncation, of which there is none below the
// high watermark.
func epochAt(t *target, offset int64) int32 {
	refs := t.replica.State().Tail(t.key, offset, 0, true, offset+1, make([]partition.TailRef, 0, 1))
	if len(refs) == 0 {
		return -1
	}
	return refs[0].Epoch
}
