package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"thermocline/localstack/conform/clients/go/driver"
)

type admin struct {
	cl  sarama.Client
	adm sarama.ClusterAdmin
}

func (a admin) CreateTopic(_ context.Context, topic string, partitions int32, config map[string]string) error {
	entries := map[string]*string{}
	for k, v := range config {
		entries[k] = &v
	}
	return a.adm.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: -1, ConfigEntries: entries}, false)
}

func (a admin) DeleteTopic(_ context.Context, topic string) error { return a.adm.DeleteTopic(topic) }

func (a admin) Topics(context.Context) ([]string, error) {
	topics, err := a.adm.ListTopics()
	var out []string
	for t := range topics {
		out = append(out, t)
	}
	return out, err
}

func (a admin) Partitions(_ context.Context, topic string) (int, error) {
	topics, err := a.adm.DescribeTopics([]string{topic})
	if err != nil {
		return 0, err
	}
	if len(topics) != 1 || topics[0].Err != sarama.ErrNoError {
		return 0, fmt.Errorf("%d topics are described, %w", len(topics), topics[0].Err)
	}
	return len(topics[0].Partitions), nil
}

func (a admin) AddPartitions(_ context.Context, topic string, total int32) error {
	return a.adm.CreatePartitions(topic, total, nil, false)
}

func (a admin) TopicConfig(_ context.Context, topic string) (map[string]string, error) {
	entries, err := a.adm.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	out := map[string]string{}
	for _, e := range entries {
		out[e.Name] = e.Value
	}
	return out, err
}

func (a admin) SetTopicConfig(_ context.Context, topic, key, value string) error {
	return a.adm.IncrementalAlterConfig(sarama.TopicResource, topic,
		map[string]sarama.IncrementalAlterConfigsEntry{key: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}, false)
}

func (a admin) Groups(context.Context) ([]string, error) {
	groups, err := a.adm.ListConsumerGroups()
	var out []string
	for g := range groups {
		out = append(out, g)
	}
	return out, err
}

func (a admin) Group(_ context.Context, group string) (string, int, error) {
	groups, err := a.adm.DescribeConsumerGroups([]string{group})
	if err != nil {
		return "", 0, err
	}
	if groups[0].Err != sarama.ErrNoError {
		return "", 0, groups[0].Err
	}
	return groups[0].State, len(groups[0].Members), nil
}

func (a admin) Committed(_ context.Context, group, topic string, partition int32) (int64, error) {
	r, err := a.adm.ListConsumerGroupOffsets(group, map[string][]int32{topic: {partition}})
	if err != nil {
		return 0, err
	}
	b := r.GetBlock(topic, partition)
	if b == nil {
		return -1, nil
	}
	if b.Err != sarama.ErrNoError {
		return 0, b.Err
	}
	return b.Offset, nil
}

func (a admin) SetCommitted(_ context.Context, group, topic string, partition int32, offset int64) error {
	om, err := sarama.NewOffsetManagerFromClient(group, a.cl)
	if err != nil {
		return err
	}
	pom, err := om.ManagePartition(topic, partition)
	if err != nil {
		return errors.Join(err, om.Close())
	}
	pom.ResetOffset(offset, "")
	om.Commit()
	return errors.Join(pom.Close(), om.Close())
}

func (a admin) DeleteGroup(_ context.Context, group string) error {
	return a.adm.DeleteConsumerGroup(group)
}

func (a admin) Offset(_ context.Context, topic string, partition int32, at int64) (int64, error) {
	if at == driver.Earliest {
		at = sarama.OffsetOldest
	}
	if err := a.cl.RefreshMetadata(topic); err != nil {
		return 0, err
	}
	return a.cl.GetOffset(topic, partition, at)
}

func (a admin) DeleteRecords(_ context.Context, topic string, partition int32, before int64) error {
	return a.adm.DeleteRecords(topic, map[int32]int64{partition: before})
}
