package broker

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"thermocline/metadata"
	metadatamemory "thermocline/metadata/memory"
	"thermocline/tiering/object"
	"thermocline/tiering/object/memory"
)

// silentStore is a metadata store that, once it is away, answers nothing: writes
// and releases of leases wait until their context ends. patience is how long the
// last release was ready to wait.
type silentStore struct {
	metadata.Store
	away     atomic.Bool
	patience time.Duration
}

func (s *silentStore) Commit(ctx context.Context, t metadata.Txn) (int64, error) {
	if s.away.Load() {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return s.Store.Commit(ctx, t)
}

func (s *silentStore) Lease(ctx context.Context, ttl time.Duration) (*metadata.Lease, error) {
	l, err := s.Store.Lease(ctx, ttl)
	if err != nil {
		return nil, err
	}
	silent := *l
	silent.Release = func(ctx context.Context) error {
		if s.away.Load() {
			if end, ok := ctx.Deadline(); ok {
				s.patience = time.Until(end)
			}
			<-ctx.Done()
			return ctx.Err()
		}
		return l.Release(ctx)
	}
	return &silent, nil
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A broker whose metadata store does not answer stops in good order: it waits a
// little for giving its lease back, and says that the lease runs out by itself.
func TestStopWithoutMetadataStore(t *testing.T) {
	store, objects := &silentStore{Store: metadatamemory.New()}, memory.New(memory.Options{})
	var log lockedBuffer
	b, err := Start(t.Context(), Options{
		Config: brokerConfig(t, 1, 1), Metadata: store, Uploads: object.NewCounted(objects), Cold: object.NewCounted(objects),
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	until(t, b.Ready)
	store.away.Store(true)
	if err := b.Close(); err != nil {
		t.Errorf("close: expected a stop in good order, found %v", err)
	}
	if store.patience <= 0 || store.patience > deregisterWithin {
		t.Errorf("giving the lease back was waited for up to %v, expected at most %v", store.patience, deregisterWithin)
	}
	if n := strings.Count(log.String(), "its lease runs out by itself"); n != 1 {
		t.Errorf("%d lines on the lease, expected one:\n%s", n, log.String())
	}
}
