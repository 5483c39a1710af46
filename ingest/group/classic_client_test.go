package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type simState int

const (
	simOut     simState = iota // to join
	simSyncing                 // to sync
	simStable
)

// simClient does what a consumer does: joins, syncs, beats, commits, and gives
// up partitions when it is told to. Eager clients give up all before they
// join; cooperative ones (KIP-429) keep them, and give up what they lose.
type simClient struct {
	w          *classicWorld
	n          int
	instance   *string
	member     string
	generation int32
	state      simState
	waiting    bool
	gone       bool
	owned      map[int32]bool
	plan       map[string][]int32 // the leader's assignment
	paused     int64
	zombie     bool // it was stopped, and may own what is another's
	twin       bool // another has its instance
	wish       int  // 1: leave, 2: join again
	nextBeat   int64
	inbox      []func() // answers, in order
}

// act does one thing.
func (cl *simClient) act() {
	if len(cl.inbox) > 0 {
		next := cl.inbox[0]
		cl.inbox = cl.inbox[1:]
		next()
		return
	}
	if cl.waiting || cl.gone {
		return
	}
	w := cl.w
	switch {
	case cl.wish == 1 && cl.member != "":
		cl.leave()
	case cl.state == simOut:
		cl.join()
	case cl.state == simSyncing:
		cl.sync()
	case cl.wish == 2:
		cl.wish = 0
		cl.rejoin()
	case w.now >= cl.nextBeat && w.rng.IntN(3) > 0 && !(cl.zombie && w.rng.IntN(2) == 0):
		cl.nextBeat = w.now + 1000 + int64(w.rng.IntN(1000))
		cl.beat()
	case len(cl.owned) > 0 && (cl.zombie || w.rng.IntN(3) == 0):
		var all []int32
		for p := range cl.owned {
			all = append(all, p)
		}
		slices.Sort(all)
		req := commitReq(worldGroup, cl.member, cl.generation, "t", all[w.rng.IntN(len(all))], w.facts.nextOffset())
		req.InstanceID = cl.instance
		cl.waiting = true
		w.commit(req, cl)
	}
}

// ask sends a request; the answer is worked on when the client comes to it.
func (cl *simClient) ask(req kmsg.Request, seen, then func(kmsg.Response)) {
	cl.waiting = true
	cl.w.call(req, func(resp kmsg.Response) {
		seen(resp)
		cl.later(func() { then(resp) })
	})
}

func (cl *simClient) later(f func()) {
	if cl.gone {
		return
	}
	cl.inbox = append(cl.inbox, func() {
		cl.waiting = false
		f()
	})
}

func (cl *simClient) join() {
	w := cl.w
	req := joinReq(worldGroup, cl.member, "sim")
	req.InstanceID, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = cl.instance, w.session, w.rebalance
	req.Protocols[0].Metadata = cl.subscription()
	handled, done := w.facts.generation, w.record(groupOp{kind: opJoin})
	if cl.member != "" {
		w.facts.joins[cl.member] = &joinFact{waits: true}
	}
	cl.ask(req, func(r kmsg.Response) {
		resp := r.(*kmsg.JoinGroupResponse)
		if done(resp.ErrorCode, int64(resp.Generation)); w.history != nil {
			return
		}
		if resp.ErrorCode == 0 {
			w.facts.joined(w, resp, handled)
		} else if j := w.facts.joins[req.MemberID]; j != nil && resp.ErrorCode != kerr.NotCoordinator.Code {
			j.waits = false // else it may be in a generation that it was not told
		}
	}, func(r kmsg.Response) { cl.joined(r.(*kmsg.JoinGroupResponse)) })
}

// subscription says what a cooperative client owns.
func (cl *simClient) subscription() []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics, m.Generation = 2, []string{"t"}, cl.generation
	if cl.w.cooperative {
		o := kmsg.NewConsumerMemberMetadataOwnedPartition()
		o.Topic = "t"
		for p := range int32(worldPartitions) {
			if cl.owned[p] {
				o.Partitions = append(o.Partitions, p)
			}
		}
		m.OwnedPartitions = append(m.OwnedPartitions, o)
	}
	return m.AppendTo(nil)
}

func (cl *simClient) joined(resp *kmsg.JoinGroupResponse) {
	cl.w.note("client %d: join of %q: error %d, id %q, generation %d, leader %q, %d members", cl.n, cl.member, resp.ErrorCode, resp.MemberID, resp.Generation, resp.LeaderID, len(resp.Members))
	switch resp.ErrorCode {
	case 0:
		cl.w.counts["joins"]++
		cl.member, cl.generation, cl.state = resp.MemberID, resp.Generation, simSyncing
		cl.plan = nil
		if resp.LeaderID == resp.MemberID && !resp.SkipAssignment {
			cl.plan = share(resp.Members, cl.w.cooperative)
		}
	case kerr.MemberIDRequired.Code:
		cl.member = resp.MemberID
	case kerr.RebalanceInProgress.Code, kerr.NotCoordinator.Code:
	default:
		cl.lost(resp.ErrorCode)
	}
}

// share hands the partitions out, keeping who has them where that is fair;
// what another still owns is left out until it has given it up.
func share(members []kmsg.JoinGroupResponseMember, cooperative bool) map[string][]int32 {
	var names []string
	claims := map[int32]string{}
	claimed := map[int32]int32{}
	for _, m := range members {
		names = append(names, m.MemberID)
		var s kmsg.ConsumerMemberMetadata
		if err := s.ReadFrom(m.ProtocolMetadata); err != nil {
			panic(err)
		}
		for _, o := range s.OwnedPartitions {
			for _, p := range o.Partitions {
				if g, ok := claimed[p]; !ok || s.Generation > g {
					claims[p], claimed[p] = m.MemberID, s.Generation
				}
			}
		}
	}
	slices.Sort(names)
	most := (worldPartitions + len(names) - 1) / len(names)
	out, kept := map[string][]int32{}, map[int32]bool{}
	for p := range int32(worldPartitions) {
		if m := claims[p]; m != "" && len(out[m]) < most {
			out[m], kept[p] = append(out[m], p), true
		}
	}
	for p := range int32(worldPartitions) {
		if kept[p] {
			continue
		}
		least := slices.MinFunc(names, func(a, b string) int { return len(out[a]) - len(out[b]) })
		if cooperative && claims[p] != "" && claims[p] != least {
			continue
		}
		out[least] = append(out[least], p)
	}
	return out
}

func (cl *simClient) sync() {
	req := syncReq(worldGroup, cl.member, cl.generation)
	req.InstanceID, req.Protocol = cl.instance, ptr("sim")
	for _, m := range sortedKeys(cl.plan) {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID = m
		for _, p := range cl.plan[m] {
			a.MemberAssignment = append(a.MemberAssignment, byte(p))
		}
		req.GroupAssignment = append(req.GroupAssignment, a)
	}
	generation := cl.generation
	cl.ask(req, func(kmsg.Response) {}, func(r kmsg.Response) { cl.synced(r.(*kmsg.SyncGroupResponse), generation) })
}

func sortedKeys(m map[string][]int32) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (cl *simClient) synced(resp *kmsg.SyncGroupResponse, generation int32) {
	cl.w.note("client %d: sync of %q in %d: error %d, %v", cl.n, cl.member, generation, resp.ErrorCode, resp.MemberAssignment)
	switch resp.ErrorCode {
	case 0:
		cl.w.counts["syncs"]++
		cl.take(resp.MemberAssignment)
	case kerr.RebalanceInProgress.Code:
		cl.state = simOut
	case kerr.NotCoordinator.Code:
	default:
		cl.lost(resp.ErrorCode)
	}
}

// take owns what is assigned. A cooperative client that has to give something
// up does, and joins again, so that others can have it.
func (cl *simClient) take(assignment []byte) {
	next := map[int32]bool{}
	for _, p := range assignment {
		next[int32(p)] = true
	}
	cl.state, cl.nextBeat = simStable, cl.w.now+1000
	for p := range cl.owned {
		if !next[p] {
			cl.state = simOut
		}
	}
	cl.owned = next
}

func (cl *simClient) beat() {
	req := heartbeatReq(worldGroup, cl.member, cl.generation)
	req.InstanceID = cl.instance
	cl.ask(req, func(kmsg.Response) {}, func(r kmsg.Response) { cl.told("heartbeat", r.(*kmsg.HeartbeatResponse).ErrorCode) })
}

func (cl *simClient) committed(code int16) {
	cl.later(func() { cl.told("commit", code) })
}

func (cl *simClient) told(what string, code int16) {
	switch code {
	case 0, kerr.NotCoordinator.Code:
	case kerr.RebalanceInProgress.Code:
		cl.w.note("client %d is told to join again", cl.n)
		cl.rejoin()
	default:
		cl.w.note("client %d: %s: error %d", cl.n, what, code)
		cl.lost(code)
	}
}

func (cl *simClient) rejoin() {
	cl.state = simOut
	if !cl.w.cooperative {
		cl.owned = map[int32]bool{}
	}
}

// lost: the coordinator knows better. That is not said to a member that was
// never stopped and owns something.
func (cl *simClient) lost(code int16) {
	if !cl.zombie && len(cl.owned) > 0 {
		cl.w.fail("client %d, which was never stopped, owns %v and is told error %d", cl.n, cl.owned, code)
	}
	cl.owned, cl.state, cl.zombie, cl.generation = map[int32]bool{}, simOut, cl.twin, -1
	switch code {
	case kerr.UnknownMemberID.Code:
		cl.member = ""
	case kerr.IllegalGeneration.Code:
	case kerr.FencedInstanceID.Code:
		cl.w.note("client %d ends: another has its instance", cl.n)
		cl.w.drop(cl)
	default:
		cl.w.fail("client %d is told %v", cl.n, kerr.ErrorForCode(code))
	}
}

// leave gives everything up and goes.
func (cl *simClient) leave() {
	w := cl.w
	w.note("client %d leaves as %q", cl.n, cl.member)
	cl.owned, cl.wish = map[int32]bool{}, 0
	w.drop(cl)
	member := cl.member
	w.call(leaveReq(worldGroup, member), func(r kmsg.Response) {
		if resp := r.(*kmsg.LeaveGroupResponse); resp.ErrorCode == 0 && resp.Members[0].ErrorCode == 0 {
			w.facts.left[member] = true
		}
	})
}
