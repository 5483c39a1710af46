package broker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"thermocline/metadata"
)

const (
	// askAgain is the pause between two tries of a metadata store that is away.
	askAgain = 200 * time.Millisecond
	// sayAgain bounds how often a start that waits for it says so.
	sayAgain = 5 * time.Second
)

// untilAnswered repeats fn while the metadata store is away, as it is for a
// moment at each change of etcd's leader: a broker that starts just then
// waits. Any other error is returned at once.
func untilAnswered(ctx context.Context, log *slog.Logger, fn func(context.Context) error) error {
	tick := time.NewTicker(askAgain)
	defer tick.Stop()
	var said time.Time
	for {
		err := fn(ctx)
		if err == nil || !errors.Is(err, metadata.ErrUnavailable) {
			return err
		}
		if time.Since(said) >= sayAgain {
			log.Warn("the metadata store does not answer: the start waits for it", "error", err)
			said = time.Now()
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}
