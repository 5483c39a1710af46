package driver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// seekTimes looks offsets up by time and moves a reader about.
func seekTimes(ctx context.Context, e *env) error {
	topic := e.topic("seek-times")
	if err := e.CreateTopic(ctx, topic, 1, nil); err != nil {
		return err
	}
	sent := numbered(topic, 100, 1)
	base := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	for i := range sent {
		sent[i].Timestamp = base.Add(time.Duration(i) * time.Second)
	}
	if err := send(ctx, e, ProducerOptions{Codec: "none"}, sent); err != nil {
		return err
	}
	c, err := e.Reader(ctx, topic, []int32{0}, Earliest)
	if err != nil {
		return err
	}
	defer c.Close()
	got, err := collect(ctx, c, len(sent))
	if err != nil {
		return err
	}
	if err := lookups(ctx, e, topic, got); err != nil {
		return err
	}
	for _, to := range []int64{42, Earliest, 99} {
		if err := seekTo(ctx, c, topic, to); err != nil {
			return err
		}
	}
	return nil
}

// lookups asks for the offset of some records' times, as they were read back:
// some clients cannot set them.
func lookups(ctx context.Context, e *env, topic string, got []Record) error {
	for _, i := range []int{0, 10, 99} {
		at := got[i].Timestamp.UnixMilli()
		want := got[i].Offset
		for want > 0 && got[want-1].Timestamp.UnixMilli() >= at {
			want--
		}
		have, err := e.Offset(ctx, topic, 0, at)
		if err != nil {
			return err
		}
		if have != want {
			return fmt.Errorf("offset for time %d: %d, expected %d", at, have, want)
		}
	}
	have, err := e.Offset(ctx, topic, 0, got[99].Timestamp.Add(time.Hour).UnixMilli())
	if err != nil {
		return err
	}
	if have != -1 && have != 100 { // librdkafka turns none into the end
		return fmt.Errorf("offset for a time after the last record: %d, expected none", have)
	}
	return nil
}

func seekTo(ctx context.Context, c Consumer, topic string, to int64) error {
	if err := c.Seek(ctx, topic, 0, to); err != nil {
		return err
	}
	want := max(to, 0)
	for ctx.Err() == nil {
		got, err := c.Poll(ctx, time.Second)
		if err != nil {
			return fmt.Errorf("after seeking to %d: %w", to, err)
		}
		if len(got) > 0 {
			if got[0].Offset != want {
				return fmt.Errorf("after seeking to %d the next record is %d", to, got[0].Offset)
			}
			return nil
		}
	}
	return fmt.Errorf("nothing is read after seeking to %d: %w", to, ctx.Err())
}

func pauseResume(ctx context.Context, e *env) error {
	topic := e.topic("pause-resume")
	if err := e.CreateTopic(ctx, topic, 2, nil); err != nil {
		return err
	}
	c, err := e.Reader(ctx, topic, []int32{0, 1}, Earliest)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Pause(topic, 0); err != nil {
		return err
	}
	sent := numbered(topic, 400, 2)
	if err := send(ctx, e, ProducerOptions{Codec: "none"}, sent); err != nil {
		return err
	}
	got, err := collect(ctx, c, 200)
	if err != nil {
		return err
	}
	if n := len(byPartition(got)[0]); n > 0 {
		return fmt.Errorf("%d records of a paused partition were read", n)
	}
	if more, err := c.Poll(ctx, 500*time.Millisecond); err != nil || len(more) > 0 {
		return fmt.Errorf("%d records of a paused partition were read (%v)", len(more), err)
	}
	if err := c.Resume(topic, 0); err != nil {
		return err
	}
	rest, err := collect(ctx, c, 200)
	if err != nil {
		return fmt.Errorf("after the partition was resumed: %w", err)
	}
	return sameInOrder(sent, append(got, rest...))
}

// topicDeleted deletes a topic under its reader and makes it again.
func topicDeleted(ctx context.Context, e *env) error {
	topic := e.topic("topic-deleted")
	if err := e.CreateTopic(ctx, topic, 1, nil); err != nil {
		return err
	}
	if err := send(ctx, e, ProducerOptions{Codec: "none"}, numbered(topic, 100, 1)); err != nil {
		return err
	}
	c, err := e.Reader(ctx, topic, []int32{0}, Earliest)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := collect(ctx, c, 100); err != nil {
		return err
	}
	if err := e.DeleteTopic(ctx, topic); err != nil {
		return err
	}
	// The reader may be told, or may wait; it gets no records, and returns.
	for range 3 {
		got, err := c.Poll(ctx, 300*time.Millisecond)
		if len(got) > 0 {
			return fmt.Errorf("%d records of a deleted topic were read", len(got))
		}
		if err != nil {
			break
		}
	}
	if err := createAgain(ctx, e, topic); err != nil {
		return err
	}
	sent := numbered(topic, 10, 1)
	if err := send(ctx, e, ProducerOptions{Codec: "none"}, sent); err != nil {
		return fmt.Errorf("to the topic made again: %w", err)
	}
	got, err := readAll(ctx, e, topic, 1, len(sent))
	if err != nil {
		return fmt.Errorf("from the topic made again: %w", err)
	}
	return sameInOrder(sent, got)
}

// createAgain creates a topic whose deletion may still be under way, or which
// a client brought back by asking for it.
func createAgain(ctx context.Context, e *env, topic string) error {
	return until(ctx, func() error {
		err := e.CreateTopic(ctx, topic, 1, nil)
		if err != nil {
			_ = e.DeleteTopic(ctx, topic) // there may be none
		}
		return err
	})
}

// until tries until f succeeds; the error is its last.
func until(ctx context.Context, f func() error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for {
		err := f()
		var na NotApplicable
		if err == nil || errors.As(err, &na) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-limit.C:
			return err
		case <-tick.C:
		}
	}
}
