package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"thermocline/cmd/config"
	"thermocline/tiering/object"
	"thermocline/tiering/object/storeurl"
)

// Stores is the object store, opened once for uploads and once for cold reads:
// each has a client, connections and limits of its own, and counts what passes.
type Stores struct {
	Uploads, Cold *object.Counted
}

const (
	// uploadConns bounds connections for uploads: the parts of a few segments.
	uploadConns = 16
	// checkWithin bounds the start-up check. A store that is away is no reason
	// not to start: produce and hot fetch need none.
	checkWithin = 20 * time.Second
)

// OpenStores opens store.url and tries what a broker relies on. What the store
// does wrong is an error that names it; a store that is away is a warning.
func OpenStores(ctx context.Context, c config.Config, log *slog.Logger) (*Stores, error) {
	uploads, err := storeurl.Open(ctx, c.StoreURL, object.Options{MaxConns: uploadConns})
	if err != nil {
		return nil, fmt.Errorf("store.url: %w", err)
	}
	cold, err := storeurl.Open(ctx, c.StoreURL, object.Options{MaxConns: c.ColdConns})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("store.url: %w", err), object.Close(uploads))
	}
	s := &Stores{Uploads: object.NewCounted(uploads), Cold: object.NewCounted(cold)}
	if err := s.check(ctx, log); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stores) check(ctx context.Context, log *slog.Logger) error {
	within, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	problems := errors.Join(object.SelfCheck(within, s.Uploads.Unwrap())...)
	switch {
	case problems == nil:
		return nil
	case ctx.Err() != nil: // the start was given up
		return ctx.Err()
	case errors.Is(problems, object.ErrUnavailable) || within.Err() != nil:
		log.Warn("the object store is away: records are kept in the log until it is back", "store", s.Uploads.String(), "error", problems)
		return nil
	default:
		return fmt.Errorf("store.url: %s does not do what a broker relies on:\n%w", s.Uploads, problems)
	}
}

// Close closes both.
func (s *Stores) Close() error {
	return errors.Join(object.Close(s.Uploads), object.Close(s.Cold))
}
