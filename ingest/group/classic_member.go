package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sync handles SyncGroup.
//
//	v3: instance id   v5: protocol type and name are checked (KIP-559)
func (c *Coordinator) sync(now int64, call *Call, r *kmsg.SyncGroupRequest) {
	if r.Version >= 5 && (r.ProtocolType == nil || r.Protocol == nil) {
		c.fail(call, kerr.InconsistentGroupProtocol)
		return
	}
	if err := checkName(r.Group); err != nil {
		c.fail(call, err)
		return
	}
	g := c.group(r.Group)
	if g != nil && g.consumer != nil {
		c.consumerSync(now, g, call, r)
		return
	}
	if g == nil || g.classic == nil || g.classic.state == stateEmpty {
		c.fail(call, kerr.UnknownMemberID)
		return
	}
	cg := g.classic
	m, err := cg.checkSync(r)
	if err != nil {
		c.fail(call, err)
		return
	}
	switch cg.state {
	case statePreparing:
		c.fail(call, kerr.RebalanceInProgress)
	case stateStable:
		c.synced(g, m)
		c.reply(call, cg.assigned(m))
	case stateCompleting:
		c.synced(g, m)
		// One that waits already has lost its connection.
		c.answerSync(m, syncError(kerr.RebalanceInProgress))
		m.sync = call
		if c.bugs.AnswerOldAssignment {
			c.answerSync(m, cg.assigned(m))
		}
		if cg.leader == m.id {
			c.takeAssignment(now, g, r)
		}
	}
}

func (g *classicGroup) checkSync(r *kmsg.SyncGroupRequest) (*member, *kerr.Error) {
	m, err := g.check(r.MemberID, r.InstanceID)
	switch {
	case err != nil:
		return nil, err
	case r.Generation != g.generation:
		return nil, kerr.IllegalGeneration
	case r.ProtocolType != nil && *r.ProtocolType != g.protocolType,
		r.Protocol != nil && *r.Protocol != g.protocol:
		return nil, kerr.InconsistentGroupProtocol
	}
	return m, nil
}

// takeAssignment makes the leader's assignment the group's.
func (c *Coordinator) takeAssignment(now int64, g *groupState, r *kmsg.SyncGroupRequest) {
	cg := g.classic
	given := make(map[string][]byte, len(r.GroupAssignment))
	size := cg.bytes
	for _, a := range r.GroupAssignment {
		if m := cg.members[a.MemberID]; m != nil {
			given[a.MemberID] = a.MemberAssignment
		}
	}
	for _, m := range cg.order {
		size += len(given[m.id]) - len(m.assignment)
	}
	if size > c.o.MaxGroupBytes {
		// What Kafka says when the record is too large for its log.
		c.resetAssignment(now, g, kerr.UnknownServerError)
		c.rebalance(now, g)
		return
	}
	for _, m := range cg.order {
		cg.assign(m, slices.Clone(given[m.id]))
	}
	cg.enter(now, stateStable)
	c.storeAll(g)
	for _, m := range cg.order {
		if m.sync != nil {
			c.answerSync(m, cg.assigned(m))
			c.touch(now, g, m)
		}
	}
}

// assigned is the answer to a member's sync.
func (g *classicGroup) assigned(m *member) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	protocolType, protocol := g.protocolType, g.protocol
	resp.ProtocolType, resp.Protocol = &protocolType, &protocol
	resp.MemberAssignment = append([]byte{}, m.assignment...)
	return resp
}

func syncError(err *kerr.Error) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.ErrorCode = err.Code
	return resp
}

// heartbeat handles Heartbeat.
//
//	v3: instance id
func (c *Coordinator) heartbeat(now int64, call *Call, r *kmsg.HeartbeatRequest) {
	if err := checkName(r.Group); err != nil {
		c.fail(call, err)
		return
	}
	g := c.group(r.Group)
	if g != nil && g.consumer != nil {
		c.consumerClassicHeartbeat(now, g, call, r)
		return
	}
	if g == nil || g.classic == nil {
		c.fail(call, kerr.UnknownMemberID)
		return
	}
	m, err := g.classic.check(r.MemberID, r.InstanceID)
	switch {
	case err != nil:
		c.fail(call, err)
		return
	case r.Generation != g.classic.generation:
		c.fail(call, kerr.IllegalGeneration)
		return
	}
	c.touch(now, g, m)
	resp := kmsg.NewPtrHeartbeatResponse()
	if g.classic.state == statePreparing {
		resp.ErrorCode = kerr.RebalanceInProgress.Code
	}
	c.reply(call, resp)
}

// leave handles LeaveGroup.
//
//	v3: several members, by member or instance id   v5: a reason
func (c *Coordinator) leave(now int64, call *Call, r *kmsg.LeaveGroupRequest) {
	if err := checkName(r.Group); err != nil {
		c.fail(call, err)
		return
	}
	g := c.group(r.Group)
	if g != nil && g.consumer != nil {
		c.consumerLeave(now, g, call, r)
		return
	}
	members := r.Members
	if r.Version < 3 {
		only := kmsg.NewLeaveGroupRequestMember()
		only.MemberID = r.MemberID
		members = []kmsg.LeaveGroupRequestMember{only}
	}
	resp := kmsg.NewPtrLeaveGroupResponse()
	gone, changed := false, false
	for _, l := range members {
		out := kmsg.NewLeaveGroupResponseMember()
		out.MemberID, out.InstanceID = l.MemberID, l.InstanceID
		was, err := c.leaveOne(g, l)
		if err != nil {
			out.ErrorCode = err.Code
		}
		gone, changed = gone || was, changed || err == nil
		resp.Members = append(resp.Members, out)
	}
	if r.Version < 3 {
		resp.ErrorCode, resp.Members = resp.Members[0].ErrorCode, nil
	}
	c.reply(call, resp)
	switch {
	case gone:
		c.left(now, g)
	case changed:
		c.maybeCompleteJoin(now, g)
		c.tidy(g)
	}
}

// leaveOne lets one member go, and tells whether it was one, or only an id
// that was given out. An administrator names static members by instance alone.
func (c *Coordinator) leaveOne(g *groupState, l kmsg.LeaveGroupRequestMember) (bool, *kerr.Error) {
	if g == nil || g.classic == nil {
		return false, kerr.UnknownMemberID
	}
	cg := g.classic
	id := l.MemberID
	if id == "" && l.InstanceID != nil {
		id = cg.static[*l.InstanceID]
	}
	if cg.pending[id] {
		c.forgetPending(g, id)
		return false, nil
	}
	m, err := cg.check(id, l.InstanceID)
	if err != nil {
		return false, err
	}
	c.removeMember(g, m, kerr.UnknownMemberID)
	return true, nil
}
