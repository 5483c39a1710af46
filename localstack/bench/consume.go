package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Consumed is what came of reading a topic.
type Consumed struct {
	Records, Bytes int64
	Took           time.Duration
	CPU            float64
}

// MBps is megabytes of values per second.
func (c Consumed) MBps() float64 { return float64(c.Bytes) / 1e6 / c.Took.Seconds() }

// ConsumeTail reads about the newest n records of a topic with one client.
func ConsumeTail(ctx context.Context, seeds []string, topic string, n int64, pids []int) (Consumed, error) {
	each := n / partitions
	return consume(ctx, seeds, topic, kgo.NewOffset().AtEnd().Relative(-each), n*9/10, pids)
}

// Consume reads a whole topic once with one client and stops at n records.
func Consume(ctx context.Context, seeds []string, topic string, n int64, pids []int) (Consumed, error) {
	return consume(ctx, seeds, topic, kgo.NewOffset().AtStart(), n, pids)
}

func consume(ctx context.Context, seeds []string, topic string, from kgo.Offset, n int64, pids []int) (Consumed, error) {
	before, err := CPUSeconds(pids...)
	if err != nil {
		return Consumed{}, err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(from),
		kgo.FetchMaxBytes(64<<20), kgo.FetchMaxPartitionBytes(8<<20))
	if err != nil {
		return Consumed{}, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var c Consumed
	start := time.Now()
	for c.Records < n {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return c, fmt.Errorf("read %d of %d records of %s: %w", c.Records, n, topic, err)
		}
		for _, e := range fetches.Errors() {
			return c, fmt.Errorf("reading %s/%d: %w", e.Topic, e.Partition, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			c.Records++
			c.Bytes += int64(len(r.Key) + len(r.Value))
		})
	}
	c.Took = time.Since(start)
	after, err := CPUSeconds(pids...)
	c.CPU = after - before
	return c, err
}

// EndToEnd measures from handing a record to the producer until a consumer's
// poll returns it, at a fixed rate.
func EndToEnd(ctx context.Context, seeds []string, topic string, rate int, d time.Duration) (Delays, error) {
	reader, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	writer, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0))
	if err != nil {
		return nil, err
	}
	defer writer.Close()
	n := int(float64(rate) * d.Seconds())
	failed := make(chan error, 1)
	go func() { failed <- sendStamped(ctx, writer, n, rate) }()
	delays := make(Delays, 0, n)
	ctx, cancel := context.WithTimeout(ctx, d+time.Minute)
	defer cancel()
	for len(delays) < n {
		fetches := reader.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("bench: %d of %d records came back: %w", len(delays), n, err)
		}
		now := time.Now().UnixNano()
		fetches.EachRecord(func(r *kgo.Record) {
			delays = append(delays, time.Duration(now-int64(binary.BigEndian.Uint64(r.Value))))
		})
	}
	return delays, <-failed
}

func sendStamped(ctx context.Context, cl *kgo.Client, n, rate int) error {
	start := time.Now()
	for i := range n {
		if wait := time.Until(start.Add(time.Duration(float64(i) / float64(rate) * 1e9))); wait > 0 {
			time.Sleep(wait)
		}
		value := binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))
		cl.Produce(ctx, &kgo.Record{Value: value}, nil)
	}
	return cl.Flush(ctx)
}
