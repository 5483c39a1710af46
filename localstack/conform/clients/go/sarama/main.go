// Command sarama is the conformance driver of github.com/IBM/sarama.
package main

import (
	"context"
	"errors"
	"io"
	"log"
	"runtime/debug"
	"time"

	"github.com/IBM/sarama"

	"thermocline/localstack/conform/clients/go/driver"
)

func main() { driver.Main(connect) }

type client struct {
	admin
	bootstrap []string
}

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.ClientID = "conform"
	c.Metadata.AllowAutoTopicCreation = false
	c.Metadata.RefreshFrequency = 5 * time.Second
	c.Metadata.Retry.Backoff = 100 * time.Millisecond
	c.Metadata.Retry.Max = 30
	c.Admin.Retry.Backoff = 100 * time.Millisecond
	return c
}

func connect(bootstrap []string) (driver.Client, error) {
	sarama.Logger = log.New(io.Discard, "", 0)
	cl, err := sarama.NewClient(bootstrap, config())
	if err != nil {
		return nil, err
	}
	adm, err := sarama.NewClusterAdminFromClient(cl)
	return &client{admin{cl, adm}, bootstrap}, err
}

func (c *client) Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/IBM/sarama" {
				return "sarama " + m.Version
			}
		}
	}
	return "sarama"
}

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func (c *client) Producer(o driver.ProducerOptions) (driver.Producer, error) {
	cfg := config()
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Compression = codecs[o.Codec]
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	cfg.Producer.Return.Successes = true
	cfg.Producer.Return.Errors = true
	cfg.Producer.Retry.Max = 100
	cfg.Producer.Retry.Backoff = 100 * time.Millisecond
	if o.MaxBytes > 0 {
		cfg.Producer.MaxMessageBytes = o.MaxBytes
	}
	if o.Idempotent {
		cfg.Producer.Idempotent = true
		cfg.Net.MaxOpenRequests = 1
	}
	p, err := sarama.NewSyncProducer(c.bootstrap, cfg)
	return producer{p}, err
}

type producer struct{ p sarama.SyncProducer }

func encoder(b []byte) sarama.Encoder {
	if b == nil {
		return nil
	}
	return sarama.ByteEncoder(b)
}

func (p producer) Send(_ context.Context, records []driver.Record) error {
	var out []*sarama.ProducerMessage
	for _, r := range records {
		m := &sarama.ProducerMessage{Topic: r.Topic, Partition: r.Partition, Key: encoder(r.Key), Value: encoder(r.Value), Timestamp: r.Timestamp}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		out = append(out, m)
	}
	return p.p.SendMessages(out)
}

func (p producer) Close() error { return p.p.Close() }

// queue holds records on their way to Poll.
type queue chan driver.Record

func (q queue) Poll(ctx context.Context, wait time.Duration) ([]driver.Record, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var out []driver.Record
	select {
	case r := <-q:
		out = append(out, r)
	case <-timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, nil
	}
	for {
		select {
		case r := <-q:
			out = append(out, r)
		default:
			return out, nil
		}
	}
}

func record(m *sarama.ConsumerMessage) driver.Record {
	r := driver.Record{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Key: m.Key, Value: m.Value, Timestamp: m.Timestamp}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, driver.Header{Key: string(h.Key), Value: h.Value})
	}
	return r
}

// reader consumes partitions by hand.
type reader struct {
	queue
	consumer   sarama.Consumer
	partitions map[int32]*reading
}

// reading is one partition's consumer and the goroutine that drains it.
type reading struct {
	pc   sarama.PartitionConsumer
	stop chan struct{}
	done chan struct{}
}

func (c *client) Reader(_ context.Context, topic string, partitions []int32, from int64) (driver.Consumer, error) {
	consumer, err := sarama.NewConsumer(c.bootstrap, config())
	if err != nil {
		return nil, err
	}
	r := &reader{make(queue, 1000), consumer, map[int32]*reading{}}
	for _, p := range partitions {
		if err := r.start(topic, p, from); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

func (r *reader) start(topic string, partition int32, from int64) error {
	pc, err := r.consumer.ConsumePartition(topic, partition, from)
	if err != nil {
		return err
	}
	p := &reading{pc, make(chan struct{}), make(chan struct{})}
	r.partitions[partition] = p
	go func() {
		defer close(p.done)
		for m := range pc.Messages() {
			select {
			case r.queue <- record(m):
			case <-p.stop:
			}
		}
	}()
	return nil
}

func (p *reading) close() error {
	close(p.stop)
	err := p.pc.Close()
	<-p.done
	return err
}

func (r *reader) Seek(ctx context.Context, topic string, partition int32, to int64) error {
	if err := r.partitions[partition].close(); err != nil {
		return err
	}
	for len(r.queue) > 0 {
		<-r.queue
	}
	return r.start(topic, partition, to)
}

func (r *reader) Pause(topic string, partition int32) error {
	r.consumer.Pause(map[string][]int32{topic: {partition}})
	return nil
}

func (r *reader) Resume(topic string, partition int32) error {
	r.consumer.Resume(map[string][]int32{topic: {partition}})
	return nil
}

func (r *reader) Commit(context.Context) error { return nil }

func (r *reader) Close() error {
	var errs []error
	for _, p := range r.partitions {
		errs = append(errs, p.close())
	}
	return errors.Join(append(errs, r.consumer.Close())...)
}
