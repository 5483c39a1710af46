package partition

import (
	"slices"
	"sort"
	"strings"
)

// recordMap is a map from keys to values in order of the keys: a B-tree whose
// nodes are shared between versions. A copy of the struct is a version, and
// costs nothing; put and remove change their own version alone.
//
// Each node carries the generation in which it was made. Within one generation
// a node is changed in place, so that a write of many records copies a node
// once. Whoever keeps a version must see to it that later changes come with a
// new generation.
type recordMap struct {
	root  *mapNode
	count int
	bytes int64 // as recordSize counts
}

// mapFan is the most records or children of a node. A change copies one node
// of each level: some 1 KiB each, four levels for a million records.
const mapFan = 32

// mapNode is a leaf (records) or has children.
type mapNode struct {
	gen      uint64
	records  []CoordinatorRecord // in order of their keys
	children []*mapNode
	// lows[i], for i above 0, is above every key of children[i-1], and not
	// above any of children[i]. lows[0] means nothing.
	lows []string
}

// recordSize is what one record counts.
func recordSize(key string, value []byte) int64 {
	return int64(len(key)+len(value)) + coordinatorRecordBytes
}

func (m *recordMap) get(key string) ([]byte, bool) {
	n := m.root
	if n == nil {
		return nil, false
	}
	for len(n.children) > 0 {
		n = n.children[n.child(key)]
	}
	i, found := n.find(key)
	if !found {
		return nil, false
	}
	return n.records[i].Value, true
}

// put sets a record; value is copied.
func (m *recordMap) put(gen uint64, key string, value []byte) {
	old, existed := m.get(key)
	if existed {
		m.bytes += int64(len(value) - len(old))
	} else {
		m.count++
		m.bytes += recordSize(key, value)
	}
	r := CoordinatorRecord{Key: key, Value: append(make([]byte, 0, len(value)), value...)}
	if m.root == nil {
		m.root = &mapNode{gen: gen}
	}
	root, right, low := m.root.put(gen, r)
	if right != nil {
		root = &mapNode{gen: gen, children: []*mapNode{root, right}, lows: []string{"", low}}
	}
	m.root = root
}

// remove deletes a record, if it is there.
func (m *recordMap) remove(gen uint64, key string) {
	old, existed := m.get(key)
	if !existed {
		return
	}
	m.count--
	m.bytes -= recordSize(key, old)
	root := m.root.remove(gen, key)
	for len(root.children) == 1 {
		root = root.children[0]
	}
	if root.size() == 0 {
		root = nil
	}
	m.root = root
}

// all ranges over the records in order.
func (m *recordMap) all(yield func(string, []byte) bool) {
	if m.root != nil {
		m.root.all(yield)
	}
}

func (n *mapNode) all(yield func(string, []byte) bool) bool {
	for i := range n.records {
		if !yield(n.records[i].Key, n.records[i].Value) {
			return false
		}
	}
	for _, c := range n.children {
		if !c.all(yield) {
			return false
		}
	}
	return true
}

func (n *mapNode) size() int { return len(n.records) + len(n.children) }

// find returns where key is among a leaf's records, or belongs.
func (n *mapNode) find(key string) (int, bool) {
	return slices.BinarySearchFunc(n.records, key, func(r CoordinatorRecord, key string) int { return strings.Compare(r.Key, key) })
}

// child returns the place of the child whose keys include key.
func (n *mapNode) child(key string) int {
	return sort.Search(len(n.children)-1, func(i int) bool { return n.lows[i+1] > key })
}

// own returns the node for changing: itself, or a copy with room for one more.
func (n *mapNode) own(gen uint64) *mapNode {
	if n.gen == gen {
		return n
	}
	c := &mapNode{gen: gen}
	if len(n.children) > 0 {
		c.children = append(make([]*mapNode, 0, len(n.children)+1), n.children...)
		c.lows = append(make([]string, 0, len(n.lows)+1), n.lows...)
	} else {
		c.records = append(make([]CoordinatorRecord, 0, len(n.records)+1), n.records...)
	}
	return c
}

// put sets a record below n. If n had to be split, right is its upper part,
// whose keys begin at low.
func (n *mapNode) put(gen uint64, r CoordinatorRecord) (self, right *mapNode, low string) {
	n = n.own(gen)
	if len(n.children) == 0 {
		i, found := n.find(r.Key)
		if found {
			n.records[i].Value = r.Value
		} else {
			n.records = slices.Insert(n.records, i, r)
		}
		return n.split(gen)
	}
	i := n.child(r.Key)
	c, more, low := n.children[i].put(gen, r)
	n.children[i] = c
	if more != nil {
		n.children = slices.Insert(n.children, i+1, more)
		n.lows = slices.Insert(n.lows, i+1, low)
	}
	return n.split(gen)
}

// split divides a node that has become too large.
func (n *mapNode) split(gen uint64) (self, right *mapNode, low string) {
	if n.size() <= mapFan {
		return n, nil, ""
	}
	half := n.size() / 2
	right = &mapNode{gen: gen}
	if len(n.children) == 0 {
		right.records = slices.Clone(n.records[half:])
		n.records = slices.Clone(n.records[:half])
		return n, right, right.records[0].Key
	}
	low = n.lows[half]
	right.children, right.lows = slices.Clone(n.children[half:]), slices.Clone(n.lows[half:])
	n.children, n.lows = slices.Clone(n.children[:half]), slices.Clone(n.lows[:half])
	return n, right, low
}

// remove deletes a record that is below n.
func (n *mapNode) remove(gen uint64, key string) *mapNode {
	n = n.own(gen)
	if len(n.children) == 0 {
		if i, found := n.find(key); found {
			n.records = slices.Delete(n.records, i, i+1)
		}
		return n
	}
	i := n.child(key)
	n.children[i] = n.children[i].remove(gen, key)
	switch {
	case n.children[i].size() == 0:
		n.children = slices.Delete(n.children, i, i+1)
		n.lows = slices.Delete(n.lows, i, i+1)
	case i > 0 && n.children[i-1].size()+n.children[i].size() <= mapFan/2:
		n.merge(gen, i-1)
	case i+1 < len(n.children) && n.children[i].size()+n.children[i+1].size() <= mapFan/2:
		n.merge(gen, i)
	}
	return n
}

// merge moves what the child behind i has into the child at i. Nodes of one
// level are of one kind.
func (n *mapNode) merge(gen uint64, i int) {
	a, b := n.children[i].own(gen), n.children[i+1]
	a.records = append(a.records, b.records...)
	a.children = append(a.children, b.children...)
	if len(b.lows) > 0 {
		a.lows = append(append(a.lows, n.lows[i+1]), b.lows[1:]...)
	}
	n.children[i] = a
	n.children = slices.Delete(n.children, i+1, i+2)
	n.lows = slices.Delete(n.lows, i+1, i+2)
}
