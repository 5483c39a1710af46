package ingest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/partition"
	"thermocline/metadata"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

// Produce v0-13 advertised, v3-13 served.
//
// Old librdkafka looks for version 0 to find out whether a broker knows the
// codecs, so 0 to 2 are advertised; a request of them closes the connection.
// v7 brings zstd, v8 record_errors (KIP-467), v9 flexible encoding, v10 leader
// hints (KIP-951), v13 topic ids in place of names.
//
// A request: shape check (checkProduceShape), kmsg decode in which the batches
// stay slices of the frame, the gate for each batch, one shard.Proposal for
// all batches of a shard, and an answer once every shard has told. The frame
// is given back as soon as every shard has copied its batches.
func produceAPI() api {
	h, n := serve(kmsg.NewPtrProduceRequest, (*Server).handleProduce)
	return api{key: 0, name: "Produce", min: 0, served: 3, max: 13, records: true, handle: h, newRequest: n}
}

// zstdProduce is the first version in which a producer may use zstd.
const zstdProduce = 7

func (s *Server) handleProduce(r *request, req *kmsg.ProduceRequest) {
	op := &produceOp{srv: s, r: r, req: req}
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	op.results = make([]produceResult, n)
	if err := checkProduce(req); err != nil {
		op.refuseAll(err)
		op.finish()
		return
	}
	op.gate()
	op.propose()
}

// checkProduce refuses a whole request.
func checkProduce(req *kmsg.ProduceRequest) error {
	if req.Acks < -1 || req.Acks > 1 {
		return refuse(kerr.InvalidRequiredAcks, fmt.Sprintf("acks is %d: write -1, 0 or 1", req.Acks))
	}
	if req.TransactionID != nil {
		return refuse(kerr.TransactionalIDAuthorizationFailed, "transactions are not supported")
	}
	return nil
}

// produceResult is one partition's fate.
type produceResult struct {
	done       bool
	err        error
	shard      metadata.ShardID // 0 while not located
	base       int64
	logStart   int64
	appendTime int64
}

// produceGroup is what goes to one shard as one proposal.
type produceGroup struct {
	replica  Replica
	commands []any
	results  []int // index of each command's result
	bytes    int
}

// produceOp is one produce request under way. mu guards results, waiting and
// answered once groups have been proposed: shards tell from their own goroutines.
type produceOp struct {
	srv    *Server
	r      *request
	req    *kmsg.ProduceRequest
	groups []produceGroup
	place  *placement

	mu       sync.Mutex
	results  []produceResult
	waiting  int // groups that have not told yet
	answered bool
	timer    *time.Timer
}

func (op *produceOp) refuseAll(err error) {
	for i := range op.results {
		op.results[i] = produceResult{done: true, err: err, base: -1, logStart: -1, appendTime: -1}
	}
}

// gate checks every batch and sorts them into groups by shard.
func (op *produceOp) gate() {
	now := op.srv.now().UnixMilli()
	wait := patience{most: creationWait}
	commands := make([]partition.Produce, 0, len(op.results))
	i := 0
	for ti := range op.req.Topics {
		t := &op.req.Topics[ti]
		row, err := op.srv.topic(t.Topic, t.TopicID, op.req.Version >= 13)
		for pi := range t.Partitions {
			p := &t.Partitions[pi]
			res := &op.results[i]
			res.base, res.logStart, res.appendTime = -1, -1, -1
			cmd, where, perr := partition.Produce{}, target{}, err
			if perr == nil {
				cmd, where, perr = op.gateOne(row, p, now, &wait, res)
			}
			res.shard = where.shard
			if perr != nil {
				res.err, res.done = perr, true
			} else {
				commands = append(commands, cmd)
				op.add(&commands[len(commands)-1], where, i)
			}
			i++
		}
	}
}

// gateOne takes one partition's batch through the gate.
func (op *produceOp) gateOne(row *metadata.Topic, p *kmsg.ProduceRequestTopicPartition, now int64, wait *patience, res *produceResult) (partition.Produce, target, error) {
	where, err := op.srv.locate(row, p.Partition)
	if err == nil {
		err = where.leads()
	}
	if err != nil {
		return partition.Produce{}, where, err
	}
	v, err := op.srv.viewOf(op.r.conn.ctx, &where, wait)
	if err != nil {
		return partition.Produce{}, where, err
	}
	b, err := onlyBatch(p.Records, op.req.Version)
	if err != nil {
		return partition.Produce{}, where, err
	}
	res.logStart = v.LogStart
	e := op.srv.effective(row)
	o := batch.GateOptions{
		MaxBytes: e.MaxMessageBytes, MaxUncompressed: op.srv.cfg.MaxUncompressed, LogAppendTime: e.LogAppendTime, NowUnixMilli: now,
		TimestampBeforeMax: e.TimestampBeforeMax, TimestampAfterMax: e.TimestampAfterMax,
		Codec: e.Codec, CompressionLevel: e.Level, KeysRequired: e.Compacted,
	}
	b, info, err := batch.Gate(b, &o)
	if err != nil {
		return partition.Produce{}, where, err
	}
	if e.LogAppendTime {
		res.appendTime = now
	}
	st := &op.srv.stats
	st.batchesIn.Add(1)
	st.recordsIn.Add(int64(info.Records))
	st.recordBytesIn.Add(int64(len(b)))
	return partition.Produce{Key: where.key, Batch: b, Info: info}, where, nil
}

// onlyBatch returns the one batch that a partition of a request must hold.
func onlyBatch(records []byte, version int16) (batch.Batch, error) {
	if len(records) == 0 {
		return nil, refuse(kerr.InvalidRecord, "expected one record batch, found none")
	}
	b, rest, err := batch.Next(records)
	switch {
	case errors.Is(err, batch.ErrTruncated): // what is cut off is no batch, says Kafka
		return nil, refuse(kerr.InvalidRecord, "expected one record batch, found a part of one")
	case errors.Is(err, batch.ErrMagic) && batch.Batch(records).Magic() > batch.Magic: // a format of the future
		return nil, refuse(kerr.CorruptMessage, "expected record format 2, found a later one")
	case err != nil:
		return nil, err
	case b.Codec() == batch.Zstd && version < zstdProduce:
		return nil, refuse(kerr.UnsupportedCompressionType, "zstd needs Produce version 7 or later")
	case len(rest) > 0:
		return nil, refuse(kerr.InvalidRecord, "expected one record batch per partition, found more")
	case b.IsControl():
		return nil, refuse(kerr.InvalidRecord, "clients may not write control batches")
	case b.IsTransactional():
		return nil, refuse(kerr.TransactionalIDAuthorizationFailed, "transactions are not supported")
	}
	return b, nil
}

// add puts a command into its shard's group.
func (op *produceOp) add(cmd *partition.Produce, where target, result int) {
	var g *produceGroup
	for i := range op.groups {
		if op.groups[i].replica == where.replica {
			g = &op.groups[i]
		}
	}
	if g == nil {
		op.groups = append(op.groups, produceGroup{replica: where.replica})
		g = &op.groups[len(op.groups)-1]
	}
	g.commands = append(g.commands, cmd)
	g.results = append(g.results, result)
	g.bytes += len(cmd.Batch)
}

// propose hands every group to its shard.
func (op *produceOp) propose() {
	op.waiting = len(op.groups)
	if op.waiting == 0 {
		op.finish()
		return
	}
	if op.req.Acks != 0 {
		limit := min(max(time.Duration(op.req.TimeoutMillis)*time.Millisecond, 0), maxProduceWait)
		op.mu.Lock()
		op.timer = time.AfterFunc(limit, op.timedOut)
		op.mu.Unlock()
	}
	wait := patience{most: min(queueWait, max(time.Duration(op.req.TimeoutMillis)*time.Millisecond, queuePoll))}
	for i := range op.groups {
		g := &op.groups[i]
		op.r.frame.hold()
		p := &shard.Proposal{
			Commands: g.commands, Bytes: g.bytes, Acks: shard.Acks(op.req.Acks),
			Copied: op.r.frame.release,
			Done:   func(out []shard.Outcome) { op.told(g, out) },
		}
		for !g.replica.Propose(p) {
			err := g.replica.Intake(p.Class)
			if !errors.Is(err, shard.ErrBusy) || !wait.pause(op.r.conn.ctx, queuePoll) {
				op.r.frame.release()
				op.told(g, refused(len(g.commands), err))
				break
			}
		}
	}
}

// refused is the same outcome for n commands.
func refused(n int, err error) []shard.Outcome {
	out := make([]shard.Outcome, n)
	for i := range out {
		out[i].Err = err
	}
	return out
}

// told records a group's outcomes.
func (op *produceOp) told(g *produceGroup, outcomes []shard.Outcome) {
	op.mu.Lock()
	if op.answered {
		op.mu.Unlock()
		return
	}
	for i, at := range g.results {
		res := &op.results[at]
		res.done, res.err = true, outcomes[i].Err
		if pr, ok := outcomes[i].Result.(partition.ProduceResult); ok && res.err == nil {
			res.base, res.logStart = pr.BaseOffset, pr.LogStart
		}
	}
	op.waiting--
	last := op.waiting == 0
	op.answered = last
	op.mu.Unlock()
	if last {
		op.finish()
	}
}

// timedOut answers with what is known by now.
func (op *produceOp) timedOut() {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.answered {
		return
	}
	op.answered = true
	for i := range op.results {
		if !op.results[i].done {
			op.results[i].err = kerr.RequestTimedOut
		}
	}
	op.finish()
}

// finish answers. Results do not change any more.
func (op *produceOp) finish() {
	if op.timer != nil {
		op.timer.Stop()
	}
	if op.req.Acks != 0 {
		op.r.finishLazy(op.answer)
		return
	}
	// Nobody listens: closing the connection is the only way to tell of an error.
	for i := range op.results {
		if err := op.results[i].err; err != nil {
			op.r.finishAbort(fmt.Errorf("acks=0: %w", err))
			return
		}
	}
	op.r.finishSilent()
}

// withoutLogStart tells whether an error's answer leaves the log start out:
// where the batch was not compared with the log. Of others producers use it, to
// see whether what they wrote before is still there.
func withoutLogStart(code int16) bool {
	switch code {
	case kerr.CorruptMessage.Code, kerr.MessageTooLarge.Code, kerr.KafkaStorageError.Code, kerr.RequestTimedOut.Code,
		kerr.NotLeaderForPartition.Code, kerr.NotEnoughReplicas.Code, kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code:
		return true
	}
	return false
}

// answer builds the response; it runs on the connection's writer.
func (op *produceOp) answer() kmsg.Response {
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = op.req.Version
	resp.Topics = make([]kmsg.ProduceResponseTopic, len(op.req.Topics))
	i := 0
	for ti := range op.req.Topics {
		from, to := &op.req.Topics[ti], &resp.Topics[ti]
		to.Topic, to.TopicID = from.Topic, from.TopicID
		to.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(from.Partitions))
		for pi := range from.Partitions {
			p := &to.Partitions[pi]
			p.Default()
			p.Partition = from.Partitions[pi].Partition
			op.fill(resp, p, &op.results[i])
			i++
		}
	}
	return resp
}

// fill writes one partition's result.
func (op *produceOp) fill(resp *kmsg.ProduceResponse, p *kmsg.ProduceResponseTopicPartition, res *produceResult) {
	p.BaseOffset, p.LogStartOffset, p.LogAppendTime = res.base, res.logStart, res.appendTime
	if res.err == nil {
		return
	}
	op.r.failed = true
	p.ErrorCode, p.ErrorMessage = code(res.err), message(res.err)
	p.BaseOffset, p.LogAppendTime = -1, -1
	if withoutLogStart(p.ErrorCode) {
		p.LogStartOffset = -1
	}
	var records *batch.RecordsError
	if errors.As(res.err, &records) {
		for _, re := range records.Records {
			er := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			er.RelativeOffset, er.ErrorMessage = int32(re.Index), &re.Message
			p.ErrorRecords = append(p.ErrorRecords, er)
		}
	}
	if p.ErrorCode != kerr.NotLeaderForPartition.Code || res.shard == 0 {
		return
	}
	if op.place == nil {
		op.place = newPlacement(op.srv.cluster)
	}
	leader, epoch, ok := op.srv.leaderHint(op.place, res.shard)
	if !ok {
		return
	}
	p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = leader, epoch
	for i := range resp.Brokers {
		if resp.Brokers[i].NodeID == leader {
			return
		}
	}
	if b, ok := op.srv.broker(leader); ok {
		resp.Brokers = append(resp.Brokers, kmsg.ProduceResponseBroker{NodeID: leader, Host: b.KafkaHost, Port: b.KafkaPort, Rack: rackOf(b)})
	}
}
