package broker

import (
	"context"
	"sync"
	"time"

	"thermocline/metadata"
)

const (
	// followsFor is how long an answer about followers is kept.
	followsFor = 500 * time.Millisecond
	// followsWait bounds how long a fetch waits for a new answer; then the old
	// one holds.
	followsWait = 20 * time.Millisecond
	// followsLag is how many entries a follower may lack of what is committed:
	// about what is on its way to it.
	followsLag = 64
)

// followers remembers which replicas keep up with their leader.
type followers struct {
	mu      sync.Mutex
	at      time.Time
	keeping map[metadata.ReplicaID]bool
}

// Follows tells whether another replica keeps up with this one, which leads:
// it answers, takes entries as they come, and lacks next to nothing. Consumers
// are sent to such a one only: from one that is cut off they would not hear of
// new records.
func (o *owned) Follows(r metadata.ReplicaID) bool {
	f := &o.followers
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.at) > followsFor {
		f.at = now
		o.lookAtFollowers(f)
	}
	return f.keeping[r]
}

func (o *owned) lookAtFollowers(f *followers) {
	ctx, cancel := context.WithTimeout(context.Background(), followsWait)
	defer cancel()
	st, err := o.runner.Status(ctx)
	if err != nil {
		return // busy: the last answer will do; or it has stopped, and leads no more
	}
	f.keeping = map[metadata.ReplicaID]bool{}
	for _, p := range st.Peers {
		f.keeping[metadata.ReplicaID(p.Replica)] = p.Active && !p.Learner && p.State == "StateReplicate" && p.Match+followsLag >= st.Commit
	}
}
