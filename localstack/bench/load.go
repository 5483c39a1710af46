package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Load is a produce load: what is sent, how fast, for how long.
type Load struct {
	Topic       string
	RecordBytes int
	Rate        int // records per second, 0: as fast as they are acknowledged
	Duration    time.Duration
	Keys        int // distinct keys, 0: none
	// FirstPartitions sends to the first so many partitions in turn, a run of
	// records each; 0: to all, by key or as the client likes.
	FirstPartitions int
	Producers       int // clients, default 1
	BatchBytes      int32
	Linger          time.Duration
}

// partitionRun is how many records go to a partition before the next one's turn.
const partitionRun = 64

// Produced is what came of a Load.
type Produced struct {
	Records int64
	Bytes   int64
	Took    time.Duration
	Delays  Delays // produce to ack, a sample of at most 1 in 64 records when unlimited
	CPU     float64
}

// MBps is megabytes of values per second.
func (p Produced) MBps() float64 { return float64(p.Bytes) / 1e6 / p.Took.Seconds() }

// RecordsPerSecond is the rate in records.
func (p Produced) RecordsPerSecond() float64 { return float64(p.Records) / p.Took.Seconds() }

// CPUPerGB is broker processor seconds per gigabyte.
func (p Produced) CPUPerGB() float64 { return p.CPU / (float64(p.Bytes) / 1e9) }

// CreateTopic makes a topic and waits until every partition has a leader.
func CreateTopic(ctx context.Context, seeds []string, topic string, partitions int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for {
		resp, err := adm.CreateTopic(ctx, int32(partitions), 3, nil, topic)
		if err == nil {
			err = resp.Err
		}
		if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
			break
		}
		if !kerr.IsRetriable(err) || ctx.Err() != nil { // a young cluster may have nowhere to put it
			return fmt.Errorf("creating %s: %w", topic, err)
		}
	}
	for {
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err == nil && ends.Error() == nil && len(ends[topic]) == partitions {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for the partitions of %s: %w", topic, ctx.Err())
		}
	}
}

// Roll asks for a topic to be sealed, uploaded and trimmed, and waits until
// the brokers hold none of it themselves.
func Roll(ctx context.Context, seeds []string, topic string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	adm := kadm.NewClient(cl)
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	now := strconv.FormatInt(time.Now().UnixMilli(), 10)
	if _, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "thermocline.roll", Value: &now}}, topic); err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		const earliestLocal = -4 // KIP-405
		local, err := adm.ListOffsetsAfterMilli(ctx, earliestLocal, topic)
		done := err == nil && local.Error() == nil
		ends.Each(func(e kadm.ListedOffset) {
			l, ok := local.Lookup(topic, e.Partition)
			done = done && ok && l.Offset >= e.Offset
		})
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("bench: %s is not in the store: %w", topic, ctx.Err())
		case <-tick.C:
		}
	}
}

// Produce runs a load with franz-go, acks=all and idempotent, and counts the
// processor time of the brokers named by pids meanwhile.
func Produce(ctx context.Context, seeds []string, l Load, pids []int) (Produced, error) {
	producers := max(l.Producers, 1)
	before, err := CPUSeconds(pids...)
	if err != nil {
		return Produced{}, err
	}
	var wg sync.WaitGroup
	results := make([]Produced, producers)
	errs := make([]error, producers)
	start := time.Now()
	for i := range producers {
		wg.Go(func() { results[i], errs[i] = produceOne(ctx, seeds, l, l.Rate/producers, uint64(i)) })
	}
	wg.Wait()
	total := Produced{Took: time.Since(start)}
	for i, r := range results {
		if errs[i] != nil {
			return total, errs[i]
		}
		total.Records += r.Records
		total.Bytes += r.Bytes
		total.Delays = append(total.Delays, r.Delays...)
	}
	after, err := CPUSeconds(pids...)
	total.CPU = after - before
	return total, err
}

func produceOne(ctx context.Context, seeds []string, l Load, rate int, seed uint64) (Produced, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(l.Topic),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(max(200_000, 64<<20/l.RecordBytes)), kgo.MaxBufferedBytes(64 << 20),
		kgo.ProducerLinger(l.Linger),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
	}
	if l.FirstPartitions > 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	if l.BatchBytes > 0 {
		opts = append(opts, kgo.ProducerBatchMaxBytes(l.BatchBytes))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return Produced{}, err
	}
	defer cl.Close()
	return pump(ctx, cl, l, rate, seed)
}

// pump sends until the time is over and waits for what is under way.
func pump(ctx context.Context, cl *kgo.Client, l Load, rate int, seed uint64) (Produced, error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	values := randomValues(rng, l.RecordBytes)
	keys := make([][]byte, l.Keys)
	for i := range keys {
		keys[i] = []byte("key-" + strconv.Itoa(i))
	}
	var records, failed atomic.Int64
	var failure atomic.Value
	var mu sync.Mutex
	var delays Delays
	start := time.Now()
	for n := 0; time.Since(start) < l.Duration && ctx.Err() == nil; n++ {
		if rate > 0 {
			if wait := time.Until(start.Add(time.Duration(float64(n) / float64(rate) * 1e9))); wait > 0 {
				time.Sleep(wait)
			}
		}
		r := &kgo.Record{Value: values[n%len(values)]}
		if l.FirstPartitions > 0 {
			r.Partition = int32(n / partitionRun % l.FirstPartitions)
		}
		if len(keys) > 0 {
			r.Key = keys[rng.IntN(len(keys))]
		}
		sample := rate > 0 || n%64 == 0
		sent := time.Now()
		cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Add(1)
				failure.Store(err)
				return
			}
			records.Add(1)
			if sample {
				mu.Lock()
				delays = append(delays, time.Since(sent))
				mu.Unlock()
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return Produced{}, err
	}
	if failed.Load() > 0 {
		return Produced{}, fmt.Errorf("%d records failed, the last with: %w", failed.Load(), failure.Load().(error))
	}
	n := records.Load()
	return Produced{Records: n, Bytes: n * int64(l.RecordBytes), Took: time.Since(start), Delays: delays}, nil
}

// randomValues makes a pool of values, half random bytes, half zeros.
func randomValues(rng *rand.Rand, size int) [][]byte {
	values := make([][]byte, 256)
	for i := range values {
		v := make([]byte, size)
		for j := range size / 2 {
			v[j] = byte(rng.Uint32())
		}
		values[i] = v
	}
	return values
}
