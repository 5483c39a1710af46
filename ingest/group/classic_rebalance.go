package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func sessionKey(g *groupState, member string) timerKey {
	return timerKey{kind: timerSession, group: g.name, member: member}
}

func joinKey(g *groupState) timerKey { return timerKey{kind: timerJoin, group: g.name} }
func syncKey(g *groupState) timerKey { return timerKey{kind: timerSync, group: g.name} }

// classicLoaded begins to serve a group as it was stored: with the same
// generation and assignments, so that its members notice nothing.
func (c *Coordinator) classicLoaded(now int64, g *groupState) {
	cg := g.classic
	if cg.members[cg.leader] == nil {
		cg.leader = ""
		if len(cg.order) > 0 {
			cg.leader = cg.order[0].id
		}
	}
	cg.subscribed = cg.subscriptions()
	cg.previous = stateStable
	for _, m := range cg.order {
		if !c.bugs.NoSessionsOnLoad {
			c.touch(now, g, m)
		}
	}
	switch cg.state {
	case statePreparing:
		c.completeOrWait(now, g)
	case stateCompleting:
		c.awaitSyncs(now, g)
	}
	if len(cg.members) > c.o.MaxSize && cg.state != statePreparing {
		c.rebalance(now, g)
	}
}

// rebalance begins one, or takes the one under way as far as it goes.
func (c *Coordinator) rebalance(now int64, g *groupState) {
	if g.classic.state == statePreparing {
		c.maybeCompleteJoin(now, g)
		return
	}
	cg := g.classic
	if cg.state == stateCompleting {
		c.resetAssignment(now, g, kerr.RebalanceInProgress)
	}
	clear(cg.syncing)
	c.timers.cancel(syncKey(g))
	initial := cg.state == stateEmpty
	cg.enter(now, statePreparing)
	if initial {
		// A new group's members tend to come one after the other.
		cg.newMember = false
		delay := c.o.InitialRebalanceDelay
		c.initialDelay(now, g, delay, max(cg.rebalanceTimeout()-delay, 0))
		return
	}
	if !c.completeOrWait(now, g) {
		// A coordinator that takes over must know that members are to rejoin.
		c.storeGroup(g)
	}
}

// initialDelay waits for members of a new group, again and again while some
// come, but never for longer than the rebalance time-out in all.
func (c *Coordinator) initialDelay(now int64, g *groupState, delay, remaining int64) {
	c.timer(joinKey(g), now+delay, func(now int64) {
		if !g.classic.newMember || remaining == 0 {
			c.completeJoin(now, g)
			return
		}
		g.classic.newMember = false
		c.initialDelay(now, g, min(c.o.InitialRebalanceDelay, remaining), max(remaining-delay, 0))
	})
}

// allJoined: every member waits for the next generation, and nobody else is
// about to come.
func (g *classicGroup) allJoined() bool { return g.joining == len(g.members) && len(g.pending) == 0 }

// completeOrWait completes the join phase when all have joined; else it gives
// them the rebalance time-out. It tells which.
func (c *Coordinator) completeOrWait(now int64, g *groupState) bool {
	if g.classic.allJoined() {
		c.completeJoin(now, g)
		return true
	}
	c.timer(joinKey(g), now+g.classic.rebalanceTimeout(), func(now int64) { c.completeJoin(now, g) })
	return false
}

// maybeCompleteJoin completes the join phase when all have joined, unless it
// is a new group's, which waits for its time.
func (c *Coordinator) maybeCompleteJoin(now int64, g *groupState) {
	if g.classic.previous != stateEmpty {
		c.maybeCompleteRejoin(now, g)
	}
}

// maybeCompleteRejoin is the same, also for new groups.
func (c *Coordinator) maybeCompleteRejoin(now int64, g *groupState) {
	if g.classic.state == statePreparing && g.classic.allJoined() {
		c.completeJoin(now, g)
	}
}

// completeJoin ends the join phase: who has not joined is out, but for static
// members, and a generation begins.
func (c *Coordinator) completeJoin(now int64, g *groupState) {
	cg := g.classic
	c.timers.cancel(joinKey(g))
	for _, m := range append([]*member(nil), cg.order...) {
		if m.join == nil && m.instance == nil && !c.bugs.KeepSilentMembers {
			c.removeMember(g, m, kerr.UnknownMemberID)
		}
	}
	if len(cg.members) > 0 && !cg.electJoined() {
		// Only static members are left, and none has joined: their sessions
		// will end if they do not.
		c.storeGroup(g)
		// A time-out of 0 would make this a loop without an end.
		c.timer(joinKey(g), now+max(cg.rebalanceTimeout(), 1000), func(now int64) { c.completeJoin(now, g) })
		return
	}
	cg.generation++
	clear(cg.syncing)
	if len(cg.members) == 0 {
		cg.protocol, cg.subscribed = "", map[string]bool{}
		cg.enter(now, stateEmpty)
		c.storeAll(g)
		return
	}
	cg.protocol = cg.vote()
	cg.subscribed = cg.subscriptions()
	cg.enter(now, stateCompleting)
	for _, m := range cg.order {
		m.isNew = false
		c.answerJoin(cg, m, cg.joined(m, true))
		c.touch(now, g, m)
	}
	c.storeAll(g)
	c.awaitSyncs(now, g)
}

// electJoined lets a member that has joined lead, the present leader if it
// has; false: nobody has joined.
func (g *classicGroup) electJoined() bool {
	if m := g.members[g.leader]; m != nil && m.join != nil {
		return true
	}
	for _, m := range g.order {
		if m.join != nil {
			g.leader = m.id
			return true
		}
	}
	return false
}

// awaitSyncs waits for all members' syncs; who sends none is out.
func (c *Coordinator) awaitSyncs(now int64, g *groupState) {
	cg := g.classic
	for _, m := range cg.order {
		cg.syncing[m.id] = true
	}
	c.timer(syncKey(g), now+cg.rebalanceTimeout(), func(now int64) {
		for _, m := range append([]*member(nil), cg.order...) {
			if cg.syncing[m.id] {
				c.removeMember(g, m, kerr.UnknownMemberID)
			}
		}
		c.rebalance(now, g)
	})
}

// synced notes that a member has sent its sync.
func (c *Coordinator) synced(g *groupState, m *member) {
	delete(g.classic.syncing, m.id)
	if len(g.classic.syncing) == 0 {
		c.timers.cancel(syncKey(g))
	}
}

// resetAssignment refuses all who wait for an assignment.
func (c *Coordinator) resetAssignment(now int64, g *groupState, err *kerr.Error) {
	for _, m := range g.classic.order {
		g.classic.assign(m, nil)
		if m.sync != nil {
			c.answerSync(m, syncError(err))
			c.touch(now, g, m)
		}
	}
}

// assign sets a member's assignment.
func (g *classicGroup) assign(m *member, assignment []byte) {
	if string(m.assignment) == string(assignment) {
		return
	}
	g.bytes += len(assignment) - len(m.assignment)
	m.assignment, m.changed = assignment, true
}

// removeMember lets a member go; what it waits for is answered with err.
func (c *Coordinator) removeMember(g *groupState, m *member, err *kerr.Error) {
	c.answerJoin(g.classic, m, joinError("", err))
	c.answerSync(m, syncError(err))
	c.timers.cancel(sessionKey(g, m.id))
	g.classic.remove(m)
}

// answerJoin answers a join that waits.
func (c *Coordinator) answerJoin(cg *classicGroup, m *member, resp kmsg.Response) {
	if m.join != nil {
		c.reply(m.join, resp)
		m.join = nil
		cg.joining--
	}
}

// answerSync answers a sync that waits.
func (c *Coordinator) answerSync(m *member, resp kmsg.Response) {
	if m.sync != nil {
		c.reply(m.sync, resp)
		m.sync = nil
	}
}

// session makes a member's session end at a time.
func (c *Coordinator) session(g *groupState, m *member, at int64) {
	k := sessionKey(g, m.id)
	if !c.timers.extend(k, at) {
		c.timer(k, at, func(now int64) { c.expire(now, g, m) })
	}
}

// touch begins a member's session anew.
func (c *Coordinator) touch(now int64, g *groupState, m *member) {
	c.session(g, m, now+int64(m.sessionTimeout))
}

// expire ends a member's session, unless it waits for an answer from here: its
// session begins anew with that.
func (c *Coordinator) expire(now int64, g *groupState, m *member) {
	if !m.isNew && (m.join != nil || m.sync != nil) && !c.bugs.ExpireWaiting {
		return
	}
	c.removeMember(g, m, kerr.UnknownMemberID)
	c.left(now, g)
}

// left goes on after members have left.
func (c *Coordinator) left(now int64, g *groupState) {
	if g.classic.state == statePreparing {
		if len(g.classic.removed) > 0 {
			c.storeGroup(g)
		}
		c.maybeCompleteJoin(now, g)
		return
	}
	c.rebalance(now, g)
}

// tidy drops a classic group that has nothing to tell.
func (c *Coordinator) tidy(g *groupState) {
	if cg := g.classic; cg != nil && !cg.stored && cg.state == stateEmpty && len(cg.members) == 0 && len(cg.pending) == 0 {
		g.classic = nil
		c.linger(g)
	}
}

// abandon answers everyone who waits, as part of unloading.
func (c *Coordinator) abandon(cg *classicGroup, err *kerr.Error) {
	for _, m := range cg.order {
		for _, call := range []*Call{m.join, m.sync} {
			if call != nil {
				call.Reply(ErrorResponse(call.Request, err))
			}
		}
	}
}
