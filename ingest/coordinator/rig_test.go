package coordinator

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"thermocline/ingest/group"
	"thermocline/ingest/partition"
	"thermocline/metadata"
	"thermocline/wal"
	"thermocline/wal/shard"
	"thermocline/wal/transport"
	"thermocline/wal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testShard = metadata.ShardID(5)
	slotCount = 4
	// patience bounds waiting, in virtual time: longer than any pause here.
	patience = time.Minute
)

// bubble runs fn under virtual time with a Runtime over a shard of one
// replica: the real runner and log, on a file system in memory.
func bubble(t *testing.T, fn func(t *testing.T, g *rig)) {
	synctest.Test(t, func(t *testing.T) {
		g := &rig{t: t, options: group.DefaultOptions(), cluster: topicSet{}}
		g.options.NewID = func() string { g.ids++; return fmt.Sprintf("id-%d", g.ids) }
		g.cluster.add("orders", 4)
		g.gate = newGate(t)
		defer g.gate.close()
		g.start()
		defer func() { g.runtime.Close() }()
		fn(t, g)
	})
}

type rig struct {
	t        *testing.T
	gate     *gate
	runtime  *Runtime
	mu       sync.Mutex // guards what follows
	options  group.Options
	settings int64 // rises with changes of options
	cluster  topicSet
	ids      int
}

func (g *rig) start() {
	g.runtime = New(Options{
		Settings:        func() group.Options { g.mu.Lock(); defer g.mu.Unlock(); return g.options },
		SettingsVersion: func() int64 { g.mu.Lock(); defer g.mu.Unlock(); return g.settings },
		Topics:          func() group.Topics { g.mu.Lock(); defer g.mu.Unlock(); return g.cluster.clone() },
		Logger:          slog.New(slog.DiscardHandler),
	})
	g.runtime.Add(testShard, g.gate)
	g.runtime.Place(slices.Repeat([]metadata.ShardID{testShard}, slotCount))
	synctest.Wait()
	g.want("slots", len(g.runtime.Slots()), slotCount)
}

func (g *rig) want(what string, found, expected any) {
	g.t.Helper()
	if found != expected {
		g.t.Fatalf("%s: expected %v, found %v", what, expected, found)
	}
}

// answered is a call's answer, to come.
type answered struct {
	what string
	c    chan kmsg.Response
}

// submit offers a call, which must be taken.
func (g *rig) submit(name string, req kmsg.Request) *answered {
	g.t.Helper()
	a, err := g.try(name, req)
	if err != nil {
		g.t.Fatalf("submit %T for %s: %v", req, name, err)
	}
	return a
}

func (g *rig) try(name string, req kmsg.Request) (*answered, *kerr.Error) {
	a := &answered{fmt.Sprintf("%T for %s", req, name), make(chan kmsg.Response, 2)}
	err := g.runtime.Submit(name, group.Call{Request: req, ClientID: "c", ClientHost: "/10.0.0.1", Reply: func(r kmsg.Response) { a.c <- r }})
	return a, err
}

func (g *rig) await(a *answered) kmsg.Response {
	g.t.Helper()
	select {
	case r := <-a.c:
		return r
	case <-time.After(patience):
		g.t.Fatalf("%s was not answered", a.what)
		return nil
	}
}

// unanswered: nothing has come, and nothing is about to.
func (g *rig) unanswered(a *answered) {
	g.t.Helper()
	synctest.Wait()
	if len(a.c) > 0 {
		g.t.Fatalf("%s is answered: %+v", a.what, <-a.c)
	}
}

func commitRequest(name string, partition int32, offset int64) kmsg.Request {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.Generation = 8, name, -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = "orders", idOf("orders")
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = partition, offset
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func fetchRequest(name string) kmsg.Request {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Version = 8
	one := kmsg.NewOffsetFetchRequestGroup()
	one.Group = name
	r.Groups = append(r.Groups, one)
	return r
}

func joinRequest(name string) kmsg.Request {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.ProtocolType = 3, name, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 30_000, 60_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "range"
	r.Protocols = append(r.Protocols, p)
	return r
}

// commitCode is a commit's error, or 0.
func (g *rig) commitCode(a *answered) int16 {
	g.t.Helper()
	return g.await(a).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
}

func (g *rig) commit(name string, partition int32, offset int64) {
	g.t.Helper()
	if code := g.commitCode(g.submit(name, commitRequest(name, partition, offset))); code != 0 {
		g.t.Fatalf("commit of %s: %v", name, kerr.ErrorForCode(code))
	}
}

// fetched renders a fetch's answer: "p=offset ..." or the error's name.
func (g *rig) fetched(a *answered) string {
	g.t.Helper()
	one := g.await(a).(*kmsg.OffsetFetchResponse).Groups[0]
	if one.ErrorCode != 0 {
		return kerr.ErrorForCode(one.ErrorCode).(*kerr.Error).Message
	}
	var out []string
	for _, t := range one.Topics {
		for _, p := range t.Partitions {
			out = append(out, fmt.Sprintf("%d=%d", p.Partition, p.Offset))
		}
	}
	return strings.Join(out, " ")
}

func (g *rig) fetch(name string) string {
	g.t.Helper()
	return g.fetched(g.submit(name, fetchRequest(name)))
}

// topicSet is a cluster's topics.
type topicSet map[string]group.Topic

func idOf(name string) (id [16]byte) {
	copy(id[:], name)
	return id
}

func (s topicSet) add(name string, partitions int32) {
	s[name] = group.Topic{Name: name, ID: idOf(name), Partitions: partitions}
}

func (s topicSet) clone() topicSet {
	out := topicSet{}
	for name, t := range s {
		out[name] = t
	}
	return out
}

func (s topicSet) Topic(name string) (group.Topic, bool) { t, ok := s[name]; return t, ok }

func (s topicSet) TopicByID(id [16]byte) (group.Topic, bool) {
	for _, t := range s {
		if t.ID == id {
			return t, true
		}
	}
	return group.Topic{}, false
}

func (s topicSet) Names() []string {
	var out []string
	for name := range s {
		out = append(out, name)
	}
	return out
}

// Deleted: here a topic that is missing was deleted.
func (s topicSet) Deleted(id [16]byte) bool { _, ok := s.TopicByID(id); return !ok }

// gate is a replica whose leadership, proposals and confirmations a test can
// hold and spoil. Its runner is always the leader.
type gate struct {
	t      *testing.T
	fs     *vfs.Mem
	set    *partition.Set
	runner *shard.Runner
	writer *wal.Writer

	mu       sync.Mutex
	lost     bool
	terms    uint64 // added to the runner's term: one for each loss
	subs     map[int]func(shard.Leadership)
	nextSub  int
	full     error // Propose refuses with it
	hold     bool  // proposals are kept in held
	held     []*shard.Proposal
	spoil    func(p *shard.Proposal) error // the outcome of what is then not proposed
	holdRead bool
	reads    []func(error)
	readErr  error
	asked    int
}

func newGate(t *testing.T) *gate {
	g := &gate{t: t, fs: vfs.NewMem(1), subs: map[int]func(shard.Leadership){}}
	g.open()
	return g
}

// open starts the replica: a new one, or from its log.
func (g *gate) open() {
	g.set = partition.NewSet(partition.Options{Shard: uint32(testShard)})
	log, recovered, err := wal.Open(g.fs, "wal", wal.Options{FileBytes: 4 << 20, MaxBytes: 64 << 20})
	if err != nil {
		g.t.Fatal(err)
	}
	g.writer = wal.NewWriter(log)
	g.runner, err = shard.NewRunner(shard.Config{
		Core: shard.Options{
			Shard: wal.ShardID(testShard), ID: 1, StateMachine: g.set, CheckPayload: partition.CheckPayload,
			Recovered: recovered[wal.ShardID(testShard)],
		},
		Log: g.writer, FS: g.fs, Dir: "wal", Voters: []shard.ReplicaID{1},
		NewStateMachine: func() shard.StateMachine { return partition.NewSet(partition.Options{Shard: uint32(testShard)}) },
		Send:            func(*transport.Message) {},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	led := make(chan struct{}, 16)
	defer g.runner.Subscribe(func(l shard.Leadership) {
		if l.Ready {
			led <- struct{}{}
		}
	})()
	if !g.runner.Leadership().Ready {
		<-led
	}
}

// reopen restarts the replica from what is on its disk.
func (g *gate) reopen() {
	g.close()
	g.open()
}

func (g *gate) close() {
	if err := g.runner.Close(g.t.Context()); err != nil {
		g.t.Error(err)
	}
	if err := g.writer.Close(); err != nil {
		g.t.Error(err)
	}
}

func (g *gate) State() *partition.Set { return g.set }

func (g *gate) Leadership() shard.Leadership {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.runner.Leadership()
	l.Term += g.terms
	l.Ready = l.Ready && !g.lost
	return l
}

func (g *gate) Subscribe(fn func(shard.Leadership)) func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := g.nextSub
	g.nextSub++
	g.subs[id] = fn
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.subs, id)
	}
}

// lead takes leadership away, or gives it back in another term.
func (g *gate) lead(on bool) {
	g.mu.Lock()
	g.lost = !on
	if on {
		g.terms++
	}
	subs := g.subs
	g.mu.Unlock()
	for _, fn := range subs {
		fn(g.Leadership())
	}
}

func (g *gate) Propose(p *shard.Proposal) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.full != nil {
		return false
	}
	if g.spoil != nil {
		if err := g.spoil(p); err != nil {
			p.Refuse(err)
			return true
		}
	}
	if g.hold {
		g.held = append(g.held, p)
		return true
	}
	return g.runner.Propose(p)
}

func (g *gate) Intake(class shard.Class) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.full != nil {
		return g.full
	}
	return g.runner.Intake(class)
}

func (g *gate) ReadIndex(done func(error)) {
	g.mu.Lock()
	g.asked++
	hold, err := g.holdRead, g.readErr
	if hold {
		g.reads = append(g.reads, done)
	}
	g.mu.Unlock()
	switch {
	case hold:
	case err != nil:
		done(err)
	default:
		g.runner.ReadIndex(done)
	}
}

// set changes the gate.
func (g *gate) with(fn func(*gate)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fn(g)
}

// release lets what was held go on.
func (g *gate) release() {
	g.mu.Lock()
	held, reads := g.held, g.reads
	g.held, g.reads, g.hold, g.holdRead = nil, nil, false, false
	g.mu.Unlock()
	for _, p := range held {
		if !g.runner.Propose(p) {
			g.t.Errorf("the runner refuses a proposal: %v", g.runner.Intake(p.Class))
		}
	}
	for _, done := range reads {
		g.runner.ReadIndex(done)
	}
}
