package metadata

import (
	"context"
	"fmt"
)

const (
	// CoordinatorSlots is how many coordinator slots a new cluster gets: over
	// any usual number of shards they are spread evenly, and one leader's share
	// of groups moves in small parts.
	CoordinatorSlots = 48
	// CoordinatorSlotsMax bounds the slots of a row.
	CoordinatorSlotsMax = 4096
)

type coordinatorsRow struct {
	V int `json:"v"`
	// Shards[i] is where slot i is.
	Shards []ShardID `json:"shards"`
}

func encodeCoordinators(shards []ShardID) []byte {
	return encodeJSON(coordinatorsRow{V: jsonVersion, Shards: shards})
}

func decodeCoordinators(r Row) ([]ShardID, error) {
	var row coordinatorsRow
	if err := decodeJSON(r, &row); err != nil {
		return nil, err
	}
	if n := len(row.Shards); n == 0 || n > CoordinatorSlotsMax {
		return nil, fmt.Errorf("row %s: expected 1 to %d slots, found %d: %w", r.Key, CoordinatorSlotsMax, n, ErrCorrupt)
	}
	for i, s := range row.Shards {
		if s == 0 {
			return nil, fmt.Errorf("row %s: slot %d: expected a shard from 1: %w", r.Key, i, ErrCorrupt)
		}
	}
	return row.Shards, nil
}

// CoordinatorSlot is the slot of a group or a transactional id among slots:
// their FNV-1a hash of 32 bits. It may never change while slots hold anything.
func CoordinatorSlot(key string, slots int) uint32 {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return h % uint32(slots)
}

// PlaceCoordinators spreads slots over the shards in rotation. The homes of a
// cluster's first shards rotate too, so that brokers get even shares.
func PlaceCoordinators(shards []*Shard, slots int) []ShardID {
	placed := make([]ShardID, slots)
	for i := range placed {
		placed[i] = shards[i%len(shards)].ID
	}
	return placed
}

// CreateCoordinators writes where the slots are, once for all time: what is in
// a slot would not move with it. ErrFenced: no longer controller, or the row
// exists.
func CreateCoordinators(ctx context.Context, s Store, fence Guard, shards []ShardID) (int64, error) {
	if n := len(shards); n == 0 || n > CoordinatorSlotsMax {
		return 0, fmt.Errorf("create coordinators: expected 1 to %d slots, found %d: %w", CoordinatorSlotsMax, n, ErrTooLarge)
	}
	rev, err := s.Commit(ctx, Txn{
		Guards: []Guard{fence, {Key: keyCoordinators}},
		Writes: []Write{{Key: keyCoordinators, Value: encodeCoordinators(shards)}},
	})
	if err != nil {
		return 0, fmt.Errorf("create %d coordinator slots: %w", len(shards), err)
	}
	return rev, nil
}

// CoordinatorSlots lists the shard of each coordinator slot; empty while the
// cluster is forming. The slice is shared: it is not to be changed.
func (v *View) CoordinatorSlots() []ShardID { return v.Cluster().Coordinators }
