package shard

import "testing"

// TestSnapshotsUnderPressure: when every entry is trimmable and the budget
// needs what can be freed, snapshots do not follow each other with every
// entry, and yet all is trimmed in the end.
func TestSnapshotsUnderPressure(t *testing.T) {
	c := newTestCluster(t, 1, nil)
	l := c.leader()
	l.core.SetPressure(true)
	made := func() uint64 { return uint64(l.core.o.Stats.Snapshots.Load()) }
	before := made()
	write := func(n int) {
		for range n {
			c.put(l, AcksAll, put(len(l.sm.log)))
			l.sm.tiered = l.core.Applied() + 1 // as soon as it is applied
			c.settle()
			l.sm.tiered = l.core.Applied()
		}
	}
	write(200)
	if n := made() - before; n < 1 || n > 2 {
		t.Fatalf("200 entries within one tick: expected one snapshot, found %d", n)
	}
	for range 3 {
		c.tick(pressureTicks + 1)
		if st := l.core.Status(); st.FirstIndex != st.LastIndex+1 {
			t.Fatalf("after %d ticks: expected nothing left of the log, found %d to %d", pressureTicks+1, st.FirstIndex, st.LastIndex)
		}
		n := made()
		write(100)
		if n = made() - n; n > 1 {
			t.Fatalf("100 entries within one tick: expected at most one snapshot, found %d", n)
		}
	}
}
