package group

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// formStatic makes a stable group of static members i0, i1, …
func (r *rig) formStatic(group string, instances ...string) (ids []string, generation int32) {
	r.t.Helper()
	var joins []*answer
	for _, i := range instances {
		joins = append(joins, r.send(static(joinReq(group, ""), i)))
	}
	r.pass(r.o.InitialRebalanceDelay * 2)
	for _, a := range joins {
		resp := get[*kmsg.JoinGroupResponse](r, a)
		r.code("join", resp.ErrorCode, nil)
		ids, generation = append(ids, resp.MemberID), resp.Generation
	}
	r.assign(group, generation, ids...)
	return ids, generation
}

func instanceHeartbeat(group, member, instance string, generation int32) *kmsg.HeartbeatRequest {
	req := heartbeatReq(group, member, generation)
	req.InstanceID = &instance
	return req
}

func TestAStaticMemberComesBackWithoutARebalance(t *testing.T) {
	r := newRig(t)
	ids, gen := r.formStatic("g", "i0", "i1")
	resp := r.join(static(joinReq("g", ""), "i1"), nil)
	if resp.Generation != gen || resp.MemberID == ids[1] || resp.LeaderID != ids[0] || resp.SkipAssignment || len(resp.Members) != 0 {
		t.Fatalf("%+v", resp)
	}
	hb := func(member string) int16 {
		return get[*kmsg.HeartbeatResponse](r, r.send(instanceHeartbeat("g", member, "i1", gen))).ErrorCode
	}
	r.code("the old id", hb(ids[1]), kerr.FencedInstanceID)
	r.code("the new id", hb(resp.MemberID), nil)
	r.commit("g", ids[1], gen, "a", 1, kerr.UnknownMemberID)
	old := commitReq("g", ids[1], gen, "a", 0, 1)
	old.InstanceID = ptr("i1")
	r.code("commit", get[*kmsg.OffsetCommitResponse](r, r.send(old)).Topics[0].Partitions[0].ErrorCode, kerr.FencedInstanceID)
	sync := get[*kmsg.SyncGroupResponse](r, r.send(syncReq("g", resp.MemberID, gen)))
	if string(sync.MemberAssignment) != "for "+ids[1] {
		t.Fatalf("it has the assignment %q", sync.MemberAssignment)
	}
	r.reload()
	r.code("the old id after a change of leader", hb(ids[1]), kerr.FencedInstanceID)
	r.code("the new id after a change of leader", hb(resp.MemberID), nil)
	r.join(static(joinReq("g", ids[1]), "i1"), kerr.FencedInstanceID)
	r.join(static(joinReq("g", ids[1]), "i2"), kerr.UnknownMemberID)
}

// TestAStaticMemberWithoutItsIDJoinsAgain: what librdkafka sends after its
// session ended by its own clock is no reason to end it for good.
func TestAStaticMemberWithoutItsIDJoinsAgain(t *testing.T) {
	r := newRig(t)
	ids, gen := r.formStatic("g", "i0", "i1")
	hb := get[*kmsg.HeartbeatResponse](r, r.send(instanceHeartbeat("g", "", "i1", gen))).ErrorCode
	r.code("heartbeat", hb, kerr.UnknownMemberID)
	commit := commitReq("g", "", gen, "a", 0, 1)
	commit.InstanceID = ptr("i1")
	r.code("commit", get[*kmsg.OffsetCommitResponse](r, r.send(commit)).Topics[0].Partitions[0].ErrorCode, kerr.UnknownMemberID)
	if resp := r.join(static(joinReq("g", ""), "i1"), nil); resp.Generation != gen || resp.MemberID == ids[1] {
		t.Fatalf("joined again: %+v", resp)
	}
}

func TestAStaticLeaderThatComesBackMustNotAssign(t *testing.T) {
	r := newRig(t)
	ids, gen := r.formStatic("g", "i0", "i1")
	resp := r.join(static(joinReq("g", ""), "i0"), nil)
	if resp.Generation != gen || resp.LeaderID != resp.MemberID || !resp.SkipAssignment || len(resp.Members) != 2 {
		t.Fatalf("version 9: %+v", resp)
	}
	leader := resp.MemberID
	resp = r.join(atVersion(static(joinReq("g", ""), "i0"), 8), nil)
	if resp.LeaderID != leader || resp.MemberID == leader || resp.SkipAssignment || len(resp.Members) != 0 {
		t.Fatalf("version 8: %+v", resp)
	}
	r.heartbeat("g", ids[1], gen, nil)
}

func TestAStaticMemberWithAnotherProtocolRebalances(t *testing.T) {
	r := newRig(t)
	var joins []*answer
	for _, i := range []string{"i0", "i1"} {
		joins = append(joins, r.send(static(joinReq("g", "", "range", "cooperative"), i)))
	}
	r.pass(6000)
	one := get[*kmsg.JoinGroupResponse](r, joins[0])
	r.assign("g", 1, one.MemberID, get[*kmsg.JoinGroupResponse](r, joins[1]).MemberID)
	a := r.send(static(joinReq("g", "", "cooperative"), "i1"))
	r.waits(a)
	r.heartbeat("g", one.MemberID, 1, kerr.RebalanceInProgress)
	resp := r.join(static(joinReq("g", one.MemberID, "range", "cooperative"), "i0"), nil)
	if *resp.Protocol != "cooperative" || resp.Generation != 2 {
		t.Fatalf("%+v", resp)
	}
	get[*kmsg.JoinGroupResponse](r, a)
}

func TestAStaticMemberFencesOneThatWaits(t *testing.T) {
	r := newRig(t)
	ids, gen := r.formStatic("g", "i0", "i1")
	waiting := r.send(static(joinReq("g", ids[0]), "i0"))
	r.waits(waiting)
	instead := r.send(static(joinReq("g", ""), "i0"))
	r.code("join", get[*kmsg.JoinGroupResponse](r, waiting).ErrorCode, kerr.FencedInstanceID)
	b := r.send(static(joinReq("g", ids[1]), "i1"))
	gen = get[*kmsg.JoinGroupResponse](r, b).Generation
	leader := get[*kmsg.JoinGroupResponse](r, instead)
	if leader.LeaderID != leader.MemberID || gen != 2 {
		t.Fatalf("%+v", leader)
	}
	// While the assignment is awaited, a new id needs a new generation.
	waiting = r.send(syncReq("g", ids[1], gen))
	again := r.send(static(joinReq("g", ""), "i1"))
	r.code("sync", get[*kmsg.SyncGroupResponse](r, waiting).ErrorCode, kerr.FencedInstanceID)
	r.waits(again)
	r.heartbeat("g", leader.MemberID, gen, kerr.RebalanceInProgress)
}

func TestStaticMembersSurviveARebalanceTheyMiss(t *testing.T) {
	r := newRig(t)
	ids, gen := r.formStatic("g", "i0", "i1")
	a := r.send(static(joinReq("g", ids[0]), "i0"))
	for range 12 {
		r.waits(a)
		r.code("heartbeat", get[*kmsg.HeartbeatResponse](r, r.send(instanceHeartbeat("g", ids[1], "i1", gen))).ErrorCode, kerr.RebalanceInProgress)
		r.pass(5000)
	}
	resp := get[*kmsg.JoinGroupResponse](r, a)
	if len(resp.Members) != 2 || *resp.Members[1].InstanceID != "i1" {
		t.Fatalf("%+v", resp)
	}
}

func TestStaticMembersThatAllStayAwayEndWithTheirSessions(t *testing.T) {
	r := newRig(t)
	ids, _ := r.formStatic("g", "i0", "i1")
	r.send(static(joinReq("g", ids[0]), "i0"))
	get[*kmsg.LeaveGroupResponse](r, r.send(leaveReq("g", ids[0])))
	r.pass(130_000)
	r.state("g", "Empty")
}

func TestAnAdministratorRemovesStaticMembers(t *testing.T) {
	r := newRig(t)
	ids, gen := r.formStatic("g", "i0", "i1", "i2")
	req := leaveReq("g", "", ids[0], "")
	i1, i2, no := "i1", "i2", "no"
	req.Members[0].InstanceID, req.Members[1].InstanceID, req.Members[2].InstanceID = &i1, &i2, &no
	resp := get[*kmsg.LeaveGroupResponse](r, r.send(req))
	r.code("by instance", resp.Members[0].ErrorCode, nil)
	r.code("another's id", resp.Members[1].ErrorCode, kerr.FencedInstanceID)
	r.code("unknown instance", resp.Members[2].ErrorCode, kerr.UnknownMemberID)
	r.heartbeat("g", ids[1], gen, kerr.UnknownMemberID)
	r.heartbeat("g", ids[0], gen, kerr.RebalanceInProgress)
}
