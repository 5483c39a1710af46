package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// worldTopics is a cluster's topics; changes make a new one.
type worldTopics struct {
	byName  map[string]Topic
	byID    map[[16]byte]Topic // nil: byName is searched
	deleted map[[16]byte]bool
	next    byte
}

func (w *worldTopics) Topic(name string) (Topic, bool) { t, ok := w.byName[name]; return t, ok }
func (w *worldTopics) TopicByID(id [16]byte) (Topic, bool) {
	if w.byID != nil {
		t, ok := w.byID[id]
		return t, ok
	}
	for _, t := range w.byName {
		if t.ID == id {
			return t, true
		}
	}
	return Topic{}, false
}
func (w *worldTopics) Names() []string          { return slices.Collect(maps.Keys(w.byName)) }
func (w *worldTopics) Deleted(id [16]byte) bool { return w.deleted[id] }

// indexed is a copy that is quick to search.
func (w *worldTopics) indexed() *worldTopics {
	out := &worldTopics{byName: w.byName, deleted: w.deleted, next: w.next, byID: make(map[[16]byte]Topic)}
	for _, t := range w.byName {
		out.byID[t.ID] = t
	}
	return out
}

// with is a copy in which a topic has so many partitions; 0 deletes it.
func (w *worldTopics) with(name string, partitions int32) *worldTopics {
	out := &worldTopics{byName: maps.Clone(w.byName), deleted: maps.Clone(w.deleted), next: w.next}
	if out.byName == nil {
		out.byName, out.deleted = make(map[string]Topic), make(map[[16]byte]bool)
	}
	t, ok := out.byName[name]
	switch {
	case partitions == 0:
		out.deleted[t.ID] = true
		delete(out.byName, name)
		return out
	case !ok:
		out.next++
		t = Topic{Name: name, ID: [16]byte{1, out.next}}
	}
	t.Partitions = partitions
	out.byName[name] = t
	return out
}

// world is a coordinator, the store behind it, and its clients.
type world struct {
	rnd      *rand.Rand
	c        *Coordinator
	o        Options
	bugs     Bugs
	topics   *worldTopics
	whole    *worldTopics // while topics is behind
	now      int64
	stored   map[string][]byte
	flying   []Write // made and not written yet
	clients  []*worldClient
	classics []*classicClient
	ids      int
	reloads  int
	trace    []string
}

func newWorld(rnd *rand.Rand, bugs Bugs) *world {
	w := &world{rnd: rnd, bugs: bugs, now: 1_000_000, stored: make(map[string][]byte), o: DefaultOptions()}
	w.o.NewID = func() string { w.ids++; return fmt.Sprintf("id-%d", w.ids) }
	w.o.Consumer.AssignmentInterval = 0
	w.topics = (&worldTopics{}).with("a", 6).with("b", 3).with("x-1", 2)
	w.load()
	return w
}

// pace gives the group an assignment interval of its own.
func (w *world) pace(interval int64) {
	own := w.o.Consumer
	own.AssignmentInterval = interval
	w.o.Groups = map[string]GroupSettings{"g": own}
	w.c.Configure(w.o)
}

func (w *world) log(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%7d ", w.now-1_000_000)+fmt.Sprintf(format, args...))
}

// load begins anew from the store.
func (w *world) load() {
	w.c = New(w.o, w.topics)
	w.c.bugs = w.bugs
	for _, k := range slices.Sorted(maps.Keys(w.stored)) {
		if err := w.c.Load(k, w.stored[k]); err != nil {
			panic(fmt.Sprintf("load: %v", err))
		}
	}
	w.c.Loaded(w.now)
	w.take()
}

// take takes the writes that the last call made.
func (w *world) take() { w.flying = append(w.flying, w.c.Writes()...) }

// write completes n writes.
func (w *world) write(n int) {
	for range min(n, len(w.flying)) {
		f := w.flying[0]
		w.flying = w.flying[1:]
		w.apply(f)
		w.c.Written(f.Number)
		w.take()
	}
}

func (w *world) apply(f Write) {
	for _, r := range f.Records {
		if r.Value == nil {
			delete(w.stored, r.Key)
		} else {
			w.stored[r.Key] = r.Value
		}
	}
}

// fail lets some of the writes happen, tells nobody, and loads again.
func (w *world) fail() {
	keep := w.rnd.IntN(len(w.flying) + 1)
	w.log("failover, %d of %d writes are there", keep, len(w.flying))
	for _, f := range w.flying[:keep] {
		w.apply(f)
	}
	w.flying = nil
	w.reloads++
	w.c.Unload(kerr.NotCoordinator)
	w.c.Writes()
	w.load()
}

// pass lets time go by.
func (w *world) pass(ms int64) {
	for end := w.now + ms; ; {
		at, ok := w.c.Deadline()
		if !ok || at > end {
			w.now = end
			return
		}
		w.now = max(w.now, at)
		w.c.Tick(w.now)
		w.take()
	}
}

// call hands in a request; done gets the answer, now or later.
func (w *world) call(req kmsg.Request, done func(kmsg.Response)) {
	w.c.Handle(w.now, Call{Request: req, ClientID: "c", ClientHost: "/127.0.0.1", Reply: done})
	w.take()
}

// do is call for one who waits until all is written.
func (w *world) do(req kmsg.Request) kmsg.Response {
	var out kmsg.Response
	w.call(req, func(r kmsg.Response) { out = r })
	for out == nil && len(w.flying) > 0 {
		w.write(1)
	}
	if out == nil {
		panic(fmt.Sprintf("no answer to %T", req))
	}
	return out
}

// fallBehind hides a topic, as a view that is behind does; catchUp ends that.
func (w *world) fallBehind(name string) {
	w.whole = w.topics
	behind := w.topics.with(name, 0)
	behind.deleted = w.topics.deleted
	w.setTopics(behind)
}

func (w *world) catchUp() {
	if w.whole != nil {
		w.setTopics(w.whole)
		w.whole = nil
	}
}

// setTopics changes the topics.
func (w *world) setTopics(t *worldTopics) {
	w.topics = t
	w.c.SetTopics(w.now, t)
	w.take()
}

// group is the one group of the world.
func (w *world) group() *consumerGroup {
	if g := w.c.group("g"); g != nil {
		return g.consumer
	}
	return nil
}

// checkOwners checks that each partition is held by one member at most, and
// that the table of owners says so.
func (w *world) checkOwners() error {
	if g := w.group(); g != nil {
		return g.disjoint()
	}
	return nil
}
