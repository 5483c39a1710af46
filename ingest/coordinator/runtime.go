package coordinator

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"thermocline/ingest/group"
	"thermocline/metadata"
)

// Runtime holds the slots of this broker's replicas. Its methods may be called
// from any goroutine.
type Runtime struct {
	o      Options
	topics atomic.Pointer[topics]
	count  struct {
		calls, refused, loads, damaged, writeFailures atomic.Int64
	}

	mu       sync.RWMutex
	closed   bool
	placed   []metadata.ShardID
	replicas map[metadata.ShardID]Replica
	slots    []*slot // by number; nil where no replica is here
}

// topics is a group.Topics behind a pointer.
type topics struct{ group.Topics }

// New returns a Runtime without slots: Place and Add bring them.
func New(o Options) *Runtime {
	if o.New == nil {
		o.New = func(o group.Options, t group.Topics) Machine { return group.New(o, t) }
	}
	if o.SettingsVersion == nil {
		o.SettingsVersion = func() int64 { return 0 }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Runtime{o: o, replicas: map[metadata.ShardID]Replica{}}
	r.topics.Store(&topics{o.Topics()})
	return r
}

// Place tells the shard of each slot. Only the first placement that is not
// empty counts: slots do not move.
func (r *Runtime) Place(placed []metadata.ShardID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.placed) > 0 || len(placed) == 0 {
		return
	}
	r.placed = placed
	r.slots = make([]*slot, len(placed))
	for id, replica := range r.replicas {
		r.start(id, replica)
	}
}

// Add starts the slots of a shard, now or once they are placed.
func (r *Runtime) Add(id metadata.ShardID, replica Replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.replicas[id]; ok || r.closed {
		return
	}
	r.replicas[id] = replica
	r.start(id, replica)
}

func (r *Runtime) start(id metadata.ShardID, replica Replica) {
	for i, at := range r.placed {
		if at == id {
			r.slots[i] = newSlot(r, uint32(i), id, replica)
			go r.slots[i].run()
		}
	}
}

// Remove stops the slots of a shard: everyone who waits in them is answered
// when it returns.
func (r *Runtime) Remove(id metadata.ShardID) {
	r.mu.Lock()
	delete(r.replicas, id)
	var stopped []*slot
	for i, s := range r.slots {
		if s != nil && s.shard == id {
			stopped = append(stopped, s)
			r.slots[i] = nil
		}
	}
	r.mu.Unlock()
	for _, s := range stopped {
		close(s.stop)
	}
	for _, s := range stopped {
		<-s.done
	}
}

// Close stops all slots; none can be added any more.
func (r *Runtime) Close() {
	r.mu.Lock()
	r.closed = true
	ids := make([]metadata.ShardID, 0, len(r.replicas))
	for id := range r.replicas {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	for _, id := range ids {
		r.Remove(id)
	}
}

// TopicsChanged lets all slots know that the cluster's topics have changed.
func (r *Runtime) TopicsChanged() {
	r.topics.Store(&topics{r.o.Topics()})
	for _, s := range r.all() {
		s.note(func(in *inbox) { in.topics = true })
	}
}

func (r *Runtime) all() []*slot {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []*slot
	for _, s := range r.slots {
		if s != nil {
			out = append(out, s)
		}
	}
	return out
}

// Submit hands a call to the coordinator of the group's slot, without blocking.
// Nil: Reply will be called exactly once. Else the reason why not, and Reply is
// never called.
func (r *Runtime) Submit(groupID string, c group.Call) *kerr.Error {
	r.mu.RLock()
	n := len(r.slots)
	r.mu.RUnlock()
	if n == 0 {
		return kerr.CoordinatorNotAvailable // the cluster is forming
	}
	return r.SubmitSlot(metadata.CoordinatorSlot(groupID, n), c)
}

// SubmitSlot is Submit for a slot: ListGroups asks all of them.
func (r *Runtime) SubmitSlot(number uint32, c group.Call) *kerr.Error {
	r.mu.RLock()
	var s *slot
	if int(number) < len(r.slots) {
		s = r.slots[number]
	}
	r.mu.RUnlock()
	if s == nil {
		return kerr.NotCoordinator
	}
	err := s.submit(c)
	switch err {
	case nil:
		r.count.calls.Add(1)
	case kerr.CoordinatorLoadInProgress:
		r.count.refused.Add(1)
	}
	return err
}

// Slots lists the slots whose shard is led here, in order; also those that
// cannot be served at the moment, so that nobody takes a part for the whole.
func (r *Runtime) Slots() []uint32 {
	var led []uint32
	for _, s := range r.all() {
		if state, _ := s.look(); state.led() {
			led = append(led, s.number)
		}
	}
	return led
}

// Stats returns the counters.
func (r *Runtime) Stats() Stats {
	st := Stats{
		Calls: r.count.calls.Load(), Refused: r.count.refused.Load(), Loads: r.count.loads.Load(),
		Damaged: r.count.damaged.Load(), WriteFailures: r.count.writeFailures.Load(),
	}
	for _, s := range r.all() {
		state, queued := s.look()
		st.Queued += queued
		if state.led() {
			st.Slots++
		}
		if state == serving {
			st.Serving++
		}
	}
	return st
}
