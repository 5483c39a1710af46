package metadata_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"thermocline/metadata"
	"thermocline/metadata/memory"
)

// Of many brokers that start at once, one names the cluster.
func TestClusterIsNamedOnce(t *testing.T) {
	ctx := bounded(t)
	s := memory.New()
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			info, err := metadata.EnsureCluster(ctx, s, metadata.ClusterInfo{ID: string(rune('a' + i)), Created: time.Now()})
			if err != nil {
				t.Error(err)
			}
			ids[i] = info.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("expected one id, found %v", ids)
		}
	}
}

// Each registration has a higher epoch, also after a lapse, and takes its row
// along when it is closed.
func TestRegistrationLife(t *testing.T) {
	ctx := bounded(t)
	s := memory.New()
	v := openView(ctx, t, s, nil)
	r := register(ctx, t, s, metadata.Broker{ID: 1, Replica: 7, Rack: "r", KafkaHost: "h", KafkaPort: 1, PeerAddr: "p:2", Version: "x"})
	waitFor(ctx, t, v, "registration", func() bool { return v.Cluster().Alive(1) })
	if b := *v.Cluster().Broker(1); b.Epoch != 1 || b.Rack != "r" || b.PeerAddr != "p:2" || b.Replica != 7 {
		t.Fatalf("registered: found %+v", b)
	}
	first := r.Lease()
	s.Expire(first)
	waitFor(ctx, t, v, "second registration", func() bool {
		b := v.Cluster().Broker(1)
		return b.Epoch == 2 && b.Alive && r.Lease() != first
	})
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
	<-r.Done()
	if err := r.Err(); err != nil {
		t.Fatalf("reason after Close: expected none, found %v", err)
	}
	if _, err := s.Get(ctx, "live/0000000001"); !errors.Is(err, metadata.ErrNotFound) {
		t.Fatalf("row after Close: expected none, found %v", err)
	}
	if n := len(s.Leases()); n != 0 {
		t.Fatalf("leases after Close: expected none, found %d", n)
	}
	if again := register(ctx, t, s, metadata.Broker{ID: 1, Replica: 7}); again.Broker().Epoch != 3 {
		t.Fatalf("third registration: expected epoch 3, found %+v", again.Broker())
	}
}

// A node id belongs to one data directory while that one is alive; the same
// directory may come again at once.
func TestNodeIDIsTaken(t *testing.T) {
	ctx := bounded(t)
	s := memory.New()
	r := register(ctx, t, s, metadata.Broker{ID: 1, Replica: 7})
	other := metadata.RegisterOptions{Broker: metadata.Broker{ID: 1, Replica: 8}, WaitPrevious: time.Nanosecond}
	if _, err := metadata.Register(ctx, s, other); !errors.Is(err, metadata.ErrExists) {
		t.Fatalf("another data directory: expected ErrExists, found %v", err)
	}
	if n := len(s.Leases()); n != 1 {
		t.Fatalf("leases: expected the one in use, found %d", n)
	}
	same := register(ctx, t, s, metadata.Broker{ID: 1, Replica: 7})
	if same.Broker().Epoch != 2 {
		t.Fatalf("same data directory: expected epoch 2, found %+v", same.Broker())
	}
	// With patience, the other one gets it once both have gone.
	taken := make(chan *metadata.Registration)
	go func() {
		other.WaitPrevious = time.Minute
		got, err := metadata.Register(ctx, s, other)
		if err != nil {
			t.Errorf("after the previous one has gone: %v", err)
		}
		taken <- got
	}()
	if err := errors.Join(r.Close(ctx), same.Close(ctx)); err != nil {
		t.Fatal(err)
	}
	got := <-taken
	if got == nil {
		return // reported
	}
	if b := got.Broker(); b.Replica != 8 || b.Epoch != 3 {
		t.Errorf("successor: expected replica 8 at epoch 3, found %+v", b)
	}
	if err := got.Close(ctx); err != nil {
		t.Error(err)
	}
}

// A registration that finds its node id taken by another data directory ends
// and says why.
func TestRegistrationIsTakenOver(t *testing.T) {
	ctx := bounded(t)
	s := memory.New()
	r := register(ctx, t, s, metadata.Broker{ID: 1, Replica: 7})
	// In one transaction the row changes hands, as if the other had been faster.
	usurper, err := s.Lease(ctx, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	commit(ctx, t, s, metadata.Write{Key: "live/0000000001", Value: []byte(`{"v":1,"replica":"8","epoch":2}`), Lease: usurper.ID})
	s.Expire(r.Lease())
	select {
	case <-r.Done():
	case <-ctx.Done():
		t.Fatal("the registration goes on")
	}
	if err := r.Err(); !errors.Is(err, metadata.ErrExists) {
		t.Fatalf("reason: expected ErrExists, found %v", err)
	}
}

// Lost answers and outages while registering end in one live registration.
func TestRegisterThroughFaults(t *testing.T) {
	ctx := bounded(t)
	s := memory.New()
	s.LoseAnswers(1)
	r := register(ctx, t, s, metadata.Broker{ID: 1, Replica: 7})
	if b := r.Broker(); b.Epoch != 2 {
		t.Fatalf("epoch after a lost answer: expected 2, found %d", b.Epoch)
	}
	if n := len(s.Leases()); n != 1 {
		t.Fatalf("leases: expected one, found %d", n)
	}
	s.SetUnavailable(true)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err := metadata.Register(short, s, metadata.RegisterOptions{Broker: metadata.Broker{ID: 2, Replica: 8}})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, metadata.ErrUnavailable) {
		t.Fatalf("register while the store is away: expected deadline and ErrUnavailable, found %v", err)
	}
	s.SetUnavailable(false)
}

func TestRegisterChecksInput(t *testing.T) {
	ctx := bounded(t)
	for _, b := range []metadata.Broker{{ID: -1, Replica: 1}, {ID: 1}, {ID: 1, Replica: 1, Rack: "\xff"}} {
		if _, err := metadata.Register(ctx, memory.New(), metadata.RegisterOptions{Broker: b}); err == nil {
			t.Fatalf("%+v: expected an error", b)
		}
	}
}

// Hints and snapshot pointers only go forward.
func TestHintsAndPointersGoForward(t *testing.T) {
	ctx := bounded(t)
	s := memory.New()
	hint := func(b metadata.BrokerID, term uint64) error {
		return metadata.WriteHint(ctx, s, metadata.LeaderHint{Shard: 1, Broker: b, Term: term})
	}
	pointer := func(index, term uint64) error {
		return metadata.WriteSnapshotPointer(ctx, s, metadata.SnapshotPointer{Shard: 1, Object: "o", Index: index, Term: term})
	}
	steps := []struct {
		name string
		do   func() error
		want error
	}{
		{"first hint", func() error { return hint(1, 5) }, nil},
		{"same hint", func() error { return hint(1, 5) }, nil},
		{"same term, another broker", func() error { return hint(2, 5) }, metadata.ErrFenced},
		{"older term", func() error { return hint(2, 4) }, metadata.ErrFenced},
		{"newer term", func() error { return hint(2, 6) }, nil},
		{"first pointer", func() error { return pointer(10, 1) }, nil},
		{"older pointer", func() error { return pointer(9, 1) }, metadata.ErrFenced},
		{"newer pointer", func() error { return pointer(11, 1) }, nil},
	}
	for _, st := range steps {
		before := s.Revision()
		if err := st.do(); !errors.Is(err, st.want) {
			t.Fatalf("%s: expected %v, found %v", st.name, st.want, err)
		}
		if st.name == "same hint" && s.Revision() != before {
			t.Fatal("the same hint was written again")
		}
	}
}
