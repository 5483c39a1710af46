package partition

import (
	"fmt"

	"thermocline/tiering/format"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

// Apply implements shard.StateMachine.
func (s *Set) Apply(e shard.Applied, emit func(item int, result any, err error)) error {
	if e.Kind != shard.KindItems {
		return fmt.Errorf("apply entry %d: kind %d has no items: %w", e.Index, e.Kind, ErrCorrupt)
	}
	if e.Index <= s.index {
		return fmt.Errorf("apply entry: expected an index above %d, found %d: %w", s.index, e.Index, ErrCorrupt)
	}
	s.outcomes = s.outcomes[:0]
	s.mu.Lock()
	err := s.applyEntry(&e)
	s.mu.Unlock()
	s.wake()
	if err != nil {
		return fmt.Errorf("apply entry %d: %w", e.Index, err)
	}
	for i, o := range s.outcomes {
		emit(i, o.result, o.err)
	}
	return nil
}

func (s *Set) applyEntry(e *shard.Applied) error {
	s.index, s.term = e.Index, e.Term
	s.expireProducers(e.TimeUnixMilli)
	for pos := 0; pos < len(e.Payload); {
		it, next, err := nextItem(e.Payload, pos)
		if err != nil {
			return err
		}
		pr, mine := s.popProposal(e.Term, it)
		var o outcome
		if it.kind == itemProduce {
			o, err = s.applyProduce(e, it, pr.result)
			if mine && o.err != nil && pr.part.runPending > 0 {
				pr.part.runBad = true
			}
		} else {
			o, err = s.applyCommand(e, it)
		}
		if err != nil {
			return fmt.Errorf("item at %d: %w", pos, err)
		}
		if o.err != nil {
			s.stats.Refused++
		}
		s.outcomes = append(s.outcomes, o)
		pos = next
	}
	return nil
}

// applyProduce appends a batch, or says why not. boxed is the result that
// Prepare made, to be used again if it came true.
func (s *Set) applyProduce(e *shard.Applied, it item, boxed any) (o outcome, err error) {
	b, err := itemBatch(it.body)
	if err != nil {
		return o, err
	}
	p := s.byRef[it.ref]
	if p == nil {
		return outcome{err: fmt.Errorf("partition %d: %w", it.ref, ErrUnknownPartition)}, nil
	}
	if b.ProducerID() >= 0 && !b.IsControl() && !s.opt.Bugs.SkipSequenceCheck {
		if o, done := s.checkProducer(p, b); done {
			return o, nil
		}
	}
	epoch := leaderEpoch(p.state, e.Term)
	base := b.BaseOffset()
	if base != p.state.logEnd || b.LeaderEpoch() != epoch {
		if !s.opt.Bugs.SkipOffsetCheck {
			return outcome{err: fmt.Errorf("batch: expected offset %d epoch %d, found %d epoch %d: %w",
				p.state.logEnd, epoch, base, b.LeaderEpoch(), ErrNotNextOffset)}, nil
		}
		base = p.state.logEnd
	}
	s.appendBatch(e, p, b, base, uint32(it.pos))
	r := ProduceResult{BaseOffset: base, LogStart: p.state.logStart, Epoch: epoch}
	if was, ok := boxed.(ProduceResult); ok && was == r {
		return outcome{result: boxed}, nil
	}
	return outcome{result: r}, nil
}

// checkProducer repeats the check of Prepare. done means that the batch is not
// to be appended.
func (s *Set) checkProducer(p *part, b batch.Batch) (o outcome, done bool) {
	var st sequenceState
	pr := p.producer(b.ProducerID())
	if pr != nil {
		st = sequenceState{true, pr.epoch, pr.lastSequence()}
	}
	err := checkSequence(st, b.ProducerEpoch(), b.BaseSequence())
	if err == nil {
		return o, false
	}
	if pr != nil {
		if base, ok := pr.find(b.ProducerEpoch(), b.BaseSequence(), b.LastSequence()); ok {
			s.stats.Duplicates++
			return outcome{result: s.produced(p, base)}, true
		}
	}
	return outcome{err: err}, true
}

// appendBatch puts a checked batch at the end of p's log.
func (s *Set) appendBatch(e *shard.Applied, p *part, b batch.Batch, base int64, pos uint32) {
	st := s.own(p)
	last := base + int64(b.LastOffsetDelta())
	epoch := leaderEpoch(st, e.Term)
	st.push(TailRef{
		Index: e.Index, Term: e.Term, Pos: pos, Len: uint32(len(b)),
		First: base, Last: last, MaxTimestamp: b.MaxTimestamp(), Epoch: epoch,
	})
	st.logEnd = last + 1
	if n := len(st.epochs); n == 0 || st.epochs[n-1].epoch < epoch {
		st.epochs = append(st.epochs, epochStart{epoch, base})
	}
	if b.ProducerID() >= 0 {
		s.remember(e, p, b, base)
	}
	if p.hotAt < 0 {
		s.setHot(p)
	}
	s.noteEntry(e, int64(len(b)))
	s.noteEnd(e.Index, p, st.logEnd)
	s.stats.Batches++
	s.stats.Bytes += int64(len(b))
	s.stats.TailRows++
	s.stats.TailBytes += int64(len(b))
}

// remember updates the state of a batch's producer.
func (s *Set) remember(e *shard.Applied, p *part, b batch.Batch, base int64) {
	pr, added := s.ownProducer(p, b.ProducerID())
	// Never back, so that the heap's marks stay lower bounds.
	pr.lastTime = max(pr.lastTime, e.TimeUnixMilli)
	if added {
		pr.epoch = b.ProducerEpoch()
		s.expiry.push(expiryMark{pr.lastTime, p.state.ref, pr.id})
	}
	switch {
	case !b.IsControl():
		pr.add(b.ProducerEpoch(), producerBatch{b.BaseSequence(), b.LastSequence(), base})
	case b.ProducerEpoch() > pr.epoch:
		// A marker carries no sequence, but may fence the epochs before it.
		pr.epoch, pr.count = b.ProducerEpoch(), 0
	}
}

// noteEntry counts bytes of the newest entry's rows.
func (s *Set) noteEntry(e *shard.Applied, bytes int64) {
	if n := s.entries.len(); n > 0 {
		if m := s.entries.at(n - 1); m.index == e.Index {
			m.bytes += bytes
			return
		}
	}
	s.entries.push(entryMark{index: e.Index, bytes: bytes, time: e.TimeUnixMilli})
}

// releaseRows counts the first n rows of a tail out of their entries.
func (s *Set) releaseRows(t *tail, n int) {
	at := 0
	for i := 0; i < n; i++ {
		r := t.at(i)
		if i == 0 || s.entries.at(at).index != r.Index {
			at = s.findEntry(r.Index)
		}
		s.entries.at(at).bytes -= int64(r.Len)
		s.stats.TailBytes -= int64(r.Len)
	}
	s.stats.TailRows -= int64(n)
}

// findEntry returns the position of the first entry at or above index.
func (s *Set) findEntry(index uint64) int {
	lo, hi := 0, s.entries.len()
	for lo < hi {
		if mid := (lo + hi) / 2; s.entries.at(mid).index < index {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// popEntries drops leading entries of which no row is left.
func (s *Set) popEntries() {
	for s.entries.len() > 0 && s.entries.at(0).bytes <= 0 {
		s.entries.pop()
	}
}

// applyCommand applies every item but Produce.
func (s *Set) applyCommand(e *shard.Applied, it item) (o outcome, err error) {
	cmd, err := decodeCommand(it)
	if err != nil {
		return o, err
	}
	p := s.byRef[it.ref]
	switch c := cmd.(type) {
	case *CreatePartition:
		o.err = s.applyCreate(c)
	case *DeletePartition:
		if p == nil {
			o.err = fmt.Errorf("delete partition %d: %w", it.ref, ErrUnknownPartition)
			break
		}
		s.releaseRows(&p.state.tail, p.state.tail.rows)
		s.stats.Producers -= int64(p.state.producers.count)
		s.dropPart(p)
		s.popEntries()
		s.touch(p)
	case *SetConfig:
		o.err = s.applyConfig(c)
	case *DeleteRecords:
		o.result, o.err = s.applyDeleteRecords(p, it.ref, c.Offset)
	case *AllocateProducerIDs:
		o.result, o.err = s.applyProducerIDs(c)
	case *TierSegment:
		o.result, o.err = s.applyTier(&c.Row, e.Index)
	case *CommitRun:
		o.err = s.applyRun(c)
	case *CoordinatorWrite:
		o.result, o.err = s.applyCoordinator(c)
	}
	return o, nil
}

func (s *Set) applyCreate(c *CreatePartition) error {
	if err := checkCommand(c); err != nil {
		return err
	}
	if s.byKey[c.Key] != nil {
		return fmt.Errorf("create partition %d of %q: %w", c.Key.Partition, c.Name, ErrPartitionExists)
	}
	if s.nextRef == 0 {
		return fmt.Errorf("create partition %d of %q: all numbers of this shard are used: %w", c.Key.Partition, c.Name, ErrInvalidCommand)
	}
	t := s.topics[c.Key.Topic]
	if t == nil {
		t = s.addTopic(&topicState{id: c.Key.Topic, name: c.Name, config: c.Config})
	}
	p := &part{topic: t, state: &state{gen: s.gen, maxTime: -1, key: c.Key, ref: s.nextRef, epochBase: c.EpochBase}}
	s.nextRef++
	s.addPart(p)
	s.touch(p)
	return nil
}

func (s *Set) addTopic(ts *topicState) *topic {
	t := &topic{cur: ts}
	s.topics[ts.id] = t
	return t
}

func (s *Set) applyConfig(c *SetConfig) error {
	t := s.topics[c.Topic]
	if t == nil {
		return fmt.Errorf("config of topic %x: %w", c.Topic, ErrUnknownPartition)
	}
	if c.Revision < t.cur.revision {
		return nil
	}
	next := *t.cur
	next.config, next.revision = c.Config, c.Revision
	t.cur = &next
	return nil
}

// applyDeleteRecords moves the log start. The leader proposed an offset that
// was acknowledged, so a follower's HW may follow it.
func (s *Set) applyDeleteRecords(p *part, ref format.PartitionRef, offset int64) (any, error) {
	if p == nil {
		return nil, fmt.Errorf("delete records of partition %d: %w", ref, ErrUnknownPartition)
	}
	if offset < 0 || offset > p.state.logEnd {
		return nil, fmt.Errorf("delete records: expected at most %d, found %d: %w", p.state.logEnd, offset, ErrOffsetOutOfRange)
	}
	if offset <= p.state.logStart {
		return p.state.logStart, nil
	}
	st := s.own(p)
	st.logStart = offset
	s.dropRows(p, st.tail.findOffset(offset))
	s.popEntries()
	st.tieredEnd = max(st.tieredEnd, offset)
	cutEpochs(st)
	s.raiseHW(p, offset)
	s.touch(p)
	return offset, nil
}

// dropRows drops the first n rows of p's tail.
func (s *Set) dropRows(p *part, n int) {
	if n == 0 {
		return
	}
	st := s.own(p)
	s.releaseRows(&st.tail, n)
	st.tail.dropFront(n)
	st.maxTime = -1
	if i := st.tail.findMax(st.logEnd); i >= 0 {
		st.maxTime = st.tail.at(i).MaxTimestamp
	}
	s.setHot(p)
}

// cutEpochs drops epochs that end at or below the tiered end.
func cutEpochs(st *state) {
	n := 0
	for n+1 < len(st.epochs) && st.epochs[n+1].first <= st.tieredEnd {
		n++
	}
	if n > 0 {
		st.epochs = append([]epochStart(nil), st.epochs[n:]...)
	}
}

func (s *Set) applyProducerIDs(c *AllocateProducerIDs) (any, error) {
	if err := checkCommand(c); err != nil {
		return nil, err
	}
	if s.nextProducer+c.Count > 1<<producerIDBits {
		return nil, fmt.Errorf("producer ids: all of shard %d are used: %w", s.opt.Shard, ErrInvalidCommand)
	}
	first := int64(s.opt.Shard)<<producerIDBits + s.nextProducer
	s.nextProducer += c.Count
	return first, nil
}

// SkipEntry implements shard.StateMachine.
func (s *Set) SkipEntry(index, term uint64) {
	s.mu.Lock()
	s.index, s.term = max(s.index, index), max(s.term, term)
	s.mu.Unlock()
}

// TrimmableIndex implements shard.StateMachine: everything below the oldest
// entry of which a row is still only here. Whatever else entries hold, such as
// coordinator records, is in the image, and needs no segment.
func (s *Set) TrimmableIndex() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.entries.len() > 0 {
		return s.entries.at(0).index - 1
	}
	return s.index
}
