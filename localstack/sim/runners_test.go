package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"thermocline/ingest/partition"
	"thermocline/tiering/format"
	"thermocline/wal"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
	"thermocline/wal/transport"
	"thermocline/wal/vfs"
)

// The same parts with their goroutines: shard.Runner, wal.Writer and the
// partition state of three nodes, under virtual time. Not a replay, since the
// scheduler has its say; it shows that the drivers around the simulated cores
// keep the same promises.
type liveCluster struct {
	t     *testing.T
	bufs  *shard.Buffers
	mu    sync.Mutex
	nodes [nodes]*liveNode
	rng   *rand.Rand
	wg    sync.WaitGroup
	stop  chan struct{}
	store map[string]uint64 // segments by name: last index
}

type liveNode struct {
	c      *liveCluster
	id     shard.ReplicaID
	mem    *vfs.Mem
	log    *wal.Log
	writer *wal.Writer
	runner *shard.Runner
	set    *partition.Set
	inbox  chan *transport.Message
	used   uint16
}

const liveShard = 3

func newLiveCluster(t *testing.T) *liveCluster {
	c := &liveCluster{t: t, bufs: shard.NewBuffers(4<<20, true), rng: rand.New(rand.NewPCG(1, 2)), stop: make(chan struct{}), store: map[string]uint64{}}
	for i := range nodes {
		n := &liveNode{c: c, id: shard.ReplicaID(i + 1), mem: vfs.NewMem(uint64(i)), inbox: make(chan *transport.Message, 4096)}
		c.nodes[i] = n
		n.start(true)
	}
	for _, n := range c.nodes {
		c.wg.Go(n.deliver)
	}
	return c
}

// start opens a node's log and runs its replica.
func (n *liveNode) start(first bool) {
	l, rec, err := wal.Open(nodeFS{vfs.NewFaulty(n.mem, nil)}, logDir, wal.Options{FileBytes: 256 << 10, MaxBytes: 4 << 20})
	if err != nil {
		n.c.t.Fatal(err)
	}
	set := partition.NewSet(partition.Options{Shard: liveShard})
	w := wal.NewWriter(l)
	cfg := shard.Config{
		Core: shard.Options{
			Shard: liveShard, ID: n.id, StateMachine: set, Buffers: n.c.bufs, CheckPayload: partition.CheckPayload,
			SnapshotMinBytes: 8 << 10, SnapshotFreesFactor: 1, Recovered: rec[liveShard], CacheBytes: 64 << 10, CacheTicks: 100,
		},
		Log: w, FS: n.mem, Dir: logDir, Voters: []shard.ReplicaID{1, 2, 3},
		NewStateMachine: func() shard.StateMachine { return partition.NewSet(partition.Options{Shard: liveShard}) },
		Send:            n.send, Budget: 4 << 20,
		Usage: func() uint16 {
			u := w.Usage()
			return uint16(u.Used * 1000 / u.Max)
		},
	}
	r, err := shard.NewRunner(cfg)
	if err != nil {
		n.c.t.Fatal(err)
	}
	n.c.mu.Lock()
	n.log, n.writer, n.runner, n.set = l, w, r, set
	n.c.mu.Unlock()
}

// close stops the node in good order.
func (n *liveNode) close() {
	n.c.mu.Lock()
	r, w := n.runner, n.writer
	n.runner = nil
	n.c.mu.Unlock()
	if err := r.Close(context.Background()); err != nil {
		n.c.t.Error(err)
	}
	if err := w.Close(); err != nil {
		n.c.t.Error(err)
	}
}

func (n *liveNode) running() *shard.Runner {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	return n.runner
}

// send puts a message into the receiver's inbox; a full one loses it.
func (n *liveNode) send(m *transport.Message) {
	select {
	case n.c.nodes[m.To-1].inbox <- m:
	default:
		release(m)
	}
}

func release(m *transport.Message) {
	for _, p := range m.Payloads {
		if p != nil {
			p.Release()
		}
	}
	if m.Snapshot != nil {
		m.Snapshot.Close()
	}
}

func (n *liveNode) deliver() {
	for {
		select {
		case m := <-n.inbox:
			n.take(m)
		case <-n.c.stop:
			return
		}
	}
}

// take carries a message into the node's runner, through the frame codec.
func (n *liveNode) take(m *transport.Message) {
	r, from := n.running(), n.c.nodes[m.From-1]
	n.c.mu.Lock()
	lost := n.c.rng.IntN(50) == 0
	n.c.mu.Unlock()
	if r == nil || lost {
		release(m)
		if s := from.running(); s != nil {
			s.Unreachable(n.id)
			if m.Snapshot != nil {
				s.SnapshotSent(n.id, errLost)
			}
		}
		return
	}
	if m.Snapshot != nil {
		var b bytes.Buffer
		_, err := m.Snapshot.WriteTo(&b)
		m.Snapshot.Close()
		if err == nil {
			err = r.ReceiveSnapshot(&transport.Inbound{Shard: m.Shard, From: m.From, To: m.To, HW: m.HW, Raft: proto.CloneOf(m.Raft)}, &b)
		}
		if s := from.running(); s != nil {
			s.SnapshotSent(n.id, err)
		}
		return
	}
	frame, err := transport.AppendFrame(nil, m)
	release(m)
	if err != nil {
		return
	}
	in, _, err := transport.DecodeFrame(frame, n.c.bufs)
	if err != nil {
		n.c.t.Error(err)
		return
	}
	r.Receive(in)
}

// leader waits for one that is ready.
func (c *liveCluster) leader() (*liveNode, *shard.Runner) {
	for tries := 0; ; tries++ {
		if tries == 1000 {
			panic("no leader for 20 s: " + c.describe())
		}
		for _, n := range c.nodes {
			if r := n.running(); r != nil && r.Leadership().Ready {
				return n, r
			}
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (c *liveCluster) describe() string {
	var b bytes.Buffer
	for _, n := range c.nodes {
		if r := n.running(); r != nil {
			st, err := r.Status(context.Background())
			fmt.Fprintf(&b, "\nnode %d: %+v, %v", n.id, st, err)
		}
	}
	return b.String()
}

// do proposes one command until it is known to be in the log.
func (c *liveCluster) do(cmd any, class shard.Class, size int) (any, error) {
	for {
		_, r := c.leader()
		done := make(chan shard.Outcome, 1)
		p := &shard.Proposal{Commands: []any{cmd}, Bytes: size, Acks: shard.AcksAll, Class: class, Done: func(o []shard.Outcome) { done <- o[0] }}
		if !r.Propose(p) {
			if err := r.Intake(class); !expected(err) {
				return nil, err
			}
			<-time.After(30 * time.Millisecond)
			continue
		}
		o := <-done
		if o.Err == nil || !expected(o.Err) {
			return o.Result, o.Err
		}
		<-time.After(30 * time.Millisecond)
	}
}

// produce writes count batches of one producer and checks the offsets.
func (c *liveCluster) produce(pid int64, key partition.Key, count int) error {
	for i := range count {
		b := batch.NewBuilder(batch.BuilderOptions{Producer: &batch.Producer{ID: pid, Sequence: int32(i)}})
		b.Add(int64(i), nil, append(binary.LittleEndian.AppendUint64(nil, uint64(i)), bytes.Repeat([]byte{7}, 6000)...))
		raw := b.Build()
		res, err := c.do(&partition.Produce{Key: key, Batch: raw}, shard.ClassClient, len(raw))
		if err != nil {
			return err
		}
		if got := res.(partition.ProduceResult).BaseOffset; got != int64(i) {
			return fmt.Errorf("producer %d batch %d: found at offset %d", pid, i, got)
		}
	}
	return nil
}

// tier seals, keeps and commits what it can, until the end.
func (c *liveCluster) tier() {
	for n := 0; ; n++ {
		select {
		case <-c.stop:
			return
		case <-time.After(150 * time.Millisecond):
		}
		node, r := c.leader()
		if _, ok := node.set.SealPending(); !ok {
			continue
		}
		rg, ok := node.set.Seal(256 << 10)
		if !ok {
			continue
		}
		for _, p := range rg.Partitions {
			for _, ref := range p.Batches {
				v, err := r.Payload(ref.Index, ref.Term)
				if err != nil {
					ok = false
					continue
				}
				if batch.Batch(v.Bytes()[ref.Pos:ref.Pos+ref.Len]).CheckCRC() != nil {
					c.t.Error("a sealed batch is damaged")
				}
				v.Release()
			}
		}
		if !ok {
			continue
		}
		row := format.SegmentRow{Key: fmt.Sprintf("s/%d", n), FirstIndex: rg.First, LastIndex: rg.Last, Size: rg.Bytes}
		done := make(chan error, 1)
		if r.Propose(&shard.Proposal{Commands: []any{&partition.TierSegment{Row: row}}, Acks: shard.AcksAll, Class: shard.ClassSystem, Done: func(o []shard.Outcome) { done <- o[0].Err }}) {
			<-done
		}
	}
}

// disturb restarts nodes, moves leaders and changes replicas.
func (c *liveCluster) disturb(rounds int) error {
	ctx := context.Background()
	for i := range rounds {
		<-time.After(700 * time.Millisecond)
		n, r := c.leader()
		switch i % 4 {
		case 0:
			n.close()
			n.start(false)
		case 1:
			r.TransferLeader(n.id%nodes + 1)
		case 2:
			victim := uint64(n.id%nodes + 1)
			for _, typ := range []raftpb.ConfChangeType{raftpb.ConfChangeAddLearnerNode, raftpb.ConfChangeAddNode} {
				if err := c.change(typ, victim); err != nil {
					return err
				}
			}
		case 3:
			r.RequestSnapshot()
		}
		for _, n := range c.nodes {
			if r := n.running(); r != nil {
				if st, err := r.Status(ctx); err != nil || st.Failed != "" || r.Failed() != nil {
					return fmt.Errorf("node %d: %+v, %v", n.id, st, err)
				}
			}
		}
		read := make(chan error, 1)
		_, r = c.leader()
		r.ReadIndex(func(err error) { read <- err })
		if err := <-read; err != nil && !expected(err) {
			return err
		}
	}
	return nil
}

func (c *liveCluster) change(typ raftpb.ConfChangeType, id uint64) error {
	for {
		_, r := c.leader()
		done := make(chan error, 1)
		r.ProposeConfChange([]*raftpb.ConfChangeSingle{{Type: typ.Enum(), NodeId: new(id)}}, func(err error) { done <- err })
		if err := <-done; err == nil || !expected(err) {
			return err
		}
		<-time.After(50 * time.Millisecond)
	}
}

// level waits until all replicas have applied and acknowledged the same.
func (c *liveCluster) level() {
	for range 600 {
		st := [nodes]partition.Status{}
		for i, n := range c.nodes {
			st[i] = n.set.Status()
		}
		if st[0].Index == st[1].Index && st[0].Index == st[2].Index && st[0].HW == st[0].Index && st[1].HW == st[0].HW && st[2].HW == st[0].HW {
			return
		}
		<-time.After(50 * time.Millisecond)
	}
	c.t.Error("replicas do not come to the same index")
}

// same compares the encoded states of stopped replicas.
func (c *liveCluster) same() {
	var images [nodes]bytes.Buffer
	for i, n := range c.nodes {
		if err := n.set.Image().Encode(&images[i]); err != nil {
			c.t.Error(err)
		}
		if i > 0 && n.set.Status().Index == c.nodes[0].set.Status().Index && !bytes.Equal(images[0].Bytes(), images[i].Bytes()) {
			c.t.Errorf("node %d has another state than node 1", n.id)
		}
	}
}

func TestRunners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLiveCluster(t)
		const writers, each = 4, 220 // 5 MB through a budget of 4 MiB
		for i := range writers {
			if _, err := c.do(&partition.CreatePartition{Key: topicKey(1, i), Name: "live"}, shard.ClassSystem, 100); err != nil && !errors.Is(err, partition.ErrPartitionExists) {
				t.Fatal(err)
			}
		}
		c.wg.Go(c.tier)
		var work sync.WaitGroup
		errs := make(chan error, writers+1)
		for i := range writers {
			work.Go(func() { errs <- c.produce(int64(i+1), topicKey(1, i), each) })
		}
		work.Go(func() { errs <- c.disturb(12) })
		work.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
		close(c.stop)
		c.wg.Wait()
		for _, n := range c.nodes {
			c.wg.Go(func() { n.drainTo(c) })
		}
		c.level()
		for _, n := range c.nodes {
			if st := n.runner.Stats(); st.Applied.Load() == 0 {
				t.Errorf("node %d applied nothing", n.id)
			}
			n.close()
		}
		c.wg.Wait()
		c.same()
	})
}

// drainTo goes on delivering until the node has stopped.
func (n *liveNode) drainTo(c *liveCluster) {
	for n.running() != nil {
		select {
		case m := <-n.inbox:
			n.take(m)
		case <-time.After(100 * time.Millisecond):
		}
	}
	for {
		select {
		case m := <-n.inbox:
			release(m)
		default:
			return
		}
	}
}
