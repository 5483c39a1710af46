package assign

import "encoding/binary"

// Range spreads each topic by itself, in ranges; see the package.
func Range(members []Member, counts map[TopicID]int32) []Assignment {
	p := newProblem(members, counts, staticFirst)
	if len(p.topics) == 0 {
		return make([]Assignment, len(members))
	}
	// Topics of equal size and with the same subscribers are one class.
	classes := make(map[string][]int32)
	var keys []string
	for t := range p.topics {
		key := binary.LittleEndian.AppendUint32(nil, uint32(p.first[t+1]-p.first[t]))
		for _, m := range p.subs[t] {
			key = binary.LittleEndian.AppendUint32(key, uint32(m))
		}
		k := string(key)
		if classes[k] == nil {
			keys = append(keys, k)
		}
		classes[k] = append(classes[k], int32(t))
	}
	for _, k := range keys {
		p.ranges(classes[k])
	}
	return p.result()
}

// ranges assigns the topics of one class alike.
func (p *problem) ranges(class []int32) {
	subs := p.subs[class[0]]
	n := p.first[class[0]+1] - p.first[class[0]]
	home := make([]int32, n)
	for i := range home {
		home[i] = p.commonHome(class, int32(i))
	}
	parts, owner := p.parts(subs, home), make([]int32, n)
	for i, m := range home {
		owner[i] = none
		if m != none && parts[m] > 0 {
			owner[i] = m
			parts[m]--
		}
	}
	next := 0
	for i := range owner {
		if owner[i] != none {
			continue
		}
		for parts[subs[next]] == 0 {
			next++
		}
		owner[i] = subs[next]
		parts[subs[next]]--
	}
	for _, t := range class {
		copy(p.owner[p.first[t]:p.first[t+1]], owner)
	}
}

// commonHome is who owns partition i of most of the class's topics; on a tie,
// who owns it in the first of them.
func (p *problem) commonHome(class []int32, i int32) int32 {
	if len(class) == 1 {
		return p.home[p.first[class[0]]+i]
	}
	best, most := none, 0
	votes := make(map[int32]int)
	for _, t := range class {
		if m := p.home[p.first[t]+i]; m != none {
			votes[m]++
		}
	}
	for _, t := range class {
		if m := p.home[p.first[t]+i]; m != none && votes[m] > most {
			best, most = m, votes[m]
		}
	}
	return best
}

// parts is how many partitions of a topic each subscriber gets: equally many,
// and one more for those who have more already, then for the first ones.
func (p *problem) parts(subs, home []int32) map[int32]int32 {
	n := int32(len(home))
	least, larger := n/int32(len(subs)), n%int32(len(subs))
	load := make(map[int32]int32, len(subs))
	for _, m := range home {
		if m != none {
			load[m]++
		}
	}
	parts := make(map[int32]int32, len(subs))
	for _, m := range subs {
		parts[m] = least
		if larger > 0 && load[m] > least {
			parts[m]++
			larger--
		}
	}
	for _, m := range subs {
		if larger > 0 && parts[m] == least {
			parts[m]++
			larger--
		}
	}
	return parts
}
