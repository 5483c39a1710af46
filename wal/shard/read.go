package shard

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"
)

// reads are requests to confirm leadership: each must be confirmed by a quorum
// after it arrived, never by a lease. One round is under way at a time, and
// what arrives meanwhile shares the next one.
type reads struct {
	readSeq  uint64
	waiting  []func(error)
	round    []func(error) // under way, named by readSeq
	roundOn  bool
	answered []readAt
}

// readAt are confirmed reads that wait until their index is applied.
type readAt struct {
	index uint64
	fns   []func(error)
}

// ReadIndex calls done(nil) once this replica is known to have led after the
// call, with everything acknowledged before the call applied; or an error.
func (c *Core) ReadIndex(done func(error)) {
	switch {
	case c.failed != nil:
		done(ErrStopped)
	case !c.ready():
		done(c.intakeError())
	case c.o.Bugs.ReadWithoutQuorum:
		done(nil)
	case len(c.waiting) >= readWaitersMax:
		done(ErrBusy)
	default:
		c.waiting = append(c.waiting, done)
		c.startRound()
		c.advance()
	}
}

func (c *Core) startRound() {
	if c.roundOn || len(c.waiting) == 0 {
		return
	}
	c.readSeq++
	c.round, c.waiting, c.roundOn = c.waiting, nil, true
	c.o.Stats.ReadRounds.Add(1)
	c.rn.ReadIndex(binary.LittleEndian.AppendUint64(nil, c.readSeq))
}

// confirmed takes Raft's answer to a round.
func (c *Core) confirmed(rs raft.ReadState) {
	if !c.roundOn || len(rs.RequestCtx) != 8 || binary.LittleEndian.Uint64(rs.RequestCtx) != c.readSeq {
		return
	}
	c.answered = append(c.answered, readAt{rs.Index, c.round})
	c.round, c.roundOn = nil, false
	c.startRound()
}

// answerReads answers confirmed reads whose index is applied and acknowledged.
func (c *Core) answerReads() {
	for len(c.answered) > 0 && c.answered[0].index <= min(c.applied, c.hw) {
		at := c.answered[0]
		c.answered = c.answered[1:]
		for _, fn := range at.fns {
			fn(nil)
		}
	}
}

// failReads answers every read with err: leadership is gone.
func (c *Core) failReads(err error) {
	all := append(c.round, c.waiting...)
	for _, at := range c.answered {
		all = append(all, at.fns...)
	}
	c.round, c.waiting, c.answered, c.roundOn = nil, nil, nil, false
	for _, fn := range all {
		fn(err)
	}
}
