package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"thermocline/tiering/object"
	"thermocline/tiering/object/storeurl"
)

// The throttled store: what one connection to a store far away carries. Three
// brokers with three connections each stay within what two cores can deliver.
const (
	replayLatency     = 30 * time.Millisecond
	replayBandwidth   = "80MB"
	replayConnections = 3
	replayPartitions  = 48
	// replayGet is the size of the raw GETs: what the reader itself asks for.
	replayGet = 4 << 20
	// replayAckMBps is the load beside the replays.
	replayAckMBps = 10
	replayers     = 4
)

func (r *runner) throttled(connections int) string {
	return fmt.Sprintf("file://%s?latency=%v&bandwidth=%s&connections=%d", filepath.Join(r.o.BucketDir, "replay"), replayLatency, replayBandwidth, connections)
}

// replays reads many partitions back from a throttled store, beside raw GETs of
// the same objects with as many connections, and then beside a produce load.
func (r *runner) replays(ctx context.Context) error {
	if !r.wantedAny(rowReplay, rowReplayAck) {
		return nil
	}
	t, err := r.settledCluster(ctx, "replay", map[string]string{
		"store.url": r.throttled(replayConnections), "cold.connections": strconv.Itoa(replayConnections),
	})
	if err != nil {
		return err
	}
	return joinClose(r.replaysOn(ctx, t), t)
}

func (r *runner) replaysOn(ctx context.Context, t *target) error {
	const topic = "history"
	if err := CreateTopic(ctx, t.seeds, topic, replayPartitions); err != nil {
		return err
	}
	p, err := Produce(ctx, t.seeds, Load{Topic: topic, RecordBytes: 1024, Keys: 100_000, Duration: r.o.Duration, BatchBytes: 1 << 20}, t.pids)
	if err != nil {
		return err
	}
	if err := Roll(ctx, t.seeds, topic); err != nil {
		return err
	}
	if r.wanted(rowReplay) {
		if err := r.replayOnce(ctx, t, topic, p.Records); err != nil {
			return err
		}
	}
	if r.wanted(rowReplayAck) {
		return r.replayBeside(ctx, t, topic)
	}
	return nil
}

func (r *runner) replayOnce(ctx context.Context, t *target, topic string, records int64) error {
	raw, err := rawGets(ctx, r.throttled(3*replayConnections), 3*replayConnections, min(r.o.Duration, 10*time.Second))
	if err != nil {
		return err
	}
	r.put(Floor, rowReplay, "MB/s", raw/1e6, true)
	c, err := Consume(ctx, t.seeds, topic, records, t.pids)
	if err != nil {
		return err
	}
	r.put(t.column, rowReplay, "MB/s", c.MBps(), true)
	return nil
}

// rawGets reads objects with ranged GETs of replayGet bytes on so many
// connections, and returns bytes per second.
func rawGets(ctx context.Context, url string, connections int, d time.Duration) (float64, error) {
	store, err := storeurl.Open(ctx, url, object.Options{MaxConns: connections})
	if err != nil {
		return 0, err
	}
	defer object.Close(store)
	pieces, err := listPieces(ctx, store)
	if err != nil {
		return 0, err
	}
	var next, total atomic.Int64
	errs := make([]error, connections)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range connections {
		wg.Go(func() {
			p := make([]byte, replayGet)
			for time.Since(start) < d && errs[i] == nil {
				at := pieces[int(next.Add(1)-1)%len(pieces)]
				n, err := store.GetRange(ctx, at.key, at.offset, p)
				total.Add(int64(n))
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return float64(total.Load()) / time.Since(start).Seconds(), errors.Join(errs...)
}

type objectPiece struct {
	key    string
	offset int64
}

// listPieces cuts the segments of a bucket into pieces of replayGet bytes.
func listPieces(ctx context.Context, store object.Store) ([]objectPiece, error) {
	var pieces []objectPiece
	err := store.List(ctx, "", "", func(i object.Info) bool {
		for at := int64(0); strings.HasSuffix(i.Key, ".seg") && at+replayGet <= i.Size; at += replayGet {
			pieces = append(pieces, objectPiece{i.Key, at})
		}
		return true
	})
	if err == nil && len(pieces) == 0 {
		err = errors.New("bench: the bucket has no segment of 4 MiB")
	}
	return pieces, err
}

// replayBeside measures the ack delay at a fixed load, without and with four
// replays of a quarter of the partitions each.
func (r *runner) replayBeside(ctx context.Context, t *target, topic string) error {
	if err := CreateTopic(ctx, t.seeds, "beside", partitions); err != nil {
		return err
	}
	load := Load{Topic: "beside", RecordBytes: 1024, Rate: replayAckMBps * 1000 * 1000 / 1024, Duration: r.o.Duration}
	without, err := Produce(ctx, t.seeds, load, t.pids)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	read := make([]int64, replayers)
	errs := make([]error, replayers)
	for i := range replayers {
		wg.Go(func() { read[i], errs[i] = replayAgain(running, t.seeds, topic, i) })
	}
	with, err := Produce(ctx, t.seeds, load, t.pids)
	stop()
	wg.Wait()
	if err = errors.Join(append(errs, err)...); err != nil {
		return err
	}
	total := int64(0)
	for _, n := range read {
		total += n
	}
	r.say("ack p99 at %d MB/s: %.4g ms without replays, %.4g ms beside %d that read %.4g MB/s together", replayAckMBps,
		ms(without.Delays.At(0.99)), ms(with.Delays.At(0.99)), replayers, float64(total)/1e6/with.Took.Seconds())
	r.put(t.column, rowReplayAck, "x", float64(with.Delays.At(0.99))/float64(without.Delays.At(0.99)), false)
	return nil
}

// replayAgain reads every fourth partition from the start, again and again,
// until ctx ends, and returns the bytes read.
func replayAgain(ctx context.Context, seeds []string, topic string, which int) (int64, error) {
	var total int64
	for ctx.Err() == nil {
		n, err := replayPart(ctx, seeds, topic, which)
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}

func replayPart(ctx context.Context, seeds []string, topic string, which int) (bytes int64, err error) {
	from := map[int32]kgo.Offset{}
	for p := int32(which); p < replayPartitions; p += replayers {
		from[p] = kgo.NewOffset().AtStart()
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchMaxBytes(16<<20), kgo.FetchMaxPartitionBytes(4<<20))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	done := map[int32]bool{}
	for len(done) < len(from) {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return bytes, nil
		}
		for _, e := range fetches.Errors() {
			return bytes, fmt.Errorf("reading %s/%d: %w", e.Topic, e.Partition, e.Err)
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, rec := range p.Records {
				bytes += int64(len(rec.Value))
				done[p.Partition] = done[p.Partition] || rec.Offset+1 >= p.HighWatermark
			}
		})
	}
	return bytes, nil
}
