package group

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func ptr[T any](v T) *T { return &v }

func TestAChangeOfLeaderIsNotNoticed(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 3)
	r.commit("g", ids[0], gen, "a", 7, nil)
	r.pass(9000)
	r.reload()
	r.pass(9000) // sessions began anew
	for _, id := range ids {
		r.heartbeat("g", id, gen, nil)
	}
	r.commit("g", ids[1], gen, "a", 8, nil)
	if got := r.fetch("g", "a"); got != 8 {
		t.Fatalf("fetched %d", got)
	}
	d := r.describe("g")
	if d.State != "Stable" || string(d.Members[2].MemberAssignment) != "for "+ids[2] {
		t.Fatalf("%+v", d)
	}
	// The leader is known, and who leads may rebalance.
	r.waits(r.send(joinReq("g", ids[0])))
	r.reload()
	r.heartbeat("g", ids[1], gen, kerr.RebalanceInProgress)
}

func TestAChangeOfLeaderDuringARebalance(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 2)
	a := r.send(joinReq("g", ids[0]))
	r.reload()
	r.code("join", get[*kmsg.JoinGroupResponse](r, a).ErrorCode, kerr.NotCoordinator)
	a, b := r.send(joinReq("g", ids[0])), r.send(joinReq("g", ids[1]))
	if resp := get[*kmsg.JoinGroupResponse](r, a); resp.Generation != gen+1 || len(resp.Members) != 2 {
		t.Fatalf("%+v", resp)
	}
	get[*kmsg.JoinGroupResponse](r, b)
	s := r.send(syncReq("g", ids[1], gen+1))
	r.reload()
	r.code("sync", get[*kmsg.SyncGroupResponse](r, s).ErrorCode, kerr.NotCoordinator)
	r.assign("g", gen+1, ids...) // the generation goes on where it was
	r.reload()
	r.heartbeat("g", ids[1], gen+1, nil)
}

func TestWhoLeftIsMissedByTheNextLeaderToo(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 3)
	get[*kmsg.LeaveGroupResponse](r, r.send(leaveReq("g", ids[2])))
	r.reload()
	r.heartbeat("g", ids[2], gen, kerr.UnknownMemberID)
	r.heartbeat("g", ids[0], gen, kerr.RebalanceInProgress)
	a, b := r.send(joinReq("g", ids[0])), r.send(joinReq("g", ids[1]))
	get[*kmsg.JoinGroupResponse](r, a)
	get[*kmsg.JoinGroupResponse](r, b)
	// All leave while the slot moves.
	get[*kmsg.LeaveGroupResponse](r, r.send(leaveReq("g", ids[0])))
	get[*kmsg.LeaveGroupResponse](r, r.send(leaveReq("g", ids[1])))
	r.reload()
	r.state("g", "Empty")
}

func TestSilentMembersEndAfterAChangeOfLeader(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 2)
	r.reload()
	r.pass(9000)
	r.heartbeat("g", ids[0], gen, nil)
	r.pass(1000)
	r.heartbeat("g", ids[1], gen, kerr.UnknownMemberID)
	r.heartbeat("g", ids[0], gen, kerr.RebalanceInProgress)
}

func TestNothingIsToldBeforeItIsWritten(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 2)
	r.hold = true
	a, b := r.send(joinReq("g", ids[0])), r.send(joinReq("g", ids[1]))
	hb := r.send(heartbeatReq("g", ids[0], gen+1))
	for _, w := range []*answer{a, b, hb} {
		r.waits(w)
	}
	r.settle(len(r.queued))
	if resp := get[*kmsg.JoinGroupResponse](r, a); resp.Generation != gen+1 {
		t.Fatalf("%+v", resp)
	}
	get[*kmsg.HeartbeatResponse](r, hb)
	s := r.send(assigning(syncReq("g", ids[0], gen+1), ids...))
	f := r.send(syncReq("g", ids[1], gen+1))
	r.waits(s)
	r.waits(f)
	r.settle(1)
	get[*kmsg.SyncGroupResponse](r, s)
	get[*kmsg.SyncGroupResponse](r, f)
	c1 := r.send(commitReq("g", ids[0], gen+1, "a", 0, 1))
	c2 := r.send(commitReq("g", ids[0], gen+1, "a", 0, 2))
	read := r.send(fetchReq("g", "a"))
	r.settle(1)
	get[*kmsg.OffsetCommitResponse](r, c1)
	r.waits(c2)
	r.waits(read)
	r.settle(1)
	if got := get[*kmsg.OffsetFetchResponse](r, read).Groups[0].Topics[0].Partitions[0].Offset; got != 2 {
		t.Fatalf("fetched %d", got)
	}
}

func TestUnloadAnswersEveryone(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 2)
	r.hold = true
	var all []*answer
	all = append(all,
		r.send(joinReq("g", ids[0])),
		r.send(commitReq("g", ids[1], gen, "a", 0, 1)),
		r.send(fetchReq("g", "a")),
		r.send(heartbeatReq("g", ids[1], gen)),
	)
	r.c.Unload(kerr.NotCoordinator)
	r.c.Unload(kerr.NotCoordinator)
	for _, a := range all {
		var code int16
		switch resp := a.resp.(type) {
		case *kmsg.JoinGroupResponse:
			code = resp.ErrorCode
		case *kmsg.OffsetCommitResponse:
			code = resp.Topics[0].Partitions[0].ErrorCode
		case *kmsg.OffsetFetchResponse:
			code = resp.Groups[0].ErrorCode
		case *kmsg.HeartbeatResponse:
			code = resp.ErrorCode
		default:
			t.Fatalf("%T", resp)
		}
		r.code("all", code, kerr.NotCoordinator)
	}
	r.heartbeat("g", ids[0], gen, kerr.NotCoordinator)
	r.c.Tick(r.now + 1_000_000)
	if _, ok := r.c.Deadline(); ok || len(r.c.Writes()) > 0 {
		t.Fatal("an unloaded Coordinator goes on")
	}
	fresh := New(r.o, r.topics)
	var got kmsg.Response
	fresh.Handle(r.now, Call{Request: heartbeatReq("g", "x", 1), Reply: func(resp kmsg.Response) { got = resp }})
	r.code("before Loaded", got.(*kmsg.HeartbeatResponse).ErrorCode, kerr.CoordinatorLoadInProgress)
}

func TestEveryRequestHasAnErrorAnswer(t *testing.T) {
	for _, req := range []kmsg.Request{
		kmsg.NewPtrJoinGroupRequest(), kmsg.NewPtrSyncGroupRequest(), kmsg.NewPtrHeartbeatRequest(), kmsg.NewPtrLeaveGroupRequest(),
		commitReq("g", "", -1, "a", 0, 1), fetchReq("g", "a"), kmsg.NewPtrOffsetDeleteRequest(), kmsg.NewPtrListGroupsRequest(),
		&kmsg.DescribeGroupsRequest{Groups: []string{"g"}}, &kmsg.DeleteGroupsRequest{Groups: []string{"g"}},
		kmsg.NewPtrConsumerGroupHeartbeatRequest(), &kmsg.ConsumerGroupDescribeRequest{Groups: []string{"g"}},
	} {
		for v := int16(0); v <= req.MaxVersion(); v++ {
			req.SetVersion(v)
			resp := ErrorResponse(req, kerr.NotCoordinator)
			if resp.Key() != req.Key() || resp.GetVersion() != v {
				t.Fatalf("%T version %d is answered with %T version %d", req, v, resp, resp.GetVersion())
			}
			if len(resp.AppendTo(nil)) == 0 {
				t.Fatalf("%T version %d is empty", resp, v)
			}
		}
	}
}
