// Command franz is the conformance driver of github.com/twmb/franz-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"thermocline/localstack/conform/clients/go/driver"
)

func main() { driver.Main(connect) }

type client struct {
	*admin
	seeds []string
}

func connect(bootstrap []string) (driver.Client, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return &client{&admin{kadm.NewClient(cl)}, bootstrap}, nil
}

func (c *client) Version() string { return "franz-go " + moduleVersion("github.com/twmb/franz-go") }

func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "unknown"
}

func (c *client) options(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{kgo.SeedBrokers(c.seeds...), kgo.MetadataMinAge(50 * time.Millisecond)}, more...)
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (c *client) Producer(o driver.ProducerOptions) (driver.Producer, error) {
	opts := c.options(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codecs[o.Codec]))
	if o.MaxBytes > 0 {
		opts = append(opts, kgo.ProducerBatchMaxBytes(int32(o.MaxBytes)))
	}
	if !o.Idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	return producer{cl}, nil
}

type producer struct{ cl *kgo.Client }

func (p producer) Send(ctx context.Context, records []driver.Record) error {
	var out []*kgo.Record
	for _, r := range records {
		k := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		out = append(out, k)
	}
	return p.cl.ProduceSync(ctx, out...).FirstErr()
}

func (p producer) Close() error {
	p.cl.Close()
	return nil
}

func offset(at int64) kgo.Offset {
	switch at {
	case driver.Earliest:
		return kgo.NewOffset().AtStart()
	case driver.Latest:
		return kgo.NewOffset().AtEnd()
	}
	return kgo.NewOffset().At(at)
}

func (c *client) Reader(_ context.Context, topic string, partitions []int32, from int64) (driver.Consumer, error) {
	at := map[int32]kgo.Offset{}
	for _, p := range partitions {
		at[p] = offset(from)
	}
	cl, err := kgo.NewClient(c.options(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: at}))...)
	if err != nil {
		return nil, err
	}
	return &consumer{cl: cl, admin: c.admin}, nil
}

func (c *client) Member(_ context.Context, group, topic string) (driver.Consumer, error) {
	return c.member(group, topic)
}

// Member848 joins in the protocol of KIP-848.
func (c *client) Member848(_ context.Context, group, topic string) (driver.Consumer, error) {
	return c.member(group, topic, kgo.ServerSideBalancer())
}

func (c *client) member(group, topic string, more ...kgo.Opt) (driver.Consumer, error) {
	cl, err := kgo.NewClient(c.options(append(more, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300*time.Millisecond), kgo.SessionTimeout(10*time.Second))...)...)
	if err != nil {
		return nil, err
	}
	return &consumer{cl: cl, admin: c.admin}, nil
}

type consumer struct {
	cl *kgo.Client
	*admin
}

func (c *consumer) Poll(ctx context.Context, wait time.Duration) ([]driver.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	fetches := c.cl.PollFetches(ctx)
	var out []driver.Record
	fetches.EachRecord(func(r *kgo.Record) {
		d := driver.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
		for _, h := range r.Headers {
			d.Headers = append(d.Headers, driver.Header{Key: h.Key, Value: h.Value})
		}
		out = append(out, d)
	})
	var errs []error
	fetches.EachError(func(t string, p int32, err error) {
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", t, p, err))
		}
	})
	return out, errors.Join(errs...)
}

// Seek resolves the special offsets first: SetOffsets takes real ones only.
func (c *consumer) Seek(ctx context.Context, topic string, partition int32, to int64) error {
	if to < 0 {
		at, err := c.Offset(ctx, topic, partition, to)
		if err != nil {
			return err
		}
		to = at
	}
	c.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: {partition: {Epoch: -1, Offset: to}}})
	return nil
}

func (c *consumer) Pause(topic string, partition int32) error {
	c.cl.PauseFetchPartitions(map[string][]int32{topic: {partition}})
	return nil
}

func (c *consumer) Resume(topic string, partition int32) error {
	c.cl.ResumeFetchPartitions(map[string][]int32{topic: {partition}})
	return nil
}

func (c *consumer) Commit(ctx context.Context) error { return c.cl.CommitUncommittedOffsets(ctx) }

func (c *consumer) Close() error {
	c.cl.Close()
	return nil
}
