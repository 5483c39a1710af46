package broker

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"thermocline/ingest/partition"
	"thermocline/metadata"
	"thermocline/wal/shard"
)

const (
	// reconcileRetry is the pause after a failed pass: a change of leader, a full log.
	reconcileRetry = 200 * time.Millisecond
	// reconcileBatch bounds the commands of one proposal.
	reconcileBatch = 1000
)

// reconciler brings one shard's partitions in line with the topic rows, while
// this broker leads it: topics and configs reach the state machine as entries,
// and a deletion is reported back once its entry is applied. One goroutine.
type reconciler struct {
	owned *owned
	view  *metadata.View
	store metadata.Store
	log   *slog.Logger
}

// run works until ctx ends: when the metadata changes, or leadership comes here.
func (r *reconciler) run(ctx context.Context) {
	changes := r.view.Subscribe()
	defer changes.Close()
	leadership, stop := r.owned.watchLeadership()
	defer stop()
	for ctx.Err() == nil {
		var again <-chan time.Time
		if r.owned.runner.Leadership().Ready {
			changes.Take()
			if err := r.pass(ctx); err != nil {
				r.log.Debug("reconciling a shard, will try again", "shard", r.owned.id, "error", err)
				again = time.After(reconcileRetry)
			}
		}
		select {
		case <-ctx.Done():
		case <-changes.C:
		case <-leadership:
		case <-again:
		}
	}
}

// pass proposes every difference once. It compares whole topics, so that a
// change which was missed is made up for.
func (r *reconciler) pass(ctx context.Context) error {
	have := map[partition.Key]bool{}
	for _, k := range r.owned.set.Keys() {
		have[k] = true
	}
	configs := map[metadata.TopicID]partition.Topic{}
	for _, t := range r.owned.set.Topics() {
		configs[t.ID] = t
	}
	var commands []any
	for _, t := range r.view.Topics() {
		commands = append(commands, r.topicCommands(t, have, configs)...)
	}
	var gone []*metadata.Topic
	for _, t := range r.view.Deleted() {
		if !slices.Contains(t.Shards, r.id()) {
			continue
		}
		gone = append(gone, t)
		for k := range have {
			if k.Topic == t.ID {
				commands = append(commands, &partition.DeletePartition{Key: k})
			}
		}
	}
	for part := range slices.Chunk(commands, reconcileBatch) {
		if err := r.owned.commands(ctx, part); err != nil {
			return err
		}
	}
	for _, t := range gone {
		if err := metadata.ReleaseDeleted(ctx, r.store, t.ID, r.id()); err != nil && !errors.Is(err, metadata.ErrNotFound) {
			return err
		}
	}
	return nil
}

func (r *reconciler) id() metadata.ShardID { return metadata.ShardID(r.owned.id) }

// topicCommands lists what one topic lacks here.
func (r *reconciler) topicCommands(t *metadata.Topic, have map[partition.Key]bool, configs map[metadata.TopicID]partition.Topic) []any {
	var out []any
	here := false
	for i, s := range t.Shards {
		if s != r.id() {
			continue
		}
		here = true
		if k := (partition.Key{Topic: t.ID, Partition: int32(i)}); !have[k] {
			out = append(out, &partition.CreatePartition{Key: k, Name: t.Name, Config: t.Config})
		}
	}
	if known, ok := configs[t.ID]; here && (!ok || known.Revision < t.Revision) {
		out = append(out, &partition.SetConfig{Topic: t.ID, Config: t.Config, Revision: t.Revision})
	}
	return out
}

// commands proposes a unit and waits for every outcome.
func (o *owned) commands(ctx context.Context, list []any) error {
	size := 0
	for _, c := range list {
		size += o.set.Size(c)
	}
	done := make(chan []shard.Outcome, 1)
	if !o.runner.Propose(&shard.Proposal{Commands: list, Bytes: size, Acks: shard.AcksAll, Class: shard.ClassSystem, Done: func(out []shard.Outcome) {
		done <- slices.Clone(out)
	}}) {
		return errBusy
	}
	select {
	case outcomes := <-done:
		for _, out := range outcomes {
			if out.Err != nil && !errors.Is(out.Err, partition.ErrPartitionExists) && !errors.Is(out.Err, partition.ErrUnknownPartition) {
				return out.Err
			}
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// command proposes one command and returns its result.
func (o *owned) command(ctx context.Context, cmd any) (any, error) {
	return o.propose(ctx, cmd, shard.ClassClient)
}

func (o *owned) propose(ctx context.Context, cmd any, class shard.Class) (any, error) {
	done := make(chan shard.Outcome, 1)
	p := &shard.Proposal{Commands: []any{cmd}, Bytes: o.set.Size(cmd), Acks: shard.AcksAll, Class: class, Done: func(out []shard.Outcome) {
		done <- out[0]
	}}
	if !o.runner.Propose(p) {
		return nil, errors.Join(errBusy, o.runner.Intake(class))
	}
	select {
	case out := <-done:
		return out.Result, out.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// errBusy: the shard's queue is full, or its log has no room for data.
var errBusy = errors.New("broker: the shard takes no proposals at the moment")
