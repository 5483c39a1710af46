package broker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"thermocline/metadata"
	"thermocline/tiering"
)

// rollKey is the topic config whose change asks for a roll: seal, tier and
// trim now (thermocline topic roll).
const rollKey = "thermocline.roll"

// rollAgain is the pause after a roll that failed while the shard is still led
// here.
const rollAgain = time.Second

// owedRoll is a roll that has been asked for. Every replica notes it with the
// end of its log at that time, so that the next leader takes it over should
// this one go before it is done, and leaves it alone otherwise.
type owedRoll struct {
	asked chan struct{} // has an element after each request

	mu      sync.Mutex
	through uint64 // the last index to be tiered, 0 if nothing is owed
}

func newOwedRoll() *owedRoll { return &owedRoll{asked: make(chan struct{}, 1)} }

func (r *owedRoll) ask(through uint64) {
	r.mu.Lock()
	r.through = max(r.through, through)
	r.mu.Unlock()
	r.wake()
}

func (r *owedRoll) wake() {
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

// owed tells whether something below the requested end is not in the store,
// given the oldest index that is not (ok if there is one).
func (r *owedRoll) owed(pending uint64, ok bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !ok || pending > r.through {
		r.through = 0
	}
	return r.through > 0
}

// followRolls watches the topics for a changed roll config.
func (b *Broker) followRolls(ctx context.Context, o *owned) {
	changes := b.view.Subscribe()
	defer changes.Close()
	seen := map[metadata.TopicID]string{}
	for first := true; ; first = false {
		if b.rolled(changes.Take(), seen) && !first {
			st, err := o.runner.Status(ctx)
			if err != nil {
				return // the replica has stopped
			}
			o.rolls.ask(st.LastIndex)
		}
		select {
		case <-ctx.Done():
			return
		case <-changes.C:
		}
	}
}

// carryOutRolls has the sealer of one term do what is owed, until ctx ends.
func (b *Broker) carryOutRolls(ctx context.Context, o *owned, s *tiering.Sealer, log *slog.Logger) {
	if o.rollOwed() {
		o.rolls.wake()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.rolls.asked:
		}
		if o.rollOwed() {
			if err := s.Roll(ctx); err != nil {
				if ctx.Err() != nil {
					return // it stays owed: the next leader's
				}
				log.Warn("a roll was asked for and failed; it is tried again", "error", err)
				pause(ctx, rollAgain)
				o.rolls.wake()
				continue
			}
		}
		o.runner.RequestSnapshot() // trims
		b.archiver.ask(o.id)
	}
}

func (o *owned) rollOwed() bool {
	p, ok := o.set.SealPending()
	return o.rolls.owed(p.OldestIndex, ok)
}

// pause waits for d, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// rolled notes the roll configs of the topics that have changed, and tells
// whether one did.
func (b *Broker) rolled(d metadata.Dirty, seen map[metadata.TopicID]string) (changed bool) {
	look := func(t *metadata.Topic) {
		v := t.Config[rollKey]
		if v == seen[t.ID] {
			return
		}
		changed = true
		if seen[t.ID] = v; v == "" {
			delete(seen, t.ID)
		}
	}
	if d.All {
		for _, t := range b.view.Topics() {
			look(t)
		}
		return changed
	}
	for _, id := range d.Topics {
		if t := b.view.TopicByID(id); t != nil {
			look(t)
		} else {
			delete(seen, id)
		}
	}
	return changed
}
