package assign

import (
	"cmp"
	"slices"
)

// spread is for members that subscribe to different topics. Starting from what
// they have, it hands out what nobody has, then moves single partitions down
// wherever sizes differ by two or more, then along chains (a gives one to b,
// and b another one to c), and last brings home what can be swapped back.
func (p *problem) spread() {
	s := &spreading{problem: p, load: make([]int32, len(p.members)), topicOf: make([]int32, len(p.owner)), rank: make([]int32, len(p.members))}
	for t := range p.topics {
		for i := p.first[t]; i < p.first[t+1]; i++ {
			s.topicOf[i] = int32(t)
		}
	}
	for r, m := range p.order {
		s.rank[m] = int32(r)
	}
	for _, m := range p.owner {
		if m != none {
			s.load[m]++
		}
	}
	order := s.hardestFirst()
	s.handOut(order)
	for moved := true; moved; {
		moved = false
		for _, t := range order {
			if s.level(t) {
				moved = true
			}
		}
	}
	newChains(s).run()
	for t := range p.topics {
		s.bringHome(int32(t))
	}
}

// spreading is the state of spread.
type spreading struct {
	*problem
	load    []int32 // by member
	rank    []int32 // a member's place in order
	topicOf []int32 // by partition
}

// hardestFirst sorts topics by partitions per subscriber, falling: those that
// have few to choose from are handed out first.
func (s *spreading) hardestFirst() []int32 {
	order := make([]int32, len(s.topics))
	for i := range order {
		order[i] = int32(i)
	}
	size := func(t int32) int64 { return int64(s.first[t+1] - s.first[t]) }
	slices.SortStableFunc(order, func(a, b int32) int {
		// a/|subs a| against b/|subs b|, without division.
		if c := cmp.Compare(size(b)*int64(len(s.subs[a])), size(a)*int64(len(s.subs[b]))); c != 0 {
			return c
		}
		return cmp.Compare(len(s.subs[a]), len(s.subs[b]))
	})
	return order
}

// lighter orders members by load, then by place.
func (s *spreading) lighter(a, b int32) bool {
	if s.load[a] != s.load[b] {
		return s.load[a] < s.load[b]
	}
	return s.rank[a] < s.rank[b]
}

// handOut gives partitions without an owner to the lightest subscriber.
func (s *spreading) handOut(order []int32) {
	for _, t := range order {
		var light *heap
		for i := s.first[t]; i < s.first[t+1]; i++ {
			if s.owner[i] != none {
				continue
			}
			if light == nil {
				light = newHeap(s.subs[t], s.lighter)
			}
			m := light.items[0]
			s.owner[i] = m
			s.load[m]++
			light.down(0)
		}
	}
}

// level moves topic t's partitions from the heaviest of their owners to the
// lightest subscriber, while that has two fewer; it says whether any moved.
func (s *spreading) level(t int32) bool {
	if len(s.subs[t]) < 2 {
		return false
	}
	least, most := s.load[s.subs[t][0]], int32(0)
	for _, m := range s.subs[t] {
		least = min(least, s.load[m])
	}
	for i := s.first[t]; i < s.first[t+1]; i++ {
		most = max(most, s.load[s.owner[i]])
	}
	if most < least+2 {
		return false
	}
	d := s.donorsOf(t)
	light := newHeap(s.subs[t], s.lighter)
	heavy := newHeap(d.owners, func(a, b int32) bool {
		if s.load[a] != s.load[b] {
			return s.load[a] > s.load[b]
		}
		return s.rank[a] < s.rank[b]
	})
	moved := false
	for len(heavy.items) > 0 {
		from, to := heavy.items[0], light.items[0]
		if s.load[from] < s.load[to]+2 {
			break
		}
		i := d.pick(from, to)
		if i == none {
			// All it had at the start is given away. What it got since can go on
			// in the next pass.
			heavy.pop()
			continue
		}
		s.owner[i] = to
		s.load[to]++
		s.load[from]--
		moved = true
		light.fix(to)
		light.fix(from)
		heavy.fix(from)
		heavy.fix(to)
	}
	return moved
}

// donors are the partitions of one topic by who has them. What has left its
// donor is skipped when it comes up.
type donors struct {
	s      *spreading
	owners []int32
	// guests are partitions away from home, by owner and by owner and home;
	// locals are all others.
	guests, locals map[int32][]int32
	returning      map[[2]int32][]int32
}

func (s *spreading) donorsOf(t int32) *donors {
	d := &donors{s: s, guests: make(map[int32][]int32), locals: make(map[int32][]int32), returning: make(map[[2]int32][]int32)}
	for i := s.first[t]; i < s.first[t+1]; i++ {
		m, home := s.owner[i], s.home[i]
		if d.guests[m] == nil && d.locals[m] == nil {
			d.owners = append(d.owners, m)
		}
		if m == home {
			d.locals[m] = append(d.locals[m], i)
			continue
		}
		d.guests[m] = append(d.guests[m], i)
		d.returning[[2]int32{m, home}] = append(d.returning[[2]int32{m, home}], i)
	}
	return d
}

// pick chooses which partition goes from one member to another: one whose home
// is there, else one that is away from home already, else the last.
func (d *donors) pick(from, to int32) int32 {
	pair := [2]int32{from, to}
	lists := [3][]int32{d.returning[pair], d.guests[from], d.locals[from]}
	picked := none
	for k := range lists {
		for n := len(lists[k]); n > 0 && picked == none; n = len(lists[k]) {
			if i := lists[k][n-1]; d.s.owner[i] == from {
				picked = i
			}
			lists[k] = lists[k][:n-1]
		}
	}
	d.returning[pair], d.guests[from], d.locals[from] = lists[0], lists[1], lists[2]
	return picked
}

// bringHome swaps owners within topic t as long as that brings a partition
// back to whom it came from; loads stay.
func (s *spreading) bringHome(t int32) {
	strange := make(map[int32][]int32) // by owner: partitions that are not at home
	for i := s.first[t]; i < s.first[t+1]; i++ {
		if s.owner[i] != s.home[i] {
			strange[s.owner[i]] = append(strange[s.owner[i]], i)
		}
	}
	for i := s.first[t]; i < s.first[t+1]; i++ {
		for s.home[i] != none && s.owner[i] != s.home[i] {
			// A home may only hold its own: then nothing can be swapped.
			list := strange[s.home[i]]
			if len(list) == 0 {
				break
			}
			j := list[len(list)-1]
			strange[s.home[i]] = list[:len(list)-1]
			there := s.owner[i]
			s.owner[i], s.owner[j] = s.home[i], there
			strange[there] = slices.DeleteFunc(strange[there], func(x int32) bool { return x == i })
			if s.owner[j] != s.home[j] {
				strange[there] = append(strange[there], j)
			}
		}
	}
}
