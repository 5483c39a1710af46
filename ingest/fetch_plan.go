package ingest

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"thermocline/index"
	"thermocline/ingest/partition"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

// plan is where a partition's answer comes from.
type plan struct {
	target
	view partition.View
	upTo int64 // the bound: HW, or LSO for read_committed
	refs []partition.TailRef
	cold *coldRead
}

// payloadHold is a payload held for an answer.
type payloadHold struct {
	replica     Replica
	index, term uint64
	view        shard.PayloadView
}

// look goes over the partitions once, from a start that moves, and decides for
// each what to answer. It reads no stored bytes. Cold reads that an earlier
// look has started are taken over.
func (op *fetchOp) look() {
	op.results, op.planned, op.urgent, op.coldUnder, op.coldShort, op.firstData = op.results[:0], 0, false, 0, false, -1
	remaining, reserved := op.maxBytes, false
	var scratch fetched
	for n := range op.parts {
		at := (op.start + n) % len(op.parts)
		p := op.parts[at]
		scratch = newFetched(p)
		f := &scratch
		minOne := op.planned == 0 && !reserved
		op.examine(f, min(remaining, max(int(p.maxBytes), 0)), minOne)
		switch {
		case f.where.cold != nil:
			reserved = true
			remaining -= int(f.where.cold.reserved)
		case f.bytes > 0:
			remaining -= f.bytes
		}
		if f.bytes > 0 {
			op.planned += f.bytes
			if op.firstData < 0 {
				op.firstData = at
			}
		}
		remaining = max(remaining, 0)
		f.news = f.bytes > 0 || f.urgent() || !p.told || p.toldHW != f.hw || p.toldLSO != f.lso || p.toldFrom != f.logStart
		op.urgent = op.urgent || f.urgent()
		if f.news || !op.incremental {
			kept := scratch
			op.results = append(op.results, &kept)
		}
	}
	if op.session != nil {
		op.session.quiet = op.planned == 0 && !op.urgent && op.coldUnder == 0 && !op.coldShort
	}
}

// urgent tells whether a client must know of this at once.
func (f *fetched) urgent() bool {
	return f.err != 0 || f.preferred >= 0 || f.divergingEnd >= 0 || f.divergingEpoch >= 0
}

// examine fills in one partition's answer.
func (op *fetchOp) examine(f *fetched, maxBytes int, minOne bool) {
	err := op.locate(f)
	if err == nil {
		err = op.bounds(f)
	}
	if err == nil && !f.urgent() && f.part.offset < f.where.upTo {
		err = op.source(f, maxBytes, minOne)
	}
	if err != nil {
		f.err = code(err)
		f.hw, f.lso, f.logStart = -1, -1, -1
		if f.err == kerr.NotLeaderForPartition.Code || f.err == kerr.FencedLeaderEpoch.Code {
			op.leaderOf(f, f.where.shard)
		}
	}
}

// locate finds the partition's replica and takes the one view that the whole
// answer is made from.
func (op *fetchOp) locate(f *fetched) error {
	p := f.part
	row, err := op.srv.topic(p.topic, p.topicID, op.req.Version >= firstFetchIDs)
	if err != nil {
		return err
	}
	if f.where.target, err = op.srv.locate(row, p.partition); err != nil {
		return err
	}
	if !op.mayServe(&f.where.target) {
		return kerr.NotLeaderForPartition
	}
	f.where.view, err = op.srv.viewOf(op.ctx, &f.where.target, &op.wait)
	return err
}

// mayServe: the leader serves everyone, also while it is new and may not tell
// the log's end yet; a follower serves clients that know of followers, while
// it hears from a leader: else its clients would wait for records in vain. For
// the same reason one that is out of service serves nobody.
func (op *fetchOp) mayServe(t *target) bool {
	l := t.replica.Leadership()
	if l.Ready || op.req.Version >= followerFetch && l.Leader != 0 {
		return true
	}
	if t.outOfService() != nil {
		return false
	}
	leader, _, ok := op.srv.cluster.Leader(t.shard)
	return ok && leader == op.srv.cluster.Self()
}

// bounds applies the rules about epochs and offsets.
func (op *fetchOp) bounds(f *fetched) error {
	v, p := &f.where.view, f.part
	f.hw, f.lso, f.logStart = v.HW, v.LSO, v.LogStart
	f.where.upTo = v.HW
	if f.committed = op.req.IsolationLevel == 1; f.committed {
		f.where.upTo = v.LSO
	}
	if err := checkEpoch(p.leaderEpoch, v); err != nil {
		return err
	}
	leads := f.where.replica.Leadership().Ready
	if err := checkOffset(p.offset, v, leads); err != nil {
		return err
	}
	if leads {
		op.preferred(f)
	}
	if p.lastEpoch >= 0 && f.preferred < 0 {
		found, end, err := op.srv.epochEnd(op.ctx, &f.where.target, v, p.lastEpoch)
		if err != nil {
			return err
		}
		if found < p.lastEpoch || end < p.offset {
			f.divergingEpoch, f.divergingEnd = found, end
		}
	}
	return nil
}

// checkEpoch compares a client's idea of the leader epoch with ours.
func checkEpoch(asked int32, v *partition.View) error {
	switch {
	case asked < 0 || asked == v.Epoch:
		return nil
	case asked < v.Epoch:
		return kerr.FencedLeaderEpoch
	}
	return kerr.UnknownLeaderEpoch
}

// checkOffset: out of range is only what lies below the log start or above
// what can exist. Up to the log's end a fetch waits for the high watermark;
// whether there is anything above, only a leader knows that is sure of the
// log's end: others say that the offset is not available yet.
func checkOffset(offset int64, v *partition.View, leads bool) error {
	switch {
	case offset < v.LogStart:
		return kerr.OffsetOutOfRange
	case offset <= v.LogEnd:
		return nil
	case leads && v.LatestKnown:
		return kerr.OffsetOutOfRange
	}
	return kerr.OffsetNotAvailable
}

// preferred sends a consumer to a replica in its own rack that keeps up (KIP-392).
func (op *fetchOp) preferred(f *fetched) {
	rack := op.req.Rack
	if rack == "" || op.req.Version < followerFetch {
		return
	}
	self := op.srv.cluster.Self()
	if b, ok := op.srv.broker(int32(self)); !ok || b.Rack == rack {
		return
	}
	row, ok := op.srv.cluster.Shard(f.where.shard)
	if !ok {
		return
	}
	for _, r := range row.Replicas {
		if b, live := op.srv.broker(int32(r.Broker)); live && b.Rack == rack && b.ID != self && f.where.replica.Follows(r.ID) {
			f.preferred = int32(b.ID)
			return
		}
	}
}

// source decides where the offset is: in the store below the tiered end, else
// in the tail.
func (op *fetchOp) source(f *fetched, maxBytes int, minOne bool) error {
	w, offset := &f.where, f.part.offset
	for range tailAttempts {
		if offset < w.view.TieredEnd {
			return op.fromStore(f, maxBytes, minOne)
		}
		w.refs = w.replica.State().Tail(w.key, offset, maxBytes, minOne, w.upTo, nil)
		for i := range w.refs {
			f.bytes += int(w.refs[i].Len)
		}
		if len(w.refs) > 0 {
			return nil
		}
		// Nothing fits, or segments were committed since the view was taken.
		v, ok := w.replica.State().View(w.key)
		if !ok {
			return kerr.UnknownTopicOrPartition
		}
		if v.TieredEnd == w.view.TieredEnd {
			return nil
		}
		w.view = v
		f.logStart = v.LogStart
		if offset < v.LogStart {
			return kerr.OffsetOutOfRange
		}
	}
	return nil
}

// fromStore takes over a cold read of an earlier look, or starts one.
func (op *fetchOp) fromStore(f *fetched, maxBytes int, minOne bool) error {
	c := op.cold[f.part]
	if c == nil {
		if len(op.cold) >= maxColdPerFetch || maxBytes == 0 && !minOne {
			op.coldShort = true
			return nil
		}
		c = op.srv.startCold(f.where.target, index.ReadRequest{
			Partition: indexPartition(&f.where.view), Offset: f.part.offset,
			MaxBytes: maxBytes, MinOne: minOne, UpTo: min(f.where.upTo, f.where.view.TieredEnd),
		}, op.signal)
		if c == nil {
			op.coldShort = true
			return nil
		}
		if op.cold == nil {
			op.cold = map[*fetchPart]*coldRead{}
		}
		op.cold[f.part] = c
	}
	f.where.cold = c
	data, err, done := c.result()
	switch {
	case !done:
		op.coldUnder++
	case err != nil:
		return err
	default:
		f.pieces, f.bytes = data.Pieces, data.Bytes
	}
	return nil
}

// load gets the stored bytes of the tail's batches, within the byte budget.
func (op *fetchOp) load() {
	hot := 0
	for _, f := range op.results {
		if f.where.cold == nil {
			hot += f.bytes
		}
	}
	taken, err := op.srv.fetchBytes.take(op.ctx, int64(hot))
	op.taken = taken
	for _, f := range op.results {
		switch {
		case f.bytes == 0:
			continue
		case f.where.cold != nil:
			op.srv.stats.coldBytesOut.Add(int64(f.bytes))
		case err != nil: // the connection has ended
			f.pieces, f.bytes = nil, 0
			continue
		default:
			op.loadHot(f)
		}
		op.checkCodec(f)
	}
}

// loadHot resolves rows of the tail to bytes. A payload that cannot be read
// any more was tiered and trimmed since the look: the client asks again.
func (op *fetchOp) loadHot(f *fetched) {
	f.pieces = make([][]byte, 0, len(f.where.refs))
	bytes := 0
	for i := range f.where.refs {
		ref := &f.where.refs[i]
		b, err := op.payload(f.where.replica, ref)
		if err != nil {
			if len(f.pieces) == 0 {
				if v, ok := f.where.replica.State().View(f.where.key); ok && f.part.offset >= v.TieredEnd {
					f.err = kerr.KafkaStorageError.Code
				}
			}
			break
		}
		f.pieces = append(f.pieces, b)
		bytes += len(b)
	}
	f.bytes = bytes
	op.srv.stats.hotBytesOut.Add(int64(bytes))
}

// payload returns a batch's bytes. Its entry's payload is held until the
// answer has left; consecutive rows mostly lie in the same one.
func (op *fetchOp) payload(r Replica, ref *partition.TailRef) ([]byte, error) {
	n := len(op.views)
	if n == 0 || op.views[n-1].replica != r || op.views[n-1].index != ref.Index || op.views[n-1].term != ref.Term {
		view, err := r.Payload(ref.Index, ref.Term)
		if err != nil {
			return nil, err
		}
		op.views = append(op.views, payloadHold{r, ref.Index, ref.Term, view})
		n++
	}
	return sliceRef(op.views[n-1].view, ref)
}

// sliceRef cuts a batch out of its entry's payload.
func sliceRef(view shard.PayloadView, ref *partition.TailRef) ([]byte, error) {
	b := view.Bytes()
	if uint64(ref.Pos)+uint64(ref.Len) > uint64(len(b)) {
		return nil, shard.ErrPayload
	}
	return b[ref.Pos : ref.Pos+ref.Len : ref.Pos+ref.Len], nil
}

// checkCodec refuses zstd to clients that do not know it.
func (op *fetchOp) checkCodec(f *fetched) {
	if op.req.Version >= zstdFetch || f.bytes == 0 {
		return
	}
	var all []byte
	for _, p := range f.pieces {
		all = append(all, p...)
	}
	for len(all) > 0 {
		b, rest, err := batch.Next(all)
		if err != nil {
			return
		}
		if b.Codec() == batch.Zstd {
			f.err, f.pieces, f.bytes = kerr.UnsupportedCompressionType.Code, nil, 0
			return
		}
		all = rest
	}
}
