package ingest

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/partition"
	"thermocline/tiering/format"
	"thermocline/wal/batch"
)

// TestFollowerServes reads from a real follower: what is in its tail, what is
// in the store, and what comes while the client waits; never more than it
// knows to be acknowledged.
func TestFollowerServes(t *testing.T) {
	cluster := newFakeCluster(1)
	rs := startReplicas(t, 3, 4<<20)
	s := startServer(t, cluster, nil)
	row, err := cluster.CreateTopic(context.Background(), NewTopic{Name: "t", Partitions: 1, ReplicationFactor: 1})
	if err != nil {
		t.Fatal(err)
	}
	key := partition.Key{Topic: row.ID}
	rs.command(&partition.CreatePartition{Key: key, Name: row.Name})
	produce := func(from, n int) {
		t.Helper()
		for i := from; i < from+n; i++ {
			b, info, err := batch.Gate(testBatch(batch.None, fmt.Sprint("v", i)), &batch.GateOptions{MaxBytes: 1 << 20, MaxUncompressed: 1 << 20, TimestampBeforeMax: -1, TimestampAfterMax: -1, Codec: batch.CodecProducer})
			if err != nil {
				t.Fatal(err)
			}
			rs.command(&partition.Produce{Key: key, Batch: b, Info: info})
		}
	}
	produce(0, 6)
	follower := rs.all[0]
	if follower == rs.leader {
		follower = rs.all[1]
	}
	knows := func(hw int64) {
		t.Helper()
		eventually(t, fmt.Sprintf("the follower knows of high watermark %d", hw), func() bool {
			v, ok := follower.set.View(key)
			return ok && v.HW >= hw
		})
	}
	knows(6)
	leader := rs.leader
	s.Server.replicas = &realReplicas{t: t, leader: follower} // before the first connection
	w := dial(t, s.addr)
	fetch := func(offset int64, wait int32) kmsg.FetchResponseTopicPartition {
		t.Helper()
		req := fetchRequest(17, row, offset)
		req.MaxWaitMillis = wait
		return ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions[0]
	}
	p := fetch(0, 0)
	if p.ErrorCode != 0 || p.HighWatermark != 6 || !bytes.Contains(p.RecordBatches, []byte("v5")) {
		t.Errorf("tail: error %d, high watermark %d, %d bytes", p.ErrorCode, p.HighWatermark, len(p.RecordBatches))
	}
	all := p.RecordBatches

	// What is tiered is read from the store, by the follower's own manifest.
	rng, ok := leader.set.Seal(1 << 40)
	if !ok {
		t.Fatal("nothing to seal")
	}
	for _, sp := range rng.Partitions {
		for _, ref := range sp.Batches {
			view, err := leader.Payload(ref.Index, ref.Term)
			if err != nil {
				t.Fatal(err)
			}
			s.cold.add(leader.set.Manifest().Shard, sp.Ref, bytes.Clone(view.Bytes()[ref.Pos:ref.Pos+ref.Len]), ref)
			view.Release()
		}
	}
	rs.command(&partition.TierSegment{Row: format.SegmentRow{
		Key: "s/1", FirstIndex: rng.First, LastIndex: rng.Last, Size: rng.Bytes, FooterLen: 64, Batches: 1, Records: 1,
	}})
	eventually(t, "the follower knows that it is tiered", func() bool {
		v, _ := follower.set.View(key)
		return v.TieredEnd == 6
	})
	if p := fetch(0, 500); p.ErrorCode != 0 || !bytes.Equal(p.RecordBatches, all) {
		t.Errorf("store: error %d, %d bytes, expected %d", p.ErrorCode, len(p.RecordBatches), len(all))
	}

	// A poll at the end waits for what the leader acknowledges next.
	req := fetchRequest(17, row, 6)
	req.MaxWaitMillis = 15_000
	w.send(req)
	produce(6, 1)
	if p := w.receive(req, w.correlation).(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 || !bytes.Contains(p.RecordBatches, []byte("v6")) || p.HighWatermark != 7 {
		t.Errorf("long poll: error %d, high watermark %d", p.ErrorCode, p.HighWatermark)
	}
	if p := fetch(9, 0); p.ErrorCode != kerr.OffsetNotAvailable.Code {
		t.Errorf("above what it has: error %d", p.ErrorCode)
	}
	if p := fetch(-1, 0); p.ErrorCode != kerr.OffsetOutOfRange.Code {
		t.Errorf("below the start: error %d", p.ErrorCode)
	}
	if got := ask[*kmsg.ProduceResponse](w, produceRequest(9, row, 0, -1, testBatch(batch.None, "x"))).Topics[0].Partitions[0].ErrorCode; got != kerr.NotLeaderForPartition.Code {
		t.Errorf("produce to a follower: error %d", got)
	}
}
