package ingest

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/metadata"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

// produced sends one request and returns its only partition's answer.
func produced(w *wire, req *kmsg.ProduceRequest) kmsg.ProduceResponseTopicPartition {
	w.t.Helper()
	return ask[*kmsg.ProduceResponse](w, req).Topics[0].Partitions[0]
}

func stringp(s string) *string { return &s }

func TestProduceErrors(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "plain", 1, nil)
	create(t, s, "small", 1, map[string]*string{"max.message.bytes": stringp("200")})
	create(t, s, "compacted", 1, map[string]*string{"cleanup.policy": stringp("compact")})
	plain := topicOf(t, s, "plain")
	good := testBatch(batch.None, "v")
	w := dial(t, s.addr)
	expect := func(what string, req *kmsg.ProduceRequest, want *kerr.Error) kmsg.ProduceResponseTopicPartition {
		t.Helper()
		p := produced(w, req)
		if p.ErrorCode != want.Code || p.BaseOffset != -1 {
			t.Errorf("%s: expected %s, found %v, offset %d", what, want.Message, kerr.ErrorForCode(p.ErrorCode), p.BaseOffset)
		}
		return p
	}
	damaged := bytes.Clone(good)
	damaged[len(damaged)-1] ^= 1
	magic := bytes.Clone(good)
	magic[16] = 1
	control := batch.NewBuilder(batch.BuilderOptions{Control: true}).Add(time.Now().UnixMilli(), []byte{0, 0, 0, 1}, make([]byte, 6)).Build()
	late := batch.NewBuilder(batch.BuilderOptions{}).Add(time.Now().Add(48*time.Hour).UnixMilli(), nil, []byte("x")).Build()
	keyless := batch.NewBuilder(batch.BuilderOptions{}).Add(time.Now().UnixMilli(), []byte("k"), nil).Add(time.Now().UnixMilli(), nil, []byte("x")).Build()
	expect("damaged", produceRequest(9, plain, 0, -1, damaged), kerr.CorruptMessage)
	expect("truncated", produceRequest(9, plain, 0, -1, good[:len(good)-3]), kerr.InvalidRecord)
	expect("old magic", produceRequest(9, plain, 0, -1, magic), kerr.InvalidRecord)
	expect("two batches", produceRequest(9, plain, 0, -1, append(bytes.Clone(good), good...)), kerr.InvalidRecord)
	expect("no batch", produceRequest(9, plain, 0, -1, nil), kerr.InvalidRecord)
	expect("control batch", produceRequest(9, plain, 0, -1, control), kerr.InvalidRecord)
	expect("acks 2", produceRequest(9, plain, 0, 2, good), kerr.InvalidRequiredAcks)
	expect("future timestamp", produceRequest(9, plain, 0, -1, late), kerr.InvalidTimestamp)
	expect("too large", produceRequest(9, topicOf(t, s, "small"), 0, -1, testBatch(batch.None, strings.Repeat("x", 300))), kerr.MessageTooLarge)
	expect("unknown partition", produceRequest(9, plain, 7, -1, good), kerr.UnknownTopicOrPartition)
	expect("unknown id", produceRequest(13, &metadata.Topic{ID: metadata.TopicID{1}}, 0, -1, good), kerr.UnknownTopicID)
	p := expect("record without key", produceRequest(9, topicOf(t, s, "compacted"), 0, -1, keyless), kerr.InvalidRecord)
	if len(p.ErrorRecords) != 1 || p.ErrorRecords[0].RelativeOffset != 1 || p.ErrorMessage == nil {
		t.Errorf("record errors: %+v", p)
	}
	txn := produceRequest(9, plain, 0, -1, good)
	txn.TransactionID = stringp("t")
	expect("transaction", txn, kerr.TransactionalIDAuthorizationFailed)
	r := s.cluster.replicas[1]
	answer := func(err error) {
		r.mu.Lock()
		r.lost = func() []shard.Outcome { return []shard.Outcome{{Err: err}} }
		r.mu.Unlock()
	}
	answer(shard.ErrLogFull)
	expect("log full", produceRequest(9, plain, 0, -1, good), kerr.NotEnoughReplicas)
	answer(shard.ErrDropped)
	expect("dropped", produceRequest(9, plain, 0, -1, good), kerr.NotLeaderForPartition)
}

func TestProduceAcks(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "acks", 1, nil)
	row := topicOf(t, s, "acks")
	good := testBatch(batch.None, "v")
	w := dial(t, s.addr)
	if p := produced(w, produceRequest(9, row, 0, 1, good)); p.ErrorCode != 0 || p.BaseOffset != 0 || p.LogAppendTime != -1 {
		t.Errorf("acks=1: %+v", p)
	}
	// acks=0 has no answer: the next answer is that of the next request.
	w.send(produceRequest(9, row, 0, 0, good))
	if p := produced(w, produceRequest(9, row, 0, -1, good)); p.ErrorCode != 0 || p.BaseOffset != 2 {
		t.Errorf("after acks=0: %+v", p)
	}
	w.send(produceRequest(9, row, 5, 0, good))
	closedByPeer(t, w.nc)
	if !strings.Contains(s.logs.String(), "acks=0") {
		t.Errorf("no log line:\n%s", s.logs)
	}
}

func TestProduceLogAppendTime(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "stamped", 1, map[string]*string{"message.timestamp.type": stringp("LogAppendTime"), "compression.type": stringp("lz4")})
	row := topicOf(t, s, "stamped")
	w := dial(t, s.addr)
	before := time.Now().UnixMilli()
	p := produced(w, produceRequest(9, row, 0, -1, batch.NewBuilder(batch.BuilderOptions{}).Add(1, nil, []byte("old")).Build()))
	if p.ErrorCode != 0 || p.LogAppendTime < before {
		t.Fatalf("append time: %+v", p)
	}
	got := ask[*kmsg.FetchResponse](w, fetchRequest(12, row, 0)).Topics[0].Partitions[0].RecordBatches
	b, _, err := batch.Next(got)
	if err != nil || b.MaxTimestamp() != p.LogAppendTime || b.Codec() != batch.LZ4 || b.CheckCRC() != nil {
		t.Errorf("stored batch: %v, time %d, codec %v", err, b.MaxTimestamp(), b.Codec())
	}
}

func TestProduceWaitsForNewPartition(t *testing.T) {
	cluster := newFakeCluster(1)
	s := startServer(t, cluster, nil)
	cluster.holdBack = true
	create(t, s, "fresh", 1, nil)
	w := dial(t, s.addr)
	req := produceRequest(9, topicOf(t, s, "fresh"), 0, -1, testBatch(batch.None, "v"))
	w.send(req)
	eventually(t, "the request has arrived", func() bool { return !s.requestBytes.sem.TryAcquire(s.requestBytes.total) || release(s) })
	cluster.settle()
	if c := firstError(w.receive(req, 1)); c != 0 {
		t.Errorf("error %d", c)
	}
}

func release(s *testServer) bool { s.requestBytes.give(s.requestBytes.total); return false }

func TestProduceTimesOut(t *testing.T) {
	s := startServer(t, newFakeCluster(2), nil)
	create(t, s, "stalls", 2, nil)
	row := topicOf(t, s, "stalls")
	r := s.cluster.replicas[2]
	r.mu.Lock()
	r.stall = true
	r.mu.Unlock()
	w := dial(t, s.addr)
	req := produceRequest(9, row, 0, -1, testBatch(batch.None, "v"))
	second := req.Topics[0].Partitions[0]
	second.Partition = 1 // the other shard, which does not answer
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, second)
	req.TimeoutMillis = 50
	ps := ask[*kmsg.ProduceResponse](w, req).Topics[0].Partitions
	if ps[0].ErrorCode != 0 || ps[1].ErrorCode != kerr.RequestTimedOut.Code {
		t.Errorf("expected success and a timeout, found %d and %d", ps[0].ErrorCode, ps[1].ErrorCode)
	}
	// The late outcome hurts nobody, and frees the frame.
	r.mu.Lock()
	late := r.stalled[0]
	r.stall = false
	r.mu.Unlock()
	r.apply(late)
	eventually(t, "the frame is free", func() bool { return s.requestBytes.sem.TryAcquire(s.requestBytes.total) })
}

func TestProduceQueueFull(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "full", 1, nil)
	r := s.cluster.replicas[1]
	r.mu.Lock()
	r.full = true
	r.mu.Unlock()
	w := dial(t, s.addr)
	req := produceRequest(9, topicOf(t, s, "full"), 0, -1, testBatch(batch.None, "v"))
	req.TimeoutMillis = 100
	if p := produced(w, req); p.ErrorCode != kerr.NotEnoughReplicas.Code && p.ErrorCode != kerr.RequestTimedOut.Code {
		t.Errorf("error %d", p.ErrorCode)
	}
}

// TestOneProposalPerShard: all batches of a request for one shard go as one unit.
func TestOneProposalPerShard(t *testing.T) {
	s := startServer(t, newFakeCluster(2), nil)
	create(t, s, "grouped", 6, nil)
	row := topicOf(t, s, "grouped")
	for _, r := range s.cluster.replicas {
		r.mu.Lock()
		r.stall = true
		r.mu.Unlock()
	}
	w := dial(t, s.addr)
	req := produceRequest(9, row, 0, -1, testBatch(batch.None, "v"))
	for p := int32(1); p < 6; p++ {
		rp := req.Topics[0].Partitions[0]
		rp.Partition = p
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, rp)
	}
	w.send(req)
	for _, r := range s.cluster.replicas {
		eventually(t, "the proposal is there", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.stalled) > 0 })
		r.mu.Lock()
		if len(r.stalled) != 1 || len(r.stalled[0].Commands) != 3 {
			t.Errorf("expected one proposal of 3 commands, found %d", len(r.stalled))
		}
		p := r.stalled[0]
		r.stall = false
		r.mu.Unlock()
		r.apply(p)
	}
	for i, p := range w.receive(req, 1).(*kmsg.ProduceResponse).Topics[0].Partitions {
		if p.Partition != int32(i) || p.ErrorCode != 0 {
			t.Errorf("partition %d: %+v", i, p)
		}
	}
}
