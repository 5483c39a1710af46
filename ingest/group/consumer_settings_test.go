package group

import "testing"

// manyInterval is Kafka's default of group.consumer.assignment.interval.ms.
const manyInterval = 1000

// TestAssignmentInterval: what comes too soon after a target waits for the first
// heartbeat after the interval; a shorter one holds at once.
func TestAssignmentInterval(t *testing.T) {
	s := newScript(t)
	s.pace(3000)
	s.beat("m", 0, "2 a:0,1,2,3,4,5", joins("a"))
	s.pass(2999)
	s.beat("n", 0, "2 none", joins("a"))
	s.state("Assigning 3 2")
	s.beat("m", 2, "2 -")
	s.pass(1)
	s.beat("m", 2, "2 a:0,1,2")
	s.state("Reconciling 3 3")
	s.beat("o", 0, "3 none", joins("a"))
	s.state("Assigning 4 3")
	s.pace(0)
	s.beat("o", 3, "4 -")
	s.state("Reconciling 4 4")
	// A coordinator that takes over does not know when its predecessor computed.
	s.pace(3000)
	s.beat("p", 0, "4 none", joins("a"))
	s.load()
	s.beat("p", 4, "5 -")
	s.state("Reconciling 5 5")
}

// TestSettingsOfOneGroup: a group's own settings hold for it alone, and from the
// next heartbeat on.
func TestSettingsOfOneGroup(t *testing.T) {
	s := newScript(t)
	other := func(r *heartbeat) { r.Group = "h" }
	interval := func(member string, with ...func(*heartbeat)) int32 {
		t.Helper()
		m := s.c.group("g").consumer.members[member]
		if with != nil {
			m = s.c.group("h").consumer.members[member]
		}
		return s.beatFree(member, m.epoch, with...).HeartbeatIntervalMillis
	}
	s.beatFree("m", 0, joins("a"))
	s.beatFree("m", 0, joins("a"), other)
	own := s.o.Consumer
	own.SessionTimeout, own.HeartbeatInterval = 60_000, 15_000
	s.o.Groups = map[string]GroupSettings{"g": own}
	s.c.Configure(s.o)
	if g, h := interval("m"), interval("m", other); g != 15_000 || h != 5_000 {
		t.Fatalf("heartbeat intervals: expected 15000 and 5000, found %d and %d", g, h)
	}
	s.pass(45_000)
	if g := s.c.group("h"); len(g.consumer.members) != 0 {
		t.Error("group h: its member is there after 45 s without a heartbeat")
	}
	s.write(len(s.flying))
	s.load() // the session begins anew, with the group's own time-out
	s.pass(59_999)
	if n := len(s.group().members); n != 1 {
		t.Fatal("group g: its member is gone before 60 s")
	}
	interval("m")
	s.o.Groups = nil
	s.c.Configure(s.o)
	s.pass(45_000)
	if n := len(s.group().members); n != 1 {
		t.Error("a session ended by a setting that came after its last heartbeat")
	}
	if g := interval("m"); g != 5_000 {
		t.Errorf("heartbeat interval after the group's own is gone: expected 5000, found %d", g)
	}
	s.pass(45_000)
	if n := len(s.group().members); n != 0 {
		t.Error("group g: its member is there after 45 s without a heartbeat")
	}
}
