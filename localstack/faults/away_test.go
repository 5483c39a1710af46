package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"thermocline/cmd/broker"
	"thermocline/localstack/faults"
	"thermocline/localstack/faults/history"
	"thermocline/localstack/faults/storeproxy"
	"thermocline/localstack/processes"
	"thermocline/tiering"
	"thermocline/tiering/format"
	"thermocline/tiering/object"
	"thermocline/tiering/object/storeurl"
	"thermocline/wal/batch"
)

const (
	walBudget  = 64 << 20
	walFile    = 4 << 20
	segment    = 2 << 20
	storeUser  = "thermocline" // what package processes gives to brokers
	storePass  = "thermocline-local"
	awayFor    = 60 * time.Second
	eachFault  = 12 // requests that meet each kind of fault
	storeTopic = "stored"
)

var smallBudget = map[string]string{
	"wal.max.bytes": fmt.Sprint(walBudget), "wal.file.bytes": fmt.Sprint(walFile), "tiering.segment.bytes": fmt.Sprint(segment), "tiering.segment.ms": "1s",
}

// proxied starts an S3 process, a proxy before it, and brokers that know the
// proxy only. The store is what the test itself sees, past the proxy.
func proxied(t *testing.T, settings map[string]string) (c *processes.Cluster, ctx context.Context, p *storeproxy.Proxy, store object.Store) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	addr := l.Addr().String()
	must(t, l.Close())
	starting, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := t.TempDir()
	s3, err := processes.Run(starting, "s3", binary, dir, addr, "s3", "--dir", filepath.Join(dir, "bucket"), "--listen", addr,
		"--access-key", storeUser, "--secret-key", storePass, "--bucket", "faults")
	must(t, err)
	t.Cleanup(func() {
		if err := s3.Stop(); err != nil {
			t.Error(err)
		}
	})
	p, err = storeproxy.Start(addr)
	must(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	url := "s3://faults/cluster?region=us-east-1&endpoint=http://"
	store, err = storeurl.Open(starting, strings.Replace(strings.Replace(url, "s3://faults", "minio://"+storeUser+":"+storePass+"@"+addr+"/faults", 1), "&endpoint=http://", "", 1), object.Options{})
	must(t, err)
	t.Cleanup(func() {
		if err := object.Close(store); err != nil {
			t.Error(err)
		}
	})
	c, ctx = cluster(t, settings, func(o *processes.Options) { o.Settings["store.url"] = url + p.Addr() })
	return c, ctx, p, store
}

// TestStoreFaults comes first, since it takes longest: whatever the store does, no broker dies and no acknowledged
// record is lost; produce goes on until the log's budget is used, gets a
// retriable error then, and recovers by itself; what is left behind in the
// store is found by a listing.
func TestStoreFaults(t *testing.T) {
	t.Parallel()
	c, ctx, p, store := proxied(t, smallBudget)
	must(t, faults.CreateTopic(ctx, c, storeTopic, partitions, nil))
	must(t, faults.CreateTopic(ctx, c, "probes", 1, nil))
	r := history.NewRecorder()
	run := load(t, c, r, history.Load{Topic: storeTopic, Partitions: partitions, Producers: 2, ValueBytes: 1000, Rate: 800, Skip: history.NoSkip})
	for _, mode := range []storeproxy.Mode{storeproxy.SlowDown, storeproxy.Hang, storeproxy.CutBody, storeproxy.LoseAnswer} {
		p.Set(mode)
		least := int64(eachFault)
		if mode == storeproxy.Hang {
			least = 2 // each waits for its time-out
		}
		if err := faults.Until(ctx, "requests meet the fault", func() error { return atLeast(p.Hits(mode), least) }); err != nil {
			t.Fatalf("%v: %v", mode, err)
		}
		if err := progress(ctx, r, partitions, 20); err != nil {
			t.Fatalf("%v: %v", mode, err)
		}
		p.Set(storeproxy.Pass)
		upload := p.Hits(storeproxy.Pass)
		must(t, faults.Until(ctx, "uploads go on", func() error { return atLeast(p.Hits(storeproxy.Pass), upload+10) }))
	}
	away(t, ctx, c, p, r)
	must(t, run.Stop(ctx))
	alive(t, c)
	_, err := faults.CLI(ctx, binary, "topic", "roll", storeTopic, "--wait", "-b", strings.Join(c.Bootstrap(), ","))
	must(t, err)
	verify(t, ctx, c, storeTopic, partitions, r)
	orphans(t, ctx, c, store)
}

func atLeast(n, least int64) error {
	if n < least {
		return fmt.Errorf("%d of %d", n, least)
	}
	return nil
}

// away takes the store away for a minute, during which a full-speed load uses
// the log's budget up.
func away(t *testing.T, ctx context.Context, c *processes.Cluster, p *storeproxy.Proxy, r *history.Recorder) {
	t.Helper()
	must(t, p.Away())
	back := time.NewTimer(awayFor)
	defer back.Stop()
	flood := load(t, c, r, history.Load{Topic: storeTopic, Partitions: partitions, Producers: 2, First: 10, ValueBytes: 8000, Skip: history.NoSkip})
	refused := faults.Until(ctx, "the budget is used", func() error {
		err := produceOnce(ctx, c, "probes")
		switch {
		case err == nil:
			return errors.New("it is acknowledged")
		case errors.Is(err, kerr.NotEnoughReplicas):
			return nil
		}
		return err // another leader, or a time-out
	})
	if refused == nil && !kerr.IsRetriable(kerr.NotEnoughReplicas) {
		t.Error("the refusal is not retriable")
	}
	alive(t, c)
	<-back.C
	must(t, p.Back())
	must(t, refused)
	must(t, progress(ctx, r, partitions, 20))
	must(t, flood.Stop(ctx))
	must(t, progress(ctx, r, partitions, 20))
}

// produceOnce sends one record to the leader of a topic's first partition,
// without a retry, and returns the broker's answer.
func produceOnce(ctx context.Context, c *processes.Cluster, topic string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer cl.Close()
	b := batch.NewBuilder(batch.BuilderOptions{}).Add(time.Now().UnixMilli(), nil, []byte("probe")).Build()
	_, err = faults.Produce(ctx, cl, topic, 0, b)
	return err
}

// alive fails the test if a broker has ended.
func alive(t *testing.T, c *processes.Cluster) {
	t.Helper()
	for _, b := range c.Brokers {
		select {
		case <-b.Done():
			t.Fatalf("%s has ended (see %s)", b.Name, b.LogFile)
		default:
		}
	}
}

// orphans lists them, and proves the list: every object of the cluster is
// referred to or listed; and without the listed ones every segment is whole.
// Snapshots of shards are their archivers' to remove, an hour after the next.
func orphans(t *testing.T, ctx context.Context, c *processes.Cluster, store object.Store) {
	t.Helper()
	status := tieringStatus(t, ctx, c)
	options := status.Options()
	refs := map[string]bool{}
	segments := 0
	for _, m := range options.Manifests {
		keep := func(r *format.SegmentRow) error { refs[r.Key] = true; segments++; return nil }
		refs[m.Fence.Key] = true
		for i := range m.Runs {
			refs[m.Runs[i].Key] = true
			must(t, tiering.EachSegment(ctx, store, options.Cluster, &m.Runs[i], keep))
		}
		for i := range m.Segments {
			must(t, keep(&m.Segments[i]))
		}
	}
	for _, s := range status.Shards {
		if s.Snapshot != nil {
			refs[s.Snapshot.Object] = true
		}
	}
	snapshots := format.Prefix(options.Cluster, format.KindSnapshot)
	listed := map[string]bool{}
	junk, err := tiering.ListOrphans(ctx, store, options, func(o tiering.Orphan) bool { listed[o.Key] = true; return true })
	must(t, err)
	total := 0
	must(t, store.List(ctx, options.Cluster+"/", "", func(i object.Info) bool {
		total++
		key := strings.TrimPrefix(i.Key, options.Cluster+"/")
		if refs[key] == listed[i.Key] && (listed[i.Key] || !strings.HasPrefix(i.Key, snapshots)) {
			t.Errorf("%s: referred to: %v, listed as an orphan: %v", key, refs[key], listed[i.Key])
		}
		return true
	}))
	t.Logf("%d objects, %d segment rows, %d orphans, %d junk", total, segments, len(listed), junk)
	if len(listed) == 0 || junk != 0 {
		t.Error("lost answers leave orphans, and nothing else is there")
	}
	for key := range refs {
		if key == "" {
			continue
		}
		if _, err := store.Head(ctx, format.ObjectKey(options.Cluster, key)); err != nil {
			t.Errorf("a row names %s: %v", key, err)
		}
	}
}

// tieringStatus asks all brokers for what they lead until all shards are there.
func tieringStatus(t *testing.T, ctx context.Context, c *processes.Cluster) broker.TieringStatus {
	t.Helper()
	var all broker.TieringStatus
	must(t, faults.Until(ctx, "all shards show their manifests", func() error {
		all = broker.TieringStatus{}
		shards := map[uint32]bool{}
		for i := range c.Brokers {
			var s broker.TieringStatus
			_, body, err := faults.Get(c.HTTP(i) + "/tiering")
			if err == nil {
				err = json.Unmarshal([]byte(body), &s)
			}
			if err != nil {
				return err
			}
			all.Cluster = s.Cluster
			for _, m := range s.Shards {
				shards[m.Shard] = true
				all.Shards = append(all.Shards, m)
			}
		}
		if len(shards) != 6 || len(all.Shards) != 6 {
			return fmt.Errorf("%d of 6 shards are led, by %d leaders", len(shards), len(all.Shards))
		}
		return nil
	}))
	return all
}

// TestBudget: three times the log's budget is produced while one partition is
// idle with a record that must stay; the disk never holds more than the budget
// and a file, and nothing stalls.
func TestBudget(t *testing.T) {
	t.Parallel()
	c, ctx := cluster(t, smallBudget)
	must(t, faults.CreateTopic(ctx, c, storeTopic, partitions, nil))
	r := history.NewRecorder()
	first := load(t, c, r, history.Load{Topic: storeTopic, Partitions: partitions, Producers: 1, ValueBytes: 100, Max: int(partitions), Skip: history.NoSkip})
	must(t, first.Wait(ctx))
	var largest atomic.Int64
	watch, stop := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() { watched <- watchDisk(watch, c, &largest) }()
	const value, producers = 8000, 2
	run := load(t, c, r, history.Load{Topic: storeTopic, Partitions: partitions, Producers: producers, First: 10, ValueBytes: value,
		Max: 3*walBudget/value/producers + 1000, Skip: 5})
	must(t, run.Wait(ctx))
	stop()
	must(t, <-watched)
	alive(t, c)
	t.Logf("largest write-ahead log: %d KiB of %d KiB", largest.Load()>>10, walBudget>>10)
	if largest.Load() > walBudget+walFile {
		t.Errorf("a log took %d bytes, expected at most %d and a file of %d", largest.Load(), walBudget, walFile)
	}
	if n := r.Acked() * value; n < 3*walBudget*10/12 {
		t.Errorf("only %d bytes were acknowledged", n)
	}
	verify(t, ctx, c, storeTopic, partitions, r)
}

// watchDisk measures the logs' directories until ctx ends.
func watchDisk(ctx context.Context, c *processes.Cluster, largest *atomic.Int64) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		for i := range c.Brokers {
			n, err := usage(filepath.Join(c.DataDir(i), "wal"))
			if err != nil {
				return err
			}
			largest.Store(max(largest.Load(), n))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// usage is the sum of a directory's file sizes; files may vanish meanwhile.
func usage(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}
