package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// memberLeaves handles a heartbeat that leaves. A static member may leave to
// come back (epochLeaveStatic): it keeps what it has until its session ends.
func (c *Coordinator) memberLeaves(now int64, call *Call, r *kmsg.ConsumerGroupHeartbeatRequest) *refusal {
	g := c.group(r.Group)
	if g == nil {
		return refuse(kerr.GroupIDNotFound, "Group %s not found.", r.Group)
	}
	if g.consumer == nil {
		return refuse(kerr.GroupIDNotFound, "Group %s is not a consumer group.", r.Group)
	}
	cg := g.consumer
	m := cg.members[r.MemberID]
	if r.InstanceID != nil {
		m = cg.members[cg.static[*r.InstanceID]]
		if m == nil {
			return refuse(kerr.UnknownMemberID, "Instance id %s is unknown.", *r.InstanceID)
		}
		if m.id != r.MemberID {
			return fencedInstance(m, r.MemberID)
		}
	}
	if m == nil {
		return refuse(kerr.UnknownMemberID, "Member %s is not a member of group %s.", r.MemberID, r.Group)
	}
	if r.MemberEpoch == epochLeaveStatic {
		c.leaveForNow(g, m)
	} else {
		c.removeMembers(now, g, []*consumerMember{m})
	}
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	id := r.MemberID
	resp.MemberID, resp.MemberEpoch = &id, r.MemberEpoch
	c.reply(call, resp)
	return nil
}

// leaveForNow notes that a static member is away. What it was to give up it
// has given up.
func (c *Coordinator) leaveForNow(g *groupState, m *consumerMember) {
	cg := g.consumer
	cg.disown(m)
	m.epoch, m.revoking = epochLeaveStatic, nil
	cg.own(m)
	c.timers.cancel(timerKey{timerRevocation, g.name, m.id})
	c.write(m.standingRecord(g.name))
}

// removeMembers lets members go, all at once: they left, or are fenced. Their
// partitions are free from here on. If only members of the classic protocol
// are left, the group becomes one of that.
func (c *Coordinator) removeMembers(now int64, g *groupState, members []*consumerMember) {
	if len(members) == 0 {
		return
	}
	ch := &change{g: g, cg: g.consumer}
	for _, m := range members {
		ch.add(ch.cg.memberTombstones(g.name, m.id)...)
		c.cancelTimers(g.name, m.id)
		ch.cg.remove(m)
	}
	if c.downgradable(ch.cg) {
		c.downgrade(now, ch, true)
		return
	}
	c.bump(ch)
	ch.write(c)
}

// fence removes a member by the clock.
func (c *Coordinator) fence(now int64, group, member string) {
	if g := c.group(group); g != nil && g.consumer != nil {
		if m := g.consumer.members[member]; m != nil {
			c.removeMembers(now, g, []*consumerMember{m})
		}
	}
}

// extendSession begins a member's session anew.
func (c *Coordinator) extendSession(now int64, group string, m *consumerMember) {
	timeout := c.o.of(group).SessionTimeout
	if m.classic != nil {
		timeout = int64(m.classic.sessionTimeout)
	}
	if c.bugs.SessionForever {
		return
	}
	k := timerKey{timerConsumer, group, m.id}
	if !c.timers.extend(k, now+timeout) {
		c.timer(k, now+timeout, func(now int64) { c.fence(now, group, k.member) })
	}
}

// watchRevocation gives a member that is to give up partitions the time for it
// that it asked for (max.poll.interval.ms). It is fenced if it has not come to
// another epoch by then. Members of the classic protocol are watched otherwise.
func (c *Coordinator) watchRevocation(now int64, group string, m *consumerMember) {
	k := timerKey{timerRevocation, group, m.id}
	if m.state != memberUnrevoked || m.classic != nil {
		c.timers.cancel(k)
		return
	}
	epoch := m.epoch
	c.timer(k, now+int64(m.rebalanceTimeout), func(now int64) {
		g := c.group(group)
		if g == nil || g.consumer == nil {
			return
		}
		if m := g.consumer.members[k.member]; m != nil && m.epoch == epoch {
			c.fence(now, group, k.member)
		}
	})
}

// cancelTimers unsets all timers of a member.
func (c *Coordinator) cancelTimers(group, member string) {
	c.timers.cancel(timerKey{timerConsumer, group, member})
	c.timers.cancel(timerKey{timerRevocation, group, member})
	c.cancelClassicTimers(group, member)
}

// consumerLoaded begins to serve a group that was loaded: sessions begin anew,
// and so does the time for giving up partitions.
func (c *Coordinator) consumerLoaded(now int64, g *groupState) {
	g.consumer.rescan(now, c.topics)
	for _, id := range g.consumer.ids() {
		m := g.consumer.members[id]
		c.extendSession(now, g.name, m)
		if m.state == memberUnrevoked {
			c.watchRevocation(now, g.name, m)
		}
	}
	c.topicsMoved(now, g)
}
