package shard

import (
	"context"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

const (
	// pauseAfterTicks is how long a learner that follows, but never has all of
	// what is committed at one moment, is waited for before intake pauses for it.
	pauseAfterTicks = 10
	// pauseLagMax bounds the entries that such a learner may lack: what is under
	// way, not what it has to catch up on.
	pauseLagMax = 256
	// pauseAgainTicks is the pause between pauses.
	pauseAgainTicks = 200
	// candidateTicks is how long a call of Approach stands: a plan that nobody
	// repeats may have been withdrawn.
	candidateTicks = 20
)

// ChangeStep tells where a change of replicas stands.
type ChangeStep string

// The steps, in order. Each can be seen in the configuration alone, so that
// whoever leads next goes on from where the last leader was.
const (
	// StepIdle: this replica does not lead, or may not take requests yet.
	StepIdle ChangeStep = "idle"
	// StepProposed: a change is on its way into the log.
	StepProposed ChangeStep = "proposed"
	// StepCatchingUp: a learner is receiving what it lacks.
	StepCatchingUp ChangeStep = "catching up"
	// StepLeaving: both the old and the new configuration still hold.
	StepLeaving ChangeStep = "leaving the old configuration"
	// StepHandingOver: the leader itself is to go, and hands over first.
	StepHandingOver ChangeStep = "handing over"
	// StepDone: the configuration is the one asked for.
	StepDone ChangeStep = "done"
)

// ChangeProgress is how far a change of replicas has come.
type ChangeProgress struct {
	Step ChangeStep
	// Learner is the replica that is catching up, 0 without one; it is known
	// to hold the log durably up to Match. Commit is the leader's commit index.
	Learner       ReplicaID
	Match, Commit uint64
}

// changes is the core's side of a planned change of replicas.
type changes struct {
	// changeTerm is the term in which our own change was proposed and is not
	// decided yet; 0 without one.
	changeTerm uint64
	// candidate is the learner to be promoted as soon as it has everything that
	// is committed, and leaving the voter whose place it takes (0: nobody's).
	candidate, leaving ReplicaID
	candidateSince     uint64
	candidateUntil     uint64
	pausedUntil        uint64 // intake waits for the candidate up to this tick
	pauseNext          uint64 // no pause before this tick
}

// Approach takes one step towards a configuration whose voters are target, and
// tells where that stands. It is called again and again, by whoever leads, until
// it answers StepDone: every step is decided from the present configuration.
//
// Rule: who is new is added as a learner, becomes a voter when its durable log
// has reached the leader's commit index, and takes the place of whoever is to go
// in one joint change. So no configuration has fewer voters than the one before,
// and a quorum never depends on a replica that has nothing.
func (c *Core) Approach(target []ReplicaID) ChangeProgress {
	p := c.approach(target)
	c.advance()
	return p
}

func (c *Core) approach(target []ReplicaID) ChangeProgress {
	p := ChangeProgress{Step: StepIdle, Commit: c.commit}
	if c.intakeError() != nil || c.transferring || len(target) == 0 {
		return p
	}
	if c.changeTerm == c.term {
		p.Step = StepProposed
		return p
	}
	if len(c.conf.GetVotersOutgoing()) > 0 || len(c.conf.GetLearnersNext()) > 0 {
		p.Step = StepLeaving
		return p
	}
	voters, learners := c.conf.GetVoters(), c.conf.GetLearners()
	wanted := func(id uint64) bool { return slices.Contains(target, ReplicaID(id)) }
	gone := c.outsider(voters, wanted)
	for _, id := range learners {
		if !wanted(id) {
			return c.change(p, single(raftpb.ConfChangeRemoveNode, id))
		}
	}
	if c.o.Bugs.RemoveBeforePromotion && gone != 0 {
		return c.change(p, single(raftpb.ConfChangeRemoveNode, gone))
	}
	for _, id := range target {
		if slices.Contains(learners, uint64(id)) {
			return c.await(p, id, ReplicaID(gone))
		}
		if !slices.Contains(voters, uint64(id)) {
			return c.change(p, single(raftpb.ConfChangeAddLearnerNode, uint64(id)))
		}
	}
	switch {
	case gone != 0:
		return c.change(p, single(raftpb.ConfChangeRemoveNode, gone))
	case slices.ContainsFunc(voters, func(id uint64) bool { return !wanted(id) }):
		return c.giveWay(p, wanted) // only this leader is left to go
	}
	c.candidate = 0
	p.Step = StepDone
	return p
}

// outsider is a voter that is not wanted, other than this leader; 0 without one.
func (c *Core) outsider(voters []uint64, wanted func(uint64) bool) uint64 {
	for _, id := range voters {
		if !wanted(id) && id != uint64(c.o.ID) {
			return id
		}
	}
	return 0
}

// giveWay hands leadership to the most advanced voter that is to stay.
func (c *Core) giveWay(p ChangeProgress, wanted func(uint64) bool) ChangeProgress {
	var best, match uint64
	c.rn.WithProgress(func(id uint64, typ raft.ProgressType, pr tracker.Progress) {
		if typ == raft.ProgressTypePeer && wanted(id) && pr.RecentActive && (best == 0 || pr.Match > match) {
			best, match = id, pr.Match
		}
	})
	if best != 0 {
		c.TransferLeader(ReplicaID(best))
		p.Step = StepHandingOver
	}
	return p
}

func single(t raftpb.ConfChangeType, id uint64) []*raftpb.ConfChangeSingle {
	return []*raftpb.ConfChangeSingle{{Type: t.Enum(), NodeId: new(id)}}
}

// change proposes a change of replicas; its fate is seen in the configuration.
func (c *Core) change(p ChangeProgress, list []*raftpb.ConfChangeSingle) ChangeProgress {
	term := c.term
	c.candidate, c.pausedUntil, c.changeTerm = 0, 0, term
	c.o.Logger.Info("changing replicas", "shard", c.o.Shard, "change", list)
	c.offerChange(list, func(error) {
		if c.changeTerm == term {
			c.changeTerm = 0
		}
	})
	p.Step = StepProposed
	return p
}

// await lets a learner be promoted as soon as it has everything committed.
func (c *Core) await(p ChangeProgress, id, leaving ReplicaID) ChangeProgress {
	if c.candidate != id {
		c.candidateSince = c.tick
	}
	c.candidate, c.leaving, c.candidateUntil = id, leaving, c.tick+candidateTicks
	p.Step, p.Learner = StepCatchingUp, id
	pr, _ := c.progress(id)
	p.Match = pr.Match
	return p
}

func (c *Core) progress(id ReplicaID) (found tracker.Progress, ok bool) {
	c.rn.WithProgress(func(at uint64, _ raft.ProgressType, pr tracker.Progress) {
		if at == uint64(id) {
			found, ok = pr, true
		}
	})
	return found, ok
}

// promote makes the candidate a voter if it is known to hold, durably, all that
// is committed at this moment. It reports whether it proposed anything.
func (c *Core) promote() bool {
	if c.candidate == 0 || c.tick > c.candidateUntil || c.changeTerm == c.term || c.transferring || c.intakeError() != nil {
		return false
	}
	pr, ok := c.progress(c.candidate)
	caughtUp := ok && pr.IsLearner && pr.State == tracker.StateReplicate && pr.RecentActive && pr.Match >= c.commit
	if c.o.Bugs.PromoteBeforeCaughtUp {
		caughtUp = ok && pr.IsLearner
	}
	if !caughtUp {
		return false
	}
	list := single(raftpb.ConfChangeAddNode, uint64(c.candidate))
	if c.leaving != 0 {
		list = append(list, single(raftpb.ConfChangeRemoveNode, uint64(c.leaving))...)
	}
	c.o.Stats.Promotions.Add(1)
	c.change(ChangeProgress{}, list)
	return true
}

// pauseForCandidate stops intake for at most an election timeout when a learner
// follows closely, and under load still never has everything at one moment.
func (c *Core) pauseForCandidate() {
	if c.candidate == 0 || c.tick > c.candidateUntil || c.tick < c.pauseNext || c.tick < c.candidateSince+pauseAfterTicks {
		return
	}
	pr, ok := c.progress(c.candidate)
	if !ok || pr.State != tracker.StateReplicate || !pr.RecentActive || pr.Match+pauseLagMax < c.st.last() {
		return
	}
	c.pausedUntil = c.tick + uint64(c.o.ElectionTicks)
	c.pauseNext = c.pausedUntil + pauseAgainTicks
}

// endChanges forgets what a leader had under way: the next one goes by the
// configuration.
func (c *Core) endChanges() {
	c.changes = changes{}
}

// Approach takes one step towards a configuration with these voters; see Core.
func (r *Runner) Approach(ctx context.Context, target []ReplicaID) (ChangeProgress, error) {
	got := make(chan ChangeProgress, 1)
	if !r.post(func() {
		got <- r.core.Approach(target)
		r.drain()
	}) {
		return ChangeProgress{}, ErrStopped
	}
	select {
	case p := <-got:
		return p, nil
	case <-r.done:
		return ChangeProgress{}, ErrStopped
	case <-ctx.Done():
		return ChangeProgress{}, ctx.Err()
	}
}
