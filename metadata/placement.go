package metadata

import (
	"context"
	"errors"
	"fmt"
)

// ShardsPerTxnMax bounds CreateShards: each shard takes a guard, and one is the fence.
const ShardsPerTxnMax = TxnOpsMax - 1

// CreateShards writes new shard rows in one transaction under the controller's
// fence. ErrFenced: no longer controller, or one of the shards exists.
func CreateShards(ctx context.Context, s Store, fence Guard, shards []Shard) (int64, error) {
	if len(shards) == 0 || len(shards) > ShardsPerTxnMax {
		return 0, fmt.Errorf("create shards: expected 1 to %d shards, found %d: %w", ShardsPerTxnMax, len(shards), ErrTooLarge)
	}
	t := Txn{Guards: []Guard{fence}}
	for i := range shards {
		key := shardKey(shards[i].ID)
		t.Guards = append(t.Guards, Guard{Key: key})
		t.Writes = append(t.Writes, Write{Key: key, Value: encodeShard(&shards[i])})
	}
	rev, err := s.Commit(ctx, t)
	if err != nil {
		return 0, fmt.Errorf("create %d shards: %w", len(shards), err)
	}
	return rev, nil
}

// GetShard reads a shard's row as it is now.
func GetShard(ctx context.Context, s Store, id ShardID) (*Shard, error) {
	r, err := s.Get(ctx, shardKey(id))
	if err != nil {
		return nil, fmt.Errorf("shard %d: %w", id, err)
	}
	return decodeShard(r)
}

// PlanReplacement writes a planned change into a shard's row, under the
// controller's fence. ErrFenced: no longer controller, or the row has changed.
func PlanReplacement(ctx context.Context, s Store, fence Guard, shard *Shard, p Replacement) error {
	planned := *shard
	planned.Replacing = &p
	return writeShard(ctx, s, &planned, fence)
}

// FinishReplacement makes a shard's planned change its present. Only who has
// seen Raft's configuration agree with Target may call it.
func FinishReplacement(ctx context.Context, s Store, shard *Shard) error {
	done := *shard
	done.Replicas, done.Replacing = shard.Target(), nil
	return writeShard(ctx, s, &done)
}

// writeShard replaces the row that shard was read from.
func writeShard(ctx context.Context, s Store, shard *Shard, guards ...Guard) error {
	key := shardKey(shard.ID)
	_, err := s.Commit(ctx, Txn{
		Guards: append(guards, Guard{Key: key, Revision: shard.Revision}),
		Writes: []Write{{Key: key, Value: encodeShard(shard)}},
	})
	if err != nil {
		return fmt.Errorf("shard %d: %w", shard.ID, err)
	}
	return nil
}

// WriteHint records who leads a shard. A hint of a lower term than the row's
// is ErrFenced; an equal one writes nothing. Callers limit the rate.
func WriteHint(ctx context.Context, s Store, h LeaderHint) error {
	return writeIfHigher(ctx, s, hintKey(h.Shard), encodeHint(h), func(r Row) (int, error) {
		old, err := decodeHint(r)
		if err != nil {
			return 0, err
		}
		if old == h {
			return 0, nil
		}
		// Two leaders cannot have one term; the same leader may correct itself.
		return compare(h.Term, old.Term, old.Broker == h.Broker), nil
	})
}

// WriteSnapshotPointer records the newest snapshot of a shard; an older one is ErrFenced.
func WriteSnapshotPointer(ctx context.Context, s Store, p SnapshotPointer) error {
	return writeIfHigher(ctx, s, snapshotKey(p.Shard), encodeSnapshot(p), func(r Row) (int, error) {
		old, err := decodeSnapshot(r)
		if err != nil {
			return 0, err
		}
		if old == p {
			return 0, nil
		}
		return compare(p.Index, old.Index, p.Term >= old.Term), nil
	})
}

// compare is 1 when next is above old, or equal and allowed to replace it.
func compare(next, old uint64, equalReplaces bool) int {
	if next > old || next == old && equalReplaces {
		return 1
	}
	return -1
}

// writeIfHigher writes a row unless the present one is newer (order < 0:
// ErrFenced) or the same (order 0: nothing to do).
func writeIfHigher(ctx context.Context, s Store, key string, value []byte, order func(Row) (int, error)) error {
	for range updateAttempts {
		r, err := s.Get(ctx, key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("row %s: %w", key, err)
		}
		if err == nil {
			o, err := order(r)
			if err != nil {
				return err
			}
			if o == 0 {
				return nil
			}
			if o < 0 {
				return fmt.Errorf("row %s has a newer content: %w", key, ErrFenced)
			}
		}
		_, err = s.Commit(ctx, Txn{Guards: []Guard{{Key: key, Revision: r.Modified}}, Writes: []Write{{Key: key, Value: value}}})
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrFenced) {
			return fmt.Errorf("row %s: %w", key, err)
		}
	}
	return fmt.Errorf("row %s: gave up after %d attempts: %w", key, updateAttempts, ErrFenced)
}
