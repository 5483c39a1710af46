package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"thermocline/metadata"
	"thermocline/wal/shard"
)

const (
	// replaceEvery is the pause between two steps of a planned change.
	replaceEvery = 200 * time.Millisecond
	// replaceStep bounds one step: the store's answer and a busy shard's.
	replaceStep = 5 * time.Second
)

// ReplacementStatus is a planned change of one replica, as /status shows it.
type ReplacementStatus struct {
	Old string `json:"old"`
	New string `json:"new"`
	// Step is what the leader is about, on the leader only (shard.ChangeStep).
	Step string `json:"step,omitempty"`
	// Match is how far the new replica is known to hold the log, of Commit.
	Match  uint64 `json:"match,omitempty"`
	Commit uint64 `json:"commit,omitempty"`
	// Error is why the last step failed.
	Error string `json:"error,omitempty"`
}

// replacer carries out the planned changes of the shards that are led here.
type replacer struct {
	b *Broker
	// finished counts changes that this broker brought to their end.
	finished func()

	mu    sync.Mutex
	steps map[metadata.ShardID]ReplacementStatus
}

// run takes steps while any shard has a plan, until ctx ends.
func (r *replacer) run(ctx context.Context) {
	changes := r.b.view.Subscribe()
	defer changes.Close()
	tick := time.NewTicker(replaceEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		var again <-chan time.Time
		changes.Take()
		if r.pass(ctx) {
			again = tick.C
		}
		select {
		case <-ctx.Done():
		case <-changes.C:
		case <-again:
		}
	}
}

// pass takes one step of each plan, and reports whether there are any.
func (r *replacer) pass(ctx context.Context) bool {
	planned := map[metadata.ShardID]ReplacementStatus{}
	for _, row := range r.b.view.Cluster().Shards {
		p := row.Replacing
		if p == nil {
			continue
		}
		st := ReplacementStatus{Old: p.Old.ID.String(), New: p.New.ID.String()}
		if o, ok := r.b.shards.get(row.ID); ok && o.runner.Leadership().Ready {
			step, cancel := context.WithTimeout(ctx, replaceStep)
			got, err := r.step(step, o)
			cancel()
			st.Step, st.Match, st.Commit = string(got.Step), got.Match, got.Commit
			if err != nil && ctx.Err() == nil {
				st.Error = err.Error()
				r.b.log.Debug("replacing a replica, will try again", "shard", row.ID, "error", err)
			}
		}
		planned[row.ID] = st
	}
	r.mu.Lock()
	r.steps = planned
	r.mu.Unlock()
	return len(planned) > 0
}

// step goes by the row as it is now: the view may be old, and what is done in
// Raft is not taken back by an old plan. While the store is away nothing is.
func (r *replacer) step(ctx context.Context, o *owned) (shard.ChangeProgress, error) {
	row, err := metadata.GetShard(ctx, r.b.store, o.id)
	if err != nil || row.Replacing == nil {
		return shard.ChangeProgress{}, err
	}
	var target []shard.ReplicaID
	for _, m := range row.Target() {
		target = append(target, shard.ReplicaID(m.ID))
	}
	got, err := o.runner.Approach(ctx, target)
	if err != nil || got.Step != shard.StepDone {
		return got, err
	}
	err = metadata.FinishReplacement(ctx, r.b.store, row)
	if errors.Is(err, metadata.ErrFenced) {
		return got, nil // another leader was faster, or there is a new plan
	}
	if err == nil {
		r.finished()
		r.b.log.Info("a replica was replaced", "shard", o.id, "on", row.Replacing.New.Broker,
			"old", row.Replacing.Old.ID.String(), "new", row.Replacing.New.ID.String())
	}
	return got, err
}

// status is the plan of a shard, nil without one.
func (r *replacer) status(id metadata.ShardID) *ReplacementStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	if st, ok := r.steps[id]; ok {
		return &st
	}
	return nil
}

// joining tells that a replica of this broker is to take the place of a lost
// one and has not yet; nil when it takes part.
func (b *Broker) joining(row *metadata.Shard) error {
	p := row.Replacing
	if p == nil || p.New.ID != b.replica || p.Old.ID == b.replica {
		return nil
	}
	at := "waiting for the shard's leader to add it"
	if o, ok := b.shards.get(row.ID); ok {
		if s := o.set.Status(); s.Index > 0 {
			at = fmt.Sprintf("catching up, at index %d", s.Index)
		}
	}
	return fmt.Errorf("broker %d: shard %d: replica %s is joining in the place of %s, whose data directory is gone: %s",
		b.id, row.ID, b.replica, p.Old.ID, at)
}

// outside tells that a shard still counts on the data directory that this
// broker had before.
func (b *Broker) outside() error {
	for _, row := range b.view.Cluster().Shards {
		if r, ok := row.On(b.id); ok && r.ID != b.replica && row.Replacing == nil {
			return fmt.Errorf("broker %d: shard %d: replica %s is gone with this broker's former data directory; the controller has yet to plan that %s takes its place",
				b.id, row.ID, r.ID, b.replica)
		}
	}
	return nil
}
