package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// possible runs a step; one that the client has no means for becomes a note.
func possible(e *env, step func() error) error {
	err := step()
	var na NotApplicable
	if errors.As(err, &na) {
		e.note("%s", na)
		return nil
	}
	return err
}

func adminTopics(ctx context.Context, e *env) error {
	topic := e.topic("admin-topics")
	if err := e.CreateTopic(ctx, topic, 3, map[string]string{"retention.ms": "7200000"}); err != nil {
		return err
	}
	if err := partitionsAre(ctx, e, topic, 3); err != nil {
		return err
	}
	if err := e.CreateTopic(ctx, topic, 3, nil); err == nil {
		return errors.New("a topic that exists was created again")
	}
	if err := e.CreateTopic(ctx, topic+"/bad name", 1, nil); err == nil {
		return errors.New("a topic with an invalid name was created")
	}
	if err := listed(ctx, e, topic, true); err != nil {
		return err
	}
	err := possible(e, func() error {
		if err := e.AddPartitions(ctx, topic, 5); err != nil {
			return err
		}
		return partitionsAre(ctx, e, topic, 5)
	})
	if err != nil {
		return err
	}
	if err := e.DeleteTopic(ctx, topic); err != nil {
		return err
	}
	if err := listed(ctx, e, topic, false); err != nil {
		return err
	}
	if err := e.DeleteTopic(ctx, topic); err == nil {
		return errors.New("a topic that does not exist was deleted")
	}
	return nil
}

// partitionsAre waits until all brokers' metadata may tell of a change.
func partitionsAre(ctx context.Context, e *env, topic string, want int) error {
	return until(ctx, func() error {
		n, err := e.Partitions(ctx, topic)
		if err == nil && n != want {
			err = fmt.Errorf("%d partitions are described, expected %d", n, want)
		}
		return err
	})
}

func listed(ctx context.Context, e *env, topic string, want bool) error {
	return until(ctx, func() error {
		topics, err := e.Topics(ctx)
		if err == nil && slices.Contains(topics, topic) != want {
			err = fmt.Errorf("topic listed: %v, expected %v", !want, want)
		}
		return err
	})
}

func adminConfigs(ctx context.Context, e *env) error {
	topic := e.topic("admin-configs")
	if err := e.CreateTopic(ctx, topic, 1, map[string]string{"retention.ms": "7200000"}); err != nil {
		return err
	}
	is := func(key, want string) error {
		return until(ctx, func() error {
			config, err := e.TopicConfig(ctx, topic)
			if err == nil && config[key] != want {
				err = fmt.Errorf("%s is %q, expected %q", key, config[key], want)
			}
			return err
		})
	}
	if err := is("retention.ms", "7200000"); err != nil {
		return err
	}
	if err := is("cleanup.policy", "delete"); err != nil {
		return err
	}
	if err := e.SetTopicConfig(ctx, topic, "retention.ms", "3600000"); err != nil {
		return err
	}
	if err := is("retention.ms", "3600000"); err != nil {
		return err
	}
	if err := e.SetTopicConfig(ctx, topic, "retention.ms", "soon"); err == nil {
		return errors.New("retention.ms was set to a word")
	}
	if err := e.CreateTopic(ctx, topic+"-bad", 1, map[string]string{"no.such.config": "1"}); err == nil {
		return errors.New("a topic with an unknown config was created")
	}
	return is("retention.ms", "3600000")
}

func adminGroups(ctx context.Context, e *env) error {
	topic, group := e.topic("admin-groups"), e.topic("admin-groups-group")
	if err := e.CreateTopic(ctx, topic, 1, nil); err != nil {
		return err
	}
	sent := numbered(topic, 50, 1)
	if err := send(ctx, e, ProducerOptions{Codec: "none"}, sent); err != nil {
		return err
	}
	// Whether the client has an admin side for groups is known without one.
	if _, err := e.Groups(ctx); err != nil {
		return err
	}
	c, err := e.Member(ctx, group, topic)
	if err != nil {
		return err
	}
	_, err = collect(ctx, c, len(sent))
	if err == nil {
		err = c.Commit(ctx)
	}
	if err == nil {
		err = groupIs(ctx, e, group, "Stable", 1)
	}
	if err == nil && !refusesDeletion(ctx, e, group) {
		err = errors.New("a group with a member was deleted")
	}
	if err := errors.Join(err, c.Close()); err != nil {
		return err
	}
	return emptyGroup(ctx, e, group, topic)
}

// refusesDeletion: true as well where the client cannot delete groups.
func refusesDeletion(ctx context.Context, e *env, group string) bool {
	return e.DeleteGroup(ctx, group) != nil
}

// emptyGroup goes on after the group's only member has left.
func emptyGroup(ctx context.Context, e *env, group, topic string) error {
	if err := groupIs(ctx, e, group, "Empty", 0); err != nil {
		return err
	}
	err := possible(e, func() error {
		if err := e.SetCommitted(ctx, group, topic, 0, 20); err != nil {
			return err
		}
		at, err := e.Committed(ctx, group, topic, 0)
		if err == nil && at != 20 {
			err = fmt.Errorf("offset %d is committed, 20 was set", at)
		}
		return err
	})
	if err != nil {
		return err
	}
	return possible(e, func() error {
		if err := e.DeleteGroup(ctx, group); err != nil {
			return err
		}
		groups, err := e.Groups(ctx)
		if err == nil && slices.Contains(groups, group) {
			err = errors.New("a deleted group is listed")
		}
		return err
	})
}

func groupIs(ctx context.Context, e *env, group, state string, members int) error {
	groups, err := e.Groups(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(groups, group) {
		return fmt.Errorf("group %s is not listed", group)
	}
	return until(ctx, func() error {
		have, n, err := e.Group(ctx, group)
		if err == nil && (have != state || n != members) {
			err = fmt.Errorf("the group is %s with %d members, expected %s with %d", have, n, state, members)
		}
		return err
	})
}

func adminOffsets(ctx context.Context, e *env) error {
	topic := e.topic("admin-offsets")
	if err := e.CreateTopic(ctx, topic, 1, nil); err != nil {
		return err
	}
	if err := offsetsAre(ctx, e, topic, 0, 0); err != nil {
		return err
	}
	if err := send(ctx, e, ProducerOptions{Codec: "none"}, numbered(topic, 50, 1)); err != nil {
		return err
	}
	if err := offsetsAre(ctx, e, topic, 0, 50); err != nil {
		return err
	}
	return possible(e, func() error {
		if err := e.DeleteRecords(ctx, topic, 0, 10); err != nil {
			return err
		}
		if err := offsetsAre(ctx, e, topic, 10, 50); err != nil {
			return err
		}
		got, err := readAll(ctx, e, topic, 1, 40)
		if err == nil && got[0].Offset != 10 {
			err = fmt.Errorf("the first record read is %d, expected 10", got[0].Offset)
		}
		return err
	})
}

func offsetsAre(ctx context.Context, e *env, topic string, first, next int64) error {
	for at, want := range map[int64]int64{Earliest: first, Latest: next} {
		have, err := e.Offset(ctx, topic, 0, at)
		if err != nil {
			return err
		}
		if have != want {
			return fmt.Errorf("offset for %d: %d, expected %d", at, have, want)
		}
	}
	return nil
}
