package metadata

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// health is what a view knows about its store.
type health struct {
	answering bool // the last probe was answered
	watching  bool
	// lastAnswer is when the store last answered; since is when it became
	// healthy after the last outage.
	lastAnswer, since time.Time
}

// Health tells how far a view can be believed.
type Health struct {
	// Healthy: the store answers and its changes arrive.
	Healthy bool
	// Since is when it became so; meaningful while Healthy.
	Since time.Time
	// LastContact is the last sign of life: without Healthy, the view may be
	// as old as that.
	LastContact time.Time
	Revision    int64
	// Refused are the rows that this binary cannot read, and why.
	Refused []error
}

// Health tells how far the view can be believed.
func (v *View) Health() Health {
	v.mu.RLock()
	defer v.mu.RUnlock()
	h := Health{
		Healthy: v.health.answering && v.health.watching, Since: v.health.since,
		LastContact: v.health.lastAnswer, Revision: v.revision,
	}
	for _, key := range slices.Sorted(maps.Keys(v.refused)) {
		h.Refused = append(h.Refused, v.refused[key])
	}
	return h
}

// healthyFor tells whether the store has been healthy for d. Callers hold mu.
func (v *View) healthyFor(d time.Duration) bool {
	return v.health.answering && v.health.watching && v.o.Now().Sub(v.health.since) >= d
}

// setWatching notes that a watch has begun or ended. A watch that begins right
// after a listing, without a failed probe in between, is no outage; a listing
// that had to wait for the store shows in the probes.
func (v *View) setWatching(on bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.health.watching = on
}

// probeLoop asks for a sign of life again and again.
func (v *View) probeLoop(ctx context.Context) {
	t := time.NewTicker(v.o.ProbeEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			v.probe(ctx)
		}
	}
}

// probe asks the store for one row. It also counts as an outage that this
// process itself was stopped for long: what it then hears may be the echo of
// its own absence.
func (v *View) probe(ctx context.Context) {
	_, err := v.store.Get(ctx, keyCluster)
	if ctx.Err() != nil {
		return
	}
	answered := err == nil || errors.Is(err, ErrNotFound)
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.o.Now()
	changed := answered != v.health.answering
	if answered {
		if !v.health.answering || now.Sub(v.health.lastAnswer) > v.gapMax() {
			v.health.since = now
		}
		v.health.lastAnswer = now
	}
	v.health.answering = answered
	if len(v.rows.doubt) > 0 && v.healthyFor(v.o.LapseGrace) {
		v.publishCluster()
		for s := range v.subs {
			s.mark(&batch{cluster: true})
		}
		changed = true
	}
	if changed {
		v.broadcast()
	}
}

// gapMax is the silence between two answers that counts as an outage: leases
// shorter than that cannot have lapsed unnoticed.
func (v *View) gapMax() time.Duration { return max(3*v.o.ProbeEvery, v.o.LapseGrace/2) }
