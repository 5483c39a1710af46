package metadata

import (
	"context"
	"errors"
	"fmt"
)

// storeMarkRow says which object store the cluster uses.
type storeMarkRow struct {
	V  int    `json:"v"`
	ID string `json:"id"`
}

func encodeStoreMark(id string) []byte {
	return encodeJSON(storeMarkRow{V: jsonVersion, ID: id})
}

func decodeStoreMark(r Row) (string, error) {
	var row storeMarkRow
	if err := decodeJSON(r, &row); err != nil {
		return "", err
	}
	if row.ID == "" {
		return "", fmt.Errorf("row %s: the store's id is empty: %w", r.Key, ErrCorrupt)
	}
	return row.ID, nil
}

// StoreMark returns the id in the marker of the cluster's object store, or ""
// when no broker has marked one yet.
func StoreMark(ctx context.Context, s Store) (string, error) {
	r, err := s.Get(ctx, keyStore)
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("the object store's mark: %w", err)
	}
	return decodeStoreMark(r)
}

// EnsureStoreMark notes id as that of the marker in the cluster's object store,
// unless one is noted already, and returns what is noted. Call it only when the
// marker is in the store: from then on a store without it is not the cluster's.
func EnsureStoreMark(ctx context.Context, s Store, id string) (string, error) {
	for range updateAttempts {
		known, err := StoreMark(ctx, s)
		if err != nil || known != "" {
			return known, err
		}
		_, err = s.Commit(ctx, Txn{
			Guards: []Guard{{Key: keyStore}},
			Writes: []Write{{Key: keyStore, Value: encodeStoreMark(id)}},
		})
		if err != nil && !errors.Is(err, ErrFenced) {
			return "", fmt.Errorf("the object store's mark: %w", err)
		}
	}
	return "", fmt.Errorf("the object store's mark: row came and went %d times: %w", updateAttempts, ErrFenced)
}
