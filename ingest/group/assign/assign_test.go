package assign

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests; 0: a new one each time")

func random(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func topic(n int) TopicID { return TopicID{byte(n >> 8), byte(n), 1} }

// owners checks that every partition that exists and has a subscriber belongs
// to exactly one of them, and nothing else to anybody.
func owners(t *testing.T, members []Member, counts map[TopicID]int32, got []Assignment) map[TopicID][]int {
	t.Helper()
	if len(got) != len(members) {
		t.Fatalf("%d assignments for %d members", len(got), len(members))
	}
	out := make(map[TopicID][]int)
	for _, m := range members {
		for _, id := range m.Topics {
			if counts[id] > 0 && out[id] == nil {
				out[id] = make([]int, counts[id])
				for i := range out[id] {
					out[id][i] = -1
				}
			}
		}
	}
	for m, a := range got {
		for i, p := range a {
			if i > 0 && a[i-1].Topic.Compare(p.Topic) >= 0 {
				t.Fatalf("%s: topics are not sorted", members[m].ID)
			}
			if !slices.Contains(members[m].Topics, p.Topic) {
				t.Fatalf("%s gets topic %x without subscribing", members[m].ID, p.Topic)
			}
			if len(p.Indexes) == 0 || !slices.IsSorted(p.Indexes) {
				t.Fatalf("%s: partitions %v", members[m].ID, p.Indexes)
			}
			for _, x := range p.Indexes {
				if x < 0 || x >= counts[p.Topic] {
					t.Fatalf("%s gets partition %d of %x, which has %d", members[m].ID, x, p.Topic, counts[p.Topic])
				}
				if out[p.Topic][x] != -1 {
					t.Fatalf("partition %d of %x goes to two members", x, p.Topic)
				}
				out[p.Topic][x] = m
			}
		}
	}
	for id, o := range out {
		if i := slices.Index(o, -1); i >= 0 {
			t.Fatalf("partition %d of %x goes to nobody", i, id)
		}
	}
	return out
}

func size(a Assignment) int {
	n := 0
	for _, p := range a {
		n += len(p.Indexes)
	}
	return n
}

// moved counts partitions that had an owner who could keep them, and went to
// another.
func moved(members []Member, counts map[TopicID]int32, got map[TopicID][]int) int {
	n := 0
	for m := range members {
		for _, p := range members[m].Current {
			for _, x := range p.Indexes {
				if x < counts[p.Topic] && slices.Contains(members[m].Topics, p.Topic) && got[p.Topic][x] != m {
					n++
				}
			}
		}
	}
	return n
}

// group is a random group that goes on living: members join, leave, restart and
// change their topics, topics grow and go.
type group struct {
	rnd     *rand.Rand
	equal   bool
	members []Member
	counts  map[TopicID]int32
	next    int
}

func (g *group) topics() []TopicID {
	var all []TopicID
	for i := range 8 {
		if g.rnd.IntN(2) == 0 {
			all = append(all, topic(i))
		}
	}
	return all
}

func (g *group) step() {
	switch g.rnd.IntN(6) {
	case 0, 1:
		g.next++
		m := Member{ID: fmt.Sprintf("m%03d", g.rnd.IntN(1000)*1000+g.next), Topics: g.topics()}
		if g.rnd.IntN(3) == 0 {
			m.InstanceID = fmt.Sprintf("i%d", g.next)
		}
		if g.equal && len(g.members) > 0 {
			m.Topics = g.members[0].Topics
		}
		g.members = append(g.members, m)
	case 2:
		if len(g.members) > 1 {
			i := g.rnd.IntN(len(g.members))
			g.members = slices.Delete(g.members, i, i+1)
		}
	case 3:
		id := topic(g.rnd.IntN(8))
		g.counts[id] += int32(g.rnd.IntN(20))
		if g.rnd.IntN(5) == 0 {
			delete(g.counts, id)
		}
	case 4:
		topics := g.topics()
		if g.equal {
			for i := range g.members {
				g.members[i].Topics = topics
			}
		} else if len(g.members) > 0 {
			g.members[g.rnd.IntN(len(g.members))].Topics = topics
		}
	case 5:
		g.rnd.Shuffle(len(g.members), func(i, j int) { g.members[i], g.members[j] = g.members[j], g.members[i] })
	}
}

func TestRandomGroups(t *testing.T) {
	rnd := random(t)
	for round := range 300 {
		g := &group{rnd: rnd, equal: round%2 == 0, counts: make(map[TopicID]int32)}
		assign, name := Uniform, "uniform"
		if round%3 == 0 {
			assign, name = Range, "range"
		}
		for range 40 {
			g.step()
			if len(g.members) == 0 {
				continue
			}
			got := assign(g.members, g.counts)
			owned := owners(t, g.members, g.counts, got)
			if name == "uniform" {
				checkUniform(t, g, got, owned)
			} else {
				checkRange(t, g, owned)
			}
			for m := range g.members {
				g.members[m].Current = got[m]
			}
			if again := assign(g.members, g.counts); !reflect.DeepEqual(again, got) {
				t.Fatalf("%s: given its own answer, it answers otherwise:\n%v\n%v", name, got, again)
			}
			checkOrderIsNoMatter(t, g, assign, got)
		}
	}
}

// checkOrderIsNoMatter shuffles the members and demands the same answer.
func checkOrderIsNoMatter(t *testing.T, g *group, assign Assignor, got []Assignment) {
	t.Helper()
	members, order := slices.Clone(g.members), g.rnd.Perm(len(g.members))
	for i, j := range order {
		members[i] = g.members[j]
	}
	other := assign(members, g.counts)
	for i, j := range order {
		if !reflect.DeepEqual(other[i], got[j]) {
			t.Fatalf("the order of members matters to %s", members[i].ID)
		}
	}
}

func checkUniform(t *testing.T, g *group, got []Assignment, owned map[TopicID][]int) {
	t.Helper()
	load := make([]int, len(got))
	for m := range got {
		load[m] = size(got[m])
	}
	if g.equal {
		if slices.Max(load)-slices.Min(load) > 1 {
			t.Fatalf("sizes %v", load)
		}
		if n, least := moved(g.members, g.counts, owned), leastMoves(g, load); n != least {
			t.Fatalf("%d moved where %d would do", n, least)
		}
		return
	}
	// Whoever can be reached from a member by passing partitions on has at most
	// one less.
	for m := range got {
		for r := range reachable(g.members, owned, m) {
			if load[r]+2 <= load[m] {
				t.Fatalf("%s has %d, and %s could have one of them but has %d", g.members[m].ID, load[m], g.members[r].ID, load[r])
			}
		}
	}
}

// leastMoves is what must move when everybody may have anything: what each has
// above its part, the larger parts given to those with most.
func leastMoves(g *group, load []int) int {
	had := make([]int, len(g.members))
	total := 0
	taken := make(map[TopicID]map[int32]bool)
	for m := range g.members {
		for _, p := range g.members[m].Current {
			if !slices.Contains(g.members[m].Topics, p.Topic) {
				continue
			}
			for _, x := range p.Indexes {
				if x >= g.counts[p.Topic] {
					continue
				}
				if taken[p.Topic] == nil {
					taken[p.Topic] = make(map[int32]bool)
				}
				taken[p.Topic][x] = true
				had[m]++
			}
		}
		total += load[m]
	}
	least, larger := total/len(had), total%len(had)
	n := 0
	for _, h := range had {
		if h <= least {
			continue
		}
		part := least
		if larger > 0 {
			part, larger = part+1, larger-1
		}
		n += h - part
	}
	return n
}

func reachable(members []Member, owned map[TopicID][]int, from int) map[int]bool {
	seen, queue := map[int]bool{from: true}, []int{from}
	for len(queue) > 0 {
		m := queue[0]
		queue = queue[1:]
		for id, o := range owned {
			if !slices.Contains(o, m) {
				continue
			}
			for n := range members {
				if !seen[n] && slices.Contains(members[n].Topics, id) {
					seen[n] = true
					queue = append(queue, n)
				}
			}
		}
	}
	return seen
}

func checkRange(t *testing.T, g *group, owned map[TopicID][]int) {
	t.Helper()
	classes := make(map[string][]int)
	for id, o := range owned {
		subs, load := "", make(map[int]int)
		most, least := 0, len(o)
		for _, m := range o {
			load[m]++
		}
		for m := range g.members {
			if slices.Contains(g.members[m].Topics, id) {
				subs += fmt.Sprint(m, " ")
				most, least = max(most, load[m]), min(least, load[m])
			}
		}
		if most-least > 1 {
			t.Fatalf("topic %x: sizes from %d to %d", id, least, most)
		}
		class := fmt.Sprint(len(o), ":", subs)
		if before := classes[class]; before != nil && !slices.Equal(before, o) {
			t.Fatalf("topics of %d partitions go to different members: %v and %v", len(o), before, o)
		}
		classes[class] = o
	}
}

func TestFreshRange(t *testing.T) {
	a, b := topic(1), topic(2)
	members := []Member{
		{ID: "x", Topics: []TopicID{a, b}},
		{ID: "z", InstanceID: "1", Topics: []TopicID{a, b}},
		{ID: "y", InstanceID: "2", Topics: []TopicID{b, a, topic(9)}},
	}
	got := Range(members, map[TopicID]int32{a: 7, b: 3})
	want := []Assignment{
		{{a, []int32{5, 6}}, {b, []int32{2}}},
		{{a, []int32{0, 1, 2}}, {b, []int32{0}}},
		{{a, []int32{3, 4}}, {b, []int32{1}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	// A static member that restarts has a new member id and nothing; its place
	// is that of its instance, and nobody else's share changes.
	for i := range members {
		members[i].Current = got[i]
	}
	members[1] = Member{ID: "a", InstanceID: "1", Topics: []TopicID{a, b}}
	if again := Range(members, map[TopicID]int32{a: 7, b: 3}); !reflect.DeepEqual(again, want) {
		t.Fatalf("got %v, want %v", again, want)
	}
}

func TestChainOfMoves(t *testing.T) {
	a, b := topic(1), topic(2)
	members := []Member{
		{ID: "1", Topics: []TopicID{a}, Current: Assignment{{a, []int32{0, 1, 2}}}},
		{ID: "2", Topics: []TopicID{a, b}, Current: Assignment{{b, []int32{0, 1}}}},
		{ID: "3", Topics: []TopicID{b}, Current: Assignment{{b, []int32{2}}}},
	}
	for m, a := range Uniform(members, map[TopicID]int32{a: 3, b: 3}) {
		if size(a) != 2 {
			t.Errorf("member %d has %v", m, a)
		}
	}
}

func TestNothingToAssign(t *testing.T) {
	for _, assign := range []Assignor{Uniform, Range} {
		if got := assign(nil, nil); len(got) != 0 {
			t.Errorf("no members: %v", got)
		}
		members := []Member{{ID: "1"}, {ID: "2", Topics: []TopicID{topic(1)}, Current: Assignment{{topic(1), []int32{0}}}}}
		if got := assign(members, nil); len(got) != 2 || got[0] != nil || got[1] != nil {
			t.Errorf("no topics: %v", got)
		}
	}
	if _, ok := ByName("sticky"); ok {
		t.Error("an assignor of that name is known")
	}
}

// large makes a group of 1,000 members and 10,000 partitions. skew gives
// members different subscriptions.
func large(rnd *rand.Rand, topics int, skew bool) ([]Member, map[TopicID]int32) {
	counts := make(map[TopicID]int32)
	var ids []TopicID
	for i := range topics {
		ids = append(ids, topic(i))
		counts[ids[i]] = int32(10_000 / topics)
	}
	members := make([]Member, 1000)
	for i := range members {
		members[i] = Member{ID: fmt.Sprintf("member-%d", i), Topics: ids}
		if skew {
			members[i].Topics = nil
			for _, id := range ids {
				if rnd.IntN(2) == 0 {
					members[i].Topics = append(members[i].Topics, id)
				}
			}
		}
	}
	return members, counts
}

func BenchmarkAssign(b *testing.B) {
	for _, name := range []string{"uniform", "range"} {
		assign, _ := ByName(name)
		for _, skew := range []bool{false, true} {
			for _, topics := range []int{1, 10, 100, 1000} {
				for _, kind := range []string{"fresh", "one left", "half left", "all to one"} {
					rnd := rand.New(rand.NewPCG(1, 2))
					members, counts := large(rnd, topics, skew)
					start := members
					switch kind {
					case "one left", "half left":
						for i, a := range assign(members, counts) {
							members[i].Current = a
						}
						start = members[1:]
						if kind == "half left" {
							start = members[500:]
						}
					case "all to one":
						members[0].Topics = members[999].Topics
						for i, a := range assign(members[:1], counts) {
							members[i].Current = a
						}
					}
					b.Run(fmt.Sprintf("%s/skew=%t/topics=%d/%s", name, skew, topics, kind), func(b *testing.B) {
						for b.Loop() {
							assign(start, counts)
						}
					})
				}
			}
		}
	}
}
