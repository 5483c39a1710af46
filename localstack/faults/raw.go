package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/wal/batch"
)

// Raw requests, for tests that look at bytes. The client finds the leader.

// answerWithin bounds one raw request's answer.
const answerWithin = 20 * time.Second

func topicID(ctx context.Context, cl *kgo.Client, topic string) ([16]byte, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return [16]byte{}, err
	}
	return resp.Topics[0].TopicID, kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// Produce sends one batch as it is, with acks=all, and returns its base offset.
// Only a broker that says that it does not lead, and so has not written, is
// followed by another attempt.
func Produce(ctx context.Context, cl *kgo.Client, topic string, partition int32, b batch.Batch) (base int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	// The last error says more than that the time is over.
	_ = Until(ctx, "the leader takes a batch", func() error {
		base, err = produce(ctx, cl, topic, partition, b)
		if errors.Is(err, kerr.NotLeaderForPartition) {
			return err
		}
		return nil
	})
	return base, err
}

func produce(ctx context.Context, cl *kgo.Client, topic string, partition int32, b batch.Batch) (int64, error) {
	id, err := topicID(ctx, cl, topic)
	if err != nil {
		return 0, err
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, int32(answerWithin.Milliseconds()/2)
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic, id
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, b
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("faults: produce: expected one partition's answer, found %+v", resp)
	}
	p := resp.Topics[0].Partitions[0]
	return p.BaseOffset, kerr.ErrorForCode(p.ErrorCode)
}

// Fetch asks once for records from offset on and returns the stored bytes.
func Fetch(ctx context.Context, cl *kgo.Client, topic string, partition int32, offset int64, maxBytes int32, wait time.Duration) (records []byte, hw int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin+wait)
	defer cancel()
	id, err := topicID(ctx, cl, topic)
	if err != nil {
		return nil, 0, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = int32(wait.Milliseconds()), 1, maxBytes, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = topic, id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = partition, offset, maxBytes, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	// Fetch is not routed by the client's Request: it goes to the leader by hand.
	leader, err := leaderOf(ctx, cl, topic, partition)
	if err != nil {
		return nil, 0, err
	}
	answer, err := cl.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return nil, 0, err
	}
	resp := answer.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, 0, nil // nothing new within the wait
	}
	p := resp.Topics[0].Partitions[0]
	return p.RecordBatches, p.HighWatermark, kerr.ErrorForCode(p.ErrorCode)
}

func leaderOf(ctx context.Context, cl *kgo.Client, topic string, partition int32) (int32, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return -1, err
	}
	for _, p := range resp.Topics[0].Partitions {
		if p.Partition == partition {
			return p.Leader, kerr.ErrorForCode(p.ErrorCode)
		}
	}
	return -1, kerr.UnknownTopicOrPartition
}

// ListOffset asks the leader of a partition for the first record at or after a
// timestamp, or for a special offset.
func ListOffset(ctx context.Context, cl *kgo.Client, topic string, partition int32, timestamp int64) (offset, found int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.TimeoutMillis = -1, int32(answerWithin.Milliseconds())
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = partition, timestamp, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, 0, err
	}
	p := resp.Topics[0].Partitions[0]
	return p.Offset, p.Timestamp, kerr.ErrorForCode(p.ErrorCode)
}
