package controller

import (
	"context"
	"errors"
	"fmt"

	"thermocline/metadata"
)

// PlannedReplacement is a change of one replica that a shard's row should name.
type PlannedReplacement struct {
	Shard *metadata.Shard
	metadata.Replacement
}

// Replacements lists the changes that are due: where a broker is alive with
// another data directory than the one that a shard's row names, its replica
// went with the old one. A broker that returns with the old one after all takes
// its plan back: then the plan names it as Old and New, and what was done is
// undone. One replica of a shard is replaced at a time.
func Replacements(c *metadata.Cluster) []PlannedReplacement {
	var due []PlannedReplacement
	for _, s := range c.Shards {
		if p, ok := replacement(c, s); ok {
			due = append(due, PlannedReplacement{Shard: s, Replacement: p})
		}
	}
	return due
}

func replacement(c *metadata.Cluster, s *metadata.Shard) (metadata.Replacement, bool) {
	if p := s.Replacing; p != nil {
		b := c.Broker(p.New.Broker)
		again := b != nil && b.Alive && b.Replica != p.New.ID
		if again {
			return metadata.Replacement{Old: p.Old, New: metadata.Replica{ID: b.Replica, Broker: b.ID}}, true
		}
		return metadata.Replacement{}, false
	}
	for _, r := range s.Replicas {
		if b := c.Broker(r.Broker); b != nil && b.Alive && b.Replica != r.ID {
			return metadata.Replacement{Old: r, New: metadata.Replica{ID: b.Replica, Broker: b.ID}}, true
		}
	}
	return metadata.Replacement{}, false
}

// replace writes the plans that are due; the shards' leaders carry them out.
func (c *Controller) replace(ctx context.Context, cl *metadata.Cluster) error {
	var errs error
	for _, p := range Replacements(cl) {
		err := metadata.PlanReplacement(ctx, c.c.Store, c.fence, p.Shard, p.Replacement)
		switch {
		case err == nil:
			c.c.Logger.Info("controller: replica to be replaced", "shard", p.Shard.ID,
				"on", p.New.Broker, "old", p.Old.ID.String(), "new", p.New.ID.String())
		case !errors.Is(err, metadata.ErrFenced): // the view will tell what has changed
			errs = errors.Join(errs, fmt.Errorf("plan the replacement of a replica of shard %d: %w", p.Shard.ID, err))
		}
	}
	return errs
}
