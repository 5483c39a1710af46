package group

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type joinGroup = kmsg.JoinGroupRequest

// joinRequest is a JoinGroup of version 5 for some topics.
func (s *script) joinRequest(member string, names string, with ...func(*joinGroup)) *joinGroup {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = 5, "g", member, 10_000, rebalanceMs, "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", metadata(1, names)
	r.Protocols = append(r.Protocols, p)
	for _, f := range with {
		f(r)
	}
	return r
}

// As in Kafka, what refuses a JoinGroup to a consumer group names no member.
func TestRefusedJoinOfAConsumerGroupNamesNoMember(t *testing.T) {
	s := newScript(t)
	s.beat("m", 0, "2 a:0,1,2,3,4,5", joins("a"))
	if id := s.joinsClassic("n", "a", "INCONSISTENT_GROUP_PROTOCOL", func(r *joinGroup) { r.ProtocolType = "connect" }); id != "" {
		t.Errorf("member id %q", id)
	}
	if id := s.joinsClassic("n", "a", "UNKNOWN_MEMBER_ID", func(r *joinGroup) { r.InstanceID = &r.Group }); id != "" {
		t.Errorf("of a static member: id %q", id)
	}
}

// metadata is a subscription in some version: "a b" or, with what is owned,
// "a | a:0,1".
func metadata(version int16, text string) []byte {
	names, owned, _ := strings.Cut(text, "|")
	m := kmsg.ConsumerMemberMetadata{Version: version, Topics: strings.Fields(names), Generation: -1}
	for _, f := range strings.Fields(owned) {
		name, indexes, _ := strings.Cut(f, ":")
		o := kmsg.ConsumerMemberMetadataOwnedPartition{Topic: name}
		for _, i := range strings.Split(indexes, ",") {
			var n int32
			fmt.Sscan(i, &n)
			o.Partitions = append(o.Partitions, n)
		}
		m.OwnedPartitions = append(m.OwnedPartitions, o)
	}
	return m.AppendTo(nil)
}

// joinsClassic joins and demands an error's name or the generation; it
// returns the member's id.
func (s *script) joinsClassic(member, names, want string, with ...func(*joinGroup)) string {
	s.t.Helper()
	resp := s.do(s.joinRequest(member, names, with...)).(*kmsg.JoinGroupResponse)
	got := fmt.Sprint(resp.Generation)
	if err := kerr.TypedErrorForCode(resp.ErrorCode); err != nil {
		got = err.Message
	}
	if got != want {
		s.t.Fatalf("%q joins: %s, want %s", member, got, want)
	}
	if resp.ErrorCode == 0 && (value(resp.ProtocolType) != "consumer" || value(resp.Protocol) != "range") {
		s.t.Fatalf("%+v", resp)
	}
	return resp.MemberID
}

// syncs demands an error's name or the assignment: "a:0,1".
func (s *script) syncs(member string, generation int32, want string, with ...func(*kmsg.SyncGroupRequest)) {
	s.t.Helper()
	r := kmsg.NewPtrSyncGroupRequest()
	r.Version, r.Group, r.MemberID, r.Generation = 3, "g", member, generation
	for _, f := range with {
		f(r)
	}
	resp := s.do(r).(*kmsg.SyncGroupResponse)
	var got string
	if err := kerr.TypedErrorForCode(resp.ErrorCode); err != nil {
		got = err.Message
	} else {
		got = shared(resp.MemberAssignment)
	}
	if got != want {
		s.t.Fatalf("%q syncs: %s, want %s", member, got, want)
	}
}

// shared is a classic assignment as text.
func shared(b []byte) string {
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(b); err != nil {
		return err.Error()
	}
	var parts []string
	for _, t := range a.Topics {
		parts = append(parts, t.Topic+":"+strings.Trim(strings.ReplaceAll(fmt.Sprint(t.Partitions), " ", ","), "[]"))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// beatsClassic demands the result of a classic heartbeat.
func (s *script) beatsClassic(member string, generation int32, want string) {
	s.t.Helper()
	r := kmsg.NewPtrHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.Generation = 3, "g", member, generation
	got := "ok"
	if err := kerr.TypedErrorForCode(s.do(r).(*kmsg.HeartbeatResponse).ErrorCode); err != nil {
		got = err.Message
	}
	if got != want {
		s.t.Fatalf("%q beats: %s, want %s", member, got, want)
	}
}

// classicGroup makes a stable classic group of one member with all of topic a.
func (s *script) classicGroup() string {
	s.t.Helper()
	s.o.InitialRebalanceDelay = 0
	s.c.Configure(s.o)
	id := s.joinsClassic("", "a", "MEMBER_ID_REQUIRED")
	s.call(s.joinRequest(id, "a"), func(kmsg.Response) {})
	s.pass(0)
	s.write(len(s.flying))
	s.syncs(id, 1, "a:0,1,2,3,4,5", func(r *kmsg.SyncGroupRequest) {
		a := kmsg.ConsumerMemberAssignment{Version: 1, Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: "a", Partitions: []int32{0, 1, 2, 3, 4, 5}}}}
		r.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: id, MemberAssignment: a.AppendTo(nil)}}
	})
	s.beatsClassic(id, 1, "ok")
	return id
}

func TestUpgradeAndDowngrade(t *testing.T) {
	for _, reload := range []bool{false, true} {
		s := newScript(t)
		maybe := func() {
			if reload {
				s.reload()
			}
		}
		old := s.classicGroup()
		maybe()
		s.beat("m", 0, "2 none", joins("a"))
		s.state("Reconciling 2 2")
		maybe()
		if d := s.describe("g"); len(d.Members) != 2 || d.Members[0].MemberType != 0 || d.Members[1].MemberType != 1 {
			t.Fatalf("%+v", d.Members)
		}
		s.commitsAs(old, 1, "ok")
		// The classic member is told to join again; it is eager, so it has nothing then.
		s.beatsClassic(old, 1, "REBALANCE_IN_PROGRESS")
		s.syncs(old, 1, "REBALANCE_IN_PROGRESS")
		s.joinsClassic(old, "a", "2")
		maybe()
		s.syncs(old, 1, "ILLEGAL_GENERATION")
		s.syncs(old, 2, "a:0,1,2")
		s.beatsClassic(old, 1, "ILLEGAL_GENERATION")
		s.beatsClassic(old, 2, "ok")
		s.commitsAs(old, 3, "ILLEGAL_GENERATION")
		s.beat("m", 2, "2 a:3,4,5")
		s.state("Stable 2 2")
		maybe()
		// The last of the new protocol goes: the group is a classic one, and rebalances.
		s.beat("m", -1, "-1")
		if g := s.c.group("g"); g.consumer != nil || g.classic == nil || g.classic.generation != 2 {
			t.Fatal("the group was not downgraded")
		}
		maybe()
		s.beatsClassic(old, 2, "REBALANCE_IN_PROGRESS")
		s.joinsClassic(old, "a", "3")
		s.beat("m", 2, "UNKNOWN_MEMBER_ID")
		s.beat("m", -1, "GROUP_ID_NOT_FOUND")
	}
}

func (s *script) commitsAs(member string, generation int32, want string) {
	s.t.Helper()
	s.commits(7, member, generation, want)
}

func TestCooperativeMemberGivesUpFirst(t *testing.T) {
	s := newScript(t)
	old := s.classicGroup()
	s.beat("m", 0, "2 none", joins("a"))
	owns := func(version int16, text string) func(*joinGroup) {
		return func(r *joinGroup) { r.Protocols[0].Metadata = metadata(version, text) }
	}
	s.joinsClassic(old, "", "1", owns(1, "a | a:0,1,2,3,4,5"))
	s.syncs(old, 1, "a:0,1,2")
	s.beat("m", 2, "2 -")
	// It is to join again without those.
	s.beatsClassic(old, 1, "REBALANCE_IN_PROGRESS")
	s.joinsClassic(old, "", "1", owns(2, "a | a:0,1,2,3"))
	s.joinsClassic(old, "", "2", owns(3, "a | a:0,1,2"))
	s.syncs(old, 2, "a:0,1,2")
	s.beat("m", 2, "2 a:3,4,5")
	// It waits for what others have, and is told when that is free.
	s.beat("m", -1, "-1")
	s = newScript(t)
	s.beat("m", 0, "2 a:0,1,2,3,4,5", joins("a"))
	id := s.joinsClassic("", "a", "MEMBER_ID_REQUIRED")
	s.joinsClassic(id, "a", "3")
	s.syncs(id, 3, "")
	s.beatsClassic(id, 3, "ok")
	s.beat("m", 2, "2 a:0,1,2")
	s.beat("m", 2, "3 -", s.owns("a:0,1,2"))
	s.beatsClassic(id, 3, "REBALANCE_IN_PROGRESS")
	s.joinsClassic(id, "a", "3")
	s.syncs(id, 3, "a:3,4,5")
	s.beatsClassic(id, 3, "ok")
}

func TestMigrationPolicies(t *testing.T) {
	for policy, want := range map[string][3]string{
		"disabled":      {"GROUP_ID_NOT_FOUND", "INCONSISTENT_GROUP_PROTOCOL", ""},
		"upgrade":       {"2 none", "3", "consumer"},
		"downgrade":     {"GROUP_ID_NOT_FOUND", "3", "classic"},
		"bidirectional": {"2 none", "3", "classic"},
	} {
		t.Run(policy, func(t *testing.T) {
			s := newScript(t)
			s.classicGroup()
			s.o.ConsumerMigration = policy
			s.c.Configure(s.o)
			s.beat("m", 0, want[0], joins("a"))

			s = newScript(t)
			s.o.ConsumerMigration = policy
			s.c.Configure(s.o)
			s.beat("m", 0, "2 a:0,1,2,3,4,5", joins("a"))
			s.joinsClassic("", "a", want[1], func(r *joinGroup) { r.Version = 3 })
			if want[2] == "" {
				return
			}
			s.beat("m", -1, "-1")
			if got := s.c.group("g").list().GroupType; got != want[2] {
				t.Fatalf("the group is %s, want %s", got, want[2])
			}
		})
	}
}

func TestGroupsThatCannotBeUpgraded(t *testing.T) {
	s := newScript(t)
	s.o.InitialRebalanceDelay = 0
	s.c.Configure(s.o)
	s.call(s.joinRequest("", "a", func(r *joinGroup) { r.Version, r.ProtocolType = 3, "connect" }), func(kmsg.Response) {})
	s.beat("m", 0, "GROUP_ID_NOT_FOUND", joins("a"))

	s = newScript(t)
	id := s.classicGroup()
	s.o.ConsumerMaxSize = 0
	s.c.Configure(s.o)
	s.beat("m", 0, "GROUP_ID_NOT_FOUND", joins("a"))
	s.o.ConsumerMaxSize = 1
	s.c.Configure(s.o)
	s.beat("m", 0, "GROUP_MAX_SIZE_REACHED", joins("a"))
	s.beat("m", 0, "INVALID_REGULAR_EXPRESSION", joins("a"), regex("("))
	m := s.c.group("g").classic.members[id]
	good := m.assignment
	m.assignment = []byte{0, 1, 0}
	s.o.ConsumerMaxSize = 10
	s.c.Configure(s.o)
	s.beat("m", 0, "GROUP_ID_NOT_FOUND", joins("a"))
	a := kmsg.ConsumerMemberAssignment{UserData: []byte{1}}
	m.assignment = a.AppendTo(nil)
	s.beat("m", 0, "GROUP_ID_NOT_FOUND", joins("a"))
	m.assignment = good
	// After all these the group is what it was.
	s.beatsClassic(id, 1, "ok")
	s.beat("m", 0, "2 none", joins("a"))
}

// TestUpgradeInRebalance: who waits is told to join again, and the assignment
// is a new one.
func TestUpgradeInRebalance(t *testing.T) {
	s := newScript(t)
	old := s.classicGroup()
	var joined *kmsg.JoinGroupResponse
	second := s.joinsClassic("", "a", "MEMBER_ID_REQUIRED")
	s.call(s.joinRequest(second, "a"), func(r kmsg.Response) { joined = r.(*kmsg.JoinGroupResponse) })
	s.write(len(s.flying))
	if joined != nil {
		t.Fatal("the second did not wait")
	}
	s.beat("m", 0, "2 none", joins("a"))
	if joined == nil || joined.ErrorCode != kerr.RebalanceInProgress.Code {
		t.Fatalf("%+v", joined)
	}
	s.joinsClassic(second, "a", "2")
	s.joinsClassic(old, "a", "2")
	s.syncs(old, 2, "a:0,1")
	s.joinsClassic(second, "a", "2")
	s.syncs(second, 2, "a:2,3")
	s.beat("m", 2, "2 a:4,5")
	s.state("Stable 2 2")
}

func TestStaticMemberChangesProtocol(t *testing.T) {
	static := func(r *joinGroup) { id := "i"; r.InstanceID = &id }
	s := newScript(t)
	s.beat("m", 0, "2 a:0,1,2,3,4,5", joins("a"), instance("i"))
	// Unlike among members of the new protocol, the one there need not have left.
	// The group has no other member of the new protocol: it is classic from here on.
	id := s.joinsClassic("", "a", "2", static)
	g := s.c.group("g")
	if g.consumer != nil || g.classic.state != stateStable {
		t.Fatal("the group was not downgraded in peace")
	}
	s.syncs(id, 2, "a:0,1,2,3,4,5", func(r *kmsg.SyncGroupRequest) { s := "i"; r.InstanceID = &s })
	s.reload()
	s.beatsClassic(id, 2, "ok")
	// And back.
	s.beat("n", 0, "3 a:0,1,2,3,4,5", joins("a"), instance("i"))
	s.beatsClassic(id, 2, "UNKNOWN_MEMBER_ID")
	s.state("Stable 3 3")
	// With another member of the new protocol the group stays.
	s.beat("o", 0, "4 none", joins("a"))
	id = s.joinsClassic("", "a", "4", static)
	s.syncs(id, 4, "a:0,1,2")
	s.joinsClassic("other", "a", "FENCED_INSTANCE_ID", static)
	s.joinsClassic("other", "a", "UNKNOWN_MEMBER_ID", func(r *joinGroup) { id := "j"; r.InstanceID = &id })
}

func TestClassicMembersOfConsumerGroups(t *testing.T) {
	s := newScript(t)
	s.beat("m", 0, "2 a:0,1,2,3,4,5", joins("a"))
	s.joinsClassic("", "a", "INCONSISTENT_GROUP_PROTOCOL", func(r *joinGroup) { r.ProtocolType = "connect" })
	s.joinsClassic("", "a", "INCONSISTENT_GROUP_PROTOCOL", func(r *joinGroup) { r.Protocols = nil })
	s.joinsClassic("", "a", "INCONSISTENT_GROUP_PROTOCOL", func(r *joinGroup) { r.Version, r.Protocols[0].Metadata = 3, []byte{9} })
	// What was fenced comes back with what it had: it is to drop that first.
	s.joinsClassic("gone", "", "UNKNOWN_MEMBER_ID", func(r *joinGroup) { r.Protocols[0].Metadata = metadata(1, "a | a:0") })
	id := s.joinsClassic("", "b", "3", func(r *joinGroup) { r.Version = 3 })
	// All members of the classic protocol must have one in common.
	s.joinsClassic("", "b", "INCONSISTENT_GROUP_PROTOCOL", func(r *joinGroup) { r.Protocols[0].Name = "other" })
	s.syncs(id, 3, "INCONSISTENT_GROUP_PROTOCOL", func(r *kmsg.SyncGroupRequest) { r.Version = 5 })
	other := "sticky"
	s.syncs(id, 3, "INCONSISTENT_GROUP_PROTOCOL", func(r *kmsg.SyncGroupRequest) { r.Protocol = &other })
	s.syncs("m", 2, "UNKNOWN_MEMBER_ID")
	s.beatsClassic("m", 2, "UNKNOWN_MEMBER_ID")
	s.syncs(id, 3, "b:0,1,2")
	// Its own session time-out holds.
	s.pass(9_999)
	s.beatsClassic(id, 3, "ok")
	s.pass(9_999)
	s.beatsClassic(id, 3, "ok")
	s.pass(10_000)
	s.beatsClassic(id, 3, "UNKNOWN_MEMBER_ID")

	// One that joins and does not sync in time is out; so is one that was told
	// to join again and does not, though it goes on beating.
	s.beat("m", 2, "4 -")
	id = s.joinsClassic("", "b", "5", func(r *joinGroup) { r.Version = 3 })
	for range 3 {
		s.pass(6_000)
		s.beatsClassic(id, 5, "ok")
	}
	s.pass(2_000)
	s.beatsClassic(id, 5, "UNKNOWN_MEMBER_ID")
	s.beat("m", 4, "6 -")
	id = s.joinsClassic("", "b", "7", func(r *joinGroup) { r.Version = 3 })
	s.syncs(id, 7, "b:0,1,2")
	s.beat("m", 6, "8 a:0,1,2,3,4,5 x-1:0,1", topics("a", "x-1"))
	for range 4 {
		s.beatsClassic(id, 7, "REBALANCE_IN_PROGRESS")
		s.pass(6_000)
	}
	s.beatsClassic(id, 7, "UNKNOWN_MEMBER_ID")
}

func TestLeaveGroupOfConsumerGroup(t *testing.T) {
	s := newScript(t)
	s.beat("m", 0, "2 a:0,1,2,3,4,5", joins("a"), instance("i"))
	s.beat("n", 0, "3 none", joins("a"))
	id := s.joinsClassic("", "b", "4", func(r *joinGroup) { r.Version = 3 })
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version, r.Group = 3, "g"
	add := func(member, instance string) {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = member
		if instance != "" {
			m.InstanceID = &instance
		}
		r.Members = append(r.Members, m)
	}
	add("", "i")
	add("n", "i")
	add("", "none")
	add("nobody", "")
	add(id, "")
	var got []string
	for _, m := range s.do(r).(*kmsg.LeaveGroupResponse).Members {
		text := "ok"
		if err := kerr.TypedErrorForCode(m.ErrorCode); err != nil {
			text = err.Message
		}
		got = append(got, text)
	}
	if want := "ok FENCED_INSTANCE_ID UNKNOWN_MEMBER_ID UNKNOWN_MEMBER_ID ok"; strings.Join(got, " ") != want {
		t.Fatalf("got %v, want %s", got, want)
	}
	s.state("Assigning 5 4")
	s.beat("n", 3, "5 a:0,1,2,3,4,5")
	r = kmsg.NewPtrLeaveGroupRequest()
	r.Version, r.Group, r.MemberID = 2, "g", "n"
	if resp := s.do(r).(*kmsg.LeaveGroupResponse); resp.ErrorCode != 0 {
		t.Fatalf("%+v", resp)
	}
	s.state("Empty 6 5")
}

// TestDowngradeWithoutTime: members that ask for no time to join do not keep
// the coordinator busy.
func TestDowngradeWithoutTime(t *testing.T) {
	s := newScript(t)
	s.beat("m", 0, "2 a:0,1,2,3,4,5", joins("a"))
	id := "i"
	s.joinsClassic("", "a", "3", func(r *joinGroup) { r.InstanceID, r.RebalanceTimeoutMillis = &id, 0 })
	s.beat("m", -1, "-1")
	s.c.Tick(s.now)
	if at, ok := s.c.Deadline(); !ok || at <= s.now {
		t.Fatalf("the next look is at %d, now is %d", at, s.now)
	}
}

// TestClassicMembersWaitForTheTarget: while there can be no new target, members
// are not told to join for one.
func TestClassicMembersWaitForTheTarget(t *testing.T) {
	s := newScript(t)
	s.beat("m", 0, "2 a:0,1,2,3,4,5", joins("a"))
	id := s.joinsClassic("", "b", "3", func(r *joinGroup) { r.Version = 3 })
	s.syncs(id, 3, "b:0,1,2")
	s.fallBehind("b")
	s.beat("m", 2, "3 -")
	s.beat("m", 3, "3 -", topics("a", "x-1"))
	s.state("Assigning 4 3")
	s.beatsClassic(id, 3, "ok")
	s.syncs(id, 3, "")
	s.catchUp()
	s.beatsClassic(id, 3, "ok") // as in Kafka, m's next heartbeat makes the target
	s.syncs(id, 3, "b:0,1,2")
	s.beat("m", 3, "5 a:0,1,2,3,4,5 x-1:0,1")
	s.beatsClassic(id, 3, "REBALANCE_IN_PROGRESS")
	s.syncs(id, 3, "REBALANCE_IN_PROGRESS")
	s.joinsClassic(id, "b", "5")
	s.syncs(id, 5, "b:0,1,2")
}

// TestClassicMembersMakeTheTarget: while no member of the new protocol beats,
// members of the classic one are told to join for a target that is due.
func TestClassicMembersMakeTheTarget(t *testing.T) {
	s := newScript(t)
	s.beat("m", 0, "2 a:0,1,2,3,4,5", joins("a"), instance("i"))
	one := s.joinsClassic("", "b", "3", func(r *joinGroup) { r.Version = 3 })
	two := s.joinsClassic("", "x-1", "4", func(r *joinGroup) { r.Version = 3 })
	s.beat("m", -2, "-2", instance("i"))
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version, r.Group, r.MemberID = 2, "g", two
	s.do(r)
	s.state("Assigning 5 4")
	s.beatsClassic(one, 3, "REBALANCE_IN_PROGRESS")
	s.joinsClassic(one, "b", "5")
	s.state("Reconciling 5 5")
	s.syncs(one, 5, "b:0,1,2")
}

// TestSyncWithoutProtocolIsRefusedFirst: before the group's name is looked at.
func TestSyncWithoutProtocolIsRefusedFirst(t *testing.T) {
	s := newScript(t)
	s.syncs("m", 1, "INCONSISTENT_GROUP_PROTOCOL", func(r *kmsg.SyncGroupRequest) { r.Version, r.Group = 5, "" })
	s.syncs("m", 1, "INVALID_GROUP_ID", func(r *kmsg.SyncGroupRequest) { r.Group = "" })
}
