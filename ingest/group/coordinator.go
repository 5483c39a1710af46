package group

import (
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Coordinator owns the groups of one slot. It is not safe for concurrent use:
// one goroutine drives it.
type Coordinator struct {
	o      Options
	topics Topics
	bugs   Bugs

	loaded bool
	gone   *kerr.Error // why it was unloaded

	groups  map[string]*groupState
	pending int                              // members of all groups that were told their id and have not joined
	byTopic map[[16]byte]map[*groupState]int // committed offsets of each topic
	bare    map[*groupState]bool             // groups of which nothing was left when last looked at
	timers  timers

	made, written uint64
	records       []Record // of the write that the call under way makes
	writes        []Write
	fresh         []heldReply // answers of the call under way
	held          []heldReply // answers that wait for a write, oldest first
}

// groupState is one group: its offsets, and at most one of classic and
// consumer. With neither it is a simple group: committed offsets of clients
// that assign partitions by themselves.
type groupState struct {
	name     string
	offsets  map[string]map[int32]committed
	classic  *classicGroup
	consumer *consumerGroup
}

// heldReply is an answer and the write it must not overtake.
type heldReply struct {
	call  Call
	resp  kmsg.Response
	after uint64
}

// A write is closed before it has more records or bytes than these, unless
// they are of one change.
const (
	writeRecordsMax = 10_000
	writeBytesMax   = 1 << 20
)

// New returns an empty Coordinator: Load and Loaded come next.
func New(o Options, t Topics) *Coordinator {
	return &Coordinator{o: o, topics: t, groups: make(map[string]*groupState), byTopic: make(map[[16]byte]map[*groupState]int), bare: make(map[*groupState]bool)}
}

// Load takes one record of the slot's map, in any order. An error means that
// the record is damaged or of a newer version: the slot cannot be served.
func (c *Coordinator) Load(key string, value []byte) error {
	k, err := parseKey(key)
	if err != nil {
		return err
	}
	g := c.group(k.group)
	if g == nil {
		g = c.create(k.group)
	}
	switch {
	case k.kind == kindOffset:
		err = c.loadOffset(g, k, value)
	case k.kind == kindClassic || k.kind == kindClassicMember:
		err = loadClassic(g, k, value)
	case k.kind >= kindConsumerFirst:
		err = c.loadConsumer(g, k, value)
	default:
		err = fmt.Errorf("kind %d is not known here: written by a newer version; run that", k.kind)
	}
	if err != nil {
		return fmt.Errorf("record of group %q, key %x: %w", k.group, key, err)
	}
	return nil
}

// Loaded ends loading, and begins to serve. All sessions begin anew. now is in
// milliseconds, here and in all calls.
func (c *Coordinator) Loaded(now int64) {
	defer c.finish()
	c.loaded = true
	for _, name := range c.names() {
		g := c.groups[name]
		if g.classic != nil {
			c.classicLoaded(now, g)
		}
		if g.consumer != nil {
			c.consumerLoaded(now, g)
		}
		c.scheduleRetention(now, g)
	}
	c.dropDeleted()
}

// Handle works on a call. Its answer leaves from within this call or a later
// one. Timers that are due fire in Tick only: a member whose heartbeat waited
// while the broker was slow is not punished for it.
func (c *Coordinator) Handle(now int64, call Call) {
	defer c.finish()
	switch {
	case c.gone != nil:
		c.reply(&call, ErrorResponse(call.Request, c.gone))
		return
	case !c.loaded:
		c.reply(&call, ErrorResponse(call.Request, kerr.CoordinatorLoadInProgress))
		return
	}
	switch r := call.Request.(type) {
	case *kmsg.JoinGroupRequest:
		c.join(now, &call, r)
	case *kmsg.SyncGroupRequest:
		c.sync(now, &call, r)
	case *kmsg.HeartbeatRequest:
		c.heartbeat(now, &call, r)
	case *kmsg.LeaveGroupRequest:
		c.leave(now, &call, r)
	case *kmsg.OffsetCommitRequest:
		c.offsetCommit(now, &call, r)
	case *kmsg.OffsetFetchRequest:
		c.offsetFetch(&call, r)
	case *kmsg.OffsetDeleteRequest:
		c.offsetDelete(&call, r)
	case *kmsg.DescribeGroupsRequest:
		c.describeGroups(&call, r)
	case *kmsg.ListGroupsRequest:
		c.listGroups(&call, r)
	case *kmsg.DeleteGroupsRequest:
		c.deleteGroups(&call, r)
	case *kmsg.ConsumerGroupHeartbeatRequest:
		c.consumerHeartbeat(now, &call, r)
	case *kmsg.ConsumerGroupDescribeRequest:
		c.consumerDescribe(now, &call, r)
	default:
		panic(fmt.Sprintf("group: a coordinator was given a request of key %d, which it has no part in", call.Request.Key()))
	}
}

// Tick fires the timers that are due.
func (c *Coordinator) Tick(now int64) {
	defer c.finish()
	for t := c.timers.next(now); t != nil; t = c.timers.next(now) {
		t.fn(now)
	}
}

// Deadline is when Tick shall be called next; false: nothing is to be done by time.
func (c *Coordinator) Deadline() (int64, bool) { return c.timers.deadline() }

// SetTopics tells of changed topics. Offsets of topics that were deleted go.
func (c *Coordinator) SetTopics(now int64, t Topics) {
	defer c.finish()
	c.topics = t
	if !c.loaded || c.gone != nil {
		return
	}
	c.dropDeleted()
	for _, name := range c.names() {
		if g := c.groups[name]; g.consumer != nil {
			c.consumerTopics(now, g)
		}
	}
}

// Configure changes the options. They hold for what comes.
func (c *Coordinator) Configure(o Options) { c.o = o }

// Writes takes the writes that were made since it was last asked, in order.
func (c *Coordinator) Writes() []Write {
	w := c.writes
	c.writes = nil
	return w
}

// Written tells that all writes up to number are replicated, and releases the
// answers that waited for them.
func (c *Coordinator) Written(number uint64) {
	if number > c.made {
		panic(fmt.Sprintf("group: write %d is said to be written, and %d is the last one made", number, c.made))
	}
	if number > c.written && c.gone == nil {
		c.written = number
	}
	c.release()
}

// Unload ends the Coordinator: everyone who waits, and every call that comes,
// is answered with err, for it is not known which writes will last.
func (c *Coordinator) Unload(err *kerr.Error) {
	defer c.finish()
	if c.gone != nil {
		return
	}
	c.gone = err
	held := append(c.held, c.fresh...)
	c.held, c.fresh, c.records, c.writes = nil, nil, nil, nil
	for _, h := range held {
		h.call.Reply(respond(h.call.Request, ErrorResponse(h.call.Request, err)))
	}
	for _, name := range c.names() {
		if g := c.groups[name].classic; g != nil {
			c.abandon(g, err)
		}
	}
	c.timers.clear()
	c.groups = nil
}

// write adds records to what the call under way changes. The records of one
// call of write change the map as one.
func (c *Coordinator) write(records ...Record) {
	if len(c.records) > 0 && (len(c.records)+len(records) > writeRecordsMax || recordBytes(c.records)+recordBytes(records) > writeBytesMax) {
		c.seal()
	}
	c.records = append(c.records, records...)
}

// seal closes the write under way.
func (c *Coordinator) seal() {
	if len(c.records) == 0 {
		return
	}
	c.made++
	c.writes = append(c.writes, Write{Number: c.made, Records: c.records})
	c.records = nil
}

// reply answers a call, once everything that has been changed by the end of
// the call under way is written.
func (c *Coordinator) reply(call *Call, resp kmsg.Response) {
	c.fresh = append(c.fresh, heldReply{call: *call, resp: resp})
}

// fail is reply with an error.
func (c *Coordinator) fail(call *Call, err *kerr.Error) {
	c.reply(call, ErrorResponse(call.Request, err))
}

// finish ends each public call.
func (c *Coordinator) finish() {
	c.seal()
	for i := range c.fresh {
		c.fresh[i].after = c.made
		if c.bugs.ReplyBeforeWritten {
			c.fresh[i].after = 0
		}
	}
	c.held = append(c.held, c.fresh...)
	clear(c.fresh)
	c.fresh = c.fresh[:0]
	c.release()
}

// release sends the answers that wait for nothing any more.
func (c *Coordinator) release() {
	n := 0
	for n < len(c.held) && (c.held[n].after <= c.written || c.gone != nil) {
		h := &c.held[n]
		h.call.Reply(respond(h.call.Request, h.resp))
		*h = heldReply{}
		n++
	}
	c.held = c.held[n:]
	if len(c.held) == 0 {
		c.held = nil
	}
}

// timer makes fn be called by the first Tick at or after at; one that is set
// under this key already is replaced.
func (c *Coordinator) timer(key timerKey, at int64, fn func(now int64)) { c.timers.set(key, at, fn) }

// group finds a group, or nil.
func (c *Coordinator) group(name string) *groupState { return c.groups[name] }

// ensure finds a group, or makes an empty simple one.
func (c *Coordinator) ensure(now int64, name string) *groupState {
	g := c.groups[name]
	if g == nil {
		g = c.create(name)
		c.scheduleRetention(now, g)
	}
	return g
}

// create makes a group that was not there, while loading.
func (c *Coordinator) create(name string) *groupState {
	g := &groupState{name: name}
	c.groups[name] = g
	return g
}

// bareMax bounds the groups of which nothing is left and that are kept for a
// while, so that calls which leave nothing behind cannot fill the memory.
const bareMax = 10_000

// linger leaves a group of which nothing is left to its next look for expired
// offsets: as in Kafka it is there until then, empty, unless somebody deletes
// it. No record says so; a coordinator that takes over does not know it.
func (c *Coordinator) linger(g *groupState) {
	switch {
	case !g.isBare():
		delete(c.bare, g)
	case len(c.bare) < bareMax:
		c.bare[g] = true
	default:
		c.forget(g)
	}
}

// forget drops a group of which nothing is left.
func (c *Coordinator) forget(g *groupState) {
	delete(c.bare, g)
	if g.isBare() {
		c.timers.cancel(timerKey{kind: timerRetention, group: g.name})
		delete(c.groups, g.name)
	}
}

// isBare: the group has neither members nor offsets, nor a record of its own.
func (g *groupState) isBare() bool {
	return g.classic == nil && g.consumer == nil && len(g.offsets) == 0
}

// dropConsumer ends a KIP-848 group that has no members; its offsets stay.
func (c *Coordinator) dropConsumer(g *groupState) {
	c.write(g.consumer.tombstones(g.name)...)
	g.consumer = nil
}

// dropClassic ends a classic group that has no members; its offsets stay.
func (c *Coordinator) dropClassic(g *groupState) {
	for _, id := range slices.Sorted(maps.Keys(g.classic.pending)) {
		c.forgetPending(g, id)
	}
	c.timers.cancel(joinKey(g))
	c.timers.cancel(syncKey(g))
	c.write(g.classicTombstones()...)
	g.classic = nil
}
