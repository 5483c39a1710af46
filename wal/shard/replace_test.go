package shard

import (
	"slices"
	"testing"
)

// approach repeats Approach at the leader until the change is done.
func (c *testCluster) approach(target ...ReplicaID) *testReplica {
	c.t.Helper()
	var last ChangeProgress
	for range 200 {
		for _, id := range c.order {
			r := c.replicas[id]
			if r.cut || !r.core.Leadership().Ready {
				continue
			}
			if last = r.core.Approach(target); last.Step == StepDone {
				return r
			}
		}
		c.settle()
		c.tick(1)
	}
	c.t.Fatalf("no end: %+v", last)
	return nil
}

func (c *testCluster) wantVoters(r *testReplica, want ...uint64) {
	c.t.Helper()
	cs := r.core.ConfState()
	if got := slices.Sorted(slices.Values(cs.GetVoters())); !slices.Equal(got, want) || len(cs.GetLearners())+len(cs.GetVotersOutgoing()) > 0 {
		c.t.Fatalf("replica set: expected voters %v, found %v", want, cs)
	}
}

func TestReplaceLostReplica(t *testing.T) {
	c := newTestCluster(t, 3, func(o *Options) { o.SnapshotMinBytes = 1; o.SnapshotFreesFactor = 1; o.CacheBytes = 1 })
	l := c.leader()
	for i := range 20 {
		c.put(l, AcksAll, put(i))
		c.settle()
	}
	var lost ReplicaID
	var target []ReplicaID
	for _, id := range c.order {
		if id != l.core.o.ID && lost == 0 {
			lost = id
			c.replicas[id].cut = true
			continue
		}
		target = append(target, id)
	}
	c.start(c.add(9))
	target = append(target, 9)
	l = c.approach(target...)
	var voters []uint64
	for _, id := range target {
		voters = append(voters, uint64(id))
	}
	slices.Sort(voters)
	c.wantVoters(l, voters...)
	// The new replica counts: with another one lost, records are acknowledged.
	for _, id := range target {
		if id != 9 && id != l.core.o.ID {
			c.replicas[id].cut = true
		}
	}
	l = c.leader()
	after := c.put(l, AcksAll, put(100))
	c.settle()
	after.wantErr(t, nil)
	if got := c.replicas[9].core.Applied(); got < 20 {
		t.Fatalf("the new replica has applied up to %d", got)
	}
}

// The leader itself may be the one to go, and learners of an earlier plan go
// first.
func TestReplaceLeaderAndForeignLearner(t *testing.T) {
	c := newTestCluster(t, 3, func(o *Options) { o.SnapshotMinBytes = 1 })
	l := c.leader()
	c.start(c.add(8))
	c.start(c.add(9))
	var target []ReplicaID
	for _, id := range c.order {
		if id != l.core.o.ID && id < 8 {
			target = append(target, id)
		}
	}
	if p := l.core.Approach(append([]ReplicaID{l.core.o.ID, 8}, target...)); p.Step != StepProposed {
		t.Fatalf("step %q", p.Step)
	}
	c.settle()
	l2 := c.approach(append(target, 9)...)
	c.wantVoters(l2, uint64(target[0]), uint64(target[1]), 9)
	if l2 == l {
		t.Fatal("the leader is still the one that was to go")
	}
}

// A learner that does not have what is committed stays a learner.
func TestLearnerIsPromotedOnlyWhenCaughtUp(t *testing.T) {
	c := newTestCluster(t, 3, func(o *Options) { o.SnapshotMinBytes = 1 })
	l := c.leader()
	target := []ReplicaID{l.core.o.ID, 9}
	for _, id := range c.order {
		if id != l.core.o.ID && len(target) < 3 {
			target = append(target, id)
		}
	}
	c.add(9).cut = true
	c.start(c.replicas[9])
	for range 50 {
		l.core.Approach(target)
		c.settle()
		c.tick(1)
	}
	cs := l.core.ConfState()
	if !slices.Equal(cs.GetLearners(), []uint64{9}) || len(cs.GetVoters()) != 3 {
		t.Fatalf("replica set %v", cs)
	}
	if !l.core.Accepting() {
		t.Fatal("intake waits for a learner that is away")
	}
	c.replicas[9].cut = false
	c.approach(target...)
}

// A learner that is always one entry behind would never be promoted while
// clients keep writing: intake pauses for it, for a moment.
func TestIntakePausesForALearnerThatFollows(t *testing.T) {
	c := newTestCluster(t, 3, func(o *Options) { o.SnapshotMinBytes = 1 })
	l := c.leader()
	c.start(c.add(9))
	r := c.replicas[9]
	target := []ReplicaID{l.id, 9}
	for _, id := range c.order {
		if id != l.id && id != 9 && len(target) < 3 {
			target = append(target, id)
		}
	}
	paused, key := 0, 1000
	for round := range 400 {
		p := l.core.Approach(target)
		if p.Step == StepDone {
			if paused == 0 || paused > l.core.o.ElectionTicks {
				t.Fatalf("promoted after %d rounds, of which %d without intake", round, paused)
			}
			return
		}
		// What the learner got in one round is durable only when the others have
		// committed the next round's entry.
		if r.slow = l.core.Accepting(); r.slow {
			earlier := len(r.log.queue)
			key++
			c.put(l, AcksAll, put(key))
			c.settle()
			for range earlier {
				a := r.log.queue[0]
				r.log.queue = r.log.queue[1:]
				r.core.AppendDone(a.ID, r.log.write(a.Append))
			}
		} else {
			paused++
		}
		c.settle()
		for _, id := range c.order {
			c.replicas[id].core.Tick()
		}
		c.settle()
	}
	t.Fatalf("not promoted: %+v, %d rounds without intake", l.core.Approach(target), paused)
}
