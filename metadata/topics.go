package metadata

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// updateAttempts bounds how often a read-modify-write is repeated when others
// write the same row in between.
const updateAttempts = 16

// GetTopic reads one topic from the store, not from a view.
func GetTopic(ctx context.Context, s Store, name string) (*Topic, error) {
	r, err := s.Get(ctx, topicKey(name))
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", name, err)
	}
	t, err := decodeTopic(r)
	if err != nil {
		return nil, err
	}
	if t.Name != name {
		return nil, fmt.Errorf("topic %s: %w", name, ErrNotFound)
	}
	return t, nil
}

// CreateTopic writes a new topic row and returns it with its revision. When
// the same call (same id) has been made before and its answer was lost, it
// succeeds again. The caller has checked name, placement and config.
func CreateTopic(ctx context.Context, s Store, t Topic) (*Topic, error) {
	if n := len(t.Shards); n == 0 || n > PartitionsMax {
		return nil, fmt.Errorf("topic %s: expected 1 to %d partitions, found %d: %w", t.Name, PartitionsMax, n, ErrTooLarge)
	}
	if n := len(t.Config); n > topicConfigMax {
		return nil, fmt.Errorf("topic %s: expected at most %d configs, found %d: %w", t.Name, topicConfigMax, n, ErrTooLarge)
	}
	key := topicKey(t.Name)
	rev, err := s.Commit(ctx, Txn{Guards: []Guard{{Key: key}}, Writes: []Write{{Key: key, Value: encodeTopic(&t)}}})
	if err == nil {
		t.Revision = rev
		return &t, nil
	}
	if !errors.Is(err, ErrFenced) {
		return nil, fmt.Errorf("create topic %s: %w", t.Name, err)
	}
	r, err := s.Get(ctx, key)
	if err != nil {
		// ErrNotFound here: created and deleted by others meanwhile.
		return nil, fmt.Errorf("create topic %s: %w", t.Name, err)
	}
	old, err := decodeTopic(r)
	switch {
	case err != nil:
		return nil, err
	case old.ID == t.ID:
		return old, nil
	case collides(old.Name, t.Name):
		return nil, fmt.Errorf("topic %s collides with topic %s: %w", t.Name, old.Name, ErrInvalidTopic)
	}
	return nil, fmt.Errorf("topic %s: %w", t.Name, ErrExists)
}

// UpdateTopic reads a topic, lets change edit a copy of it (config and
// partitions; change may be called more than once), and writes it, guarded.
func UpdateTopic(ctx context.Context, s Store, name string, change func(*Topic) error) (*Topic, error) {
	for range updateAttempts {
		old, err := GetTopic(ctx, s, name)
		if err != nil {
			return nil, err
		}
		t := *old
		t.Config = maps.Clone(old.Config)
		if t.Config == nil {
			t.Config = map[string]string{}
		}
		t.Shards = slices.Clone(old.Shards)
		if err := change(&t); err != nil {
			return nil, err
		}
		if len(t.Shards) < len(old.Shards) || len(t.Shards) > PartitionsMax {
			return nil, fmt.Errorf("topic %s: expected %d to %d partitions, found %d: %w", name, len(old.Shards), PartitionsMax, len(t.Shards), ErrTooLarge)
		}
		t.Name, t.ID, t.Created = old.Name, old.ID, old.Created
		key := topicKey(name)
		t.Revision, err = s.Commit(ctx, Txn{
			Guards: []Guard{{Key: key, Revision: old.Revision}},
			Writes: []Write{{Key: key, Value: encodeTopic(&t)}},
		})
		if err == nil {
			return &t, nil
		}
		if !errors.Is(err, ErrFenced) {
			return nil, fmt.Errorf("update topic %s: %w", name, err)
		}
	}
	return nil, fmt.Errorf("update topic %s: gave up after %d attempts: %w", name, updateAttempts, ErrFenced)
}

// DeleteTopic removes a topic's row and leaves a row below deleted/ that its
// shards work off with ReleaseDeleted. A zero id deletes whatever has the name.
func DeleteTopic(ctx context.Context, s Store, name string, id TopicID) (*Topic, int64, error) {
	for range updateAttempts {
		t, err := GetTopic(ctx, s, name)
		if err != nil {
			return nil, 0, err
		}
		if id != (TopicID{}) && t.ID != id {
			return nil, 0, fmt.Errorf("topic %s: expected id %s, found %s: %w", name, id, t.ID, ErrNotFound)
		}
		left := *t
		left.Config = nil
		left.Shards = distinct(t.Shards)
		rev, err := s.Commit(ctx, Txn{
			Guards: []Guard{{Key: topicKey(name), Revision: t.Revision}},
			Writes: []Write{{Key: topicKey(name), Delete: true}, {Key: deletedKey(t.ID), Value: encodeTopic(&left)}},
		})
		if err == nil {
			return t, rev, nil
		}
		if !errors.Is(err, ErrFenced) {
			return nil, 0, fmt.Errorf("delete topic %s: %w", name, err)
		}
	}
	return nil, 0, fmt.Errorf("delete topic %s: gave up after %d attempts: %w", name, updateAttempts, ErrFenced)
}

func distinct(shards []ShardID) []ShardID {
	out := slices.Clone(shards)
	slices.Sort(out)
	return slices.Compact(out)
}

// ReleaseDeleted tells that a shard holds no partition of a deleted topic any
// more, by a committed entry. The last shard removes the row.
func ReleaseDeleted(ctx context.Context, s Store, id TopicID, shard ShardID) error {
	key := deletedKey(id)
	for range updateAttempts {
		r, err := s.Get(ctx, key)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("release deleted topic %s: %w", id, err)
		}
		t, err := decodeTopic(r)
		if err != nil {
			return err
		}
		at := slices.Index(t.Shards, shard)
		if at < 0 {
			return nil
		}
		t.Shards = slices.Delete(t.Shards, at, at+1)
		w := Write{Key: key, Delete: true}
		if len(t.Shards) > 0 {
			w = Write{Key: key, Value: encodeTopic(t)}
		}
		_, err = s.Commit(ctx, Txn{Guards: []Guard{{Key: key, Revision: r.Modified}}, Writes: []Write{w}})
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrFenced) {
			return fmt.Errorf("release deleted topic %s: %w", id, err)
		}
	}
	return fmt.Errorf("release deleted topic %s: gave up after %d attempts: %w", id, updateAttempts, ErrFenced)
}
