package group

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// emptyUntilNextLook demands that a group is there, empty, until the next look
// for expired offsets, and that it leaves nothing behind.
func (r *rig) emptyUntilNextLook(group string) {
	r.t.Helper()
	r.state(group, "Empty")
	r.pass(r.o.RetentionCheck)
	r.state(group, "Dead")
	if len(r.c.bare) != 0 || r.c.group(group) != nil {
		r.t.Fatalf("the group is remembered: %d bare", len(r.c.bare))
	}
}

func deleteOffset(group, topic string) *kmsg.OffsetDeleteRequest {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group
	dt := kmsg.NewOffsetDeleteRequestTopic()
	dt.Topic, dt.Partitions = topic, []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}
	req.Topics = append(req.Topics, dt)
	return req
}

// As in Kafka, a group whose last offset was deleted is there until the next
// look for expired offsets: ListGroups names it, OffsetDelete finds it.
func TestAGroupOutlivesItsLastOffset(t *testing.T) {
	r := newRig(t)
	r.commit("deleted", "", -1, "a", 1, nil)
	for range 2 {
		r.code("delete", get[*kmsg.OffsetDeleteResponse](r, r.send(deleteOffset("deleted", "a"))).ErrorCode, nil)
	}
	r.commit("of a topic that goes", "", -1, "b", 1, nil)
	r.topics = r.topics.without("b")
	r.c.SetTopics(r.now, r.topics)
	r.gather()
	list := get[*kmsg.ListGroupsResponse](r, r.send(kmsg.NewPtrListGroupsRequest()))
	if len(list.Groups) != 2 {
		t.Fatalf("listed: %+v", list.Groups)
	}
	r.commit("deleted", "", -1, "a", 1, nil)
	r.emptyUntilNextLook("of a topic that goes")
	if got := r.fetch("deleted", "a"); got != 1 {
		t.Fatalf("fetched %d, of a group that was used again", got)
	}
	get[*kmsg.OffsetDeleteResponse](r, r.send(deleteOffset("deleted", "a")))
	del := kmsg.NewPtrDeleteGroupsRequest()
	del.Groups = []string{"deleted"}
	r.code("delete the group", get[*kmsg.DeleteGroupsResponse](r, r.send(del)).Groups[0].ErrorCode, nil)
	r.code("delete it again", get[*kmsg.DeleteGroupsResponse](r, r.send(del)).Groups[0].ErrorCode, kerr.GroupIDNotFound)
}

// Groups of which nothing is left are remembered up to a bound.
func TestBareGroupsAreBounded(t *testing.T) {
	r := newRig(t)
	for i := range bareMax + 1 {
		g := r.c.ensure(r.now, fmt.Sprint(i))
		r.c.linger(g)
	}
	if len(r.c.bare) != bareMax || len(r.c.groups) != bareMax {
		t.Fatalf("%d groups, %d of them bare; expected %d", len(r.c.groups), len(r.c.bare), bareMax)
	}
	r.pass(r.o.RetentionCheck)
	if len(r.c.bare) != 0 || len(r.c.groups) != 0 {
		t.Fatalf("%d groups, %d of them bare, after all were looked at", len(r.c.groups), len(r.c.bare))
	}
}
