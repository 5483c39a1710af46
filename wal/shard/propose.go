package shard

import (
	"errors"
	"hash/crc32"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// proposals is the leader's side of the core: payloads under construction,
// entries whose fate is open, and who waits for them.
type proposals struct {
	nextSeq    uint64
	nextTicket uint64
	// bySeq holds every entry of ours whose index is not known yet; byIndex
	// those in the log whose index is not applied yet. Two entries can wait for
	// one index, proposed in different terms.
	bySeq   map[uint64]*pending
	byIndex map[uint64][]*pending
	tickets map[uint64]ticketAt
	// acked are applied entries in order of index that wait for the bound.
	acked []*pending
	// final are duplicates of applied items that wait for the bound.
	final []finalWait
	// draining: a proposal was dropped; no intake until everything proposed is
	// applied and the running state has been rebuilt.
	draining     bool
	transferring bool
	announce     bool
	held         *pending
	// uncommitted counts our entries that are not applied yet.
	uncommitted, uncommittedBytes int
	// lastBound is the log's end as a planted bug takes it for the bound.
	lastBound uint64
}

// pending is one proposed entry.
type pending struct {
	seq, term, index uint64
	items            []item
	bytes            int
	buf              []byte // until the entry has an index
	desc             []byte
	change           *raftpb.ConfChangeV2
	synced           bool
	resolved         bool
}

// item is one command inside an entry, and everyone who shares its fate.
type item struct {
	ticket uint64
	result any
	err    error
	refs   []slotRef
}

type ticketAt struct {
	p *pending
	i int
}

// slotRef is one outcome of one proposal.
type slotRef struct {
	w *waiter
	i int
}

// waiter collects the outcomes of one proposal.
type waiter struct {
	p        *Proposal
	outcomes []Outcome
	answered []bool
	left     int // outcomes to come
	uncopied int // commands not yet prepared
}

type finalWait struct {
	index   uint64
	ref     slotRef
	outcome Outcome
}

// slot is a command on its way into a payload.
type slot struct {
	cmd  any
	ref  slotRef
	size int
}

func (p *proposals) init() {
	p.bySeq = map[uint64]*pending{}
	p.byIndex = map[uint64][]*pending{}
	p.tickets = map[uint64]ticketAt{}
}

func newWaiter(p *Proposal) *waiter {
	n := len(p.Commands)
	return &waiter{p: p, outcomes: make([]Outcome, n), answered: make([]bool, n), left: n, uncopied: n}
}

// answer gives one outcome; the last one calls Done.
func (r slotRef) answer(o Outcome) {
	if r.w.answered[r.i] {
		return
	}
	r.w.answered[r.i] = true
	r.w.outcomes[r.i] = o
	r.w.left--
	if r.w.left == 0 {
		r.w.p.Done(r.w.outcomes)
	}
}

func (r slotRef) copied() {
	r.w.uncopied--
	if r.w.uncopied == 0 && r.w.p.Copied != nil {
		r.w.p.Copied()
	}
}

func (r slotRef) refuse(err error) {
	r.copied()
	r.answer(Outcome{Err: err})
}

// Refuse answers a whole proposal with err before any of it was copied.
func (p *Proposal) Refuse(err error) {
	if p.Copied != nil {
		p.Copied()
	}
	out := make([]Outcome, len(p.Commands))
	for i := range out {
		out[i].Err = err
	}
	p.Done(out)
}

// intakeError is why the leader takes no request now, or nil.
func (c *Core) intakeError() error {
	switch {
	case c.failed != nil:
		return ErrStopped
	case c.role != raft.StateLeader:
		return ErrNotLeader
	case !c.ready():
		return ErrNotReady
	case c.draining, c.refused:
		return ErrDropped
	}
	return nil
}

// Accepting reports whether Propose would take a proposal now; false also
// while intake is stopped for flow control, a transfer or a drain, when the
// driver keeps proposals queued.
func (c *Core) Accepting() bool {
	return c.intakeError() == nil && !c.transferring && c.held == nil && c.tick >= c.pausedUntil &&
		c.uncommitted < c.o.UncommittedEntries && c.uncommittedBytes < c.o.UncommittedBytes
}

// Refusal is why queued proposals have no prospect on this replica (it does
// not lead, or is out of service), or nil.
func (c *Core) Refusal() error {
	switch {
	case c.failed != nil:
		return ErrStopped
	case c.role != raft.StateLeader:
		return ErrNotLeader
	}
	return nil
}

// Propose takes proposals in order, packs their commands into payloads, and
// proposes those. Whoever cannot be taken is answered at once.
func (c *Core) Propose(ps []*Proposal, nowUnixMilli int64) {
	c.release()
	var batch []slot
	size := 0
	for _, p := range ps {
		if len(p.Commands) == 0 {
			p.Refuse(nil)
			continue
		}
		w := newWaiter(p)
		for i, cmd := range p.Commands {
			n := c.sm.Size(cmd)
			if len(batch) > 0 && size+n > c.o.PayloadBytes {
				c.seal(batch, size, nowUnixMilli)
				batch, size = batch[:0], 0
			}
			batch = append(batch, slot{cmd, slotRef{w, i}, n})
			size += n
		}
	}
	if len(batch) > 0 {
		c.seal(batch, size, nowUnixMilli)
	}
	c.advance()
}

// seal prepares the commands into one payload and proposes it.
func (c *Core) seal(batch []slot, size int, now int64) {
	if err := c.intakeError(); err != nil {
		for _, s := range batch {
			s.ref.refuse(err)
		}
		return
	}
	pe := &pending{term: c.term, items: make([]item, 0, len(batch))}
	buf := c.o.Buffers.Get(size)[:0]
	for _, s := range batch {
		c.nextTicket++
		var prep Prepared
		buf, prep = c.sm.Prepare(s.cmd, c.term, c.nextTicket, now, buf)
		s.ref.copied()
		c.prepared(pe, s.ref, c.nextTicket, prep)
	}
	if len(pe.items) == 0 {
		c.o.Buffers.Put(buf)
		return
	}
	c.nextSeq++
	pe.seq, pe.buf, pe.bytes = c.nextSeq, buf, len(buf)
	pe.desc = Descriptor{
		Kind: KindItems, PayloadLen: uint32(len(buf)), Term: pe.term, HW: c.hw,
		ID:            PayloadID{c.o.ID, pe.seq},
		TimeUnixMilli: now, PayloadCRC: crc32.Checksum(buf, castagnoli),
	}.Append(make([]byte, 0, DescriptorLen))
	c.uncommitted++
	c.uncommittedBytes += pe.bytes
	if c.o.Hold != nil && c.held == nil && c.o.Hold() {
		c.held = pe
		return
	}
	c.release()
	if c.draining || c.held != nil {
		c.drop(pe, ErrDropped)
		return
	}
	c.offer(pe)
}

// prepared takes the state machine's verdict on one command.
func (c *Core) prepared(pe *pending, ref slotRef, ticket uint64, prep Prepared) {
	switch {
	case prep.Err != nil:
		ref.answer(Outcome{Err: prep.Err})
	case prep.Final:
		c.final = append(c.final, finalWait{c.applied, ref, Outcome{Result: prep.Result}})
	case prep.SameAs != 0:
		c.share(pe, ref, prep)
	default:
		pe.items = append(pe.items, item{ticket: ticket, result: prep.Result, refs: []slotRef{ref}})
		c.tickets[ticket] = ticketAt{pe, len(pe.items) - 1}
	}
}

// share lets a duplicate wait for the fate of the item that it repeats, under
// its own acks.
func (c *Core) share(pe *pending, ref slotRef, prep Prepared) {
	if ref.w.p.Acks == AcksNone || c.o.Bugs.DuplicateBeforeFate {
		ref.answer(Outcome{Result: prep.Result})
		return
	}
	at, ok := c.tickets[prep.SameAs]
	if !ok {
		ref.answer(Outcome{Err: ErrUnknownFate})
		return
	}
	it := &at.p.items[at.i]
	if ref.w.p.Acks == AcksLeader && at.p.synced {
		ref.answer(Outcome{Result: it.result})
		return
	}
	it.refs = append(it.refs, ref)
}

// release proposes a payload that was held back.
func (c *Core) release() {
	if pe := c.held; pe != nil && !c.refused && (c.o.Hold == nil || !c.o.Hold()) {
		c.held = nil
		c.offer(pe)
	}
}

// offer proposes a payload to Raft.
func (c *Core) offer(pe *pending) {
	if c.failed != nil {
		c.drop(pe, ErrStopped)
		return
	}
	c.bySeq[pe.seq] = pe
	var err error
	if pe.change != nil {
		err = c.rn.ProposeConfChange(pe.change)
	} else {
		err = c.rn.Propose(pe.desc)
	}
	if err != nil {
		delete(c.bySeq, pe.seq)
		if !errors.Is(err, raft.ErrProposalDropped) {
			c.o.Logger.Warn("raft refused a proposal", "shard", c.o.Shard, "reason", err)
		}
		c.drop(pe, ErrDropped)
		return
	}
	c.o.Stats.Proposed.Add(1)
	c.o.Stats.ProposedBytes.Add(uint64(pe.bytes))
	for i := range pe.items {
		c.answerRefs(pe, i, AcksNone)
	}
}

// drop ends a proposal that never reached the log. Rule: the running state
// holds what was lost, so intake stops, what is in flight drains, and the
// running state is rebuilt from the applied one.
func (c *Core) drop(pe *pending, err error) {
	c.o.Stats.Dropped.Add(1)
	c.resolve(pe, err)
	if pe.buf != nil {
		c.o.Buffers.Put(pe.buf)
		pe.buf = nil
	}
	if pe.change == nil && !c.o.Bugs.KeepProposedOnDrop {
		c.draining = c.role == raft.StateLeader
	}
}

// endDrain rebuilds the running state once nothing is in flight.
func (c *Core) endDrain() {
	if !c.draining || c.held != nil || len(c.bySeq) > 0 {
		return
	}
	for _, at := range c.byIndex {
		for _, pe := range at {
			if pe.term == c.term {
				return
			}
		}
	}
	c.draining = false
	c.sm.ResetProposed()
}

// resolve ends pe's flight: its counts, its tickets, and if err is not nil its
// waiters.
func (c *Core) resolve(pe *pending, err error) {
	if pe.resolved {
		return
	}
	pe.resolved = true
	c.uncommitted--
	c.uncommittedBytes -= pe.bytes
	for i := range pe.items {
		it := &pe.items[i]
		delete(c.tickets, it.ticket)
		if err != nil {
			it.err = err
			c.answerRefs(pe, i, AcksAll)
		}
	}
}

// answerRefs answers those waiters of an item whose acks are no stricter than acks.
func (c *Core) answerRefs(pe *pending, i int, acks Acks) {
	it := &pe.items[i]
	o := Outcome{Result: it.result, Err: it.err}
	kept := it.refs[:0]
	for _, r := range it.refs {
		a := r.w.p.Acks
		if acks == AcksAll || (a != AcksAll && a <= acks) {
			r.answer(o)
		} else {
			kept = append(kept, r)
		}
	}
	it.refs = kept
}

// syncedLocally answers acks=1 after this leader's own fsync.
func (c *Core) syncedLocally(index, term uint64) {
	for _, pe := range c.byIndex[index] {
		if pe.term != term {
			continue
		}
		pe.synced = true
		for i := range pe.items {
			if c.o.Bugs.AckAtLocalSync {
				c.answerRefs(pe, i, AcksAll)
			} else {
				c.answerRefs(pe, i, AcksLeader)
			}
		}
	}
}

// answerAcked answers applied entries that the acknowledgement bound has passed.
func (c *Core) answerAcked() {
	n := 0
	for ; n < len(c.acked) && c.acked[n].index <= c.hw; n++ {
		for i := range c.acked[n].items {
			c.answerRefs(c.acked[n], i, AcksAll)
		}
		c.acked[n] = nil
	}
	c.acked = c.acked[n:]
	kept := c.final[:0]
	for _, f := range c.final {
		if f.index <= c.hw {
			f.ref.answer(f.outcome)
		} else {
			kept = append(kept, f)
		}
	}
	c.final = kept
}

// failWaiters answers every waiter with err: the replica goes out of service.
func (c *Core) failWaiters(err error) {
	if c.held != nil {
		c.drop(c.held, ErrStopped)
		c.held = nil
	}
	var all []*pending
	for _, pe := range c.bySeq {
		all = append(all, pe)
	}
	for _, at := range c.byIndex {
		all = append(all, at...)
	}
	sortPending(all)
	for _, pe := range all {
		c.resolve(pe, err)
	}
	for _, pe := range c.acked {
		for i := range pe.items {
			pe.items[i].err = err
			c.answerRefs(pe, i, AcksAll)
		}
	}
	for _, f := range c.final {
		f.ref.answer(Outcome{Err: err})
	}
	c.acked, c.final = nil, nil
	clear(c.bySeq)
	clear(c.byIndex)
	c.draining = false
}
