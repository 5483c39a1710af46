package group

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// classicClient is a consumer of the classic protocol. An eager one gives up
// all before it joins; a cooperative one (KIP-429) keeps what it has, and joins
// again once it has given up what it lost.
type classicClient struct {
	w           *world
	name        string
	cooperative bool
	instance    *string
	id          string
	generation  int32
	names       []string
	told        []string // the names that its last join told
	owns        map[partition]bool
	phase       phase
	leads       []kmsg.JoinGroupResponseMember
	wait        bool
	serial      int
	gone        bool
}

type phase int

const (
	toJoin phase = iota
	toSync
	toBeat
)

func (w *world) joinClassic(name string, cooperative bool) *classicClient {
	cl := &classicClient{w: w, name: name, cooperative: cooperative, names: []string{"a"}, owns: make(map[partition]bool), generation: -1}
	w.classics = append(w.classics, cl)
	return cl
}

// act sends what comes next.
func (cl *classicClient) act(lose bool) {
	switch cl.phase {
	case toJoin:
		cl.join(lose)
	case toSync:
		cl.sync(lose)
	case toBeat:
		cl.beat(lose)
	}
}

// send sends a request; the answer goes to done, unless it is lost or late.
func (cl *classicClient) send(req kmsg.Request, lose bool, done func(kmsg.Response)) {
	cl.wait = true
	cl.serial++
	serial := cl.serial
	cl.w.call(req, func(r kmsg.Response) {
		if serial != cl.serial {
			return
		}
		cl.wait = false
		if lose {
			cl.w.log("%s: the answer is lost", cl.name)
			return
		}
		done(r)
	})
}

func (cl *classicClient) protocolName() string {
	if cl.cooperative {
		return "cooperative"
	}
	return "eager"
}

func (cl *classicClient) metadata() []byte {
	s := kmsg.ConsumerMemberMetadata{Version: 1, Topics: cl.names, Generation: -1}
	if cl.cooperative {
		s.Version, s.Generation = 3, cl.generation
		for _, p := range sortedPartitions(cl.owns) {
			if t, ok := cl.w.topics.TopicByID(p.topic); ok {
				s.OwnedPartitions = append(s.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: t.Name, Partitions: []int32{p.index}})
			}
		}
	}
	return s.AppendTo(nil)
}

func sortedPartitions(set map[partition]bool) []partition {
	return slices.SortedFunc(maps.Keys(set), partition.compare)
}

func (cl *classicClient) join(lose bool) {
	if !cl.cooperative {
		clear(cl.owns)
	}
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 5, "g", cl.id, 30_000, rebalanceMs
	r.InstanceID = cl.instance
	if cl.instance != nil {
		for _, o := range cl.w.clients {
			o.robbed = o.robbed || o.instance == *cl.instance
		}
	}
	r.ProtocolType = "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = cl.protocolName(), cl.metadata()
	r.Protocols = append(r.Protocols, p)
	cl.told = cl.names
	cl.w.log("%s joins as %q for %v, %d owned", cl.name, cl.id, cl.names, len(cl.owns))
	cl.send(r, lose, func(resp kmsg.Response) {
		j := resp.(*kmsg.JoinGroupResponse)
		if j.ErrorCode == kerr.MemberIDRequired.Code {
			cl.id = j.MemberID
			return
		}
		if cl.failed(j.ErrorCode) {
			return
		}
		cl.id, cl.generation, cl.phase, cl.leads = j.MemberID, j.Generation, toSync, nil
		if j.LeaderID == cl.id {
			cl.leads = j.Members
		}
		cl.w.log("%s is in generation %d, led by %q", cl.name, cl.generation, j.LeaderID)
	})
}

func (cl *classicClient) sync(lose bool) {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Version, r.Group, r.MemberID, r.Generation, r.InstanceID = 3, "g", cl.id, cl.generation, cl.instance
	if cl.leads != nil {
		r.GroupAssignment = cl.assignment()
	}
	cl.send(r, lose, func(resp kmsg.Response) {
		s := resp.(*kmsg.SyncGroupResponse)
		if cl.failed(s.ErrorCode) {
			return
		}
		var a kmsg.ConsumerMemberAssignment
		if err := a.ReadFrom(s.MemberAssignment); err != nil && len(s.MemberAssignment) > 0 {
			panic(err)
		}
		cl.take(&a)
	})
}

// take takes an assignment.
func (cl *classicClient) take(a *kmsg.ConsumerMemberAssignment) {
	want := make(map[partition]bool)
	for _, t := range a.Topics {
		if topic, ok := cl.w.topics.Topic(t.Topic); ok {
			for _, i := range t.Partitions {
				want[partition{topic.ID, i}] = true
			}
		}
	}
	cl.phase = toBeat
	if !slices.Equal(cl.told, cl.names) {
		cl.phase = toJoin
	}
	for p := range cl.owns {
		if !want[p] {
			cl.phase = toJoin // it has given up something
		}
	}
	cl.owns = want
	cl.w.log("%s owns %d in generation %d", cl.name, len(want), cl.generation)
}

func (cl *classicClient) beat(lose bool) {
	r := kmsg.NewPtrHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.Generation, r.InstanceID = 3, "g", cl.id, cl.generation, cl.instance
	cl.send(r, lose, func(resp kmsg.Response) { cl.failed(resp.(*kmsg.HeartbeatResponse).ErrorCode) })
}

// failed handles an error, if it is one.
func (cl *classicClient) failed(code int16) bool {
	if code == 0 {
		return false
	}
	err := kerr.TypedErrorForCode(code)
	cl.w.log("%s: %s", cl.name, err.Message)
	switch err {
	case kerr.NotCoordinator:
	case kerr.RebalanceInProgress:
		cl.phase = toJoin
	case kerr.UnknownMemberID:
		cl.id, cl.generation, cl.phase = "", -1, toJoin
		clear(cl.owns)
	case kerr.IllegalGeneration:
		cl.generation, cl.phase = -1, toJoin
		clear(cl.owns)
	case kerr.FencedInstanceID:
		cl.crash()
	case kerr.GroupMaxSizeReached:
	default:
		panic(fmt.Sprintf("%s is answered %s", cl.name, err.Message))
	}
	return true
}

// restart is another with its instance id. It subscribes to the same: a static
// member that comes back to a stable classic group does not rebalance it, even
// if it wants something else by now (KIP-345).
func (cl *classicClient) restart(name string) {
	cl.crash()
	back := cl.w.joinClassic(name, cl.cooperative)
	back.instance, back.names = cl.instance, cl.names
	if cl.told != nil {
		back.names = cl.told
	}
}

// leave says goodbye; crash does not.
func (cl *classicClient) leave() {
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version, r.Group, r.MemberID = 2, "g", cl.id
	cl.crash()
	cl.w.log("%s leaves", cl.name)
	cl.w.call(r, func(kmsg.Response) {})
}

func (cl *classicClient) crash() {
	cl.serial++
	cl.gone = true
	clear(cl.owns)
}

// assignment is what a leader makes of the members' subscriptions: about
// balanced, and, among cooperative ones, giving nobody what another still has.
func (cl *classicClient) assignment() []kmsg.SyncGroupRequestGroupAssignment {
	type who struct {
		id   string
		subs []string
		load int
		a    map[string][]int32
	}
	var members []*who
	claimed := make(map[partition]string)
	claimedIn := make(map[partition]int32)
	for _, m := range cl.leads {
		var s kmsg.ConsumerMemberMetadata
		if err := s.ReadFrom(m.ProtocolMetadata); err != nil {
			panic(err)
		}
		members = append(members, &who{id: m.MemberID, subs: s.Topics, a: make(map[string][]int32)})
		for _, o := range s.OwnedPartitions {
			p := partition{cl.w.topics.byName[o.Topic].ID, o.Partitions[0]}
			if claimed[p] == "" || s.Generation > claimedIn[p] {
				claimed[p], claimedIn[p] = m.MemberID, s.Generation
			}
		}
	}
	slices.SortFunc(members, func(a, b *who) int { return cmp.Compare(a.id, b.id) })
	total := 0
	for _, t := range cl.w.topics.byName {
		total += int(t.Partitions)
	}
	most := (total + len(members) - 1) / len(members)
	for _, name := range slices.Sorted(maps.Keys(cl.w.topics.byName)) {
		t := cl.w.topics.byName[name]
		for i := range t.Partitions {
			var best *who
			for _, m := range members {
				if !slices.Contains(m.subs, name) {
					continue
				}
				keeps := claimed[partition{t.ID, i}] == m.id && m.load < most
				if best == nil || keeps || m.load < best.load && claimed[partition{t.ID, i}] != best.id {
					best = m
				}
				if keeps {
					break
				}
			}
			if best == nil {
				continue
			}
			best.load++
			if o := claimed[partition{t.ID, i}]; o == "" || o == best.id {
				best.a[name] = append(best.a[name], i)
			}
		}
	}
	var out []kmsg.SyncGroupRequestGroupAssignment
	for _, m := range members {
		a := kmsg.ConsumerMemberAssignment{Version: 1}
		for _, name := range slices.Sorted(maps.Keys(m.a)) {
			a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: name, Partitions: m.a[name]})
		}
		out = append(out, kmsg.SyncGroupRequestGroupAssignment{MemberID: m.id, MemberAssignment: a.AppendTo(nil)})
	}
	return out
}
