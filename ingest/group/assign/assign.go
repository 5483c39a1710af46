package assign

import (
	"bytes"
	"slices"
	"strings"
)

// TopicID is a topic's unique id (KIP-516).
type TopicID [16]byte

// Compare orders topic ids by their bytes: -1, 0 or 1.
func (t TopicID) Compare(o TopicID) int { return bytes.Compare(t[:], o[:]) }

// Partitions are some partitions of one topic.
type Partitions struct {
	Topic TopicID
	// Indexes are sorted, without duplicates, and never empty.
	Indexes []int32
}

// Assignment is a set of partitions: topics sorted by id, each once. It is
// immutable once it is handed to anybody, so that it can be shared.
type Assignment []Partitions

// Member is one member of the group.
type Member struct {
	ID string
	// InstanceID is a static member's group.instance.id; empty for others.
	InstanceID string
	// Topics are those the member subscribes to, in any order; some may not
	// exist. Members that subscribe to the same topics do well to share the
	// slice: it is then read once.
	Topics []TopicID
	// Current is what the member was assigned last.
	Current Assignment
}

// Assignor computes an assignment: element i is what members[i] gets. counts
// has the number of partitions of each topic that exists.
type Assignor func(members []Member, counts map[TopicID]int32) []Assignment

// ByName finds Kafka's server-side assignors: "uniform" and "range".
func ByName(name string) (Assignor, bool) {
	switch name {
	case "uniform":
		return Uniform, true
	case "range":
		return Range, true
	}
	return nil, false
}

// none marks a partition that nobody owns.
const none = int32(-1)

// problem is the input in small numbers: members, topics and partitions are
// indexes into sorted lists, the partitions of all topics in one row.
type problem struct {
	members []Member
	// order has the members' indexes in a deterministic order.
	order  []int32
	topics []TopicID
	// first[t] is the number of topic t's first partition; the last element is
	// the number of all partitions.
	first []int32
	// wants[m] are the topics member m subscribes to that exist, sorted.
	wants [][]int32
	// subs[t] are the members subscribed to topic t, in the order of `order`.
	subs [][]int32
	// equal says that all members subscribe to the same topics.
	equal bool
	// home is each partition's owner so far, or none; owner its new one.
	home, owner []int32
}

// newProblem reads the input; less orders the members.
func newProblem(members []Member, counts map[TopicID]int32, compare func(a, b *Member) int) *problem {
	p := &problem{members: members, order: make([]int32, len(members))}
	for i := range members {
		p.order[i] = int32(i)
	}
	slices.SortFunc(p.order, func(a, b int32) int { return compare(&members[a], &members[b]) })

	index := make(map[TopicID]int32)
	for _, topics := range distinct(members) {
		for _, t := range topics {
			if _, seen := index[t]; !seen && counts[t] > 0 {
				index[t] = 0
				p.topics = append(p.topics, t)
			}
		}
	}
	slices.SortFunc(p.topics, TopicID.Compare)
	p.first = make([]int32, len(p.topics)+1)
	for i, t := range p.topics {
		index[t] = int32(i)
		p.first[i+1] = p.first[i] + counts[t]
	}
	p.subscribe(index)
	p.stick(index)
	return p
}

// slice identifies a slice of topics by where it is.
type slice struct {
	first *TopicID
	n     int
}

func sliceOf(topics []TopicID) slice {
	if len(topics) == 0 {
		return slice{}
	}
	return slice{&topics[0], len(topics)}
}

// distinct lists the members' topics, each slice once.
func distinct(members []Member) map[slice][]TopicID {
	all := make(map[slice][]TopicID)
	for i := range members {
		all[sliceOf(members[i].Topics)] = members[i].Topics
	}
	return all
}

// subscribe fills wants, subs and equal.
func (p *problem) subscribe(index map[TopicID]int32) {
	wants := make(map[slice][]int32)
	for s, topics := range distinct(p.members) {
		var list []int32
		for _, t := range topics {
			if i, ok := index[t]; ok {
				list = append(list, i)
			}
		}
		slices.Sort(list)
		wants[s] = slices.Compact(list)
	}
	p.wants = make([][]int32, len(p.members))
	p.subs = make([][]int32, len(p.topics))
	for _, m := range p.order {
		p.wants[m] = wants[sliceOf(p.members[m].Topics)]
		for _, t := range p.wants[m] {
			p.subs[t] = append(p.subs[t], m)
		}
	}
	p.equal = true
	for _, s := range p.subs {
		p.equal = p.equal && len(s) == len(p.members)
	}
}

// stick fills home with what members have and may keep. If two claim the same
// partition, the first in order keeps it.
func (p *problem) stick(index map[TopicID]int32) {
	n := p.first[len(p.topics)]
	p.home, p.owner = make([]int32, n), make([]int32, n)
	for i := range p.home {
		p.home[i] = none
	}
	for _, m := range p.order {
		for _, tp := range p.members[m].Current {
			t, ok := index[tp.Topic]
			if !ok {
				continue
			}
			if _, mine := slices.BinarySearch(p.wants[m], t); !mine {
				continue
			}
			for _, i := range tp.Indexes {
				if at := p.first[t] + i; i >= 0 && at < p.first[t+1] && p.home[at] == none {
					p.home[at] = m
				}
			}
		}
	}
	copy(p.owner, p.home)
}

// result turns owner into assignments.
func (p *problem) result() []Assignment {
	out := make([]Assignment, len(p.members))
	sizes := make([]int32, len(p.members))
	for _, m := range p.owner {
		sizes[m]++
	}
	// One array for all, each member's part filled from its start.
	all := make([]int32, len(p.owner))
	at := make([]int32, len(p.members))
	sum := int32(0)
	for m, n := range sizes {
		at[m] = sum
		sum += n
	}
	for t := range p.topics {
		for i := p.first[t]; i < p.first[t+1]; i++ {
			m := p.owner[i]
			a := out[m]
			if n := len(a); n == 0 || a[n-1].Topic != p.topics[t] {
				out[m] = append(a, Partitions{Topic: p.topics[t], Indexes: all[at[m]:at[m]]})
			}
			last := &out[m][len(out[m])-1]
			last.Indexes = append(last.Indexes, i-p.first[t])
			at[m]++
		}
	}
	for m := range out {
		for i := range out[m] {
			// Nobody may append into a neighbour's part.
			out[m][i].Indexes = slices.Clip(out[m][i].Indexes)
		}
	}
	return out
}

// byID orders members by their id.
func byID(a, b *Member) int { return strings.Compare(a.ID, b.ID) }

// staticFirst orders static members by instance id, then the others by id.
func staticFirst(a, b *Member) int {
	switch {
	case a.InstanceID != "" && b.InstanceID != "":
		return strings.Compare(a.InstanceID, b.InstanceID)
	case a.InstanceID != "":
		return -1
	case b.InstanceID != "":
		return 1
	}
	return byID(a, b)
}
