package ingest

import (
	"slices"

	"thermocline/metadata"
)

// placed is how a shard looks to clients: who leads it, and where it is.
type placed struct {
	leader   int32 // -1 while unknown
	epoch    int32
	replicas []int32 // the preferred leader first
	live     []int32
	offline  []int32
}

// placement answers for shards within one request, each looked up once. It is
// not safe for concurrent use.
type placement struct {
	view   View
	live   map[metadata.BrokerID]bool
	shards map[metadata.ShardID]*placed
}

func newPlacement(v View) *placement {
	p := &placement{view: v, live: map[metadata.BrokerID]bool{}, shards: map[metadata.ShardID]*placed{}}
	for _, b := range v.Brokers() {
		p.live[b.ID] = true
	}
	return p
}

// of returns a shard's placement. The leader epoch that clients see is the
// Raft term; partitions that have moved will add a base of their own.
func (p *placement) of(id metadata.ShardID) *placed {
	if at, ok := p.shards[id]; ok {
		return at
	}
	at := &placed{leader: -1, epoch: -1}
	p.shards[id] = at
	shard, ok := p.view.Shard(id)
	if !ok {
		return at
	}
	for _, r := range shard.Replicas {
		at.replicas = append(at.replicas, int32(r.Broker))
	}
	if i := slices.Index(at.replicas, int32(shard.Home)); i > 0 {
		at.replicas[0], at.replicas[i] = at.replicas[i], at.replicas[0]
	}
	for _, b := range at.replicas {
		if p.live[metadata.BrokerID(b)] {
			at.live = append(at.live, b)
		} else {
			at.offline = append(at.offline, b)
		}
	}
	leader, term, ok := p.view.Leader(id)
	if ok {
		at.epoch = int32(term)
		if p.live[leader] {
			at.leader = int32(leader)
		}
	}
	return at
}

// knownShards lists the shards; they are numbered from 1 without gaps.
func (s *Server) knownShards() []metadata.ShardID {
	var ids []metadata.ShardID
	for id := metadata.ShardID(1); ; id++ {
		if _, ok := s.cluster.Shard(id); !ok {
			return ids
		}
		ids = append(ids, id)
	}
}
