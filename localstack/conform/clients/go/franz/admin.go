package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"

	"thermocline/localstack/conform/clients/go/driver"
)

type admin struct{ adm *kadm.Client }

func (a *admin) CreateTopic(ctx context.Context, topic string, partitions int32, config map[string]string) error {
	set := map[string]*string{}
	for k, v := range config {
		set[k] = &v
	}
	r, err := a.adm.CreateTopic(ctx, partitions, -1, set, topic)
	return errors.Join(err, r.Err)
}

func (a *admin) DeleteTopic(ctx context.Context, topic string) error {
	r, err := a.adm.DeleteTopic(ctx, topic)
	return errors.Join(err, r.Err)
}

func (a *admin) Topics(ctx context.Context) ([]string, error) {
	topics, err := a.adm.ListTopics(ctx)
	return topics.Names(), err
}

func (a *admin) Partitions(ctx context.Context, topic string) (int, error) {
	topics, err := a.adm.ListTopics(ctx, topic)
	if err != nil {
		return 0, err
	}
	return len(topics[topic].Partitions), topics[topic].Err
}

func (a *admin) AddPartitions(ctx context.Context, topic string, total int32) error {
	r, err := a.adm.UpdatePartitions(ctx, int(total), topic)
	if err != nil {
		return err
	}
	return r.Error()
}

func (a *admin) TopicConfig(ctx context.Context, topic string) (map[string]string, error) {
	all, err := a.adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	one, err := all.On(topic, nil)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, c := range one.Configs {
		out[c.Key] = c.MaybeValue()
	}
	return out, one.Err
}

func (a *admin) SetTopicConfig(ctx context.Context, topic, key, value string) error {
	all, err := a.adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	if err != nil {
		return err
	}
	one, err := all.On(topic, nil)
	return errors.Join(err, one.Err)
}

func (a *admin) Groups(ctx context.Context) ([]string, error) {
	groups, err := a.adm.ListGroups(ctx)
	return groups.Groups(), err
}

func (a *admin) Group(ctx context.Context, group string) (string, int, error) {
	all, err := a.adm.DescribeGroups(ctx, group)
	if err != nil {
		return "", 0, err
	}
	one, err := all.On(group, nil)
	return one.State, len(one.Members), errors.Join(err, one.Err)
}

func (a *admin) Committed(ctx context.Context, group, topic string, partition int32) (int64, error) {
	all, err := a.adm.FetchOffsets(ctx, group)
	if err != nil {
		return 0, err
	}
	o, ok := all.Lookup(topic, partition)
	if !ok {
		return -1, nil
	}
	return o.At, o.Err
}

func (a *admin) SetCommitted(ctx context.Context, group, topic string, partition int32, offset int64) error {
	var set kadm.Offsets
	set.AddOffset(topic, partition, offset, -1)
	return a.adm.CommitAllOffsets(ctx, group, set)
}

func (a *admin) DeleteGroup(ctx context.Context, group string) error {
	r, err := a.adm.DeleteGroup(ctx, group)
	return errors.Join(err, r.Err)
}

func (a *admin) Offset(ctx context.Context, topic string, partition int32, at int64) (int64, error) {
	var all kadm.ListedOffsets
	var err error
	switch at {
	case driver.Earliest:
		all, err = a.adm.ListStartOffsets(ctx, topic)
	case driver.Latest:
		all, err = a.adm.ListEndOffsets(ctx, topic)
	default:
		all, err = a.adm.ListOffsetsAfterMilli(ctx, at, topic)
	}
	if err != nil {
		return 0, err
	}
	o, ok := all.Lookup(topic, partition)
	if !ok {
		return 0, fmt.Errorf("no answer for %s[%d]", topic, partition)
	}
	return o.Offset, o.Err
}

func (a *admin) DeleteRecords(ctx context.Context, topic string, partition int32, before int64) error {
	var to kadm.Offsets
	to.AddOffset(topic, partition, before, -1)
	r, err := a.adm.DeleteRecords(ctx, to)
	if err != nil {
		return err
	}
	return r.Error()
}
