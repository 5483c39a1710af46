package partition

import (
	"fmt"

	"thermocline/tiering/format"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

// proposed is what has been prepared and not yet applied or reset, in the
// order of the log. Together with the applied state it is the running state
// that Prepare checks against. It belongs to the shard's goroutine.
type proposed struct {
	term      uint64
	queue     deque[proposal]
	producers map[producerKey]runningProducer
	// dropped holds, for each producer that lost batches in a reset, the first
	// sequence that was lost. Where the applied state knows the producer, its
	// sequences say as much; for a new producer nothing else would keep its
	// second batch from being taken before its first comes back.
	dropped map[producerKey]droppedBatch
	// slots holds the coordinator slots that have writes in flight.
	slots map[uint32]runningSlot
}

// maxDropped bounds proposed.dropped; more than that are in flight at once only
// if a shard takes over 65,536 new producers in a few milliseconds.
const maxDropped = 1 << 16

type producerKey struct {
	ref format.PartitionRef
	id  int64
}

// proposal is one prepared item.
type proposal struct {
	ticket uint64
	kind   itemKind
	part   *part // nil for items that concern no partition
	base   int64 // of coordinator writes: After
	// Of idempotent batches: who, and what.
	producer    producerKey
	epoch       int16
	first, last int32
	slot        uint32 // of coordinator writes
	// previous is 1 + the position of the same producer's proposal before; it
	// may have left the queue.
	previous uint64
	result   any // a ProduceResult, boxed once
}

func (p *proposal) idempotent() bool { return p.producer.id >= 0 }

// runningProducer is a producer's state after everything that is in flight.
type runningProducer struct {
	epoch   int16
	last    int32
	pending int
	newest  uint64 // 1 + position of its newest proposal
}

type droppedBatch struct {
	epoch int16
	first int32
}

// Size bounds the bytes that Prepare appends for cmd.
func (s *Set) Size(cmd any) int {
	if c, ok := cmd.(*Produce); ok {
		return itemHeaderLen + len(c.Batch)
	}
	if c, ok := cmd.(*CoordinatorWrite); ok {
		return coordinatorSize(c)
	}
	body, _, err := appendCommand(nil, cmd)
	if err != nil {
		return 0
	}
	// DeleteRecords may grow when -1 becomes an offset.
	return itemHeaderLen + len(body) + 10
}

// Prepare implements shard.StateMachine.
func (s *Set) Prepare(cmd any, term, ticket uint64, nowUnixMilli int64, payload []byte) ([]byte, shard.Prepared) {
	if term != s.proposed.term {
		// A leader of a new term has applied all that earlier terms left in the
		// log: what is still proposed is lost, if nobody has said so before.
		s.ResetProposed()
		if s.proposed.queue.len() == 0 {
			s.proposed.term = term
		}
	}
	if c, ok := cmd.(*Produce); ok {
		return s.prepareProduce(c, term, ticket, payload)
	}
	if err := checkCommand(cmd); err != nil {
		return payload, shard.Prepared{Err: err}
	}
	p, ref, prep := s.prepareCommand(&cmd)
	if prep.Err != nil || prep.Final {
		return payload, prep
	}
	start := len(payload)
	// The kind is known only after the body; the header is corrected then.
	out := beginItem(payload, 0, ref)
	out, kind, err := appendCommand(out, cmd)
	if err != nil {
		return payload, shard.Prepared{Err: err}
	}
	out[start+4] = byte(kind)
	pr := proposal{ticket: ticket, kind: kind, part: p, producer: producerKey{id: -1}}
	if c, ok := cmd.(*CoordinatorWrite); ok {
		pr.slot, pr.base = c.Slot, int64(c.After)
		s.pushSlot(&pr)
	}
	s.proposed.queue.push(pr)
	return endItem(out, start), prep
}

// prepareCommand checks a command against the applied state. Two that exclude
// each other may be in flight together: then apply refuses the second.
func (s *Set) prepareCommand(cmd *any) (p *part, ref format.PartitionRef, prep shard.Prepared) {
	switch c := (*cmd).(type) {
	case *CreatePartition:
		if s.byKey[c.Key] != nil {
			prep.Err = fmt.Errorf("create partition %d of %q: %w", c.Key.Partition, c.Name, ErrPartitionExists)
		}
	case *DeletePartition:
		p, prep.Err = s.find(c.Key)
	case *DeleteRecords:
		if p, prep.Err = s.find(c.Key); prep.Err == nil {
			var offset int64
			offset, prep.Err = s.deleteUpTo(p, c.Offset)
			*cmd = &DeleteRecords{Key: c.Key, Offset: offset}
		}
	case *SetConfig:
		if s.topics[c.Topic] == nil {
			prep.Err = fmt.Errorf("config of topic %x: %w", c.Topic, ErrUnknownPartition)
		}
	case *TierSegment:
		prep.Err = s.checkTier(&c.Row, s.index)
	case *CommitRun:
		prep.Err = s.checkRun(c)
	case *CoordinatorWrite:
		prep = shard.Prepared{Err: s.prepareCoordinator(c), Result: c.After + 1}
	}
	if p != nil {
		ref = p.state.ref
	}
	return p, ref, prep
}

func (s *Set) find(k Key) (*part, error) {
	if p := s.byKey[k]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("partition %x/%d: %w", k.Topic, k.Partition, ErrUnknownPartition)
}

// deleteUpTo turns DeleteRecords' offset into a log start that is acknowledged:
// apply cannot see the high watermark.
func (s *Set) deleteUpTo(p *part, offset int64) (int64, error) {
	most := p.hw
	if s.opt.Bugs.DeleteAboveHW {
		most = p.state.logEnd
	}
	switch {
	case offset == -1:
		return most, nil
	case offset > most:
		return 0, fmt.Errorf("delete records: expected at most %d, found %d: %w", most, offset, ErrOffsetOutOfRange)
	}
	return offset, nil
}

func (s *Set) prepareProduce(c *Produce, term, ticket uint64, payload []byte) ([]byte, shard.Prepared) {
	p, err := s.find(c.Key)
	if err != nil {
		return payload, shard.Prepared{Err: err}
	}
	if p.runPending > 0 && p.runBad {
		return payload, shard.Prepared{Err: fmt.Errorf("batches before it failed: %w", ErrNotNextOffset)}
	}
	pr := proposal{ticket: ticket, kind: itemProduce, part: p, producer: producerKey{p.state.ref, -1}}
	if b := c.Batch; b.ProducerID() >= 0 && !b.IsControl() && !s.opt.Bugs.SkipSequenceCheck {
		pr.producer.id, pr.epoch = b.ProducerID(), b.ProducerEpoch()
		pr.first, pr.last = b.BaseSequence(), b.LastSequence()
		if prep, done := s.checkRunning(p, &pr); done {
			return payload, prep
		}
	}
	pr.base = p.state.logEnd
	if p.runPending > 0 {
		pr.base = p.runEnd
	}
	epoch := leaderEpoch(p.state, term)
	pr.result = ProduceResult{BaseOffset: pr.base, LogStart: p.state.logStart, Epoch: epoch}
	start := len(payload)
	payload = beginItem(payload, itemProduce, p.state.ref)
	payload = endItem(append(payload, c.Batch...), start)
	batch.Batch(payload[start+itemHeaderLen:]).Stamp(pr.base, epoch)
	s.pushProduce(&pr, pr.base+int64(c.Batch.LastOffsetDelta())+1)
	return payload, shard.Prepared{Result: pr.result}
}

// checkRunning checks an idempotent batch against applied and proposed state.
// done means that nothing is to be appended.
func (s *Set) checkRunning(p *part, pr *proposal) (prep shard.Prepared, done bool) {
	var st sequenceState
	applied := p.producer(pr.producer.id)
	if applied != nil {
		st = sequenceState{true, applied.epoch, applied.lastSequence()}
	}
	run, running := s.proposed.producers[pr.producer]
	if running {
		st = sequenceState{true, run.epoch, run.last}
	} else if applied == nil {
		if d, ok := s.proposed.dropped[pr.producer]; ok && d.epoch == pr.epoch && d.first != pr.first {
			return shard.Prepared{Err: fmt.Errorf("sequence after a dropped batch: expected %d, found %d: %w", d.first, pr.first, ErrOutOfOrderSequence)}, true
		}
	}
	err := checkSequence(st, pr.epoch, pr.first)
	if err == nil {
		return prep, false
	}
	// Out of order, unless it repeats a batch: one in flight, then one applied.
	for at := run.newest; at > s.proposed.queue.first; {
		q := s.proposed.queue.pos(at - 1)
		if q.epoch == pr.epoch && q.first == pr.first && q.last == pr.last {
			if s.opt.Bugs.AckInFlightDuplicate {
				return shard.Prepared{Final: true, Result: q.result}, true
			}
			return shard.Prepared{SameAs: q.ticket, Result: q.result}, true
		}
		at = q.previous
	}
	// A newer epoch in flight fences the older one's duplicates too, as it will
	// once it is applied.
	if applied != nil && (!running || run.epoch == pr.epoch) {
		if base, ok := applied.find(pr.epoch, pr.first, pr.last); ok {
			return shard.Prepared{Final: true, Result: s.produced(p, base)}, true
		}
	}
	return shard.Prepared{Err: err}, true
}

// produced is the answer for a batch that lies at base already.
func (s *Set) produced(p *part, base int64) ProduceResult {
	return ProduceResult{BaseOffset: base, LogStart: p.state.logStart, Epoch: leaderEpoch(p.state, s.term)}
}

// pushProduce adds a prepared batch to the running state.
func (s *Set) pushProduce(pr *proposal, end int64) {
	pr.part.runEnd = end
	pr.part.runPending++
	if !pr.idempotent() {
		s.proposed.queue.push(*pr)
		return
	}
	delete(s.proposed.dropped, pr.producer)
	run := s.proposed.producers[pr.producer]
	pr.previous = run.newest
	run.newest = s.proposed.queue.push(*pr) + 1
	run.epoch, run.last = pr.epoch, pr.last
	run.pending++
	if s.proposed.producers == nil {
		s.proposed.producers = make(map[producerKey]runningProducer)
	}
	s.proposed.producers[pr.producer] = run
}

// popProposal takes the proposal of the item that is being applied, if this
// replica prepared it: entries of one term come from one leader, in order.
func (s *Set) popProposal(term uint64, it item) (pr proposal, mine bool) {
	q := &s.proposed.queue
	if q.len() == 0 || term != s.proposed.term {
		return pr, false
	}
	pr = *q.at(0)
	if pr.kind != it.kind || (pr.part != nil && pr.part.state.ref != it.ref) ||
		(pr.kind == itemProduce && !stampedAt(it.body, pr.base)) || (pr.kind == itemCoordinator && !isWrite(it.body, &pr)) {
		// Proposals were lost without a reset. Apply's own checks keep the log
		// right; what is prepared from here on starts at the applied state.
		s.ResetProposed()
		return proposal{}, false
	}
	q.pop()
	if pr.kind == itemCoordinator {
		s.popSlot(&pr)
	}
	if pr.kind != itemProduce {
		return pr, true
	}
	if pr.part.runPending--; pr.part.runPending == 0 {
		pr.part.runBad = false
	}
	if pr.idempotent() {
		run := s.proposed.producers[pr.producer]
		if run.pending--; run.pending <= 0 {
			delete(s.proposed.producers, pr.producer)
		} else {
			s.proposed.producers[pr.producer] = run
		}
	}
	return pr, true
}

// stampedAt tells whether a produce item's batch was stamped with base.
func stampedAt(body []byte, base int64) bool {
	return len(body) >= batch.HeaderLen && batch.Batch(body).BaseOffset() == base
}

// ResetProposed implements shard.StateMachine.
func (s *Set) ResetProposed() {
	if s.opt.Bugs.KeepProposed {
		return
	}
	s.dropProposed()
}

func (s *Set) dropProposed() {
	q := &s.proposed.queue
	if len(s.proposed.dropped) > maxDropped {
		clear(s.proposed.dropped)
	}
	seen := s.proposed.producers // each is removed when its first proposal comes by
	for i := 0; i < q.len(); i++ {
		pr := q.at(i)
		if pr.kind == itemProduce {
			pr.part.runPending, pr.part.runBad = 0, false
		}
		if pr.kind != itemProduce || !pr.idempotent() {
			continue
		}
		if _, first := seen[pr.producer]; first && len(s.proposed.dropped) < maxDropped {
			if s.proposed.dropped == nil {
				s.proposed.dropped = make(map[producerKey]droppedBatch)
			}
			s.proposed.dropped[pr.producer] = droppedBatch{pr.epoch, pr.first}
			delete(seen, pr.producer)
		}
	}
	q.clear()
	clear(s.proposed.producers)
	clear(s.proposed.slots)
}
