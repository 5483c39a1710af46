package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// produceRetries bounds how often a batch is tried: a few minutes with the
// client's back-off.
const produceRetries = 100

// maxBuffered bounds the records between the input and the brokers.
const maxBuffered = 50_000

type produceOptions struct {
	input       inputFormat
	headers     []string
	compression string
	acks        string
	partition   int32
	rate        float64
	idempotent  bool
	quiet       bool
}

func produceCommand() *cobra.Command {
	c := &cluster{}
	var o produceOptions
	cmd := &cobra.Command{
		Use:   "produce TOPIC [FILE…]",
		Short: "Publish lines or JSON objects from files or standard input",
		Example: `  thermocline produce flights < events.txt
  thermocline produce flights --input json --key-field origin --timestamp-field date flights.json
  thermocline produce logs --key-separator : --compression zstd --acks all app.log`,
		Args: namesOf("topic", "flights"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.input.hasNull = cmd.Flags().Changed("null-value")
			return o.run(cmd, c, args[0], args[1:])
		},
	}
	c.addFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&o.input.kind, "input", "lines", "lines (a record each) or json (objects, or one array of them)")
	f.StringVar(&o.input.keySeparator, "key-separator", "", "with lines: what separates the key from the value")
	f.StringVar(&o.input.keyField, "key-field", "", "with json: the field that holds the key")
	f.StringVar(&o.input.timestampField, "timestamp-field", "", "with json: the field that holds the event's time")
	f.StringVar(&o.input.timestampForm, "timestamp-format", "", "Go layout of that field (2006-01-02 15:04); by default ISO dates and epoch milliseconds are understood")
	f.StringVar(&o.input.nullValue, "null-value", "", "a value equal to this is published as null (a tombstone)")
	f.StringArrayVarP(&o.headers, "header", "H", nil, "header key=value on every record; may be repeated")
	f.StringVarP(&o.compression, "compression", "z", "none", "none, gzip, snappy, lz4 or zstd")
	f.StringVarP(&o.acks, "acks", "a", "all", "all (a quorum has fsynced), 1 (the leader has) or 0 (do not ask)")
	f.Int32Var(&o.partition, "partition", -1, "publish to this partition only (-1: by key, or spread)")
	f.Float64Var(&o.rate, "rate", 0, "records per second at most (0: as fast as they are acknowledged)")
	f.BoolVar(&o.idempotent, "idempotence", true, "number the records, so that a retry never writes one twice (needs acks all)")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no progress, no summary")
	return cmd
}

func (o *produceOptions) run(cmd *cobra.Command, c *cluster, topic string, files []string) error {
	if err := o.input.check(); err != nil {
		return err
	}
	opts, err := o.clientOptions(topic)
	if err != nil {
		return err
	}
	headers, err := parseHeaders(o.headers)
	if err != nil {
		return err
	}
	cl, err := c.client(cmd.Context(), opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	p := newPublisher(cmd.Context(), cl, headers, o.partition, o.rate)
	defer p.progress(cmd.ErrOrStderr(), o.quiet)()
	for _, r := range inputs(files, cmd.InOrStdin()) {
		if err := r.each(o.input, p.publish); err != nil {
			if first := p.flush(); first != nil {
				return first // why the input was not read on
			}
			p.fail(err)
			return err
		}
	}
	return p.flush()
}

func (o *produceOptions) clientOptions(topic string) ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.DefaultProduceTopic(topic),
		kgo.AllowAutoTopicCreation(), // as Kafka's own console producer; the brokers decide
		kgo.MaxBufferedRecords(maxBuffered),
		kgo.ProducerLinger(5 * time.Millisecond),
		// By count: the client's own time limit counts from the record's
		// timestamp, which here may be years ago.
		kgo.RecordRetries(produceRetries),
	}
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, ok := codecs[o.compression]
	if !ok {
		return nil, fmt.Errorf("--compression is none, gzip, snappy, lz4 or zstd, not %q", o.compression)
	}
	opts = append(opts, kgo.ProducerBatchCompression(codec))
	switch o.acks {
	case "all", "-1":
		opts = append(opts, kgo.RequiredAcks(kgo.AllISRAcks()))
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, fmt.Errorf("--acks is all, 1 or 0, not %q", o.acks)
	}
	if !o.idempotent && (o.acks == "all" || o.acks == "-1") {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	if o.partition >= 0 {
		return append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner())), nil
	}
	return append(opts, kgo.RecordPartitioner(newSpreading())), nil
}

// namedInput is one source of records; open is called when its turn comes.
type namedInput struct {
	name string
	open func() (io.ReadCloser, error)
}

func inputs(files []string, stdin io.Reader) []namedInput {
	if len(files) == 0 {
		files = []string{"-"}
	}
	out := make([]namedInput, len(files))
	for i, f := range files {
		out[i] = namedInput{f, func() (io.ReadCloser, error) { return os.Open(f) }}
		if f == "-" {
			out[i] = namedInput{"standard input", func() (io.ReadCloser, error) { return io.NopCloser(stdin), nil }}
		}
	}
	return out
}

func (n namedInput) each(f inputFormat, emit func(event) error) error {
	r, err := n.open()
	if err != nil {
		return err
	}
	defer r.Close()
	if err := f.read(r, emit); err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	return nil
}

func parseHeaders(list []string) ([]kgo.RecordHeader, error) {
	var out []kgo.RecordHeader
	for _, h := range list {
		k, v, ok := strings.Cut(h, "=")
		if !ok {
			return nil, fmt.Errorf("write --header key=value, not %q", h)
		}
		out = append(out, kgo.RecordHeader{Key: k, Value: []byte(v)})
	}
	return out, nil
}

// publisher sends events and keeps the first failure: nothing after it counts
// as published in order.
type publisher struct {
	ctx       context.Context
	client    *kgo.Client
	headers   []kgo.RecordHeader
	partition int32
	rate      float64
	start     time.Time
	sent      int64
	acked     atomic.Int64
	bytes     atomic.Int64
	mu        sync.Mutex
	failed    error
}

func newPublisher(ctx context.Context, cl *kgo.Client, headers []kgo.RecordHeader, partition int32, rate float64) *publisher {
	return &publisher{ctx: ctx, client: cl, headers: headers, partition: partition, rate: rate, start: time.Now()}
}

func (p *publisher) publish(e event) error {
	if err := p.failure(); err != nil {
		return err
	}
	if err := p.pace(); err != nil {
		return err
	}
	p.sent++
	r := &kgo.Record{Key: e.key, Value: e.value, Timestamp: e.timestamp, Headers: p.headers, Partition: max(p.partition, 0)}
	p.client.Produce(p.ctx, r, func(r *kgo.Record, err error) {
		if err != nil {
			p.fail(err)
			return
		}
		p.acked.Add(1)
		p.bytes.Add(int64(len(r.Key) + len(r.Value)))
	})
	return nil
}

// pace waits until the next record is due under --rate.
func (p *publisher) pace() error {
	if p.rate <= 0 {
		return nil
	}
	due := p.start.Add(time.Duration(float64(p.sent) / p.rate * float64(time.Second)))
	wait := time.Until(due)
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

func (p *publisher) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
	}
}

func (p *publisher) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

func (p *publisher) flush() error {
	if err := p.client.Flush(p.ctx); err != nil {
		return err
	}
	if err := p.failure(); err != nil {
		return fmt.Errorf("%d of %d records were acknowledged, then: %w%s", p.acked.Load(), p.sent, refused(err, ""), hint(err))
	}
	return nil
}

// progress reports once a second on a terminal, and a summary at the end.
func (p *publisher) progress(w io.Writer, quiet bool) (stop func()) {
	if quiet {
		return func() {}
	}
	return reportProgress(w, func(final bool) string {
		secs := max(time.Since(p.start).Seconds(), 1e-9)
		n, b := p.acked.Load(), float64(p.bytes.Load())
		verb := "publishing"
		if final {
			verb = "published"
			if n == 0 && p.failure() != nil {
				return "" // the error says it
			}
		}
		return fmt.Sprintf("%s %d records, %.1f MB, %.0f records/s, %.1f MB/s", verb, n, b/1e6, float64(n)/secs, b/1e6/secs)
	})
}

// hint says what to do about the errors that people meet first.
func hint(err error) string {
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return " (create it with: thermocline topic create TOPIC)"
	case errors.Is(err, kerr.InvalidRecord):
		return " (records of a compacted topic need keys; timestamps must lie within message.timestamp.before.max.ms and .after.max.ms)"
	case errors.Is(err, kerr.MessageTooLarge):
		return " (the topic's max.message.bytes is the limit)"
	}
	return ""
}
