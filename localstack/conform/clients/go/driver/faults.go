package driver

import (
	"context"
	"fmt"
)

// fault asks the runner to kill or move a leader while records are sent and
// read, and goes on through its end and its return.
func fault(what, name string) func(context.Context, *env) error {
	return func(ctx context.Context, e *env) error {
		topic := e.topic(name)
		if err := e.CreateTopic(ctx, topic, 3, nil); err != nil {
			return err
		}
		c, err := e.Reader(ctx, topic, upTo(3), Earliest)
		if err != nil {
			return err
		}
		r := startReading(ctx, c, false)
		defer r.stop()
		l, err := startLoad(ctx, e, topic, 3)
		if err != nil {
			return err
		}
		defer l.stop()
		if err := through(ctx, e, question{Ask: what, Topic: topic}, l, r); err != nil {
			return err
		}
		l.finish()
		if err := l.covers(ctx, r); err != nil {
			return err
		}
		if err := r.finish(); err != nil {
			return err
		}
		return l.once(r)
	}
}

// stepRecords are sent and read before something happens, and after it.
const stepRecords = 30

// through has the runner do something, and sees records sent and read before,
// while the broker is away, and after it is back.
func through(ctx context.Context, e *env, q question, l *load, r *reading) error {
	step := func(when string) error {
		if err := l.more(ctx, stepRecords); err != nil {
			return fmt.Errorf("%s: %w", when, err)
		}
		if err := r.more(ctx, stepRecords); err != nil {
			return fmt.Errorf("%s: %w", when, err)
		}
		return nil
	}
	if err := step("before"); err != nil {
		return err
	}
	if err := e.ask(q); err != nil {
		return err
	}
	if err := step("while a broker is away"); err != nil {
		return err
	}
	if err := e.ask(question{Ask: "restore"}); err != nil {
		return err
	}
	return step("after it is back")
}

// coordinatorKilled kills the broker that coordinates a group at work.
func coordinatorKilled(ctx context.Context, e *env) error {
	topic, group := e.topic("coordinator-killed"), e.topic("coordinator-killed-group")
	if err := e.CreateTopic(ctx, topic, 3, nil); err != nil {
		return err
	}
	c, err := e.Member(ctx, group, topic)
	if err != nil {
		return err
	}
	r := startReading(ctx, c, true)
	defer r.stop()
	l, err := startLoad(ctx, e, topic, 3)
	if err != nil {
		return err
	}
	defer l.stop()
	if err := through(ctx, e, question{Ask: "kill-coordinator", Group: group, Topic: topic}, l, r); err != nil {
		return err
	}
	l.finish()
	if err := l.covers(ctx, r); err != nil {
		return err
	}
	return r.finish()
}
