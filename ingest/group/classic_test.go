package group

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAGroupForms(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 3)
	if gen != 1 {
		t.Fatalf("the first generation is %d, expected 1", gen)
	}
	for _, id := range ids {
		r.heartbeat("g", id, 1, nil)
	}
	r.heartbeat("g", ids[0], 2, kerr.IllegalGeneration)
	r.heartbeat("g", "nobody", 1, kerr.UnknownMemberID)
	r.heartbeat("other", ids[0], 1, kerr.UnknownMemberID)
	r.heartbeat("", ids[0], 1, kerr.InvalidGroupID)
	d := r.describe("g")
	if d.State != "Stable" || d.Protocol != "range" || d.ProtocolType != "consumer" || len(d.Members) != 3 || string(d.Members[1].MemberAssignment) != "for "+ids[1] || d.Members[0].ClientHost != "/10.0.0.1" {
		t.Fatalf("described as %+v", d)
	}
}

func TestMemberIDIsRequiredFromVersion4(t *testing.T) {
	r := newRig(t)
	for v := int16(0); v <= 3; v++ {
		g := fmt.Sprint("g", v)
		a := r.send(atVersion(joinReq(g, ""), v))
		r.waits(a)
		r.pass(6000)
		resp := get[*kmsg.JoinGroupResponse](r, a)
		if resp.ErrorCode != 0 || resp.Generation != 1 || resp.MemberID != resp.LeaderID || len(resp.Members) != 1 {
			t.Fatalf("version %d: %+v", v, resp)
		}
	}
	for v := int16(4); v <= 9; v++ {
		g := fmt.Sprint("g", v)
		resp := r.join(atVersion(joinReq(g, ""), v), kerr.MemberIDRequired)
		if !strings.HasPrefix(resp.MemberID, "client-") {
			t.Fatalf("version %d: the member is given the id %q", v, resp.MemberID)
		}
		r.waits(r.send(atVersion(joinReq(g, resp.MemberID), v)))
	}
	r.join(joinReq("g9", "unheard of"), kerr.UnknownMemberID)
	r.join(joinReq("nowhere", "unheard of"), kerr.UnknownMemberID)
	if r.c.group("nowhere") != nil {
		t.Fatal("a refused join left a group")
	}
}

func TestPendingMembersAreTimedOutAndBounded(t *testing.T) {
	r := newRig(t)
	r.o.MaxSize = 2
	r.c.Configure(r.o)
	a, b := r.id("g"), r.id("g")
	r.join(joinReq("g", ""), kerr.GroupMaxSizeReached)
	r.pass(5000)
	r.waits(r.send(joinReq("g", a)))
	r.pass(5001) // b's ten seconds are over
	r.join(joinReq("g", b), kerr.UnknownMemberID)
	r.id("g")
	other := r.id("h")
	r.pass(20_000)
	r.join(joinReq("h", other), kerr.UnknownMemberID)
	if r.c.pending != 0 {
		t.Fatalf("%d pending", r.c.pending)
	}
	r.emptyUntilNextLook("h")
}

func TestAPendingMemberHoldsUpARebalanceUntilItsTime(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 1)
	r.id("g") // never comes back
	a := r.send(joinReq("g", ids[0]))
	r.waits(a)
	r.pass(10_000)
	if resp := get[*kmsg.JoinGroupResponse](r, a); resp.Generation != gen+1 {
		t.Fatalf("%+v", resp)
	}
}

func TestInitialDelayIsExtended(t *testing.T) {
	r := newRig(t)
	first := r.send(atVersion(joinReq("g", ""), 3))
	r.pass(2000)
	second := r.send(atVersion(joinReq("g", ""), 3))
	r.pass(2000) // 4 s: the delay began anew at 3 s
	third := r.send(atVersion(joinReq("g", ""), 3))
	r.pass(1999)
	r.waits(first)
	r.pass(3001) // 9 s: at 6 s it began once more, for the third
	for _, a := range []*answer{first, second, third} {
		if resp := get[*kmsg.JoinGroupResponse](r, a); resp.Generation != 1 {
			t.Fatalf("%+v", resp)
		}
	}
}

func TestInitialDelayEndsWithTheRebalanceTimeout(t *testing.T) {
	r := newRig(t)
	join := func() *answer {
		req := atVersion(joinReq("g", ""), 3)
		req.RebalanceTimeoutMillis = 7000
		return r.send(req)
	}
	first := join()
	for range 6 {
		r.pass(1000)
		join()
	}
	r.waits(first)
	r.pass(1000)
	get[*kmsg.JoinGroupResponse](r, first)
}

func TestSessionTimeoutsAreBounded(t *testing.T) {
	r := newRig(t)
	for _, ms := range []int32{5999, 1_800_001, -1, 0} {
		req := joinReq("g", "")
		req.SessionTimeoutMillis = ms
		r.join(req, kerr.InvalidSessionTimeout)
	}
	r.join(joinReq("", ""), kerr.InvalidGroupID)
	r.join(joinReq(strings.Repeat("x", groupNameMax+1), ""), kerr.InvalidGroupID)
	req := joinReq("g", "")
	req.Protocols = nil
	r.join(req, kerr.InconsistentGroupProtocol)
	req = joinReq("g", "")
	req.ProtocolType = ""
	r.join(req, kerr.InconsistentGroupProtocol)
	r.emptyUntilNextLook("g")
}

func TestProtocolIsVotedFor(t *testing.T) {
	r := newRig(t)
	r.join(joinReq("g", "", "x"), kerr.MemberIDRequired)
	one := r.send(atVersion(joinReq("g", "", "cooperative", "range"), 3))
	two := r.send(atVersion(joinReq("g", "", "range", "cooperative", "old"), 3))
	three := r.send(atVersion(joinReq("g", "", "range", "cooperative"), 3))
	r.join(atVersion(joinReq("g", "", "old"), 3), kerr.InconsistentGroupProtocol)
	other := joinReq("g", "", "range")
	other.ProtocolType = "connect"
	r.join(other, kerr.InconsistentGroupProtocol)
	r.pass(10_000)
	for _, a := range []*answer{one, two, three} {
		if resp := get[*kmsg.JoinGroupResponse](r, a); *resp.Protocol != "range" || *resp.ProtocolType != "consumer" {
			t.Fatalf("%+v", resp)
		}
	}
	leader := get[*kmsg.JoinGroupResponse](r, one)
	if len(leader.Members) != 3 || string(leader.Members[0].ProtocolMetadata) != string(subscription("a")) {
		t.Fatalf("the leader is told %+v", leader.Members)
	}
}

func TestANewMemberRebalances(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 2)
	c := r.id("g")
	r.heartbeat("g", ids[0], gen, nil)
	third := r.send(joinReq("g", c))
	r.state("g", "PreparingRebalance")
	r.heartbeat("g", ids[0], gen, kerr.RebalanceInProgress)
	r.code("sync", get[*kmsg.SyncGroupResponse](r, r.send(syncReq("g", ids[1], gen))).ErrorCode, kerr.RebalanceInProgress)
	r.commit("g", ids[0], gen, "a", 5, nil) // it may commit what it did before it joins
	one := r.send(joinReq("g", ids[0]))
	r.waits(third)
	two := r.send(joinReq("g", ids[1]))
	for _, a := range []*answer{one, two, third} {
		if resp := get[*kmsg.JoinGroupResponse](r, a); resp.Generation != gen+1 || resp.LeaderID != ids[0] {
			t.Fatalf("%+v", resp)
		}
	}
	r.commit("g", ids[0], gen, "a", 6, kerr.IllegalGeneration)
	r.commit("g", ids[0], gen+1, "a", 6, kerr.RebalanceInProgress)
	r.heartbeat("g", ids[1], gen+1, nil)
	r.assign("g", gen+1, ids[0], ids[1], c)
	r.commit("g", c, gen+1, "a", 7, nil)
}

func TestWhoDoesNotRejoinIsOut(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 3)
	// The leader keeps its session, but does not join.
	a := r.send(joinReq("g", r.id("g")))
	b := r.send(joinReq("g", ids[1]))
	for range 12 {
		r.waits(a)
		r.heartbeat("g", ids[0], gen, kerr.RebalanceInProgress)
		r.pass(5000)
	}
	if resp := get[*kmsg.JoinGroupResponse](r, b); resp.Generation != gen+1 || resp.LeaderID != ids[1] || len(resp.Members) != 2 {
		t.Fatalf("%+v", resp)
	}
	r.heartbeat("g", ids[0], gen, kerr.UnknownMemberID)
	r.heartbeat("g", ids[2], gen, kerr.UnknownMemberID)
}

func TestSilenceEndsASession(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 2)
	r.pass(6000)
	r.heartbeat("g", ids[0], gen, nil)
	r.pass(6000)
	r.heartbeat("g", ids[1], gen, kerr.UnknownMemberID)
	r.heartbeat("g", ids[0], gen, kerr.RebalanceInProgress)
	resp := r.join(joinReq("g", ids[0]), nil)
	if resp.Generation != gen+1 || len(resp.Members) != 1 {
		t.Fatalf("%+v", resp)
	}
	r.assign("g", gen+1, ids[0])
	r.pass(10_000)
	r.state("g", "Empty")
	if g := r.c.group("g").classic; g.generation != gen+2 {
		t.Fatalf("the empty generation is %d, expected %d", g.generation, gen+2)
	}
}

func TestCommitsKeepASession(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 1)
	for i := range int64(5) {
		r.pass(9000)
		r.commit("g", ids[0], gen, "a", i, nil)
	}
	r.heartbeat("g", ids[0], gen, nil)
}

func TestWhoDoesNotSyncIsOut(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 2)
	b := r.send(joinReq("g", ids[1]))
	a := r.send(joinReq("g", ids[0]))
	if resp := get[*kmsg.JoinGroupResponse](r, b); resp.Generation != gen {
		t.Fatalf("a follower that changes nothing is told %+v", resp)
	}
	r.waits(a)
	b = r.send(joinReq("g", ids[1]))
	gen = get[*kmsg.JoinGroupResponse](r, a).Generation
	get[*kmsg.JoinGroupResponse](r, b)
	s := r.send(syncReq("g", ids[1], gen))
	for range 12 {
		r.waits(s)
		r.heartbeat("g", ids[0], gen, nil) // the leader is alive, but assigns nothing
		r.pass(5000)
	}
	r.code("sync", get[*kmsg.SyncGroupResponse](r, s).ErrorCode, kerr.RebalanceInProgress)
	r.heartbeat("g", ids[0], gen, kerr.UnknownMemberID)
	if resp := r.join(joinReq("g", ids[1]), nil); resp.Generation != gen+1 || resp.LeaderID != ids[1] {
		t.Fatalf("%+v", resp)
	}
}

func TestALeaderThatJoinsRebalances(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 2)
	a := r.send(joinReq("g", ids[0]))
	r.waits(a)
	r.heartbeat("g", ids[1], gen, kerr.RebalanceInProgress)
	b := r.send(joinReq("g", ids[1]))
	get[*kmsg.JoinGroupResponse](r, a)
	get[*kmsg.JoinGroupResponse](r, b)
	// The answer was lost: it is told the same once more, without a rebalance.
	again := r.join(joinReq("g", ids[0]), nil)
	if again.Generation != gen+1 || len(again.Members) != 2 {
		t.Fatalf("%+v", again)
	}
	r.assign("g", gen+1, ids...)
	// Another subscription of a follower rebalances as well.
	req := joinReq("g", ids[1])
	req.Protocols[0].Metadata = subscription("a", "b")
	r.waits(r.send(req))
	r.heartbeat("g", ids[0], gen+1, kerr.RebalanceInProgress)
}

func TestASyncIsCheckedAgainstTheProtocol(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 1)
	code := func(req *kmsg.SyncGroupRequest) int16 {
		return get[*kmsg.SyncGroupResponse](r, r.send(req)).ErrorCode
	}
	wrong := "connect"
	req := syncReq("g", ids[0], gen)
	req.ProtocolType = &wrong
	r.code("type", code(req), kerr.InconsistentGroupProtocol)
	req = syncReq("g", ids[0], gen)
	req.Protocol = &wrong
	r.code("protocol", code(req), kerr.InconsistentGroupProtocol)
	req = syncReq("g", ids[0], gen)
	req.Protocol = nil
	r.code("none", code(req), kerr.InconsistentGroupProtocol)
	req.Version = 4
	req.ProtocolType = nil
	r.code("version 4", code(req), nil)
	r.code("generation", code(syncReq("g", ids[0], gen+1)), kerr.IllegalGeneration)
	r.code("member", code(syncReq("g", "nobody", gen)), kerr.UnknownMemberID)
	r.code("group", code(syncReq("h", ids[0], gen)), kerr.UnknownMemberID)
	resp := get[*kmsg.SyncGroupResponse](r, r.send(syncReq("g", ids[0], gen)))
	if string(resp.MemberAssignment) != "for "+ids[0] || *resp.Protocol != "range" {
		t.Fatalf("a sync in a stable group is told %+v", resp)
	}
}

func TestLeaving(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 3)
	resp := get[*kmsg.LeaveGroupResponse](r, r.send(leaveReq("g", ids[2], "nobody")))
	r.code("all", resp.ErrorCode, nil)
	r.code("first", resp.Members[0].ErrorCode, nil)
	r.code("second", resp.Members[1].ErrorCode, kerr.UnknownMemberID)
	r.heartbeat("g", ids[2], gen, kerr.UnknownMemberID)
	r.heartbeat("g", ids[0], gen, kerr.RebalanceInProgress)
	old := leaveReq("g")
	old.Version, old.MemberID = 1, ids[1]
	r.code("version 1", get[*kmsg.LeaveGroupResponse](r, r.send(old)).ErrorCode, nil)
	r.code("again", get[*kmsg.LeaveGroupResponse](r, r.send(old)).ErrorCode, kerr.UnknownMemberID)
	if resp := r.join(joinReq("g", ids[0]), nil); resp.Generation != gen+1 {
		t.Fatalf("%+v", resp)
	}
	get[*kmsg.LeaveGroupResponse](r, r.send(leaveReq("g", ids[0])))
	r.state("g", "Empty")
	pending := r.id("g")
	r.code("pending", get[*kmsg.LeaveGroupResponse](r, r.send(leaveReq("g", pending))).Members[0].ErrorCode, nil)
	unknown := get[*kmsg.LeaveGroupResponse](r, r.send(leaveReq("h", "x")))
	r.code("unknown group", unknown.Members[0].ErrorCode, kerr.UnknownMemberID)
}

func TestGroupSizeIsBounded(t *testing.T) {
	r := newRig(t)
	r.o.MaxSize = 2
	r.c.Configure(r.o)
	ids, gen := r.form("g", 2)
	r.join(joinReq("g", ""), kerr.GroupMaxSizeReached)
	a := r.send(joinReq("g", ids[0]))
	b := r.send(joinReq("g", ids[1]))
	get[*kmsg.JoinGroupResponse](r, a)
	get[*kmsg.JoinGroupResponse](r, b)
	r.assign("g", gen+1, ids...)
	// The bound is lowered: the last to rejoin is refused.
	r.o.MaxSize = 1
	r.reload()
	r.heartbeat("g", ids[0], gen+1, kerr.RebalanceInProgress)
	a = r.send(joinReq("g", ids[1]))
	r.join(joinReq("g", ids[0]), kerr.GroupMaxSizeReached)
	if resp := get[*kmsg.JoinGroupResponse](r, a); resp.LeaderID != ids[1] || resp.Generation != gen+2 {
		t.Fatalf("%+v", resp)
	}
}

func TestGroupBytesAreBounded(t *testing.T) {
	r := newRig(t)
	r.o.MaxGroupBytes = 2000
	r.c.Configure(r.o)
	ids, gen := r.form("g", 2)
	big := joinReq("g", "")
	big = joinReq("g", r.join(big, kerr.MemberIDRequired).MemberID)
	big.Protocols[0].Metadata = make([]byte, 2000)
	r.join(big, kerr.GroupMaxSizeReached)
	big = joinReq("g", ids[1])
	big.Protocols[0].Metadata = make([]byte, 2000)
	r.join(big, kerr.GroupMaxSizeReached)
	r.heartbeat("g", ids[1], gen, nil)
	get[*kmsg.LeaveGroupResponse](r, r.send(leaveReq("g", ids[1])))
	if r.pass(11_000); r.c.group("g").classic.bytes > 2000 {
		t.Fatal("the group grew over its bound")
	}
}

func TestAnAssignmentTooLargeIsRefused(t *testing.T) {
	r := newRig(t)
	r.o.MaxGroupBytes = 2000
	r.c.Configure(r.o)
	ids, gen := r.form("g", 2)
	a, b := r.send(joinReq("g", ids[0])), r.send(joinReq("g", ids[1]))
	get[*kmsg.JoinGroupResponse](r, a)
	get[*kmsg.JoinGroupResponse](r, b)
	follower := r.send(syncReq("g", ids[1], gen+1))
	req := assigning(syncReq("g", ids[0], gen+1), ids[1])
	req.GroupAssignment[0].MemberAssignment = make([]byte, 2001)
	r.code("leader", get[*kmsg.SyncGroupResponse](r, r.send(req)).ErrorCode, kerr.UnknownServerError)
	r.code("follower", get[*kmsg.SyncGroupResponse](r, follower).ErrorCode, kerr.UnknownServerError)
	r.heartbeat("g", ids[1], gen+1, kerr.RebalanceInProgress)
}

func TestACallThatIsRepeatedAnswersTheFirst(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 2)
	first := r.send(joinReq("g", ids[0]))
	second := r.send(joinReq("g", ids[0]))
	r.code("first", get[*kmsg.JoinGroupResponse](r, first).ErrorCode, kerr.RebalanceInProgress)
	b := r.send(joinReq("g", ids[1]))
	get[*kmsg.JoinGroupResponse](r, second)
	get[*kmsg.JoinGroupResponse](r, b)
	first = r.send(syncReq("g", ids[1], gen+1))
	second = r.send(syncReq("g", ids[1], gen+1))
	r.code("first", get[*kmsg.SyncGroupResponse](r, first).ErrorCode, kerr.RebalanceInProgress)
	r.waits(second)
	r.send(assigning(syncReq("g", ids[0], gen+1), ids...))
	r.code("second", get[*kmsg.SyncGroupResponse](r, second).ErrorCode, nil)
}
