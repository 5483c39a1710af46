package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"thermocline/metadata"
	"thermocline/metadata/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a broker's metadata side: registration, view, candidate.
type node struct {
	reg  *metadata.Registration
	view *metadata.View
	ctl  *Controller
	stop func()
}

func context20(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func openView(ctx context.Context, t *testing.T, s metadata.Store) *metadata.View {
	t.Helper()
	v, err := metadata.OpenView(ctx, s, metadata.ViewOptions{ProbeEvery: 5 * time.Millisecond, LapseGrace: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func newNode(ctx context.Context, t *testing.T, s metadata.Store, id int, transfer func(context.Context, Move) error) *node {
	t.Helper()
	n := &node{view: openView(ctx, t, s)}
	var err error
	n.reg, err = metadata.Register(ctx, s, metadata.RegisterOptions{
		Broker: metadata.Broker{ID: metadata.BrokerID(id), Replica: metadata.ReplicaID(100 + id)},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.ctl, err = New(Config{
		Store: s, View: n.view, Registration: n.reg, InitialBrokers: 3, Transfer: transfer, Tick: 5 * time.Millisecond,
		Now: func() time.Time { return time.Now().Add(time.Duration(n.view.Revision()) * time.Hour) }, // each write ages everything
	})
	if err != nil {
		t.Fatal(err)
	}
	run, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { n.ctl.Run(run) })
	n.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		if err := n.reg.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(n.stop)
	return n
}

func waitFor(ctx context.Context, t *testing.T, v *metadata.View, what string, ok func(*metadata.Cluster) bool) {
	t.Helper()
	if err := v.WaitFor(ctx, func() bool { return ok(v.Cluster()) }); err != nil {
		t.Fatalf("%s: %v; cluster %+v", what, err, v.Cluster())
	}
}

// Three brokers: one is elected, the shards are made once the third has come,
// leaders are asked to go home, and the next one takes over.
func TestOffice(t *testing.T) {
	ctx := context20(t)
	s := memory.New()
	moves := make(chan Move, 64)
	transfer := func(_ context.Context, m Move) error { moves <- m; return nil }
	nodes := []*node{newNode(ctx, t, s, 1, transfer), newNode(ctx, t, s, 2, transfer)}
	v := nodes[0].view
	waitFor(ctx, t, v, "election", func(c *metadata.Cluster) bool { return c.Controller != metadata.NoBroker && len(c.Brokers) == 2 })
	if n := len(v.Cluster().Shards); n != 0 {
		t.Fatalf("shards before all brokers have come: expected none, found %d", n)
	}
	nodes = append(nodes, newNode(ctx, t, s, 3, transfer))
	waitFor(ctx, t, v, "first shards", func(c *metadata.Cluster) bool { return len(c.Shards) == 6 })
	waitFor(ctx, t, v, "coordinator slots", func(c *metadata.Cluster) bool { return len(c.Coordinators) == metadata.CoordinatorSlots })
	slots := map[metadata.ShardID]int{}
	for _, id := range v.CoordinatorSlots() {
		slots[id]++
	}
	for _, sh := range v.Cluster().Shards {
		if slots[sh.ID] != 8 {
			t.Fatalf("shard %d: expected 8 coordinator slots of 48, found %d", sh.ID, slots[sh.ID])
		}
		if len(sh.Replicas) != 3 {
			t.Fatalf("shard %d: expected three replicas, found %v", sh.ID, sh.Replicas)
		}
	}
	if err := metadata.WriteHint(ctx, s, hint(1, 2)); err != nil {
		t.Fatal(err)
	}
	awaitMove(ctx, t, s, moves)
	if on := v.Cluster().Replicas(102); len(on) != 6 {
		t.Fatalf("shards on broker 2's data directory: expected 6, found %d", len(on))
	}
	first := v.Cluster().Controller
	if !nodes[first-1].ctl.Leading() || nodes[first%3].ctl.Leading() {
		t.Fatalf("broker %d is controller in the view, but not by its own word", first)
	}
	nodes[first-1].stop()
	other := nodes[first%3].view
	waitFor(ctx, t, other, "succession", func(c *metadata.Cluster) bool {
		return c.Controller != metadata.NoBroker && c.Controller != first
	})
	if n := len(other.Cluster().Shards); n != 6 {
		t.Fatalf("shards after the succession: expected the same 6, found %d", n)
	}
}

// awaitMove expects shard 1 to be sent home. Until then it writes hints of a
// shard that is at home, since each write ages the controllers' clocks.
func awaitMove(ctx context.Context, t *testing.T, s metadata.Store, moves <-chan Move) {
	t.Helper()
	next := time.NewTicker(5 * time.Millisecond)
	defer next.Stop()
	for term := uint64(2); ; term++ {
		select {
		case m := <-moves:
			if (m != Move{1, 2, 1}) {
				t.Fatalf("move: expected shard 1 from 2 to 1, found %+v", m)
			}
			return
		case <-next.C:
			if err := metadata.WriteHint(ctx, s, metadata.LeaderHint{Shard: 2, Broker: 2, Term: term}); err != nil {
				t.Fatal(err)
			}
		case <-ctx.Done():
			t.Fatal("no leader was sent home")
		}
	}
}

// A controller whose lease has lapsed is fenced, whatever it still believes.
func TestDeposedControllerIsFenced(t *testing.T) {
	ctx := context20(t)
	s := memory.New()
	lease, err := s.Lease(ctx, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	fence, err := metadata.Campaign(ctx, s, 1, lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := metadata.Campaign(ctx, s, 2, lease.ID); !errors.Is(err, metadata.ErrFenced) {
		t.Fatalf("second election: expected ErrFenced, found %v", err)
	}
	s.Expire(lease.ID)
	shards := []metadata.Shard{{ID: 1, Home: 1, Replicas: []metadata.Replica{{ID: 1, Broker: 1}}}}
	if _, err := metadata.CreateShards(ctx, s, fence, shards); !errors.Is(err, metadata.ErrFenced) {
		t.Fatalf("write after the lease: expected ErrFenced, found %v", err)
	}
	if err := metadata.Resign(ctx, s, fence); err != nil {
		t.Fatalf("resigning from a lost office: %v", err)
	}
}

// An election whose answer was lost still counts, and a lapsed lease leads to a
// new registration and a new election.
func TestElectionSurvivesFaults(t *testing.T) {
	ctx := context20(t)
	s := memory.New()
	n := newNode(ctx, t, s, 1, nil)
	waitFor(ctx, t, n.view, "election", func(c *metadata.Cluster) bool { return c.Controller == 1 })
	before := n.view.Cluster().Fence
	s.LoseAnswers(2) // of the registration, then of the election
	s.Expire(n.reg.Lease())
	waitFor(ctx, t, n.view, "second election", func(c *metadata.Cluster) bool {
		return c.Controller == 1 && c.Fence.Revision > before.Revision && c.Office == n.reg.Lease() && c.Alive(1)
	})
	if epoch := n.reg.Broker().Epoch; epoch < 2 {
		t.Fatalf("epoch after a lapsed lease: expected it to rise, found %d", epoch)
	}
	newNode(ctx, t, s, 2, nil)
	newNode(ctx, t, s, 3, nil)
	waitFor(ctx, t, n.view, "shards", func(c *metadata.Cluster) bool { return len(c.Shards) == 6 })
}

func TestConfigIsChecked(t *testing.T) {
	ctx := context20(t)
	s := memory.New()
	n := newNode(ctx, t, s, 1, nil)
	good := Config{Store: s, View: n.view, Registration: n.reg, InitialBrokers: 3}
	bad := map[string]func(*Config){
		"no store":           func(c *Config) { c.Store = nil },
		"no brokers":         func(c *Config) { c.InitialBrokers = 0 },
		"too many replicas":  func(c *Config) { c.ShardReplicas = 4 },
		"too many shards":    func(c *Config) { c.ShardsPerBroker = 43 },
		"negative per shard": func(c *Config) { c.ShardsPerBroker = -1 },
	}
	for name, spoil := range bad {
		c := good
		spoil(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: expected an error", name)
		}
	}
}

// topics is a cluster of three with its shards made, and Topics on it.
func topics(ctx context.Context, t *testing.T, edit func(*TopicsConfig)) (*memory.Store, *metadata.View, *Topics) {
	t.Helper()
	s := memory.New()
	v := openView(ctx, t, s)
	lease, err := s.Lease(ctx, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	fence, err := metadata.Campaign(ctx, s, 1, lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	shards, err := InitialShards(brokers(3), 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	rev, err := metadata.CreateShards(ctx, s, fence, shards)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Wait(ctx, rev); err != nil {
		t.Fatal(err)
	}
	id := byte(0)
	c := TopicsConfig{
		Store: s, View: v, ShardReplicas: 3, DefaultPartitions: 2, TopicPartitionsMax: 100, ClusterPartitionsMax: 150,
		NewID: func() (metadata.TopicID, error) { id++; return metadata.TopicID{0, 0, 0, 0, id}, nil },
	}
	if edit != nil {
		edit(&c)
	}
	ts, err := NewTopics(c)
	if err != nil {
		t.Fatal(err)
	}
	return s, v, ts
}

func TestTopicLife(t *testing.T) {
	ctx := context20(t)
	s, v, ts := topics(ctx, t, nil)
	made, err := ts.Create(ctx, Spec{Name: "orders", Partitions: 4, ReplicationFactor: 2, Config: map[string]string{"retention.ms": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	seen := v.Topic("orders")
	if seen == nil || seen.ID != made.ID || len(seen.Shards) != 4 || seen.ReplicationFactor != 2 || seen.Config["retention.ms"] != "1" {
		t.Fatalf("view after create: expected %+v, found %+v", made, seen)
	}
	_, err = ts.Create(ctx, Spec{Name: "orders", Partitions: -1, ReplicationFactor: -1})
	if !errors.Is(err, metadata.ErrExists) {
		t.Fatalf("create twice: expected ErrExists, found %v", err)
	}
	if _, err := ts.AlterConfig(ctx, "orders", func(c map[string]string) error { delete(c, "retention.ms"); c["x"] = "y"; return nil }); err != nil {
		t.Fatal(err)
	}
	if got := v.Topic("orders").Config; len(got) != 1 || got["x"] != "y" {
		t.Fatalf("config: expected only x, found %v", got)
	}
	if plan, err := ts.AddPartitions(ctx, "orders", 6, nil, true); err != nil || len(plan.Shards) != 6 || len(v.Topic("orders").Shards) != 4 {
		t.Fatalf("validation only: found %+v, %v", plan, err)
	}
	if _, err := ts.AddPartitions(ctx, "orders", 6, nil, false); err != nil {
		t.Fatal(err)
	}
	grown := v.Topic("orders")
	if len(grown.Shards) != 6 || !slices.Equal(grown.Shards[:4], made.Shards) || grown.Config["x"] != "y" {
		t.Fatalf("grown: expected two more partitions and the rest as it was, found %+v", grown)
	}
	if err := ts.Delete(ctx, "orders", metadata.TopicID{9}); !errors.Is(err, metadata.ErrNotFound) {
		t.Fatalf("delete with another id: expected ErrNotFound, found %v", err)
	}
	if err := ts.Delete(ctx, "orders", made.ID); err != nil {
		t.Fatal(err)
	}
	if v.Topic("orders") != nil || v.TopicByID(made.ID) != nil {
		t.Fatal("topic after delete: still in the view")
	}
	if _, total := v.Loads(); total != 0 {
		t.Fatalf("loads after delete: expected none, found %d", total)
	}
	// Its shards let go of it one after the other.
	for left := 6; left > 0; left-- {
		d := v.Deleted()
		if len(d) != 1 || d[0].ID != made.ID || len(d[0].Shards) != left {
			t.Fatalf("deleted topics: expected %d shards to go, found %+v", left, d)
		}
		if err := metadata.ReleaseDeleted(ctx, s, made.ID, d[0].Shards[0]); err != nil {
			t.Fatal(err)
		}
		if err := v.Wait(ctx, s.Revision()); err != nil {
			t.Fatal(err)
		}
	}
	if d := v.Deleted(); len(d) != 0 {
		t.Fatalf("deleted topics: expected none, found %+v", d)
	}
	if err := metadata.ReleaseDeleted(ctx, s, made.ID, 1); err != nil {
		t.Fatalf("release of what is gone: %v", err)
	}
}

func TestTopicRules(t *testing.T) {
	ctx := context20(t)
	_, _, ts := topics(ctx, t, nil)
	if _, err := ts.Create(ctx, Spec{Name: "a.b_c", Partitions: 90, ReplicationFactor: -1}); err != nil {
		t.Fatal(err)
	}
	ok := func(s Spec) Spec {
		if s.Name == "" {
			s.Name = "t"
		}
		if s.Partitions == 0 {
			s.Partitions = 1
		}
		if s.ReplicationFactor == 0 {
			s.ReplicationFactor = -1
		}
		return s
	}
	tests := []struct {
		name string
		spec Spec
		want error
	}{
		{"plain", ok(Spec{}), nil},
		{"defaults", ok(Spec{Partitions: -1}), nil},
		{"longest name", ok(Spec{Name: strings.Repeat("n", 249)}), nil},
		{"as many replicas as shards have", ok(Spec{ReplicationFactor: 3}), nil},
		{"assignment", ok(Spec{Partitions: -1, Leaders: []metadata.BrokerID{3, 3}}), nil},
		{"name too long", ok(Spec{Name: strings.Repeat("n", 250)}), metadata.ErrInvalidTopic},
		{"dot", ok(Spec{Name: "."}), metadata.ErrInvalidTopic},
		{"dots", ok(Spec{Name: ".."}), metadata.ErrInvalidTopic},
		{"slash", ok(Spec{Name: "a/b"}), metadata.ErrInvalidTopic},
		{"umlaut", ok(Spec{Name: "grün"}), metadata.ErrInvalidTopic},
		{"reserved", ok(Spec{Name: "__consumer_offsets"}), metadata.ErrInvalidTopic},
		{"reserved too", ok(Spec{Name: "__transaction_state"}), metadata.ErrInvalidTopic},
		{"collision", ok(Spec{Name: "a_b.c"}), metadata.ErrInvalidTopic},
		{"exists", ok(Spec{Name: "a.b_c"}), metadata.ErrExists},
		{"no partitions", ok(Spec{Partitions: -2}), ErrPartitions},
		{"too many partitions", ok(Spec{Partitions: 101}), ErrPartitions},
		{"cluster is full", ok(Spec{Partitions: 61}), ErrLimit},
		{"too many replicas", ok(Spec{ReplicationFactor: 4}), ErrReplicationFactor},
		{"negative replicas", ok(Spec{ReplicationFactor: -2}), ErrReplicationFactor},
		{"assignment to nobody", ok(Spec{Leaders: []metadata.BrokerID{7}}), ErrAssignment},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := ts.Plan(tt.spec); !errors.Is(err, tt.want) {
				t.Fatalf("expected %v, found %v", tt.want, err)
			}
		})
	}
	if plan, err := ts.Plan(ok(Spec{Name: "empty name is checked too"})); err == nil {
		t.Fatalf("spaces: expected an error, found %+v", plan)
	}
	for _, total := range []int{90, 89, 0, 101} {
		if _, err := ts.AddPartitions(ctx, "a.b_c", total, nil, false); !errors.Is(err, ErrPartitions) {
			t.Fatalf("grow to %d: expected ErrPartitions, found %v", total, err)
		}
	}
	if _, err := ts.AddPartitions(ctx, "nowhere", 5, nil, false); !errors.Is(err, metadata.ErrNotFound) {
		t.Fatalf("grow what is not there: expected ErrNotFound, found %v", err)
	}
}

// Two brokers create names that collide, at the same time: the guard decides,
// not the views.
func TestCollidingCreatesRace(t *testing.T) {
	ctx := context20(t)
	s, v, ts := topics(ctx, t, nil)
	for round := range 20 {
		names := []string{fmt.Sprintf("r.%d_x", round), fmt.Sprintf("r_%d.x", round)}
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for i, name := range names {
			wg.Go(func() {
				_, errs[i] = metadata.CreateTopic(ctx, s, metadata.Topic{Name: name, ID: metadata.TopicID{byte(round), byte(i)}, Shards: []metadata.ShardID{1}})
			})
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("round %d: expected one winner, found %v", round, errs)
		}
		if lost := errors.Join(errs...); !errors.Is(lost, metadata.ErrInvalidTopic) {
			t.Fatalf("round %d: loser: expected ErrInvalidTopic, found %v", round, lost)
		}
	}
	if err := v.Wait(ctx, s.Revision()); err != nil {
		t.Fatal(err)
	}
	if _, err := ts.Plan(Spec{Name: "r.0.x", Partitions: 1, ReplicationFactor: 1}); !errors.Is(err, metadata.ErrInvalidTopic) {
		t.Fatalf("collision seen in the view: found %v", err)
	}
}

// A create whose answer was lost succeeds when the same call is made again.
func TestCreateAgainAfterALostAnswer(t *testing.T) {
	ctx := context20(t)
	s, _, _ := topics(ctx, t, nil)
	topic := metadata.Topic{Name: "t", ID: metadata.TopicID{5}, Shards: []metadata.ShardID{1, 2}}
	s.LoseAnswers(1)
	if _, err := metadata.CreateTopic(ctx, s, topic); !errors.Is(err, metadata.ErrUnavailable) {
		t.Fatalf("expected ErrUnavailable, found %v", err)
	}
	again, err := metadata.CreateTopic(ctx, s, topic)
	if err != nil || again.Revision == 0 {
		t.Fatalf("the same create again: found %+v, %v", again, err)
	}
	topic.ID = metadata.TopicID{6}
	if _, err := metadata.CreateTopic(ctx, s, topic); !errors.Is(err, metadata.ErrExists) {
		t.Fatalf("another topic of that name: expected ErrExists, found %v", err)
	}
}

func TestNoShardsYet(t *testing.T) {
	ctx := context20(t)
	s := memory.New()
	ts, err := NewTopics(TopicsConfig{Store: s, View: openView(ctx, t, s), ShardReplicas: 1,
		NewID: func() (metadata.TopicID, error) { return metadata.TopicID{1}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ts.Create(ctx, Spec{Name: "t", Partitions: 1, ReplicationFactor: 1}); !errors.Is(err, ErrNoShards) {
		t.Fatalf("expected ErrNoShards, found %v", err)
	}
}
