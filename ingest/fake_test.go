package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"thermocline/index"
	"thermocline/ingest/partition"
	"thermocline/metadata"
	"thermocline/tiering/format"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

// fakeCluster is an in-memory Cluster and Replicas of one or more brokers, of
// which the server under test is the first.
type fakeCluster struct {
	mu         sync.Mutex
	brokers    []metadata.Broker
	shards     []metadata.Shard
	replicas   map[metadata.ShardID]*fakeReplica
	leaders    map[metadata.ShardID]metadata.BrokerID
	topics     map[metadata.TopicID]*metadata.Topic
	revision   int64
	producerID int64
	failWith   error // of every write
	// coordinators has one coordinator for all slots.
	coordinators *fakeCoordinators
	configs      map[string]metadata.DynamicConfig
	// holdBack leaves new partitions out of their shards' state until settle.
	holdBack bool
	held     []func()
	// unheard is the name of a topic that only FindTopic knows.
	unheard string
}

const fakeTerm = 7

func newFakeCluster(shards int, racks ...string) *fakeCluster {
	if len(racks) == 0 {
		racks = []string{""}
	}
	c := &fakeCluster{
		replicas: map[metadata.ShardID]*fakeReplica{}, leaders: map[metadata.ShardID]metadata.BrokerID{},
		topics: map[metadata.TopicID]*metadata.Topic{}, producerID: 4000,
	}
	var members []metadata.Replica
	for i, rack := range racks {
		c.brokers = append(c.brokers, metadata.Broker{ID: metadata.BrokerID(i + 1), Replica: metadata.ReplicaID(i + 100), Rack: rack, KafkaHost: "127.0.0.1", KafkaPort: int32(9092 + i)})
		members = append(members, metadata.Replica{ID: metadata.ReplicaID(i + 100), Broker: metadata.BrokerID(i + 1)})
	}
	for i := range shards {
		id := metadata.ShardID(i + 1)
		c.shards = append(c.shards, metadata.Shard{ID: id, Replicas: members, Home: 1})
		c.replicas[id] = newFakeReplica(uint32(id))
		c.leaders[id] = 1
	}
	c.coordinators = newFakeCoordinators(c)
	return c
}

func (c *fakeCluster) CoordinatorSlots() []metadata.ShardID { return []metadata.ShardID{1} }

func (c *fakeCluster) ClusterID() string             { return "thermocline-test-cluster" }
func (c *fakeCluster) Self() metadata.BrokerID       { return 1 }
func (c *fakeCluster) Controller() metadata.BrokerID { return 1 }
func (c *fakeCluster) Brokers() []metadata.Broker    { c.mu.Lock(); defer c.mu.Unlock(); return c.brokers }
func (c *fakeCluster) Replica(id metadata.ShardID) (Replica, bool) {
	r, ok := c.replicas[id]
	return r, ok
}

func (c *fakeCluster) Topics() []*metadata.Topic {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*metadata.Topic
	for _, t := range c.topics {
		out = append(out, t)
	}
	return out
}

func (c *fakeCluster) TopicByName(name string) (*metadata.Topic, bool) {
	if name == c.unheard {
		return nil, false
	}
	return c.find(name)
}

func (c *fakeCluster) find(name string) (*metadata.Topic, bool) {
	for _, t := range c.Topics() {
		if t.Name == name {
			return t, true
		}
	}
	return nil, false
}

func (c *fakeCluster) TopicByID(id metadata.TopicID) (*metadata.Topic, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.topics[id]
	return t, ok
}

func (c *fakeCluster) Collision(name string) (*metadata.Topic, bool) {
	for _, t := range c.Topics() {
		if t.Name != name && strings.ReplaceAll(t.Name, ".", "_") == strings.ReplaceAll(name, ".", "_") {
			return t, true
		}
	}
	return nil, false
}

func (c *fakeCluster) Shard(id metadata.ShardID) (metadata.Shard, bool) {
	if id < 1 || int(id) > len(c.shards) {
		return metadata.Shard{}, false
	}
	return c.shards[id-1], true
}

func (c *fakeCluster) Leader(id metadata.ShardID) (metadata.BrokerID, uint64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.leaders[id]
	return b, fakeTerm, ok
}

func (c *fakeCluster) CreateTopic(_ context.Context, nt NewTopic) (*metadata.Topic, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failWith != nil {
		return nil, c.failWith
	}
	for _, t := range c.topics {
		if t.Name == nt.Name {
			return nil, metadata.ErrExists
		}
	}
	c.revision++
	t := &metadata.Topic{Name: nt.Name, ID: metadata.TopicID(uuid.New()), Config: nt.Config, Revision: c.revision, ReplicationFactor: nt.ReplicationFactor, Created: time.Now()}
	c.grow(t, nt.Partitions)
	return t, nil
}

// grow adds partitions to a row and to the shards' states. mu is held.
func (c *fakeCluster) grow(t *metadata.Topic, total int) {
	for p := len(t.Shards); p < total; p++ {
		id := metadata.ShardID(p%len(c.shards) + 1)
		t.Shards = append(t.Shards, id)
		create := func() {
			c.replicas[id].command(&partition.CreatePartition{Key: partition.Key{Topic: t.ID, Partition: int32(p)}, Name: t.Name, Config: t.Config})
		}
		if c.holdBack {
			c.held = append(c.held, create)
		} else {
			create()
		}
	}
	c.topics[t.ID] = t
}

// settle adds the partitions that were held back.
func (c *fakeCluster) settle() {
	c.mu.Lock()
	held := c.held
	c.held, c.holdBack = nil, false
	c.mu.Unlock()
	for _, f := range held {
		f()
	}
}

func (c *fakeCluster) FindTopic(_ context.Context, name string) (*metadata.Topic, error) {
	if t, ok := c.find(name); ok {
		return t, nil
	}
	return nil, metadata.ErrNotFound
}

func (c *fakeCluster) DeleteTopic(_ context.Context, id metadata.TopicID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.topics[id]
	if !ok {
		return metadata.ErrNotFound
	}
	delete(c.topics, id)
	for p, s := range t.Shards {
		c.replicas[s].command(&partition.DeletePartition{Key: partition.Key{Topic: id, Partition: int32(p)}})
	}
	return c.failWith
}

func (c *fakeCluster) AddPartitions(_ context.Context, id metadata.TopicID, total int) (*metadata.Topic, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failWith != nil {
		return nil, c.failWith
	}
	t := *c.topics[id]
	t.Shards = slices.Clone(t.Shards)
	c.revision++
	t.Revision = c.revision
	c.grow(&t, total)
	return &t, nil
}

func (c *fakeCluster) AlterTopic(_ context.Context, id metadata.TopicID, revision int64, config map[string]string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, ok := c.topics[id]
	if !ok {
		return metadata.ErrNotFound
	}
	if old.Revision != revision {
		return metadata.ErrFenced
	}
	t := *old
	c.revision++
	t.Config, t.Revision = config, c.revision
	c.topics[id] = &t
	return c.failWith
}

func (c *fakeCluster) DynamicConfig(kind metadata.ConfigKind, name string) metadata.DynamicConfig {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d, ok := c.configs[string(kind)+"/"+name]; ok {
		return d
	}
	return metadata.DynamicConfig{Kind: kind, Name: name}
}

func (c *fakeCluster) DynamicConfigs(kind metadata.ConfigKind) []metadata.DynamicConfig {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []metadata.DynamicConfig
	for _, d := range c.configs {
		if d.Kind == kind {
			out = append(out, d)
		}
	}
	return out
}

func (c *fakeCluster) ConfigVersion() int64 { c.mu.Lock(); defer c.mu.Unlock(); return c.revision }

func (c *fakeCluster) AlterConfig(_ context.Context, d metadata.DynamicConfig) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := string(d.Kind) + "/" + d.Name
	if c.configs[key].Revision != d.Revision {
		return metadata.ErrFenced
	}
	c.revision++
	d.Revision = c.revision
	if c.configs == nil {
		c.configs = map[string]metadata.DynamicConfig{}
	}
	c.configs[key] = d
	if len(d.Config) == 0 {
		delete(c.configs, key)
	}
	return c.failWith
}

func (c *fakeCluster) TransferLeader(id metadata.ShardID, to metadata.BrokerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaders[id] = to
}

func (c *fakeCluster) AllocateProducerID(context.Context) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.producerID++
	return c.producerID, c.failWith
}

// fakeReplica applies each proposal at once, as one entry, to a real state.
type fakeReplica struct {
	mu       sync.Mutex
	set      *partition.Set
	index    uint64
	ticket   uint64
	lead     shard.Leadership
	payloads map[uint64][]byte
	cold     *fakeCold
	full     bool                   // Propose returns false
	lost     func() []shard.Outcome // if set, proposals are answered by it
	stalled  []*shard.Proposal
	stall    bool                        // proposals are kept unanswered
	behind   map[metadata.ReplicaID]bool // replicas that do not keep up
	discard  bool                        // payloads are not kept: for measurements
	scratch  []byte
}

func newFakeReplica(id uint32) *fakeReplica {
	r := &fakeReplica{
		set: partition.NewSet(partition.Options{Shard: id}), index: partition.BootstrapIndex,
		lead: shard.Leadership{Leader: 100, Term: fakeTerm, Ready: true}, payloads: map[uint64][]byte{},
	}
	r.index++
	r.set.SkipEntry(r.index, fakeTerm)
	r.set.SetHW(r.index, true)
	return r
}

func (r *fakeReplica) Leadership() shard.Leadership { r.mu.Lock(); defer r.mu.Unlock(); return r.lead }
func (r *fakeReplica) ReadIndex(done func(error)) {
	if r.Leadership().Ready {
		done(nil)
		return
	}
	done(shard.ErrNotLeader)
}
func (r *fakeReplica) State() *partition.Set { return r.set }

func (r *fakeReplica) Follows(id metadata.ReplicaID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lead.Ready && !r.behind[id]
}

type fakePayload []byte

func (p fakePayload) Bytes() []byte { return p }
func (p fakePayload) Release()      {}

func (r *fakeReplica) Payload(index, _ uint64) (shard.PayloadView, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.payloads[index]
	if !ok {
		return nil, shard.ErrPayload
	}
	return fakePayload(p), nil
}

func (r *fakeReplica) command(cmd any) shard.Outcome {
	var out shard.Outcome
	r.apply(&shard.Proposal{Commands: []any{cmd}, Acks: shard.AcksAll, Done: func(o []shard.Outcome) { out = o[0] }})
	return out
}

func (r *fakeReplica) Propose(p *shard.Proposal) bool {
	r.mu.Lock()
	full, lost, stall := r.full, r.lost, r.stall
	if stall {
		r.stalled = append(r.stalled, p)
	}
	r.mu.Unlock()
	switch {
	case full:
		return false
	case stall:
		return true
	case lost != nil:
		p.Copied()
		p.Done(lost())
		return true
	}
	r.apply(p)
	return true
}

func (r *fakeReplica) Intake(shard.Class) error {
	if r.Leadership().Ready {
		return shard.ErrBusy
	}
	return shard.ErrNotLeader
}

func (r *fakeReplica) apply(p *shard.Proposal) {
	r.mu.Lock()
	now := time.Now().UnixMilli()
	outcomes := make([]shard.Outcome, len(p.Commands))
	var waiters []int
	payload := r.scratch[:0]
	if !r.discard {
		payload = nil
	}
	for i, cmd := range p.Commands {
		var prep shard.Prepared
		r.ticket++
		payload, prep = r.set.Prepare(cmd, fakeTerm, r.ticket, now, payload)
		outcomes[i] = shard.Outcome{Result: prep.Result, Err: prep.Err}
		if prep.Err == nil && !prep.Final {
			waiters = append(waiters, i)
		}
	}
	if p.Copied != nil {
		p.Copied()
	}
	if len(payload) > 0 {
		r.index++
		err := r.set.Apply(shard.Applied{Index: r.index, Term: fakeTerm, Kind: shard.KindItems, TimeUnixMilli: now, Payload: payload}, func(item int, result any, err error) {
			outcomes[waiters[item]] = shard.Outcome{Result: result, Err: err}
		})
		if err != nil {
			panic(err)
		}
		if r.discard {
			r.scratch = payload
		} else {
			r.payloads[r.index] = payload
		}
		r.set.SetHW(r.index, true)
	}
	r.mu.Unlock()
	p.Done(outcomes)
}

// tier moves everything below the high watermark to the fake store.
func (r *fakeReplica) tier(t *testing.T, cold *fakeCold) {
	t.Helper()
	rng, ok := r.set.Seal(1 << 40)
	if !ok {
		return
	}
	for _, sp := range rng.Partitions {
		for _, ref := range sp.Batches {
			r.mu.Lock()
			b := slices.Clone(r.payloads[ref.Index][ref.Pos : ref.Pos+ref.Len])
			r.mu.Unlock()
			cold.add(r.set.Manifest().Shard, sp.Ref, b, ref)
		}
	}
	row := format.SegmentRow{Key: fmt.Sprintf("s/%d", rng.First), FirstIndex: rng.First, LastIndex: rng.Last, Size: rng.Bytes, FooterLen: 64, Batches: 1, Records: 1}
	if out := r.command(&partition.TierSegment{Row: row}); out.Err != nil {
		t.Fatalf("tiering commit: %v", out.Err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := rng.First; i <= rng.Last; i++ {
		delete(r.payloads, i)
	}
}

// fakeCold is a store that holds batches in memory.
type fakeCold struct {
	mu    sync.Mutex
	m     map[coldKey][]coldBatch
	gate  chan struct{} // if set, reads wait for it
	reads int
	err   error
}

type coldKey struct {
	shard uint32
	ref   format.PartitionRef
}

type coldBatch struct {
	b   batch.Batch
	ref partition.TailRef
}

func newFakeCold() *fakeCold { return &fakeCold{m: map[coldKey][]coldBatch{}} }

func (c *fakeCold) add(shard uint32, ref format.PartitionRef, b []byte, row partition.TailRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := coldKey{shard, ref}
	c.m[k] = append(c.m[k], coldBatch{b, row})
}

func (c *fakeCold) of(p index.Partition) []coldBatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m[coldKey{p.Manifest.Shard, p.Ref}]
}

func (c *fakeCold) Read(ctx context.Context, r index.ReadRequest) (*index.Data, error) {
	c.mu.Lock()
	gate, err := c.gate, c.err
	c.reads++
	c.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	d := &index.Data{}
	minOne := r.MinOne
	for _, cb := range c.of(r.Partition) {
		if cb.ref.Last < r.Offset {
			continue
		}
		if cb.ref.First >= r.UpTo || d.Bytes+len(cb.b) > r.MaxBytes && !minOne {
			break
		}
		minOne = false
		half := len(cb.b) / 2 // batches may lie across blocks
		d.Pieces = append(d.Pieces, cb.b[:half], cb.b[half:])
		d.Bytes += len(cb.b)
		d.NextOffset = cb.ref.Last + 1
	}
	return d, nil
}

func (c *fakeCold) each(p index.Partition, from int64, fn func(offset, ts int64, epoch int32) bool) {
	for _, cb := range c.of(p) {
		stop := false
		batch.Iterate(cb.b, func(rec batch.Record) bool {
			offset := cb.ref.First + int64(rec.OffsetDelta)
			if offset >= from && !fn(offset, rec.Timestamp, cb.ref.Epoch) {
				stop = true
			}
			return !stop
		})
		if stop {
			return
		}
	}
}

func (c *fakeCold) OffsetForTime(_ context.Context, p index.Partition, from, ts int64) (index.Found, bool, error) {
	var f index.Found
	ok := false
	c.each(p, from, func(offset, at int64, epoch int32) bool {
		if at >= ts {
			f, ok = index.Found{Offset: offset, Timestamp: at, Epoch: epoch}, true
		}
		return !ok
	})
	return f, ok, nil
}

func (c *fakeCold) MaxTimestamp(_ context.Context, p index.Partition, from int64) (index.Found, bool, error) {
	var f index.Found
	ok := false
	c.each(p, from, func(offset, at int64, epoch int32) bool {
		if !ok || at > f.Timestamp {
			f, ok = index.Found{Offset: offset, Timestamp: at, Epoch: epoch}, true
		}
		return true
	})
	return f, ok, nil
}

func (c *fakeCold) EpochEnd(_ context.Context, p index.Partition, epoch int32) (int32, int64, bool, error) {
	found, end, ok := int32(-1), int64(-1), false
	c.each(p, 0, func(offset, _ int64, e int32) bool {
		if e <= epoch {
			found, end, ok = e, offset+1, true
		}
		return true
	})
	return found, end, ok, nil
}

// testServer is a server on loopback over fakes.
type testServer struct {
	*Server
	t       testing.TB
	cluster *fakeCluster
	cold    *fakeCold
	addr    string
	logs    *logBuffer
}

// logBuffer collects log lines.
type logBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p...)
	return len(p), nil
}

func (l *logBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return string(l.b) }

func testConfig() Config {
	cfg := DefaultConfig()
	cfg.QueuedMaxBytes = 256 << 20
	cfg.MaxRequestBytes = 16 << 20
	cfg.AutoCreateTopics = true
	cfg.ShardReplicas = 1
	return cfg
}

func startServer(t testing.TB, cluster *fakeCluster, change func(*Config)) *testServer {
	t.Helper()
	cfg := testConfig()
	logs := &logBuffer{}
	cfg.Logger = slog.New(slog.NewTextHandler(logs, nil))
	if change != nil {
		change(&cfg)
	}
	cold := newFakeCold()
	s, err := NewServer(cfg, cluster, cluster, cold, cluster.coordinators)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cluster.brokers[0].KafkaPort = int32(l.Addr().(*net.TCPAddr).Port)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-served; !errors.Is(err, ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return &testServer{Server: s, t: t, cluster: cluster, cold: cold, addr: l.Addr().String(), logs: logs}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
		<-tick.C
	}
}

// closedByPeer waits for the peer to close a connection.
func closedByPeer(t testing.TB, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := io.Copy(io.Discard, c); err != nil && !isReset(err) {
		t.Fatalf("expected the connection to be closed, found %d bytes and %v", n, err)
	}
}

func isReset(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && !ne.Timeout()
}
