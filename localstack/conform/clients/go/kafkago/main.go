// Command kafkago is the conformance driver of github.com/segmentio/kafka-go.
package main

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"thermocline/localstack/conform/clients/go/driver"
)

func main() { driver.Main(connect) }

type client struct {
	admin
	bootstrap []string
}

func connect(bootstrap []string) (driver.Client, error) {
	return &client{admin{&kafka.Client{Addr: kafka.TCP(bootstrap...), Timeout: 15 * time.Second}}, bootstrap}, nil
}

func (c *client) Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/segmentio/kafka-go" {
				return "kafka-go " + m.Version
			}
		}
	}
	return "kafka-go"
}

// NullHeaders: the value of a header is empty where it was null.
func (c *client) NullHeaders() bool { return false }

// NoEmptyKeys: what kafka-go reads as empty it gives as null.
func (c *client) NoEmptyKeys() string { return "kafka-go reads empty keys and values as nulls" }

var codecs = map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}

func (c *client) Producer(o driver.ProducerOptions) (driver.Producer, error) {
	if o.Idempotent {
		return nil, driver.NotApplicable("kafka-go has no idempotent producer")
	}
	w := &kafka.Writer{Addr: kafka.TCP(c.bootstrap...), Balancer: byWriterData{}, RequiredAcks: kafka.RequireAll,
		Compression: codecs[o.Codec], BatchTimeout: 5 * time.Millisecond, BatchSize: 500, MaxAttempts: 50,
		WriteBackoffMin: 50 * time.Millisecond, WriteBackoffMax: time.Second,
		Transport: &kafka.Transport{MetadataTTL: time.Second}}
	if o.MaxBytes > 0 {
		w.BatchBytes = int64(o.MaxBytes)
	}
	return producer{w}, nil
}

// byWriterData sends a message to the partition that it carries.
type byWriterData struct{}

func (byWriterData) Balance(m kafka.Message, _ ...int) int { return m.WriterData.(int) }

type producer struct{ w *kafka.Writer }

func (p producer) Send(ctx context.Context, records []driver.Record) error {
	var out []kafka.Message
	for _, r := range records {
		m := kafka.Message{Topic: r.Topic, Key: r.Key, Value: r.Value, Time: r.Timestamp, WriterData: int(r.Partition)}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		out = append(out, m)
	}
	return p.w.WriteMessages(ctx, out...)
}

func (p producer) Close() error { return p.w.Close() }

func record(m kafka.Message) driver.Record {
	r := driver.Record{Topic: m.Topic, Partition: int32(m.Partition), Offset: m.Offset, Key: m.Key, Value: m.Value, Timestamp: m.Time}
	for _, h := range m.Headers {
		if h.Value == nil {
			h.Value = []byte{} // kafka-go gives no other empty value
		}
		r.Headers = append(r.Headers, driver.Header{Key: h.Key, Value: h.Value})
	}
	return r
}

// reader is a kafka-go Reader per partition, or one of a group.
type reader struct {
	readers map[int]*kafka.Reader
	queue   chan kafka.Message
	pumps   map[int]func() // each stops one reader's pump and waits for it

	mu    sync.Mutex
	last  error
	taken map[int]kafka.Message
}

const queued = 1000

func newReader(ctx context.Context, configs map[int]kafka.ReaderConfig, from int64) (*reader, error) {
	r := &reader{readers: map[int]*kafka.Reader{}, pumps: map[int]func(){}, queue: make(chan kafka.Message, queued), taken: map[int]kafka.Message{}}
	for p, config := range configs {
		config.MinBytes, config.MaxBytes, config.MaxWait = 1, 10<<20, 100*time.Millisecond
		config.ReadBackoffMin, config.ReadBackoffMax = 50*time.Millisecond, 500*time.Millisecond
		k := kafka.NewReader(config)
		r.readers[p] = k
		if config.GroupID == "" {
			if err := k.SetOffset(from); err != nil {
				return nil, errors.Join(err, r.Close())
			}
		}
		r.start(ctx, p)
	}
	return r, nil
}

// start begins to fetch for Poll.
func (r *reader) start(ctx context.Context, p int) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var pump sync.WaitGroup
	pump.Go(func() { r.pump(ctx, r.readers[p]) })
	r.pumps[p] = func() {
		cancel()
		pump.Wait()
	}
}

// special offsets of kafka-go are the other way round.
func special(at int64) int64 {
	switch at {
	case driver.Earliest:
		return kafka.FirstOffset
	case driver.Latest:
		return kafka.LastOffset
	}
	return at
}

func (c *client) Reader(ctx context.Context, topic string, partitions []int32, from int64) (driver.Consumer, error) {
	configs := map[int]kafka.ReaderConfig{}
	for _, p := range partitions {
		configs[int(p)] = kafka.ReaderConfig{Brokers: c.bootstrap, Topic: topic, Partition: int(p)}
	}
	return newReader(ctx, configs, special(from))
}

func (c *client) Member(ctx context.Context, group, topic string) (driver.Consumer, error) {
	return newReader(ctx, map[int]kafka.ReaderConfig{-1: {Brokers: c.bootstrap, Topic: topic, GroupID: group, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 300 * time.Millisecond, SessionTimeout: 10 * time.Second, RebalanceTimeout: 10 * time.Second,
		JoinGroupBackoff: 200 * time.Millisecond, WatchPartitionChanges: false}}, 0)
}

func (r *reader) pump(ctx context.Context, k *kafka.Reader) {
	for ctx.Err() == nil {
		m, err := k.FetchMessage(ctx)
		if err != nil {
			r.mu.Lock()
			r.last = err
			r.mu.Unlock()
			if errors.Is(err, io.EOF) {
				return
			}
			continue
		}
		select {
		case r.queue <- m:
		case <-ctx.Done():
		}
	}
}

func (r *reader) Poll(ctx context.Context, wait time.Duration) ([]driver.Record, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var out []driver.Record
	take := func(m kafka.Message) {
		r.taken[m.Partition] = m
		out = append(out, record(m))
	}
	select {
	case m := <-r.queue:
		take(m)
	case <-timer.C:
		r.mu.Lock()
		defer r.mu.Unlock()
		err := r.last
		r.last = nil
		return nil, err
	case <-ctx.Done():
		return nil, nil
	}
	for {
		select {
		case m := <-r.queue:
			take(m)
		default:
			return out, nil
		}
	}
}

// Seek: what is queued, or on its way there, is of before.
func (r *reader) Seek(ctx context.Context, _ string, partition int32, to int64) error {
	r.pumps[int(partition)]()
	for len(r.queue) > 0 {
		<-r.queue
	}
	err := r.readers[int(partition)].SetOffset(special(to))
	r.start(ctx, int(partition))
	return err
}

const noPause = driver.NotApplicable("kafka-go cannot pause a partition")

func (r *reader) Pause(string, int32) error  { return noPause }
func (r *reader) Resume(string, int32) error { return noPause }

func (r *reader) Commit(ctx context.Context) error {
	k := r.readers[-1]
	var last []kafka.Message
	for _, m := range r.taken {
		last = append(last, m)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return k.CommitMessages(ctx, last...)
}

func (r *reader) Close() error {
	for _, stop := range r.pumps {
		stop()
	}
	var errs []error
	for _, k := range r.readers {
		errs = append(errs, k.Close())
	}
	return errors.Join(errs...)
}
