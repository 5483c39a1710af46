package ingest

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/partition"
	"thermocline/wal/shard"
)

// DeleteRecords v0-2.
//
// Moves the log start, as a command in the shard's log; -1 means the high
// watermark. The answer's low watermark is the new log start.
func deleteRecordsAPI() api {
	h, n := serve(kmsg.NewPtrDeleteRecordsRequest, (*Server).handleDeleteRecords)
	return api{key: 21, name: "DeleteRecords", max: 2, handle: h, newRequest: n}
}

func (s *Server) handleDeleteRecords(r *request, req *kmsg.DeleteRecordsRequest) {
	r.conn.goAsync(r, func() {
		ctx, cancel := context.WithTimeout(r.conn.ctx, adminWait(req.TimeoutMillis))
		defer cancel()
		resp := kmsg.NewPtrDeleteRecordsResponse()
		resp.Version = r.version
		wait := patience{most: creationWait}
		slots := make(chan struct{}, maxAsync)
		var wg sync.WaitGroup
		for i := range req.Topics {
			from := &req.Topics[i]
			to := kmsg.NewDeleteRecordsResponseTopic()
			to.Topic = from.Topic
			to.Partitions = make([]kmsg.DeleteRecordsResponseTopicPartition, len(from.Partitions))
			resp.Topics = append(resp.Topics, to)
			for j := range from.Partitions {
				p := &to.Partitions[j]
				p.Default()
				p.Partition, p.LowWatermark = from.Partitions[j].Partition, -1
				t, _, err := s.leaderView(ctx, from.Topic, p.Partition, -1, &wait)
				if err == nil && !s.effective(t.row).Deletes {
					err = kerr.PolicyViolation // as Kafka: what is compacted alone keeps its records
				}
				if err != nil {
					p.ErrorCode = code(err)
					continue
				}
				slots <- struct{}{}
				wg.Go(func() {
					low, err := deleteRecords(ctx, &t, from.Partitions[j].Offset)
					p.LowWatermark, p.ErrorCode = low, code(err)
					<-slots
				})
			}
		}
		wg.Wait()
		r.finish(resp)
	})
}

// deleteRecords proposes the new log start and waits for its fate.
func deleteRecords(ctx context.Context, t *target, offset int64) (int64, error) {
	if offset < -1 {
		return -1, kerr.OffsetOutOfRange
	}
	done := make(chan shard.Outcome, 1)
	p := &shard.Proposal{
		Commands: []any{&partition.DeleteRecords{Key: t.key, Offset: offset}}, Bytes: commandBytes, Acks: shard.AcksAll,
		Done: func(out []shard.Outcome) { done <- out[0] },
	}
	if !t.replica.Propose(p) {
		return -1, t.replica.Intake(p.Class)
	}
	select {
	case out := <-done:
		low, ok := out.Result.(int64)
		if out.Err != nil || !ok {
			return -1, out.Err
		}
		return low, nil
	case <-ctx.Done():
		return -1, ctx.Err()
	}
}
