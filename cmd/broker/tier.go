package broker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"thermocline/index"
	"thermocline/ingest/partition"
	"thermocline/metadata"
	"thermocline/tiering"
	"thermocline/tiering/format"
	"thermocline/tiering/object"
	"thermocline/wal"
	"thermocline/wal/shard"
)

// tier is what all shards of a broker share for tiering and cold reads.
type tier struct {
	cluster string
	store   object.Store
	memory  *tiering.Memory
	temp    string
	reader  *index.Reader

	mu      sync.Mutex
	sealers map[metadata.ShardID]*tiering.Sealer
}

func (b *Broker) startTier(clusterID string, cold object.Store) error {
	temp := filepath.Join(b.cfg.DataDir, "upload")
	// What an earlier run left there belongs to no segment.
	if err := os.RemoveAll(temp); err != nil {
		return err
	}
	if err := os.MkdirAll(temp, 0o755); err != nil {
		return err
	}
	b.tier = &tier{
		cluster: clusterID, store: b.uploads, temp: temp,
		memory:  tiering.NewMemory(tiering.DefaultMemory),
		reader:  newColdReader(cold, clusterID, &b.cfg, b.log),
		sealers: map[metadata.ShardID]*tiering.Sealer{},
	}
	return nil
}

func (t *tier) close() { t.reader.Close() }

// sealer is the shard's sealer while it is led here.
func (t *tier) sealer(id metadata.ShardID) (*tiering.Sealer, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.sealers[id]
	return s, ok
}

func (t *tier) set(id metadata.ShardID, s *tiering.Sealer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s == nil {
		delete(t.sealers, id)
		return
	}
	t.sealers[id] = s
}

// startTiering runs a sealer whenever this broker leads the shard, one for
// each term, and passes rolls on to it. None runs before the store is known to
// be the cluster's.
func (b *Broker) startTiering(ctx context.Context, o *owned, log *slog.Logger) {
	o.work.Go(func() {
		if !b.mayStore(ctx) {
			return
		}
		changed, stop := o.watchLeadership()
		defer stop()
		for ctx.Err() == nil {
			l := o.runner.Leadership()
			if l.Ready {
				b.sealTerm(ctx, o, l.Term, changed, log)
				continue
			}
			select {
			case <-ctx.Done():
			case <-changed:
			}
		}
	})
	o.work.Go(func() { b.followRolls(ctx, o) })
}

// sealTerm runs one sealer until leadership in that term ends.
func (b *Broker) sealTerm(ctx context.Context, o *owned, term uint64, changed <-chan struct{}, log *slog.Logger) {
	s, err := tiering.Start(tiering.Options{
		Cluster: b.tier.cluster, Shard: uint32(o.id), Term: term,
		Source: source{o, b.writer}, Committer: committer{o}, Store: b.tier.store,
		SegmentBytes: int64(b.cfg.SegmentBytes), SegmentAge: b.cfg.SegmentMaxAge,
		Memory: b.tier.memory, TempDir: b.tier.temp, Committed: b.tier.learned(log), Logger: log,
	})
	if err != nil {
		b.fail(err) // the options are wrong, and will be for every shard
		return
	}
	o.work.Go(func() { // so that the first cold fetch here need not open every recent segment
		if err := b.tier.reader.Warm(ctx, o.set.Manifest()); err != nil && ctx.Err() == nil {
			log.Debug("warming the index", "error", err)
		}
	})
	b.tier.set(o.id, s)
	defer b.tier.set(o.id, nil)
	defer s.Stop()
	led, ended := context.WithCancel(ctx)
	var rolls sync.WaitGroup
	rolls.Go(func() { b.carryOutRolls(led, o, s, log) })
	defer rolls.Wait()
	defer ended()
	for ctx.Err() == nil {
		if l := o.runner.Leadership(); !l.Ready || l.Term != term {
			return
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// source lets a sealer read a shard.
type source struct {
	*owned
	writer *wal.Writer
}

func (s source) Pending() (tiering.Pending, bool) {
	p, ok := s.set.SealPending()
	if !ok {
		return tiering.Pending{}, false
	}
	return tiering.Pending{Bytes: p.Bytes, OldestIndex: p.OldestIndex, OldestUnixMilli: p.OldestUnixMilli, Urgent: s.urgent()}, true
}

// urgent: the shard's oldest live entry lies behind half of the log's budget.
func (s source) urgent() bool {
	oldest, ok := s.writer.OldestLive(wal.ShardID(s.id))
	return ok && int64(s.writer.End()-oldest) > s.writer.Usage().Max/2
}

func (s source) Seal(maxBytes int64) (*format.SealRange, bool) { return s.set.Seal(maxBytes) }

func (s source) Payload(index, term uint64) (tiering.Payload, error) {
	return s.runner.Payload(index, term)
}

func (s source) Manifest() *format.Manifest { return s.set.Manifest() }

// committer proposes tiering commits as system entries, which a full log still takes.
type committer struct{ *owned }

func (c committer) CommitSegment(ctx context.Context, row format.SegmentRow) (format.SegmentID, error) {
	result, err := c.systemCommand(ctx, &partition.TierSegment{Row: row})
	if err != nil {
		return 0, err
	}
	return result.(format.SegmentID), nil
}

func (c committer) CommitRun(ctx context.Context, run format.RunRow, replaces []uint32, fence format.FenceRow) error {
	_, err := c.systemCommand(ctx, &partition.CommitRun{Run: run, Replaces: replaces, Fence: fence})
	return err
}

func (c committer) systemCommand(ctx context.Context, cmd any) (any, error) {
	result, err := c.propose(ctx, cmd, shard.ClassSystem)
	switch {
	case errors.Is(err, shard.ErrNotLeader), errors.Is(err, shard.ErrUnknownFate):
		return nil, errors.Join(tiering.ErrNotLeader, err)
	case errors.Is(err, partition.ErrNotNextSegment), errors.Is(err, partition.ErrStaleRows):
		return nil, errors.Join(tiering.ErrRefused, err)
	}
	return result, err
}
