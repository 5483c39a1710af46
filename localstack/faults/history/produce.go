package history

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Load is what producers do until they are stopped.
type Load struct {
	Bootstrap  []string
	Topic      string
	Partitions int32
	// Producers is how many clients run, each with its own producer id.
	Producers int
	// First is the number of the first producer: loads that share a recorder
	// must not share numbers.
	First int32
	// ValueBytes is the size of each value.
	ValueBytes int
	// Rate bounds each producer's records per second; 0: full speed.
	Rate int
	// Max bounds each producer's records; 0: none.
	Max int
	// Skip names a partition that gets nothing; -1 or unset topic-wide: use NoSkip.
	Skip int32
	// Options are added to each client's.
	Options []kgo.Opt
}

// NoSkip makes a load use every partition.
const NoSkip = int32(-1)

// maxBuffered bounds each producer's records under way: enough for full
// batches to 12 partitions, small enough to end soon after Stop.
const maxBuffered = 3000

// Running is a load under way.
type Running struct {
	cancel  context.CancelFunc
	done    sync.WaitGroup
	clients []*kgo.Client
}

// Start begins a load that records its calls in r. Records go round the
// partitions in turn, so that each producer's order in each is known.
func Start(r *Recorder, l Load) (*Running, error) {
	ctx, cancel := context.WithCancel(context.Background())
	run := &Running{cancel: cancel}
	for i := range l.Producers {
		opts := append([]kgo.Opt{
			kgo.SeedBrokers(l.Bootstrap...), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.DefaultProduceTopic(l.Topic), kgo.MaxBufferedRecords(maxBuffered), kgo.ProducerBatchMaxBytes(256 << 10),
			// Of what is retried without end every fate is learned.
			kgo.RecordRetries(1 << 30), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
			kgo.MetadataMinAge(100 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
			kgo.UnknownTopicRetries(-1), kgo.DialTimeout(2 * time.Second), // A stopped broker answers nothing: ask the next leader soon.
			kgo.ProduceRequestTimeout(3 * time.Second), kgo.RequestTimeoutOverhead(2 * time.Second),
		}, l.Options...)
		cl, err := kgo.NewClient(opts...)
		if err != nil {
			run.cancel()
			run.close()
			return nil, err
		}
		run.clients = append(run.clients, cl)
		run.done.Go(func() { l.produce(ctx, r, cl, l.First+int32(i)) })
	}
	return run, nil
}

func (l *Load) produce(ctx context.Context, r *Recorder, cl *kgo.Client, producer int32) {
	var pace <-chan time.Time
	// At most 100 ticks per second; each gives its share of the rate.
	share := 1 << 30
	if l.Rate > 0 {
		t := time.NewTicker(10 * time.Millisecond)
		defer t.Stop()
		pace, share = t.C, max(1, l.Rate/100)
	}
	for seq := 0; ctx.Err() == nil && (l.Max == 0 || seq < l.Max); seq++ {
		if pace != nil && seq%share == 0 {
			select {
			case <-pace:
			case <-ctx.Done():
				return
			}
		}
		partition := int32(seq) % l.Partitions
		if partition == l.Skip {
			continue
		}
		id := ID{Producer: producer, Seq: int32(seq)}
		op, ok := r.Call(id, partition)
		if !ok {
			return
		}
		// Not under ctx: a record that is cancelled has no known fate.
		cl.Produce(context.Background(), &kgo.Record{Partition: partition, Value: Value(id, l.ValueBytes)}, func(rec *kgo.Record, err error) {
			r.Return(op, Fate(err), rec.Offset, err)
		})
	}
}

// refusals are answers after which a record is certainly not in the log,
// whatever happened to earlier attempts: no attempt can have succeeded.
var refusals = []error{kerr.MessageTooLarge, kerr.InvalidRecord, kerr.CorruptMessage, kerr.UnsupportedCompressionType, kerr.InvalidTimestamp}

// Fate is what a produce error says of the record.
func Fate(err error) Outcome {
	if err == nil {
		return Acked
	}
	for _, r := range refusals {
		if errors.Is(err, r) {
			return Refused
		}
	}
	return Unknown
}

// Stop ends the load: no more calls, then every answer is waited for until ctx
// ends. What is not answered by then stays of unknown fate.
func (run *Running) Stop(ctx context.Context) error {
	run.cancel()
	run.done.Wait()
	var errs []error
	for _, cl := range run.clients {
		errs = append(errs, cl.Flush(ctx))
	}
	run.close()
	return errors.Join(errs...)
}

// Wait waits until every producer has reached its Max, then stops.
func (run *Running) Wait(ctx context.Context) error {
	ended := make(chan struct{})
	go func() { run.done.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return run.Stop(ctx)
}

func (run *Running) close() {
	for _, cl := range run.clients {
		cl.Close()
	}
}
