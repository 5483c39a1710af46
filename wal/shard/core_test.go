package shard

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

func put(k int) *toyPut { return &toyPut{Key: uint64(k), Data: fmt.Appendf(nil, "d%d", k)} }

func (c *testCluster) wantLogs(n int) {
	c.t.Helper()
	for _, id := range c.order {
		r := c.replicas[id]
		if len(r.sm.log) != n || !slices.Equal(r.sm.log, c.replicas[c.order[0]].sm.log) {
			c.t.Fatalf("replica %d: %v; replica %d: %v; expected %d records", id, r.sm.log, c.order[0], c.replicas[c.order[0]].sm.log, n)
		}
	}
}

func TestProposeReachesAllReplicas(t *testing.T) {
	c := newTestCluster(t, 3, nil)
	l := c.leader()
	a := c.put(l, AcksAll, put(1), put(2))
	b := c.put(l, AcksLeader, put(3))
	n := c.put(l, AcksNone, put(4))
	n.wantErr(t, nil)
	a.wantOpen(t)
	b.wantOpen(t)
	c.settle()
	a.wantErr(t, nil)
	b.wantErr(t, nil)
	if a.out[1].Result != uint64(1) || b.out[0].Result != uint64(2) {
		t.Fatalf("results: %v %v", a.out, b.out)
	}
	c.tick(2)
	c.wantLogs(4)
	for _, id := range c.order {
		if hw := c.replicas[id].sm.hw; hw != c.replicas[id].core.Applied() {
			t.Fatalf("replica %d: hw %d, applied %d", id, hw, c.replicas[id].core.Applied())
		}
	}
	dup := c.put(l, AcksAll, put(2))
	dup.wantErr(t, nil)
	if dup.out[0].Result != uint64(1) {
		t.Fatalf("duplicate: %v", dup.out)
	}
}

func TestAcksWaitForFsync(t *testing.T) {
	c := newTestCluster(t, 3, nil)
	l := c.leader()
	l.slow = true
	one := c.put(l, AcksLeader, put(1))
	dup := c.put(l, AcksLeader, put(1))
	c.settle()
	one.wantOpen(t)
	dup.wantOpen(t)
	for _, id := range c.order {
		c.replicas[id].slow = true
	}
	all := c.put(l, AcksAll, put(2))
	c.settle()
	l.slow = false
	c.settle()
	one.wantErr(t, nil)
	dup.wantErr(t, nil)
	all.wantOpen(t)
	for _, id := range c.order {
		c.replicas[id].slow = false
	}
	c.settle()
	all.wantErr(t, nil)
}

func TestDeposedLeaderWaiters(t *testing.T) {
	c := newTestCluster(t, 3, nil)
	old := c.leader()
	old.cut = true
	lost := c.put(old, AcksAll, put(1))
	c.settle()
	lost.wantOpen(t)
	now := c.leader()
	won := c.put(now, AcksAll, put(2))
	c.settle()
	won.wantErr(t, nil)
	c.tick(20)
	old.cut = false
	c.tick(20)
	lost.wantErr(t, ErrUnknownFate)
	c.wantLogs(1)
	refused := c.put(old, AcksAll, put(3))
	if now.core.Leadership().Ready {
		refused.wantErr(t, ErrNotLeader)
	}
}

func TestRestartFromLogAndSnapshot(t *testing.T) {
	c := newTestCluster(t, 3, func(o *Options) { o.SnapshotMinBytes = 1; o.SnapshotFreesFactor = 1 })
	l := c.leader()
	for i := range 20 {
		c.put(l, AcksAll, put(i))
		c.settle()
	}
	c.tick(2)
	for _, id := range c.order {
		r := c.replicas[id]
		r.sm.tiered = r.core.Applied() - 5
		r.core.RequestSnapshot()
	}
	c.settle()
	for _, id := range c.order {
		r := c.replicas[id]
		if r.log.ptr.Trimmed != r.sm.tiered || r.log.ptr.Index <= r.log.ptr.Trimmed {
			t.Fatalf("replica %d: pointer %+v, tiered %d", id, r.log.ptr, r.sm.tiered)
		}
		c.start(r)
	}
	l = c.leader()
	after := c.put(l, AcksAll, put(100))
	c.settle()
	after.wantErr(t, nil)
	c.tick(2)
	c.wantLogs(21)
}

func TestSnapshotStreamToEmptyReplica(t *testing.T) {
	c := newTestCluster(t, 3, func(o *Options) { o.SnapshotMinBytes = 1; o.CacheBytes = 1 })
	l := c.leader()
	for i := range 20 {
		c.put(l, AcksAll, put(i))
		c.settle()
	}
	l.sm.tiered = l.core.Applied() - 5
	l.core.RequestSnapshot()
	c.settle()
	r := c.add(9)
	c.start(r)
	var changed error = errors.New("not yet")
	l.core.ProposeConfChange([]*raftpb.ConfChangeSingle{{Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(9))}}, func(err error) { changed = err })
	c.settle()
	c.must(changed)
	c.tick(20)
	c.wantLogs(20)
	if r.log.ptr.Index <= r.log.ptr.Trimmed || len(r.log.entries) < 5 {
		t.Fatalf("learner's log: pointer %+v, %d entries", r.log.ptr, len(r.log.entries))
	}
	if got := r.core.ConfState(); len(got.GetLearners()) != 1 {
		t.Fatalf("replica set: %v", got)
	}
	v, err := r.core.View(r.log.ptr.Trimmed+1, r.log.entries[r.log.ptr.Trimmed+1].Term)
	c.must(err)
	v.Release()
	c.start(r)
	c.put(l, AcksAll, put(50))
	c.tick(20)
	c.wantLogs(21)
}

func TestDroppedProposalDrains(t *testing.T) {
	c := newTestCluster(t, 3, func(o *Options) { o.RaftUncommittedBytes = 3 * DescriptorLen })
	l := c.leader()
	resets := l.sm.resets
	var got []*outcomeOf
	for i := range 8 {
		got = append(got, c.put(l, AcksAll, put(i)))
	}
	if l.core.Accepting() {
		t.Fatal("takes requests although a proposal was dropped")
	}
	c.settle()
	for i, o := range got {
		if i < 3 {
			o.wantErr(t, nil)
		} else {
			o.wantErr(t, ErrDropped)
		}
	}
	if l.sm.resets != resets+1 || !l.core.Accepting() {
		t.Fatalf("resets: expected one more than %d, found %d; accepting %v", resets, l.sm.resets, l.core.Accepting())
	}
	again := c.put(l, AcksAll, put(5))
	c.settle()
	again.wantErr(t, nil)
	c.tick(2)
	c.wantLogs(4)
}

func TestReadIndexNeedsQuorum(t *testing.T) {
	c := newTestCluster(t, 3, nil)
	l := c.leader()
	got := []error{}
	for range 3 {
		l.core.ReadIndex(func(err error) { got = append(got, err) })
	}
	if len(got) != 0 {
		t.Fatal("confirmed without asking")
	}
	c.settle()
	if len(got) != 3 || got[0] != nil || got[2] != nil {
		t.Fatalf("reads: %v", got)
	}
	if n := l.core.o.Stats.ReadRounds.Load(); n != 2 {
		t.Fatalf("rounds: expected 2 (the first read, then the others together), found %d", n)
	}
	l.cut = true
	l.core.ReadIndex(func(err error) { got = append(got, err) })
	c.tick(30)
	if len(got) != 4 || !errors.Is(got[3], ErrNotLeader) {
		t.Fatalf("reads: %v", got)
	}
}

func TestTransferLeader(t *testing.T) {
	c := newTestCluster(t, 3, nil)
	l := c.leader()
	to := l.id%3 + 1
	l.core.TransferLeader(to)
	c.settle()
	if got := c.leader(); got.id != to {
		t.Fatalf("leader: expected %d, found %d", to, got.id)
	}
}

func TestStorageFailureTakesOutOfService(t *testing.T) {
	c := newTestCluster(t, 3, nil)
	l := c.leader()
	l.log.failNext = errors.New("disk says no")
	o := c.put(l, AcksAll, put(1))
	c.settle()
	o.wantErr(t, ErrUnknownFate)
	if l.core.Failed() == nil {
		t.Fatal("replica still serves")
	}
	c.put(l, AcksAll, put(2)).wantErr(t, ErrStopped)
	l.cut = true
	now := c.leader()
	if now == l {
		t.Fatal("a failed replica leads")
	}
	again := c.put(now, AcksAll, put(1))
	c.settle()
	again.wantErr(t, nil)
}

func TestHeldProposalOfAnEarlierTermIsRefused(t *testing.T) {
	hold := false
	c := newTestCluster(t, 3, func(o *Options) { o.Hold = func() bool { return hold } })
	l := c.leader()
	hold = true
	// Held: the replica is deposed and elected again before it is proposed.
	term := l.core.Leadership().Term
	o := c.put(l, AcksAll, put(1))
	hold = false
	held := l.core.held
	l.core.held = nil
	for _, id := range c.order {
		if id != l.id {
			l.core.TransferLeader(id)
			break
		}
	}
	c.settle()
	c.leader().core.TransferLeader(l.id)
	c.settle()
	if c.leader() != l || l.core.Leadership().Term == term {
		t.Fatal("leadership did not move away and back")
	}
	l.core.held = held
	c.tick(3)
	o.wantErr(t, ErrDropped)
	c.wantLogs(0)
	if n := l.core.o.Stats.Refused.Load(); n != 1 {
		t.Fatalf("refused entries: expected 1, found %d", n)
	}
}

// A stream of the snapshot that the replica started from must not take that
// file's name: it is removed when Raft has no use for it.
func TestStreamNeverTakesTheCurrentFile(t *testing.T) {
	c := newTestCluster(t, 3, func(o *Options) { o.SnapshotMinBytes = 1; o.SnapshotFreesFactor = 1 })
	l := c.leader()
	for i := range 5 {
		c.put(l, AcksAll, put(i))
		c.settle()
	}
	l.core.RequestSnapshot()
	c.settle()
	current := l.log.ptr
	c.start(l)
	name, err := l.core.BeginReceive(current.Index)
	c.must(err)
	if name == current.File {
		t.Fatalf("a new file has the current one's name %s", name)
	}
}
