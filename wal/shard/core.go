package shard

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"thermocline/wal"
	"thermocline/wal/transport"
)

const (
	// PayloadMaxBytes closes a payload under construction; one command may be larger.
	PayloadMaxBytes = 1 << 20
	// entriesPerMessage bounds a MsgApp: 8 payloads of at most 1 MiB each.
	entriesPerMessage = 8
	// descriptorWire is a descriptor entry's protobuf size, rounded up: what
	// Raft's own byte limits see of an entry.
	descriptorWire = 80
	// applyingEntriesMax bounds the entries that Raft hands out for apply at a time.
	applyingEntriesMax = 64
	// readWaitersMax bounds the reads that wait for a confirmation of leadership.
	readWaitersMax = 1 << 14
	// loadsMax bounds the payloads that are read back for apply at a time.
	loadsMax = 8
)

// Options configures a Core. Zero values take the defaults named.
type Options struct {
	Shard wal.ShardID
	ID    ReplicaID
	// Home, if not 0, is the replica that is to lead the shard when nobody does:
	// it has a head start in the first election after a start (tickRaft). It
	// counts at a start alone, and may be this replica.
	Home ReplicaID
	// ElectionTicks and HeartbeatTicks count calls of Tick. With a tick of
	// 50 ms the defaults are 12 (600 ms) and 2 (100 ms).
	ElectionTicks, HeartbeatTicks int
	// UncommittedBytes and UncommittedEntries stop the leader's intake: Raft's
	// own limits see only descriptors. Defaults 32 MiB and 4,096.
	UncommittedBytes, UncommittedEntries int
	// CacheBytes is the tail cache's budget (64 MiB); CacheTicks its age limit
	// (0: none).
	CacheBytes int
	CacheTicks uint64
	// SendPinBytes bounds the payload bytes that peers' sends keep in memory (32 MiB).
	SendPinBytes int
	// PayloadBytes closes a payload under construction (PayloadMaxBytes).
	PayloadBytes int
	// SnapshotFreesFactor and SnapshotMinBytes decide when a snapshot pays:
	// when it frees factor times its size (8) and at least that many bytes (1 MiB).
	SnapshotFreesFactor int
	SnapshotMinBytes    int64
	// InflightMessages bounds unanswered MsgApps per follower (32).
	InflightMessages int
	// RaftUncommittedBytes bounds the uncommitted descriptors inside Raft
	// (no limit by default); tests make it small, so that proposals are dropped.
	RaftUncommittedBytes uint64

	StateMachine StateMachine
	// CheckPayload, if not nil, checks what is inside a follower's payload
	// (each batch's CRC) before it is appended.
	CheckPayload func(payload []byte) error
	// ReadPayload reads a payload back from the log: for senders and readers,
	// on their goroutines.
	ReadPayload func(index, term uint64) ([]byte, error)
	// OpenSnapshot opens a snapshot file: its metadata, and its state to read.
	// The one seam that the core calls and waits for: at a start and after a
	// received snapshot.
	OpenSnapshot func(file string) (SnapshotMeta, io.ReadCloser, error)
	Buffers      *Buffers
	Recovered    *wal.RecoveredShard
	Logger       *slog.Logger
	Stats        *Stats
	Bugs         Bugs
	// Hold, if not nil, is asked for each payload before it is proposed, and at
	// each input while one is kept back: true keeps it. Tests use it to let
	// leadership change between Prepare and Propose.
	Hold func() bool
}

func (o *Options) defaults() {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&o.ElectionTicks, 12)
	def(&o.HeartbeatTicks, 2)
	def(&o.UncommittedBytes, 32<<20)
	def(&o.UncommittedEntries, 4096)
	def(&o.CacheBytes, 64<<20)
	def(&o.SendPinBytes, 32<<20)
	def(&o.PayloadBytes, PayloadMaxBytes)
	def(&o.SnapshotFreesFactor, 8)
	def(&o.InflightMessages, 32)
	if o.SnapshotMinBytes == 0 {
		o.SnapshotMinBytes = 1 << 20
	}
	if o.Buffers == nil {
		o.Buffers = NewBuffers(16<<20, false)
	}
	if o.Stats == nil {
		o.Stats = &Stats{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// Core is one shard replica as a pure step machine around raft.RawNode: no
// clock, no goroutine, no I/O (but Options.OpenSnapshot). Inputs are method
// calls; what they cause collects in the Outbox, which the driver takes after
// each input and carries out: appends in order, messages in any order. One
// goroutine calls all methods; only View may be called from anywhere.
//
// Invariants: applied <= commit; hw never falls; entries of one append are
// answered only after AppendDone of it and of every earlier one; the running
// (prepared) state belongs to one term and continues the applied state without
// a gap: when a proposal is lost, intake stops until it has been rebuilt.
type Core struct {
	o     Options
	sm    StateMachine
	rn    *raft.RawNode
	st    *storage
	table *payloadTable
	out   Outbox

	// Raft's view, as of the last Ready.
	term, vote, commit uint64
	lead               uint64
	role               raft.StateType
	// begun: the home's head start is over (tickRaft).
	begun bool
	// firstOwn is the index of this leader's first entry (0: not a leader).
	firstOwn uint64
	applied  uint64
	hw       uint64
	// told is what the state machine was told last.
	toldHW    uint64
	toldReady bool
	tick      uint64
	failed    error
	usage     uint16
	rooms     map[uint64]peerRoom

	proposals
	appends
	applying
	reads
	snapshots
	changes
	refusals
}

// Outbox is what the driver must do next. Appends go to the log in order, each
// answered by AppendDone; a payload reference in a message is released by who
// sends or drops it.
type Outbox struct {
	Appends  []SubmitAppend
	Messages []*transport.Message
	// Loads are payloads to read from the log for apply: PayloadLoaded answers.
	Loads []PayloadLoad
	// Snapshot is an image to write (WriteSnapshot, then SnapshotWritten).
	Snapshot *SnapshotTask
	// Remove names snapshot files that nothing refers to any more.
	Remove []string
	// Leadership is set when it changed.
	Leadership *Leadership
}

// SubmitAppend is an append for the log; the driver sets Append.Done so that
// AppendDone(ID, err) is called on the core's goroutine.
type SubmitAppend struct {
	ID     uint64
	Append *wal.Append
}

// PayloadLoad names an entry whose payload apply waits for.
type PayloadLoad struct{ Index, Term uint64 }

// NewCore starts a replica from what the log recovered. The state machine must
// be empty; it is restored from the recovered snapshot.
func NewCore(o Options) (*Core, error) {
	o.defaults()
	c := &Core{o: o, sm: o.StateMachine, st: &storage{}}
	c.table = newPayloadTable(o.Buffers, o.CacheBytes, o.ReadPayload)
	c.proposals.init()
	c.tick = 1
	if err := c.recover(); err != nil {
		return nil, fmt.Errorf("shard %d replica %d: start: %w", o.Shard, o.ID, err)
	}
	if err := c.newRaft(); err != nil {
		return nil, err
	}
	c.tellHW()
	return c, nil
}

// recover fills the storage from the log and restores the state machine.
func (c *Core) recover() error {
	rec := c.o.Recovered
	if rec == nil {
		rec = &wal.RecoveredShard{}
	}
	c.st.hard = rec.Hard
	c.st.trimmed, c.st.trimmedTerm = rec.Snapshot.Trimmed, rec.Snapshot.TrimmedTerm
	for _, e := range rec.Entries {
		if e.Index != c.st.last()+1 {
			return fmt.Errorf("recovered entries: expected index %d, found %d", c.st.last()+1, e.Index)
		}
		c.st.entries = append(c.st.entries, metaEntry(e))
		c.st.payloadLens = append(c.st.payloadLens, e.PayloadLen)
		c.st.bytes += int64(e.PayloadLen)
		c.learnHW(e)
	}
	c.conf = &raftpb.ConfState{}
	if rec.Snapshot.Index > 0 {
		if err := c.restore(rec.Snapshot); err != nil {
			return err
		}
	}
	if c.st.last() < rec.Snapshot.Index {
		return fmt.Errorf("recovered log ends at %d, below its snapshot at %d", c.st.last(), rec.Snapshot.Index)
	}
	// Rule: the commit index is not synced by itself, a snapshot is.
	c.st.hard.Commit = max(c.st.hard.Commit, rec.Snapshot.Index)
	if c.o.Bugs.CommitBelowSnapshot {
		c.st.hard.Commit = c.st.trimmed
	}
	if c.st.hard.Commit > c.st.last() {
		return fmt.Errorf("recovered commit %d is beyond the log's end %d", c.st.hard.Commit, c.st.last())
	}
	return nil
}

func metaEntry(e wal.EntryMeta) *raftpb.Entry {
	return &raftpb.Entry{
		Index: new(e.Index), Term: new(e.Term),
		Type: raftpb.EntryType(e.Type).Enum(), Data: e.Descriptor,
	}
}

// learnHW takes the high watermark that a recovered entry carries: it was
// acknowledged when the entry was proposed, whether or not the entry stands.
func (c *Core) learnHW(e wal.EntryMeta) {
	if e.Type != uint8(raftpb.EntryNormal) || len(e.Descriptor) == 0 {
		return
	}
	if d, err := ParseDescriptor(e.Descriptor); err == nil {
		c.hw = max(c.hw, d.HW)
	}
}

// restore loads the state machine from the snapshot file that ptr names.
func (c *Core) restore(ptr wal.SnapshotPointer) error {
	meta, r, err := c.o.OpenSnapshot(ptr.File)
	if err != nil {
		return fmt.Errorf("open snapshot %s: %w", ptr.File, err)
	}
	defer r.Close()
	if meta.Index != ptr.Index || meta.Term != ptr.Term {
		return fmt.Errorf("snapshot %s: expected index %d term %d, found %d, %d: %w", ptr.File, ptr.Index, ptr.Term, meta.Index, meta.Term, ErrSnapshot)
	}
	if err := c.sm.Restore(r); err != nil {
		return fmt.Errorf("restore snapshot %s: %w", ptr.File, err)
	}
	c.st.setSnapshot(meta.raft())
	c.conf = meta.raft().GetConfState()
	c.file, c.pointerIndex = ptr.File, ptr.Index
	// A new file never takes the current one's name: a stream of the same
	// snapshot may still be under way.
	c.fileSeq = max(c.fileSeq, snapshotSeq(ptr.File))
	c.applied = ptr.Index
	c.hw = max(c.hw, meta.HW)
	return nil
}

// Tick advances Raft's time by one tick.
func (c *Core) Tick() {
	if c.failed != nil {
		return
	}
	c.release()
	c.tick++
	if c.refused {
		return
	}
	c.tickRaft()
	if c.transferring && c.rn.BasicStatus().LeadTransferee == 0 {
		c.transferring = false
	}
	c.pauseForCandidate()
	c.flushHard()
	c.removeDoomed()
	if c.o.CacheTicks > 0 && c.tick > c.o.CacheTicks {
		c.table.evict(c.tick - c.o.CacheTicks)
	}
	c.advance()
}

// TakeOutbox returns what the inputs since the last call have caused.
func (c *Core) TakeOutbox() Outbox {
	out := c.out
	c.out = Outbox{}
	return out
}

// Leadership tells who leads, and whether this replica may take requests.
func (c *Core) Leadership() Leadership {
	return Leadership{Leader: ReplicaID(c.lead), Term: c.term, Ready: c.ready()}
}

// ready: this replica leads, and the first entry of its own term is applied,
// so that the applied state holds everything any earlier leader acknowledged.
func (c *Core) ready() bool {
	if c.failed != nil || c.role != raft.StateLeader {
		return false
	}
	if c.o.Bugs.ServeBeforeOwnEntry {
		return true
	}
	return c.firstOwn != 0 && c.applied >= c.firstOwn
}

// Failed is why the replica is out of service, or nil.
func (c *Core) Failed() error { return c.failed }

// HW is the shard's high watermark as this replica knows it.
func (c *Core) HW() uint64 { return c.hw }

// Applied is the last applied index.
func (c *Core) Applied() uint64 { return c.applied }

// View returns the payload of a live entry: from the tail cache, else read
// from the log. Any goroutine may call it.
func (c *Core) View(index, term uint64) (PayloadView, error) {
	v, err := c.table.view(index, term)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// advance handles everything that Raft has ready, then settles what follows
// from it: high watermark, waiters, reads, snapshots.
func (c *Core) advance() {
	before := c.Leadership()
	for c.failed == nil && !c.refused {
		if c.rn.HasReady() {
			c.handle(c.rn.Ready())
			continue
		}
		if !c.applyQueued() && !c.promote() {
			break
		}
	}
	c.settle()
	if now := c.Leadership(); now != before || c.announce {
		c.announce = false
		c.out.Leadership = &now
	}
}

func (c *Core) handle(rd raft.Ready) {
	if !raft.IsEmptyHardState(rd.HardState) {
		c.term, c.vote, c.commit = rd.GetTerm(), rd.GetVote(), rd.GetCommit()
	}
	if rd.SoftState != nil {
		c.changeRole(rd.SoftState)
	}
	if !c.bind(rd.Entries) {
		return
	}
	for _, m := range rd.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			c.submit(m, rd)
		case raft.LocalApplyThread:
			c.applyQueue = append(c.applyQueue, m)
		default:
			c.send(m)
		}
	}
	for _, rs := range rd.ReadStates {
		c.confirmed(rs)
	}
}

func (c *Core) changeRole(ss *raft.SoftState) {
	was := c.role
	c.role, c.lead = ss.RaftState, ss.Lead
	c.announce = true
	if was == raft.StateLeader && c.role != raft.StateLeader {
		c.stepDown()
	}
	if was != raft.StateLeader && c.role == raft.StateLeader {
		c.firstOwn = 0
		if c.o.Bugs.HWFromOwnLog {
			c.hw = c.ownBound()
		}
		c.sm.ResetProposed()
	}
}

// stepDown ends a leadership: what is prepared has no future in this term's
// running state; waiters whose entries are in the log learn their fate when
// their index is applied.
func (c *Core) stepDown() {
	c.firstOwn = 0
	c.transferring = false
	c.draining = false
	c.endChanges()
	c.failReads(ErrNotLeader)
	c.sm.ResetProposed()
}

// fail takes the replica out of service: it neither ticks nor sends nor
// answers Raft any more, so that a leader is deposed by its followers.
func (c *Core) fail(err error) {
	if c.failed != nil {
		return
	}
	c.failed = err
	if !errors.Is(err, ErrStopped) { // a replica that is closed is no news
		c.o.Logger.Error("shard replica out of service", "shard", c.o.Shard, "replica", c.o.ID, "reason", err)
	}
	c.role, c.lead, c.firstOwn = raft.StateFollower, 0, 0
	if rs := c.received; rs != nil {
		c.received = nil
		rs.Done(err)
	}
	c.failReads(ErrStopped)
	c.failWaiters(fmt.Errorf("%w: %w", ErrUnknownFate, err))
	now := c.Leadership() // here, since a failed core may never advance again
	c.out.Leadership = &now
}

// Fail takes the replica out of service for a reason from outside: its log has
// failed, of which a shard without appends would not hear. Every waiter is
// answered, and nothing is sent any more.
func (c *Core) Fail(err error) {
	c.fail(err)
	c.settle()
}

// Stop ends the replica, as Fail does.
func (c *Core) Stop() { c.Fail(ErrStopped) }

// ackBound is the one function that decides what is acknowledged: produce
// acks, the high watermark, sealing and everything else that must never be
// taken back wait for it. With ack.policy quorum it is Raft's commit index,
// once this leader has applied the first entry of its own term; a replica that
// does not lead knows only what it has been told.
func (c *Core) ackBound() uint64 {
	if c.o.Bugs.AckBoundUncommitted && c.role == raft.StateLeader {
		return c.lastBound
	}
	if c.failed != nil || c.role != raft.StateLeader || c.firstOwn == 0 || c.applied < c.firstOwn {
		return c.hw
	}
	return max(c.hw, c.commit)
}

// ownBound is what the applied entries alone say (a planted bug's answer).
func (c *Core) ownBound() uint64 { return c.st.trimmed }

// settle draws the consequences of everything that happened.
func (c *Core) settle() {
	c.hw = max(c.hw, c.ackBound())
	c.tellHW()
	c.answerAcked()
	c.endDrain()
	c.answerReads()
	c.decideSnapshot()
}

// tellHW passes the high watermark on, and whether clients may be told of the
// log's end: not before the bound has reached a new leader's first entry.
func (c *Core) tellHW() {
	ready := c.role == raft.StateLeader && c.ready() && c.hw >= c.firstOwn
	if c.o.Bugs.LatestBeforeOwnEntry && c.role == raft.StateLeader {
		ready = true
	}
	if c.hw == c.toldHW && ready == c.toldReady {
		return
	}
	c.toldHW, c.toldReady = c.hw, ready
	c.sm.SetHW(c.hw, ready)
}
