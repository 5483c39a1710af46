package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"thermocline/wal"
	"thermocline/wal/transport"
	"thermocline/wal/vfs"
)

// Bounds of a runner's queues.
const (
	// DefaultTick is Raft's clock: heartbeats every 2 ticks, elections after 12.
	DefaultTick = 50 * time.Millisecond
	// queueCount and queueBytes bound the proposals that wait: a few payloads
	// beyond what one pass takes, so that the log never runs dry.
	queueCount = 4096
	queueBytes = 16 << 20
	// passBytes is what one pass of the loop takes from the queue.
	passBytes = 4 << 20
	// controlCount bounds heartbeats, votes and answers; beyond it they are
	// dropped, which Raft tolerates.
	controlCount = 4096
	// appendCount and appendBytes bound the MsgApps that wait; beyond them the
	// peer's connection waits.
	appendCount = 1024
	appendBytes = 32 << 20
	// walBytes stops taking MsgApps while so much is on its way to the disk: at
	// most that, and a sixteenth of the log's budget.
	walBytes = 32 << 20
	// throttleFrom is the share of the log's budget (1/1000) from which intake
	// of client data slows down; at fullAt it stops.
	throttleFrom, fullAt = 750, 1000
	// freeShare of what is left of the budget is what one shard may take in one
	// tick (120 MB/s of an empty log of 64 MiB), so that half a dozen shards that
	// share a log do not use it up before its owner has told how full it is; and
	// throttleShare once it is throttled, when they stay below half of what is
	// left for the five ticks that the report of another broker, whose log is
	// trimmed later, may be late. A log that runs full all the same refuses
	// appends for a moment, which costs a resend.
	freeShare, throttleShare = 8, 64
	// throttleLeast keeps a throttled shard going, one payload at a time.
	throttleLeast = 64 << 10
	// defaultBudget is assumed when Config.Budget is not set.
	defaultBudget = 1 << 30
	// pressureAt is the share from which every trimmable byte is worth a snapshot.
	pressureAt = 500
	// handoverMax bounds the hand-over of leadership when a runner closes.
	handoverMax = 2 * time.Second
)

// Config is what a Runner needs beside the core's options.
type Config struct {
	// Core's ReadPayload, OpenSnapshot and (for a new replica) Recovered are
	// set by the runner.
	Core Options
	Log  Log
	// FS and Dir hold the snapshot files (the log's directory).
	FS  vfs.FS
	Dir string
	// Voters, with no Recovered, makes the first start of a new shard's replica;
	// without Voters the replica waits to be added by the leader.
	Voters []ReplicaID
	// NewStateMachine makes an empty state machine, for the first snapshot.
	NewStateMachine func() StateMachine
	// Send hands a message to the transport; it must not block, and owns the
	// message's payloads.
	Send func(m *transport.Message)
	// Usage is how full this broker's log is, in 1/1000 of its budget; nil
	// means empty.
	Usage func() uint16
	// Budget is what 1000 of Usage stands for, in bytes (1 GiB when 0). It
	// bounds what is on its way to the log.
	Budget int64
	Tick   time.Duration
	Now    func() time.Time
}

// Runner drives one shard replica: one goroutine owns the core, with the clock,
// the log and the transport around it. All methods are safe for concurrent use.
type Runner struct {
	c     Config
	core  *Core
	stats *Stats
	log   *slog.Logger

	lead atomic.Pointer[Leadership]
	full atomic.Bool // intake of client data is refused
	fail atomic.Pointer[error]

	mu      sync.Mutex
	room    sync.Cond // appends were taken, or the runner stopped
	queues  runnerQueues
	subs    map[int]func(Leadership)
	nextSub int
	stopped bool

	wake    chan struct{}
	stop    chan struct{}
	done    chan struct{}
	workers sync.WaitGroup
	stream  sync.Mutex // one snapshot stream is taken in at a time
	// walBytes is the bound on what is on its way to the disk.
	walBytes int
	allow    int // bytes that throttled intake may take in this tick
	// held are messages that can wait for a better one to the same peer.
	held   []*transport.Message
	rounds int  // of proposals in this tick
	busy   bool // the last tick's were many
}

// runnerQueues is what waits for the goroutine.
type runnerQueues struct {
	client, system []*Proposal
	clientBytes    int
	results        []func()
	control        []*transport.Inbound
	appends        []*transport.Inbound
	appendBytes    int
}

// NewRunner starts a replica: it recovers, or writes a new shard's first
// snapshot, and begins to run.
func NewRunner(c Config) (*Runner, error) {
	if c.Tick == 0 {
		c.Tick = DefaultTick
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Budget == 0 {
		c.Budget = defaultBudget
	}
	share := int(max(c.Budget/16, 2*PayloadMaxBytes))
	if c.Core.UncommittedBytes == 0 {
		c.Core.UncommittedBytes = min(walBytes, share)
	}
	c.Core.defaults()
	id := c.Core.Shard
	c.Core.ReadPayload = logReader(c.Log, id, c.Core.Buffers)
	c.Core.OpenSnapshot = func(file string) (SnapshotMeta, io.ReadCloser, error) {
		return OpenSnapshot(c.FS, c.Dir, file)
	}
	r := &Runner{
		c: c, stats: c.Core.Stats, log: c.Core.Logger, subs: map[int]func(Leadership){},
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	r.room.L = &r.mu
	r.walBytes = min(walBytes, share)
	r.allow = share // until the first tick says otherwise
	if err := r.first(); err != nil {
		return nil, err
	}
	core, err := NewCore(r.c.Core)
	if err != nil {
		return nil, err
	}
	r.core = core
	if err := r.clean(); err != nil {
		return nil, err
	}
	l := core.Leadership()
	r.lead.Store(&l)
	go r.run()
	return r, nil
}

// first makes a new shard's replica durable before it runs.
func (r *Runner) first() error {
	if r.c.Core.Recovered != nil || len(r.c.Voters) == 0 {
		return nil
	}
	var voters []uint64
	for _, v := range r.c.Voters {
		voters = append(voters, uint64(v))
	}
	slices.Sort(voters)
	a, rec, err := InitialSnapshot(r.c.FS, r.c.Dir, r.c.Core.Shard, voters, r.c.NewStateMachine())
	if err != nil {
		return err
	}
	if err := r.submitAndWait(a); err != nil {
		return fmt.Errorf("shard %d: first append: %w", r.c.Core.Shard, err)
	}
	r.c.Core.Recovered = rec
	return nil
}

func (r *Runner) submitAndWait(a *wal.Append) error {
	done := make(chan error, 1)
	a.Done = func(err error) { done <- err }
	r.c.Log.Submit(a)
	return <-done
}

// clean removes this shard's snapshot files that the log does not point to:
// unfinished ones, and those replaced just before a crash.
func (r *Runner) clean() error {
	names, err := r.c.FS.List(r.c.Dir)
	if err != nil {
		return fmt.Errorf("shard %d: list snapshots: %w", r.c.Core.Shard, err)
	}
	for _, name := range StaleSnapshots(names, r.c.Core.Shard, r.core.file) {
		if err := r.c.FS.Remove(r.c.Dir + "/" + name); err != nil {
			return fmt.Errorf("shard %d: remove %s: %w", r.c.Core.Shard, name, err)
		}
	}
	return nil
}

// StaleSnapshots picks the snapshot files of a shard that are not current.
func StaleSnapshots(names []string, id wal.ShardID, current string) []string {
	prefix := fmt.Sprintf("shard-%08x-", uint32(id))
	var stale []string
	for _, n := range names {
		if len(n) > len(prefix) && n[:len(prefix)] == prefix && n != current {
			stale = append(stale, n)
		}
	}
	return stale
}

func (r *Runner) run() {
	defer close(r.done)
	tick := time.NewTicker(r.c.Tick)
	defer tick.Stop()
	for {
		select {
		case <-r.wake:
		case <-tick.C:
			r.pass()
			r.ticked()
		case <-r.stop:
			r.finish()
			return
		}
		for r.pass() {
		}
	}
}

func (r *Runner) ticked() {
	if r.c.Usage != nil {
		used := r.c.Usage()
		r.core.SetUsage(used)
		r.core.SetPressure(used >= pressureAt)
	}
	worst := int(r.core.WorstUsage())
	r.full.Store(worst >= fullAt)
	if worst >= throttleFrom && worst < fullAt {
		r.stats.Throttled.Add(1)
	}
	share := intakeShare(r.c.Budget, worst)
	// What the last proposal took beyond its share is paid back first.
	r.allow = min(r.allow+share, share)
	r.countRounds()
	r.sendHeld()
	r.core.Tick()
	r.drain()
}

// intakeShare is how many bytes of client data a shard may take in one tick
// when the fullest log among its replicas has used worst/1000 of its budget.
func intakeShare(budget int64, worst int) int {
	left := int(budget) / fullAt * max(0, fullAt-worst)
	switch {
	case worst >= fullAt:
		return 0
	case worst >= throttleFrom:
		return max(left/throttleShare, throttleLeast)
	}
	return max(left/freeShare, throttleLeast)
}

// pass takes what waits and works on it once: results before messages before
// proposals, so that what frees room comes first.
func (r *Runner) pass() bool {
	r.mu.Lock()
	q := &r.queues
	results, control := q.results, q.control
	q.results, q.control = nil, nil
	appends := r.takeAppends()
	r.mu.Unlock()
	for _, fn := range results {
		fn()
	}
	for _, in := range control {
		r.core.Step(in)
	}
	for _, in := range appends {
		r.core.Step(in)
	}
	if len(results)+len(control)+len(appends) > 0 {
		r.drain()
	}
	took := r.propose()
	return took || len(results)+len(control)+len(appends) > 0
}

// takeAppends takes MsgApps while the disk keeps up; mu is held.
func (r *Runner) takeAppends() []*transport.Inbound {
	q := &r.queues
	if len(q.appends) == 0 || r.core.InflightBytes() >= r.walBytes {
		return nil
	}
	n, bytes := 0, 0
	for n < len(q.appends) && bytes < passBytes {
		bytes += inboundBytes(q.appends[n])
		n++
	}
	taken := q.appends[:n:n]
	q.appends = q.appends[n:]
	if len(q.appends) == 0 {
		q.appends = nil
	}
	q.appendBytes -= bytes
	r.room.Broadcast()
	return taken
}

func inboundBytes(in *transport.Inbound) int {
	n := 0
	for _, p := range in.Payloads {
		n += len(p)
	}
	return n
}

// propose gives queued proposals to the core, as far as it takes any.
func (r *Runner) propose() bool {
	if err := r.core.Refusal(); err != nil {
		r.refuseQueued(err)
		return false
	}
	if !r.core.Accepting() {
		return false
	}
	r.mu.Lock()
	q := &r.queues
	batch := q.system
	q.system = nil
	n, bytes := 0, 0
	for n < len(q.client) && bytes < passBytes && r.allow > 0 {
		p := q.client[n]
		bytes += p.Bytes
		r.allow -= p.Bytes
		n++
	}
	batch = append(batch, q.client[:n]...)
	clear(q.client[:n])
	if q.client = q.client[n:]; len(q.client) == 0 {
		q.client = nil
	}
	q.clientBytes -= bytes
	r.mu.Unlock()
	if len(batch) == 0 {
		return false
	}
	r.rounds++
	r.core.Propose(batch, r.c.Now().UnixMilli())
	r.drain()
	return true
}

func (r *Runner) refuseQueued(err error) {
	r.mu.Lock()
	q := &r.queues
	all := append(q.system, q.client...)
	q.system, q.client, q.clientBytes = nil, nil, 0
	r.mu.Unlock()
	for _, p := range all {
		p.Refuse(err)
	}
}

// drain carries out what the core asks for.
func (r *Runner) drain() {
	out := r.core.TakeOutbox()
	for _, s := range out.Appends {
		id := s.ID
		s.Append.Done = func(err error) { r.post(func() { r.core.AppendDone(id, err) }) }
		r.c.Log.Submit(s.Append)
	}
	r.send(out.Messages)
	for _, l := range out.Loads {
		r.workers.Go(func() {
			b, err := r.c.Core.ReadPayload(l.Index, l.Term)
			r.post(func() { r.core.PayloadLoaded(l, b, err) })
		})
	}
	if s := out.Snapshot; s != nil {
		r.workers.Go(func() {
			err := WriteSnapshot(r.c.FS, r.c.Dir, s.File, s.Meta, s.Image.Encode)
			r.post(func() { r.core.SnapshotWritten(s, err) })
		})
	}
	for _, name := range out.Remove {
		if err := r.c.FS.Remove(r.c.Dir + "/" + name); err != nil {
			r.log.Warn("snapshot file not removed", "shard", r.c.Core.Shard, "file", name, "reason", err)
		}
	}
	if out.Leadership != nil {
		r.tell(*out.Leadership)
	}
}

func (r *Runner) tell(l Leadership) {
	if err := r.core.Failed(); err != nil {
		r.fail.Store(&err)
	}
	r.lead.Store(&l)
	r.mu.Lock()
	subs := make([]func(Leadership), 0, len(r.subs))
	for i := range r.nextSub {
		if fn := r.subs[i]; fn != nil {
			subs = append(subs, fn)
		}
	}
	r.mu.Unlock()
	for _, fn := range subs {
		fn(l)
	}
}

// post lets the goroutine run fn; after the runner has stopped fn is dropped.
// What is posted answers something that the core has asked for, which bounds
// the queue.
func (r *Runner) post(fn func()) bool {
	r.mu.Lock()
	if r.stopped {
		r.mu.Unlock()
		return false
	}
	r.queues.results = append(r.queues.results, fn)
	r.mu.Unlock()
	r.nudge()
	return true
}

func (r *Runner) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// finish ends the goroutine's work: every waiter is answered.
func (r *Runner) finish() {
	r.core.Stop()
	out := r.core.TakeOutbox()
	for _, m := range out.Messages {
		releaseMessage(m)
	}
	r.mu.Lock()
	r.stopped = true
	results := r.queues.results
	r.queues.results = nil
	r.room.Broadcast()
	r.mu.Unlock()
	for _, fn := range results {
		fn() // a stopped core answers everything at once
	}
	r.refuseQueued(ErrStopped)
	r.tell(Leadership{})
}

func releaseMessage(m *transport.Message) {
	for _, p := range m.Payloads {
		if p != nil {
			p.Release()
		}
	}
	if m.Snapshot != nil {
		m.Snapshot.Close()
	}
}

// Close hands leadership over if it can, then stops. It returns once the
// goroutine has ended and every waiter has been answered.
func (r *Runner) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, handoverMax)
	defer cancel()
	if r.Leadership().Ready {
		r.handOver(ctx)
	}
	r.mu.Lock()
	select {
	case <-r.stop:
	default:
		close(r.stop)
	}
	r.mu.Unlock()
	<-r.done
	r.workers.Wait()
	return nil
}

// handOver transfers leadership to the most advanced voter and waits.
func (r *Runner) handOver(ctx context.Context) {
	lost := make(chan struct{})
	var once sync.Once
	cancel := r.Subscribe(func(l Leadership) {
		if !l.Ready {
			once.Do(func() { close(lost) })
		}
	})
	defer cancel()
	r.post(func() {
		if to := r.core.BestSuccessor(); to != 0 {
			r.core.TransferLeader(to)
			r.drain()
		} else {
			once.Do(func() { close(lost) })
		}
	})
	select {
	case <-lost:
	case <-ctx.Done():
	case <-r.done:
	}
}

// BestSuccessor is the active voter with the longest matching log, or 0.
func (c *Core) BestSuccessor() ReplicaID {
	if c.failed != nil || c.role != raft.StateLeader {
		return 0
	}
	st := c.rn.Status()
	var best, match uint64
	for id, p := range st.Progress {
		if id == uint64(c.o.ID) || p.IsLearner || !p.RecentActive {
			continue
		}
		if best == 0 || p.Match > match || (p.Match == match && id < best) {
			best, match = id, p.Match
		}
	}
	return ReplicaID(best)
}

// Propose queues a proposal; false means that it was not taken and will not be
// answered: Intake says why.
func (r *Runner) Propose(p *Proposal) bool {
	if r.intake(p) != nil {
		return false
	}
	r.mu.Lock()
	q := &r.queues
	if r.stopped || len(q.client)+len(q.system) >= queueCount || q.clientBytes+p.Bytes > queueBytes && len(q.client) > 0 {
		r.mu.Unlock()
		r.stats.QueueFull.Add(1)
		return false
	}
	if p.Class == ClassSystem {
		q.system = append(q.system, p)
	} else {
		q.client = append(q.client, p)
		q.clientBytes += p.Bytes
	}
	r.mu.Unlock()
	r.nudge()
	return true
}

func (r *Runner) intake(p *Proposal) error {
	switch l := r.lead.Load(); {
	case r.fail.Load() != nil:
		return ErrStopped
	case l.Leader != r.c.Core.ID || l.Leader == 0:
		return ErrNotLeader
	case !l.Ready:
		return ErrNotReady
	case p.Class == ClassClient && r.full.Load():
		r.stats.LogFull.Add(1)
		return ErrLogFull
	}
	return nil
}

// Intake is why Propose has just refused a proposal of that class.
func (r *Runner) Intake(class Class) error {
	if err := r.intake(&Proposal{Class: class}); err != nil {
		return err
	}
	return ErrBusy
}

// Leadership is the replica's newest view of who leads.
func (r *Runner) Leadership() Leadership { return *r.lead.Load() }

// Failed is why the replica is out of service, or nil.
func (r *Runner) Failed() error {
	if p := r.fail.Load(); p != nil {
		return *p
	}
	return nil
}

// Fail takes the replica out of service (Core.Fail).
func (r *Runner) Fail(err error) { r.post(func() { r.core.Fail(err) }) }

// Subscribe calls fn on the shard's goroutine at each change of leadership,
// beginning with the next; it must not block. cancel ends it.
func (r *Runner) Subscribe(fn func(Leadership)) (cancel func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.nextSub
	r.nextSub++
	r.subs[id] = fn
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subs, id)
	}
}

// ReadIndex calls done on the shard's goroutine once leadership has been
// confirmed by a quorum after this call, or with why not.
func (r *Runner) ReadIndex(done func(error)) {
	if !r.post(func() {
		r.core.ReadIndex(done)
		r.drain()
	}) {
		done(ErrStopped)
	}
}

// Payload returns a live entry's payload, from the tail cache or the log.
func (r *Runner) Payload(index, term uint64) (PayloadView, error) { return r.core.View(index, term) }

// TransferLeader asks for leadership to go to another replica.
func (r *Runner) TransferLeader(to ReplicaID) {
	r.post(func() {
		r.core.TransferLeader(to)
		r.drain()
	})
}

// RequestSnapshot asks for a snapshot at the next occasion.
func (r *Runner) RequestSnapshot() {
	r.post(func() {
		r.core.RequestSnapshot()
		r.drain()
	})
}

// ProposeConfChange proposes a change of replicas; done learns its fate.
func (r *Runner) ProposeConfChange(changes []*raftpb.ConfChangeSingle, done func(error)) {
	if !r.post(func() {
		r.core.ProposeConfChange(changes, done)
		r.drain()
	}) {
		done(ErrStopped)
	}
}

// Receive takes a message for this shard. A MsgApp waits while too much is on
// its way to the disk already; anything else never does.
func (r *Runner) Receive(in *transport.Inbound) {
	r.mu.Lock()
	q := &r.queues
	if in.Raft.GetType() != raftpb.MsgApp {
		if r.stopped || len(q.control) >= controlCount {
			r.mu.Unlock()
			r.core.putAll(in.Payloads)
			return
		}
		q.control = append(q.control, in)
	} else {
		n := inboundBytes(in)
		for !r.stopped && len(q.appends) > 0 && (len(q.appends) >= appendCount || q.appendBytes+n > appendBytes) {
			r.room.Wait()
		}
		if r.stopped {
			r.mu.Unlock()
			r.core.putAll(in.Payloads)
			return
		}
		q.appends = append(q.appends, in)
		q.appendBytes += n
	}
	r.mu.Unlock()
	r.nudge()
}

// ReceiveSnapshot takes a snapshot stream in and returns once it is durable
// and restored, or was not needed.
func (r *Runner) ReceiveSnapshot(in *transport.Inbound, stream io.Reader) error {
	r.stream.Lock()
	defer r.stream.Unlock()
	type begun struct {
		file string
		err  error
	}
	begin := make(chan begun, 1)
	index := in.Raft.GetSnapshot().GetMetadata().GetIndex()
	if !r.post(func() {
		file, err := r.core.BeginReceive(index)
		begin <- begun{file, err}
	}) {
		return ErrStopped
	}
	sink := StreamSink{
		FS: r.c.FS, Dir: r.c.Dir, Shard: r.c.Core.Shard, Buffers: r.c.Core.Buffers,
		Submit: r.submitAndWait, CheckPayload: r.c.Core.CheckPayload,
	}
	select {
	case b := <-begin:
		if b.err != nil {
			return b.err
		}
		sink.File = b.file
	case <-r.done:
		return ErrStopped
	}
	rs, err := sink.Receive(stream)
	if err != nil {
		return errors.Join(err, r.c.FS.Remove(r.c.Dir+"/"+sink.File))
	}
	done := make(chan error, 1)
	rs.Done = func(err error) { done <- err }
	if !r.post(func() {
		r.core.StepSnapshot(in, rs)
		r.drain()
	}) {
		return ErrStopped
	}
	select {
	case err := <-done:
		return err
	case <-r.done:
		return ErrStopped
	}
}

// Unreachable says that messages to a replica were dropped.
func (r *Runner) Unreachable(to ReplicaID) {
	r.post(func() {
		r.core.Unreachable(to)
		r.drain()
	})
}

// SnapshotSent tells the outcome of a stream to a replica.
func (r *Runner) SnapshotSent(to ReplicaID, err error) {
	r.post(func() {
		r.core.SnapshotSent(to, err)
		r.drain()
	})
}
