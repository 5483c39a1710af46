package differential

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Members of a group are called by one name on both sides; what each side gave
// them (ids, generations, epochs, partitions) is its own. A classic group has
// one member at most, so that no join and no sync waits for another.
//
// No two members of a group subscribe to the same topic, so that there is one
// right assignment, and epochs and states are the same as well; a topic may go
// from one to the other. The group "shared" alone has members that share their
// topics (rules.go says what of it is compared).

// GroupMember is a member that both sides have.
type GroupMember struct {
	Group, Name string
	Classic     bool
}

// Instance is a static member's id, of one group.
type Instance struct{ Group, ID string }

// seat is what one side gave a member.
type seat struct {
	id         string
	generation int32 // or epoch
	owned      []kmsg.ConsumerGroupHeartbeatRequestTopic
}

// longTimeout, ms: no member times out while the sequence runs.
const longTimeout = 1_800_000

// still is a topic that stays as it is, outside of what is compared by name:
// the two brokers see a change of topics, and let epochs rise, at other moments.
func (w *World) still(n int) string { return fmt.Sprintf("still-%s%d", w.Prefix, n) }

// stills are all topics of that kind.
func (w *World) stills() []string {
	return []string{w.still(1), w.still(2), w.still(3), w.still(4)}
}

const sharedGroup = "shared"

// groupNames tell which kind of member a group mostly has.
var groupNames = []string{"classic-1", "classic-2", "static", "consumer-1", "consumer-2", sharedGroup, "simple"}

// topicsFor are topics that a member may subscribe to, by its id and instance.
func (g *generator) topicsFor(group, id string, instance *string) []string {
	name := g.side.called(id)
	if name == "" && instance != nil { // it takes a member's place
		name = g.world.Instances[Instance{group, *instance}]
	}
	shared := group == g.world.Prefix+sharedGroup
	var out []string
	for i, t := range g.world.stills() {
		wanted := !g.one(3)
		if wanted && (shared && i < 2 || !shared && !g.world.taken(group, name, t)) {
			out = append(out, t)
		}
	}
	if g.one(4) || len(out) == 0 {
		out = append(out, g.world.Prefix+"missing")
	}
	return out
}

// taken tells whether another member of the group subscribes to a topic.
func (w *World) taken(group, name, topic string) bool {
	for m, topics := range w.Subscriptions {
		if m.Group == group && m.Name != name && slices.Contains(topics, topic) {
			return true
		}
	}
	return false
}

func (g *generator) group() string {
	if g.one(24) {
		return pick(g, "", g.world.Prefix+"nobody")
	}
	return g.world.Prefix + pick(g, groupNames...)
}

// member is mostly one that the group has; the zero seat has no id.
func (g *generator) member(group string, classic bool) (name string, s seat) {
	var of []GroupMember
	for _, m := range g.world.Members {
		if m.Group == group && m.Classic == classic {
			of = append(of, m)
		}
	}
	if len(of) == 0 {
		return "", seat{generation: -1}
	}
	m := pick(g, of...)
	s, ok := g.side.seats[m]
	if !ok { // this side gave it nothing
		s = seat{id: "not a member", generation: 1}
	}
	return m.Name, s
}

// wrong is a seat with, now and then, something that is not so.
func (g *generator) wrong(s seat) seat {
	switch g.rng.IntN(8) {
	case 0:
		s.id = pick(g, "nobody", "")
	case 1:
		s.generation = pick(g, s.generation+1, s.generation-1, -1, 0, -2)
	}
	return s
}

func (g *generator) instance(group string, from int16) *string {
	if g.version < from {
		return nil
	}
	if group == g.world.Prefix+"static" {
		return pick(g, ptr("i1"), ptr("i1"), ptr("i1"), ptr("i1"), nil, ptr("i9"))
	}
	if g.one(16) {
		return ptr("i9")
	}
	return nil
}

// joins are the topics of a classic member: mostly those that it has, since a
// group is to become stable now and then.
func (g *generator) joins(req *kmsg.JoinGroupRequest) []string {
	topics, anew := g.topicsFor(req.Group, req.MemberID, req.InstanceID), g.one(4)
	if had, ok := g.world.Subscriptions[GroupMember{req.Group, g.side.called(req.MemberID), true}]; ok && !anew {
		return had
	}
	if req.MemberID != "" || req.InstanceID == nil {
		return topics
	}
	// It may take the place of a member of the new protocol. If that makes the
	// group a classic one, with other topics, Kafka tells it of a generation 0.
	held := GroupMember{req.Group, g.world.Instances[Instance{req.Group, *req.InstanceID}], false}
	if had, ok := g.world.Subscriptions[held]; ok {
		return had
	}
	return topics
}

// subscription is a ConsumerProtocolSubscription of version 1.
func subscription(topics ...string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics = 1, topics
	return m.AppendTo(nil)
}

func (g *generator) joinGroup() kmsg.Request {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = g.group(), longTimeout, longTimeout, "consumer"
	if req.Group == g.world.Prefix+"static" && g.version < 5 { // would be a second member
		req.Group = g.world.Prefix + "classic-1"
	}
	_, s := g.member(req.Group, true)
	req.MemberID = s.id
	if req.Group == g.world.Prefix+"static" {
		req.InstanceID = ptr("i1")
		if g.one(3) {
			req.MemberID = ""
		}
	}
	protocols := pick(g, []string{"range"}, []string{"range", "roundrobin"})
	switch g.rng.IntN(24) {
	case 0:
		req.SessionTimeoutMillis = pick[int32](g, 10, -1, 0, 100_000_000)
	case 1:
		req.MemberID = "nobody"
	case 2:
		protocols = nil
	case 3:
		req.ProtocolType = ""
	case 4:
		req.ProtocolType, req.MemberID = "connect", "nobody"
	case 5:
		req.MemberID, req.InstanceID = "nobody", g.instance(req.Group, 5)
	}
	subscribes := subscription(g.joins(req)...)
	for _, name := range protocols {
		req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: subscribes})
	}
	return req
}

func (g *generator) syncGroup() kmsg.Request {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group = g.group()
	_, s := g.member(req.Group, true)
	own := s.id
	s = g.wrong(s)
	req.MemberID, req.Generation, req.InstanceID = s.id, s.generation, g.instance(req.Group, 3)
	if g.version >= 5 {
		req.ProtocolType, req.Protocol = pick(g, ptr("consumer"), ptr("consumer"), ptr("consumer"), nil, ptr("connect")), pick(g, ptr("range"), ptr("range"), ptr("range"), nil, ptr("zz"))
	}
	if !g.one(4) {
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: own, MemberAssignment: pick(g, []byte("assigned"), []byte{}, []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 0})})
	}
	if g.one(6) {
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: "nobody", MemberAssignment: []byte("x")})
	}
	return req
}

func (g *generator) heartbeat() kmsg.Request {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group = g.group()
	_, s := g.member(req.Group, true)
	s = g.wrong(s)
	req.MemberID, req.Generation, req.InstanceID = s.id, s.generation, g.instance(req.Group, 3)
	return req
}

func (g *generator) leaveGroup() kmsg.Request {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = g.group()
	_, s := g.member(req.Group, g.one(4) || !g.one(4))
	s = g.wrong(s)
	req.MemberID = s.id
	if g.version >= 3 {
		req.Members = append(req.Members, kmsg.LeaveGroupRequestMember{MemberID: s.id, InstanceID: g.instance(req.Group, 3)})
		if g.one(4) {
			req.Members = append(req.Members, kmsg.LeaveGroupRequestMember{MemberID: "nobody", InstanceID: pick(g, nil, ptr("i8"))})
		}
		if g.one(12) {
			req.Members = nil
		}
	}
	return req
}

func (g *generator) groups() []string {
	var out []string
	for range 1 + g.rng.IntN(2) {
		if name := g.group(); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func (g *generator) listGroups() kmsg.Request {
	req := kmsg.NewPtrListGroupsRequest()
	if g.version >= 4 {
		req.StatesFilter = pick(g, nil, nil, []string{"Stable"}, []string{"empty", "Dead"}, []string{"PreparingRebalance", "CompletingRebalance"}, []string{"nope"}, []string{""})
	}
	if g.version >= 5 {
		req.TypesFilter = pick(g, nil, nil, []string{"classic"}, []string{"CONSUMER"}, []string{"share", "Classic"}, []string{"nope"}, []string{""})
	}
	return req
}

func (g *generator) consumerMember(group string) (string, seat) {
	name, s := g.member(group, false)
	if name == "" || g.one(10) {
		name = pick(g, "x1", "x2")
		s = seat{id: name, generation: 0}
		if g.version == 0 && g.one(3) {
			s.id = ""
		}
	}
	return name, s
}

func (g *generator) consumerHeartbeat() kmsg.Request {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group = g.world.Prefix + pick(g, "consumer-1", "consumer-2", sharedGroup)
	if g.one(20) {
		req.Group = g.group()
	}
	_, s := g.consumerMember(req.Group)
	req.MemberID, req.MemberEpoch = s.id, s.generation
	if g.one(12) {
		req.MemberEpoch = pick[int32](g, -1, -2, 0, s.generation+3, s.generation-1, -3)
	}
	req.RebalanceTimeoutMillis = -1
	if req.MemberEpoch == 0 || g.one(6) {
		req.RebalanceTimeoutMillis = longTimeout
		req.SubscribedTopicNames = g.topicsFor(req.Group, req.MemberID, nil)
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		if req.MemberEpoch != 0 {
			req.Topics = slices.Clone(s.owned)
		}
		req.ServerAssignor = pick(g, nil, nil, nil, ptr("uniform"), ptr("range"), ptr("nope"))
	} else if g.one(2) {
		req.Topics = append([]kmsg.ConsumerGroupHeartbeatRequestTopic{}, s.owned...)
	}
	if g.version >= 1 && g.one(10) {
		req.SubscribedTopicRegex = pick(g, ptr("("), ptr("")) // a valid one is resolved later by Kafka, at once by us
	}
	switch g.rng.IntN(24) {
	case 0:
		req.RebalanceTimeoutMillis = pick[int32](g, -1, longTimeout/2) // a short one may fence a member, some time
	case 1:
		req.SubscribedTopicNames = pick(g, nil, []string{})
		if req.MemberEpoch == 0 && g.isClassic(req.Group) {
			// Kafka then upgrades the group without a new epoch; ours always has one.
			req.SubscribedTopicNames = []string{g.world.Prefix + "missing"}
		}
	case 2:
		req.InstanceID = pick(g, ptr("i1"), ptr(""))
	case 3:
		req.RackID = pick(g, ptr("r"), ptr(""))
	}
	return req
}

// isClassic tells whether a group has members of the classic protocol.
func (g *generator) isClassic(group string) bool {
	return slices.ContainsFunc(g.world.Members, func(m GroupMember) bool { return m.Group == group && m.Classic })
}

// call gives an id that a side has drawn a name that both sides share.
func (s *Side) call(id string, n uint64) string {
	if name, ok := s.memberNames[id]; ok {
		return name
	}
	name := fmt.Sprintf("member of step %d", n)
	s.memberNames[id] = name
	return name
}
