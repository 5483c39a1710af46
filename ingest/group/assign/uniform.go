package assign

// Uniform spreads partitions evenly over the members; see the package.
func Uniform(members []Member, counts map[TopicID]int32) []Assignment {
	p := newProblem(members, counts, byID)
	if len(p.topics) == 0 {
		return make([]Assignment, len(members))
	}
	if p.equal {
		p.share()
	} else {
		p.spread()
	}
	return p.result()
}

// share gives every member its part of all partitions, when everybody may have
// any. The larger parts go to those who have most already, so that only what
// exceeds the parts moves.
func (p *problem) share() {
	n, total := int32(len(p.members)), int32(len(p.owner))
	least, larger := total/n, total%n
	load := make([]int32, n)
	for _, m := range p.home {
		if m != none {
			load[m]++
		}
	}
	part := make([]int32, n)
	for _, m := range p.order {
		part[m] = least
		if larger > 0 && load[m] > least {
			part[m]++
			larger--
		}
	}
	for _, m := range p.order {
		if larger == 0 {
			break
		}
		if part[m] == least {
			part[m]++
			larger--
		}
	}
	// Keep the first ones up to the part, then fill in order.
	clear(load)
	for i, m := range p.home {
		if m == none {
			continue
		}
		if load[m] == part[m] {
			p.owner[i] = none
			continue
		}
		load[m]++
	}
	next := 0
	for i, m := range p.owner {
		if m != none {
			continue
		}
		for load[p.order[next]] == part[p.order[next]] {
			next++
		}
		p.owner[i] = p.order[next]
		load[p.order[next]]++
	}
}
