package group

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const day = 24 * 3_600_000

func TestSimpleGroups(t *testing.T) {
	r := newRig(t)
	if got := r.fetch("g", "a"); got != -1 {
		t.Fatalf("an unknown group has %d", got)
	}
	r.commit("g", "", -1, "a", 5, nil)
	r.commit("g", "", -1, "a", 4, nil)
	r.commit("g", "", -1, "no such topic", 6, nil)
	r.reload()
	if got := r.fetch("g", "a"); got != 4 {
		t.Fatalf("fetched %d", got)
	}
	if got := r.fetch("g", "b"); got != -1 {
		t.Fatalf("fetched %d", got)
	}
	r.commit("g", "someone", 3, "a", 5, kerr.UnknownMemberID)
	r.commit("h", "someone", 3, "a", 5, kerr.GroupIDNotFound)
	old := commitReq("h", "someone", 3, "a", 0, 5)
	old.Version = 8
	r.code("version 8", get[*kmsg.OffsetCommitResponse](r, r.send(old)).Topics[0].Partitions[0].ErrorCode, kerr.IllegalGeneration)
	r.state("g", "Empty")
	// It becomes a group with members; who is none may no longer commit.
	ids, gen := r.form("g", 1)
	r.commit("g", "", -1, "a", 9, kerr.UnknownMemberID)
	r.commit("g", ids[0], -1, "a", 9, kerr.IllegalGeneration)
	r.commit("g", ids[0], gen, "a", 9, nil)
	get[*kmsg.LeaveGroupResponse](r, r.send(leaveReq("g", ids[0])))
	r.commit("g", ids[0], gen, "a", 9, kerr.UnknownMemberID)
	r.commit("g", "", -1, "a", 10, nil)
}

func TestCommitVersions(t *testing.T) {
	r := newRig(t)
	for v := int16(2); v <= 10; v++ {
		req := commitReq("g", "", -1, "a", 1, int64(v))
		req.Version = v
		req.Topics[0].TopicID = idOf("a")
		req.Topics[0].Partitions[0].LeaderEpoch = 7
		req.Topics[0].Partitions[0].Metadata = ptr("seen")
		resp := get[*kmsg.OffsetCommitResponse](r, r.send(req))
		if resp.Topics[0].Topic != "a" || resp.Topics[0].TopicID != idOf("a") || resp.Topics[0].Partitions[0].Partition != 1 {
			t.Fatalf("version %d: %+v", v, resp)
		}
		o := r.c.group("g").offsets["a"][1]
		epoch := int32(7)
		if v < 6 {
			epoch = -1
		}
		if o.offset != int64(v) || o.metadata != "seen" || o.leaderEpoch != epoch || o.topicID != idOf("a") || o.at != r.now {
			t.Fatalf("version %d: stored %+v", v, o)
		}
	}
	for v := int16(1); v <= 10; v++ {
		req := fetchReq("g")
		req.Version = v
		resp := get[*kmsg.OffsetFetchResponse](r, r.send(req))
		if len(resp.Groups[0].Topics) != 1 || resp.Groups[0].Topics[0].TopicID != idOf("a") || resp.Groups[0].Topics[0].Partitions[0].Offset != 10 || *resp.Groups[0].Topics[0].Partitions[0].Metadata != "seen" {
			t.Fatalf("version %d: %+v", v, resp)
		}
	}
}

func TestCommitLimits(t *testing.T) {
	r := newRig(t)
	one := func(change func(*kmsg.OffsetCommitRequest)) int16 {
		req := commitReq("g", "", -1, "a", 0, 1)
		change(req)
		return get[*kmsg.OffsetCommitResponse](r, r.send(req)).Topics[0].Partitions[0].ErrorCode
	}
	r.code("metadata", one(func(q *kmsg.OffsetCommitRequest) { q.Topics[0].Partitions[0].Metadata = ptr(strings.Repeat("x", 4097)) }), kerr.OffsetMetadataTooLarge)
	if r.c.group("g") != nil {
		t.Fatal("a refused commit left a group")
	}
	r.code("metadata that fits", one(func(q *kmsg.OffsetCommitRequest) {
		q.Topics[0].Partitions[0].Metadata = ptr(strings.Repeat("ü", 4096))
	}), nil)
	r.code("topic", one(func(q *kmsg.OffsetCommitRequest) { q.Topics[0].Topic = strings.Repeat("x", 250) }), kerr.InvalidTopicException)
	r.code("partition", one(func(q *kmsg.OffsetCommitRequest) { q.Topics[0].Partitions[0].Partition = -1 }), kerr.UnknownTopicOrPartition)
	r.code("no group's name", one(func(q *kmsg.OffsetCommitRequest) { q.Group = "" }), nil)
	r.code("group", one(func(q *kmsg.OffsetCommitRequest) { q.Group = strings.Repeat("x", groupNameMax+1) }), kerr.InvalidGroupID)
	r.o.MaxOffsetsPerRequest = 1
	r.c.Configure(r.o)
	r.code("partitions", one(func(q *kmsg.OffsetCommitRequest) { q.Topics = append(q.Topics, q.Topics[0]) }), kerr.InvalidRequest)
}

func TestOffsetDelete(t *testing.T) {
	r := newRig(t)
	del := func(group string, topics ...string) *kmsg.OffsetDeleteResponse {
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = group
		for _, name := range topics {
			dt := kmsg.NewOffsetDeleteRequestTopic()
			dt.Topic = name
			dt.Partitions = []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}, {Partition: 9}}
			req.Topics = append(req.Topics, dt)
		}
		return get[*kmsg.OffsetDeleteResponse](r, r.send(req))
	}
	r.code("unknown group", del("g", "a").ErrorCode, kerr.GroupIDNotFound)
	ids, gen := r.form("g", 1)
	r.commit("g", ids[0], gen, "a", 1, nil)
	r.commit("g", ids[0], gen, "b", 2, nil)
	resp := del("g", "a", "b")
	r.code("all", resp.ErrorCode, nil)
	r.code("a", resp.Topics[0].Partitions[0].ErrorCode, kerr.GroupSubscribedToTopic)
	r.code("b", resp.Topics[1].Partitions[0].ErrorCode, nil)
	r.code("b, no such offset", resp.Topics[1].Partitions[1].ErrorCode, nil)
	if a, b := r.fetch("g", "a"), r.fetch("g", "b"); a != 1 || b != -1 {
		t.Fatalf("a: %d, b: %d", a, b)
	}
	get[*kmsg.LeaveGroupResponse](r, r.send(leaveReq("g", ids[0])))
	r.code("a", del("g", "a").Topics[0].Partitions[0].ErrorCode, nil)
	if r.fetch("g", "a") != -1 {
		t.Fatal("the offset is still there")
	}
	// Of another protocol it is not known what is subscribed.
	req := atVersion(joinReq("connect", ""), 3)
	req.ProtocolType = "connect"
	r.send(req)
	r.code("connect", del("connect", "a").ErrorCode, kerr.NonEmptyGroup)
}

func TestOffsetsOfDeletedTopicsGo(t *testing.T) {
	r := newRig(t)
	ids, gen := r.form("g", 1)
	r.commit("g", ids[0], gen, "a", 1, nil)
	r.commit("g", ids[0], gen, "b", 2, nil)
	r.commit("simple", "", -1, "a", 3, nil)
	set := func(topics *fakeTopics) {
		r.topics = topics
		r.c.SetTopics(r.now, topics)
		r.gather()
		checkStored(t, r.c, r.store)
	}
	// A topic that is merely missing loses nothing.
	missing := topicsOf("b", "c")
	set(missing)
	if got := r.fetch("g", "a"); got != 1 {
		t.Fatalf("fetched %d", got)
	}
	set(topicsOf("a", "b", "c").without("a"))
	if a, b := r.fetch("g", "a"), r.fetch("g", "b"); a != -1 || b != 2 {
		t.Fatalf("a: %d, b: %d", a, b)
	}
	if len(r.c.byTopic) != 1 {
		t.Fatalf("topics %v", r.c.byTopic)
	}
	// A topic that was deleted while the slot moved.
	r.topics = r.topics.without("b")
	r.reload()
	if got := r.fetch("g", "b"); got != -1 || len(r.c.byTopic) != 0 {
		t.Fatalf("fetched %d", got)
	}
}

func TestOffsetsOfAReplacedTopicGo(t *testing.T) {
	r := newRig(t)
	r.commit("g", "", -1, "a", 1, nil)
	again := topicsOf("a", "b")
	again.byName["a"] = Topic{Name: "a", ID: [16]byte{1}, Partitions: 1}
	r.topics = again
	r.c.SetTopics(r.now, again)
	r.gather()
	if got := r.fetch("g", "a"); got != -1 {
		t.Fatalf("fetched %d of a topic that has only the name in common", got)
	}
	r.pass(r.o.RetentionCheck + 1)
	if len(r.store) != 0 {
		t.Fatalf("records that nobody can reach are kept: %v", r.store)
	}
}

func TestOffsetsExpire(t *testing.T) {
	r := newRig(t)
	stay := func(ids []string, gen int32, days int) {
		for range days * day / 9000 {
			r.now += 9000
			for _, id := range ids {
				r.heartbeat("g", id, gen, nil)
			}
		}
		r.pass(0)
	}
	r.o.RetentionCheck = 3_600_000
	r.o.OffsetsRetention = day
	r.c.Configure(r.o)
	r.commit("simple", "", -1, "a", 1, nil)
	r.commit("g", "", -1, "a", 1, nil)
	short := commitReq("g", "", -1, "b", 0, 1)
	short.Version, short.RetentionTimeMillis = 4, day/2
	get[*kmsg.OffsetCommitResponse](r, r.send(short))
	ids, gen := r.form("g", 1)
	r.commit("g", ids[0], gen, "c", 1, nil)
	stay(ids, gen, 2)
	// A subscribed topic's offsets stay while the group has members.
	for topic, want := range map[string]int64{"a": 1, "b": -1, "c": -1} {
		if got := r.fetch("g", topic); got != want {
			t.Fatalf("%s of a stable group: %d, expected %d", topic, got, want)
		}
	}
	if r.c.group("simple") != nil {
		t.Fatal("the simple group's offset did not expire")
	}
	get[*kmsg.LeaveGroupResponse](r, r.send(leaveReq("g", ids[0])))
	r.pass(day - 1)
	if got := r.fetch("g", "a"); got != 1 {
		t.Fatalf("%d: the time begins when the group becomes empty", got)
	}
	r.pass(r.o.RetentionCheck + 1)
	if r.c.group("g") != nil || len(r.store) != 0 {
		t.Fatalf("the group is still there, %d records", len(r.store))
	}
}

func TestFetchOfSeveralTopics(t *testing.T) {
	r := newRig(t)
	for _, topic := range []string{"b", "a", "unknown"} {
		for p := range int32(3) {
			get[*kmsg.OffsetCommitResponse](r, r.send(commitReq("g", "", -1, topic, p, int64(p))))
		}
	}
	req := fetchReq("g")
	show := func() (out string) {
		for _, topic := range get[*kmsg.OffsetFetchResponse](r, r.send(req)).Groups[0].Topics {
			out += topic.Topic
			for _, p := range topic.Partitions {
				out += fmt.Sprint(" ", p.Partition, ":", p.Offset)
			}
			out += "; "
		}
		return out
	}
	all := "a 0:0 1:1 2:2; b 0:0 1:1 2:2; "
	if got := show(); got != all+"unknown 0:0 1:1 2:2; " {
		t.Fatal(got)
	}
	req.Version = 10 // names by id only
	if got := show(); got != all {
		t.Fatal(got)
	}
	req.RequireStable = true
	if got := show(); got != all {
		t.Fatal(got)
	}
}
