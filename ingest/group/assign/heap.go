package assign

// heap is a binary heap of members; less is read at each call, so that a
// member whose key changed must be put in place by down or fix.
type heap struct {
	items []int32
	at    map[int32]int
	less  func(a, b int32) bool
}

func newHeap(items []int32, less func(a, b int32) bool) *heap {
	h := &heap{items: append([]int32(nil), items...), at: make(map[int32]int, len(items)), less: less}
	for i, m := range h.items {
		h.at[m] = i
	}
	for i := len(h.items)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
	return h
}

func (h *heap) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.at[h.items[i]], h.at[h.items[j]] = i, j
}

// down restores the order below i, whose key may have grown.
func (h *heap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			return
		}
		if r := child + 1; r < len(h.items) && h.less(h.items[r], h.items[child]) {
			child = r
		}
		if !h.less(h.items[child], h.items[i]) {
			return
		}
		h.swap(i, child)
		i = child
	}
}

// fix restores the order around a member whose key may have changed.
func (h *heap) fix(m int32) {
	i, ok := h.at[m]
	if !ok {
		return
	}
	for i > 0 && h.less(h.items[i], h.items[(i-1)/2]) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	h.down(i)
}

// pop takes the first away.
func (h *heap) pop() {
	last := len(h.items) - 1
	h.swap(0, last)
	delete(h.at, h.items[last])
	h.items = h.items[:last]
	h.down(0)
}
