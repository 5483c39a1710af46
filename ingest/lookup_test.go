package ingest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/metadata"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

// listOffset asks for one timestamp.
func listOffset(w *wire, version int16, row *metadata.Topic, ts int64) kmsg.ListOffsetsResponseTopicPartition {
	w.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = version
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = row.Name
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Timestamp, rp.CurrentLeaderEpoch = ts, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.ListOffsetsResponse](w, req).Topics[0].Partitions[0]
}

func TestListOffsetsSpecialTimestamps(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "special", 1, nil)
	row := topicOf(t, s, "special")
	r := s.cluster.replicas[1]
	w := dial(t, s.addr)
	expect := func(what string, ts, offset, timestamp int64) {
		t.Helper()
		p := listOffset(w, 11, row, ts)
		if p.ErrorCode != 0 || p.Offset != offset || p.Timestamp != timestamp {
			t.Errorf("%s: expected offset %d and timestamp %d, found %+v", what, offset, timestamp, p)
		}
	}
	now := time.Now().UnixMilli()
	write := func(times ...int64) {
		t.Helper()
		b := batch.NewBuilder(batch.BuilderOptions{})
		for _, ts := range times {
			b.Add(ts, nil, []byte("v"))
		}
		if p := produced(w, produceRequest(9, row, 0, -1, b.Build())); p.ErrorCode != 0 {
			t.Fatalf("produce: %+v", p)
		}
	}
	for _, ts := range []int64{latestOffset, earliestOffset, earliestLocalOffset, earliestPendingOffset} {
		expect("empty partition", ts, 0, -1)
	}
	expect("latest tiered, empty", latestTieredOffset, -1, -1)
	expect("max timestamp, empty", maxTimestampOffset, -1, -1)
	expect("by time, empty", now, -1, -1)
	write(now-50, now-10, now-30)
	expect("max timestamp, hot", maxTimestampOffset, 1, now-10)
	r.tier(t, s.cold)
	write(now-40, now-20)
	expect("latest", latestOffset, 5, -1)
	expect("earliest", earliestOffset, 0, -1)
	expect("earliest local", earliestLocalOffset, 3, -1)
	expect("latest tiered", latestTieredOffset, 2, -1)
	expect("earliest pending", earliestPendingOffset, 3, -1)
	expect("max timestamp, cold", maxTimestampOffset, 1, now-10)
	write(now - 10)
	expect("max timestamp, the first of equals", maxTimestampOffset, 1, now-10)
	write(now - 5)
	expect("max timestamp, hot again", maxTimestampOffset, 6, now-5)
	expect("by time, nothing so late", now, -1, -1)
	for ts, since := range map[int64]int16{maxTimestampOffset: 7, earliestLocalOffset: 8, latestTieredOffset: 9, earliestPendingOffset: 11} {
		if p := listOffset(w, since-1, row, ts); p.ErrorCode != kerr.UnsupportedVersion.Code {
			t.Errorf("%d at v%d: error %d", ts, since-1, p.ErrorCode)
		}
	}
	if p := listOffset(w, 11, row, -7); p.ErrorCode != kerr.UnsupportedVersion.Code {
		t.Errorf("-7: error %d", p.ErrorCode)
	}
	r.set.SetHW(r.index, false) // a new leader that is not sure yet
	if p := listOffset(w, 11, row, latestOffset); p.ErrorCode != kerr.OffsetNotAvailable.Code {
		t.Errorf("latest, not known: error %d", p.ErrorCode)
	}
	r.mu.Lock()
	r.lead = shard.Leadership{Leader: 9}
	r.mu.Unlock()
	if p := listOffset(w, 11, row, latestOffset); p.ErrorCode != kerr.NotLeaderForPartition.Code {
		t.Errorf("not leader: error %d", p.ErrorCode)
	}
}

// TestTimeLookupAgainstBruteForce compares look-ups by time with a walk over
// all records, for every timestamp near each record, while data moves from
// tail to store and the log start moves.
func TestTimeLookupAgainstBruteForce(t *testing.T) {
	const seed = 5
	rng := rand.New(rand.NewPCG(seed, 0))
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "times", 1, nil)
	row := topicOf(t, s, "times")
	r := s.cluster.replicas[1]
	w := dial(t, s.addr)
	base := time.Now().UnixMilli() - 100_000
	var times []int64 // by offset
	start := int64(0)
	check := func() {
		t.Helper()
		for ts := base - 1; ts <= base+42; ts++ {
			want, at := int64(-1), int64(-1)
			for o := start; o < int64(len(times)); o++ {
				if times[o] >= ts {
					want, at = o, times[o]
					break
				}
			}
			if p := listOffset(w, 7, row, ts); p.Offset != want || p.Timestamp != at {
				t.Fatalf("seed %d, timestamp base%+d, start %d: expected offset %d, found %+v", seed, ts-base, start, want, p)
			}
		}
		want := int64(-1)
		for o := start; o < int64(len(times)); o++ {
			if want < 0 || times[o] > times[want] {
				want = o
			}
		}
		if p := listOffset(w, 7, row, maxTimestampOffset); p.Offset != want {
			t.Fatalf("seed %d, start %d: expected the largest timestamp at %d, found %+v", seed, start, want, p)
		}
	}
	for round := range 12 {
		b := batch.NewBuilder(batch.BuilderOptions{Codec: batch.Codec(round % 5)})
		for range 1 + rng.IntN(6) {
			ts := base + rng.Int64N(40)
			b.Add(ts, nil, []byte("v"))
			times = append(times, ts)
		}
		if p := produced(w, produceRequest(9, row, 0, -1, b.Build())); p.ErrorCode != 0 {
			t.Fatalf("produce: %+v", p)
		}
		if round%4 == 2 {
			r.tier(t, s.cold)
		}
		if round%3 == 1 {
			start += rng.Int64N(int64(len(times)) - start + 1)
			req := sampleRequest(s, 21, 2, row).(*kmsg.DeleteRecordsRequest)
			req.Version, req.Topics[0].Partitions[0].Offset = 2, start
			if p := ask[*kmsg.DeleteRecordsResponse](w, req).Topics[0].Partitions[0]; p.ErrorCode != 0 || p.LowWatermark != start {
				t.Fatalf("delete up to %d: %+v", start, p)
			}
		}
		check()
	}
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "epochs", 1, nil)
	row := topicOf(t, s, "epochs")
	w := dial(t, s.addr)
	fill(t, s, row, 0, "a", "b", "c")
	ends := func(epoch, current int32) kmsg.OffsetForLeaderEpochResponseTopicPartition {
		req := sampleRequest(s, 23, 4, row).(*kmsg.OffsetForLeaderEpochRequest)
		req.Version = 4
		req.Topics[0].Partitions[0].LeaderEpoch, req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch, current
		return ask[*kmsg.OffsetForLeaderEpochResponse](w, req).Topics[0].Partitions[0]
	}
	for _, tiered := range []bool{false, true} {
		if tiered {
			s.cluster.replicas[1].tier(t, s.cold)
		}
		if p := ends(fakeTerm, fakeTerm); p.ErrorCode != 0 || p.LeaderEpoch != fakeTerm || p.EndOffset != 3 {
			t.Errorf("tiered %v, current epoch: %+v", tiered, p)
		}
		if p := ends(fakeTerm+1, -1); p.ErrorCode != 0 || p.LeaderEpoch != -1 || p.EndOffset != -1 {
			t.Errorf("tiered %v, future epoch: %+v", tiered, p)
		}
		if p := ends(fakeTerm-3, -1); p.ErrorCode != 0 || p.EndOffset != 0 {
			t.Errorf("tiered %v, epoch before all: %+v", tiered, p)
		}
	}
	if p := ends(fakeTerm, fakeTerm-1); p.ErrorCode != kerr.FencedLeaderEpoch.Code {
		t.Errorf("fenced: %+v", p)
	}
	if p := ends(fakeTerm, fakeTerm+1); p.ErrorCode != kerr.UnknownLeaderEpoch.Code {
		t.Errorf("unknown: %+v", p)
	}
}
