package ingest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/metadata"
	"thermocline/tiering/object"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

// randomAnswer makes an answer in which every field varies.
func randomAnswer(rng *rand.Rand) *fetchAnswer {
	a := &fetchAnswer{throttle: rng.Int32(), err: int16(rng.IntN(100)), sessionID: rng.Int32()}
	for range rng.IntN(4) {
		t := fetchAnswerTopic{name: fmt.Sprint("topic-", rng.IntN(1000))}
		t.id[3] = byte(rng.IntN(256))
		for range rng.IntN(5) {
			f := newFetched(&fetchPart{partition: rng.Int32()})
			f.err, f.hw, f.lso, f.logStart = int16(rng.IntN(3)), rng.Int64(), rng.Int64(), rng.Int64()
			f.committed = rng.IntN(2) == 0
			if rng.IntN(3) == 0 {
				f.preferred = 3
			}
			if rng.IntN(3) == 0 {
				f.divergingEpoch, f.divergingEnd = rng.Int32(), rng.Int64()
			}
			if rng.IntN(3) == 0 {
				f.leader, f.leaderEpoch = rng.Int32(), rng.Int32()
			}
			for range rng.IntN(4) {
				piece := bytes.Repeat([]byte{byte(rng.IntN(256))}, 1+rng.IntN(300))
				f.pieces = append(f.pieces, piece)
				f.bytes += len(piece)
			}
			t.partitions = append(t.partitions, &f)
		}
		a.topics = append(a.topics, t)
	}
	if rng.IntN(2) == 0 {
		a.brokers = []metadata.Broker{{ID: 1, KafkaHost: "h", KafkaPort: 9092}, {ID: 2, KafkaHost: "i", KafkaPort: 9093, Rack: "r"}}
	}
	return a
}

// asKmsg is the same answer as kmsg has it.
func asKmsg(a *fetchAnswer, version int16) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version, resp.ThrottleMillis, resp.ErrorCode, resp.SessionID = version, a.throttle, a.err, a.sessionID
	for _, t := range a.topics {
		kt := kmsg.NewFetchResponseTopic()
		kt.Topic, kt.TopicID = t.name, t.id
		for _, f := range t.partitions {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset = f.partition, f.err, f.hw, f.lso, f.logStart
			p.PreferredReadReplica = f.preferred
			p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = f.divergingEpoch, f.divergingEnd
			p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = f.leader, f.leaderEpoch
			p.RecordBatches = []byte{}
			if f.committed {
				p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
			}
			for _, piece := range f.pieces {
				p.RecordBatches = append(p.RecordBatches, piece...)
			}
			kt.Partitions = append(kt.Partitions, p)
		}
		resp.Topics = append(resp.Topics, kt)
	}
	for _, b := range a.brokers {
		resp.Brokers = append(resp.Brokers, kmsg.FetchResponseBroker{NodeID: int32(b.ID), Host: b.KafkaHost, Port: b.KafkaPort, Rack: rackOf(b)})
	}
	return resp
}

// TestFetchEncoding compares our encoder with kmsg's for every version.
func TestFetchEncoding(t *testing.T) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, 0))
	for version := fetchAPI().min; version <= fetchAPI().max; version++ {
		for round := range 200 {
			a := randomAnswer(rng)
			e := fetchEncoder{version: version, flexible: version >= 12}
			e.encode(a)
			head, rest, size := e.buffers()
			got := slices.Clone(head)
			for _, b := range rest {
				got = append(got, b...)
			}
			if size != len(got)-len(head) {
				t.Fatalf("v%d: the rest is said to be %d bytes, found %d", version, size, len(got)-len(head))
			}
			if want := asKmsg(a, version).AppendTo(nil); !bytes.Equal(got, want) {
				t.Fatalf("v%d, round %d, seed %d:\nkmsg % x\nours % x", version, round, seed, want, got)
			}
		}
	}
}

// fill produces batches of one record each.
func fill(t testing.TB, s *testServer, row *metadata.Topic, p int32, values ...string) {
	t.Helper()
	w := dial(t, s.addr)
	for _, v := range values {
		resp := ask[*kmsg.ProduceResponse](w, produceRequest(9, row, p, -1, testBatch(batch.None, v)))
		if c := resp.Topics[0].Partitions[0].ErrorCode; c != 0 {
			t.Fatalf("produce: %v", kerr.ErrorForCode(c))
		}
	}
}

func TestFetchSession(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "session", 3, nil)
	row := topicOf(t, s, "session")
	fill(t, s, row, 1, "a")
	w := dial(t, s.addr)
	req := fetchRequest(12, row, 0, 0, 0)
	req.SessionEpoch = 0
	full := ask[*kmsg.FetchResponse](w, req)
	if full.SessionID == 0 || len(full.Topics[0].Partitions) != 3 {
		t.Fatalf("full fetch: %+v", full)
	}
	step := func(epoch int32, change func(*kmsg.FetchRequest)) *kmsg.FetchResponse {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.MinBytes, req.MaxBytes, req.SessionID, req.SessionEpoch = 12, 1, 1<<20, full.SessionID, epoch
		if change != nil {
			change(req)
		}
		return ask[*kmsg.FetchResponse](w, req)
	}
	// The client has read partition 1: nothing else has news.
	advance := func(r *kmsg.FetchRequest) {
		r.Topics = fetchRequest(12, row, 0, 1).Topics
		r.Topics[0].Partitions = r.Topics[0].Partitions[1:]
	}
	if resp := step(1, advance); len(resp.Topics) != 0 || resp.SessionID != full.SessionID {
		t.Errorf("nothing new: %+v", resp.Topics)
	}
	fill(t, s, row, 2, "b")
	resp := step(2, nil)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != 2 {
		t.Errorf("one partition has news: %+v", resp.Topics)
	}
	if resp := step(2, nil); resp.ErrorCode != kerr.InvalidFetchSessionEpoch.Code {
		t.Errorf("an epoch twice: error %d", resp.ErrorCode)
	}
	forget := func(r *kmsg.FetchRequest) {
		ft := kmsg.NewFetchRequestForgottenTopic()
		ft.Topic, ft.Partitions = row.Name, []int32{2}
		r.ForgottenTopics = append(r.ForgottenTopics, ft)
	}
	if resp := step(3, forget); len(resp.Topics) != 0 || resp.ErrorCode != 0 {
		t.Errorf("after forgetting partition 2: %+v", resp)
	}
	byID := func(r *kmsg.FetchRequest) { r.Version = 13 }
	if resp := step(4, byID); resp.ErrorCode != kerr.FetchSessionTopicIDError.Code {
		t.Errorf("switch to ids: error %d", resp.ErrorCode)
	}
	// Closing: epoch -1 with the id is a full fetch without a session.
	closing := fetchRequest(12, row, 0)
	closing.SessionID, closing.SessionEpoch = full.SessionID, -1
	if resp := ask[*kmsg.FetchResponse](w, closing); resp.SessionID != 0 || resp.ErrorCode != 0 {
		t.Errorf("closing: %+v", resp)
	}
	if resp := step(4, nil); resp.ErrorCode != kerr.FetchSessionIDNotFound.Code {
		t.Errorf("after closing: error %d", resp.ErrorCode)
	}
}

func TestFetchSessionEpochWraps(t *testing.T) {
	s := &fetchSession{epoch: 1<<31 - 1, parts: map[partKey]*fetchPart{}}
	req := kmsg.NewPtrFetchRequest()
	req.SessionEpoch = 1<<31 - 1
	if err := s.continueWith(req, nil); err != nil || s.epoch != 1 {
		t.Errorf("expected epoch 1 and no error, found %d and %v", s.epoch, err)
	}
}

func TestFetchSessionCacheIsBounded(t *testing.T) {
	c := newSessionCache(2)
	now := time.Unix(1000, 0)
	parts := func() []*fetchPart { return []*fetchPart{{topic: "t"}} }
	first := c.open(parts(), false, now)
	if first == nil || c.open(parts(), false, now.Add(time.Second)) == nil {
		t.Fatal("no room in an empty cache")
	}
	if c.open(parts(), false, now.Add(2*time.Second)) != nil {
		t.Error("a third session in two slots, although both are in use")
	}
	if c.open(parts(), false, now.Add(sessionIdle)) == nil {
		t.Error("the idle session was not evicted")
	}
	if _, err := c.use(testContext(t), first.id, now); err != kerr.FetchSessionIDNotFound {
		t.Errorf("evicted session: %v", err)
	}
	if c.len() != 2 || c.parts != 2 {
		t.Errorf("expected 2 sessions and 2 partitions, found %d and %d", c.len(), c.parts)
	}
	// One that was made long ago, though in use, goes for a larger one only.
	later := now.Add(3 * sessionIdle)
	many := func(n int) []*fetchPart {
		out := make([]*fetchPart, n)
		for i := range out {
			out[i] = &fetchPart{partition: int32(i)}
		}
		return out
	}
	big := newSessionCache(2)
	for _, n := range []int{3, 5} {
		s := big.open(many(n), false, now)
		big.done(s)
		if _, err := big.use(testContext(t), s.id, later); err != nil {
			t.Fatal(err)
		}
		big.done(s)
	}
	if big.open(many(3), false, later) != nil {
		t.Error("a session of the same size has evicted one in use")
	}
	if big.open(many(4), false, later) == nil || big.len() != 2 || big.parts != 9 {
		t.Errorf("a larger session: %d sessions with %d partitions", big.len(), big.parts)
	}
	if big.open(many(9), false, later) == nil || big.parts != 13 {
		t.Errorf("a larger session in place of one that had its time: %d partitions", big.parts)
	}
	if big.open(many(99), false, later) != nil {
		t.Error("sessions made just now were evicted")
	}
	if c.open(make([]*fetchPart, maxFetchSessionPartitions+1), false, now) != nil {
		t.Error("a session beyond the limit of partitions")
	}
}

func TestFetchLongPoll(t *testing.T) {
	s := startServer(t, newFakeCluster(2), nil)
	create(t, s, "poll", 2, nil)
	row := topicOf(t, s, "poll")
	w := dial(t, s.addr)
	req := fetchRequest(12, row, 0, 0)
	req.MaxWaitMillis = 45_000
	w.send(req)
	eventually(t, "fetch is under way", func() bool { return s.waiting() == 1 })
	began := time.Now()
	fill(t, s, row, 1, "wake")
	resp := w.receive(req, w.correlation).(*kmsg.FetchResponse)
	if len(resp.Topics[0].Partitions[0].RecordBatches)+len(resp.Topics[0].Partitions[1].RecordBatches) == 0 {
		t.Errorf("nothing came: %+v", resp.Topics)
	}
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("woken after %v", d)
	}
	// Without data it returns when the time is over.
	req = fetchRequest(12, row, 0)
	req.MaxWaitMillis, req.MinBytes = 50, 1
	began = time.Now()
	if resp := ask[*kmsg.FetchResponse](w, req); len(resp.Topics[0].Partitions[0].RecordBatches) != 0 || time.Since(began) < 40*time.Millisecond {
		t.Errorf("after %v: %+v", time.Since(began), resp.Topics)
	}
}

// waiting counts requests on goroutines of their own.
func (s *testServer) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for c := range s.conns {
		n += len(c.async)
	}
	return n
}

func TestFetchLimits(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "limits", 3, nil)
	row := topicOf(t, s, "limits")
	big := string(bytes.Repeat([]byte{'x'}, 3000))
	for p := range int32(3) {
		fill(t, s, row, p, big, big)
	}
	w := dial(t, s.addr)
	count := func(version int16, maxBytes, partBytes int32) (partitions, batches int) {
		req := fetchRequest(version, row, 0, 0, 0)
		req.MaxBytes = maxBytes
		for i := range req.Topics[0].Partitions {
			req.Topics[0].Partitions[i].PartitionMaxBytes = partBytes
		}
		resp := ask[*kmsg.FetchResponse](w, req)
		for _, p := range resp.Topics[0].Partitions {
			rest := p.RecordBatches
			if len(rest) > 0 {
				partitions++
			}
			for len(rest) > 0 {
				var err error
				if _, rest, err = batch.Next(rest); err != nil {
					t.Fatal(err)
				}
				batches++
			}
		}
		return partitions, batches
	}
	for _, c := range []struct {
		max, part           int32
		partitions, batches int
	}{
		{1, 1 << 20, 1, 1},       // one whole batch per request
		{1 << 20, 1, 1, 1},       // not one per partition
		{1 << 20, 1 << 20, 3, 6}, // everything
		{1 << 20, 4000, 3, 3},
		{4000, 1 << 20, 1, 1},
		{8000, 1 << 20, 1, 2},
	} {
		if p, b := count(12, c.max, c.part); p != c.partitions || b != c.batches {
			t.Errorf("max %d, per partition %d: expected %d batches of %d partitions, found %d of %d", c.max, c.part, c.batches, c.partitions, b, p)
		}
	}
	// Fairness: with room for one partition, repeated fetches serve all of them.
	seen := map[int32]bool{}
	for range 6 {
		req := fetchRequest(12, row, 0, 0, 0)
		req.MaxBytes = 1
		for _, p := range ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions {
			if len(p.RecordBatches) > 0 {
				seen[p.Partition] = true
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("only partitions %v were served", seen)
	}
}

func TestFetchErrors(t *testing.T) {
	cluster := newFakeCluster(2, "rack-a", "rack-b")
	s := startServer(t, cluster, func(c *Config) { c.ShardReplicas = 2 })
	create(t, s, "errors", 2, nil)
	row := topicOf(t, s, "errors")
	fill(t, s, row, 0, "a", "b")
	w := dial(t, s.addr)
	first := func(req *kmsg.FetchRequest) kmsg.FetchResponseTopicPartition {
		t.Helper()
		return ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions[0]
	}
	expect := func(what string, req *kmsg.FetchRequest, want *kerr.Error) kmsg.FetchResponseTopicPartition {
		t.Helper()
		p := first(req)
		if p.ErrorCode != want.Code {
			t.Errorf("%s: expected %s, found %v", what, want.Message, kerr.ErrorForCode(p.ErrorCode))
		}
		return p
	}
	expect("above the end", fetchRequest(12, row, 3), kerr.OffsetOutOfRange)
	expect("below the start", fetchRequest(12, row, -1), kerr.OffsetOutOfRange)
	epoch := fetchRequest(12, row, 0)
	epoch.Topics[0].Partitions[0].CurrentLeaderEpoch = fakeTerm - 1
	if p := expect("old epoch", epoch, kerr.FencedLeaderEpoch); p.CurrentLeader.LeaderID != 1 || p.CurrentLeader.LeaderEpoch != fakeTerm {
		t.Errorf("old epoch: expected the leader and its epoch, found %+v", p.CurrentLeader)
	}
	epoch.Topics[0].Partitions[0].CurrentLeaderEpoch = fakeTerm + 1
	expect("new epoch", epoch, kerr.UnknownLeaderEpoch)
	unknown := fetchRequest(13, row, 0)
	unknown.Topics[0].TopicID = [16]byte{1}
	expect("unknown id", unknown, kerr.UnknownTopicID)
	beyond := fetchRequest(12, row, 0)
	beyond.Topics[0].Partitions[0].Partition = 9
	expect("unknown partition", beyond, kerr.UnknownTopicOrPartition)
	diverging := fetchRequest(12, row, 2)
	diverging.Topics[0].Partitions[0].LastFetchedEpoch = fakeTerm - 2
	if p := first(diverging); p.DivergingEpoch.EndOffset < 0 || len(p.RecordBatches) != 0 {
		t.Errorf("diverging epoch: %+v", p)
	}
	rack := fetchRequest(12, row, 0)
	rack.Rack = "rack-b"
	if p := first(rack); p.PreferredReadReplica != 2 || len(p.RecordBatches) != 0 {
		t.Errorf("preferred replica: %+v", p)
	}
	cluster.replicas[1].mu.Lock()
	cluster.replicas[1].behind = map[metadata.ReplicaID]bool{101: true}
	cluster.replicas[1].mu.Unlock()
	if p := first(rack); p.PreferredReadReplica != -1 || len(p.RecordBatches) == 0 {
		t.Errorf("preferred replica that does not keep up: %+v", p)
	}
	rack.Rack = "rack-a"
	if p := first(rack); p.PreferredReadReplica != -1 || len(p.RecordBatches) == 0 {
		t.Errorf("own rack: %+v", p)
	}
	// This broker becomes a follower.
	cluster.mu.Lock()
	cluster.leaders[1] = 2
	cluster.mu.Unlock()
	r := cluster.replicas[1]
	r.mu.Lock()
	r.lead = shard.Leadership{Leader: 101, Term: fakeTerm}
	r.mu.Unlock()
	r.set.SetHW(r.index, false)
	if p := first(fetchRequest(12, row, 0)); len(p.RecordBatches) == 0 {
		t.Errorf("a follower serves below its high watermark: %+v", p)
	}
	expect("follower, above its high watermark", fetchRequest(12, row, 5), kerr.OffsetNotAvailable)
	expect("follower, old client", fetchRequest(10, row, 0), kerr.NotLeaderForPartition)
	r.mu.Lock()
	r.lead = shard.Leadership{Term: fakeTerm}
	r.mu.Unlock()
	if p := expect("follower that hears from no leader", fetchRequest(16, row, 0), kerr.NotLeaderForPartition); p.CurrentLeader.LeaderID != 2 {
		t.Errorf("%+v", p.CurrentLeader)
	}
	resp := ask[*kmsg.ProduceResponse](w, produceRequest(10, row, 0, -1, testBatch(batch.None, "x")))
	if p := resp.Topics[0].Partitions[0]; p.ErrorCode != kerr.NotLeaderForPartition.Code || p.CurrentLeader.LeaderID != 2 || len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 2 {
		t.Errorf("leader hint: %+v %+v", p, resp.Brokers)
	}
}

func TestFetchZstdForOldClients(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "zstd", 1, nil)
	row := topicOf(t, s, "zstd")
	w := dial(t, s.addr)
	if c := firstError(ask[kmsg.Response](w, produceRequest(6, row, 0, -1, testBatch(batch.Zstd, "z")))); c != kerr.UnsupportedCompressionType.Code {
		t.Errorf("produce v6: error %d", c)
	}
	if c := firstError(ask[kmsg.Response](w, produceRequest(7, row, 0, -1, testBatch(batch.Zstd, "z")))); c != 0 {
		t.Errorf("produce v7: error %d", c)
	}
	for _, version := range []int16{9, 10} {
		p := ask[*kmsg.FetchResponse](w, fetchRequest(version, row, 0)).Topics[0].Partitions[0]
		if refused := p.ErrorCode == kerr.UnsupportedCompressionType.Code; refused != (version < 10) {
			t.Errorf("fetch v%d: error %d", version, p.ErrorCode)
		}
	}
}

func TestColdFetchKeepsItsDownload(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "cold", 3, nil)
	row := topicOf(t, s, "cold")
	for p := range int32(3) {
		fill(t, s, row, p, "a", "b")
	}
	s.cluster.replicas[1].tier(t, s.cold)
	gate := make(chan struct{})
	s.cold.mu.Lock()
	s.cold.gate = gate
	s.cold.mu.Unlock()
	w := dial(t, s.addr)
	req := fetchRequest(12, row, 0, 0, 0)
	req.MaxWaitMillis = 30
	for _, p := range ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions {
		if p.ErrorCode != 0 || len(p.RecordBatches) != 0 {
			t.Errorf("a read that hangs: %+v", p)
		}
	}
	s.cold.mu.Lock()
	if s.cold.reads != 3 {
		t.Errorf("expected 3 parallel reads, found %d", s.cold.reads)
	}
	s.cold.gate = nil
	s.cold.mu.Unlock()
	close(gate)
	req.MaxWaitMillis = 5000
	for _, p := range ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions {
		if len(p.RecordBatches) == 0 {
			t.Errorf("cold data did not come: %+v", p)
		}
	}
	eventually(t, "cold memory is given back", func() bool { return s.coldBytes.sem.TryAcquire(s.coldBytes.total) })
	s.coldBytes.give(s.coldBytes.total)
	s.cold.mu.Lock()
	s.cold.err = object.ErrUnavailable
	s.cold.mu.Unlock()
	if p := ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions[0]; p.ErrorCode != kerr.KafkaStorageError.Code {
		t.Errorf("store away: error %d", p.ErrorCode)
	}
}

// TestQuietSession: while nothing changes, the long polls of a session do not
// look at its partitions; a change wakes them all the same.
func TestQuietSession(t *testing.T) {
	s := startServer(t, newFakeCluster(2), nil)
	create(t, s, "quiet", 4, nil)
	row := topicOf(t, s, "quiet")
	w := dial(t, s.addr)
	full := fetchRequest(12, row, 0, 0, 0, 0)
	full.SessionEpoch = 0
	id := ask[*kmsg.FetchResponse](w, full).SessionID
	epoch := int32(0)
	poll := func(wait int32) *kmsg.FetchRequest {
		req := kmsg.NewPtrFetchRequest()
		epoch++
		req.Version, req.MinBytes, req.MaxBytes, req.SessionID, req.SessionEpoch, req.MaxWaitMillis = 12, 1, 1<<20, id, epoch, wait
		return req
	}
	quiet := func() bool {
		session, err := s.sessions.use(testContext(t), id, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		defer s.sessions.done(session)
		return session.quiet && session.watched
	}
	for range 3 {
		if resp := ask[*kmsg.FetchResponse](w, poll(1)); len(resp.Topics) != 0 {
			t.Errorf("news of nothing: %+v", resp.Topics)
		}
		if !quiet() {
			t.Error("the session is not quiet")
		}
	}
	for p := range int32(4) {
		req := poll(15_000)
		w.send(req)
		eventually(t, "poll is under way", func() bool { return s.waiting() == 1 })
		fill(t, s, row, p, "x")
		resp := w.receive(req, w.correlation).(*kmsg.FetchResponse)
		found := false
		for _, topic := range resp.Topics {
			for _, part := range topic.Partitions {
				found = found || part.Partition == p && len(part.RecordBatches) > 0
			}
		}
		if !found {
			t.Errorf("partition %d did not come: %+v", p, resp.Topics)
		}
		// Before the client has moved on, the data is still there.
		if resp := ask[*kmsg.FetchResponse](w, poll(0)); len(resp.Topics) == 0 {
			t.Error("data that was not consumed is gone")
		}
		req = poll(0)
		req.Topics = fetchRequest(12, row, 0, 0, 0, 0).Topics
		for i := range req.Topics[0].Partitions {
			if int32(i) <= p {
				req.Topics[0].Partitions[i].FetchOffset = 1
			}
		}
		if resp := ask[*kmsg.FetchResponse](w, req); len(resp.Topics) != 0 {
			t.Errorf("after moving on: %+v", resp.Topics)
		}
	}
	s.sessions.close(id)
	if _, err := s.sessions.use(testContext(t), id, time.Now()); err != kerr.FetchSessionIDNotFound {
		t.Errorf("closed session: %v", err)
	}
}
