package group

import "container/heap"

// timerKey names a timer. Setting one that is set moves it.
type timerKey struct {
	kind          timerKind
	group, member string
}

type timerKind uint8

const (
	timerSession      timerKind = iota + 1 // a member's session, or a pending member's
	timerJoin                              // end of a rebalance's join phase
	timerSync                              // end of a rebalance's sync phase
	timerRetention                         // a group's next look for expired offsets
	timerConsumer                          // a KIP-848 member's session
	timerRevocation                        // a KIP-848 member's rebalance time-out
	timerConsumerMisc                      // any other of a KIP-848 group's
)

// timer is one entry of the heap. due is when it shall fire; at is where the
// heap has it, never later: putting off a timer, which each heartbeat does,
// changes due alone, and the heap only when at has come.
type timer struct {
	key     timerKey
	at, due int64
	seq     uint64
	index   int
	fn      func(now int64)
}

// timers fire in order of time, then of setting.
type timers struct {
	heap  timerHeap
	byKey map[timerKey]*timer
	seq   uint64
}

// set makes fn be called by the first Tick at or after at.
func (t *timers) set(key timerKey, at int64, fn func(now int64)) {
	if t.byKey == nil {
		t.byKey = make(map[timerKey]*timer)
	}
	t.seq++
	e := t.byKey[key]
	if e == nil {
		e = &timer{key: key, at: at, due: at, seq: t.seq, fn: fn}
		t.byKey[key] = e
		heap.Push(&t.heap, e)
		return
	}
	e.fn, e.due, e.seq = fn, at, t.seq
	if at < e.at {
		e.at = at
	}
	heap.Fix(&t.heap, e.index)
}

// extend is set for a timer that is set already and keeps its function, in
// constant time when it is put off. It tells whether there was one.
func (t *timers) extend(key timerKey, at int64) bool {
	e := t.byKey[key]
	if e == nil {
		return false
	}
	e.due = at
	if at < e.at {
		e.at = at
		heap.Fix(&t.heap, e.index)
	}
	return true
}

// cancel unsets a timer, if it is set.
func (t *timers) cancel(key timerKey) {
	if e := t.byKey[key]; e != nil {
		heap.Remove(&t.heap, e.index)
		delete(t.byKey, key)
	}
}

// clear unsets all.
func (t *timers) clear() { t.heap, t.byKey = nil, nil }

// next takes a timer that is due, or returns nil.
func (t *timers) next(now int64) *timer {
	for len(t.heap) > 0 && t.heap[0].at <= now {
		e := t.heap[0]
		if e.due > now {
			e.at = e.due
			heap.Fix(&t.heap, 0)
			continue
		}
		heap.Pop(&t.heap)
		delete(t.byKey, e.key)
		return e
	}
	return nil
}

// deadline is when next may have something; it can be early, never late.
func (t *timers) deadline() (int64, bool) {
	if len(t.heap) == 0 {
		return 0, false
	}
	return t.heap[0].at, true
}

type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].seq < h[j].seq
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for container/heap.
func (h *timerHeap) Push(x any) {
	e := x.(*timer)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop is for container/heap.
func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
