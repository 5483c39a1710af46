package main

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestListingWaitsForALeaderThatDied(t *testing.T) {
	dead := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	unreachable := &kadm.ShardErrors{Name: "ListOffsets", Errs: []kadm.ShardError{{Err: dead}}}
	asked := 0
	_, err := listOffsetsUntil(t.Context(), func(context.Context) (kadm.ListedOffsets, error) {
		if asked++; asked < 3 {
			return nil, unreachable
		}
		return kadm.ListedOffsets{}, nil
	})
	if err != nil || asked != 3 {
		t.Errorf("a leader that is replaced: expected the third answer, found %v after %d", err, asked)
	}

	asked = 0
	_, err = listOffsetsUntil(t.Context(), func(context.Context) (kadm.ListedOffsets, error) {
		asked++
		return nil, kerr.UnknownTopicOrPartition
	})
	if !errors.Is(err, kerr.UnknownTopicOrPartition) || asked != 1 {
		t.Errorf("a topic that is not there: expected to be told at once, found %v after %d", err, asked)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = listOffsetsUntil(ctx, func(ctx context.Context) (kadm.ListedOffsets, error) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, unreachable
	})
	if !errors.Is(err, dead) {
		t.Errorf("no leader in time: expected the last error, found %v", err)
	}
}
