package faults_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"thermocline/localstack/faults"
	"thermocline/localstack/processes"
)

// TestReadFromOwnRack: a consumer with a client.rack reads from the replica in
// that rack (KIP-392), by the brokers' own counts; when its broker is killed it
// reads on from the others, and has read every record once.
func TestReadFromOwnRack(t *testing.T) {
	t.Parallel()
	c, ctx := cluster(t, nil, func(o *processes.Options) {
		o.Of = []map[string]string{{"broker.rack": "a"}, {"broker.rack": "b"}, {"broker.rack": "c"}}
	})
	must(t, faults.CreateTopic(ctx, c, "racked", partitions, nil))
	w := &racked{cluster: c, read: map[int32]int64{}}
	w.producer = client(t, c, kgo.DefaultProduceTopic("racked"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	leaders, err := faults.Leaders(ctx, c, "racked", func(int32, int) bool { return true })
	must(t, err)
	near := (faults.Busiest(leaders) + 1) % len(c.Brokers) // follows most partitions, and leads few
	w.consumer = client(t, c, kgo.ConsumeTopics("racked"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Rack([]string{"a", "b", "c"}[near]),
		// Only when it asks the leader again does franz-go leave a replica that is
		// gone: in half an hour, unless it is told otherwise.
		kgo.RecheckPreferredReplicaInterval(2*time.Second))

	// The first answers name the replica; a follower that lags is not named.
	must(t, faults.Until(ctx, "all is read from the replicas in the rack", func() error {
		before, err := w.sent()
		if err != nil {
			return err
		}
		if err := w.pass(ctx, 200); err != nil {
			return err
		}
		after, err := w.sent()
		if err != nil {
			return err
		}
		for i := range after {
			if sent := after[i] - before[i]; (sent > 0) != (i == near) {
				return fmt.Errorf("broker %d of racks a, b, c has sent %v bytes to the consumer in rack %c", i+1, sent, 'a'+near)
			}
		}
		return nil
	}))
	must(t, c.Brokers[near].Kill())
	must(t, w.pass(ctx, 200))
}

// racked is a producer and a consumer of all it writes.
type racked struct {
	cluster            *processes.Cluster
	producer, consumer *kgo.Client
	made, seen         int
	read               map[int32]int64 // the next offset expected of a partition
}

// pass writes records of 1 KiB and reads them, each once and in order.
func (w *racked) pass(ctx context.Context, records int) error {
	for range records {
		w.producer.Produce(ctx, &kgo.Record{Value: make([]byte, 1024)}, nil)
	}
	if err := w.producer.Flush(ctx); err != nil {
		return err
	}
	w.made += records
	for w.seen < w.made {
		fetches := w.consumer.PollFetches(ctx)
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d records are read, errors: %v", w.seen, w.made, fetches.Errors())
		}
		for _, r := range fetches.Records() {
			if r.Offset != w.read[r.Partition] {
				return fmt.Errorf("partition %d: expected offset %d, read %d", r.Partition, w.read[r.Partition], r.Offset)
			}
			w.read[r.Partition]++
			w.seen++
		}
	}
	return nil
}

// sent is how many bytes each broker has sent to consumers.
func (w *racked) sent() ([]float64, error) {
	out := make([]float64, len(w.cluster.Brokers))
	for i := range out {
		_, body, err := faults.Get(w.cluster.HTTP(i) + "/metrics")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(body) {
			if !strings.HasPrefix(line, "thermocline_fetch_bytes_total{") {
				continue
			}
			fields := strings.Fields(line)
			n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				return nil, fmt.Errorf("broker %d, metric %q: %w", i+1, line, err)
			}
			out[i] += n
		}
	}
	return out, nil
}

// client is one for a test, closed at its end.
func client(t *testing.T, c *processes.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.Bootstrap()...))...)
	must(t, err)
	t.Cleanup(cl.Close)
	return cl
}
