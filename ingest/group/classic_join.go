package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// protocolsMax bounds what a member may list; real ones list a few.
	protocolsMax = 256
	// newMemberJoin bounds how long a new member's join waits: it cannot send
	// heartbeats yet (Kafka's group.new.member.join.timeout, 5 minutes).
	newMemberJoin = 300_000
	// pendingMax bounds the ids given out and not used yet, over all groups.
	pendingMax = 100_000
	// idPrefixMax bounds the part of a member's id that its client chooses.
	idPrefixMax = 255
)

// join handles JoinGroup.
//
//	v1: rebalance time-out   v4: an id is given first (KIP-394)
//	v5: instance id          v9: SkipAssignment (KIP-814)
func (c *Coordinator) join(now int64, call *Call, r *kmsg.JoinGroupRequest) {
	if err := c.checkJoin(r); err != nil {
		c.fail(call, err)
		return
	}
	g := c.group(r.Group)
	if g != nil && g.consumer != nil {
		if !g.consumer.isEmpty() {
			c.consumerJoin(now, g, call, r)
			return
		}
		c.dropConsumer(g)
	}
	if r.MemberID != "" && (g == nil || g.classic == nil) {
		c.fail(call, kerr.UnknownMemberID)
		return
	}
	g = c.ensure(now, r.Group)
	if g.classic == nil {
		g.classic = newClassicGroup()
		g.classic.since = now
	}
	switch {
	case !c.accepts(g.classic, r.MemberID):
		c.dropMember(now, g, r.MemberID)
		c.reply(call, joinError("", kerr.GroupMaxSizeReached))
	case r.MemberID == "":
		c.joinNew(now, g, call, r)
	default:
		c.joinKnown(now, g, call, r)
	}
	c.tidy(g)
}

func (c *Coordinator) checkJoin(r *kmsg.JoinGroupRequest) *kerr.Error {
	if err := checkName(r.Group); err != nil {
		return err
	}
	if s := int64(r.SessionTimeoutMillis); s < c.o.MinSessionTimeout || s > c.o.MaxSessionTimeout {
		return kerr.InvalidSessionTimeout
	}
	if len(r.Protocols) > protocolsMax || r.InstanceID != nil && len(*r.InstanceID) > instanceMax {
		return kerr.InvalidRequest
	}
	return nil
}

// checkName refuses names that no group with members can have.
func checkName(group string) *kerr.Error {
	if group == "" {
		return kerr.InvalidGroupID
	}
	return checkLength(group)
}

// checkLength refuses names that no group can have. The empty one is a simple
// group's, as in Kafka: old clients commit to it.
func checkLength(group string) *kerr.Error {
	if len(group) > groupNameMax {
		return kerr.InvalidGroupID
	}
	return nil
}

// accepts bounds the group's size. While members rejoin, those that have not
// count for nothing: if the bound was lowered, the last to rejoin are refused.
func (c *Coordinator) accepts(g *classicGroup, id string) bool {
	m := g.members[id]
	switch g.state {
	case stateEmpty:
		return true
	case statePreparing:
		return m != nil && m.join != nil || g.joining < c.o.MaxSize
	default:
		return m != nil || len(g.members) < c.o.MaxSize
	}
}

// dropMember removes a member, or an id given out, that is refused.
func (c *Coordinator) dropMember(now int64, g *groupState, id string) {
	if g.classic.pending[id] {
		c.dropPending(now, g, id)
		return
	}
	if m := g.classic.members[id]; m != nil {
		c.removeMember(g, m, kerr.GroupMaxSizeReached)
		c.left(now, g)
	}
}

// joinNew takes in who brings no member id.
func (c *Coordinator) joinNew(now int64, g *groupState, call *Call, r *kmsg.JoinGroupRequest) {
	cg := g.classic
	if !cg.supports(r.ProtocolType, r.Protocols) {
		c.reply(call, joinError("", kerr.InconsistentGroupProtocol))
		return
	}
	prefix := call.ClientID
	if r.InstanceID != nil {
		prefix = *r.InstanceID
	}
	id := prefix[:min(len(prefix), idPrefixMax)] + "-" + c.o.NewID()
	switch {
	case r.InstanceID != nil && cg.static[*r.InstanceID] != "":
		c.replaceStatic(now, g, call, r, id)
	case r.InstanceID == nil && r.Version >= 4:
		c.giveID(now, g, call, r, id)
	default:
		c.addMember(now, g, call, r, id)
	}
}

// giveID tells a member its id, and waits for it to come back with it: so a
// client that connects again and again leaves no members behind (KIP-394).
func (c *Coordinator) giveID(now int64, g *groupState, call *Call, r *kmsg.JoinGroupRequest, id string) {
	if len(g.classic.pending) >= c.o.MaxSize || c.pending >= pendingMax {
		c.reply(call, joinError("", kerr.GroupMaxSizeReached))
		return
	}
	g.classic.pending[id] = true
	c.pending++
	c.timer(sessionKey(g, id), now+int64(r.SessionTimeoutMillis), func(now int64) { c.dropPending(now, g, id) })
	c.reply(call, joinError(id, kerr.MemberIDRequired))
}

// dropPending forgets an id that was given out.
func (c *Coordinator) dropPending(now int64, g *groupState, id string) {
	c.forgetPending(g, id)
	c.maybeCompleteRejoin(now, g)
	c.tidy(g)
}

func (c *Coordinator) forgetPending(g *groupState, id string) {
	if g.classic.pending[id] {
		delete(g.classic.pending, id)
		c.pending--
		c.timers.cancel(sessionKey(g, id))
	}
}

// joinKnown takes in who brings a member id.
func (c *Coordinator) joinKnown(now int64, g *groupState, call *Call, r *kmsg.JoinGroupRequest) {
	cg := g.classic
	if !cg.supports(r.ProtocolType, r.Protocols) {
		c.fail(call, kerr.InconsistentGroupProtocol)
		return
	}
	if cg.pending[r.MemberID] && r.InstanceID == nil {
		c.addMember(now, g, call, r, r.MemberID)
		return
	}
	m, err := cg.check(r.MemberID, r.InstanceID)
	if err != nil {
		c.fail(call, err)
		return
	}
	same := m.matches(r.Protocols)
	switch {
	case cg.state == stateCompleting && same:
		// The answer to its join was lost, perhaps.
		c.reply(call, cg.joined(m, true))
	case cg.state == stateStable && same && cg.leader != m.id:
		c.reply(call, cg.joined(m, false))
	case cg.state == stateEmpty:
		c.fail(call, kerr.UnknownMemberID)
	default:
		// A leader that joins a stable group asks for a rebalance, since it
		// may have seen something that is in no member's subscription.
		c.joinAgain(now, g, call, r, m)
	}
}

// addMember takes in a member that was none.
func (c *Coordinator) addMember(now int64, g *groupState, call *Call, r *kmsg.JoinGroupRequest, id string) {
	cg := g.classic
	m := &member{id: id, instance: r.InstanceID, clientID: call.ClientID, clientHost: call.ClientHost, isNew: true, changed: true}
	m.take(r)
	if cg.bytes+m.size() > c.o.MaxGroupBytes {
		c.reply(call, joinError("", kerr.GroupMaxSizeReached))
		return
	}
	c.forgetPending(g, id)
	if cg.state == statePreparing && cg.previous == stateEmpty {
		cg.newMember = true
	}
	m.join = call
	cg.add(m, r.ProtocolType)
	c.session(g, m, now+newMemberJoin)
	c.rebalance(now, g)
}

// joinAgain takes a member into the next generation.
func (c *Coordinator) joinAgain(now int64, g *groupState, call *Call, r *kmsg.JoinGroupRequest, m *member) {
	cg := g.classic
	if !c.retake(cg, m, r) {
		c.fail(call, kerr.GroupMaxSizeReached)
		return
	}
	c.awaitJoin(cg, m, call)
	c.rebalance(now, g)
}

// retake changes a member to what its join says, if there is room for it.
func (c *Coordinator) retake(cg *classicGroup, m *member, r *kmsg.JoinGroupRequest) bool {
	next := *m
	next.take(r)
	if cg.bytes-m.size()+next.size() > c.o.MaxGroupBytes {
		return false
	}
	if m.matches(r.Protocols) && next.rebalanceTimeout == m.rebalanceTimeout && next.sessionTimeout == m.sessionTimeout {
		return true
	}
	cg.support(m, -1)
	cg.bytes -= m.size()
	m.take(r)
	m.changed = true
	cg.bytes += m.size()
	cg.support(m, 1)
	return true
}

// awaitJoin lets a member wait for the next generation. If it waits already,
// its connection was lost, or it asks twice: the first call has no use for it.
func (c *Coordinator) awaitJoin(cg *classicGroup, m *member, call *Call) {
	if m.join != nil {
		c.reply(m.join, joinError(m.id, kerr.RebalanceInProgress))
		cg.joining--
	}
	m.join = call
	cg.joining++
}

// replaceStatic gives a static member that comes without an id a new one; who
// has the old one is fenced (KIP-345). A stable group need not rebalance for it.
func (c *Coordinator) replaceStatic(now int64, g *groupState, call *Call, r *kmsg.JoinGroupRequest, id string) {
	cg := g.classic
	old := cg.members[cg.static[*r.InstanceID]]
	oldLeader, oldID, stored := cg.leader, old.id, old.stored
	c.answerJoin(cg, old, joinError(oldID, kerr.FencedInstanceID))
	c.answerSync(old, syncError(kerr.FencedInstanceID))
	c.timers.cancel(sessionKey(g, oldID))
	m := &member{
		id: id, order: old.order, instance: old.instance, clientID: old.clientID, clientHost: old.clientHost,
		rebalanceTimeout: old.rebalanceTimeout, sessionTimeout: old.sessionTimeout,
		protocols: old.protocols, assignment: old.assignment, changed: true,
	}
	syncing := cg.syncing[oldID]
	cg.remove(old)
	cg.add(m, cg.protocolType)
	if syncing {
		cg.syncing[id] = true
	}
	cg.leader = oldLeader
	if oldLeader == oldID {
		cg.leader = id
	}
	c.touch(now, g, m)
	fits := c.retake(cg, m, r)
	if stored && !c.bugs.KeepOldStaticID {
		// Whatever comes next, a coordinator that takes over must fence the old id.
		c.write(append(c.groupRecords(g), memberRecord(g, m))...)
	}
	switch {
	case !fits:
		// The member keeps what it had; the call alone is refused.
		c.reply(call, joinError("", kerr.GroupMaxSizeReached))
	case cg.state == stateStable && cg.vote() == cg.protocol:
		c.reply(call, cg.rejoined(m, oldLeader, r.Version))
	default:
		c.awaitJoin(cg, m, call)
		c.rebalance(now, g)
	}
}

// take sets what a join says of a member.
func (m *member) take(r *kmsg.JoinGroupRequest) {
	m.sessionTimeout, m.rebalanceTimeout = r.SessionTimeoutMillis, max(0, r.RebalanceTimeoutMillis)
	if r.Version == 0 {
		m.rebalanceTimeout = r.SessionTimeoutMillis
	}
	m.protocols = make([]protocol, 0, len(r.Protocols))
	for _, p := range r.Protocols {
		// A frame's buffer is not ours to keep.
		m.protocols = append(m.protocols, protocol{name: p.Name, metadata: slices.Clone(p.Metadata)})
	}
}

// matches tells whether the member has just these protocols.
func (m *member) matches(protocols []kmsg.JoinGroupRequestProtocol) bool {
	if len(protocols) != len(m.protocols) {
		return false
	}
	for i, p := range protocols {
		if m.protocols[i].name != p.Name || string(m.protocols[i].metadata) != string(p.Metadata) {
			return false
		}
	}
	return true
}

// joined is the answer to a member of the present generation. The leader is
// told all members and what they say.
func (g *classicGroup) joined(m *member, all bool) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.MemberID, resp.Generation, resp.LeaderID = m.id, g.generation, g.leader
	protocolType, protocol := g.protocolType, g.protocol
	resp.ProtocolType, resp.Protocol = &protocolType, &protocol
	if all && g.leader == m.id {
		resp.Members = g.listed()
	}
	return resp
}

// listed is what the leader is told of each member.
func (g *classicGroup) listed() []kmsg.JoinGroupResponseMember {
	out := make([]kmsg.JoinGroupResponseMember, 0, len(g.order))
	for _, m := range g.order {
		l := kmsg.NewJoinGroupResponseMember()
		l.MemberID, l.InstanceID, l.ProtocolMetadata = m.id, m.instance, m.metadata(g.protocol)
		out = append(out, l)
	}
	return out
}

// rejoined is the answer to a static member that came back to a stable group.
// A leader must not assign again: from version 9 on it is told so; before, it
// is told the leader's old id, which is not its own.
func (g *classicGroup) rejoined(m *member, oldLeader string, version int16) *kmsg.JoinGroupResponse {
	resp := g.joined(m, version >= 9)
	if version >= 9 {
		resp.SkipAssignment = g.leader == m.id
	} else {
		resp.LeaderID = oldLeader
	}
	return resp
}
