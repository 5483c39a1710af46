package shard

import "testing"

// homeRounds is how often each election is held: Raft's timeouts are random.
const homeRounds = 20

// homed makes a cluster of three in which home has the head start.
func homed(t *testing.T, home ReplicaID) *testCluster {
	t.Helper()
	return newTestCluster(t, 3, func(o *Options) { o.Home = home })
}

// wantLeader demands that replica id leads, in that term, and goes on to.
func (c *testCluster) wantLeader(id ReplicaID, term uint64) {
	c.t.Helper()
	for _, when := range []string{"at once", "later"} {
		for _, r := range c.replicas {
			if l := r.core.Leadership(); !r.cut && (l.Leader != id || l.Term != term) {
				c.t.Fatalf("%s: replica %d follows %d in term %d, expected %d in term %d", when, r.id, l.Leader, l.Term, id, term)
			}
		}
		c.tick(100)
	}
}

// firstTerm is that of a new shard's first leader: its snapshot is of term 1.
const firstTerm = 2

// A new shard is led by its home from the start, and nothing changes later.
func TestHomeLeadsNewShard(t *testing.T) {
	for i := range ReplicaID(homeRounds) {
		home := i%3 + 1
		c := homed(t, home)
		c.tick(2)
		c.wantLeader(home, firstTerm)
	}
}

// A home whose peers are not there yet asks again; one that is itself later than
// the others, by less than their election timeout, still leads.
func TestHomeLeadsAfterLateStart(t *testing.T) {
	for i := range ReplicaID(homeRounds) {
		home := i%3 + 1
		c := homed(t, home)
		h := c.replicas[home]
		h.cut = true
		c.tick(int(i) % (2*h.core.o.ElectionTicks - 2))
		h.cut = false
		c.tick(3)
		c.wantLeader(home, firstTerm)

		c = homed(t, home)
		late := c.replicas[home]
		for range late.core.o.ElectionTicks {
			for _, id := range c.order {
				if id != home {
					c.replicas[id].core.Tick()
				}
			}
			c.settle()
		}
		c.tick(3)
		c.wantLeader(home, firstTerm)
	}
}

// After a restart of all replicas the home leads, whoever did before.
func TestHomeLeadsAfterRestartOfAll(t *testing.T) {
	for i := range ReplicaID(homeRounds) {
		home, other := i%3+1, (i+1)%3+1
		c := homed(t, other)
		c.tick(2)
		l := c.replicas[other]
		acked := c.put(l, AcksAll, put(1))
		c.settle()
		acked.wantErr(t, nil)
		c.options = func(o *Options) { o.Home = home }
		for _, id := range c.order {
			c.start(c.replicas[id])
		}
		c.tick(2)
		c.wantLeader(home, firstTerm+1)
		c.wantLogs(1)
	}
}

// A home that is away costs the others one election timeout.
func TestOthersLeadWithoutHome(t *testing.T) {
	for range homeRounds {
		c := homed(t, 1)
		c.replicas[1].cut = true
		// Their own timeouts are of one to two; two candidates may split the votes.
		ticks := 0
		for led := false; !led && ticks < 10*c.replicas[2].core.o.ElectionTicks; ticks++ {
			c.tick(1)
			led = c.replicas[2].core.Leadership().Ready || c.replicas[3].core.Leadership().Ready
		}
		if least := 2 * c.replicas[2].core.o.ElectionTicks; ticks < least {
			t.Fatalf("a leader after %d ticks: expected the head start and an election timeout, %d", ticks, least)
		}
		c.leader()
	}
}

// A home that comes back to a shard that is led changes nothing.
func TestReturningHomeDisturbsNobody(t *testing.T) {
	for range homeRounds {
		c := homed(t, 2)
		c.tick(2)
		c.wantLeader(2, firstTerm)
		c.options = func(o *Options) { o.Home = 1 }
		c.start(c.replicas[1])
		// Its first questions come before it has heard of the leader.
		for range 5 {
			c.replicas[1].core.Tick()
			c.settle()
		}
		c.tick(5)
		c.wantLeader(2, firstTerm)
	}
}

// A home that lacks what was acknowledged does not lead, head start or not.
func TestHomeBehindDoesNotLead(t *testing.T) {
	for range homeRounds {
		c := homed(t, 2)
		c.tick(2)
		c.replicas[1].cut = true
		acked := c.put(c.replicas[2], AcksAll, put(1))
		c.settle()
		acked.wantErr(t, nil)
		c.options = func(o *Options) { o.Home = 1 }
		for _, id := range c.order {
			c.start(c.replicas[id])
		}
		c.replicas[1].cut = false
		if l := c.leader(); l.id == 1 {
			t.Fatal("replica 1 leads: it lacks an acknowledged entry")
		}
		c.tick(20)
		c.wantLogs(1)
	}
}
