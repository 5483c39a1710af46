// Package controller is what one broker at a time does for all: it lays the
// shards out when a cluster begins, plans the replacement of replicas whose data
// directory is gone, and brings leaders back to the homes of their shards. The
// decisions are pure functions (InitialShards, Place, Replacements, Balance); every write carries the office's fence, so that a controller that
// was deposed without noticing can do no harm.
//
// Topics is for every broker: topics are guarded transactions, not duties of
// the office.
package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"thermocline/metadata"
)

const (
	// defaultTick is the longest pause between looks at the view; a change of
	// it is looked at sooner.
	defaultTick = time.Second
	// transferBound bounds one call of Transfer.
	transferBound = 5 * time.Second
	// resignBound bounds giving the office up at the end.
	resignBound = time.Second
)

// Office is what a candidate brings along: metadata.Registration is one.
type Office interface {
	// Lease is the broker's present lease; the office ends with it.
	Lease() metadata.LeaseID
	// Broker is the broker's registration.
	Broker() metadata.Broker
	// Done is closed when the registration has ended, and the lease with it.
	Done() <-chan struct{}
}

// Config says what a controller works with.
type Config struct {
	Store        metadata.Store
	View         *metadata.View
	Registration Office
	// InitialBrokers is how many brokers must be there before the first shards
	// are made.
	InitialBrokers int
	// ShardsPerBroker is shards.per.broker; 0 is 2.
	ShardsPerBroker int
	// ShardReplicas is shard.replicas; 0 is the smaller of 3 and InitialBrokers.
	ShardReplicas int
	// Transfer asks a shard's leader to hand over; nil leaves leaders where
	// they are (each broker may run a Balancer for its own shards instead).
	Transfer func(ctx context.Context, m Move) error
	// Tick bounds the pause between looks; 0 is one second.
	Tick time.Duration
	// Now is the clock; nil is time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

func (c *Config) normalize() error {
	if c.Store == nil || c.View == nil || c.Registration == nil {
		return errors.New("controller: expected a store, a view and a registration")
	}
	if c.ShardsPerBroker == 0 {
		c.ShardsPerBroker = 2
	}
	if c.ShardReplicas == 0 {
		c.ShardReplicas = min(3, c.InitialBrokers)
	}
	if c.InitialBrokers < 1 || c.ShardReplicas < 1 || c.ShardReplicas > c.InitialBrokers {
		return fmt.Errorf("controller: expected 1 to %d replicas on the initial brokers, found %d", c.InitialBrokers, c.ShardReplicas)
	}
	if n := c.InitialBrokers * c.ShardsPerBroker; n < 1 || n > metadata.ShardsPerTxnMax {
		return fmt.Errorf("controller: expected 1 to %d initial shards, found %d", metadata.ShardsPerTxnMax, n)
	}
	if c.Tick == 0 {
		c.Tick = defaultTick
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Controller is a candidate for the office, and its holder while elected.
type Controller struct {
	c       Config
	leading atomic.Bool

	// Only Run's goroutine uses these.
	fence    metadata.Guard // Revision 0: not in office
	balancer *Balancer
}

// New checks the config.
func New(c Config) (*Controller, error) {
	if err := c.normalize(); err != nil {
		return nil, err
	}
	return &Controller{c: c}, nil
}

// Leading tells whether this broker holds the office, as far as it knows.
func (c *Controller) Leading() bool { return c.leading.Load() }

// Run stands for the office and does its duties until ctx ends; then it resigns.
func (c *Controller) Run(ctx context.Context) {
	sub := c.c.View.Subscribe()
	defer sub.Close()
	t := time.NewTicker(c.c.Tick)
	defer t.Stop()
	defer c.resign()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sub.C:
			if d := sub.Take(); !d.Cluster {
				continue // topics are no concern of the office
			}
		case <-t.C:
		}
		if err := c.step(ctx); err != nil && ctx.Err() == nil {
			c.c.Logger.Warn("controller: duty failed, trying again", "error", err)
		}
	}
}

// step looks at the view once: office first, then duties.
func (c *Controller) step(ctx context.Context) error {
	if !c.c.View.Health().Healthy {
		return nil // nothing can be written, and what the view says may be old
	}
	cl := c.c.View.Cluster()
	if err := c.office(ctx, cl); err != nil || c.fence.Revision == 0 {
		return err
	}
	if len(cl.Shards) == 0 {
		return c.lost(c.layOut(ctx, cl))
	}
	if len(cl.Coordinators) == 0 {
		return c.lost(c.placeCoordinators(ctx, cl))
	}
	return errors.Join(c.replace(ctx, cl), c.balance(ctx, cl))
}

// office keeps the office in line with the view, and stands for it when it is
// vacant.
func (c *Controller) office(ctx context.Context, cl *metadata.Cluster) error {
	me, lease := c.c.Registration.Broker().ID, c.c.Registration.Lease()
	mine := cl.Controller == me && cl.Office == lease
	switch {
	case c.fence.Revision != 0 && cl.Revision < c.fence.Revision:
		return nil // the view has not seen the election yet
	case mine && c.fence != cl.Fence:
		c.enter(cl.Fence) // elected, but the answer was lost
		return nil
	case mine:
		return nil
	}
	c.leave()
	if cl.Controller != metadata.NoBroker {
		return nil
	}
	fence, err := metadata.Campaign(ctx, c.c.Store, me, lease)
	switch {
	case err == nil:
		c.enter(fence)
	case errors.Is(err, metadata.ErrFenced), errors.Is(err, metadata.ErrLeaseLost):
		return nil // somebody else is, or this broker is registering again
	}
	return err
}

func (c *Controller) enter(fence metadata.Guard) {
	c.fence, c.balancer = fence, NewBalancer()
	c.leading.Store(true)
	c.c.Logger.Info("controller: elected", "broker", c.c.Registration.Broker().ID, "revision", fence.Revision)
}

func (c *Controller) leave() {
	if c.fence.Revision != 0 {
		c.c.Logger.Info("controller: deposed", "broker", c.c.Registration.Broker().ID)
	}
	c.fence = metadata.Guard{}
	c.leading.Store(false)
}

// lost turns a lost guard into what it means: out of office, or somebody was
// faster; the view will tell which.
func (c *Controller) lost(err error) error {
	if errors.Is(err, metadata.ErrFenced) {
		return nil
	}
	return err
}

// layOut makes the first shards once enough brokers are there.
func (c *Controller) layOut(ctx context.Context, cl *metadata.Cluster) error {
	var alive []*metadata.Broker
	for _, b := range cl.Brokers {
		if b.Alive {
			alive = append(alive, b)
		}
	}
	if len(alive) < c.c.InitialBrokers {
		return nil
	}
	// Whoever has come by now takes part, as far as one transaction reaches.
	alive = alive[:min(len(alive), metadata.ShardsPerTxnMax/c.c.ShardsPerBroker)]
	shards, err := InitialShards(alive, c.c.ShardsPerBroker, c.c.ShardReplicas)
	if err != nil {
		return err
	}
	rev, err := metadata.CreateShards(ctx, c.c.Store, c.fence, shards)
	if err != nil {
		return err
	}
	c.c.Logger.Info("controller: first shards made", "shards", len(shards), "replicas", c.c.ShardReplicas)
	bounded, cancel := context.WithTimeout(ctx, viewWait)
	defer cancel()
	return c.c.View.Wait(bounded, rev)
}

// placeCoordinators gives the coordinator slots their shards, once the first
// shards are there; also in a cluster that was made before there were slots.
func (c *Controller) placeCoordinators(ctx context.Context, cl *metadata.Cluster) error {
	rev, err := metadata.CreateCoordinators(ctx, c.c.Store, c.fence, metadata.PlaceCoordinators(cl.Shards, metadata.CoordinatorSlots))
	if err != nil {
		return err
	}
	c.c.Logger.Info("controller: coordinator slots placed", "slots", metadata.CoordinatorSlots, "shards", len(cl.Shards))
	bounded, cancel := context.WithTimeout(ctx, viewWait)
	defer cancel()
	return c.c.View.Wait(bounded, rev)
}

// balance asks leaders to go home, one after the other.
func (c *Controller) balance(ctx context.Context, cl *metadata.Cluster) error {
	if c.c.Transfer == nil {
		return nil
	}
	var errs error
	for _, m := range c.balancer.Next(cl, c.c.Now()) {
		bounded, cancel := context.WithTimeout(ctx, transferBound)
		err := c.c.Transfer(bounded, m)
		cancel()
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("move the leader of shard %d from broker %d to %d: %w", m.Shard, m.From, m.To, err))
		}
	}
	return errs
}

// resign gives the office up when the broker stops, so that the next one need
// not wait for the lease. If it fails, the lease does it; and where the broker's
// registration has ended before, the office has gone, or goes, with that.
func (c *Controller) resign() {
	if c.fence.Revision == 0 {
		return
	}
	defer c.leave()
	select {
	case <-c.c.Registration.Done():
		return
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), resignBound)
	defer cancel()
	if err := metadata.Resign(ctx, c.c.Store, c.fence); err != nil {
		c.c.Logger.Warn("controller: office left to its lease", "error", err)
	}
}
