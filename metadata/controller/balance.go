package controller

import (
	"time"

	"thermocline/metadata"
)

// Move asks the leader of a shard to hand leadership over.
type Move struct {
	Shard    metadata.ShardID
	From, To metadata.BrokerID
}

// Balance lists the shards that are led away from their home while the home
// is there to lead them. It knows nothing of pace; a Balancer does.
func Balance(c *metadata.Cluster) []Move {
	var moves []Move
	for _, s := range c.Shards {
		h, known := c.Leader(s.ID)
		if !known || h.Broker == s.Home || !c.Alive(h.Broker) || !c.Alive(s.Home) {
			continue
		}
		// A home whose data directory is not the replica's has nothing to lead with.
		if r, on := s.On(s.Home); !on || r.ID != c.Broker(s.Home).Replica {
			continue
		}
		moves = append(moves, Move{Shard: s.ID, From: h.Broker, To: s.Home})
	}
	return moves
}

const (
	// settleAfter is how long a home must have been back: time to catch up,
	// and a broker that keeps falling over must not get leaders each time.
	settleAfter = 10 * time.Second
	// moveAgainAfter is the pause before a move that did not come about is
	// asked for again. Together with settleAfter a shard is home within 60 s.
	moveAgainAfter = 10 * time.Second
)

// Balancer paces Balance: it remembers since when brokers have been alive and
// which moves were asked for. It belongs to one goroutine; time is passed in.
type Balancer struct {
	since map[metadata.BrokerID]aliveSince
	asked map[metadata.ShardID]time.Time
}

type aliveSince struct {
	epoch int64
	since time.Time
}

// NewBalancer makes a Balancer that has seen nothing yet: homes must settle
// first.
func NewBalancer() *Balancer {
	return &Balancer{since: map[metadata.BrokerID]aliveSince{}, asked: map[metadata.ShardID]time.Time{}}
}

// Next lists the moves that are due now, and counts them as asked for. When
// the caller cares for the shards of one broker only, it filters by From.
func (b *Balancer) Next(c *metadata.Cluster, now time.Time) []Move {
	for _, br := range c.Brokers {
		seen, ok := b.since[br.ID]
		switch {
		case !br.Alive:
			delete(b.since, br.ID)
		case !ok || seen.epoch != br.Epoch:
			b.since[br.ID] = aliveSince{epoch: br.Epoch, since: now}
		}
	}
	var due []Move
	for _, m := range Balance(c) {
		if now.Sub(b.since[m.To].since) < settleAfter {
			continue
		}
		if last, ok := b.asked[m.Shard]; ok && now.Sub(last) < moveAgainAfter {
			continue
		}
		b.asked[m.Shard] = now
		due = append(due, m)
	}
	return due
}
