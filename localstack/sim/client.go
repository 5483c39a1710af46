package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"thermocline/ingest/partition"
	"thermocline/tiering/format"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

const (
	producersPerShard = 3
	windowMax         = 4 // batches in flight of an idempotent producer: Kafka allows 5
	requestTimeout    = 900 * milli
	fullAt            = 1000
)

// submit offers a proposal to a replica's queue, as the runner does.
func (w *world) submit(r *replica, p *shard.Proposal) {
	if r.core.Refusal() != nil || p.Class == shard.ClassClient && r.core.WorstUsage() >= fullAt {
		err := r.core.Refusal()
		if err == nil {
			err = shard.ErrLogFull
		}
		p.Refuse(err)
		return
	}
	r.pending = append(r.pending, p)
	w.pump(r)
	w.drain(r)
}

// pump gives queued proposals to the core as far as it takes any.
func (w *world) pump(r *replica) {
	if len(r.pending) == 0 {
		return
	}
	if err := r.core.Refusal(); err != nil {
		ps := r.pending
		r.pending = nil
		for _, p := range ps {
			p.Refuse(err)
		}
		return
	}
	if r.core.Accepting() {
		n := 1 + w.rng.IntN(len(r.pending))
		ps := r.pending[:n:n]
		r.pending = r.pending[n:]
		r.core.Propose(ps, r.node.clock())
		w.drain(r)
	}
}

// expected are outcomes that any client must be ready for.
func expected(err error) bool {
	for _, e := range []error{
		shard.ErrNotLeader, shard.ErrNotReady, shard.ErrDropped, shard.ErrUnknownFate,
		shard.ErrLogFull, shard.ErrStopped, shard.ErrBusy,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// definite errors say that nothing was written.
func definite(err error) bool {
	return !errors.Is(err, shard.ErrUnknownFate) && !errors.Is(err, shard.ErrStopped)
}

func topicKey(s, p int) partition.Key {
	k := partition.Key{Partition: int32(p)}
	k.Topic[0] = byte(s + 1)
	return k
}

// startClients creates the partitions and starts everyone who uses them.
func (w *world) startClients() {
	for s := range shards {
		for p := range partitions + 1 {
			k := topicKey(s, p)
			w.keys[s] = append(w.keys[s], k)
			w.create(s, k)
		}
		for i := range producersPerShard {
			c := &producer{
				w: w, shard: s, pid: int64(s*100 + i + 1), key: w.keys[s][i%partitions],
				acks: shard.AcksAll, idempotent: i > 0,
			}
			if i == 0 {
				c.pid = -1
			}
			w.clients = append(w.clients, c)
			w.after(w.between(800, 1500), c.work)
		}
		w.startSlotWriters(s)
		w.after(1000, func() { w.fetch(s) })
		w.after(1000, func() { w.latest(s) })
	}
}

// call hands fn the shard's leader, or any node when nobody knows one; clients
// find deposed leaders too.
func (w *world) leaderOf(s int) *replica {
	var any *replica
	first := w.rng.IntN(nodes)
	for i := range nodes {
		n := w.nodes[(first+i)%nodes]
		if !n.up {
			continue
		}
		any = n.reps[s]
		if any.core.Leadership().Ready {
			return any
		}
	}
	return any
}

// create makes a partition exist, however long it takes.
func (w *world) create(s int, k partition.Key) {
	again := func() { w.after(w.between(100, 300), func() { w.create(s, k) }) }
	w.command(s, &partition.CreatePartition{Key: k, Name: fmt.Sprintf("t%d", s), Config: map[string]string{"retention.ms": "1"}}, func(_ any, err error) {
		if err != nil && !errors.Is(err, partition.ErrPartitionExists) {
			again()
		}
	})
}

// command proposes one command at the shard's leader; done may never be called
// when the node crashes.
func (w *world) command(s int, cmd any, done func(any, error)) {
	r := w.leaderOf(s)
	if r == nil {
		w.after(200, func() { done(nil, shard.ErrNotLeader) })
		return
	}
	answered := false
	w.after(w.between(0, 5), func() {
		if !r.node.up {
			w.after(200, func() { done(nil, shard.ErrNotLeader) })
			return
		}
		w.submit(r, &shard.Proposal{
			Commands: []any{cmd}, Bytes: 100, Acks: shard.AcksAll, Class: shard.ClassSystem,
			Done: func(o []shard.Outcome) {
				w.after(1, func() {
					if !answered {
						answered = true
						done(o[0].Result, o[0].Err)
					}
				})
			},
		})
	})
	w.after(3*second, func() {
		if !answered {
			answered = true
			done(nil, shard.ErrUnknownFate)
		}
	})
}

// producer writes batches to one partition, waits for answers and repeats what
// was not acknowledged.
type producer struct {
	w          *world
	shard      int
	key        partition.Key
	pid        int64
	acks       shard.Acks
	idempotent bool
	sequence   int32
	epoch      int16
	window     []*outgoing
	sent       uint64 // attempts, so that late answers are known as such
	acked      int    // batches
	ids        uint64
}

// outgoing is a batch on its way.
type outgoing struct {
	id       uint64
	batch    batch.Batch
	attempt  uint64
	acks     shard.Acks
	unknown  bool // an attempt ended without a definite answer
	acked    bool
	waiting  bool
	failedAt int64
}

func idBytes(id uint64) []byte { return binary.LittleEndian.AppendUint64(nil, id) }

// work sends what is due, and comes back.
func (c *producer) work() {
	w := c.w
	// A new producer waits for its first batch: as in Kafka, any sequence is
	// taken from a producer that is not known.
	if len(c.window) < windowMax && !w.quiet && (len(c.window) == 0 || c.idempotent && c.acked > 0) {
		c.window = append(c.window, c.make())
	}
	for _, o := range c.window {
		if !o.waiting && !o.acked {
			c.send(o)
		}
	}
	w.after(w.between(clientPauses/2, clientPauses*3), c.work)
}

func (c *producer) make() *outgoing {
	w := c.w
	c.ids++
	o := &outgoing{id: uint64(c.shard)<<56 | uint64(c.pid+1)<<32 | c.ids, acks: shard.AcksAll}
	opt := batch.BuilderOptions{}
	if c.idempotent {
		if len(c.window) == 0 && c.acked > 0 && w.rng.IntN(40) == 0 {
			c.epoch, c.sequence = c.epoch+1, 0
		}
		opt.Producer = &batch.Producer{ID: c.pid, Epoch: c.epoch, Sequence: c.sequence}
	} else if w.rng.IntN(3) == 0 {
		o.acks = shard.AcksLeader
	} else if w.rng.IntN(6) == 0 {
		o.acks = shard.AcksNone
	}
	b := batch.NewBuilder(opt)
	n := 1 + w.rng.IntN(3)
	size := w.rng.IntN(120)
	if w.plan.bigBatches {
		size += w.rng.IntN(3000)
	}
	for i := range n {
		b.Add(1_700_000_000_000+w.now, nil, append(idBytes(o.id), bytes.Repeat([]byte{byte(i)}, size)...))
	}
	o.batch = b.Build()
	c.sequence += int32(n)
	return o
}

// send makes one attempt at a batch.
func (c *producer) send(o *outgoing) {
	w := c.w
	r := w.leaderOf(c.shard)
	c.sent++
	attempt := c.sent
	if o.attempt != 0 {
		w.counts.Resent++
	}
	o.attempt, o.waiting = attempt, true
	acks := o.acks
	if r != nil {
		gen := r.node.gen
		w.after(w.between(0, 4), func() {
			if r.alive(gen) {
				c.arrive(r, o, attempt, acks)
			}
		})
	}
	w.after(requestTimeout, func() {
		if o.attempt == attempt && o.waiting && !o.acked {
			o.waiting, o.unknown = false, true
			c.giveUp(o)
		}
	})
}

func (c *producer) arrive(r *replica, o *outgoing, attempt uint64, acks shard.Acks) {
	w := c.w
	copied := 0
	p := &shard.Proposal{
		Commands: []any{&partition.Produce{Key: c.key, Batch: o.batch}}, Bytes: len(o.batch), Acks: acks,
		Copied: func() { copied++ },
	}
	p.Done = func(out []shard.Outcome) {
		if copied != 1 {
			w.violate("copied-once", "shard %d: copied %d times when the answer comes", r.shard, copied)
		}
		res, err := out[0].Result, out[0].Err
		w.log("answer", uint64(r.node.index), uint64(r.shard), o.id&0xffffffffff, b2u(err == nil))
		if err == nil {
			c.check(r, o, acks, res)
		} else if !expected(err) && !c.sequenceError(err) {
			w.violate("outcome-expected", "shard %d: batch %d: %v", r.shard, o.id, err)
		}
		if !w.chance(w.plan.replyLost) {
			w.after(w.between(0, 4), func() { c.answered(r, o, attempt, err) })
		}
	}
	w.submit(r, p)
}

func (c *producer) sequenceError(err error) bool {
	return errors.Is(err, partition.ErrUnknownPartition) || c.idempotent && errors.Is(err, partition.ErrOutOfOrderSequence)
}

// check holds an acknowledgement against the truth as it leaves the broker:
// also one that comes late, from a leader that is no more.
func (c *producer) check(r *replica, o *outgoing, acks shard.Acks, res any) {
	switch acks {
	case shard.AcksAll:
		c.w.counts.Acked++
		c.w.checkAck(r, c.key, o.id, res.(partition.ProduceResult).BaseOffset)
	case shard.AcksLeader:
		c.w.checkLeaderAck(r, o.id)
	}
}

// answered takes an answer that has reached the client.
func (c *producer) answered(r *replica, o *outgoing, attempt uint64, err error) {
	w := c.w
	if o.acked || o.attempt != attempt && err != nil {
		return
	}
	o.waiting = false
	if err == nil {
		o.acked = true
		c.acked++
		c.trimWindow()
		return
	}
	w.countError(err)
	if !definite(err) {
		o.unknown = true
		w.counts.Unknown++
	}
	c.giveUp(o)
}

func (w *world) countError(err error) {
	if errors.Is(err, shard.ErrDropped) {
		w.counts.Dropped++
	} else {
		w.counts.Refused++
	}
}

// giveUp: a plain producer does not repeat; if every attempt failed for
// certain, the batch must never appear.
func (c *producer) giveUp(o *outgoing) {
	if c.idempotent {
		return
	}
	if !o.unknown && o.acks == shard.AcksAll {
		mo := c.w.model[c.shard]
		mo.refused[o.id] = true
		if mo.produced[o.id] > 0 {
			c.w.violate("definite-failure", "shard %d: batch %d was refused for certain and is in the log", c.shard, o.id)
		}
	}
	o.acked = true
	c.trimWindow()
}

func (c *producer) trimWindow() {
	for len(c.window) > 0 && c.window[0].acked {
		c.window = c.window[1:]
	}
}

// fetch reads one batch somewhere, through any replica, and looks at it.
func (w *world) fetch(s int) {
	w.after(w.between(10, 60), func() { w.fetch(s) })
	n := w.nodes[w.rng.IntN(nodes)]
	k := w.keys[s][w.rng.IntN(partitions)]
	if !n.up {
		return
	}
	r := n.reps[s]
	v, ok := r.set.View(k)
	l := w.model[s].logs[k]
	if !ok || l == nil || r.core.Failed() != nil {
		return
	}
	w.checkTold(r, k, &v)
	w.checkLookups(r, k, &v)
	if v.HW <= v.LogStart {
		return
	}
	w.counts.Fetches++
	off := v.LogStart + w.rng.Int64N(v.HW-v.LogStart)
	if off < v.TieredEnd {
		w.counts.ColdFetches++
	}
	got, why := w.read(r, k, &v, off)
	want := l.at(off)
	switch {
	case got == nil:
		w.violate("no-hole", "node %d shard %d %v: fetch of offset %d (start %d, tiered end %d, high watermark %d): %s", n.index, s, k.Partition, off, v.LogStart, v.TieredEnd, v.HW, why)
	case want == nil || !bytes.Equal(got, want.bytes):
		w.violate("fetch-is-committed", "node %d shard %d %v: fetch of offset %d gives what is not committed", n.index, s, k.Partition, off)
	}
}

// told is the highest that clients were told, by the leader's term.
type told struct {
	term uint64
	hw   int64
}

// checkTold: the end of the log that a leader tells never falls, for a client
// that does not go back to a leader of a lower term.
func (w *world) checkTold(r *replica, k partition.Key, v *partition.View) {
	mo := w.model[r.shard]
	lead := r.core.Leadership()
	if lead.Leader != r.node.id() || !v.LatestKnown {
		return
	}
	if mo.toldBy == nil {
		mo.toldBy = map[partition.Key]told{}
	}
	t := mo.toldBy[k]
	if lead.Term < t.term {
		return
	}
	if v.HW < t.hw && mo.logs[k] != nil && mo.logs[k].made <= r.core.Applied() {
		w.violate("client-hw-monotone", "shard %d %v: the leader of term %d tells a high watermark of %d, after %d in term %d", r.shard, k.Partition, lead.Term, v.HW, t.hw, t.term)
	}
	mo.toldBy[k] = told{lead.Term, v.HW}
}

// latest asks for the end of the log with a confirmation of leadership.
func (w *world) latest(s int) {
	w.after(w.between(20, 90), func() { w.latest(s) })
	r := w.leaderOf(s)
	if r == nil {
		return
	}
	mo := w.model[s]
	k := w.keys[s][w.rng.IntN(partitions)]
	var before int64
	if l := mo.logs[k]; l != nil && len(mo.acked) > 0 {
		last := mo.acked[len(mo.acked)-1].index
		for i := len(l.batches) - 1; i >= 0; i-- {
			if l.batches[i].index <= last {
				before = l.batches[i].last + 1
				break
			}
		}
	}
	gen := r.node.gen
	r.core.ReadIndex(func(err error) {
		if err != nil || !r.alive(gen) {
			return
		}
		w.counts.Latest++
		if v, ok := r.set.View(k); !ok && before > 0 || ok && v.HW < before {
			w.violate("read-is-linear", "node %d shard %d %v: latest is %d, acknowledged before the request was %d", r.node.index, s, k.Partition, v.HW, before)
		}
	})
	w.drain(r)
}

// adminSomething does what operators do now and then.
func (w *world) adminSomething() {
	s := w.rng.IntN(shards)
	done := func(any, error) {}
	switch w.rng.IntN(8) {
	case 6, 7:
		if w.plan.loseEvery == 0 { // a voter fewer and a disk fewer is more than is promised
			w.changeReplicas(s)
		}
	case 0:
		w.command(s, &partition.SetConfig{Topic: topicKey(s, 0).Topic, Config: map[string]string{"a": fmt.Sprint(w.now)}, Revision: w.now}, done)
	case 1:
		w.command(s, &partition.AllocateProducerIDs{Count: 10}, done)
	case 2:
		w.deleteRecords(s)
	case 3:
		k := topicKey(s, partitions)
		w.counts.Deletes++
		w.command(s, &partition.DeletePartition{Key: k}, func(any, error) { w.create(s, k) })
	case 4:
		if n := w.nodes[w.rng.IntN(nodes)]; n.up {
			n.reps[s].core.RequestSnapshot()
			w.drain(n.reps[s])
		}
	case 5:
		w.commitRun(s)
	}
}

// changeReplicas makes a voter a learner, or the learner a voter again.
func (w *world) changeReplicas(s int) {
	for _, n := range w.nodes {
		if !n.up || !n.reps[s].core.Leadership().Ready {
			continue
		}
		typ, id := raftpb.ConfChangeAddLearnerNode, uint64(w.rng.IntN(nodes)+1)
		if ls := n.reps[s].core.ConfState().GetLearners(); len(ls) > 0 {
			typ, id = raftpb.ConfChangeAddNode, ls[0]
		}
		w.log("change", uint64(n.index), uint64(s), uint64(typ), id)
		n.reps[s].core.ProposeConfChange([]*raftpb.ConfChangeSingle{{Type: typ.Enum(), NodeId: new(id)}}, func(err error) {
			if err == nil {
				w.counts.Changes++
			} else if !expected(err) {
				w.violate("outcome-expected", "shard %d: change of replicas: %v", s, err)
			}
		})
		w.drain(n.reps[s])
		return
	}
}

func (w *world) deleteRecords(s int) {
	k := w.keys[s][w.rng.IntN(partitions)]
	offset := int64(-1)
	if l := w.model[s].logs[k]; l != nil && l.end > 0 {
		offset = w.rng.Int64N(l.end + 1)
	}
	if w.rng.IntN(8) == 0 {
		offset = -1
	}
	if offset >= 0 {
		offset /= 2 // most of it stays
	}
	w.command(s, &partition.DeleteRecords{Key: k, Offset: offset}, func(any, error) {})
}

// commitRun commits a directory run over the loose segments.
func (w *world) commitRun(s int) {
	r := w.leaderOf(s)
	if r == nil {
		return
	}
	m := r.set.Manifest()
	if len(m.Segments) == 0 {
		return
	}
	run := format.RunRow{ID: 1, Level: 1, First: m.Segments[0].ID, Last: m.Segments[len(m.Segments)-1].ID}
	var gone []uint32
	for _, o := range m.Runs {
		run.ID = max(run.ID, o.ID+1)
	}
	if n := len(m.Runs); n >= 3 {
		run.First, run.Last, run.Level = m.Runs[0].First, m.Runs[n-1].Last, 2
		for _, o := range m.Runs {
			gone = append(gone, o.ID)
		}
	}
	w.store.names++
	run.Key = fmt.Sprintf("run/%d/%d", s, w.store.names)
	for range 1 + w.rng.IntN(2) { // a second one is stale
		w.command(s, &partition.CommitRun{Run: run, Replaces: gone, Fence: format.FenceRow{Key: "fence"}}, func(any, error) {})
		run.ID++
	}
}
