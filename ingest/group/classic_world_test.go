package group

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	worldPartitions = 6
	worldGroup      = "g"
)

// classicWorld is a Coordinator, its replicated map, and clients that do what real
// ones do, driven by one random source. Whatever breaks a rule panics with a
// broken.
type classicWorld struct {
	rng    *rand.Rand
	o      Options
	topics *fakeTopics
	bugs   Bugs
	c      *Coordinator
	now    int64
	store  map[string][]byte
	flying []Write // made, and not replicated
	acked  uint64
	done   uint64 // replicated, and perhaps not acknowledged
	oldest int64  // when the first of flying was made
	ids    int

	cooperative bool
	session     int32 // the clients' time-outs
	rebalance   int32
	clients     []*simClient
	made        int // clients, ever
	calls       int // that are not answered
	facts       facts
	trace       []string
	white       bool // compare memory with the map, too
	counts      map[string]int
	history     []porcupine.Operation // nil: not recorded
	events      int64                 // of the history: calls and answers
}

type broken struct{ what string }

func (w *classicWorld) fail(format string, args ...any) {
	panic(broken{fmt.Sprintf(format, args...)})
}

func (w *classicWorld) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%7d %s", w.now, fmt.Sprintf(format, args...)))
}

func newClassicWorld(seed uint64, bugs Bugs) *classicWorld {
	w := &classicWorld{
		rng: rand.New(rand.NewPCG(seed, 1)), o: DefaultOptions(), topics: topicsOf("t"), bugs: bugs,
		store: map[string][]byte{}, now: 1, facts: newFacts(), counts: map[string]int{},
	}
	w.o.NewID = func() string { w.ids++; return fmt.Sprint(w.ids) }
	w.o.InitialRebalanceDelay = []int64{0, 3000}[w.rng.IntN(2)]
	w.cooperative = w.rng.IntN(2) == 0
	w.session, w.rebalance = []int32{8_000, 12_000, 30_000}[w.rng.IntN(3)], []int32{12_000, 20_000}[w.rng.IntN(2)]
	w.start()
	return w
}

func (w *classicWorld) start() {
	w.c = New(w.o, w.topics)
	w.c.bugs = w.bugs
	for _, k := range slices.Sorted(maps.Keys(w.store)) {
		if err := w.c.Load(k, w.store[k]); err != nil {
			w.fail("%v", err)
		}
	}
	w.flying, w.acked, w.done = nil, 0, 0
	w.c.Loaded(w.now)
	w.gather()
}

func (w *classicWorld) gather() {
	made := w.c.Writes()
	if len(w.flying) == 0 {
		w.oldest = w.now
	}
	w.flying = append(w.flying, made...)
}

// replicate lets the first n writes that fly reach the map.
func (w *classicWorld) replicate(n int) {
	for _, f := range w.flying[:n] {
		apply(w.store, f)
		w.done = f.Number
	}
	w.flying = w.flying[n:]
	w.oldest = w.now
}

// acknowledge tells the Coordinator what is replicated.
func (w *classicWorld) acknowledge() {
	if w.done > w.acked {
		w.acked = w.done
		w.c.Written(w.done)
		w.gather()
	}
}

// takeOver is a change of leader: of the writes that fly, some were replicated.
func (w *classicWorld) takeOver() {
	w.replicate(w.rng.IntN(len(w.flying) + 1))
	w.note("a new leader takes over, %d writes lost", len(w.flying))
	w.counts["take-overs"]++
	w.c.Unload(kerr.NotCoordinator)
	w.start()
}

// step lets a little time pass, and everyone do something.
func (w *classicWorld) step() {
	w.now += int64(w.rng.IntN(300))
	if at, ok := w.c.Deadline(); ok && at <= w.now {
		w.c.Tick(w.now)
		w.gather()
	}
	for _, cl := range slices.Clone(w.clients) {
		if w.now >= cl.paused && w.rng.IntN(4) > 0 {
			cl.act()
		}
	}
	w.disturb()
	if n := w.rng.IntN(len(w.flying) + 1); n > 0 || len(w.flying) > 0 && w.now-w.oldest > 1500 {
		w.replicate(max(n, 1))
	}
	if w.rng.IntN(3) > 0 {
		w.acknowledge()
	}
	if w.white {
		w.compare()
	}
	w.checkOwners()
}

// disturb is what goes wrong, or is done by others.
func (w *classicWorld) disturb() {
	pick := func() *simClient {
		if len(w.clients) == 0 {
			return nil
		}
		return w.clients[w.rng.IntN(len(w.clients))]
	}
	// Leaders change where it hurts more often than elsewhere.
	if g := w.c.group(worldGroup); g != nil && g.classic != nil && g.classic.state != stateStable && w.rng.IntN(250) == 0 {
		w.takeOver()
	}
	switch x := w.rng.IntN(400); {
	case x < 3:
		w.takeOver()
	case x < 8 && len(w.clients) < 6:
		w.join(nil)
	case x < 10 && len(w.clients) < 6:
		w.join(ptr(fmt.Sprintf("i%d", w.rng.IntN(3))))
	case x < 12:
		if cl := pick(); cl != nil {
			w.note("client %d crashes", cl.n)
			w.drop(cl)
			if cl.instance != nil && w.rng.IntN(3) > 0 {
				w.join(cl.instance)
			}
		}
	case x < 15:
		if cl := pick(); cl != nil {
			cl.paused = w.now + int64(w.rng.IntN(30_000))
			cl.zombie = true
			w.note("client %d is stopped until %d", cl.n, cl.paused)
		}
	case x < 18:
		if cl := pick(); cl != nil && w.now >= cl.paused {
			cl.wish = w.rng.IntN(2) + 1
		}
	case x < 40:
		w.administer()
	}
}

func (w *classicWorld) join(instance *string) {
	for _, cl := range w.clients {
		if instance != nil && cl.instance != nil && *cl.instance == *instance && w.rng.IntN(4) > 0 {
			return
		}
	}
	w.made++
	cl := &simClient{w: w, n: w.made, instance: instance, owned: map[int32]bool{}, generation: -1}
	// Two processes with one instance fence each other, as they like.
	for _, other := range w.clients {
		if instance != nil && other.instance != nil && *other.instance == *instance {
			other.zombie, other.twin = true, true
			cl.zombie, cl.twin = true, true
		}
	}
	w.clients = append(w.clients, cl)
	w.note("client %d starts, instance %v", cl.n, show(instance))
}

func show(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}

func (w *classicWorld) drop(cl *simClient) {
	cl.gone = true
	w.clients = slices.DeleteFunc(w.clients, func(c *simClient) bool { return c == cl })
}

// call hands a call to the Coordinator; then gets the answer, unless the
// client is gone by then.
func (w *classicWorld) call(req kmsg.Request, then func(kmsg.Response)) {
	w.calls++
	answered := false
	w.c.Handle(w.now, Call{Request: req, ClientID: "c", ClientHost: "/127.0.0.1", Reply: func(resp kmsg.Response) {
		if answered {
			w.fail("a call of key %d is answered twice", req.Key())
		}
		answered = true
		w.calls--
		then(resp)
	}})
	w.gather()
}

// administer commits, fetches and deletes from outside the group.
func (w *classicWorld) administer() {
	p := int32(w.rng.IntN(worldPartitions))
	switch x := w.rng.IntN(40); {
	case x == 0:
		w.replaceTopic()
	case x < 3 && w.history == nil: // histories have one group's generations
		w.deleteGroup()
	case x < 10:
		w.commit(commitReq(worldGroup, "", -1, "t", p, w.facts.nextOffset()), nil)
	case x < 18:
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = worldGroup
		dt := kmsg.NewOffsetDeleteRequestTopic()
		dt.Topic, dt.Partitions = "t", []kmsg.OffsetDeleteRequestTopicPartition{{Partition: p}}
		req.Topics = append(req.Topics, dt)
		op, done := w.facts.begin(p, -1), w.record(groupOp{kind: opCommit, partition: p, generation: -1, value: -1})
		w.call(req, func(r kmsg.Response) {
			resp := r.(*kmsg.OffsetDeleteResponse)
			code := resp.ErrorCode
			if code == 0 {
				code = resp.Topics[0].Partitions[0].ErrorCode
			}
			op.finish(code)
			done(code, -1)
		})
	default:
		req := fetchReq(worldGroup)
		ft := kmsg.NewOffsetFetchRequestGroupTopic()
		ft.Topic, ft.Partitions = "t", []int32{p}
		req.Groups[0].Topics = append(req.Groups[0].Topics, ft)
		may, done := w.facts.candidates(p), w.record(groupOp{kind: opFetch, partition: p})
		w.call(req, func(r kmsg.Response) {
			g := r.(*kmsg.OffsetFetchResponse).Groups[0]
			if g.ErrorCode != 0 {
				return
			}
			w.counts["fetches"]++
			done(0, g.Topics[0].Partitions[0].Offset)
			if w.history != nil {
				return
			}
			if got := g.Topics[0].Partitions[0].Offset; !slices.Contains(may(), got) {
				w.fail("partition %d: fetched %d, expected one of %v", p, got, may())
			}
		})
	}
}

// replaceTopic deletes the topic and makes one of the same name.
func (w *classicWorld) replaceTopic() {
	old := w.topics.byName["t"]
	next := w.topics.without("t")
	w.made++
	next.byName["t"] = Topic{Name: "t", ID: idOf(fmt.Sprint("t", w.made)), Partitions: worldPartitions}
	w.topics = next
	w.note("topic %x is replaced", old.ID)
	for p := range int32(worldPartitions) {
		w.facts.begin(p, -1).finish(0)
		w.record(groupOp{kind: opCommit, partition: p, generation: -1, value: -1})(0, -1)
	}
	w.c.SetTopics(w.now, next)
	w.gather()
}

// deleteGroup asks for the group's deletion, which only an empty one allows.
func (w *classicWorld) deleteGroup() {
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Version, req.Groups = 2, []string{worldGroup}
	var ops []*offsetOp
	for p := range int32(worldPartitions) {
		ops = append(ops, w.facts.begin(p, -1))
	}
	w.call(req, func(r kmsg.Response) {
		code := r.(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode
		if code == 0 {
			w.note("the group is deleted")
			w.counts["deletions"]++
			w.facts.restart(w)
		}
		for _, op := range ops {
			op.finish(code)
		}
	})
}

// commit commits one partition; cl is nil for an administrator.
func (w *classicWorld) commit(req *kmsg.OffsetCommitRequest, cl *simClient) {
	part := req.Topics[0].Partitions[0]
	op := w.facts.begin(part.Partition, part.Offset)
	done := w.record(groupOp{kind: opCommit, partition: part.Partition, generation: req.Generation, value: part.Offset})
	released, left := w.facts.generation, w.facts.left[req.MemberID]
	settled := slices.ContainsFunc(w.clients, func(c *simClient) bool { return c.state == simStable && !c.zombie && len(c.owned) > 0 })
	w.call(req, func(r kmsg.Response) {
		code := r.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
		op.finish(code)
		done(code, part.Offset)
		if code == 0 {
			w.counts["commits"]++
			switch {
			case w.history != nil:
			case req.Generation < 0 && settled:
				w.fail("a commit without a generation is taken while the group has members")
			case req.Generation >= 0 && req.Generation < released:
				w.fail("a commit of generation %d is taken, and %d was told before", req.Generation, released)
			case left:
				w.fail("a commit of %s is taken, which has left", req.MemberID)
			}
			if req.Generation >= 0 && w.history == nil {
				who := req.MemberID
				if req.InstanceID != nil {
					who = "instance " + *req.InstanceID
				}
				w.facts.owner(w, req.Generation, part.Partition, who)
			}
		}
		if cl != nil {
			cl.committed(code)
		}
	})
}

// checkOwners: no two members that were never stopped own a partition at once.
func (w *classicWorld) checkOwners() {
	var owners [worldPartitions]*simClient
	for _, cl := range w.clients {
		if cl.zombie {
			continue
		}
		for p := range cl.owned {
			if o := owners[p]; o != nil {
				w.fail("partition %d is owned by client %d and client %d", p, o.n, cl.n)
			}
			owners[p] = cl
		}
	}
}

// compare checks memory against what will be replicated when all writes are.
func (w *classicWorld) compare() {
	overlay := maps.Clone(w.store)
	for _, f := range w.flying {
		apply(overlay, f)
	}
	next := New(w.o, w.topics)
	for _, k := range slices.Sorted(maps.Keys(overlay)) {
		if err := next.Load(k, overlay[k]); err != nil {
			w.fail("%v", err)
		}
	}
	for _, c := range []*Coordinator{w.c, next} {
		want := expected(c)
		for k, v := range overlay {
			if g := c.groups[worldGroup].classic; g != nil && g.state == statePreparing && !strings.Contains(k, "\x03t") {
				delete(want, k)
				continue
			}
			if !bytes.Equal(v, want[k]) {
				w.fail("record %q is %x, and memory says %x", k, v, want[k])
			}
			delete(want, k)
		}
		if len(want) > 0 {
			w.fail("records are missing: %q", slices.Sorted(maps.Keys(want)))
		}
	}
}

// farewell is the last disturbance before calm: someone leaves, and the leader
// changes before anyone else has noticed.
func (w *classicWorld) farewell() {
	if len(w.clients) < 2 || w.rng.IntN(2) == 0 {
		return
	}
	cl := w.clients[w.rng.IntN(len(w.clients))]
	if cl.member != "" && w.now >= cl.paused {
		cl.leave()
		w.replicate(len(w.flying))
		w.acknowledge()
	}
	w.takeOver()
}

// calm ends all disturbance: in the end all live clients share the partitions,
// and nobody else is in the group.
func (w *classicWorld) calm() {
	for _, cl := range w.clients {
		cl.paused, cl.wish = 0, 0
	}
	if len(w.clients) == 0 {
		w.join(nil)
	}
	end := w.now + 150_000
	for w.now < end {
		w.now += 200
		if at, ok := w.c.Deadline(); ok && at <= w.now {
			w.c.Tick(w.now)
			w.gather()
		}
		for _, cl := range slices.Clone(w.clients) {
			cl.act()
		}
		w.replicate(len(w.flying))
		w.acknowledge()
		w.checkOwners()
	}
	owned := 0
	for _, cl := range w.clients {
		if cl.state != simStable {
			w.fail("client %d is not back in the group: state %d", cl.n, cl.state)
		}
		owned += len(cl.owned)
	}
	if len(w.clients) > 0 && owned != worldPartitions {
		w.fail("%d of %d partitions are owned", owned, worldPartitions)
	}
	if g := w.c.group(worldGroup); g != nil && g.classic != nil && len(g.classic.members) != len(w.clients) {
		w.fail("%d members are in the group, and %d clients live", len(g.classic.members), len(w.clients))
	}
}

// end answers every call.
func (w *classicWorld) end() {
	w.c.Unload(kerr.NotCoordinator)
	if w.calls != 0 {
		w.fail("%d calls were never answered", w.calls)
	}
}
