package driver

import (
	"context"
	"errors"
	"fmt"
)

// groupCommit reads half of a topic in a group, commits, leaves, and expects
// the next member to get the other half.
func groupCommit(ctx context.Context, e *env) error {
	topic, group := e.topic("group-commit"), e.topic("group-commit-group")
	if err := e.CreateTopic(ctx, topic, 2, nil); err != nil {
		return err
	}
	sent := numbered(topic, 400, 2)
	first, rest := sent[:200], sent[200:]
	if err := send(ctx, e, ProducerOptions{Codec: "none"}, first); err != nil {
		return err
	}
	got, err := readAndCommit(ctx, e, group, topic, len(first))
	if err != nil {
		return err
	}
	for p := range int32(2) {
		have, err := e.Committed(ctx, group, topic, p)
		var na NotApplicable
		if errors.As(err, &na) {
			e.note("%s", na)
			break
		}
		if err != nil || have != 100 {
			return fmt.Errorf("partition %d: %d is committed, expected 100 (%w)", p, have, orNone(err))
		}
	}
	if err := send(ctx, e, ProducerOptions{Codec: "none"}, rest); err != nil {
		return err
	}
	more, err := readAndCommit(ctx, e, group, topic, len(rest))
	if err != nil {
		return fmt.Errorf("the second member: %w", err)
	}
	return sameInOrder(sent, append(got, more...))
}

func readAndCommit(ctx context.Context, e *env, group, topic string, n int) ([]Record, error) {
	c, err := e.Member(ctx, group, topic)
	if err != nil {
		return nil, err
	}
	got, err := collect(ctx, c, n)
	if err == nil {
		err = c.Commit(ctx)
	}
	return got, errors.Join(err, c.Close())
}

// groupRebalance has members come and go while records are sent, and expects
// that together they read all of them.
func groupRebalance(ctx context.Context, e *env) error {
	topic, group := e.topic("group-rebalance"), e.topic("group-rebalance-group")
	if err := e.CreateTopic(ctx, topic, 4, nil); err != nil {
		return err
	}
	l, err := startLoad(ctx, e, topic, 4)
	if err != nil {
		return err
	}
	defer l.stop()
	var members []*reading
	for i := range 3 {
		c, err := e.Member(ctx, group, topic)
		if err != nil {
			return err
		}
		r := startReading(ctx, c, true)
		defer r.stop()
		members = append(members, r)
		if err := r.more(ctx, stepRecords); err != nil {
			return fmt.Errorf("member %d: %w", i+1, err)
		}
	}
	if err := members[0].finish(); err != nil {
		return fmt.Errorf("the first member leaves: %w", err)
	}
	for i, r := range members[1:] {
		if err := r.more(ctx, stepRecords); err != nil {
			return fmt.Errorf("member %d, after the first one left: %w", i+2, err)
		}
	}
	l.finish()
	dropped := 0
	if d, ok := e.Client.(interface{ DroppedOnLeave() (int, string) }); ok {
		var why string
		dropped, why = d.DroppedOnLeave()
		e.note("%s", why)
	}
	if err := l.coversBut(ctx, dropped, members...); err != nil {
		return err
	}
	for _, r := range members[1:] {
		if err := r.finish(); err != nil {
			return err
		}
	}
	return nil
}

// group848 is groupRebalance in the group protocol of KIP-848, with two
// members: the brokers' heartbeat interval makes each change take seconds.
func group848(ctx context.Context, e *env) error {
	c, ok := e.Client.(interface {
		Member848(ctx context.Context, group, topic string) (Consumer, error)
	})
	if !ok {
		return NotApplicable("the client has no groups of KIP-848")
	}
	topic, group := e.topic("group-848"), e.topic("group-848-group")
	if err := e.CreateTopic(ctx, topic, 4, nil); err != nil {
		return err
	}
	l, err := startLoad(ctx, e, topic, 4)
	if err != nil {
		return err
	}
	defer l.stop()
	var members []*reading
	for i := range 2 {
		m, err := c.Member848(ctx, group, topic)
		if err != nil {
			return err
		}
		r := startReading(ctx, m, true)
		defer r.stop()
		members = append(members, r)
		if err := r.more(ctx, stepRecords); err != nil {
			return fmt.Errorf("member %d: %w", i+1, err)
		}
	}
	if err := members[0].finish(); err != nil {
		return fmt.Errorf("the first member leaves: %w", err)
	}
	if err := members[1].allOf(ctx, 4); err != nil {
		return fmt.Errorf("the second member, after the first one left: %w", err)
	}
	l.finish()
	if err := l.covers(ctx, members...); err != nil {
		return err
	}
	return members[1].finish()
}

// allOf waits until records of every partition are read from now on.
func (r *reading) allOf(ctx context.Context, partitions int) error {
	from := r.count()
	return waitFor(ctx, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if have := len(byPartition(r.got[from:])); have < partitions {
			return fmt.Errorf("records of %d partitions are read, expected %d (last error: %w)", have, partitions, orNone(r.last))
		}
		return nil
	})
}
