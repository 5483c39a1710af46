package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"thermocline/ingest"
	"thermocline/ingest/partition"
	"thermocline/metadata"
	"thermocline/wal"
	"thermocline/wal/shard"
	"thermocline/wal/transport"
)

// owned is this broker's replica of one shard with what works for it.
type owned struct {
	id     metadata.ShardID
	set    *partition.Set
	runner *shard.Runner
	cancel context.CancelFunc
	work   sync.WaitGroup
	// leaderChanges counts changes of leader that the replica has seen.
	leaderChanges atomic.Int64
	followers     followers
	rolls         *owedRoll
}

// State makes owned an ingest.Replica, with the runner's methods below.
func (o *owned) State() *partition.Set { return o.set }

func (o *owned) Propose(p *shard.Proposal) bool { return o.runner.Propose(p) }
func (o *owned) Leadership() shard.Leadership   { return o.runner.Leadership() }
func (o *owned) ReadIndex(done func(error))     { o.runner.ReadIndex(done) }
func (o *owned) Payload(index, term uint64) (shard.PayloadView, error) {
	return o.runner.Payload(index, term)
}

// Intake is why a proposal is refused; of a replica that is out of service it
// tells what has happened, and so what to do.
func (o *owned) Intake(class shard.Class) error {
	err := o.runner.Intake(class)
	if why := o.runner.Failed(); why != nil && !errors.Is(why, shard.ErrStopped) {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// watchLeadership returns a channel that has an element after each change.
func (o *owned) watchLeadership() (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	cancel := o.runner.Subscribe(func(shard.Leadership) {
		select {
		case c <- struct{}{}:
		default:
		}
	})
	return c, cancel
}

// countLeaders counts changes of leader until the runner ends.
func (o *owned) countLeaders() {
	last := shard.ReplicaID(0) // the shard's goroutine alone uses it
	o.runner.Subscribe(func(l shard.Leadership) {
		if l.Leader != 0 && l.Leader != last {
			last = l.Leader
			o.leaderChanges.Add(1)
		}
	})
}

// shards holds this broker's replicas. Replicas are added when the metadata
// names this broker's data directory as a member, and stay until it stops.
type shards struct {
	mu   sync.RWMutex
	byID map[metadata.ShardID]*owned
}

func (s *shards) get(id metadata.ShardID) (*owned, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.byID[id]
	return o, ok
}

// Replica makes shards an ingest.Replicas.
func (s *shards) Replica(id metadata.ShardID) (ingest.Replica, bool) {
	o, ok := s.get(id)
	if !ok {
		return nil, false
	}
	return o, true
}

// all lists the replicas in order of shard.
func (s *shards) all() []*owned {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*owned, 0, len(s.byID))
	for _, o := range s.byID {
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b *owned) int { return int(a.id) - int(b.id) })
	return out
}

func (s *shards) add(o *owned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[o.id] = o
}

// The shards take what the transport delivers (transport.Handler). A message
// for a shard that is not here yet is dropped: Raft sends it again.

// Receive hands a message to its shard.
func (s *shards) Receive(in *transport.Inbound) {
	if o, ok := s.get(metadata.ShardID(in.Shard)); ok {
		o.runner.Receive(in)
	}
}

// ReceiveSnapshot hands a snapshot stream to its shard.
func (s *shards) ReceiveSnapshot(in *transport.Inbound, r io.Reader) error {
	o, ok := s.get(metadata.ShardID(in.Shard))
	if !ok {
		return fmt.Errorf("broker: no replica of shard %d here", in.Shard)
	}
	return o.runner.ReceiveSnapshot(in, r)
}

// Unreachable tells a shard that messages to a replica were dropped.
func (s *shards) Unreachable(id uint32, to uint64) {
	if o, ok := s.get(metadata.ShardID(id)); ok {
		o.runner.Unreachable(shard.ReplicaID(to))
	}
}

// SnapshotSent tells a shard the outcome of a stream.
func (s *shards) SnapshotSent(id uint32, to uint64, err error) {
	if o, ok := s.get(metadata.ShardID(id)); ok {
		o.runner.SnapshotSent(shard.ReplicaID(to), err)
	}
}

// follow starts a replica for each shard row that names this data directory, as
// one of its replicas or as the one that takes another's place,
// until ctx ends. A replica that cannot start is reported and tried again at
// the next change.
func (b *Broker) follow(ctx context.Context) {
	changes := b.view.Subscribe()
	defer changes.Close()
	for {
		changes.Take()
		for _, row := range homesFirst(b.view.Cluster().Replicas(b.replica), b.id) {
			if _, ok := b.shards.get(row.ID); ok {
				continue
			}
			err := b.startShard(row)
			if damagedShard(err) {
				err = errors.Join(err, b.abandon(err))
			}
			if err != nil {
				b.log.Error("a shard's replica cannot start", "shard", row.ID, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changes.C:
		}
	}
}

// homesFirst puts the shards that are at home on a broker before the others:
// those replicas are to lead, and the others wait for them.
func homesFirst(rows []*metadata.Shard, id metadata.BrokerID) []*metadata.Shard {
	away := func(row *metadata.Shard) int {
		if row.Home == id {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(rows, func(x, y *metadata.Shard) int { return away(x) - away(y) })
	return rows
}

// homeOf is the replica that is to lead a shard, 0 if its home has none.
func homeOf(row *metadata.Shard) shard.ReplicaID {
	r, ok := row.On(row.Home)
	if !ok {
		return 0
	}
	return shard.ReplicaID(r.ID)
}

func (b *Broker) startShard(row *metadata.Shard) error {
	options := partition.Options{Shard: uint32(row.ID)}
	set := partition.NewSet(options)
	log := b.log.With("shard", row.ID)
	var voters []shard.ReplicaID // none: the shard's leader adds this replica
	if member(row, b.replica) {
		for _, r := range row.Replicas {
			voters = append(voters, shard.ReplicaID(r.ID))
		}
	}
	runner, err := shard.NewRunner(shard.Config{
		Core: shard.Options{
			Shard: wal.ShardID(row.ID), ID: shard.ReplicaID(b.replica), Home: homeOf(row),
			CacheBytes:   int(b.cfg.TailCacheBytes) / max(1, b.expectedShards()),
			StateMachine: set, CheckPayload: partition.CheckPayload,
			Buffers: b.buffers, Recovered: b.recovered[wal.ShardID(row.ID)], Logger: log,
			Stats: b.shardStats,
		},
		Log: b.writer, FS: b.fs, Dir: walDir,
		Voters:          voters,
		NewStateMachine: func() shard.StateMachine { return partition.NewSet(options) },
		Send:            b.send,
		Usage:           b.logUsage,
		Budget:          b.writer.Usage().Max,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(b.ctx)
	o := &owned{id: row.ID, set: set, runner: runner, cancel: cancel, rolls: newOwedRoll()}
	o.countLeaders()
	b.shards.add(o)
	rec := &reconciler{id: o.id, state: set, propose: o.commands, view: b.view, store: b.store, log: log}
	o.work.Go(func() { rec.run(ctx, o) })
	o.work.Go(func() { b.publishHints(ctx, o, log) })
	o.work.Go(func() { b.coordinate(ctx, o) })
	b.startTiering(ctx, o, log)
	return nil
}

// expectedShards is how many replicas this broker will hold when the cluster
// is complete: the tail cache is shared out by it.
func (b *Broker) expectedShards() int {
	total := b.cfg.ShardsPerBroker * b.cfg.ClusterBrokers
	return total * b.cfg.ShardReplicas / max(1, b.cfg.ClusterBrokers)
}

// publishHints tells the metadata store who leads, for brokers without a
// replica of the shard. It is only a hint: failing to write it hurts nobody.
func (b *Broker) publishHints(ctx context.Context, o *owned, log *slog.Logger) {
	changed, stop := o.watchLeadership()
	defer stop()
	for {
		if l := o.runner.Leadership(); l.Ready {
			err := metadata.WriteHint(ctx, b.store, metadata.LeaderHint{Shard: o.id, Broker: b.id, Term: l.Term})
			if err != nil && !errors.Is(err, metadata.ErrFenced) && ctx.Err() == nil {
				log.Debug("writing a leader hint", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// logUsage is the log's fill in 1/1000.
func (b *Broker) logUsage() uint16 {
	u := b.writer.Usage()
	if u.Max <= 0 {
		return 0
	}
	return uint16(min(1000*u.Used/u.Max, 1000))
}

// close stops a replica: its workers first, then the runner, which hands
// leadership over.
func (o *owned) close(ctx context.Context) error {
	o.cancel()
	o.work.Wait()
	return o.runner.Close(ctx)
}
