package group

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (s *script) describe(name string) kmsg.ConsumerGroupDescribeResponseGroup {
	r := kmsg.NewPtrConsumerGroupDescribeRequest()
	r.Version, r.Groups = 1, []string{name}
	return s.do(r).(*kmsg.ConsumerGroupDescribeResponse).Groups[0]
}

func describedPartitions(a kmsg.Assignment) string {
	var out []string
	for _, t := range a.TopicPartitions {
		out = append(out, fmt.Sprint(t.Topic, t.Partitions))
	}
	return strings.Join(out, " ")
}

func TestDescribeConsumerGroup(t *testing.T) {
	s := newScript(t)
	rack := "r1"
	s.beat("m1", 0, "2 a:0,1,2,3,4,5", joins("a"), instance("i"), func(r *heartbeat) { r.RackID = &rack })
	s.beat("m2", 0, "3 x-1:0,1", joins("a"), regex("x-.*"))
	d := s.describe("g")
	if d.ErrorCode != 0 || d.State != "Reconciling" || d.Epoch != 3 || d.AssignmentEpoch != 3 || d.AssignorName != "uniform" || len(d.Members) != 2 {
		t.Fatalf("%+v", d)
	}
	m := d.Members[0]
	if m.MemberID != "m1" || value(m.InstanceID) != "i" || value(m.RackID) != rack || m.MemberEpoch != 2 || m.ClientID != "c" || m.ClientHost != "/127.0.0.1" || m.MemberType != 1 {
		t.Errorf("%+v", m)
	}
	if !slices.Equal(m.SubscribedTopics, []string{"a"}) || value(m.SubscribedTopicRegex) != "" {
		t.Errorf("subscription %v %q", m.SubscribedTopics, value(m.SubscribedTopicRegex))
	}
	if a, b := describedPartitions(m.Assignment), describedPartitions(m.TargetAssignment); a != "a[0 1 2 3 4 5]" || b != "a[0 1 2 3]" {
		t.Errorf("assignment %s, target %s", a, b)
	}
	m = d.Members[1]
	if m.InstanceID != nil || m.RackID != nil || value(m.SubscribedTopicRegex) != "x-.*" || describedPartitions(m.TargetAssignment) != "a[4 5] x-1[0 1]" {
		t.Errorf("%+v", m)
	}
	if d := s.describe(""); d.ErrorCode != kerr.InvalidGroupID.Code {
		t.Errorf("no name: %d", d.ErrorCode)
	}
	if d := s.describe("none"); d.ErrorCode != kerr.GroupIDNotFound.Code {
		t.Errorf("no group: %d", d.ErrorCode)
	}
	describe := func(version int16) kmsg.DescribeGroupsResponseGroup {
		r := kmsg.NewPtrDescribeGroupsRequest()
		r.Version, r.Groups = version, []string{"g"}
		return s.do(r).(*kmsg.DescribeGroupsResponse).Groups[0]
	}
	if d := describe(5); d.ErrorCode != 0 || d.State != "Dead" {
		t.Errorf("version 5: %+v", d)
	}
	if d := describe(6); d.ErrorCode != kerr.GroupIDNotFound.Code {
		t.Errorf("version 6: %+v", d)
	}
	r := kmsg.NewPtrListGroupsRequest()
	r.Version, r.TypesFilter = 5, []string{"consumer"}
	l := s.do(r).(*kmsg.ListGroupsResponse).Groups
	if len(l) != 1 || l[0].Group != "g" || l[0].GroupType != "consumer" || l[0].ProtocolType != "consumer" || l[0].GroupState != "Reconciling" {
		t.Errorf("%+v", l)
	}
}

// What a member is to give up it has until it says otherwise (since Kafka 4.3).
func TestDescribedAssignmentHasWhatIsToBeGivenUp(t *testing.T) {
	s := newScript(t)
	s.beat("m1", 0, "2 a:0,1,2,3,4,5", joins("a"))
	s.beat("m2", 0, "3 none", joins("a"))
	s.beat("m1", 2, "2 a:0,1,2")
	if got := describedPartitions(s.describe("g").Members[0].Assignment); got != "a[0 1 2 3 4 5]" {
		t.Errorf("before it has given up: %s", got)
	}
	s.beat("m1", 2, "3 -", s.owns("a:0,1,2"))
	if got := describedPartitions(s.describe("g").Members[0].Assignment); got != "a[0 1 2]" {
		t.Errorf("after: %s", got)
	}
}

// commits demands the results of committing partitions 0 to n-1 of topic a.
func (s *script) commits(version int16, member string, epoch int32, want ...string) {
	s.t.Helper()
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.MemberID, r.Generation = version, "g", member, epoch
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = "a"
	for i := range want {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.Metadata = int32(i), 5, &s.metadata
		rt.Partitions = append(rt.Partitions, p)
	}
	r.Topics = append(r.Topics, rt)
	for i, p := range s.do(r).(*kmsg.OffsetCommitResponse).Topics[0].Partitions {
		got := "ok"
		if err := kerr.TypedErrorForCode(p.ErrorCode); err != nil {
			got = err.Message
		}
		if got != want[i] {
			s.t.Fatalf("%s in epoch %d commits partition %d: %s, want %s", member, epoch, i, got, want[i])
		}
	}
}

// fetches demands the result of fetching offsets.
func (s *script) fetches(member *string, epoch int32, want string) {
	s.t.Helper()
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Version = 9
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberID, g.MemberEpoch = "g", member, epoch
	r.Groups = append(r.Groups, g)
	got := "ok"
	if err := kerr.TypedErrorForCode(s.do(r).(*kmsg.OffsetFetchResponse).Groups[0].ErrorCode); err != nil {
		got = err.Message
	}
	if got != want {
		s.t.Fatalf("fetch: %s, want %s", got, want)
	}
}

func TestCommitsByMemberEpoch(t *testing.T) {
	s := newScript(t)
	s.beat("m1", 0, "2 a:0,1,2,3,4,5", joins("a"))
	s.beat("m2", 0, "3 none", joins("a"))
	s.beat("m1", 2, "2 a:0,1,2")
	s.beat("m1", 2, "3 -", s.owns("a:0,1,2"))
	s.commits(9, "m1", 3, "ok", "ok")
	// It knows not of epoch 2 yet, and has had these since epoch 1; 3 is gone.
	s.commits(9, "m1", 2, "ok", "ok", "ok", "STALE_MEMBER_EPOCH")
	s.commits(9, "m1", 4, "STALE_MEMBER_EPOCH")
	s.commits(9, "m1", 0, "STALE_MEMBER_EPOCH")
	s.metadata = strings.Repeat("x", 5000) // who may not commit hears of that first
	s.commits(9, "m1", 4, "STALE_MEMBER_EPOCH")
	s.commits(9, "m1", -2, "STALE_MEMBER_EPOCH")
	s.metadata = ""
	s.commits(8, "m1", 3, "UNSUPPORTED_VERSION")
	s.commits(9, "m9", 3, "UNKNOWN_MEMBER_ID")
	s.commits(9, "", -1, "UNKNOWN_MEMBER_ID")
	m1, m9 := "m1", "m9"
	s.fetches(&m1, 3, "ok")
	s.fetches(&m1, 2, "STALE_MEMBER_EPOCH")
	s.fetches(&m9, 3, "UNKNOWN_MEMBER_ID")
	s.fetches(nil, -1, "ok")
	// An empty group takes an administrator's commits.
	s.beat("m1", -1, "-1")
	s.beat("m2", -1, "-1")
	s.commits(9, "", -1, "ok")
	s.commits(9, "m1", 3, "UNKNOWN_MEMBER_ID")
}

func TestEmptyGroupsChangeProtocol(t *testing.T) {
	s := newScript(t)
	// Offsets alone are no hindrance, and stay.
	s.commits(9, "", -1, "ok")
	s.beat("m1", 0, "2 a:0,1,2,3,4,5", joins("a"))
	s.beat("m1", -1, "-1")
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = 3, "g", 10_000, 10_000, "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "range"
	join.Protocols = append(join.Protocols, p)
	var joined *kmsg.JoinGroupResponse
	s.call(join, func(r kmsg.Response) { joined = r.(*kmsg.JoinGroupResponse) })
	s.write(len(s.flying))
	s.pass(5000)
	s.write(len(s.flying))
	if joined == nil || joined.ErrorCode != 0 || s.c.group("g").classic == nil || s.c.group("g").consumer != nil {
		t.Fatalf("%+v", joined)
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.MemberID = "g", joined.MemberID
	if r := s.do(leave).(*kmsg.LeaveGroupResponse); r.ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
	s.beat("m1", 2, "UNKNOWN_MEMBER_ID")
	s.beat("m1", -1, "GROUP_ID_NOT_FOUND")
	s.beat("m1", 0, "2 a:0,1,2,3,4,5", joins("a"))
	s.reload()
	s.state("Stable 2 2")
	if len(s.c.group("g").offsets) != 1 {
		t.Fatal("the offsets are gone")
	}
}

// TestConsumerRecords compares the records with those that version 1 wrote, and
// reads these again.
func TestConsumerRecords(t *testing.T) {
	s := newScript(t)
	rack, assignor := "r1", "range"
	s.beat("m1", 0, "2 a:0,1,2,3,4,5", joins("a"), instance("i"), func(r *heartbeat) { r.RackID, r.ServerAssignor = &rack, &assignor })
	s.beat("m2", 0, "3 x-1:0,1", joins("a"), regex("x-.*"))
	s.beat("m1", 2, "2 a:0,1,2", instance("i"))
	g := s.group()
	g.members["m2"].classic = &classicProfile{sessionTimeout: 7, protocols: []protocol{{"range", []byte{1, 2}}}}
	s.c.write(g.members["m2"].profileRecord("g"))
	s.c.finish()
	s.take()
	s.write(len(s.flying))
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(s.stored)) {
		fmt.Fprintf(&b, "%s %s\n", hex.EncodeToString([]byte(k)), hex.EncodeToString(s.stored[k]))
	}
	const golden = "testdata/consumer_records_v1.txt"
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatalf("%v; it should be:\n%s", err, b.String())
	}
	if b.String() != string(want) {
		t.Fatalf("the records are\n%swant\n%s", b.String(), want)
	}
	bytesOf := func() []byte {
		r := kmsg.ConsumerGroupDescribeResponse{Version: 1, Groups: []kmsg.ConsumerGroupDescribeResponseGroup{s.describe("g")}}
		return r.AppendTo(nil)
	}
	before := bytesOf()
	s.reload()
	if after := bytesOf(); !bytes.Equal(after, before) {
		t.Fatalf("before %x\nafter %x", before, after)
	}
	for k, v := range s.stored {
		c := New(s.o, s.topics)
		for n := range v {
			if strings.HasPrefix(k[3:], string(rune(kindConsumerGroup))) && c.Load(k, v[:n]) == nil {
				t.Errorf("record %x cut to %d bytes was read", k, n)
			}
		}
	}
}
