package memory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"thermocline/metadata"
	"thermocline/metadata/memory"
	"thermocline/metadata/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		s := memory.New()
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return storetest.Harness{Store: s, Expire: s.Expire, Compact: s.Compact, Outage: s.SetUnavailable}
	})
}

// A lost answer is a commit that happened and says that the store was away.
func TestLoseAnswers(t *testing.T) {
	ctx := context.Background()
	s := memory.New()
	s.LoseAnswers(1)
	put := metadata.Txn{Guards: []metadata.Guard{{Key: "k"}}, Writes: []metadata.Write{{Key: "k"}}}
	if _, err := s.Commit(ctx, put); !errors.Is(err, metadata.ErrUnavailable) {
		t.Fatalf("expected ErrUnavailable, found %v", err)
	}
	if _, err := s.Commit(ctx, put); !errors.Is(err, metadata.ErrFenced) {
		t.Fatalf("the first commit should have happened: found %v", err)
	}
}

// A lease that lapses while the store is away is heard of afterwards.
func TestLeaseLapsesDuringOutage(t *testing.T) {
	s := memory.New()
	l, err := s.Lease(context.Background(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	s.SetUnavailable(true)
	s.Expire(l.ID)
	select {
	case <-l.Lost:
		t.Fatal("told of the lapse while the store was away")
	default:
	}
	s.SetUnavailable(false)
	<-l.Lost
	if left := s.Leases(); len(left) != 0 {
		t.Fatalf("leases: expected none, found %v", left)
	}
}

// The history that watches resume from is bounded.
func TestHistoryIsBounded(t *testing.T) {
	ctx := context.Background()
	s := memory.New()
	for range 1<<16 + 1 {
		if _, err := s.Commit(ctx, metadata.Txn{Writes: []metadata.Write{{Key: "k"}}}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := <-s.Watch(ctx, "", 1)
	if !errors.Is(c.Err, metadata.ErrCompacted) {
		t.Fatalf("watch from the beginning: expected ErrCompacted, found %v", c.Err)
	}
}
