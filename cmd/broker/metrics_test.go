package broker

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"thermocline/cmd/config"
	metadatamemory "thermocline/metadata/memory"
	"thermocline/tiering/object"
	"thermocline/tiering/object/memory"
)

var update = flag.Bool("update", false, "write metrics.md anew")

// startBrokers starts brokers of one cluster in this process, with directories
// on disk and everything else in memory.
func startBrokers(t *testing.T, n int) []*Broker {
	t.Helper()
	store, objects := metadatamemory.New(), memory.New(memory.Options{})
	var brokers []*Broker
	for i := range n {
		b, err := Start(t.Context(), Options{
			Config: brokerConfig(t, i+1, n), Metadata: store, Uploads: object.NewCounted(objects), Cold: object.NewCounted(objects), Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		brokers = append(brokers, b)
	}
	t.Cleanup(func() {
		closed := make(chan error, len(brokers))
		for _, b := range brokers {
			go func() { closed <- b.Close() }()
		}
		for range brokers {
			if err := <-closed; err != nil {
				t.Errorf("close: %v", err)
			}
		}
	})
	for _, b := range brokers {
		until(t, b.Ready)
	}
	return brokers
}

// brokerConfig is that of a broker of startBrokers, on a directory of its own.
func brokerConfig(t *testing.T, node, n int) config.Config {
	t.Helper()
	c, err := config.Load("", func(string) (string, bool) { return "", false }, map[string]string{
		"node.id": strconv.Itoa(node), "listeners": "PLAINTEXT://127.0.0.1:0", "peer.listener": freePort(t),
		"data.dir": t.TempDir(), "cluster.brokers": strconv.Itoa(n), "shard.replicas": strconv.Itoa(n), "shards.per.broker": "1",
		"etcd.endpoints": "in-process", "store.url": "memory:unused", "wal.max.bytes": "64MiB", "wal.file.bytes": "4MiB",
		"tiering.segment.ms": "100ms",
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// freePort picks a port below those that the kernel gives to connections.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

// until polls for a condition; the error says what is still missing.
func until(t *testing.T, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

func scrape(t *testing.T, a *Admin) string {
	t.Helper()
	resp, err := http.Get("http://" + a.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("metrics: status %d, %v: %s", resp.StatusCode, err, body)
	}
	return string(body)
}

// sum adds up all samples of a metric whose labels hold what is given.
func sum(page, name, labels string) float64 {
	total := 0.0
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, name+"{") || !strings.Contains(line, labels) {
			continue
		}
		f := strings.Fields(line)
		v, err := strconv.ParseFloat(f[len(f)-1], 64)
		if err == nil {
			total += v
		}
	}
	return total
}

func TestMetricsAreDocumentedAndExported(t *testing.T) {
	brokers := startBrokers(t, 3)
	admin, err := StartAdmin("127.0.0.1:0", func() error { return nil }, func() any { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	for _, b := range brokers {
		if err := admin.Export(b); err != nil {
			t.Fatal(err)
		}
	}
	const records = 100
	produceAndRead(t, brokers[0].KafkaAddr(), records)

	var page string
	until(t, func() error {
		page = scrape(t, admin)
		return missingMetrics(page)
	})
	if n := sum(page, "thermocline_produce_records_total", ""); n != records {
		t.Errorf("thermocline.produce.records: expected %d over all brokers, found %v", records, n)
	}
	for _, shard := range brokers[0].view.Cluster().Shards {
		if n := sum(page, "thermocline_shard_leader", fmt.Sprintf(`shard="%d"`, shard.ID)); n != 1 {
			t.Errorf("shard %d: expected one leader, found %v", shard.ID, n)
		}
	}
	if sum(page, "thermocline_wal_fsync_duration_seconds_count", "") == 0 || sum(page, "thermocline_wal_fsync_duration_seconds_sum", "") == 0 {
		t.Error("the log was synced, and its histogram is empty")
	}
	until(t, func() error {
		if sum(scrape(t, admin), "thermocline_tiering_segments_total", "") == 0 {
			return fmt.Errorf("no segment was counted")
		}
		return nil
	})
}

func produceAndRead(t *testing.T, addr string, records int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic("counted"), kgo.AllowAutoTopicCreation(), kgo.ConsumeTopics("counted"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range records {
		cl.Produce(ctx, kgo.StringRecord(fmt.Sprint(i)), func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for got := 0; got < records; {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		got += f.NumRecords()
	}
}

// missingMetrics names the first metric that is not on the page with its help.
func missingMetrics(page string) error {
	for _, m := range metrics {
		want := fmt.Sprintf("(?m)^# HELP %s[a-z_]* %s$", strings.ReplaceAll(m.name, ".", "_"), regexp.QuoteMeta(m.about))
		if !regexp.MustCompile(want).MatchString(page) {
			return fmt.Errorf("%s is not exported", m.name)
		}
	}
	return nil
}

func TestMetricsAreNamedAndDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range metrics {
		if !regexp.MustCompile(`^thermocline(\.[a-z]+)+$`).MatchString(m.name) || seen[m.name] {
			t.Errorf("%q: expected a new name in the form thermocline.part.figure", m.name)
		}
		seen[m.name] = true
		if m.about == "" {
			t.Errorf("%s has no description", m.name)
		}
		if (m.kind == histogram) != (m.buckets != nil) || (m.kind == histogram) == (m.read != nil) {
			t.Errorf("%s: a histogram has buckets, everything else a reader", m.name)
		}
		if m.kind == counter && m.unit == "" {
			t.Errorf("%s counts, and does not say what", m.name)
		}
	}
	want := metricsPage()
	if *update {
		if err := os.WriteFile("metrics.md", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("metrics.md"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("metrics.md is not what the table says (%v): run go test ./cmd/broker -run TestMetricsAreNamed -update", err)
	}
}

// metricsPage is the documentation of all metrics.
func metricsPage() []byte {
	var b bytes.Buffer
	b.WriteString(`# Metrics

Made from the table in metrics_table.go; do not edit.

Names are OpenTelemetry's. On /metrics dots are underscores, the unit is part of
the name (By: bytes, s: seconds), and counters end with _total:
thermocline.wal.written is thermocline_wal_written_bytes_total there. Every
metric has the attribute broker.

| metric | kind | unit | attributes | meaning |
|---|---|---|---|---|
`)
	for _, m := range metrics {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", m.name, m.kind, m.unit, strings.Join(m.attrs, ", "), m.about)
	}
	return b.Bytes()
}
