package shard

import "testing"

// A follower whose log has no room refuses entries and stays in service: the
// leader goes on with the others, and what was refused comes again.
func TestFullLogRefusesAndRecovers(t *testing.T) {
	c := newTestCluster(t, 3, nil)
	l := c.leader()
	var f *testReplica
	for _, id := range c.order {
		if id != l.id {
			f = c.replicas[id]
		}
	}
	last := f.log.last
	f.log.full = true
	for i := range 30 {
		o := c.put(l, AcksAll, put(i))
		c.settle()
		o.wantErr(t, nil)
		c.tick(1)
	}
	if f.core.Failed() != nil || f.log.last != last || f.core.Applied() > last {
		t.Fatalf("follower: failed %v, log up to %d, applied %d; expected up to %d", f.core.Failed(), f.log.last, f.core.Applied(), last)
	}
	if n := f.core.o.Stats.LogRefused.Load(); n == 0 || n > 6 {
		t.Fatalf("refused %d times in 30 ticks: expected one in %d ticks", n, refuseTicks)
	}
	if !l.core.Leadership().Ready {
		t.Fatal("the leader has changed")
	}
	f.log.full = false
	c.tick(3 * refuseTicks)
	c.wantLogs(30)
	// It votes and leads as before.
	l.cut = true
	after := c.leader()
	o := c.put(after, AcksAll, put(100))
	c.settle()
	o.wantErr(t, nil)
}

// A leader whose own log has no room gives way: waiters learn that their fate
// is open, and nothing that was acknowledged is lost.
func TestFullLogOfTheLeader(t *testing.T) {
	c := newTestCluster(t, 3, nil)
	l := c.leader()
	before := c.put(l, AcksAll, put(1))
	c.settle()
	before.wantErr(t, nil)
	l.log.full = true
	o := c.put(l, AcksLeader, put(2))
	c.settle()
	if o.done != 1 || o.out[0].Err == nil {
		t.Fatalf("a proposal that the leader's log refused was answered with %v", o.out)
	}
	if l.core.Failed() != nil || l.core.Leadership().Ready {
		t.Fatalf("the leader: failed %v, %+v", l.core.Failed(), l.core.Leadership())
	}
	l.log.full = false
	l = c.leader()
	c.tick(3 * refuseTicks)
	o = c.put(l, AcksAll, put(3))
	c.settle()
	o.wantErr(t, nil)
	c.tick(2)
	c.wantLogs(len(l.sm.log))
}

// TestIntakeShare: a small log takes what a small disk writes, and six shards
// that share it cannot overrun it between two reports of its owner.
func TestIntakeShare(t *testing.T) {
	const budget, sharing, late = 48 << 20, 6, 5
	if perSecond := intakeShare(budget, 0) * 20; perSecond < 100<<20 {
		t.Errorf("an empty log of 64 MiB takes %d bytes a second in one shard, expected 100 MiB", perSecond)
	}
	for worst := 0; worst <= fullAt; worst += 50 {
		share, left := intakeShare(budget, worst), budget/fullAt*(fullAt-worst)
		ticks := 1
		if worst >= throttleFrom {
			ticks = late
		}
		if share > throttleLeast && sharing*ticks*share > left {
			t.Errorf("at %d/1000: %d shards take %d bytes in %d ticks, %d are left", worst, sharing, sharing*ticks*share, ticks, left)
		}
		if worst >= fullAt && share != 0 {
			t.Errorf("a full log takes %d bytes", share)
		}
	}
}
