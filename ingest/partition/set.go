package partition

import (
	"sync"

	"thermocline/metadata"
	"thermocline/tiering/format"
	"thermocline/wal/shard"
)

// A shard's log begins after BootstrapIndex: every replica starts there, in
// BootstrapTerm, with an empty state.
const (
	BootstrapIndex = 1
	BootstrapTerm  = 1
)

// ProducerExpiryMilli is producer.id.expiration.ms: a producer that has been
// silent for so long is forgotten. It is a constant, since apply may only
// depend on state and entry: replicas with other settings would diverge.
const ProducerExpiryMilli = 24 * 60 * 60 * 1000

// producerExpiryBatch bounds how many producers one entry may forget, so that
// a day's worth of them does not stop the shard at once.
const producerExpiryBatch = 1024

// Options configure a Set.
type Options struct {
	// Shard is the shard's number, below MaxShard.
	Shard uint32
	// Bugs plants faults that tests must find; the zero value is the only one
	// fit for use.
	Bugs Bugs
}

// Bugs are switches that open one Rule of the design each, for the simulator.
type Bugs struct {
	// SkipSequenceCheck: any sequence number is taken, also twice.
	SkipSequenceCheck bool
	// SkipOffsetCheck: apply believes the stamped offset's proposer and appends at the end.
	SkipOffsetCheck bool
	// TierAnywhere: a tiering commit need not start at the tiered end.
	TierAnywhere bool
	// KeepTieredEnd: a tiering commit drops rows but does not move the
	// partitions' tiered ends.
	KeepTieredEnd bool
	// HWFromApplied: a partition's HW follows apply, not the shard's HW index.
	HWFromApplied bool
	// HWGoesBack: a lower HW index is believed.
	HWGoesBack bool
	// LatestAlwaysKnown: a new leader tells the log's end before its HW is sure.
	LatestAlwaysKnown bool
	// AckInFlightDuplicate: a duplicate of a batch in flight is answered at once.
	AckInFlightDuplicate bool
	// SealAboveHW: sealing goes up to the applied index.
	SealAboveHW bool
	// DeleteAboveHW: DeleteRecords may go up to the log's end.
	DeleteAboveHW bool
	// KeepProposed: ResetProposed does nothing.
	KeepProposed bool
	// MapOrder: the image lists partitions in the order of a map.
	MapOrder bool
	// SkipWriteNumberCheck: a coordinator write is taken whatever it follows.
	SkipWriteNumberCheck bool
	// ImageWithoutSlots: an image leaves the coordinators' records out.
	ImageWithoutSlots bool
	// AcceptStaleRows: a run commit is not checked against the current rows.
	AcceptStaleRows bool
}

// Set is one shard replica's partitions: the replicated state, which the
// shard's goroutine alone changes, and the read side, for any number of
// goroutines.
//
// Who may call what: the methods of shard.StateMachine belong to the shard's
// goroutine (Image.Encode to any). All other methods are safe everywhere.
//
// Locks: mu guards everything that readers see; the shard's goroutine holds it
// to write, and reads without it, since nobody else writes. Callbacks (emit,
// waking) happen after mu is released. The watchers have a lock of their own,
// which is never held together with mu.
//
// Invariants of each partition, whenever mu is free:
// logStart <= tieredEnd <= logEnd, logStart <= hw <= logEnd, the tail's rows
// are contiguous and end at logEnd, the first of them begins at or before
// tieredEnd.
//
// Copy on write: an Image shares the states (and pages of producers) with the
// Set. Each carries the generation in which it was made; Image raises the
// generation, and the first change afterwards copies.
type Set struct {
	opt Options

	mu  sync.RWMutex
	gen uint64

	// The replicated state, beside the partitions' own.
	index, term  uint64 // of the last entry applied or skipped
	nextRef      format.PartitionRef
	nextProducer int64 // ids handed out so far; the shard's number goes above it
	nextSegment  format.SegmentID
	nextRun      uint32 // lowest id that a new run may have
	manifest     *format.Manifest
	topics       map[metadata.TopicID]*topic
	byKey        map[Key]*part
	byRef        map[format.PartitionRef]*part
	parts        []*part // all, in no order; what Image walks
	hot          []*part // those with rows in their tail, in no order
	// entries are the log's entries with untiered rows, by index.
	entries deque[entryMark]
	// slots are the coordinators' records by slot, those that were ever written to.
	slots     map[uint32]slotState
	slotBytes int64 // of all of them

	// Not replicated: the acknowledgement bound and what waits for it.
	hw    uint64
	ready bool
	// marks are the ends of partitions between hw and index: SetHW touches
	// nothing else.
	marks deque[hwMark]
	// expiry finds producers to forget; it can be rebuilt from them.
	expiry expiryHeap

	proposed proposed
	watch    watchers
	stats    Stats
	restored uint64 // number of Restores, for Seal to notice one
	slotGen  uint64 // generation of the slots' nodes; one for each write

	// Scratch of the shard's goroutine.
	outcomes []outcome
	changed  []*part
	wakeKeys []Key
	wakeAll  bool
}

// entryMark is one entry that has rows in some tail.
type entryMark struct {
	index uint64
	bytes int64 // of its rows that are still in a tail
	time  int64 // its proposer's clock, unix ms
}

// hwMark says that partition p ends at end once index is acknowledged.
type hwMark struct {
	index uint64
	p     *part
	end   int64
}

type outcome struct {
	result any
	err    error
}

// topic is what a shard knows of a topic. cur is replaced, never changed.
type topic struct {
	cur   *topicState
	parts int // partitions here; the topic goes with the last one
}

type topicState struct {
	id       metadata.TopicID
	name     string
	config   map[string]string
	revision int64
}

// part is the live side of a partition: what is not replicated, and the
// current state.
type part struct {
	state *state
	topic *topic
	hw    int64
	gone  bool // deleted; marks and proposals may still point here
	// changed: listed in Set.changed.
	changed bool
	at      int // position in Set.parts
	hotAt   int // position in Set.hot, -1 when the tail is empty
	// producerAt finds producers once there are more than a few.
	producerAt map[int64]int
	// The proposed state, private to the shard's goroutine: meaningful while
	// runPending > 0. runBad: an item failed in apply that Prepare had let
	// pass, so that all behind it will fail: nothing is taken until they have.
	runEnd     int64
	runPending int
	runBad     bool
}

// state is the replicated part of a partition. It may be changed only through
// Set.own, and is frozen once an Image has it.
type state struct {
	gen       uint64
	key       Key
	ref       format.PartitionRef
	epochBase int32
	logStart  int64
	tieredEnd int64
	logEnd    int64
	coldBytes int64
	maxTime   int64        // largest timestamp in the tail; -1 when it is empty
	epochs    []epochStart // of the tail; the first is in force at the tiered end
	tail      tail
	producers producers
}

// epochStart says that leader epoch epoch begins at offset first.
type epochStart struct {
	epoch int32
	first int64
}

var _ shard.StateMachine = (*Set)(nil)

// NewSet returns an empty state at BootstrapIndex.
func NewSet(o Options) *Set {
	s := &Set{opt: o}
	s.clear()
	s.hw = BootstrapIndex
	return s
}

// clear makes the replicated state that of a new shard.
func (s *Set) clear() {
	s.index, s.term = BootstrapIndex, BootstrapTerm
	s.nextRef, s.nextSegment, s.nextRun, s.nextProducer = 1, 1, 1, 0
	s.manifest = &format.Manifest{Shard: s.opt.Shard, TieredIndex: BootstrapIndex}
	s.topics = make(map[metadata.TopicID]*topic)
	s.byKey = make(map[Key]*part)
	s.byRef = make(map[format.PartitionRef]*part)
	s.parts, s.hot = nil, nil
	s.entries, s.marks = deque[entryMark]{}, deque[hwMark]{}
	s.slots, s.slotBytes = make(map[uint32]slotState), 0
	s.expiry = nil
}

// own returns p's state for changing: a copy of its own if an image has it.
func (s *Set) own(p *part) *state {
	if p.state.gen != s.gen {
		c := *p.state
		c.gen = s.gen
		// Pages are replaced in this slice, so it may not be shared. Epochs and
		// chunks of the tail are only appended and cut, which an image does not see.
		c.producers.pages = append([]*producerPage(nil), c.producers.pages...)
		p.state = &c
	}
	return p.state
}

// push adds a row to the tail.
func (st *state) push(r TailRef) {
	st.tail.push(r)
	st.maxTime = max(st.maxTime, r.MaxTimestamp)
}

// touch lists p for the waking after the current call.
func (s *Set) touch(p *part) {
	if !p.changed {
		p.changed = true
		s.changed = append(s.changed, p)
	}
}

// addPart links a new or restored partition.
func (s *Set) addPart(p *part) {
	p.at, p.hotAt = len(s.parts), -1
	s.parts = append(s.parts, p)
	s.byKey[p.state.key] = p
	s.byRef[p.state.ref] = p
	p.topic.parts++
	s.setHot(p)
}

// dropPart unlinks p. Its rows' entries must have been released before.
func (s *Set) dropPart(p *part) {
	last := s.parts[len(s.parts)-1]
	s.parts[p.at] = last
	last.at = p.at
	s.parts[len(s.parts)-1] = nil
	s.parts = s.parts[:len(s.parts)-1]
	s.unlinkHot(p)
	delete(s.byKey, p.state.key)
	delete(s.byRef, p.state.ref)
	p.gone = true
	if p.topic.parts--; p.topic.parts == 0 {
		delete(s.topics, p.topic.cur.id)
	}
}

// setHot brings p's membership in the list of hot partitions up to date.
func (s *Set) setHot(p *part) {
	switch {
	case p.state.tail.rows == 0:
		s.unlinkHot(p)
	case p.hotAt < 0:
		p.hotAt = len(s.hot)
		s.hot = append(s.hot, p)
	}
}

func (s *Set) unlinkHot(p *part) {
	if p.hotAt < 0 {
		return
	}
	last := s.hot[len(s.hot)-1]
	s.hot[p.hotAt] = last
	last.hotAt = p.hotAt
	s.hot[len(s.hot)-1] = nil
	s.hot = s.hot[:len(s.hot)-1]
	p.hotAt = -1
}

// leaderEpoch is the epoch of p under a leader of term. It stays at the
// largest int32 rather than going back.
func leaderEpoch(st *state, term uint64) int32 {
	const most = 1<<31 - 1
	if term > most || int64(st.epochBase)+int64(term) > most {
		return most
	}
	return st.epochBase + int32(term)
}
