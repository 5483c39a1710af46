package metadata

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// DefaultLeaseTTL is how long a broker may be silent before it counts as
	// gone: well above a pause of the machine, well below what an operator
	// waits for. Failover of shards does not depend on it.
	DefaultLeaseTTL = 6 * time.Second
	// registerRetry is the pause between attempts while the store is away or
	// the node id is still taken.
	registerRetry = 200 * time.Millisecond
)

// RegisterOptions says what to register and for how long.
type RegisterOptions struct {
	// Broker is registered as it is, but for Epoch and Alive.
	Broker Broker
	// TTL of the lease; 0 is DefaultLeaseTTL.
	TTL time.Duration
	// WaitPrevious bounds how long Register waits for the lease of another
	// data directory with the same node id to lapse; 0 is twice the TTL.
	WaitPrevious time.Duration
	Logger       *slog.Logger
}

// Registration keeps a broker registered: when the store has let its lease
// lapse, it registers again with a new lease and a higher epoch. It owns one
// goroutine, which ends with Close or when another data directory has taken
// the node id.
type Registration struct {
	store Store
	o     RegisterOptions

	mu     sync.Mutex
	broker Broker
	lease  *Lease
	err    error

	stop context.CancelFunc
	done chan struct{}
}

// Register writes the broker's rows and keeps them alive. While the store is
// away it tries again until ctx ends. ErrExists: another data directory is
// registered under this node id, and alive.
func Register(ctx context.Context, s Store, o RegisterOptions) (*Registration, error) {
	if o.TTL == 0 {
		o.TTL = DefaultLeaseTTL
	}
	if o.WaitPrevious == 0 {
		o.WaitPrevious = 2 * o.TTL
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b := &o.Broker
	if b.ID < 0 || b.Replica == 0 {
		return nil, fmt.Errorf("metadata: register: expected a node id from 0 and a replica id, found %d and %d", b.ID, b.Replica)
	}
	for _, text := range []string{b.Rack, b.KafkaHost, b.PeerAddr, b.Version} {
		if !utf8.ValidString(text) {
			return nil, fmt.Errorf("metadata: register: %q is not UTF-8", text)
		}
	}
	r := &Registration{store: s, o: o, done: make(chan struct{})}
	if err := r.retry(ctx); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.Background())
	r.stop = stop
	go r.run(run)
	return r, nil
}

// Broker is the registration as it was last written.
func (r *Registration) Broker() Broker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broker
}

// Lease is the present lease, to bind other rows of this broker to. It may be
// gone already: then a write answers ErrLeaseLost.
func (r *Registration) Lease() LeaseID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lease.ID
}

// Done is closed when the registration has ended: closed, or see Err.
func (r *Registration) Done() <-chan struct{} { return r.done }

// Err tells, after Done, why the registration ended by itself: ErrExists when
// another data directory took the node id. The broker must stop then.
func (r *Registration) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Close ends the registration and gives the lease back, so that others know at
// once.
func (r *Registration) Close(ctx context.Context) error {
	r.stop()
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lease.Release(ctx)
}

// run registers again whenever the lease is lost.
func (r *Registration) run(ctx context.Context) {
	defer close(r.done)
	for {
		r.mu.Lock()
		lost := r.lease.Lost
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-lost:
		}
		r.o.Logger.Warn("lease lapsed, registering again", "broker", r.o.Broker.ID)
		if err := r.retry(ctx); err != nil {
			if ctx.Err() == nil {
				r.mu.Lock()
				r.err = err
				r.mu.Unlock()
			}
			return
		}
	}
}

// retry registers; it repeats while the store is away, and for a while when the
// node id is taken.
func (r *Registration) retry(ctx context.Context) error {
	var takenSince time.Time
	var last error // before ctx ended: what kept it from succeeding
	for {
		err := r.once(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && last != nil:
			return fmt.Errorf("%w: %w", last, ctx.Err())
		case ctx.Err() != nil:
			return err
		case errors.Is(err, ErrExists):
			if takenSince.IsZero() {
				takenSince = time.Now()
			} else if time.Since(takenSince) > r.o.WaitPrevious {
				return err
			}
		case errors.Is(err, ErrUnavailable), errors.Is(err, ErrFenced), errors.Is(err, ErrLeaseLost):
			takenSince = time.Time{} // an outage resets leases: count anew
		default:
			return err
		}
		last = err
		t := time.NewTimer(registerRetry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// once takes a lease and writes both rows in one transaction.
func (r *Registration) once(ctx context.Context) error {
	b := r.o.Broker
	b.Epoch = 0
	bKey, lKey := brokerKey(b.ID), liveKey(b.ID)
	prev, err := r.store.Get(ctx, bKey)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("register broker %d: %w", b.ID, err)
	}
	if err == nil {
		old, err := decodeBroker(prev)
		if err != nil {
			return err
		}
		b.Epoch = old.Epoch
	}
	alive, err := r.store.Get(ctx, lKey)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("register broker %d: %w", b.ID, err)
	}
	if err == nil {
		l, err := decodeLive(alive)
		if err != nil {
			return err
		}
		if l.replica != b.Replica {
			return fmt.Errorf("node.id %d: expected data directory %s, found %s registered and alive: %w", b.ID, b.Replica, l.replica, ErrExists)
		}
	}
	b.Epoch++
	lease, err := r.store.Lease(ctx, r.o.TTL)
	if err != nil {
		return fmt.Errorf("register broker %d: %w", b.ID, err)
	}
	_, err = r.store.Commit(ctx, Txn{
		Guards: []Guard{{Key: bKey, Revision: prev.Modified}, {Key: lKey, Revision: alive.Modified}},
		Writes: []Write{
			{Key: bKey, Value: encodeBroker(&b)},
			{Key: lKey, Value: encodeLive(b.Replica, b.Epoch), Lease: lease.ID},
		},
	})
	if err != nil {
		// The lease ends by itself if this fails too: nobody renews it then.
		return errors.Join(fmt.Errorf("register broker %d: %w", b.ID, err), lease.Release(ctx))
	}
	r.mu.Lock()
	r.broker, r.lease = b, lease
	r.mu.Unlock()
	return nil
}
