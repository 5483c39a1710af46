package shard

import (
	"context"
	"slices"

	"thermocline/wal"
)

// Status is a replica as inspect shows it.
type Status struct {
	Shard   wal.ShardID
	Replica ReplicaID
	Leadership
	Role                 string
	Applied, Commit, HW  uint64
	FirstIndex           uint64 // of the untrimmed log
	LastIndex            uint64
	SnapshotIndex        uint64
	SnapshotFile         string
	LogBytes             int64 // payload bytes of the untrimmed log
	CacheBytes           int
	InflightBytes        int
	UncommittedBytes     int
	WorstUsage           uint16
	Voters, Learners     []uint64
	Peers                []PeerStatus // on a leader
	Draining             bool
	CacheHits, CacheMiss uint64
	Failed               string
}

// PeerStatus is how far a leader knows a peer to be.
type PeerStatus struct {
	Replica ReplicaID
	Match   uint64
	State   string
	Active  bool
	Learner bool
}

// Status describes the replica; it is called on the core's goroutine.
func (c *Core) Status() Status {
	st := c.rn.Status()
	c.table.mu.Lock()
	cache, hits, misses := c.table.resident, c.table.hits, c.table.misses
	c.table.mu.Unlock()
	s := Status{
		Shard: c.o.Shard, Replica: c.o.ID, Leadership: c.Leadership(), Role: c.role.String(),
		Applied: c.applied, Commit: c.commit, HW: c.hw,
		FirstIndex: c.st.trimmed + 1, LastIndex: c.st.last(), SnapshotIndex: c.st.snap.GetIndex(),
		SnapshotFile: c.file, LogBytes: c.st.bytes, CacheBytes: cache, InflightBytes: c.inflightBytes,
		UncommittedBytes: c.uncommittedBytes, WorstUsage: c.WorstUsage(),
		Voters: c.conf.GetVoters(), Learners: c.conf.GetLearners(),
		Draining: c.draining, CacheHits: hits, CacheMiss: misses,
	}
	if c.failed != nil {
		s.Failed = c.failed.Error()
	}
	for id, p := range st.Progress {
		s.Peers = append(s.Peers, PeerStatus{ReplicaID(id), p.Match, p.State.String(), p.RecentActive, p.IsLearner})
	}
	slices.SortFunc(s.Peers, func(a, b PeerStatus) int { return int(int64(a.Replica) - int64(b.Replica)) })
	return s
}

// Status describes the replica for inspect.
func (r *Runner) Status(ctx context.Context) (Status, error) {
	got := make(chan Status, 1)
	if !r.post(func() { got <- r.core.Status() }) {
		return Status{}, ErrStopped
	}
	select {
	case s := <-got:
		return s, nil
	case <-r.done:
		return Status{}, ErrStopped
	case <-ctx.Done():
		return Status{}, ctx.Err()
	}
}

// Stats are the replica's counters (shared by all that were given the same).
func (r *Runner) Stats() *Stats { return r.stats }
