package group

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var consumerSeed = flag.Uint64("consumer.seed", 0, "seed of the random tests of KIP-848's groups; 0: a new one each time")

// runConsumers lets consumers do as they please, then be quiet, and tells which
// rule was broken.
func runConsumers(seed uint64, steps int, bugs Bugs) (w *world, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	w = newWorld(rand.New(rand.NewPCG(seed, 848)), bugs)
	w.pace(w.anyPace())
	for i := range steps {
		w.chaos(i)
		if err = w.check(); err != nil {
			return w, fmt.Errorf("step %d: %w", i, err)
		}
	}
	return w, w.settle()
}

// alive lists the clients that run.
func (w *world) alive() []*worldClient {
	return slices.DeleteFunc(slices.Clone(w.clients), func(cl *worldClient) bool { return cl.gone })
}

// any picks a client that runs, or nil.
func (w *world) any() *worldClient {
	if a := w.alive(); len(a) > 0 {
		return a[w.rnd.IntN(len(a))]
	}
	return nil
}

// chaos does one thing.
func (w *world) chaos(i int) {
	cl := w.any()
	switch n := w.rnd.IntN(100); {
	case n < 8 && len(w.alive()) < 8:
		w.newClient(i)
	case n < 12:
		w.chaosTopics()
	case n < 14:
		w.fail()
	case n < 34:
		w.write(1 + w.rnd.IntN(4))
	case n < 46:
		w.pass(int64(w.rnd.IntN(4000)))
	case n < 47:
		w.pass(int64(w.rnd.IntN(60_000)))
	case n < 48 && i%4 == 0:
		w.pace(w.anyPace())
	case cl == nil:
	case n < 50:
		w.end(cl, i)
	case n < 54:
		cl.names, cl.regex, cl.tell = w.subscription()
	case n < 66:
		cl.give()
	case n < 76:
		// Also one that crashed, or was thought to, and does not know. Some
		// commits are long under way.
		cl = w.clients[w.rnd.IntN(len(w.clients))]
		if o := cl.owned(); len(o) > 0 {
			cl.late = append(cl.late, lateCommit{cl.id, cl.epoch, o[w.rnd.IntN(len(o))]})
		}
		if n := len(cl.late); n > 0 {
			cl.commit(cl.late[w.rnd.IntN(n)])
		}
	case !cl.wait:
		cl.beat(w.rnd.IntN(10) == 0)
	}
}

// anyPace picks an assignment interval: often none, else one shorter or longer
// than the time between heartbeats.
func (w *world) anyPace() int64 { return []int64{0, 0, 1000, 7000}[w.rnd.IntN(4)] }

func (w *world) subscription() ([]string, string, bool) {
	var names []string
	for _, n := range []string{"a", "b", "c", "x-1"} {
		if w.rnd.IntN(2) == 0 {
			names = append(names, n)
		}
	}
	regex := ""
	if w.rnd.IntN(3) == 0 {
		regex = []string{"x-.*", "[ab]", ".*"}[w.rnd.IntN(3)]
	}
	return names, regex, true
}

func (w *world) newClient(i int) {
	cl := w.join(fmt.Sprintf("c%d", i))
	cl.names, cl.regex, _ = w.subscription()
	cl.version = int16(w.rnd.IntN(2))
	if cl.version == 0 {
		cl.id = ""
	}
	if w.rnd.IntN(4) == 0 {
		cl.assignor = "range"
	}
	if w.rnd.IntN(3) == 0 {
		cl.instance = fmt.Sprintf("i%d", w.rnd.IntN(3))
		if slices.ContainsFunc(w.alive(), func(o *worldClient) bool { return o != cl && o.instance == cl.instance && w.rnd.IntN(3) > 0 }) {
			cl.instance = ""
		}
	}
	cl.beat(false)
}

// end ends a client's life in some way.
func (w *world) end(cl *worldClient, i int) {
	switch {
	case cl.epoch == 0 || w.rnd.IntN(3) == 0:
		cl.crash()
	case cl.instance != "" && w.rnd.IntN(4) > 0:
		cl.leave(epochLeaveStatic)
		back := w.join(cl.name + "'")
		back.instance, back.names, back.regex = cl.instance, cl.names, cl.regex
	default:
		cl.leave(epochLeave)
	}
}

func (w *world) chaosTopics() {
	name := []string{"a", "b", "c", "x-1", "x-2"}[w.rnd.IntN(5)]
	t, ok := w.topics.Topic(name)
	switch {
	case w.whole != nil:
		w.catchUp()
	case ok && w.rnd.IntN(4) == 0:
		w.fallBehind(name)
	case !ok:
		w.setTopics(w.topics.with(name, 1+int32(w.rnd.IntN(4))))
	case w.rnd.IntN(4) == 0:
		w.setTopics(w.topics.with(name, 0))
	case t.Partitions < 10:
		w.setTopics(w.topics.with(name, t.Partitions+1))
	}
	w.log("topic %s", name)
}

// check looks for broken rules.
func (w *world) check() error {
	for _, cl := range w.clients {
		if cl.failure != nil {
			return cl.failure
		}
	}
	if err := w.checkOwners(); err != nil {
		return err
	}
	return w.checkBeliefs()
}

// checkBeliefs: what a member believes to own is its own for the coordinator.
func (w *world) checkBeliefs() error {
	g := w.group()
	if g == nil {
		return nil
	}
	for _, cl := range w.alive() {
		m := g.members[cl.id]
		if m == nil || cl.epoch == 0 || m.epoch < cl.epoch {
			continue
		}
		for p := range cl.owns {
			if _, ok := w.topics.TopicByID(p.topic); ok && g.owner[p] != m {
				return fmt.Errorf("%s owns partition %d of %x, and the coordinator does not know it", cl.name, p.index, p.topic[:2])
			}
		}
	}
	return nil
}

// settle lets all be quiet, and demands that everyone comes to the target.
func (w *world) settle() error {
	w.log("quiet from here on")
	w.catchUp()
	for range 40 {
		w.pass(5000)
		w.write(len(w.flying))
		for _, cl := range w.alive() {
			cl.give()
			cl.stuck = true
			if !cl.wait {
				cl.beat(false)
			}
			w.write(len(w.flying))
		}
		if err := w.check(); err != nil {
			return err
		}
	}
	return w.settled()
}

// settled: one group epoch, its target everywhere, every subscribed partition
// somebody's.
func (w *world) settled() error {
	g := w.group()
	if g == nil {
		if len(w.alive()) > 0 {
			return fmt.Errorf("there is no group")
		}
		return nil
	}
	in := 0
	owned := make(map[partition]string)
	for _, cl := range w.alive() {
		m := g.members[cl.id]
		if m == nil || cl.epoch == 0 {
			if cl.instance == "" || g.static[cl.instance] == "" {
				return fmt.Errorf("%s is no member", cl.name)
			}
			continue // another has its instance id
		}
		in++
		if cl.epoch != g.epoch || m.epoch != g.epoch || m.state != memberStable {
			return fmt.Errorf("%s is in epoch %d, the group in %d", cl.name, cl.epoch, g.epoch)
		}
		for p := range cl.owns {
			if owned[p] != "" {
				return fmt.Errorf("%s and %s own partition %d of %x", cl.name, owned[p], p.index, p.topic[:2])
			}
			owned[p] = cl.name
		}
		if want := w.c.targetOf(g, m); !slices.Equal(want, cl.owned()) {
			return fmt.Errorf("%s owns %v, the target is %v", cl.name, cl.owned(), want)
		}
	}
	if in != len(g.members) {
		return fmt.Errorf("%d members, %d clients", len(g.members), in)
	}
	if want := []string{"Stable", "Empty"}; !slices.Contains(want, g.stateName()) {
		return fmt.Errorf("the group is %s", g.stateName())
	}
	return w.allOwned(g, owned)
}

// allOwned: every partition that somebody subscribes to belongs to somebody.
func (w *world) allOwned(g *consumerGroup, owned map[partition]string) error {
	for name, t := range w.topics.byName {
		if !g.isSubscribed(name) {
			continue
		}
		for i := range t.Partitions {
			if owned[partition{t.ID, i}] == "" {
				return fmt.Errorf("nobody owns partition %d of %s", i, name)
			}
		}
	}
	return nil
}

var consumerRuns = flag.Uint64("consumer.runs", 100, "seeds that the random tests of KIP-848's groups try, unless one is given")

// consumerSeeds is the first seed and their number.
func consumerSeeds() (uint64, uint64) {
	if *consumerSeed != 0 {
		return *consumerSeed, 1
	}
	return uint64(time.Now().UnixNano()), *consumerRuns
}

func TestRandomConsumers(t *testing.T) {
	seed, n := consumerSeeds()
	for s := seed; s < seed+n; s++ {
		if w, err := runConsumers(s, 400, Bugs{}); err != nil {
			t.Fatalf("-consumer.seed %d: %v\n%s", s, err, strings.Join(w.trace[max(0, len(w.trace)-60):], "\n"))
		}
	}
}

// TestPlantedConsumerBugs: the random test finds each of these.
func TestPlantedConsumerBugs(t *testing.T) {
	for name, bugs := range map[string]Bugs{
		"reply before written": {ReplyBeforeWritten: true},
		"take living instance": {ConsumerBugs: ConsumerBugs{TakeLivingInstance: true}},
		"revoke unasked":       {ConsumerBugs: ConsumerBugs{RevokeUnasked: true}},
		"assign owned":         {ConsumerBugs: ConsumerBugs{AssignOwned: true}},
		"keep target":          {ConsumerBugs: ConsumerBugs{KeepTarget: true}},
		"forget standing":      {ConsumerBugs: ConsumerBugs{ForgetStanding: true}},
		"commit any epoch":     {ConsumerBugs: ConsumerBugs{CommitAnyEpoch: true}},
		"session forever":      {ConsumerBugs: ConsumerBugs{SessionForever: true}},
	} {
		t.Run(name, func(t *testing.T) {
			for s := uint64(1); s <= 300; s++ {
				if _, err := runConsumers(s, 400, bugs); err != nil {
					t.Logf("seed %d: %v", s, err)
					return
				}
			}
			t.Fatal("not found within 300 seeds")
		})
	}
}
