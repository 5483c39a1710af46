package bench

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// written is how many of the many partitions get records.
const written = 100

// partitionsMany is how many partitions exist.
func (r *runner) partitionsMany() int {
	if r.o.Quick {
		return 10_000
	}
	return 100_000
}

// many measures what partitions cost that nobody writes to: the memory of each
// broker, and the rate of 100 written ones beside 100 alone.
func (r *runner) many(ctx context.Context) error {
	if !r.wantedAny(rowManyMemory, rowManyRate) {
		return nil
	}
	t, err := r.settledCluster(ctx, "many", map[string]string{"store.url": discarding})
	if err != nil {
		return err
	}
	return joinClose(r.manyOn(ctx, t), t)
}

func (r *runner) manyOn(ctx context.Context, t *target) error {
	if err := CreateTopic(ctx, t.seeds, "alone", written); err != nil {
		return err
	}
	load := Load{Topic: "alone", RecordBytes: 1024, Duration: r.o.Duration, BatchBytes: 1 << 20, FirstPartitions: written}
	alone, err := Produce(ctx, t.seeds, load, t.pids)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := createMany(ctx, t.seeds, "many", r.partitionsMany()); err != nil {
		return err
	}
	r.say("%d partitions created in %v", r.partitionsMany(), time.Since(start).Round(time.Millisecond))
	load.Topic = "many"
	among, err := Produce(ctx, t.seeds, load, t.pids)
	if err != nil {
		return err
	}
	var most int64
	for _, pid := range t.pids {
		n, err := ResidentBytes(pid)
		if err != nil {
			return err
		}
		most = max(most, n)
	}
	r.put(t.column, rowManyMemory, "MiB", float64(most)/(1<<20), false)
	r.say("100 partitions alone %.4g MB/s, 100 among %d %.4g MB/s", alone.MBps(), r.partitionsMany(), among.MBps())
	r.put(t.column, rowManyRate, "x", among.MBps()/alone.MBps(), true)
	return nil
}

// createMany makes a topic with very many partitions, and waits until those
// that will be written to have leaders.
func createMany(ctx context.Context, seeds []string, topic string, n int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.RequestTimeoutOverhead(2*time.Minute))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	adm := kadm.NewClient(cl)
	adm.SetTimeoutMillis(120_000)
	resp, err := adm.CreateTopic(ctx, int32(n), 3, nil, topic)
	if err == nil {
		err = resp.Err
	}
	if err != nil {
		return err
	}
	for {
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err == nil && ends.Error() == nil && len(ends[topic]) == n {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
