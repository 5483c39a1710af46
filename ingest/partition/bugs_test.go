package partition

import "testing"

// Planted bugs that need more than one replica to matter show here what they
// do, so that a switch that has come off its place is noticed.

func TestBugHWGoesBack(t *testing.T) {
	for _, bug := range []bool{false, true} {
		d := newDriver(t, Options{Bugs: Bugs{HWGoesBack: bug}})
		k := key(1, 0)
		d.create(k)
		d.must(&Produce{Key: k, Batch: plain(1, 1)})
		d.s.SetHW(2, true)
		want(t, "hw went back", d.view(k).HW == 0, bug)
		d.s.SetHW(d.index, true)
		want(t, "hw", d.view(k).HW, int64(1))
	}
}

func TestBugLatestAlwaysKnown(t *testing.T) {
	for _, bug := range []bool{false, true} {
		d := newDriver(t, Options{Bugs: Bugs{LatestAlwaysKnown: bug}})
		d.create(key(1, 0))
		d.s.SetHW(9, false)
		want(t, "latest known", d.view(key(1, 0)).LatestKnown, bug)
	}
}

func TestBugSkipOffsetCheck(t *testing.T) {
	for _, bug := range []bool{false, true} {
		d := newDriver(t, Options{Bugs: Bugs{SkipOffsetCheck: bug}})
		d.create(key(1, 0))
		d.prepare(&Produce{Key: key(1, 0), Batch: plain(1, 1)})
		e, _ := d.prepare(&Produce{Key: key(1, 0), Batch: plain(1, 1)})
		want(t, "applied", d.apply(e)[0].err == nil, bug)
	}
}

func TestBugAcceptStaleRows(t *testing.T) {
	for _, bug := range []bool{false, true} {
		d := newDriver(t, Options{Bugs: Bugs{AcceptStaleRows: bug}})
		c := &CommitRun{}
		c.Run.Key, c.Run.ID, c.Run.First, c.Run.Last = "r", 1, 5, 6
		_, err := d.do(c)
		want(t, "committed", err == nil, bug)
	}
}
