package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Members of the classic protocol in a consumer group: JoinGroup is their
// heartbeat with news, the generation is their member epoch, SyncGroup fetches
// what they have, and Heartbeat tells them to join again when there is more to
// give up or to get. None of them leads: the coordinator assigns.

// classicTimer names a timer of such a member: "join" (it is to join again) or
// "sync" (it is to fetch what it has).
func classicTimer(what, group, member string) timerKey {
	return timerKey{timerConsumerMisc, group, what + " " + member}
}

func (c *Coordinator) cancelClassicTimers(group, member string) {
	c.timers.cancel(classicTimer("join", group, member))
	c.timers.cancel(classicTimer("sync", group, member))
}

// expectJoin gives a member its rebalance time-out to join again, once.
func (c *Coordinator) expectJoin(now int64, group string, m *consumerMember) {
	k, id := classicTimer("join", group, m.id), m.id
	if c.timers.byKey[k] == nil {
		c.timer(k, now+int64(m.rebalanceTimeout), func(now int64) { c.fence(now, group, id) })
	}
}

// consumerJoin handles a JoinGroup to a group that has a consumerGroup. As in
// Kafka, its refusals do not repeat the member's id.
func (c *Coordinator) consumerJoin(now int64, g *groupState, call *Call, r *kmsg.JoinGroupRequest) {
	cg := g.consumer
	id := r.MemberID
	if id == "" {
		id = c.o.NewID()
	}
	if err := c.checkJoiner(cg, id, r); err != nil {
		c.reply(call, joinError("", err))
		return
	}
	if r.Version >= 4 && r.MemberID == "" && r.InstanceID == nil {
		c.reply(call, joinError(id, kerr.MemberIDRequired))
		return
	}
	profile, owned, err := c.readJoin(r)
	if err != nil {
		c.reply(call, joinError("", err))
		return
	}
	if cg.members[id] == nil && r.InstanceID == nil && len(owned.all) > 0 && !c.bugs.TakeFenced {
		// It was fenced, does not know, and might commit what others have by
		// now. Kafka takes it for a new member.
		c.reply(call, joinError("", kerr.UnknownMemberID))
		return
	}
	ch := &change{g: g, cg: cg}
	m, wasConsumer, err := c.joiningMember(ch, id, r)
	if err != nil {
		c.reply(call, joinError("", err))
		return
	}
	before := m.profile
	m.rack, m.classic = profile.rack, profile.classic
	m.clientID, m.clientHost = call.ClientID, call.ClientHost
	m.rebalanceTimeout = max(0, r.RebalanceTimeoutMillis)
	if r.Version == 0 {
		m.rebalanceTimeout = r.SessionTimeoutMillis
	}
	none := ""
	changed := ch.resubscribe(m, profile.names, &none)
	c.timers.cancel(timerKey{timerRevocation, g.name, m.id})
	c.timers.cancel(classicTimer("join", g.name, m.id))
	c.updateMember(now, ch, m, &before, changed, owned)

	resp := kmsg.NewPtrJoinGroupResponse()
	protocolType, protocol := consumerProtocolType, m.classic.protocols[0].name
	resp.MemberID, resp.Generation = m.id, m.epoch
	resp.ProtocolType, resp.Protocol = &protocolType, &protocol
	c.reply(call, resp)
	if wasConsumer && c.downgradable(cg) {
		c.downgrade(now, ch, changed)
		return
	}
	c.extendSession(now, g.name, m)
	group, member := g.name, m.id
	c.timer(classicTimer("sync", group, member), now+int64(m.rebalanceTimeout), func(now int64) { c.fence(now, group, member) })
	ch.write(c)
}

// classicSays is what a JoinGroup says.
type classicSays struct {
	rack    string
	names   []string
	classic *classicProfile
}

// checkJoiner refuses whom the group cannot have.
func (c *Coordinator) checkJoiner(cg *consumerGroup, id string, r *kmsg.JoinGroupRequest) *kerr.Error {
	switch {
	case c.o.ConsumerMigration == "disabled":
		// Otherwise the group would have both protocols for good (KAFKA-20640).
		return kerr.InconsistentGroupProtocol
	case len(id) > memberIDMax:
		return kerr.InvalidRequest
	}
	size := 0
	for _, p := range r.Protocols {
		size += 8 + len(p.Name) + len(p.Metadata)
	}
	if len(r.Protocols) > 0 {
		size += 2 * len(r.Protocols[0].Metadata) // its topics are stored once more
	}
	if size > profileMax {
		return kerr.InvalidRequest
	}
	if no := c.checkSize(cg, r.MemberID, size); no != nil {
		return no.err
	}
	if r.ProtocolType != consumerProtocolType || !cg.supports(r.Protocols) {
		return kerr.InconsistentGroupProtocol
	}
	return nil
}

// readJoin reads a JoinGroup: what the member says, and what it owns.
func (c *Coordinator) readJoin(r *kmsg.JoinGroupRequest) (classicSays, ownedSet, *kerr.Error) {
	var says classicSays
	owned := ownedSet{said: true, all: make(map[partition]bool)}
	var s kmsg.ConsumerMemberMetadata
	if err := s.ReadFrom(r.Protocols[0].Metadata); err != nil {
		return says, owned, kerr.InconsistentGroupProtocol
	}
	for _, t := range s.OwnedPartitions {
		if topic, ok := c.topics.Topic(t.Topic); ok {
			for _, i := range t.Partitions {
				owned.all[partition{topic.ID, i}] = true
			}
		}
	}
	says.classic = &classicProfile{sessionTimeout: r.SessionTimeoutMillis}
	for _, p := range r.Protocols {
		// A frame's buffer is not ours to keep.
		says.classic.protocols = append(says.classic.protocols, protocol{name: p.Name, metadata: slices.Clone(p.Metadata)})
	}
	says.names = append([]string{}, s.Topics...)
	if s.Rack != nil {
		says.rack = *s.Rack
	}
	return says, owned, nil
}

// supports tells whether some protocol is common to all members that use the
// classic protocol and this list.
func (g *consumerGroup) supports(protocols []kmsg.JoinGroupRequestProtocol) bool {
	return slices.ContainsFunc(protocols, func(p kmsg.JoinGroupRequestProtocol) bool {
		for _, m := range g.members {
			if m.classic != nil && !slices.ContainsFunc(m.classic.protocols, func(q protocol) bool { return q.name == p.Name }) {
				return false
			}
		}
		return true
	})
}

// joiningMember finds or makes the member of a JoinGroup, and tells whether
// one of the new protocol is thereby gone. A static one without an id takes the
// place of who had its instance id.
func (c *Coordinator) joiningMember(ch *change, id string, r *kmsg.JoinGroupRequest) (*consumerMember, bool, *kerr.Error) {
	cg := ch.cg
	if r.InstanceID == nil {
		m := cg.members[id]
		if m == nil {
			return c.newMember(ch, id, ""), false, nil
		}
		return m, m.classic == nil, nil
	}
	old := cg.members[cg.static[*r.InstanceID]]
	switch {
	case r.MemberID == "" && old == nil:
		return c.newMember(ch, id, *r.InstanceID), false, nil
	case r.MemberID == "":
		consumer := old.classic == nil
		return c.takeInstance(ch, old, id), consumer, nil
	case old == nil:
		return nil, false, kerr.UnknownMemberID
	case old.id != r.MemberID:
		return nil, false, kerr.FencedInstanceID
	}
	return old, old.classic == nil, nil
}

// classicMember finds the member that a request of the classic protocol names.
// One without an id is unknown, as in classicGroup.check.
func (g *consumerGroup) classicMember(id string, instance *string, generation int32) (*consumerMember, *kerr.Error) {
	if instance != nil && id != "" {
		switch current, ok := g.static[*instance]; {
		case !ok:
			return nil, kerr.UnknownMemberID
		case current != id:
			return nil, kerr.FencedInstanceID
		}
	}
	m := g.members[id]
	switch {
	case m == nil || m.classic == nil:
		return nil, kerr.UnknownMemberID
	case m.epoch != generation:
		return nil, kerr.IllegalGeneration
	}
	return m, nil
}

// consumerSync handles a SyncGroup to a group that has a consumerGroup.
func (c *Coordinator) consumerSync(now int64, g *groupState, call *Call, r *kmsg.SyncGroupRequest) {
	m, err := g.consumer.classicMember(r.MemberID, r.InstanceID, r.Generation)
	switch {
	case err != nil:
		c.fail(call, err)
		return
	case r.ProtocolType != nil && *r.ProtocolType != consumerProtocolType,
		r.Protocol != nil && *r.Protocol != m.classic.protocols[0].name:
		c.fail(call, kerr.InconsistentGroupProtocol)
		return
	case c.outdated(now, g, m) && m.state != memberUnrevoked:
		// One that is to give up hears of it now, and joins again by itself.
		c.expectJoin(now, g.name, m)
		c.fail(call, kerr.RebalanceInProgress)
		return
	}
	c.timers.cancel(classicTimer("sync", g.name, m.id))
	c.extendSession(now, g.name, m)
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.ProtocolType, resp.Protocol = r.ProtocolType, r.Protocol
	resp.MemberAssignment = c.classicAssignment(m, m.assigned)
	c.reply(call, resp)
}

// consumerClassicHeartbeat handles a Heartbeat to a group that has a consumerGroup.
func (c *Coordinator) consumerClassicHeartbeat(now int64, g *groupState, call *Call, r *kmsg.HeartbeatRequest) {
	cg := g.consumer
	m, err := cg.classicMember(r.MemberID, r.InstanceID, r.Generation)
	if err != nil {
		c.fail(call, err)
		return
	}
	c.extendSession(now, g.name, m)
	resp := kmsg.NewPtrHeartbeatResponse()
	if c.outdated(now, g, m) || m.state == memberUnrevoked || m.state == memberUnreleased && !c.waits(cg, m) {
		resp.ErrorCode = kerr.RebalanceInProgress.Code
		c.expectJoin(now, g.name, m)
	}
	c.reply(call, resp)
}

// outdated tells whether joining again takes a member to another epoch: there is
// a target of a later one. Where there is none yet, who beats in the new protocol
// makes it, as in Kafka; while nobody does, a member of the classic protocol must,
// by joining, or there would never be one. If it cannot be made yet, members
// would do nothing but join.
func (c *Coordinator) outdated(now int64, g *groupState, m *consumerMember) bool {
	cg := g.consumer
	return m.epoch < cg.targetEpoch || m.epoch < cg.epoch && !cg.someoneBeats() && !c.mustWait(now, g, cg)
}

// someoneBeats tells whether the group has a member that uses the new protocol
// and is not away.
func (g *consumerGroup) someoneBeats() bool {
	for _, m := range g.members {
		if m.classic == nil && m.epoch != epochLeaveStatic {
			return true
		}
	}
	return false
}

// waits tells whether somebody else still has what a member is to get.
func (c *Coordinator) waits(cg *consumerGroup, m *consumerMember) bool {
	return slices.ContainsFunc(c.targetOf(cg, m), func(p partition) bool {
		o := cg.owner[p]
		return o != nil && o != m
	})
}

// consumerLeave handles a LeaveGroup to a group that has a consumerGroup. An
// administrator may remove members of both protocols, static ones by instance.
func (c *Coordinator) consumerLeave(now int64, g *groupState, call *Call, r *kmsg.LeaveGroupRequest) {
	members := r.Members
	if r.Version < 3 {
		only := kmsg.NewLeaveGroupRequestMember()
		only.MemberID = r.MemberID
		members = []kmsg.LeaveGroupRequestMember{only}
	}
	resp := kmsg.NewPtrLeaveGroupResponse()
	var leaving []*consumerMember
	for _, l := range members {
		out := kmsg.NewLeaveGroupResponseMember()
		out.MemberID, out.InstanceID = l.MemberID, l.InstanceID
		m, err := g.consumer.leaver(l)
		switch {
		case err != nil:
			out.ErrorCode = err.Code
		case !slices.Contains(leaving, m):
			leaving = append(leaving, m)
		}
		resp.Members = append(resp.Members, out)
	}
	if r.Version < 3 {
		resp.ErrorCode, resp.Members = resp.Members[0].ErrorCode, nil
	}
	c.reply(call, resp)
	c.removeMembers(now, g, leaving)
}

func (g *consumerGroup) leaver(l kmsg.LeaveGroupRequestMember) (*consumerMember, *kerr.Error) {
	id := l.MemberID
	if l.InstanceID != nil {
		current, ok := g.static[*l.InstanceID]
		switch {
		case !ok:
			return nil, kerr.UnknownMemberID
		case id != "" && id != current:
			return nil, kerr.FencedInstanceID
		}
		id = current
	}
	if m := g.members[id]; m != nil {
		return m, nil
	}
	return nil, kerr.UnknownMemberID
}
