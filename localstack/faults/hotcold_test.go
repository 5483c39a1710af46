package faults_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"thermocline/localstack/faults"
	"thermocline/localstack/processes"
	"thermocline/wal/batch"
)

// codecs has one partition each.
var codecs = []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd}

const (
	hotTopic        = "hot"
	recordsPerBatch = 8
	recordBytes     = 3000
	hotBatches      = 60 // per partition and step: more than the tail cache holds
	earliestLocal   = -4
	hour            = int64(time.Hour / time.Millisecond)
)

// stored is one batch as the log has it.
type stored struct {
	base, last int64
	bytes      []byte
	times      []int64
}

// expectation is what every later read must find, by partition.
type expectation struct {
	mu   sync.Mutex
	logs [][]stored
}

func (e *expectation) add(p int32, s stored) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.logs[p] = append(e.logs[p], s)
}

func (e *expectation) log(p int32) []stored {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.logs[p])
}

func (e *expectation) end(p int32) int64 {
	log := e.log(p)
	if len(log) == 0 {
		return 0
	}
	return log[len(log)-1].last + 1
}

// times makes a batch's timestamps: rising, equal, going back before the batch
// before, and far ahead.
func times(n int, r *rand.Rand, start int64) []int64 {
	out := make([]int64, recordsPerBatch)
	for i := range out {
		out[i] = start + int64(n)*1000 + int64(i)*10
		switch {
		case n%5 == 1:
			out[i] = start + int64(n)*1000
		case n%5 == 2 && i%3 == 1:
			out[i] -= 2500
		case n%5 == 3:
			out[i] = start + int64(n)*1000 + int64(r.IntN(3000)) - 1500
		case n%20 == 19 && i == 4:
			out[i] += 48 * hour
		}
	}
	return out
}

// produceBatches sends n batches to every partition, reads each back from the
// tail at once, and expects those bytes from then on.
func produceBatches(ctx context.Context, cl *kgo.Client, e *expectation, n int, start int64) error {
	var wg sync.WaitGroup
	errs := make([]error, len(codecs))
	for p, codec := range codecs {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(p), uint64(e.end(int32(p)))))
			for range n {
				if err := produceBatch(ctx, cl, e, int32(p), codec, r, start); err != nil {
					errs[p] = fmt.Errorf("%v: %w", codec, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func produceBatch(ctx context.Context, cl *kgo.Client, e *expectation, p int32, codec batch.Codec, r *rand.Rand, start int64) error {
	ts := times(len(e.log(p)), r, start)
	bl := batch.NewBuilder(batch.BuilderOptions{Codec: codec})
	for i, at := range ts {
		value := make([]byte, recordBytes)
		for j := range value {
			value[j] = byte(r.Uint32()) // does not compress: the WAL gets it all
		}
		bl.Add(at, []byte(fmt.Sprint("key", i)), value)
	}
	b := bl.Build()
	base, err := faults.Produce(ctx, cl, hotTopic, p, bytes.Clone(b))
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	if want := e.end(p); base != want {
		return fmt.Errorf("produce: expected base offset %d, found %d", want, base)
	}
	got, _, err := faults.Fetch(ctx, cl, hotTopic, p, base, 1, 30*time.Second)
	if err != nil {
		return fmt.Errorf("fetch at %d from the tail: %w", base, err)
	}
	first, _, err := batch.Next(got)
	if err != nil {
		return fmt.Errorf("fetch at %d from the tail: %d bytes: %w", base, len(got), err)
	}
	b.Stamp(base, first.LeaderEpoch())
	if !bytes.Equal(first, b) {
		return fmt.Errorf("the tail's bytes at %d are not those that were sent", base)
	}
	e.add(p, stored{base, b.LastOffset(), bytes.Clone(b), ts})
	return nil
}

// compare reads all partitions whole and compares the bytes, over offsets that
// were expected when it began.
func compare(ctx context.Context, cl *kgo.Client, e *expectation) error {
	for p := range codecs {
		log := e.log(int32(p))
		for next := 0; next < len(log); {
			got, _, err := faults.Fetch(ctx, cl, hotTopic, int32(p), log[next].base, 700_000, 30*time.Second)
			if err != nil {
				return fmt.Errorf("%v: fetch at %d: %w", codecs[p], log[next].base, err)
			}
			if len(got) == 0 {
				return fmt.Errorf("%v: fetch at %d: nothing within 30 s", codecs[p], log[next].base)
			}
			for len(got) > 0 && next < len(log) {
				b, rest, err := batch.Next(got)
				if errors.Is(err, batch.ErrTruncated) {
					break
				}
				if err != nil {
					return fmt.Errorf("%v: at %d: %w", codecs[p], log[next].base, err)
				}
				if !bytes.Equal(b, log[next].bytes) {
					return fmt.Errorf("%v: the batch at %d is not what was stored (offsets %d to %d, epoch %d)", codecs[p], log[next].base, b.BaseOffset(), b.LastOffset(), b.LeaderEpoch())
				}
				got, next = rest, next+1
			}
		}
	}
	return nil
}

// near are the timestamps of records within two batches of a boundary, and
// those just before and after.
func near(log []stored, boundaries []int64) []int64 {
	set := map[int64]bool{}
	for _, at := range boundaries {
		i, _ := slices.BinarySearchFunc(log, at, func(s stored, at int64) int { return cmp.Compare(s.base, at) })
		for _, s := range log[max(0, i-2):min(len(log), i+2)] {
			for _, ts := range s.times {
				set[ts-1], set[ts], set[ts+1] = true, true, true
			}
		}
	}
	out := make([]int64, 0, len(set))
	for ts := range set {
		out = append(out, ts)
	}
	slices.Sort(out)
	return append(out, out[len(out)-1]+100*24*hour) // nothing is that late
}

// bruteForce finds the first record at or after ts.
func bruteForce(log []stored, ts int64) (offset, found int64) {
	for _, s := range log {
		for i, at := range s.times {
			if at >= ts {
				return s.base + int64(i), at
			}
		}
	}
	return -1, -1
}

// lookups compares ListOffsets with brute force around the boundaries.
func lookups(ctx context.Context, cl *kgo.Client, e *expectation, boundaries [][]int64) (int, error) {
	n := 0
	for p := range codecs {
		log := e.log(int32(p))
		for _, ts := range near(log, boundaries[p]) {
			offset, at, err := faults.ListOffset(ctx, cl, hotTopic, int32(p), ts)
			if err != nil {
				return n, fmt.Errorf("%v: offset for %d: %w", codecs[p], ts, err)
			}
			if wantOffset, wantAt := bruteForce(log, ts); offset != wantOffset || at != wantAt {
				return n, fmt.Errorf("%v: for timestamp %d expected offset %d (of %d), found %d (of %d)", codecs[p], ts, wantOffset, wantAt, offset, at)
			}
			n++
		}
	}
	return n, nil
}

// tieredEnds asks where the store ends in each partition.
func tieredEnds(ctx context.Context, cl *kgo.Client) ([]int64, error) {
	out := make([]int64, len(codecs))
	for p := range codecs {
		var err error
		if out[p], _, err = faults.ListOffset(ctx, cl, hotTopic, int32(p), earliestLocal); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// misses is how many payloads brokers have read from their logs' files.
func misses(c *processes.Cluster) (uint64, error) {
	var n uint64
	for i := range c.Brokers {
		s, err := faults.Status(c, i)
		if err != nil {
			return 0, err
		}
		for _, sh := range s.Shards {
			n += sh.CacheMiss
		}
	}
	return n, nil
}

// TestHotEqualsCold: the same offsets are the same bytes wherever they are
// read from, for each codec, also while they move, and times find the same
// records.
func TestHotEqualsCold(t *testing.T) {
	t.Parallel()
	c, ctx, p, _ := proxied(t, map[string]string{"tail.cache.bytes": "3MiB", "tiering.segment.bytes": "64MiB", "tiering.segment.ms": "1h", "wal.max.bytes": "256MiB"})
	must(t, faults.CreateTopic(ctx, c, hotTopic, int32(len(codecs)), map[string]string{"message.timestamp.after.max.ms": fmt.Sprint(100 * hour)}))
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.MetadataMinAge(20*time.Millisecond))
	must(t, err)
	defer cl.Close()
	e := &expectation{logs: make([][]stored, len(codecs))}
	start := time.Now().Add(-time.Hour).UnixMilli()
	step := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	step("tail", produceBatches(ctx, cl, e, hotBatches, start))
	before, err := misses(c)
	must(t, err)
	step("log file", compare(ctx, cl, e))
	after, err := misses(c)
	must(t, err)
	if after == before {
		t.Error("nothing was read from a log file: the tail cache held everything")
	}
	// The boundary is to come into the middle: half of the batches below.
	middle := make([][]int64, len(codecs))
	for p := range codecs {
		middle[p] = []int64{e.end(int32(p)), 0, e.end(int32(p)) / 2}
	}
	hot, err := lookups(ctx, cl, e, middle)
	step("times in the tail", err)

	reads := p.Reads()
	moving(t, ctx, c, cl, e, start)
	step("more in the tail", produceBatches(ctx, cl, e, 10, start))
	ends, err := tieredEnds(ctx, cl)
	must(t, err)
	for p, end := range ends {
		if end <= middle[p][0]/2 || end >= e.end(int32(p)) {
			t.Fatalf("%v: the store ends at %d of %d: no boundary within", codecs[p], end, e.end(int32(p)))
		}
		middle[p] = append(middle[p], end)
	}
	step("store and tail", compare(ctx, cl, e))
	if p.Reads() == reads {
		t.Error("nothing was read from the store")
	}
	cached(t, ctx, c, cl, p, e)
	across, err := lookups(ctx, cl, e, middle)
	step("times across the boundary", err)
	t.Logf("%d look-ups in the tail, %d across the boundary", hot, across)
	restarted(t, ctx, c, cl, p, e, middle)
}

// cached reads everything once more: from the segment cache and the tail, and
// not from the store, unless leaders have moved to a broker whose cache has
// not seen it; then once more again.
func cached(t *testing.T, ctx context.Context, c *processes.Cluster, cl *kgo.Client, p interface{ Reads() int64 }, e *expectation) {
	t.Helper()
	for range 5 {
		must(t, settled(ctx, p))
		before, err := faults.Leaders(ctx, c, hotTopic, nil)
		must(t, err)
		reads := p.Reads()
		if err := compare(ctx, cl, e); err != nil {
			t.Fatalf("from the segment cache: %v", err)
		}
		again := p.Reads() - reads
		after, err := faults.Leaders(ctx, c, hotTopic, nil)
		must(t, err)
		if again == 0 {
			return
		}
		t.Logf("%d reads from the store; leaders before %v, after %v", again, before, after)
	}
	t.Error("the same offsets were read from the store again and again")
}

// settled waits until no read of the store has come for half a second.
func settled(ctx context.Context, p interface{ Reads() int64 }) error {
	last, since := p.Reads(), time.Now()
	return faults.Until(ctx, "the store is not read any more", func() error {
		if n := p.Reads(); n != last {
			last, since = n, time.Now()
		}
		if time.Since(since) < 500*time.Millisecond {
			return fmt.Errorf("%d reads", last)
		}
		return nil
	})
}

// moving rolls twice while producers and readers go on.
func moving(t *testing.T, ctx context.Context, c *processes.Cluster, cl *kgo.Client, e *expectation, start int64) {
	t.Helper()
	rolling, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var readErr, writeErr error
	rounds := 0
	wg.Go(func() {
		for rolling.Err() == nil && readErr == nil {
			readErr = compare(ctx, cl, e)
			rounds++
		}
	})
	wg.Go(func() {
		for rolling.Err() == nil && writeErr == nil {
			writeErr = produceBatches(ctx, cl, e, 2, start)
		}
	})
	var rollErr error
	for range 2 {
		_, err := faults.CLI(ctx, binary, "topic", "roll", hotTopic, "--wait", "-b", strings.Join(c.Bootstrap(), ","))
		rollErr = errors.Join(rollErr, err)
	}
	stop()
	wg.Wait()
	must(t, errors.Join(rollErr, writeErr))
	if readErr != nil {
		t.Fatalf("while sealing runs: %v", readErr)
	}
	t.Logf("%d whole reads while two rolls ran", rounds)
}

// restarted: with empty caches everything comes from the store and from the
// recovered log, and after one more roll from the store alone.
func restarted(t *testing.T, ctx context.Context, c *processes.Cluster, cl *kgo.Client, p interface{ Reads() int64 }, e *expectation, boundaries [][]int64) {
	t.Helper()
	for i := range c.Brokers {
		must(t, c.Brokers[i].Kill())
	}
	for i := range c.Brokers {
		must(t, c.RestartBroker(i))
	}
	must(t, faults.ReadyAll(ctx, c))
	_, err := faults.Leaders(ctx, c, hotTopic, nil)
	must(t, err)
	reads := p.Reads()
	must(t, faults.Until(ctx, "the new leaders answer", func() error { _, err := tieredEnds(ctx, cl); return err }))
	if err := compare(ctx, cl, e); err != nil {
		t.Fatalf("after a restart: %v", err)
	}
	if p.Reads() == reads {
		t.Error("after a restart nothing was read from the store")
	}
	_, err = faults.CLI(ctx, binary, "topic", "roll", hotTopic, "--wait", "-b", strings.Join(c.Bootstrap(), ","))
	must(t, err)
	if err := compare(ctx, cl, e); err != nil {
		t.Fatalf("from the store alone: %v", err)
	}
	if _, err := lookups(ctx, cl, e, boundaries); err != nil {
		t.Fatalf("times in the store alone: %v", err)
	}
}
