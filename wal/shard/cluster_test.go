package shard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/protobuf/proto"

	"thermocline/wal"
	"thermocline/wal/transport"
	"thermocline/wal/vfs"
)

const testShard = wal.ShardID(7)

// memLog is a replica's log in memory: what is durable survives restart.
type memLog struct {
	hard     wal.HardState
	ptr      wal.SnapshotPointer
	entries  map[uint64]wal.Entry
	last     uint64
	staged   map[uint64]wal.Entry
	queue    []SubmitAppend
	failNext error
	full     bool // no room for payloads
}

func newMemLog() *memLog {
	return &memLog{entries: map[uint64]wal.Entry{}, staged: map[uint64]wal.Entry{}}
}

func copyEntry(e wal.Entry) wal.Entry {
	e.Payload = bytes.Clone(e.Payload)
	return e
}

func (l *memLog) write(a *wal.Append) error {
	if err := l.failNext; err != nil {
		return err
	}
	if n := len(a.Entries); n > 0 && !a.Staged && a.Snapshot == nil && a.Entries[0].Index > l.last+1 {
		return wal.ErrInvalid
	}
	for _, e := range a.Entries {
		if l.full && len(e.Payload) > 0 {
			return fmt.Errorf("no room: %w", wal.ErrFull)
		}
	}
	if a.Staged {
		for _, e := range a.Entries {
			l.staged[e.Index] = copyEntry(e)
		}
		return nil
	}
	if a.Snapshot != nil {
		if a.Snapshot.Index > l.last {
			l.entries, l.staged = l.staged, map[uint64]wal.Entry{}
			l.last = a.Snapshot.Index
		}
		l.ptr = *a.Snapshot
		for i := range l.entries {
			if i <= l.ptr.Trimmed {
				delete(l.entries, i)
			}
		}
	}
	for _, e := range a.Entries {
		for i := e.Index; i <= l.last; i++ {
			delete(l.entries, i)
		}
		l.entries[e.Index] = copyEntry(e)
		l.last = e.Index
	}
	if a.Hard != nil {
		l.hard = *a.Hard
	}
	return nil
}

func (l *memLog) read(index, term uint64, get func(int) []byte) ([]byte, error) {
	e, ok := l.entries[index]
	if !ok || e.Term != term {
		return nil, fmt.Errorf("entry %d is not in the log", index)
	}
	b := get(len(e.Payload))
	copy(b, e.Payload)
	return b, nil
}

func (l *memLog) recovered() *wal.RecoveredShard {
	r := &wal.RecoveredShard{Hard: l.hard, Snapshot: l.ptr}
	for i := l.ptr.Trimmed + 1; i <= l.last; i++ {
		e := l.entries[i]
		r.Entries = append(r.Entries, wal.EntryMeta{
			Index: e.Index, Term: e.Term, Type: e.Type, Descriptor: e.Descriptor,
			PayloadLen: uint32(len(e.Payload)), PayloadCRC: e.PayloadCRC,
		})
	}
	return r
}

// testReplica is a core with its log, files and state machine.
type testReplica struct {
	id   ReplicaID
	log  *memLog
	fs   *vfs.Mem
	sm   *toyMachine
	core *Core
	cut  bool // no messages in or out
	slow bool // appends are not answered
}

// testCluster delivers messages between cores at once, in order.
type testCluster struct {
	t        *testing.T
	replicas map[ReplicaID]*testReplica
	order    []ReplicaID
	options  func(*Options)
	bufs     *Buffers
	messages []*transport.Message
}

func newTestCluster(t *testing.T, n int, options func(*Options)) *testCluster {
	c := &testCluster{t: t, replicas: map[ReplicaID]*testReplica{}, options: options, bufs: NewBuffers(1<<20, true)}
	var voters []uint64
	for i := 1; i <= n; i++ {
		voters = append(voters, uint64(i))
	}
	for i := 1; i <= n; i++ {
		r := c.add(ReplicaID(i))
		a, _, err := InitialSnapshot(r.fs, "d", testShard, voters, newToy())
		c.must(err)
		r.log.last = 1
		c.must(r.log.write(a))
		c.start(r)
	}
	return c
}

func (c *testCluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *testCluster) add(id ReplicaID) *testReplica {
	r := &testReplica{id: id, log: newMemLog(), fs: vfs.NewMem(uint64(id))}
	c.must(r.fs.MkdirAll("d"))
	c.replicas[id] = r
	c.order = append(c.order, id)
	return r
}

func (c *testCluster) start(r *testReplica) {
	c.t.Helper()
	r.sm = newToy()
	o := Options{
		Shard: testShard, ID: r.id, StateMachine: r.sm, Buffers: c.bufs, Recovered: r.log.recovered(),
		ElectionTicks: 6, HeartbeatTicks: 1,
		ReadPayload: func(index, term uint64) ([]byte, error) { return r.log.read(index, term, c.bufs.Get) },
		OpenSnapshot: func(name string) (SnapshotMeta, io.ReadCloser, error) {
			return OpenSnapshot(r.fs, "d", name)
		},
	}
	if c.options != nil {
		c.options(&o)
	}
	core, err := NewCore(o)
	c.must(err)
	r.core = core
}

// flush carries out the replica's outbox; appends are answered unless slow.
func (c *testCluster) flush(r *testReplica) bool {
	out := r.core.TakeOutbox()
	did := false
	r.log.queue = append(r.log.queue, out.Appends...)
	for !r.slow && len(r.log.queue) > 0 {
		a := r.log.queue[0]
		r.log.queue = r.log.queue[1:]
		r.core.AppendDone(a.ID, r.log.write(a.Append))
		did = true
	}
	for _, l := range out.Loads {
		b, err := r.log.read(l.Index, l.Term, c.bufs.Get)
		r.core.PayloadLoaded(l, b, err)
		did = true
	}
	if s := out.Snapshot; s != nil {
		r.core.SnapshotWritten(s, WriteSnapshot(r.fs, "d", s.File, s.Meta, s.Image.Encode))
		did = true
	}
	for _, name := range out.Remove {
		if err := r.fs.Remove("d/" + name); err != nil && !errors.Is(err, vfs.ErrInjected) {
			c.t.Fatalf("remove %s: %v", name, err)
		}
	}
	c.messages = append(c.messages, out.Messages...)
	return did || len(out.Messages) > 0
}

func (c *testCluster) settle() {
	c.t.Helper()
	for range 10000 {
		did := false
		for _, id := range c.order {
			if c.flush(c.replicas[id]) {
				did = true
			}
		}
		msgs := c.messages
		c.messages = nil
		for _, m := range msgs {
			c.deliver(m)
		}
		if !did && len(msgs) == 0 {
			return
		}
	}
	c.t.Fatal("cluster does not settle")
}

func (c *testCluster) deliver(m *transport.Message) {
	from, to := c.replicas[ReplicaID(m.From)], c.replicas[ReplicaID(m.To)]
	in := &transport.Inbound{Shard: m.Shard, From: m.From, To: m.To, HW: m.HW, Raft: proto.CloneOf(m.Raft)}
	lost := to == nil || from.cut || to.cut
	for _, p := range m.Payloads {
		var b []byte
		if p != nil {
			src, err := p.Load()
			lost = lost || err != nil
			b = c.bufs.Get(len(src))
			copy(b, src)
			p.Release()
		}
		in.Payloads = append(in.Payloads, b)
	}
	if m.Snapshot != nil {
		var buf bytes.Buffer
		_, err := m.Snapshot.WriteTo(&buf)
		m.Snapshot.Close()
		if lost || err != nil {
			from.core.SnapshotSent(ReplicaID(m.To), errors.New("lost"))
			return
		}
		file, err := to.core.BeginReceive(in.Raft.GetSnapshot().GetMetadata().GetIndex())
		c.must(err)
		sink := StreamSink{FS: to.fs, Dir: "d", File: file, Shard: testShard, Buffers: c.bufs, Submit: to.log.write}
		rs, err := sink.Receive(&buf)
		c.must(err)
		rs.Done = func(err error) { from.core.SnapshotSent(ReplicaID(m.To), err) }
		to.core.StepSnapshot(in, rs)
		return
	}
	if lost {
		from.core.Unreachable(ReplicaID(m.To))
		return
	}
	to.core.Step(in)
}

func (c *testCluster) tick(n int) {
	c.t.Helper()
	for range n {
		for _, id := range c.order {
			c.replicas[id].core.Tick()
		}
		c.settle()
	}
}

// leader ticks until a replica that is not cut leads and is ready.
func (c *testCluster) leader() *testReplica {
	c.t.Helper()
	for range 200 {
		c.tick(1)
		for _, id := range c.order {
			if r := c.replicas[id]; !r.cut && r.core.Leadership().Ready {
				return r
			}
		}
	}
	c.t.Fatal("no leader")
	return nil
}

// outcomeOf collects one proposal's outcomes.
type outcomeOf struct {
	done   int
	copied int
	out    []Outcome
}

func (c *testCluster) put(r *testReplica, acks Acks, puts ...*toyPut) *outcomeOf {
	o := &outcomeOf{}
	p := &Proposal{Acks: acks, Copied: func() { o.copied++ }, Done: func(out []Outcome) { o.done++; o.out = out }}
	for _, x := range puts {
		p.Commands = append(p.Commands, x)
	}
	r.core.Propose([]*Proposal{p}, 1000)
	return o
}

func (o *outcomeOf) wantErr(t *testing.T, want error) {
	t.Helper()
	if o.done != 1 || o.copied != 1 {
		t.Fatalf("done %d times, copied %d times: expected once each", o.done, o.copied)
	}
	for i := range o.out {
		if !errors.Is(o.out[i].Err, want) {
			t.Fatalf("outcome %d: expected %v, found %v", i, want, o.out[i].Err)
		}
	}
}

func (o *outcomeOf) wantOpen(t *testing.T) {
	t.Helper()
	if o.done != 0 {
		t.Fatalf("answered early: %v", o.out)
	}
}
