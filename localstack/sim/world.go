package sim

import (
	"container/heap"
	crand "crypto/rand"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync"

	"thermocline/ingest/partition"
	"thermocline/wal"
	"thermocline/wal/shard"
)

const (
	nodes        = 3
	shards       = 2
	partitions   = 2 // per shard, beside one that is deleted and made again
	majority     = 2
	traceLines   = 120
	milli        = int64(1) // virtual time is in milliseconds
	second       = 1000 * milli
	livenessMax  = 40 * second
	eventsMax    = 400_000 // a run that needs more does not end
	safetySpan   = 6 * second
	clientPauses = 25 * milli
)

// Options chooses a run.
type Options struct {
	Seed uint64
	// Planted bugs; all off but in hunts.
	Shard     shard.Bugs
	Partition partition.Bugs
	WAL       wal.Bugs
	// KeepReplicaID is the mistake of a broker that goes on under the replica id
	// whose data it has lost.
	KeepReplicaID bool
	// LoadUnconfirmed is the mistake of a coordinator that loads what its
	// replica has, without asking a quorum whether that leads.
	LoadUnconfirmed bool
	// tune changes the plan that the seed drew: hunts ask for more of the
	// faults that their bug needs.
	tune func(*plan)
}

// Failure is a violation: the checker that fired, what it saw, and the end of
// the run's trace.
type Failure struct {
	Seed    uint64
	Checker string
	What    string
	Trace   string
}

// Error implements error.
func (f *Failure) Error() string {
	return fmt.Sprintf("seed %d: checker %s: %s\n%s", f.Seed, f.Checker, f.What, f.Trace)
}

// Result is what a run did.
type Result struct {
	// Hash is over every event of the run: equal seeds give equal hashes.
	Hash   uint64
	Events int
	Counts Counts
}

// Counts tells how much of each thing happened, so that a simulator which
// tests nothing is noticed.
type Counts struct {
	Acked, Resent, Dropped, Refused, Crashes, Elections, Transfers     int
	Snapshots, Streams, Tiered, Fetches, ColdFetches, Latest, Messages int
	Lost, Duplicated, Corrupted, Held, LogFailures, Unknown, Deletes   int
	Changes, Woken, DisksLost, Replaced, Full                          int
	SlotWrites, SlotLoads                                              int
}

// Add sums counts up.
func (c *Counts) Add(o Counts) {
	c.Acked += o.Acked
	c.Resent += o.Resent
	c.Dropped += o.Dropped
	c.Refused += o.Refused
	c.Crashes += o.Crashes
	c.Elections += o.Elections
	c.Transfers += o.Transfers
	c.Snapshots += o.Snapshots
	c.Streams += o.Streams
	c.Tiered += o.Tiered
	c.Fetches += o.Fetches
	c.ColdFetches += o.ColdFetches
	c.Latest += o.Latest
	c.Messages += o.Messages
	c.Lost += o.Lost
	c.Duplicated += o.Duplicated
	c.Corrupted += o.Corrupted
	c.Held += o.Held
	c.LogFailures += o.LogFailures
	c.Unknown += o.Unknown
	c.Deletes += o.Deletes
	c.Changes += o.Changes
	c.Woken += o.Woken
	c.DisksLost += o.DisksLost
	c.Replaced += o.Replaced
	c.Full += o.Full
	c.SlotWrites += o.SlotWrites
	c.SlotLoads += o.SlotLoads
}

// violation is how a checker ends a run.
type violation struct{ checker, what string }

// event is something that happens at a time; seq orders equal times.
type event struct {
	at  int64
	seq uint64
	fn  func()
}

type eventQueue []*event

// Len implements heap.Interface.
func (q eventQueue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q eventQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}

// Swap implements heap.Interface.
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *eventQueue) Push(x any) { *q = append(*q, x.(*event)) }

// Pop implements heap.Interface.
func (q *eventQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return e
}

// world is one run.
type world struct {
	o      Options
	rng    *rand.Rand
	now    int64
	seq    uint64
	queue  eventQueue
	nodes  [nodes]*node
	net    network
	plan   plan
	model  [shards]*model
	placed [shards]placement
	store  *store
	calm   bool // no faults any more: the liveness phase
	quiet  bool // clients make nothing new
	counts Counts

	clients []*producer
	keys    [shards][]partition.Key

	hash   uint64
	events int
	trace  []traceLine
}

// traceLine is one line of the trace, formatted only when a run fails.
type traceLine struct {
	at   int64
	what string
	v    [5]uint64
}

var running sync.Mutex // rand.Reader belongs to one run

// seededReader replaces crypto/rand's reader.
type seededReader struct{ rng *rand.Rand }

// Read implements io.Reader.
func (r seededReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r.rng.Uint32())
	}
	return len(p), nil
}

var _ io.Reader = seededReader{}

// Run runs one seed to its end. The error is a *Failure when a checker fired.
func Run(o Options) (res Result, err error) {
	running.Lock()
	defer running.Unlock()
	w := &world{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0x7468_6572_6d6f))}
	reader := crand.Reader
	crand.Reader = seededReader{rand.New(rand.NewPCG(o.Seed, 0x636c_696e_65))}
	defer func() {
		crand.Reader = reader
		if p := recover(); p != nil {
			v, ok := p.(violation)
			if !ok {
				v = violation{"no-panic", fmt.Sprintf("%v\n%s", p, trimStack(debug.Stack()))}
			}
			err = &Failure{Seed: o.Seed, Checker: v.checker, What: v.what, Trace: w.traceTail()}
		}
		res = Result{Hash: w.hash, Events: w.events, Counts: w.counts}
	}()
	w.start()
	w.runUntil(func() bool { return w.now >= safetySpan })
	w.liveness()
	return res, nil
}

// trimStack keeps the frames below the panic.
func trimStack(b []byte) string {
	lines := strings.Split(string(b), "\n")
	if i := max(0, min(len(lines), 8)); len(lines) > i {
		lines = lines[i:]
	}
	return strings.Join(lines[:min(len(lines), 24)], "\n")
}

func (w *world) violate(checker, format string, args ...any) {
	panic(violation{checker, fmt.Sprintf(format, args...)})
}

// after schedules fn in d milliseconds.
func (w *world) after(d int64, fn func()) {
	w.seq++
	heap.Push(&w.queue, &event{at: w.now + max(0, d), seq: w.seq, fn: fn})
}

func (w *world) runUntil(done func() bool) {
	for !done() && len(w.queue) > 0 {
		e := heap.Pop(&w.queue).(*event)
		w.now = e.at
		if w.events++; w.events > eventsMax {
			w.violate("ends", "the run needs more than %d events", eventsMax)
		}
		e.fn()
	}
}

// log adds a line to the trace and to the run's hash.
func (w *world) log(what string, v ...uint64) {
	l := traceLine{at: w.now, what: what}
	copy(l.v[:], v)
	h := w.hash ^ uint64(l.at)*0x9e3779b97f4a7c15
	for i := range len(what) {
		h = (h ^ uint64(what[i])) * 0x100000001b3
	}
	for _, x := range l.v {
		h = (h ^ x) * 0x100000001b3
		h ^= h >> 29
	}
	w.hash = h
	if len(w.trace) >= 2*traceLines {
		w.trace = append(w.trace[:0], w.trace[traceLines:]...)
	}
	w.trace = append(w.trace, l)
}

func (w *world) traceTail() string {
	var b strings.Builder
	from := max(0, len(w.trace)-traceLines)
	for _, l := range w.trace[from:] {
		fmt.Fprintf(&b, "%8d %-12s %6d %6d %6d %6d %6d\n", l.at, l.what, l.v[0], l.v[1], l.v[2], l.v[3], l.v[4])
	}
	return b.String()
}

// chance is true with probability p, and never in the calm phase.
func (w *world) chance(p float64) bool { return !w.calm && p > 0 && w.rng.Float64() < p }

// between draws a duration from lo to hi.
func (w *world) between(lo, hi int64) int64 { return lo + w.rng.Int64N(hi-lo+1) }
