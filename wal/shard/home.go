package shard

import (
	"slices"

	"go.etcd.io/raft/v3"
)

// campaignEvery is the pause in ticks between the home's campaigns while it has
// its head start: a peer whose replica is not running yet drops the question.
const campaignEvery = 2

// tickRaft advances Raft's clock by one tick, but for a replica that has just
// started and has heard of no leader: then the shard's home comes first. It asks
// for votes at its first tick, and again and again for two election timeouts;
// the others let one election timeout pass before their own random ones begin.
// So a new cluster, and one that was started again as a whole, has its leaders
// where they are to stay, and nothing has to move a little later.
//
// Safety does not rest on this. What the home asks for is a pre-vote, which
// nobody grants who hears from a leader or has the longer log; and a home that is
// away costs the others one election timeout, once.
func (c *Core) tickRaft() {
	if c.begun || c.lead != 0 || !slices.Contains(c.conf.GetVoters(), uint64(c.o.Home)) {
		c.begun = true
		c.rn.Tick()
		return
	}
	timeouts := uint64(1)
	if c.o.Home == c.o.ID {
		timeouts = 2
	}
	if c.tick > timeouts*uint64(c.o.ElectionTicks) {
		c.begun = true
	}
	if c.o.Home != c.o.ID {
		return
	}
	c.rn.Tick()
	// A candidate has all the votes it needs for being one: asking anew would
	// throw away the answers that are on their way.
	if s := c.rn.BasicStatus().RaftState; c.tick%campaignEvery == 0 && (s == raft.StateFollower || s == raft.StatePreCandidate) {
		_ = c.rn.Campaign() // Raft answers this with nil alone
	}
}
