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

// partitionState is what a reconciler reads of a shard's partitions.
type partitionState interface {
	Keys() []partition.Key
	Topics() []partition.Topic
	View(k partition.Key) (partition.View, bool)
}

// reconciler brings one shard's partitions in line with the topic rows, while
// this broker leads it: topics and configs reach the state machine as entries,
// and a deletion is reported back once its entry is applied. One goroutine.
//
// A new term looks at every topic, so that whatever was missed is made up for;
// within a term only what has changed is looked at.
type reconciler struct {
	id    metadata.ShardID
	state partitionState
	// propose proposes commands as one unit, and waits for their outcome.
	propose func(ctx context.Context, commands []any) error
	view    *metadata.View
	store   metadata.Store
	log     *slog.Logger

	// Only run's goroutine uses these.
	term uint64
	due  metadata.Dirty
	// known is what the shard's state has of each topic: nobody else changes it
	// during a term.
	known map[metadata.TopicID]knownTopic
}

// knownTopic is a topic's part of a shard's state.
type knownTopic struct {
	revision int64 // of its config
	end      int32 // above the highest partition that is here
}

// run works until ctx ends: when the metadata changes, or leadership comes here.
func (r *reconciler) run(ctx context.Context, o *owned) {
	changes := r.view.Subscribe()
	defer changes.Close()
	leadership, stop := o.watchLeadership()
	defer stop()
	for ctx.Err() == nil {
		var again <-chan time.Time
		if l := o.runner.Leadership(); l.Ready {
			r.note(changes.Take(), l.Term)
			if err := r.pass(ctx); err != nil {
				r.log.Debug("reconciling a shard, will try again", "shard", r.id, "error", err)
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

// note adds what has changed to what is due.
func (r *reconciler) note(d metadata.Dirty, term uint64) {
	if term != r.term {
		r.term, r.due = term, metadata.Dirty{All: true, Deleted: true}
	}
	r.due.Deleted = r.due.Deleted || d.Deleted
	r.due.All = r.due.All || d.All
	if r.due.All {
		r.due.Topics = nil
		return
	}
	for _, id := range d.Topics {
		if !slices.Contains(r.due.Topics, id) { // after a failed pass only
			r.due.Topics = append(r.due.Topics, id)
		}
	}
}

// pass proposes every difference that is due, once. What is due stays due when
// it fails.
func (r *reconciler) pass(ctx context.Context) error {
	var commands []any
	for _, t := range r.topics() {
		list, err := r.topicCommands(ctx, t)
		if err != nil {
			return err
		}
		commands = append(commands, list...)
	}
	gone, deletions := r.deletions()
	commands = append(commands, deletions...)
	for part := range slices.Chunk(commands, reconcileBatch) {
		if err := r.propose(ctx, part); err != nil {
			return err
		}
		r.learn(part)
	}
	for _, t := range gone {
		if err := metadata.ReleaseDeleted(ctx, r.store, t.ID, r.id); err != nil && !errors.Is(err, metadata.ErrNotFound) {
			return err
		}
		delete(r.known, t.ID)
	}
	r.due = metadata.Dirty{}
	return nil
}

// topics lists the topics that are due.
func (r *reconciler) topics() []*metadata.Topic {
	if r.due.All {
		r.known = map[metadata.TopicID]knownTopic{}
		for _, t := range r.state.Topics() {
			r.known[t.ID] = knownTopic{revision: t.Revision}
		}
		for _, k := range r.state.Keys() {
			r.here(k)
		}
		return r.view.Topics()
	}
	var out []*metadata.Topic
	for _, id := range r.due.Topics {
		if t := r.view.TopicByID(id); t != nil {
			out = append(out, t)
		}
	}
	return out
}

// topicCommands lists what one topic lacks here.
func (r *reconciler) topicCommands(ctx context.Context, t *metadata.Topic) ([]any, error) {
	var out []any
	here := false
	for i, s := range t.Shards {
		if s != r.id {
			continue
		}
		here = true
		k := partition.Key{Topic: t.ID, Partition: int32(i)}
		if _, ok := r.state.View(k); ok {
			r.here(k) // also after a unit whose outcome was not learned
		} else {
			out = append(out, &partition.CreatePartition{Key: k, Name: t.Name, Config: t.Config})
		}
	}
	if len(out) > 0 {
		if exists, err := r.exists(ctx, t); !exists || err != nil {
			return nil, err
		}
	}
	if known, ok := r.known[t.ID]; here && (!ok || known.revision < t.Revision) {
		out = append(out, &partition.SetConfig{Topic: t.ID, Config: t.Config, Revision: t.Revision})
	}
	return out, nil
}

// exists asks the store itself. A view that lags would make the partitions of a
// topic anew that this shard, under an earlier leader, has let go of: the row
// that says so is gone by then, and nobody would ever delete them.
func (r *reconciler) exists(ctx context.Context, t *metadata.Topic) (bool, error) {
	now, err := metadata.GetTopic(ctx, r.store, t.Name)
	if errors.Is(err, metadata.ErrNotFound) {
		return false, nil
	}
	return err == nil && now.ID == t.ID, err
}

// deletions lists the deleted topics that this shard has to let go of, and the
// commands for it. A topic that the metadata knows nothing of is reported, and
// kept: only a row that names it deletes it.
func (r *reconciler) deletions() (gone []*metadata.Topic, commands []any) {
	if !r.due.All && !r.due.Deleted {
		return nil, nil
	}
	named := map[metadata.TopicID]bool{}
	for _, t := range r.view.Deleted() {
		if !slices.Contains(t.Shards, r.id) {
			continue
		}
		gone = append(gone, t)
		named[t.ID] = true
		for i := range r.known[t.ID].end {
			k := partition.Key{Topic: t.ID, Partition: i}
			if _, ok := r.state.View(k); ok {
				commands = append(commands, &partition.DeletePartition{Key: k})
			}
		}
	}
	if r.due.All {
		r.sweep(named)
	}
	return gone, commands
}

// sweep reports partitions of topics that are neither there nor deleted.
func (r *reconciler) sweep(deleted map[metadata.TopicID]bool) {
	for id, k := range r.known {
		if k.end > 0 && !deleted[id] && r.view.TopicByID(id) == nil {
			r.log.Warn("partitions of a topic that the metadata does not know are kept", "shard", r.id, "topic", id.String())
		}
	}
}

// here notes that a partition is in the state.
func (r *reconciler) here(k partition.Key) {
	t := r.known[k.Topic]
	t.end = max(t.end, k.Partition+1)
	r.known[k.Topic] = t
}

// learn remembers what a unit has brought into the state.
func (r *reconciler) learn(commands []any) {
	for _, c := range commands {
		switch c := c.(type) {
		case *partition.CreatePartition:
			r.here(c.Key)
		case *partition.SetConfig:
			t := r.known[c.Topic]
			t.revision = c.Revision
			r.known[c.Topic] = t
		}
	}
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
