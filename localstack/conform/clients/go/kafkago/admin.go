package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"thermocline/localstack/conform/clients/go/driver"
)

type admin struct{ cl *kafka.Client }

// joined puts an error and those of the answer's items together.
func joined[K comparable](err error, items map[K]error) error {
	errs := []error{err}
	for _, e := range items {
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

func (a admin) CreateTopic(ctx context.Context, topic string, partitions int32, config map[string]string) error {
	t := kafka.TopicConfig{Topic: topic, NumPartitions: int(partitions), ReplicationFactor: -1}
	for k, v := range config {
		t.ConfigEntries = append(t.ConfigEntries, kafka.ConfigEntry{ConfigName: k, ConfigValue: v})
	}
	r, err := a.cl.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{t}})
	if err != nil {
		return err
	}
	return joined(nil, r.Errors)
}

func (a admin) DeleteTopic(ctx context.Context, topic string) error {
	r, err := a.cl.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return joined(nil, r.Errors)
}

// metadata asks through a transport of its own: the default one answers from
// what it has cached for seconds.
func (a admin) metadata(ctx context.Context, topics ...string) (*kafka.MetadataResponse, error) {
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	fresh := &kafka.Client{Addr: a.cl.Addr, Timeout: a.cl.Timeout, Transport: transport}
	return fresh.Metadata(ctx, &kafka.MetadataRequest{Topics: topics})
}

func (a admin) Topics(ctx context.Context) ([]string, error) {
	r, err := a.metadata(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, t := range r.Topics {
		out = append(out, t.Name)
	}
	return out, nil
}

func (a admin) Partitions(ctx context.Context, topic string) (int, error) {
	r, err := a.metadata(ctx, topic)
	if err != nil {
		return 0, err
	}
	if len(r.Topics) != 1 || r.Topics[0].Error != nil {
		return 0, fmt.Errorf("topics: %v", r.Topics)
	}
	return len(r.Topics[0].Partitions), nil
}

func (a admin) AddPartitions(ctx context.Context, topic string, total int32) error {
	r, err := a.cl.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: total}}})
	if err != nil {
		return err
	}
	return joined(nil, r.Errors)
}

func (a admin) TopicConfig(ctx context.Context, topic string) (map[string]string, error) {
	r, err := a.cl.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}}})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, res := range r.Resources {
		if res.Error != nil {
			return nil, res.Error
		}
		for _, e := range res.ConfigEntries {
			out[e.ConfigName] = e.ConfigValue
		}
	}
	return out, nil
}

func (a admin) SetTopicConfig(ctx context.Context, topic, key, value string) error {
	r, err := a.cl.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, Configs: []kafka.IncrementalAlterConfigsRequestConfig{
			{Name: key, Value: value, ConfigOperation: kafka.ConfigOperationSet}}}}})
	if err != nil {
		return err
	}
	for _, res := range r.Resources {
		if res.Error != nil {
			return res.Error
		}
	}
	return nil
}

// Groups asks every broker: each lists those that it coordinates.
func (a admin) Groups(ctx context.Context) ([]string, error) {
	m, err := a.metadata(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, b := range m.Brokers {
		r, err := a.cl.ListGroups(ctx, &kafka.ListGroupsRequest{Addr: kafka.TCP(fmt.Sprintf("%s:%d", b.Host, b.Port))})
		if err != nil {
			return nil, err
		}
		if r.Error != nil {
			return nil, r.Error
		}
		for _, g := range r.Groups {
			out = append(out, g.GroupID)
		}
	}
	return out, nil
}

func (a admin) Group(ctx context.Context, group string) (string, int, error) {
	r, err := a.cl.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	if err != nil {
		return "", 0, err
	}
	g := r.Groups[0]
	return g.GroupState, len(g.Members), g.Error
}

func (a admin) Committed(ctx context.Context, group, topic string, partition int32) (int64, error) {
	r, err := a.cl.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: {int(partition)}}})
	if err != nil {
		return 0, err
	}
	if r.Error != nil {
		return 0, r.Error
	}
	for _, p := range r.Topics[topic] {
		if p.Partition == int(partition) {
			return p.CommittedOffset, p.Error
		}
	}
	return -1, nil
}

func (a admin) SetCommitted(ctx context.Context, group, topic string, partition int32, offset int64) error {
	r, err := a.cl.OffsetCommit(ctx, &kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1,
		Topics: map[string][]kafka.OffsetCommit{topic: {{Partition: int(partition), Offset: offset}}}})
	if err != nil {
		return err
	}
	for _, p := range r.Topics[topic] {
		if p.Error != nil {
			return p.Error
		}
	}
	return nil
}

func (a admin) DeleteGroup(ctx context.Context, group string) error {
	r, err := a.cl.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
	if err != nil {
		return err
	}
	return joined(nil, r.Errors)
}

func (a admin) Offset(ctx context.Context, topic string, partition int32, at int64) (int64, error) {
	ask := kafka.TimeOffsetOf(int(partition), time.UnixMilli(at))
	switch at {
	case driver.Earliest:
		ask = kafka.FirstOffsetOf(int(partition))
	case driver.Latest:
		ask = kafka.LastOffsetOf(int(partition))
	}
	r, err := a.cl.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {ask}}})
	if err != nil {
		return 0, err
	}
	for _, p := range r.Topics[topic] {
		if p.Error != nil {
			return 0, p.Error
		}
		switch at {
		case driver.Earliest:
			return p.FirstOffset, nil
		case driver.Latest:
			return p.LastOffset, nil
		}
		for offset := range p.Offsets {
			return offset, nil
		}
	}
	return -1, nil
}

func (a admin) DeleteRecords(context.Context, string, int32, int64) error {
	return driver.NotApplicable("kafka-go cannot delete records")
}
