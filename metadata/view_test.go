package metadata_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"thermocline/metadata"
	"thermocline/metadata/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// clock is a clock that stands until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

const grace = 6 * time.Second

func openView(ctx context.Context, t *testing.T, s metadata.Store, c *clock) *metadata.View {
	t.Helper()
	o := metadata.ViewOptions{ProbeEvery: 2 * time.Millisecond, LapseGrace: grace}
	if c != nil {
		o.Now = c.Now
	}
	v, err := metadata.OpenView(ctx, s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func waitFor(ctx context.Context, t *testing.T, v *metadata.View, what string, ok func() bool) {
	t.Helper()
	if err := v.WaitFor(ctx, ok); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func commit(ctx context.Context, t *testing.T, s metadata.Store, w ...metadata.Write) int64 {
	t.Helper()
	rev, err := s.Commit(ctx, metadata.Txn{Writes: w})
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func register(ctx context.Context, t *testing.T, s metadata.Store, b metadata.Broker) *metadata.Registration {
	t.Helper()
	r, err := metadata.Register(ctx, s, metadata.RegisterOptions{Broker: b, WaitPrevious: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil && !errors.Is(err, metadata.ErrUnavailable) {
			t.Error(err)
		}
	})
	return r
}

func topic(name string, id byte, shards ...metadata.ShardID) metadata.Topic {
	return metadata.Topic{Name: name, ID: metadata.TopicID{id}, Shards: shards, Created: time.UnixMilli(5), ReplicationFactor: 1}
}

// sameContent compares everything that two views answer.
func sameContent(t *testing.T, a, b *metadata.View) {
	t.Helper()
	loadA, totalA := a.Loads()
	loadB, totalB := b.Loads()
	pairs := map[string][2]any{
		"topics":  {a.Topics(), b.Topics()},
		"loads":   {loadA, loadB},
		"total":   {totalA, totalB},
		"deleted": {a.Deleted(), b.Deleted()},
		"brokers": {a.Cluster().Brokers, b.Cluster().Brokers},
		"shards":  {a.Cluster().Shards, b.Cluster().Shards},
		"info":    {a.Cluster().Info, b.Cluster().Info},
	}
	for what, p := range pairs {
		if !reflect.DeepEqual(p[0], p[1]) {
			t.Fatalf("%s differ: %+v and %+v", what, p[0], p[1])
		}
	}
	for _, tp := range a.Topics() {
		if b.Topic(tp.Name) == nil || b.TopicByID(tp.ID) == nil {
			t.Fatalf("topic %s is not found by name and id", tp.Name)
		}
	}
	for id := metadata.ShardID(1); id <= 3; id++ {
		hintA, okA := a.Cluster().Leader(id)
		hintB, okB := b.Cluster().Leader(id)
		ptrA, _ := a.SnapshotPointer(id)
		ptrB, _ := b.SnapshotPointer(id)
		if hintA != hintB || okA != okB || ptrA != ptrB {
			t.Fatalf("shard %d: %+v, %+v and %+v, %+v", id, hintA, ptrA, hintB, ptrB)
		}
	}
}

// A view that has followed every change, through compactions and outages of the
// store, shows what a view that is opened at the end shows.
func TestViewFollowsChurn(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	ctx := bounded(t)
	s := memory.New()
	if _, err := metadata.EnsureCluster(ctx, s, metadata.ClusterInfo{ID: "c", Created: time.UnixMilli(1)}); err != nil {
		t.Fatal(err)
	}
	v := openView(ctx, t, s, nil)
	for step := range 3000 {
		if err := churn(ctx, s, rnd, step); err != nil {
			t.Fatalf("seed %d step %d: %v", seed, step, err)
		}
	}
	waitFor(ctx, t, v, "the end", func() bool { return v.Revision() == s.Revision() })
	sameContent(t, v, openView(ctx, t, s, nil))
}

// churn makes one random change; that a topic is there already, or not, is fine.
func churn(ctx context.Context, s *memory.Store, rnd *rand.Rand, step int) error {
	name := fmt.Sprintf("t.%d", rnd.IntN(30))
	shard := metadata.ShardID(1 + rnd.IntN(3))
	var err error
	switch rnd.IntN(10) {
	case 0, 1, 2:
		tp := topic(name, byte(step), shard, shard)
		tp.ID[1] = byte(step >> 8)
		_, err = metadata.CreateTopic(ctx, s, tp)
	case 3:
		_, _, err = metadata.DeleteTopic(ctx, s, name, metadata.TopicID{})
	case 4:
		_, err = metadata.UpdateTopic(ctx, s, name, func(t *metadata.Topic) error {
			t.Config["k"] = fmt.Sprint(step)
			t.Shards = append(t.Shards, shard)
			return nil
		})
	case 5:
		err = metadata.WriteHint(ctx, s, metadata.LeaderHint{Shard: shard, Broker: 1, Term: uint64(step)})
	case 6:
		err = metadata.WriteSnapshotPointer(ctx, s, metadata.SnapshotPointer{Shard: shard, Object: "o", Index: uint64(step)})
	case 7:
		s.Compact()
	case 8:
		s.SetUnavailable(true)
		s.SetUnavailable(false)
	case 9:
		var l metadata.Listing
		if l, err = s.List(ctx, "deleted/"); err == nil && len(l.Rows) > 0 {
			var id metadata.TopicID
			_, err = fmt.Sscanf(strings.TrimPrefix(l.Rows[0].Key, "deleted/"), "%x", (*idText)(&id))
			if err == nil {
				err = metadata.ReleaseDeleted(ctx, s, id, shard)
			}
		}
	}
	if errors.Is(err, metadata.ErrExists) || errors.Is(err, metadata.ErrNotFound) {
		return nil
	}
	return err
}

// idText scans a topic id from hexadecimal.
type idText metadata.TopicID

func (id *idText) Scan(state fmt.ScanState, _ rune) error {
	for i := range id {
		var pair [2]rune
		for k := range pair {
			r, _, err := state.ReadRune()
			if err != nil {
				return err
			}
			pair[k] = r
		}
		if _, err := fmt.Sscanf(string(pair[:]), "%02x", &id[i]); err != nil {
			return err
		}
	}
	return nil
}

// While the store is away the view answers as before and says how old that is.
func TestViewSurvivesOutage(t *testing.T) {
	ctx := bounded(t)
	s := memory.New()
	c := &clock{now: time.Unix(1000, 0)}
	tp := topic("t", 1, 1)
	if _, err := metadata.CreateTopic(ctx, s, tp); err != nil {
		t.Fatal(err)
	}
	v := openView(ctx, t, s, c)
	if h := v.Health(); !h.Healthy || !h.LastContact.Equal(c.Now()) {
		t.Fatalf("health at the start: %+v", h)
	}
	s.SetUnavailable(true)
	waitFor(ctx, t, v, "outage seen", func() bool { return !v.Health().Healthy })
	c.Add(time.Hour)
	if h := v.Health(); c.Now().Sub(h.LastContact) != time.Hour {
		t.Fatalf("age during the outage: expected an hour, found %v", c.Now().Sub(h.LastContact))
	}
	if v.Topic("t") == nil {
		t.Fatal("topic lost during the outage")
	}
	s.SetUnavailable(false)
	waitFor(ctx, t, v, "recovery", func() bool { return v.Health().Healthy })
	if h := v.Health(); !h.Since.Equal(c.Now()) {
		t.Fatalf("healthy since: expected %v, found %v", c.Now(), h.Since)
	}
}

// Opening a view while the store is away waits for it.
func TestOpenViewWaits(t *testing.T) {
	ctx := bounded(t)
	s := memory.New()
	s.SetUnavailable(true)
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := metadata.OpenView(short, s, metadata.ViewOptions{}); err == nil {
		t.Fatal("expected an error when the context ends first")
	}
	opened := make(chan *metadata.View)
	go func() {
		v, err := metadata.OpenView(ctx, s, metadata.ViewOptions{})
		if err != nil {
			t.Error(err)
		}
		opened <- v
	}()
	s.SetUnavailable(false)
	if v := <-opened; v != nil {
		v.Close()
	}
}

// A lapsed lease counts only once the store has been healthy for the grace:
// during and right after an outage a broker keeps counting as alive.
func TestLapsedLeaseCountsOnlyWhileHealthy(t *testing.T) {
	ctx := bounded(t)
	s := memory.New()
	c := &clock{now: time.Unix(1000, 0)}
	// Rows without a registration behind them, so that nobody registers again.
	lapse := func(replica int) metadata.LeaseID {
		l, err := s.Lease(ctx, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		commit(ctx, t, s,
			metadata.Write{Key: "brokers/0000000001", Value: fmt.Appendf(nil, `{"v":1,"replica":"%d","epoch":1}`, replica)},
			metadata.Write{Key: "live/0000000001", Value: fmt.Appendf(nil, `{"v":1,"replica":"%d","epoch":1}`, replica), Lease: l.ID})
		return l.ID
	}
	lease := lapse(7)
	v := openView(ctx, t, s, c)
	alive := func() bool { return v.Cluster().Alive(1) }
	if !alive() {
		t.Fatal("registered: expected alive")
	}
	settle := func() {
		// In steps below the silence that would itself count as an outage.
		for range 4 {
			c.Add(grace / 3)
			at := c.Now()
			waitForProbe(ctx, t, v, at)
		}
	}
	settle()
	s.Expire(lease)
	waitFor(ctx, t, v, "lapse in healthy times", func() bool { return !alive() })
	if v.Cluster().Broker(1) == nil {
		t.Fatal("a lapsed broker's address is gone")
	}

	lease = lapse(7)
	waitFor(ctx, t, v, "alive again", alive)
	s.SetUnavailable(true)
	waitFor(ctx, t, v, "outage seen", func() bool { return !v.Health().Healthy })
	s.Expire(lease)
	s.SetUnavailable(false)
	rev := s.Revision()
	waitFor(ctx, t, v, "lapse heard", func() bool { return v.Health().Healthy && v.Revision() >= rev })
	if !alive() {
		t.Fatal("a lease that lapsed during an outage counted at once")
	}
	settle()
	waitFor(ctx, t, v, "lapse after the grace", func() bool { return !alive() })
}

// waitForProbe returns once the store has answered at or after a time.
func waitForProbe(ctx context.Context, t *testing.T, v *metadata.View, at time.Time) {
	t.Helper()
	for v.Health().LastContact.Before(at) {
		if ctx.Err() != nil {
			t.Fatal("no probe")
		}
		tick, cancel := context.WithTimeout(ctx, time.Millisecond)
		_ = v.WaitFor(tick, func() bool { return !v.Health().LastContact.Before(at) })
		cancel()
	}
}

// Rows of a newer version: an opening view refuses them by name, a running one
// keeps what it knew.
func TestNewerRows(t *testing.T) {
	ctx := bounded(t)
	s := memory.New()
	made, err := metadata.CreateTopic(ctx, s, topic("t", 1, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	v := openView(ctx, t, s, nil)
	rev := commit(ctx, t, s,
		metadata.Write{Key: "topics/t", Value: []byte{2}},
		metadata.Write{Key: "hints/0000000001", Value: []byte(`{"v":3}`)},
		metadata.Write{Key: "things/of/the/future", Value: []byte("?")})
	if err := v.Wait(ctx, rev); err != nil {
		t.Fatal(err)
	}
	if got := v.Topic("t"); got == nil || got.Revision != made.Revision {
		t.Fatalf("topic after a newer row: expected what was known, found %+v", got)
	}
	refused := v.Health().Refused
	if len(refused) != 2 || !errors.Is(refused[1], metadata.ErrNewerVersion) || !strings.Contains(refused[1].Error(), "topics/t") {
		t.Fatalf("refused rows: expected hint and topic, found %v", refused)
	}
	if _, err := metadata.OpenView(ctx, s, metadata.ViewOptions{}); !errors.Is(err, metadata.ErrNewerVersion) {
		t.Fatalf("opening a view on newer rows: expected ErrNewerVersion, found %v", err)
	}
	rev = commit(ctx, t, s, metadata.Write{Key: "topics/t", Delete: true}, metadata.Write{Key: "hints/0000000001", Delete: true})
	if err := v.Wait(ctx, rev); err != nil {
		t.Fatal(err)
	}
	if got := v.Health().Refused; len(got) != 0 || v.Topic("t") != nil {
		t.Fatalf("after the rows are gone: refused %v, topic %v", got, v.Topic("t"))
	}
}

// A subscriber hears of everything, each topic once, and of "all" when there
// are too many to name.
func TestSubscription(t *testing.T) {
	ctx := bounded(t)
	s := memory.New()
	v := openView(ctx, t, s, nil)
	sub := v.Subscribe()
	defer sub.Close()
	<-sub.C
	if d := sub.Take(); !d.All || !d.Cluster || !d.Deleted {
		t.Fatalf("first take: expected everything, found %+v", d)
	}
	made, err := metadata.CreateTopic(ctx, s, topic("t", 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	changed, err := metadata.UpdateTopic(ctx, s, "t", func(t *metadata.Topic) error { t.Config["a"] = "b"; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Wait(ctx, changed.Revision); err != nil {
		t.Fatal(err)
	}
	<-sub.C
	if d := sub.Take(); d.All || d.Cluster || d.Deleted || len(d.Topics) != 1 || d.Topics[0] != made.ID {
		t.Fatalf("one topic twice: expected it once, found %+v", d)
	}
	_, rev, err := metadata.DeleteTopic(ctx, s, "t", made.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Wait(ctx, rev); err != nil {
		t.Fatal(err)
	}
	<-sub.C
	if d := sub.Take(); d.All || !d.Deleted || len(d.Topics) != 1 {
		t.Fatalf("deletion: found %+v", d)
	}
	if err := metadata.WriteHint(ctx, s, metadata.LeaderHint{Shard: 1, Broker: 1, Term: 1}); err != nil {
		t.Fatal(err)
	}
	<-sub.C
	if d := sub.Take(); d.All || !d.Cluster || len(d.Topics) != 0 {
		t.Fatalf("hint: found %+v", d)
	}
	for i := range 5000 {
		tp := topic(fmt.Sprintf("many-%d", i), byte(i), 1)
		tp.ID[1], tp.ID[2] = byte(i>>8), 1
		if made, err = metadata.CreateTopic(ctx, s, tp); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Wait(ctx, made.Revision); err != nil {
		t.Fatal(err)
	}
	<-sub.C
	if d := sub.Take(); !d.All || len(d.Topics) != 0 {
		t.Fatalf("5000 topics: expected All, found %d named", len(d.Topics))
	}
}

// What a view handed out does not change under the reader.
func TestViewsAreImmutable(t *testing.T) {
	ctx := bounded(t)
	s := memory.New()
	register(ctx, t, s, metadata.Broker{ID: 1, Replica: 1})
	if _, err := metadata.CreateTopic(ctx, s, topic("a", 1, 1)); err != nil {
		t.Fatal(err)
	}
	v := openView(ctx, t, s, nil)
	cl, all, one := v.Cluster(), v.Topics(), v.Topic("a")
	register(ctx, t, s, metadata.Broker{ID: 2, Replica: 2})
	if _, err := metadata.CreateTopic(ctx, s, topic("b", 2, 1)); err != nil {
		t.Fatal(err)
	}
	changed, err := metadata.UpdateTopic(ctx, s, "a", func(t *metadata.Topic) error {
		t.Config["x"], t.Shards[0] = "y", 2
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Wait(ctx, changed.Revision); err != nil {
		t.Fatal(err)
	}
	if len(cl.Brokers) != 1 || len(all) != 1 || one.Shards[0] != 1 || len(one.Config) != 0 {
		t.Fatalf("old content changed: %d brokers, %d topics, %+v", len(cl.Brokers), len(all), one)
	}
	if now := v.Topics(); len(v.Cluster().Brokers) != 2 || len(now) != 2 || now[0].Shards[0] != 2 || now[1].Name != "b" {
		t.Fatalf("new content: %d brokers, topics %+v", len(v.Cluster().Brokers), now)
	}
}

// Ten thousand topics come one by one in time that does not grow with their number.
func BenchmarkViewCreate(b *testing.B) {
	ctx := context.Background()
	s := memory.New()
	v, err := metadata.OpenView(ctx, s, metadata.ViewOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	for i := 0; b.Loop(); i++ {
		tp := topic(fmt.Sprintf("t%d", i), byte(i), 1, 2, 3, 4, 5, 6)
		tp.ID[1], tp.ID[2] = byte(i>>8), byte(i>>16)
		made, err := metadata.CreateTopic(ctx, s, tp)
		if err != nil {
			b.Fatal(err)
		}
		if err := v.Wait(ctx, made.Revision); err != nil {
			b.Fatal(err)
		}
	}
}
