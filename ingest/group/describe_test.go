package group

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDescribeUnknownGroups(t *testing.T) {
	r := newRig(t)
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{"g"}
	for v := int16(0); v <= 6; v++ {
		req.Version = v
		got := get[*kmsg.DescribeGroupsResponse](r, r.send(req)).Groups[0]
		var want *kerr.Error
		if v >= 6 {
			want = kerr.GroupIDNotFound
		}
		r.code("describe", got.ErrorCode, want)
		if got.State != "Dead" || (got.ErrorMessage != nil) != (v >= 6) {
			t.Fatalf("version %d: %+v", v, got)
		}
	}
}

func TestListGroups(t *testing.T) {
	r := newRig(t)
	r.form("stable", 1)
	r.commit("simple", "", -1, "a", 1, nil)
	ids, _ := r.form("preparing", 1)
	r.send(joinReq("preparing", r.id("preparing")))
	_ = ids
	for _, c := range []struct {
		states, types, want []string
	}{
		{nil, nil, []string{"preparing", "simple", "stable"}},
		{[]string{"stable"}, nil, []string{"stable"}},
		{[]string{"STABLE", "Empty"}, []string{"Classic"}, []string{"simple", "stable"}},
		{nil, []string{"consumer"}, nil},
		{[]string{"Dead"}, nil, nil},
	} {
		req := kmsg.NewPtrListGroupsRequest()
		req.Version, req.StatesFilter, req.TypesFilter = 5, c.states, c.types
		var got []string
		for _, g := range get[*kmsg.ListGroupsResponse](r, r.send(req)).Groups {
			got = append(got, g.Group)
			if g.GroupType != "classic" || (g.ProtocolType == "consumer") == (g.Group == "simple") {
				t.Fatalf("%+v", g)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Fatalf("states %v, types %v: %v, expected %v", c.states, c.types, got, c.want)
		}
	}
}

func TestDeleteGroups(t *testing.T) {
	r := newRig(t)
	del := func(group string, want *kerr.Error) {
		t.Helper()
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Version, req.Groups = 2, []string{group}
		r.code("delete", get[*kmsg.DeleteGroupsResponse](r, r.send(req)).Groups[0].ErrorCode, want)
	}
	del("g", kerr.GroupIDNotFound)
	del("", kerr.GroupIDNotFound)
	ids, gen := r.form("g", 1)
	r.commit("g", ids[0], gen, "a", 1, nil)
	del("g", kerr.NonEmptyGroup)
	get[*kmsg.LeaveGroupResponse](r, r.send(leaveReq("g", ids[0])))
	r.id("g")
	del("g", nil)
	if len(r.store) != 0 || r.c.pending != 0 || len(r.c.timers.heap) != 0 {
		t.Fatalf("left: %d records, %d pending members, %d timers", len(r.store), r.c.pending, len(r.c.timers.heap))
	}
	r.commit("g", "", -1, "a", 1, nil)
	del("g", nil)
	if r.fetch("g", "a") != -1 || len(r.store) != 0 {
		t.Fatal("the offset is still there")
	}
}
