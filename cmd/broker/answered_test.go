package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"thermocline/metadata"
)

func TestStartWaitsForTheMetadataStore(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	away := fmt.Errorf("etcdserver: leader changed: %w", metadata.ErrUnavailable)
	tries := 0
	err := untilAnswered(t.Context(), log, func(context.Context) error {
		if tries++; tries < 3 {
			return away
		}
		return nil
	})
	if err != nil || tries != 3 {
		t.Errorf("after two refusals: %d tries, %v", tries, err)
	}
	tries = 0
	err = untilAnswered(t.Context(), log, func(context.Context) error { tries++; return metadata.ErrFenced })
	if !errors.Is(err, metadata.ErrFenced) || tries != 1 {
		t.Errorf("an answer that is an error: %d tries, %v", tries, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = untilAnswered(ctx, log, func(context.Context) error { cancel(); return away })
	if !errors.Is(err, context.Canceled) || !errors.Is(err, metadata.ErrUnavailable) {
		t.Errorf("ended while waiting: %v", err)
	}
}
