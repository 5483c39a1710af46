package group

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// runMigration lets members of both protocols come and go, and tells which rule
// was broken. It also counts the changes of the group's protocol.
func runMigration(seed uint64, steps int, bugs Bugs) (w *world, ups, downs int, err error) {
	w = newWorld(rand.New(rand.NewPCG(seed, 848)), bugs)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	w.o.InitialRebalanceDelay = int64(w.rnd.IntN(2)) * 500
	w.pace(w.anyPace())
	cooperative := w.rnd.IntN(2) == 0
	was := byte(0)
	for i := range steps {
		w.chaosMigration(i, cooperative)
		now := byte(0)
		if g := w.c.group("g"); g != nil && g.consumer != nil {
			now = 'n'
		} else if g != nil && g.classic != nil && len(g.classic.members) > 0 {
			now = 'c'
		}
		if was == 'c' && now == 'n' {
			ups++
		} else if was == 'n' && now == 'c' {
			downs++
		}
		was = now
		if err = w.checkMigration(); err != nil {
			return w, ups, downs, fmt.Errorf("step %d: %w", i, err)
		}
	}
	return w, ups, downs, w.settleMigration()
}

func (w *world) aliveClassics() []*classicClient {
	return slices.DeleteFunc(slices.Clone(w.classics), func(cl *classicClient) bool { return cl.gone })
}

func (w *world) chaosMigration(i int, cooperative bool) {
	var old *classicClient
	if a := w.aliveClassics(); len(a) > 0 {
		old = a[w.rnd.IntN(len(a))]
	}
	cl := w.any()
	switch n := w.rnd.IntN(100); {
	case n < 5 && len(w.aliveClassics()) < 4:
		c := w.joinClassic(fmt.Sprintf("o%d", i), cooperative)
		c.names, _, _ = w.subscription()
		if w.rnd.IntN(3) == 0 {
			id := fmt.Sprintf("i%d", w.rnd.IntN(3))
			c.instance = &id
		}
	case n < 8 && len(w.alive()) < 3:
		w.newClient(i)
	case n < 9:
		w.fail()
	case n < 36:
		w.write(1 + w.rnd.IntN(4))
	case n < 46:
		w.pass(int64(w.rnd.IntN(4000)))
	case n < 47:
		w.pass(int64(w.rnd.IntN(40_000)))
	case n < 50 && cl != nil:
		w.end(cl, i)
	case n < 52 && old != nil:
		if old.instance != nil && w.rnd.IntN(3) > 0 {
			old.restart(fmt.Sprintf("r%d", i))
		} else if w.rnd.IntN(3) == 0 || old.id == "" {
			old.crash()
		} else {
			old.leave()
		}
	case n < 54 && old != nil && (old.instance == nil || old.id != ""):
		old.names, _, _ = w.subscription()
		old.phase = toJoin
	case n < 56 && cl != nil:
		cl.names, cl.regex, cl.tell = w.subscription()
	case n < 62 && cl != nil:
		cl.give()
	case n < 72 && cl != nil:
		if !cl.wait {
			cl.beat(w.rnd.IntN(10) == 0)
		}
	case old != nil && !old.wait:
		old.act(w.rnd.IntN(15) == 0)
	}
}

// accepted tells whether the coordinator would take a commit.
func (w *world) accepted(id string, epoch int32, p partition) bool {
	g := w.c.group("g")
	switch {
	case g == nil || id == "":
		return false
	case g.consumer != nil:
		check, err := g.consumer.checkCommit(id, nil, epoch, 9)
		return err == nil && (check == nil || check("", p.topic, p.index) == nil)
	case g.classic != nil:
		m, err := g.classic.check(id, nil)
		return err == nil && m != nil && g.classic.generation == epoch && g.classic.state != stateCompleting
	}
	return false
}

// checkMigration: of all who believe to own a partition, one at most can commit.
func (w *world) checkMigration() error {
	for _, cl := range w.clients {
		if cl.failure != nil {
			return cl.failure
		}
	}
	if err := w.checkOwners(); err != nil {
		return err
	}
	owner := make(map[partition]string)
	claim := func(name, id string, epoch int32, p partition) error {
		if !w.accepted(id, epoch, p) {
			return nil
		}
		if o := owner[p]; o != "" {
			return fmt.Errorf("%s and %s own partition %d of %x, and both may commit", o, name, p.index, p.topic[:2])
		}
		owner[p] = name
		return nil
	}
	for _, cl := range w.alive() {
		for p := range cl.owns {
			if err := claim(cl.name, cl.id, cl.epoch, p); err != nil {
				return err
			}
		}
	}
	for _, cl := range w.aliveClassics() {
		for p := range cl.owns {
			if err := claim(cl.name, cl.id, cl.generation, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleMigration lets all be quiet, and demands that everyone has a share.
func (w *world) settleMigration() error {
	w.log("quiet from here on")
	for range 60 {
		w.pass(3000)
		w.write(len(w.flying))
		for _, cl := range w.alive() {
			cl.give()
			cl.stuck = true
			if !cl.wait {
				cl.beat(false)
			}
			w.write(len(w.flying))
		}
		for _, cl := range w.aliveClassics() {
			for range 2 {
				if !cl.wait {
					cl.act(false)
				}
				w.write(len(w.flying))
			}
		}
		if err := w.checkMigration(); err != nil {
			return err
		}
	}
	return w.settledMigration()
}

func (w *world) settledMigration() error {
	if len(w.alive())+len(w.aliveClassics()) == 0 {
		return nil
	}
	g := w.c.group("g")
	if (g.consumer != nil) != (len(w.alive()) > 0) {
		return fmt.Errorf("%d consumers, %d classic ones, and the group is of the wrong protocol", len(w.alive()), len(w.aliveClassics()))
	}
	if g.consumer != nil && g.consumer.stateName() != "Stable" || g.classic != nil && g.classic.state != stateStable {
		return fmt.Errorf("the group is not stable")
	}
	owned := make(map[partition]string)
	subscribed := make(map[string]bool)
	one := func(name string, owns map[partition]bool) error {
		for p := range owns {
			if owned[p] != "" {
				return fmt.Errorf("%s and %s own partition %d of %x", name, owned[p], p.index, p.topic[:2])
			}
			owned[p] = name
		}
		return nil
	}
	for _, cl := range w.alive() {
		if err := one(cl.name, cl.owns); err != nil {
			return err
		}
	}
	for _, cl := range w.aliveClassics() {
		if cl.phase != toBeat {
			return fmt.Errorf("%s has not come to rest", cl.name)
		}
		if err := one(cl.name, cl.owns); err != nil {
			return err
		}
		for _, n := range cl.names {
			subscribed[n] = true
		}
	}
	for name, t := range w.topics.byName {
		if !subscribed[name] && (g.consumer == nil || !g.consumer.isSubscribed(name)) {
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

func TestRandomMigration(t *testing.T) {
	seed, n := consumerSeeds()
	ups, downs := 0, 0
	for s := seed; s < seed+n; s++ {
		w, u, d, err := runMigration(s, 500, Bugs{})
		if err != nil {
			t.Fatalf("-consumer.seed %d: %v\n%s", s, err, strings.Join(w.trace[max(0, len(w.trace)-80):], "\n"))
		}
		ups, downs = ups+u, downs+d
	}
	t.Logf("%d upgrades, %d downgrades", ups, downs)
	if n > 1 && (ups == 0 || downs == 0) {
		t.Fatal("no migration happened")
	}
}

// TestPlantedMigrationBugs: the random test finds each of these.
func TestPlantedMigrationBugs(t *testing.T) {
	for name, bugs := range map[string]ConsumerBugs{
		"take fenced":      {TakeFenced: true},
		"lend upgraded":    {LendUpgraded: true},
		"sleep after last": {SleepAfterLast: true},
		"revoke unasked":   {RevokeUnasked: true},
		"assign owned":     {AssignOwned: true},
	} {
		t.Run(name, func(t *testing.T) {
			for s := uint64(1); s <= 300; s++ {
				if _, _, _, err := runMigration(s, 500, Bugs{ConsumerBugs: bugs}); err != nil {
					t.Logf("seed %d: %v", s, err)
					return
				}
			}
			t.Fatal("not found within 300 seeds")
		})
	}
}
