package shard

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"thermocline/wal"
	"thermocline/wal/transport"
)

// refuseTicks is how long, after the log had no room for entries, messages with
// payloads are dropped: Raft sends them again, and again until there is room.
const refuseTicks = 10

// refusals is the core's way with a log that has no room. Leaders stop taking
// client data long before; a follower whose log is slower to be trimmed, or
// whose disk is smaller, can still be sent more than fits.
type refusals struct {
	// refused: an append was refused. Nothing is stepped until every append that
	// is under way has been answered; then Raft begins again from what is durable.
	refused     bool
	refuseUntil uint64 // messages with payloads are dropped up to this tick
}

// newRaft makes Raft's node over the storage, with everything up to the applied
// index applied.
func (c *Core) newRaft() error {
	msgSize := uint64(entriesPerMessage * descriptorWire)
	rn, err := raft.NewRawNode(&raft.Config{
		ID: uint64(c.o.ID), ElectionTick: c.o.ElectionTicks, HeartbeatTick: c.o.HeartbeatTicks,
		Storage: c.st, Applied: c.applied, AsyncStorageWrites: true,
		MaxSizePerMsg: msgSize, MaxCommittedSizePerReady: applyingEntriesMax * descriptorWire,
		MaxUncommittedEntriesSize: c.o.RaftUncommittedBytes,
		MaxInflightMsgs:           c.o.InflightMessages, MaxInflightBytes: uint64(c.o.InflightMessages) * msgSize,
		CheckQuorum: true, PreVote: true, ReadOnlyOption: raft.ReadOnlySafe,
		DisableProposalForwarding: true, StepDownOnRemoval: true,
		Logger: raftLogger{c.o.Logger},
	})
	if err != nil {
		return fmt.Errorf("shard %d replica %d: raft: %w", c.o.Shard, c.o.ID, err)
	}
	c.rn = rn
	c.lastHard = c.st.hard
	c.term, c.vote, c.commit = c.st.hard.Term, c.st.hard.Vote, c.st.hard.Commit
	c.role, c.lead = raft.StateFollower, 0
	return nil
}

// refusedDone takes the answers of the log from the first refused append on.
// What follows a refused append leaves a gap, which the log refuses too; a hard
// state or a pointer may have passed, and counts. Nobody is answered: to the
// others it is as if the messages had been lost.
func (c *Core) refusedDone(ia *inflightAppend, err error) {
	switch {
	case err == nil:
		err = c.makeStable(ia)
		if ia.snapshot != nil && err == nil {
			ia.snapshot.Done(nil)
		}
	case len(ia.entries) > 0 && ia.snapshot == nil && (errors.Is(err, wal.ErrFull) || errors.Is(err, wal.ErrInvalid)):
		err = nil
	}
	if c.o.Bugs.AnswerRefused {
		c.respond(ia)
	}
	if err != nil {
		c.fail(fmt.Errorf("shard: storage append: %w", err))
		c.settle()
		return
	}
	if len(c.inflight) == 0 {
		c.restartRaft()
	}
}

// restartRaft lets Raft begin again from what is durable, as a restart of the
// broker would: the entries that were refused, and promises that rested on
// them, were never made to anybody.
func (c *Core) restartRaft() {
	c.o.Logger.Warn("the log has no room for entries, which are refused for now", "shard", c.o.Shard, "replica", c.o.ID, "last", c.st.last())
	c.o.Stats.LogRefused.Add(1)
	c.refused, c.refuseUntil = false, c.tick+refuseTicks
	led := c.role == raft.StateLeader
	c.stash = nil
	c.applyQueue, c.applyPos = nil, 0
	clear(c.loading)
	// What is applied was committed, whether or not the log was told.
	c.st.hard.Commit = max(c.st.hard.Commit, c.applied)
	c.st.conf = c.conf
	if err := c.newRaft(); err != nil {
		c.fail(err)
		c.settle()
		return
	}
	c.announce = true
	if led {
		c.stepDown()
	}
	if pe := c.held; pe != nil {
		c.held = nil
		c.drop(pe, ErrDropped)
	}
	c.overwrite(c.st.last() + 1)
	c.advance()
}

// noRoom tells whether a message brings payloads that the log would refuse.
func (c *Core) noRoom(in *transport.Inbound) bool {
	if c.refused {
		return true
	}
	if c.tick >= c.refuseUntil || in.Raft.GetType() != raftpb.MsgApp {
		return false
	}
	for _, p := range in.Payloads {
		if p != nil {
			return true
		}
	}
	return false
}
