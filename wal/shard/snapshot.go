package shard

import (
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"thermocline/wal"
	"thermocline/wal/transport"
)

// snapshotRetryTicks waits after a snapshot could not be written.
const snapshotRetryTicks = 100

// A shard's log may be trimmable with every entry: coordinator records need no
// segment. Under pressure snapshots that free little therefore keep a distance
// (half a second), and one that grows with what they write: a tick for each
// snapshotTickBytes, which is some 20 MiB/s.
const (
	pressureTicks     = 10
	snapshotTickBytes = 1 << 20
)

// SnapshotMeta is what a snapshot says about itself beside the state.
type SnapshotMeta struct {
	Shard       wal.ShardID
	Index, Term uint64
	// HW is the high watermark that the writer knew.
	HW        uint64
	ConfState *raftpb.ConfState
}

func (m SnapshotMeta) raft() *raftpb.SnapshotMetadata {
	cs := m.ConfState
	if cs == nil {
		cs = &raftpb.ConfState{}
	}
	return &raftpb.SnapshotMetadata{Index: new(m.Index), Term: new(m.Term), ConfState: cs}
}

// SnapshotTask is an image that the driver encodes off the shard's goroutine
// into a durable file (WriteSnapshot), and answers with SnapshotWritten.
type SnapshotTask struct {
	File  string
	Meta  SnapshotMeta
	Image Image
	// Trimmed is what the log need not hold once this snapshot stands: what the
	// image itself knows to be tiered, at most its index.
	Trimmed, TrimmedTerm uint64
}

// ReceivedSnapshot is a snapshot stream that has been taken in: the state in a
// durable file, the raw entries Trimmed+1..Meta.Index as staged appends that
// were submitted to the log before.
type ReceivedSnapshot struct {
	Meta                 SnapshotMeta
	File                 string
	Trimmed, TrimmedTerm uint64
	Entries              []wal.EntryMeta
	// Done is called once the snapshot is durable and restored, was not needed
	// (nil), or has failed.
	Done func(error)
}

// snapshots is the core's side of snapshots: own, received, sent.
type snapshots struct {
	conf *raftpb.ConfState // as of applied
	file string            // the newest pointer's file
	// pointerIndex is the newest snapshot index submitted to the log: an older
	// one never follows it.
	pointerIndex   uint64
	task           *SnapshotTask
	requested      bool
	pressure       bool
	pressureTick   uint64 // before it a snapshot must pay, also under pressure
	lookedTick     uint64 // when that was last looked at
	retryTick      uint64
	checkedTrim    uint64
	lastImageBytes int64
	fileSeq        uint64
	received       *ReceivedSnapshot
	files          fileRefs
	doomed         []string
}

// fileRefs counts the streams that read a snapshot file; streams end on their
// senders' goroutines.
type fileRefs struct {
	mu sync.Mutex
	n  map[string]int
}

func (f *fileRefs) add(name string, d int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n == nil {
		f.n = map[string]int{}
	}
	if f.n[name] += d; f.n[name] <= 0 {
		delete(f.n, name)
	}
}

func (f *fileRefs) held(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n[name] > 0
}

// RequestSnapshot asks for a snapshot at the next occasion, whatever it frees.
func (c *Core) RequestSnapshot() {
	c.requested = true
	c.advance()
}

// SetPressure tells whether the log's budget needs whatever can be freed.
func (c *Core) SetPressure(on bool) {
	if c.pressure != on {
		c.pressure, c.checkedTrim = on, 0
		c.advance()
	}
}

// SnapshotName names a snapshot file of a shard.
func SnapshotName(id wal.ShardID, index, seq uint64) string {
	return fmt.Sprintf("shard-%08x-%016x-%04x.snap", uint32(id), index, seq)
}

// snapshotSeq is the number in a snapshot file's name, 0 if it has none.
func snapshotSeq(name string) uint64 {
	var id, index, seq uint64
	if n, err := fmt.Sscanf(name, "shard-%x-%x-%x.snap", &id, &index, &seq); n != 3 || err != nil {
		return 0
	}
	return seq
}

// BeginReceive names the file of a snapshot about to be received. It refuses
// while another is being installed: the staged entries of a second stream would
// take the place of the first one's before its pointer is durable. A driver
// takes in one stream at a time, from BeginReceive to the call of Done.
func (c *Core) BeginReceive(index uint64) (string, error) {
	if c.failed != nil {
		return "", ErrStopped
	}
	if c.received != nil || c.refused {
		return "", ErrBusy
	}
	return c.nextFile(index), nil
}

func (c *Core) nextFile(index uint64) string {
	c.fileSeq++
	return SnapshotName(c.o.Shard, index, c.fileSeq)
}

// decideSnapshot starts a snapshot when it frees enough, when the budget needs
// what it frees, or on request.
func (c *Core) decideSnapshot() {
	if c.failed != nil || c.task != nil || c.received != nil || c.tick < c.retryTick || c.applied <= c.pointerIndex {
		return
	}
	trim := min(c.sm.TrimmableIndex(), c.applied)
	if !c.requested {
		if trim <= c.st.trimmed || trim == c.checkedTrim || !c.worthSnapshot(trim) {
			return
		}
	}
	img := c.sm.Image()
	if img.Index() != c.applied {
		c.fail(fmt.Errorf("shard: image: expected index %d, found %d", c.applied, img.Index()))
		return
	}
	c.lastImageBytes = int64(img.SizeEstimate())
	c.pressureTick = c.tick + pressureTicks + uint64(c.lastImageBytes/snapshotTickBytes)
	term, err := c.st.Term(c.applied)
	if err != nil {
		c.fail(fmt.Errorf("shard: term of applied index %d: %w", c.applied, err))
		return
	}
	if c.o.Bugs.TrimBeforeTiered {
		trim = c.applied
	}
	c.requested = false
	c.task = &SnapshotTask{
		File:  c.nextFile(c.applied),
		Meta:  SnapshotMeta{Shard: c.o.Shard, Index: c.applied, Term: term, HW: c.hw, ConfState: c.ConfState()},
		Image: img, Trimmed: max(trim, c.st.trimmed),
	}
	c.out.Snapshot = c.task
	if c.o.Bugs.PointerBeforeFile {
		c.SnapshotWritten(c.task, nil)
	}
}

// worthSnapshot tells whether a snapshot up to trim pays, or is needed by the
// budget and not too soon after the last one.
func (c *Core) worthSnapshot(trim uint64) bool {
	soon := c.pressure && c.tick < c.pressureTick
	if soon && c.lookedTick == c.tick {
		return false // counting the bytes once in a tick is enough
	}
	c.lookedTick = c.tick
	frees := c.st.bytesThrough(trim)
	pays := frees >= c.o.SnapshotMinBytes && frees >= int64(c.o.SnapshotFreesFactor)*c.lastImageBytes
	if !soon {
		c.checkedTrim = trim // else it is looked at again
	}
	return pays || c.pressure && !soon
}

// SnapshotWritten says that the task's file is durable: only now its pointer
// goes to the log, and only when that is durable the log is trimmed.
func (c *Core) SnapshotWritten(t *SnapshotTask, err error) {
	if t != c.task {
		return
	}
	c.task = nil
	if c.failed != nil {
		return
	}
	if err != nil {
		c.o.Stats.SnapshotErrors.Add(1)
		c.o.Logger.Error("snapshot not written", "shard", c.o.Shard, "file", t.File, "reason", err)
		c.retryTick, c.checkedTrim = c.tick+snapshotRetryTicks, 0
		c.doom(t.File)
		return
	}
	if t.Meta.Index <= c.pointerIndex {
		c.doom(t.File)
		return
	}
	if c.o.Bugs.TrimLateTiered {
		t.Trimmed = max(t.Trimmed, min(c.sm.TrimmableIndex(), t.Meta.Index))
	}
	if t.TrimmedTerm, err = c.st.Term(t.Trimmed); err != nil {
		c.fail(fmt.Errorf("shard: term of trimmed index %d: %w", t.Trimmed, err))
		c.settle()
		return
	}
	c.pointerIndex = t.Meta.Index
	ia := &inflightAppend{own: t}
	a := &wal.Append{Shard: c.o.Shard, Snapshot: &wal.SnapshotPointer{
		Index: t.Meta.Index, Term: t.Meta.Term, File: t.File, Trimmed: t.Trimmed, TrimmedTerm: t.TrimmedTerm,
	}}
	c.takeHard(ia, a)
	a.NoSync = false
	c.push(ia, a)
	c.advance()
}

// pointed: the pointer to our own snapshot is durable; the log may be trimmed.
func (c *Core) pointed(t *SnapshotTask) {
	c.o.Stats.Snapshots.Add(1)
	c.st.setSnapshot(t.Meta.raft())
	c.st.trim(t.Trimmed)
	c.table.trim(t.Trimmed)
	c.replaceFile(t.File)
}

func (c *Core) replaceFile(name string) {
	old := c.file
	c.file = name
	if old != "" && old != name {
		c.doom(old)
	}
}

// doom removes a file once no stream reads it any more.
func (c *Core) doom(name string) {
	c.doomed = append(c.doomed, name)
	c.removeDoomed()
}

func (c *Core) removeDoomed() {
	kept := c.doomed[:0]
	for _, name := range c.doomed {
		if c.files.held(name) {
			kept = append(kept, name)
		} else {
			c.out.Remove = append(c.out.Remove, name)
		}
	}
	c.doomed = kept
}

// sendSnapshot attaches the stream that a MsgSnap stands for: the newest
// snapshot's file, and the raw entries above what it knows to be tiered.
func (c *Core) sendSnapshot(out *transport.Message) {
	meta := out.Raft.GetSnapshot().GetMetadata()
	if c.file == "" || meta.GetIndex() != c.st.snap.GetIndex() || !names(meta.GetConfState(), out.To) {
		// A replica has no use for a snapshot of before it was added.
		c.requested = c.requested || c.task == nil
		c.rn.ReportSnapshot(out.To, raft.SnapshotFailure)
		return
	}
	ents, err := c.st.Entries(c.st.trimmed+1, meta.GetIndex()+1, 1<<62)
	if err != nil {
		c.rn.ReportSnapshot(out.To, raft.SnapshotFailure)
		return
	}
	trimmed, trimmedTerm := c.st.trimmed, c.st.trimmedTerm
	if c.o.Bugs.StreamWithoutEntries {
		ents, trimmed, trimmedTerm = nil, meta.GetIndex(), meta.GetTerm()
	}
	c.files.add(c.file, 1)
	c.o.Stats.StreamsSent.Add(1)
	out.Snapshot = &streamSource{
		core: c, file: c.file, entries: ents, trimmed: trimmed, trimmedTerm: trimmedTerm,
	}
	c.out.Messages = append(c.out.Messages, out)
}

func names(cs *raftpb.ConfState, id uint64) bool {
	return slices.Contains(cs.GetVoters(), id) || slices.Contains(cs.GetLearners(), id) || slices.Contains(cs.GetVotersOutgoing(), id)
}

// SnapshotSent tells the outcome of a snapshot stream to a peer.
func (c *Core) SnapshotSent(to ReplicaID, err error) {
	if c.failed != nil || c.refused {
		return
	}
	status := raft.SnapshotFinish
	if err != nil {
		status = raft.SnapshotFailure
	}
	c.rn.ReportSnapshot(uint64(to), status)
	c.advance()
}

// StepSnapshot takes a MsgSnap whose stream has been taken in.
func (c *Core) StepSnapshot(in *transport.Inbound, rs *ReceivedSnapshot) {
	meta := in.Raft.GetSnapshot().GetMetadata()
	switch {
	case c.failed != nil:
		rs.Done(ErrStopped)
		return
	case in.Raft.GetType() != raftpb.MsgSnap || in.Raft.GetTo() != uint64(c.o.ID) ||
		meta.GetIndex() != rs.Meta.Index || meta.GetTerm() != rs.Meta.Term || rs.Meta.Shard != c.o.Shard:
		c.doom(rs.File)
		rs.Done(fmt.Errorf("message and stream disagree: expected index %d, found %d: %w", meta.GetIndex(), rs.Meta.Index, ErrSnapshot))
		return
	case c.received != nil, c.refused:
		c.doom(rs.File)
		rs.Done(ErrBusy)
		return
	}
	c.hw = max(c.hw, in.HW, rs.Meta.HW)
	c.received = rs
	_ = c.rn.Step(in.Raft)
	c.advance()
	if c.received == rs && !c.installing(rs) {
		// Raft had no use for it.
		c.received = nil
		c.doom(rs.File)
		rs.Done(nil)
	}
}

func (c *Core) installing(rs *ReceivedSnapshot) bool {
	for _, ia := range c.inflight {
		if ia.snapshot == rs {
			return true
		}
	}
	return false
}

// submitReceived adds a received snapshot's pointer to the append: it follows
// the staged entries in the log, so all of it is durable together. What the
// replica had of the log is void.
func (c *Core) submitReceived(ia *inflightAppend, a *wal.Append, snap *raftpb.Snapshot) bool {
	rs, index := c.received, snap.GetMetadata().GetIndex()
	if rs == nil || rs.Meta.Index != index || rs.Meta.Term != snap.GetMetadata().GetTerm() {
		c.fail(fmt.Errorf("raft accepted snapshot %d without its stream: %w", index, ErrSnapshot))
		return false
	}
	c.overwrite(0)
	c.pointerIndex = index
	ia.snapshot = rs
	a.Snapshot = &wal.SnapshotPointer{
		Index: index, Term: rs.Meta.Term, File: rs.File, Trimmed: rs.Trimmed, TrimmedTerm: rs.TrimmedTerm,
	}
	return true
}

// install makes a durable received snapshot the replica's state.
func (c *Core) install(rs *ReceivedSnapshot) error {
	var ents []*raftpb.Entry
	var lens []uint32
	for _, e := range rs.Entries {
		ents = append(ents, metaEntry(e))
		lens = append(lens, e.PayloadLen)
		c.learnHW(e)
	}
	meta, r, err := c.o.OpenSnapshot(rs.File)
	if err != nil {
		return fmt.Errorf("open received snapshot %s: %w", rs.File, err)
	}
	defer r.Close()
	if err := c.sm.Restore(r); err != nil {
		return fmt.Errorf("restore received snapshot %s: %w", rs.File, err)
	}
	c.o.Stats.StreamsReceived.Add(1)
	c.st.replace(meta.raft(), rs.Trimmed, rs.TrimmedTerm, ents, lens)
	c.conf = meta.raft().GetConfState()
	c.lastImageBytes = 0 // not known; the next image tells
	c.applied = rs.Meta.Index
	c.toldHW, c.toldReady = 0, false
	c.received = nil
	c.replaceFile(rs.File)
	c.tellHW()
	return nil
}
