package shard

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"thermocline/wal"
	"thermocline/wal/transport"
)

// appends is the durable side of the core: what is on its way to the log, in
// order, and the payloads that arrived with the message being stepped.
type appends struct {
	nextAppend uint64
	inflight   []*inflightAppend
	// inflightBytes are the payload bytes submitted and not durable.
	inflightBytes int
	incoming      map[uint64][]byte
	// lastHard is what was last submitted; stash is a newer commit index that
	// travels with the next append, since it alone is not worth a write.
	lastHard wal.HardState
	stash    *wal.HardState
}

type inflightAppend struct {
	id        uint64
	entries   []*raftpb.Entry
	lens      []uint32
	payloads  []*payload
	bytes     int
	hard      *wal.HardState
	responses []*raftpb.Message
	snapshot  *ReceivedSnapshot // received, to be installed
	own       *SnapshotTask     // written here, to be pointed to
	early     bool              // planted bugs: answered already
}

// InflightBytes are the payload bytes submitted to the log and not durable
// yet: what a driver bounds by not taking more messages.
func (c *Core) InflightBytes() int { return c.inflightBytes }

// Step takes a message from a peer. The core owns the payloads.
func (c *Core) Step(in *transport.Inbound) {
	if c.failed != nil {
		c.putAll(in.Payloads)
		return
	}
	if c.noRoom(in) {
		c.putAll(in.Payloads)
		return
	}
	c.release()
	if err := c.checkInbound(in); err != nil {
		c.o.Stats.BadMessages.Add(1)
		c.o.Logger.Warn("message refused", "shard", c.o.Shard, "from", in.From, "reason", err)
		c.putAll(in.Payloads)
		return
	}
	c.hw = max(c.hw, in.HW)
	for i, p := range in.Payloads {
		if p == nil {
			continue
		}
		if c.incoming == nil {
			c.incoming = map[uint64][]byte{}
		}
		c.incoming[in.Raft.GetEntries()[i].GetIndex()] = p
	}
	// An error means that raft does not know the sender: no harm, no effect.
	_ = c.rn.Step(in.Raft)
	c.advance()
	for _, p := range c.incoming {
		c.o.Buffers.Put(p)
	}
	clear(c.incoming)
}

func (c *Core) putAll(ps [][]byte) {
	for _, p := range ps {
		if p != nil {
			c.o.Buffers.Put(p)
		}
	}
}

// checkInbound verifies what a message carries before anything depends on it:
// every payload against its descriptor, and what is inside.
func (c *Core) checkInbound(in *transport.Inbound) error {
	m := in.Raft
	if m == nil || m.GetTo() != uint64(c.o.ID) || m.GetFrom() == 0 || raft.IsLocalMsg(m.GetType()) ||
		m.GetType() == raftpb.MsgProp || m.GetType() == raftpb.MsgSnap {
		return fmt.Errorf("shard: unexpected message %v from %d to %d", m.GetType(), m.GetFrom(), m.GetTo())
	}
	if m.GetType() == raftpb.MsgHeartbeatResp && !c.takeRoom(in) {
		return fmt.Errorf("shard: heartbeat answer with a context of %d bytes", len(m.GetContext()))
	}
	if c.o.Bugs.SkipPayloadCheck {
		return nil
	}
	for i, e := range m.GetEntries() {
		if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
			continue
		}
		d, err := ParseDescriptor(e.GetData())
		if err != nil {
			return fmt.Errorf("entry %d: %w", e.GetIndex(), err)
		}
		if d.PayloadLen == 0 {
			continue
		}
		if i >= len(in.Payloads) || in.Payloads[i] == nil {
			return fmt.Errorf("entry %d comes without its payload: %w", e.GetIndex(), ErrPayload)
		}
		if err := d.CheckPayload(in.Payloads[i]); err != nil {
			return fmt.Errorf("entry %d: %w", e.GetIndex(), err)
		}
		if c.o.CheckPayload != nil {
			if err := c.o.CheckPayload(in.Payloads[i]); err != nil {
				return fmt.Errorf("entry %d: %w", e.GetIndex(), err)
			}
		}
	}
	return nil
}

// bind gives ready entries their payloads: ours by payload id (their waiters
// learn index and term), a leader's from the message that brought them. It
// runs before the messages of the same Ready are sent.
func (c *Core) bind(entries []*raftpb.Entry) bool {
	if len(entries) == 0 {
		return true
	}
	c.overwrite(entries[0].GetIndex())
	for _, e := range entries {
		if c.role == raft.StateLeader && c.firstOwn == 0 && e.GetTerm() == c.term && len(e.GetData()) == 0 {
			c.firstOwn = e.GetIndex()
		}
		if !c.bindOne(e) {
			return false
		}
	}
	c.lastBound = entries[len(entries)-1].GetIndex()
	if len(c.bySeq) > 0 {
		// Raft replaces a configuration change that it refuses by an empty entry.
		lost := make([]*pending, 0, len(c.bySeq))
		for _, pe := range c.bySeq {
			lost = append(lost, pe)
		}
		sortPending(lost)
		for _, pe := range lost {
			delete(c.bySeq, pe.seq)
			c.drop(pe, ErrDropped)
		}
	}
	return true
}

func (c *Core) bindOne(e *raftpb.Entry) bool {
	index, term := e.GetIndex(), e.GetTerm()
	if e.GetType() != raftpb.EntryNormal {
		if id, ok := changeID(e); ok && id.Replica == c.o.ID {
			c.bindPending(id.Seq, index)
		}
		return true
	}
	if len(e.GetData()) == 0 {
		return true
	}
	d, err := ParseDescriptor(e.GetData())
	if err != nil {
		c.fail(fmt.Errorf("entry %d term %d: %w", index, term, err))
		return false
	}
	c.hw = max(c.hw, d.HW)
	var buf []byte
	if pe := c.bySeq[d.ID.Seq]; pe != nil && d.ID.Replica == c.o.ID {
		buf, pe.buf = pe.buf, nil
		c.bindPending(d.ID.Seq, index)
	} else if buf = c.incoming[index]; buf != nil {
		delete(c.incoming, index)
	}
	if buf == nil {
		if d.PayloadLen == 0 {
			return true
		}
		c.fail(fmt.Errorf("entry %d term %d is ready without its payload: %w", index, term, ErrPayload))
		return false
	}
	c.table.add(index, term, buf, c.tick)
	return true
}

func (c *Core) bindPending(seq, index uint64) {
	if pe := c.bySeq[seq]; pe != nil {
		delete(c.bySeq, seq)
		pe.index = index
		c.byIndex[index] = append(c.byIndex[index], pe)
	}
}

// overwrite drops the payloads that a new suffix replaces, and tells the
// waiters of the old one: their entries may still win on other replicas.
func (c *Core) overwrite(from uint64) {
	c.table.truncate(from)
	if len(c.byIndex) == 0 || c.role == raft.StateLeader || c.o.Bugs.WaiterByIndex {
		return
	}
	var lost []*pending
	for index, at := range c.byIndex {
		if index >= from {
			lost = append(lost, at...)
			delete(c.byIndex, index)
		}
	}
	sortPending(lost)
	for _, pe := range lost {
		c.resolve(pe, ErrUnknownFate)
	}
}

func sortPending(ps []*pending) {
	slices.SortFunc(ps, func(a, b *pending) int { return int(int64(a.seq) - int64(b.seq)) })
}

// submit turns a MsgStorageAppend into an append for the log. One without
// entries, snapshot, or change of term or vote is not synced: it only waits
// for the shard's earlier appends. A new commit index alone is not written at
// all until something else is, or until the next tick.
func (c *Core) submit(m *raftpb.Message, rd raft.Ready) {
	ia := &inflightAppend{entries: rd.Entries, responses: m.GetResponses()}
	if !raft.IsEmptyHardState(rd.HardState) {
		c.stash = &wal.HardState{Term: c.term, Vote: c.vote, Commit: c.commit}
	}
	a := &wal.Append{Shard: c.o.Shard}
	if !raft.IsEmptySnap(rd.Snapshot) && !c.submitReceived(ia, a, rd.Snapshot) {
		return
	}
	if c.stash != nil && len(ia.entries) == 0 && a.Snapshot == nil && len(ia.responses) == 0 && !c.voteChanged() {
		return
	}
	c.takeHard(ia, a)
	c.addEntries(ia, a)
	a.NoSync = len(a.Entries) == 0 && a.Snapshot == nil && a.NoSync
	c.push(ia, a)
}

func (c *Core) voteChanged() bool {
	return c.stash.Term != c.lastHard.Term || c.stash.Vote != c.lastHard.Vote
}

// takeHard moves the stashed hard state into the append and marks whether it
// alone needs no sync.
func (c *Core) takeHard(ia *inflightAppend, a *wal.Append) {
	a.NoSync = true
	if c.stash == nil {
		return
	}
	a.NoSync = !c.voteChanged()
	// Never beyond what is durable: the log may refuse the entries between.
	c.stash.Commit = max(c.lastHard.Commit, min(c.stash.Commit, c.st.last()))
	a.Hard, ia.hard = c.stash, c.stash
	c.lastHard, c.stash = *c.stash, nil
}

// flushHard writes a stashed commit index, so that it is not older than a tick.
func (c *Core) flushHard() {
	if c.stash == nil {
		return
	}
	ia, a := &inflightAppend{}, &wal.Append{Shard: c.o.Shard}
	c.takeHard(ia, a)
	c.push(ia, a)
}

func (c *Core) addEntries(ia *inflightAppend, a *wal.Append) {
	for _, e := range ia.entries {
		we := wal.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Type: uint8(e.GetType()), Descriptor: e.GetData()}
		if p := c.table.get(we.Index, we.Term); p != nil {
			// add counted the append's reference already.
			c.table.release(p)
			d, _ := ParseDescriptor(we.Descriptor)
			we.Payload, we.PayloadCRC = p.buf, d.PayloadCRC
			ia.payloads = append(ia.payloads, p)
			ia.bytes += len(p.buf)
		}
		ia.lens = append(ia.lens, uint32(len(we.Payload)))
		a.Entries = append(a.Entries, we)
	}
}

func (c *Core) push(ia *inflightAppend, a *wal.Append) {
	c.nextAppend++
	ia.id = c.nextAppend
	c.inflight = append(c.inflight, ia)
	c.inflightBytes += ia.bytes
	c.out.Appends = append(c.out.Appends, SubmitAppend{ID: ia.id, Append: a})
	if (c.o.Bugs.AckBeforeFsync && ia.snapshot == nil) || (c.o.Bugs.NoSyncEarly && a.NoSync) ||
		(c.o.Bugs.AckSnapshotEarly && ia.snapshot != nil) {
		c.answerEarly(ia)
	}
}

// answerEarly is what the planted bugs do: answer before the log has.
func (c *Core) answerEarly(ia *inflightAppend) {
	if ia.snapshot != nil {
		own := ia.responses[:0]
		for _, m := range ia.responses {
			if m.GetTo() == uint64(c.o.ID) {
				own = append(own, m)
			} else {
				c.send(m)
			}
		}
		ia.responses = own
		return
	}
	if err := c.st.append(ia.entries, ia.lens); err != nil {
		return
	}
	ia.early = true
	c.respond(ia)
}

// AppendDone says that append id is durable, or why it never will be. Appends
// are answered in order.
func (c *Core) AppendDone(id uint64, err error) {
	if len(c.inflight) == 0 || c.inflight[0].id != id {
		c.fail(fmt.Errorf("shard: append %d answered out of order", id))
		return
	}
	ia := c.inflight[0]
	c.inflight = c.inflight[1:]
	c.inflightBytes -= ia.bytes
	for _, p := range ia.payloads {
		if err == nil {
			c.table.written(p)
		} else {
			c.table.release(p)
		}
	}
	if c.failed != nil {
		return
	}
	c.refused = c.refused || errors.Is(err, wal.ErrFull) && len(ia.entries) > 0 && ia.snapshot == nil
	if c.refused {
		c.refusedDone(ia, err)
		return
	}
	if err == nil {
		err = c.makeStable(ia)
	}
	if err != nil {
		c.fail(fmt.Errorf("shard: storage append: %w", err))
		c.settle()
		return
	}
	c.release()
	c.table.evict(0)
	if !ia.early {
		c.respond(ia)
	}
	if ia.snapshot != nil {
		ia.snapshot.Done(nil)
	}
	c.advance()
}

// makeStable makes a durable append part of Raft's storage.
func (c *Core) makeStable(ia *inflightAppend) error {
	if ia.hard != nil {
		c.st.hard = *ia.hard
	}
	if ia.snapshot != nil {
		if err := c.install(ia.snapshot); err != nil {
			return err
		}
	}
	if ia.own != nil {
		c.pointed(ia.own)
	}
	if ia.early {
		return nil
	}
	if err := c.st.append(ia.entries, ia.lens); err != nil {
		return err
	}
	for _, e := range ia.entries {
		c.syncedLocally(e.GetIndex(), e.GetTerm())
	}
	return nil
}

// respond delivers the responses that waited for an append: to ourselves
// (raft's own vote and acknowledgement) or to peers.
func (c *Core) respond(ia *inflightAppend) {
	for _, m := range ia.responses {
		if m.GetTo() == uint64(c.o.ID) {
			_ = c.rn.Step(m)
		} else {
			c.send(m)
		}
	}
}

// send hands a message to the transport, with the payloads that its entries
// name and our high watermark beside it.
func (c *Core) send(m *raftpb.Message) {
	if c.failed != nil {
		return
	}
	out := &transport.Message{
		Shard: uint32(c.o.Shard), From: uint64(c.o.ID), To: m.GetTo(), HW: c.hw, Raft: m,
	}
	switch m.GetType() {
	case raftpb.MsgSnap:
		c.sendSnapshot(out)
		return
	case raftpb.MsgHeartbeatResp:
		out.Raft = c.addRoom(m)
	}
	for i, e := range m.GetEntries() {
		if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
			continue
		}
		d, err := ParseDescriptor(e.GetData())
		if err != nil || d.PayloadLen == 0 {
			continue
		}
		if out.Payloads == nil {
			out.Payloads = make([]transport.Payload, len(m.GetEntries()))
		}
		out.Payloads[i] = c.table.send(e.GetIndex(), e.GetTerm(), int(d.PayloadLen), c.o.SendPinBytes)
	}
	c.out.Messages = append(c.out.Messages, out)
}

// Unreachable tells Raft that messages to a peer were dropped.
func (c *Core) Unreachable(to ReplicaID) {
	if c.failed == nil && !c.refused {
		c.rn.ReportUnreachable(uint64(to))
		c.advance()
	}
}

// changeID reads the proposer's term and payload id from a configuration
// change's context.
func changeID(e *raftpb.Entry) (PayloadID, bool) {
	_, id, ok := parseChange(e)
	return id, ok
}

func parseChange(e *raftpb.Entry) (*raftpb.ConfChangeV2, PayloadID, bool) {
	cc := &raftpb.ConfChangeV2{}
	if e.GetType() != raftpb.EntryConfChangeV2 || proto.Unmarshal(e.GetData(), cc) != nil || len(cc.GetContext()) != changeContextLen {
		return cc, PayloadID{}, false
	}
	_, id := parseChangeContext(cc.GetContext())
	return cc, id, true
}
