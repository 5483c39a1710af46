package assign

import (
	"cmp"
	"slices"
)

// chainWork bounds the steps spent on chains of moves, so that an unlucky group
// cannot hold up its coordinator; some tens of milliseconds.
const chainWork = 2 << 20

// chains moves partitions along ways of several members: each takes one and
// gives another, so that only the sizes of the two ends change. Single moves
// alone can end with sizes of 3, 2 and 1 where 2, 2 and 2 are possible.
type chains struct {
	*spreading
	// holds[m][t] are topic t's partitions of member m; what has left is skipped.
	holds []map[int32][]int32
	// via is the partition a member would get, none where the search has not been.
	via  []int32
	seen []bool // by topic: its subscribers have been reached
	work int
}

func newChains(s *spreading) *chains {
	c := &chains{spreading: s, work: chainWork, holds: make([]map[int32][]int32, len(s.members)), via: make([]int32, len(s.members)), seen: make([]bool, len(s.topics))}
	for m := range c.holds {
		c.holds[m] = make(map[int32][]int32)
	}
	for i, m := range s.owner {
		t := s.topicOf[i]
		c.holds[m][t] = append(c.holds[m][t], int32(i))
	}
	return c
}

// run moves along chains until there is none, or the work is used up.
func (c *chains) run() {
	for c.work > 0 && c.once() {
	}
}

// once searches from the heaviest member down. What a search in vain has
// reached is as heavy as its start, or lighter by one; a later start is no
// heavier, so that it need not go there again: seen and via stay.
func (c *chains) once() bool {
	least := c.load[0]
	for _, n := range c.load {
		least = min(least, n)
	}
	for m := range c.via {
		c.via[m] = none
	}
	clear(c.seen)
	heavy := slices.Clone(c.order)
	slices.SortStableFunc(heavy, func(a, b int32) int { return cmp.Compare(c.load[b], c.load[a]) })
	c.work -= len(heavy)
	for _, from := range heavy {
		if c.load[from] < least+2 || c.work <= 0 {
			return false
		}
		if c.search(from) {
			return true
		}
	}
	return false
}

// search goes breadth first from a heavy member to one that has two fewer.
func (c *chains) search(from int32) bool {
	queue := []int32{from}
	for len(queue) > 0 {
		m := queue[0]
		queue = queue[1:]
		topics := make([]int32, 0, len(c.holds[m]))
		for t := range c.holds[m] {
			if !c.seen[t] {
				topics = append(topics, t)
			}
		}
		slices.Sort(topics)
		for _, t := range topics {
			i := c.one(m, t)
			if i == none {
				continue
			}
			c.seen[t] = true
			c.work -= len(c.subs[t])
			for _, next := range c.subs[t] {
				if next == from || c.via[next] != none {
					continue
				}
				c.via[next] = i
				if c.load[next]+2 <= c.load[from] {
					c.pass(from, next)
					return true
				}
				queue = append(queue, next)
			}
		}
	}
	return false
}

// one is a partition of topic t that m has, or none.
func (c *chains) one(m, t int32) int32 {
	list := c.holds[m][t]
	for len(list) > 0 && c.owner[list[len(list)-1]] != m {
		list = list[:len(list)-1]
	}
	c.holds[m][t] = list
	if len(list) == 0 {
		return none
	}
	return list[len(list)-1]
}

// pass moves one partition along each step of the way that via tells.
func (c *chains) pass(from, to int32) {
	c.load[from]--
	c.load[to]++
	for m := to; m != from; {
		i := c.via[m]
		giver := c.owner[i]
		c.owner[i] = m
		t := c.topicOf[i]
		c.holds[m][t] = append(c.holds[m][t], i)
		m = giver
	}
}
