package shard

import (
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// applying holds committed entries on their way into the state machine.
type applying struct {
	applyQueue []*raftpb.Message
	applyPos   int // entries of applyQueue[0] that are applied
	loads      int // payload reads under way
	loading    map[uint64]uint64
}

// applyQueued applies what Raft has committed, up to the first entry whose
// payload must be read back from the log (after a restart or a received
// snapshot: until an entry is applied its payload is never evicted). It
// reports whether it stepped anything into Raft.
func (c *Core) applyQueued() bool {
	stepped := false
	for len(c.applyQueue) > 0 && c.failed == nil {
		m := c.applyQueue[0]
		for c.applyPos < len(m.GetEntries()) {
			e := m.GetEntries()[c.applyPos]
			if e.GetIndex() > c.applied && !c.applyOne(e) {
				return stepped
			}
			c.applyPos++
		}
		c.applyQueue, c.applyPos = c.applyQueue[1:], 0
		for _, r := range m.GetResponses() {
			_ = c.rn.Step(r)
			stepped = true
		}
	}
	return stepped
}

// applyOne applies one entry; false means that it must wait for its payload.
func (c *Core) applyOne(e *raftpb.Entry) bool {
	index, term := e.GetIndex(), e.GetTerm()
	if index != c.applied+1 {
		c.fail(fmt.Errorf("shard: apply: expected index %d, found %d", c.applied+1, index))
		return false
	}
	refused := false
	switch {
	case e.GetType() != raftpb.EntryNormal:
		refused = !c.applyChange(e)
		c.sm.SkipEntry(index, term)
	case len(e.GetData()) == 0:
		c.sm.SkipEntry(index, term)
	default:
		var ok bool
		if refused, ok = c.applyItems(e); !ok {
			return false
		}
	}
	c.applied = index
	c.table.applied(index)
	c.o.Stats.Applied.Add(1)
	c.fates(index, term, refused)
	return true
}

// applyItems gives a normal entry to the state machine, unless its proposer's
// term is not the entry's own: such an entry was prepared on a state that may
// have been another.
func (c *Core) applyItems(e *raftpb.Entry) (refused, ok bool) {
	index, term := e.GetIndex(), e.GetTerm()
	d, err := ParseDescriptor(e.GetData())
	if err != nil {
		c.fail(fmt.Errorf("apply %d: %w", index, err))
		return false, false
	}
	if d.Term != term && !c.o.Bugs.SkipProposerTerm {
		c.o.Stats.Refused.Add(1)
		c.sm.SkipEntry(index, term)
		return true, true
	}
	var buf []byte
	if d.PayloadLen > 0 {
		p := c.table.get(index, term)
		if p == nil {
			c.wantLoads()
			return false, false
		}
		defer c.table.release(p)
		buf = p.buf
	}
	var mine *pending
	for _, pe := range c.byIndex[index] {
		if pe.term == term || c.o.Bugs.WaiterByIndex || c.o.Bugs.SkipProposerTerm {
			mine = pe
		}
	}
	err = c.sm.Apply(Applied{Index: index, Term: term, Kind: d.Kind, TimeUnixMilli: d.TimeUnixMilli, Payload: buf},
		func(i int, result any, err error) {
			if mine != nil && i < len(mine.items) {
				mine.items[i].result, mine.items[i].err = result, err
			}
		})
	if err != nil {
		c.fail(fmt.Errorf("apply %d term %d: %w", index, term, err))
		return false, false
	}
	return false, true
}

// fates settles who waited for index: those of the applied term have their
// outcome; an entry of another term stands where the others' would have been.
func (c *Core) fates(index, term uint64, refused bool) {
	at := c.byIndex[index]
	if at == nil {
		return
	}
	delete(c.byIndex, index)
	for _, pe := range at {
		switch {
		case refused:
			c.resolve(pe, ErrDropped)
		case pe.term == term || c.o.Bugs.WaiterByIndex || c.o.Bugs.SkipProposerTerm:
			c.resolve(pe, nil)
			c.acked = append(c.acked, pe)
		default:
			c.resolve(pe, ErrUnknownFate)
		}
	}
}

// changeContextLen is a configuration change's context: proposer's term,
// replica, sequence.
const changeContextLen = 24

func appendChangeContext(b []byte, term uint64, id PayloadID) []byte {
	b = binary.LittleEndian.AppendUint64(b, term)
	b = binary.LittleEndian.AppendUint64(b, uint64(id.Replica))
	return binary.LittleEndian.AppendUint64(b, id.Seq)
}

func parseChangeContext(b []byte) (term uint64, id PayloadID) {
	return binary.LittleEndian.Uint64(b), PayloadID{
		ReplicaID(binary.LittleEndian.Uint64(b[8:])), binary.LittleEndian.Uint64(b[16:]),
	}
}

// applyChange applies a configuration change, unless it carries another
// proposer's term. An empty one is Raft's own, which leaves a joint configuration.
func (c *Core) applyChange(e *raftpb.Entry) bool {
	cc, _, ok := parseChange(e)
	if len(e.GetData()) > 0 {
		if !ok {
			c.o.Stats.Refused.Add(1)
			return false
		}
		if term, _ := parseChangeContext(cc.GetContext()); term != e.GetTerm() && !c.o.Bugs.SkipProposerTerm {
			c.o.Stats.Refused.Add(1)
			return false
		}
	}
	c.conf = c.rn.ApplyConfChange(cc)
	c.announce = true
	return true
}

// ProposeConfChange proposes a change of replicas; done learns its fate.
func (c *Core) ProposeConfChange(changes []*raftpb.ConfChangeSingle, done func(error)) {
	c.release()
	if err := c.intakeError(); err != nil {
		done(err)
		return
	}
	c.offerChange(changes, done)
	c.advance()
}

// offerChange proposes a change of replicas to Raft.
func (c *Core) offerChange(changes []*raftpb.ConfChangeSingle, done func(error)) {
	c.nextSeq++
	p := &Proposal{Commands: []any{changes}, Acks: AcksAll, Class: ClassSystem, Done: func(o []Outcome) { done(o[0].Err) }}
	pe := &pending{seq: c.nextSeq, term: c.term, items: []item{{refs: []slotRef{{newWaiter(p), 0}}}}}
	pe.change = &raftpb.ConfChangeV2{
		Changes: changes,
		Context: appendChangeContext(nil, c.term, PayloadID{c.o.ID, pe.seq}),
	}
	c.uncommitted++
	c.offer(pe)
}

// ConfState is the replica set as of the applied index.
func (c *Core) ConfState() *raftpb.ConfState { return proto.Clone(c.conf).(*raftpb.ConfState) }

// wantLoads asks for the payloads of the next entries to apply.
func (c *Core) wantLoads() {
	if c.loading == nil {
		c.loading = map[uint64]uint64{}
	}
	skip := c.applyPos
	for _, m := range c.applyQueue {
		for _, e := range m.GetEntries()[skip:] {
			if len(c.loading) >= loadsMax {
				return
			}
			c.wantLoad(e)
		}
		skip = 0
	}
}

func (c *Core) wantLoad(e *raftpb.Entry) {
	index, term := e.GetIndex(), e.GetTerm()
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 || c.loading[index] == term {
		return
	}
	if d, err := ParseDescriptor(e.GetData()); err != nil || d.PayloadLen == 0 {
		return
	}
	if p := c.table.get(index, term); p != nil {
		c.table.release(p)
		return
	}
	c.loading[index] = term
	c.out.Loads = append(c.out.Loads, PayloadLoad{Index: index, Term: term})
}

// PayloadLoaded brings a payload that Outbox.Loads asked for; the core owns buf.
func (c *Core) PayloadLoaded(l PayloadLoad, buf []byte, err error) {
	current := c.loading[l.Index] == l.Term
	if current {
		delete(c.loading, l.Index)
	}
	if c.failed != nil || !current || l.Index <= c.applied {
		if err == nil {
			c.o.Buffers.Put(buf)
		}
		return
	}
	if err == nil {
		err = c.checkLoaded(l, buf)
	}
	if err != nil {
		c.fail(fmt.Errorf("shard: read payload of index %d term %d back: %w", l.Index, l.Term, err))
		c.settle()
		return
	}
	c.table.addLoaded(l.Index, l.Term, buf, c.tick)
	c.advance()
}

var errNotInLog = errors.New("entry is not in the log any more")

func (c *Core) checkLoaded(l PayloadLoad, buf []byte) error {
	ents, err := c.st.Entries(l.Index, l.Index+1, 0)
	if err != nil || len(ents) != 1 || ents[0].GetTerm() != l.Term {
		return errNotInLog
	}
	d, err := ParseDescriptor(ents[0].GetData())
	if err != nil {
		return err
	}
	return d.CheckPayload(buf)
}

// TransferLeader asks Raft to hand leadership to another replica; intake stops
// until it has, or until an election timeout has passed.
func (c *Core) TransferLeader(to ReplicaID) {
	if c.failed != nil || c.refused || c.role != raft.StateLeader {
		return
	}
	c.release()
	c.rn.TransferLeader(uint64(to))
	c.transferring = c.rn.BasicStatus().LeadTransferee != 0
	c.advance()
}
