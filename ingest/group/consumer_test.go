package group

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// script is a world in which a test plays the members by hand.
type script struct {
	*world
	t        *testing.T
	metadata string // of commits
}

func newScript(t *testing.T) *script {
	return &script{world: newWorld(rand.New(rand.NewPCG(1, 1)), Bugs{}), t: t}
}

type heartbeat = kmsg.ConsumerGroupHeartbeatRequest

// beat sends a heartbeat and demands a result: an error's name, or the epoch
// and what the answer assigns: "3 a:0-2 b:1", "3 -" for none told, "3 none".
func (s *script) beat(member string, epoch int32, want string, with ...func(*heartbeat)) *kmsg.ConsumerGroupHeartbeatResponse {
	s.t.Helper()
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = 1, "g", member, epoch, -1
	for _, f := range with {
		f(r)
	}
	resp := s.do(r).(*kmsg.ConsumerGroupHeartbeatResponse)
	if got := s.told(resp); got != want {
		s.t.Fatalf("%s in epoch %d: got %q, want %q (%s)", member, epoch, got, want, value(resp.ErrorMessage))
	}
	if err := s.checkOwners(); err != nil {
		s.t.Fatal(err)
	}
	return resp
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func (s *script) told(resp *kmsg.ConsumerGroupHeartbeatResponse) string {
	if err := kerr.TypedErrorForCode(resp.ErrorCode); err != nil {
		return err.Message
	}
	if resp.MemberEpoch < 0 {
		return fmt.Sprint(resp.MemberEpoch)
	}
	if resp.Assignment == nil {
		return fmt.Sprintf("%d -", resp.MemberEpoch)
	}
	var parts []string
	for _, t := range resp.Assignment.Topics {
		topic, _ := s.topics.TopicByID(t.TopicID)
		parts = append(parts, topic.Name+":"+strings.Trim(strings.ReplaceAll(fmt.Sprint(t.Partitions), " ", ","), "[]"))
	}
	if parts == nil {
		parts = []string{"none"}
	}
	slices.Sort(parts)
	return fmt.Sprintf("%d %s", resp.MemberEpoch, strings.Join(parts, " "))
}

// topics subscribes; owns tells "a:0,1 b:2"; joins is a first heartbeat's rest.
func topics(names ...string) func(*heartbeat) {
	return func(r *heartbeat) { r.SubscribedTopicNames = append([]string{}, names...) }
}

func regex(text string) func(*heartbeat) {
	return func(r *heartbeat) { r.SubscribedTopicRegex = &text }
}

func instance(id string) func(*heartbeat) { return func(r *heartbeat) { r.InstanceID = &id } }

func (s *script) owns(list string) func(*heartbeat) {
	return func(r *heartbeat) {
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		for _, f := range strings.Fields(list) {
			name, indexes, _ := strings.Cut(f, ":")
			t := kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: s.topics.byName[name].ID}
			for _, i := range strings.Split(indexes, ",") {
				var n int32
				fmt.Sscan(i, &n)
				t.Partitions = append(t.Partitions, n)
			}
			r.Topics = append(r.Topics, t)
		}
	}
}

func joins(names ...string) func(*heartbeat) {
	return func(r *heartbeat) {
		r.RebalanceTimeoutMillis = rebalanceMs
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		r.SubscribedTopicNames = append([]string{}, names...)
	}
}

// state demands the group's state and epochs: "Stable 2 2".
func (s *script) state(want string) {
	s.t.Helper()
	g := s.group()
	if got := fmt.Sprint(g.stateName(), " ", g.epoch, " ", g.targetEpoch); got != want {
		s.t.Fatalf("the group is %s, want %s", got, want)
	}
}

// reload puts a new coordinator in the place of the old one.
func (s *script) reload() {
	s.write(len(s.flying))
	s.c.Unload(kerr.NotCoordinator)
	s.load()
}

func TestTwoMembersShare(t *testing.T) {
	for _, reload := range []bool{false, true} {
		s := newScript(t)
		maybe := func() {
			if reload {
				s.reload()
			}
		}
		s.beat("m1", 0, "2 a:0,1,2,3,4,5", joins("a"))
		s.state("Stable 2 2")
		maybe()
		s.beat("m2", 0, "3 none", joins("a"))
		s.state("Reconciling 3 3")
		maybe()
		s.beat("m2", 3, "3 -")
		// The first stays in its epoch until it has given up.
		s.beat("m1", 2, "2 a:0,1,2")
		maybe()
		s.beat("m2", 3, "3 -")
		s.beat("m1", 2, "2 -")
		s.beat("m1", 2, "2 -", s.owns("a:0,1,2,3"))
		maybe()
		s.beat("m1", 2, "3 -", s.owns("a:0,1,2"))
		maybe()
		s.beat("m2", 3, "3 a:3,4,5")
		s.state("Stable 3 3")
		maybe()
		// Leaving gives everything back.
		s.beat("m1", -1, "-1")
		s.state("Assigning 4 3")
		maybe()
		s.beat("m2", 3, "4 a:0,1,2,3,4,5")
		s.beat("m2", -1, "-1")
		s.state("Empty 5 4")
		maybe()
		s.beat("m3", 0, "6 a:0,1,2,3,4,5", joins("a"))
	}
}

func TestMemberEpochs(t *testing.T) {
	s := newScript(t)
	s.beat("m1", 0, "2 a:0,1,2,3,4,5", joins("a"))
	s.beat("m1", 3, "FENCED_MEMBER_EPOCH")
	s.beat("m2", 0, "3 none", joins("a"))
	s.beat("m1", 2, "2 a:0,1,2")
	s.beat("m1", 2, "3 -", s.owns("a:0,1,2"))
	// The answer was lost: the member repeats itself, and hears all again.
	s.beat("m1", 2, "FENCED_MEMBER_EPOCH")
	s.beat("m1", 2, "FENCED_MEMBER_EPOCH", s.owns("a:0,1,2,3"))
	s.beat("m1", 2, "3 -", s.owns("a:0,1"))
	s.beat("m1", 2, "3 a:0,1,2", joins("a"), s.owns("a:0,1,2"))
	s.beat("m9", 2, "UNKNOWN_MEMBER_ID")
	s.beat("m9", -1, "UNKNOWN_MEMBER_ID")
	// Epoch 0 begins anew, with what it is to have.
	s.beat("m1", 0, "3 a:0,1,2", joins("a"))
	s.beat("x", 2, "GROUP_ID_NOT_FOUND", func(r *heartbeat) { r.Group = "none" })
	s.beat("x", -1, "GROUP_ID_NOT_FOUND", func(r *heartbeat) { r.Group = "none" })
}

func TestInvalidHeartbeats(t *testing.T) {
	s := newScript(t)
	empty := ""
	for name, f := range map[string]func(*heartbeat){
		"no member id":            func(r *heartbeat) { r.MemberID = "" },
		"no group":                func(r *heartbeat) { r.Group = "" },
		"empty instance":          func(r *heartbeat) { r.InstanceID = &empty },
		"empty rack":              func(r *heartbeat) { r.RackID = &empty },
		"epoch -3":                func(r *heartbeat) { r.MemberEpoch = -3 },
		"epoch -2, no instance":   func(r *heartbeat) { r.MemberEpoch = -2 },
		"no rebalance time-out":   func(r *heartbeat) { r.RebalanceTimeoutMillis = -1 },
		"owns something at first": s.owns("a:1"),
		"tells not what it owns":  func(r *heartbeat) { r.Topics = nil },
		"subscribes to nothing":   func(r *heartbeat) { r.SubscribedTopicNames = nil },
		"version 0, leaves":       func(r *heartbeat) { r.Version, r.MemberEpoch, r.MemberID = 0, -1, "" },
	} {
		t.Run(name, func(t *testing.T) { s.beat("m", 0, "INVALID_REQUEST", joins("a"), f) })
	}
	sticky := "sticky"
	s.beat("m", 0, "UNSUPPORTED_ASSIGNOR", joins("a"), func(r *heartbeat) { r.ServerAssignor = &sticky })
	// Kafka looks at it last.
	s.beat("m", 0, "INVALID_REQUEST", func(r *heartbeat) { r.ServerAssignor = &sticky })
	s.beat("m", 0, "INVALID_REGULAR_EXPRESSION", joins("a"), regex("a("))
	s.beat("m", 0, "INVALID_REGULAR_EXPRESSION", joins("a"), regex(strings.Repeat("a", regexMax+1)))
	if s.c.group("g") != nil || len(s.stored) > 0 {
		t.Fatal("a refused member has left something behind")
	}
	s.o.ConsumerMaxSize = 1
	s.c.Configure(s.o)
	s.beat("m", 0, "2 a:0,1,2,3,4,5", joins("a"))
	// Who is fenced hears of that before anything that is wrong besides.
	s.beat("m", 18, "FENCED_MEMBER_EPOCH", regex("("))
	s.beat("n", 0, "GROUP_MAX_SIZE_REACHED", joins("a"))
	s.beat("m", 0, "2 a:0,1,2,3,4,5", joins("a"))
}

func TestMemberIDs(t *testing.T) {
	s := newScript(t)
	// Version 0 may leave it to the coordinator.
	resp := s.beat("", 0, "2 b:0,1,2", joins("b"), func(r *heartbeat) { r.Version = 0 })
	if id := value(resp.MemberID); id != "id-1" || s.group().members[id] == nil {
		t.Fatalf("member id %q", id)
	}
	s.beat("mine", 0, "3 none", joins("b"))
}

func TestSubscriptions(t *testing.T) {
	s := newScript(t)
	s.beat("m", 0, "2 none", joins("nothing"))
	s.beat("m", 2, "3 b:0,1,2", topics("b", "b"))
	s.beat("m", 3, "3 -", regex(""))
	s.beat("m", 3, "4 b:0,1,2 x-1:0,1", regex("x-."))
	// The whole name must match.
	s.setTopics(s.topics.with("x-22", 1).with("ax-2", 1))
	s.beat("m", 4, "4 -")
	// Names are unchanged by null; the expression goes by "".
	s.beat("m", 4, "4 b:0,1,2", regex(""))
	s.beat("m", 4, "5 -", s.owns("b:0,1,2"))
	s.beat("m", 5, "6 a:0,1,2,3,4,5 b:0,1,2 x-1:0,1", topics(), regex("a|b|x-."), s.owns("b:0,1,2"))
	s.beat("m", 6, "6 none", topics(), regex(""))
	s.beat("m", 6, "7 -", s.owns(""))
	s.state("Stable 7 7")
	s.reload()
	s.beat("m", 7, "8 b:0,1,2", regex("b"))
}

func TestNewTopicsMatch(t *testing.T) {
	s := newScript(t)
	s.beat("m", 0, "2 x-1:0,1", joins(), regex("x-.*"))
	s.now += 5000
	s.setTopics(s.topics.with("x-2", 1))
	s.state("Assigning 3 2")
	s.beat("m", 2, "3 x-1:0,1 x-2:0")
	// A burst costs one match: the next is due a second later.
	s.setTopics(s.topics.with("x-3", 1))
	s.setTopics(s.topics.with("x-4", 1))
	s.state("Stable 3 3")
	s.pass(regexRescan)
	s.state("Assigning 4 3")
	s.beat("m", 3, "4 x-1:0,1 x-2:0 x-3:0 x-4:0")
}

func TestTopicsChange(t *testing.T) {
	s := newScript(t)
	s.beat("m", 0, "2 a:0,1,2,3,4,5 b:0,1,2", joins("a", "b", "c"))
	s.setTopics(s.topics.with("x-1", 9))
	s.state("Stable 2 2")
	s.setTopics(s.topics.with("b", 4))
	s.state("Assigning 3 2")
	s.beat("m", 2, "3 a:0,1,2,3,4,5 b:0,1,2,3")
	s.setTopics(s.topics.with("c", 1))
	s.beat("m", 3, "4 a:0,1,2,3,4,5 b:0,1,2,3 c:0")
	// A topic of the same name is another topic.
	old := s.topics
	s.setTopics(s.topics.with("c", 0))
	s.setTopics(s.topics.with("c", 1))
	if old.byName["c"].ID == s.topics.byName["c"].ID {
		t.Fatal("the new topic has the old one's id")
	}
	s.beat("m", 4, "4 a:0,1,2,3,4,5 b:0,1,2,3")
	s.beat("m", 4, "6 a:0,1,2,3,4,5 b:0,1,2,3 c:0", s.owns("a:0,1,2,3,4,5 b:0,1,2,3"))
	// What changed while no coordinator was there is noticed.
	s.topics = s.topics.with("c", 2)
	s.reload()
	s.beat("m", 6, "7 a:0,1,2,3,4,5 b:0,1,2,3 c:0,1")
}

// TestMissingTopicsAreWaitedFor: a coordinator whose view of the topics is
// behind takes nothing from anybody, for a while.
func TestMissingTopicsAreWaitedFor(t *testing.T) {
	s := newScript(t)
	s.beat("m", 0, "2 a:0,1,2,3,4,5 b:0,1,2", joins("a", "b"))
	all := s.topics
	behind := s.topics.with("b", 0)
	behind.deleted = nil
	s.topics = behind
	s.reload()
	s.state("Stable 2 2")
	s.beat("m", 2, "2 -")
	// Who joins meanwhile waits, and who changes its mind keeps what is missing.
	s.beat("n", 0, "2 none", joins("a"))
	s.state("Assigning 3 2")
	s.beat("m", 2, "2 -", topics("b", "a", "x-1"))
	s.setTopics(all)
	s.beat("m", 2, "2 a:0 b:0,1,2", s.owns("a:0,1,2,3,4,5 b:0,1,2"))
	s.beat("m", 2, "5 a:0 b:0,1,2 x-1:0,1", s.owns("a:0 b:0,1,2"))
	s.beat("n", 2, "5 a:1,2,3,4,5")
	// After a minute what is missing is gone.
	s.setTopics(behind)
	s.beat("m", 5, "5 -")
	s.pass(40_000)
	s.beat("n", 5, "5 -")
	s.beat("m", 5, "5 -")
	s.pass(blindMax - 40_000)
	s.state("Assigning 6 5")
	s.beat("n", 5, "5 a:1,2,3,4")
	s.beat("m", 5, "5 a:0 x-1:0,1")
}

func TestTimeouts(t *testing.T) {
	s := newScript(t)
	s.beat("m1", 0, "2 a:0,1,2,3,4,5", joins("a"))
	s.pass(44_000)
	s.beat("m1", 2, "2 -")
	s.pass(44_000)
	s.beat("m2", 0, "3 none", joins("a"))
	s.pass(999)
	s.beat("m1", 2, "2 a:0,1,2")
	// It beats, but does not give up: that ends with its rebalance time-out.
	s.pass(rebalanceMs - 1)
	s.beat("m1", 2, "2 -")
	s.pass(1)
	s.beat("m1", 2, "UNKNOWN_MEMBER_ID")
	s.beat("m2", 3, "4 a:0,1,2,3,4,5")
	// A coordinator that takes over gives everyone the whole time again.
	s.pass(44_000)
	s.reload()
	s.pass(44_999)
	s.state("Stable 4 4")
	s.pass(1)
	s.state("Empty 5 4")
}

func TestStaticMembers(t *testing.T) {
	s := newScript(t)
	s.beat("m1", 0, "2 a:0,1,2,3,4,5", joins("a"), instance("i"))
	s.beat("n1", 0, "UNRELEASED_INSTANCE_ID", joins("a"), instance("i"))
	s.beat("n1", 2, "FENCED_INSTANCE_ID", instance("i"))
	s.beat("m1", 2, "UNKNOWN_MEMBER_ID", instance("j"))
	s.beat("m2", 0, "3 none", joins("a"))
	s.beat("m1", 2, "2 a:0,1,2", instance("i"))
	// It goes for a while: what it was giving up is given up, the rest stays its own.
	s.beat("m1", -2, "-2", instance("i"))
	s.beat("m2", 3, "3 a:3,4,5")
	s.beat("m1", 2, "FENCED_MEMBER_EPOCH", instance("i"))
	s.reload()
	s.beat("m3", 0, "3 a:0,1,2", joins("a"), instance("i"))
	s.state("Stable 3 3")
	s.beat("m1", 2, "FENCED_INSTANCE_ID", instance("i"))
	s.beat("m1", 2, "UNKNOWN_MEMBER_ID")
	// The same one may come back under its own id.
	s.beat("m3", -2, "-2", instance("i"))
	s.beat("m3", 0, "3 a:0,1,2", joins("a"), instance("i"))
	// One that does not come back is out when its session ends.
	s.beat("m3", -2, "-2", instance("i"))
	s.pass(44_000)
	s.beat("m2", 3, "3 -")
	s.pass(1_000)
	s.beat("m2", 3, "4 a:0,1,2,3,4,5")
	s.beat("m3", -2, "UNKNOWN_MEMBER_ID", instance("i"))
	s.beat("m2", -1, "UNKNOWN_MEMBER_ID", instance("i"))
}

func TestAssignorVotes(t *testing.T) {
	s := newScript(t)
	ranged := func(r *heartbeat) { name := "range"; r.ServerAssignor = &name }
	s.beat("m1", 0, "2 a:0,1,2,3,4,5 b:0,1,2", joins("a", "b"), ranged)
	s.beat("m2", 0, "3 none", joins("a", "b"))
	s.beat("m1", 2, "2 a:0,1,2 b:0,1")
	if d := s.describe("g"); d.AssignorName != "range" {
		t.Fatalf("assignor %s", d.AssignorName)
	}
}

func TestManyMembersShareTargets(t *testing.T) {
	s := newScript(t)
	s.pace(manyInterval)
	s.setTopics(s.topics.with("wide", 500))
	for i := range 200 {
		s.beatFree(fmt.Sprint("m", i), 0, joins("wide"))
		s.pass(1)
	}
	g := s.group()
	s.state("Assigning 201 2")
	s.pass(manyInterval)
	s.beatFree("m0", g.members["m0"].epoch)
	s.state("Reconciling 201 201")
}

// beatFree is beat with any result.
func (s *script) beatFree(member string, epoch int32, with ...func(*heartbeat)) *kmsg.ConsumerGroupHeartbeatResponse {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.MemberEpoch, r.RebalanceTimeoutMillis = 1, "g", member, epoch, -1
	for _, f := range with {
		f(r)
	}
	return s.do(r).(*kmsg.ConsumerGroupHeartbeatResponse)
}

func TestConsumerBounds(t *testing.T) {
	s := newScript(t)
	long := strings.Repeat("x", 240)
	names := make([]string, profileMax/240)
	for i := range names {
		names[i] = fmt.Sprint(long, i)
	}
	s.beat("m", 0, "INVALID_REQUEST", joins(names...))
	s.beat("m", 0, "INVALID_GROUP_ID", joins("a"), func(r *heartbeat) { r.Group = strings.Repeat("g", groupNameMax+1) })
	s.beat(strings.Repeat("m", memberIDMax+1), 0, "INVALID_REQUEST", joins("a"))
	s.beat("m", 0, "INVALID_REQUEST", joins("a"), instance(strings.Repeat("i", instanceMax+1)))
	s.beat("m", 0, "2 a:0,1,2,3,4,5", joins("a"))
	s.beat("m", 2, "INVALID_REQUEST", func(r *heartbeat) {
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{Partitions: make([]int32, ownedMax+1)}}
	})
	s.group().bytes = profilesMax
	s.beat("n", 0, "GROUP_MAX_SIZE_REACHED", joins("a"))
	s.joinsClassic("", "a", "GROUP_MAX_SIZE_REACHED")
	s.joinsClassic("", "a", "INVALID_REQUEST", func(r *joinGroup) { r.Protocols[0].Metadata = make([]byte, profileMax) })
	s.beat("m", 2, "2 -")
	s.beat("m", -1, "-1")

	// What is stored of a member fits into the replicated map's bound of 4 MiB.
	m := consumerMember{id: "m"}
	for i := range partitionsMax {
		m.assigned = append(m.assigned, holding{partition{topic: [16]byte{byte(i >> 16), byte(i >> 8), byte(i)}}, 1})
	}
	if n := len(m.standingRecord("g").Value); n > 4<<20 {
		t.Errorf("%d partitions take %d bytes", partitionsMax, n)
	}
	a := assignmentOf(m.assigned)
	if got := atMost(a, 5); len(got) != 5 || len(atMost(a, partitionsMax)) != partitionsMax {
		t.Errorf("cut to 5, %d are left", len(got))
	}
	a[0].Indexes = []int32{0, 1, 2}
	if got := atMost(a, 2); len(got) != 1 || len(got[0].Indexes) != 2 {
		t.Errorf("cut to 2: %v", got)
	}
}
