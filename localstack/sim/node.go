package sim

import (
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"thermocline/ingest/partition"
	"thermocline/wal"
	"thermocline/wal/shard"
	"thermocline/wal/vfs"
)

const logDir = "log"

var (
	errLost  = errors.New("sim: lost")
	errPower = errors.New("sim: power failure")
	errDisk  = errors.New("sim: disk error")
)

var checkPayload = partition.CheckPayload

// node is one broker: a disk, a log, and a replica of each shard.
type node struct {
	w     *world
	index int
	disk  int // raised when the disk is lost: another replica
	up    bool
	gen   int // raised by every crash: older events mean nothing
	mem   *vfs.Mem
	fs    nodeFS
	log   *wal.Log
	bufs  *shard.Buffers
	reps  [shards]*replica

	clockOff  int64 // of this node's clock
	tickEvery int64
	slow      bool
	// The disk: what waits for it, whether it works, and whether what was
	// written is synced. dying: the power fails during this commit.
	queue    []queuedAppend
	diskBusy bool
	dirty    bool
	dying    bool
	failIn   int // operations until the power fails; 0: never
	syncFail bool
}

type queuedAppend struct {
	r *replica
	s shard.SubmitAppend
}

// nodeFS is a node's file system: its lock does not outlive a killed process.
type nodeFS struct{ *vfs.Faulty }

type nopCloser struct{}

// Close implements io.Closer.
func (nopCloser) Close() error { return nil }

// Lock implements vfs.FS.
func (nodeFS) Lock(string) (io.Closer, error) { return nopCloser{}, nil }

// replica is one shard's replica on a node.
type replica struct {
	node    *node
	shard   int
	core    *shard.Core
	set     *partition.Set
	sm      *machine
	durable durable
	pending []*shard.Proposal
	sealing int
	empty   bool              // made without data: it joins when the leader adds it
	poll    *partition.Waiter // one long poll, as a consumer's
	pollHW  int64
	// A held payload: until when, and when the next may be.
	holdUntil, holdNext int64
}

func (n *node) id() shard.ReplicaID { return idOf(n.index, n.disk) }

func (r *replica) alive(gen int) bool { return r.node.up && r.node.gen == gen }

func (n *node) clock() int64 { return 1_700_000_000_000 + n.w.now + n.clockOff }

// start makes the world: three nodes whose shards begin.
func (w *world) start() {
	w.plan = w.drawPlan()
	w.drawLosses()
	if w.o.tune != nil {
		w.o.tune(&w.plan)
	}
	w.store = newStore()
	for s := range shards {
		w.model[s] = newModel(w, s)
	}
	w.place()
	for i := range nodes {
		n := &node{
			w: w, index: i, mem: vfs.NewMem(w.o.Seed*nodes + uint64(i)),
			bufs: shard.NewBuffers(1<<20, w.plan.poison), clockOff: w.between(-2000, 2000),
			tickEvery: w.between(36, 72),
		}
		w.nodes[i] = n
		n.open()
		for s := range shards {
			n.reps[s] = &replica{node: n, shard: s}
			n.first(s)
			n.startReplica(s, nil)
		}
		n.up = true
		n.tick(n.gen)
	}
	w.startFaults()
	w.startReplacing()
	w.startClients()
}

// open opens the node's log, as a starting broker does.
func (n *node) open() map[wal.ShardID]*wal.RecoveredShard {
	n.fs = nodeFS{vfs.NewFaulty(n.mem, n.judge)}
	n.failIn, n.syncFail, n.dying, n.dirty, n.diskBusy, n.queue = 0, false, false, false, false, nil
	l, rec, err := wal.Open(n.fs, logDir, wal.Options{
		FileBytes: n.w.plan.fileBytes, MaxBytes: n.w.plan.maxBytes, Bugs: n.w.o.WAL,
	})
	if err != nil {
		n.w.violate("log-recovers", "node %d: %v", n.index, err)
	}
	n.log = l
	return rec
}

// first makes a shard's replica exist.
func (n *node) first(s int) {
	a, _, err := shard.InitialSnapshot(n.fs, logDir, wal.ShardID(s), []uint64{1, 2, 3}, partition.NewSet(partition.Options{Shard: uint32(s)}))
	if err == nil {
		err = n.log.Commit([]*wal.Append{a})
	}
	if err != nil {
		n.w.violate("log-recovers", "node %d: first snapshot: %v", n.index, err)
	}
	n.reps[s].durable.commit(a)
}

// startReplica starts the core from what the log holds durably.
func (n *node) startReplica(s int, rec *wal.RecoveredShard) {
	r := n.reps[s]
	if rec == nil {
		rec = r.durable.recovered()
	}
	p := &n.w.plan
	r.set = partition.NewSet(partition.Options{Shard: uint32(s), Bugs: n.w.o.Partition})
	r.sm = &machine{Set: r.set, r: r}
	r.pending, r.sealing, r.poll = nil, 0, nil
	o := shard.Options{
		Shard: wal.ShardID(s), ID: n.id(), StateMachine: r.sm, Buffers: n.bufs, Recovered: rec,
		CacheBytes: p.cacheBytes, PayloadBytes: p.payloadBytes, RaftUncommittedBytes: p.raftBytes,
		SnapshotMinBytes: p.snapshotMin, SnapshotFreesFactor: 1, UncommittedEntries: 64,
		CheckPayload: checkPayload, Bugs: n.w.o.Shard,
		ReadPayload: func(index, term uint64) ([]byte, error) {
			return n.log.ReadPayload(wal.ShardID(s), index, term, n.bufs.Get)
		},
		OpenSnapshot: func(name string) (shard.SnapshotMeta, io.ReadCloser, error) {
			return shard.OpenSnapshot(n.fs, logDir, name)
		},
	}
	if p.hold > 0 {
		o.Hold = r.hold
	}
	if n.w.o.Seed%2 == 0 { // in half of the runs shards have homes, with a head start
		o.Home = shard.ReplicaID(s%nodes + 1)
	}
	core, err := shard.NewCore(o)
	if err != nil {
		n.w.violate("log-recovers", "node %d shard %d: start: %v", n.index, s, err)
	}
	r.core = core
	n.w.checkCover(r, n.gen)
	n.w.drain(r)
}

// hold keeps a prepared payload back for a while, during which leadership may
// move away and come back.
func (r *replica) hold() bool {
	w := r.node.w
	if w.now < r.holdUntil && !w.calm {
		return true
	}
	if w.now < r.holdNext || !w.chance(w.plan.hold) {
		return false
	}
	w.counts.Held++
	r.holdUntil = w.now + w.between(1, 900)
	r.holdNext = r.holdUntil + w.between(500, 1500)
	w.log("hold", uint64(r.node.index), uint64(r.shard), uint64(r.holdUntil-w.now))
	if w.rng.IntN(2) == 0 {
		other := w.nodes[(r.node.index+1)%nodes]
		w.after(w.between(1, 50), func() { w.transfer(r.shard, other) })
		w.after(w.between(150, 500), func() { w.transfer(r.shard, r.node) })
	}
	return true
}

// tick is the node's clock; clocks do not run at the same speed.
func (n *node) tick(gen int) {
	n.w.after(n.tickEvery, func() {
		if !n.up || n.gen != gen {
			return
		}
		u := n.log.Usage()
		for _, r := range n.reps {
			r.core.SetUsage(uint16(u.Used * 1000 / u.Max))
			r.core.SetPressure(u.Used*2 > u.Max)
			r.core.Tick()
			n.w.drain(r)
		}
		if n.w.rng.IntN(4) == 0 && len(n.queue) == 0 && n.log.Err() == nil {
			if err := n.log.Idle(); err != nil && !n.dying && !n.syncFail {
				n.w.violate("log-serves", "node %d: closing record: %v", n.index, err)
			}
			n.afterCommit()
		}
		n.tick(gen)
	})
}

// crash ends the node's process; with power, what was not synced is lost. It
// comes back after a while.
func (n *node) crash(power bool) {
	if !n.up {
		return
	}
	n.w.counts.Crashes++
	n.w.log("crash", uint64(n.index), b2u(power))
	n.up = false
	n.gen++
	if power {
		n.mem = n.mem.Crash(n.w.rng.Uint64())
	}
	gen := n.gen
	n.w.after(n.w.between(20, 1200), func() {
		if n.gen == gen {
			n.restart()
		}
	})
}

func b2u(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// restart starts the node from its disk.
func (n *node) restart() {
	n.w.log("restart", uint64(n.index))
	rec := n.open()
	n.up = true
	for s, r := range n.reps {
		got := rec[wal.ShardID(s)]
		if got == nil && r.empty && r.durable.blank() {
			if n.w.o.KeepReplicaID {
				r.empty = false
				n.first(s)
				n.startReplica(s, nil)
				continue
			}
			got = &wal.RecoveredShard{}
		}
		if got == nil {
			n.w.violate("durable-survives", "node %d shard %d: the log does not know the shard", n.index, s)
		}
		n.w.checkRecovered(r, got)
		r.durable.reset(got)
		n.startReplica(s, got)
	}
	n.w.checkAllAcked()
	n.tick(n.gen)
}

// judge makes disk operations fail, and knows what is synced.
func (n *node) judge(op vfs.Op) error {
	base := path.Base(op.Name)
	logFile := strings.HasPrefix(base, "wal-") || strings.HasPrefix(base, "free-")
	if n.failIn > 0 && op.Kind.Changes() {
		if n.failIn--; n.failIn == 0 {
			n.dying = true
		}
	}
	if n.dying && op.Kind.Changes() {
		if op.Kind == vfs.OpWrite && n.w.rng.IntN(2) == 0 && op.Len > 0 {
			return &vfs.Fault{Err: errPower, Done: true, Short: n.w.rng.IntN(op.Len + 1)}
		}
		return errPower
	}
	switch {
	case op.Kind == vfs.OpWrite && logFile:
		n.dirty = true
	case op.Kind == vfs.OpSync && logFile:
		if n.syncFail {
			return errDisk
		}
		n.dirty = false
	}
	return nil
}

// drain carries out what a core asks for.
func (w *world) drain(r *replica) {
	n := r.node
	out := r.core.TakeOutbox()
	for _, s := range out.Appends {
		w.checkPromotion(r, s.Append)
		n.queue = append(n.queue, queuedAppend{r, s})
	}
	for _, m := range out.Messages {
		w.send(r, m)
	}
	gen := n.gen
	for _, l := range out.Loads {
		w.after(w.between(0, 5), func() {
			if r.alive(gen) {
				b, err := n.log.ReadPayload(wal.ShardID(r.shard), l.Index, l.Term, n.bufs.Get)
				r.core.PayloadLoaded(l, b, err)
				w.drain(r)
			}
		})
	}
	if s := out.Snapshot; s != nil {
		w.writeSnapshot(r, s)
	}
	for _, name := range out.Remove {
		if err := n.fs.Remove(logDir + "/" + name); err != nil && !errors.Is(err, errPower) {
			w.violate("log-serves", "node %d: remove %s: %v", n.index, name, err)
		}
	}
	if out.Leadership != nil {
		w.checkLeader(r, *out.Leadership)
	}
	w.checkFailed(r)
	w.pump(r)
	n.kickDisk()
}

func (w *world) writeSnapshot(r *replica, s *shard.SnapshotTask) {
	n, gen := r.node, r.node.gen
	w.log("snapshot", uint64(n.index), uint64(r.shard), s.Meta.Index, s.Trimmed)
	w.after(w.between(1, 80), func() {
		if !r.alive(gen) {
			return
		}
		if w.chance(w.plan.tornCommit * 5) {
			n.failIn = 1 + w.rng.IntN(6)
		}
		err := shard.WriteSnapshot(n.fs, logDir, s.File, s.Meta, s.Image.Encode)
		n.failIn = 0
		if n.dying {
			n.crash(true)
			return
		}
		w.counts.Snapshots++
		r.core.SnapshotWritten(s, err)
		w.drain(r)
	})
}

// kickDisk starts the disk if something waits for it.
func (n *node) kickDisk() {
	if n.diskBusy || len(n.queue) == 0 || !n.up {
		return
	}
	n.diskBusy = true
	d := n.w.between(0, 3)
	if n.slow && !n.w.calm {
		d += n.w.between(20, 700)
	}
	gen := n.gen
	n.w.after(d, func() {
		if n.up && n.gen == gen {
			n.commit()
		}
	})
}

// commit makes one group durable, as the log's writer does.
func (n *node) commit() {
	w := n.w
	batch := n.queue
	n.queue = nil
	n.diskBusy = false
	var appends []*wal.Append
	var late []queuedAppend // told before they were durable
	for _, q := range batch {
		w.checkPointer(q.r, q.s.Append)
		q.s.Append.Done = func(err error) {
			if n.dying {
				return
			}
			if err == nil && n.dirty {
				late = append(late, q)
				q.r.core.AppendDone(q.s.ID, nil)
				w.drain(q.r)
				return
			}
			if err == nil {
				w.becameDurable(q.r, q.s.Append)
			}
			q.r.core.AppendDone(q.s.ID, err)
			w.drain(q.r)
		}
		appends = append(appends, q.s.Append)
	}
	if w.chance(w.plan.tornCommit) {
		n.failIn = 1 + w.rng.IntN(3)
	}
	n.syncFail = n.syncFail || w.chance(w.plan.syncError)
	w.commitAppends(n, appends)
	n.failIn = 0
	w.log("commit", uint64(n.index), uint64(len(appends)), b2u(n.dying), b2u(n.syncFail))
	if !n.dying && !n.dirty {
		for _, q := range late {
			w.becameDurable(q.r, q.s.Append)
		}
	}
	n.afterCommit()
}

// commitAppends lets the log commit, and refuse one now and then as if it had
// no room: then what follows of that shard leaves a gap. Errors go to the appends.
func (w *world) commitAppends(n *node, appends []*wal.Append) {
	for i, a := range appends {
		if a.Staged || a.Snapshot != nil || !hasPayload(a) || !w.chance(w.plan.logFull) {
			continue
		}
		n.log.Commit(appends[:i])
		if !n.dying && n.log.Err() == nil {
			w.counts.Full++
			w.log("log-full", uint64(n.index), uint64(a.Shard), a.Entries[0].Index)
			a.Done(fmt.Errorf("sim: %w", wal.ErrFull))
			n.log.Commit(appends[i+1:])
			return
		}
		n.log.Commit(appends[i:])
		return
	}
	n.log.Commit(appends)
}

func hasPayload(a *wal.Append) bool {
	for i := range a.Entries {
		if len(a.Entries[i].Payload) > 0 {
			return true
		}
	}
	return false
}

// afterCommit looks at what a disk operation has left.
func (n *node) afterCommit() {
	gen := n.gen
	switch {
	case n.dying:
		n.crash(n.w.rng.IntN(3) > 0)
	case n.syncFail && n.log.Err() != nil:
		// Out of service until somebody restarts the node.
		n.w.counts.LogFailures++
		n.w.log("disk-error", uint64(n.index))
		n.w.after(n.w.between(300, 1500), func() {
			if n.up && n.gen == gen {
				n.crash(n.w.rng.IntN(2) == 0)
			}
		})
	case n.log.Err() == nil && n.up:
		if _, err := n.log.Maintain(1 << 20); err != nil && !n.syncFail && !n.dying {
			n.w.violate("log-serves", "node %d: maintain: %v", n.index, err)
		}
		n.kickDisk()
	}
}

// commitStaged writes a stream's raw entries.
func (n *node) commitStaged(a *wal.Append) error {
	err := n.log.Commit([]*wal.Append{a})
	if err == nil {
		n.reps[a.Shard].durable.commit(a)
	}
	return err
}
