package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"thermocline/wal/shard"
)

func newClient(t *testing.T, s *testServer, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.addr), kgo.MetadataMinAge(10 * time.Millisecond), kgo.RetryTimeout(40 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func create(t *testing.T, s *testServer, topic string, partitions int32, config map[string]*string) {
	t.Helper()
	adm := kadm.NewClient(newClient(t, s))
	if _, err := adm.CreateTopic(testContext(t), partitions, 1, config, topic); err != nil {
		t.Fatal(err)
	}
}

// consume reads n records of a topic from the start.
func consume(t *testing.T, s *testServer, topic string, n int, opts ...kgo.Opt) []*kgo.Record {
	t.Helper()
	cl := newClient(t, s, append([]kgo.Opt{kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200 * time.Millisecond)}, opts...)...)
	ctx := testContext(t)
	var out []*kgo.Record
	for len(out) < n {
		fs := cl.PollFetches(ctx)
		if errs := fs.Errors(); len(errs) > 0 {
			t.Fatalf("after %d of %d records: %v", len(out), n, errs)
		}
		out = append(out, fs.Records()...)
	}
	return out
}

func TestProduceConsumeAllCodecs(t *testing.T) {
	s := startServer(t, newFakeCluster(3), nil)
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			topic := "codec-" + name
			create(t, s, topic, 4, nil)
			cl := newClient(t, s, kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
			const n = 200
			ctx := testContext(t)
			for i := range n {
				r := &kgo.Record{Key: []byte(fmt.Sprint("k", i)), Value: bytes.Repeat([]byte{byte(i)}, 300), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{1}}}}
				if i%10 == 0 {
					r.Value = nil
				}
				if i%20 == 0 {
					r.Key = nil
				}
				cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Error(err)
					}
				})
			}
			if err := cl.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			next := map[int32]int64{}
			seen := 0
			for _, r := range consume(t, s, topic, n) {
				if r.Offset != next[r.Partition] {
					t.Fatalf("partition %d: expected offset %d, found %d", r.Partition, next[r.Partition], r.Offset)
				}
				if r.LeaderEpoch != fakeTerm {
					t.Fatalf("leader epoch: expected %d, found %d", fakeTerm, r.LeaderEpoch)
				}
				if r.Value != nil && (len(r.Value) != 300 || len(r.Headers) != 1) {
					t.Fatalf("record came back changed: %+v", r)
				}
				next[r.Partition]++
				seen++
			}
			if seen != n {
				t.Errorf("expected %d records, found %d", n, seen)
			}
		})
	}
}

func TestConsumeAcrossTheBoundary(t *testing.T) {
	s := startServer(t, newFakeCluster(2), nil)
	create(t, s, "aged", 2, nil)
	cl := newClient(t, s, kgo.DefaultProduceTopic("aged"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	write := func(from, to int) {
		for i := from; i < to; i++ {
			if err := cl.ProduceSync(testContext(t), kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(0, 40)
	for _, r := range s.cluster.replicas {
		r.tier(t, s.cold)
	}
	write(40, 60)
	var values []string
	for _, r := range consume(t, s, "aged", 60) {
		values = append(values, string(r.Value))
	}
	slices.Sort(values)
	if values = slices.Compact(values); len(values) != 60 {
		t.Errorf("expected 60 different values, found %d", len(values))
	}
	if st := s.Stats(); st.ColdBytesOut == 0 || st.HotBytesOut == 0 {
		t.Errorf("expected bytes from both sides, found %d cold and %d hot", st.ColdBytesOut, st.HotBytesOut)
	}
}

func TestIdempotentProduceAfterLostAnswers(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "once", 1, nil)
	r := s.cluster.replicas[1]
	lost := 0
	r.mu.Lock()
	r.lost = func() []shard.Outcome { // the fate is unknown once, then all is well
		r.mu.Lock()
		defer r.mu.Unlock()
		if lost++; lost == 1 {
			r.lost = nil
		}
		return []shard.Outcome{{Err: shard.ErrUnknownFate}}
	}
	r.mu.Unlock()
	cl := newClient(t, s, kgo.DefaultProduceTopic("once"))
	if err := cl.ProduceSync(testContext(t), kgo.StringRecord("a"), kgo.StringRecord("b")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if got := consume(t, s, "once", 2); got[0].Offset != 0 || got[1].Offset != 1 {
		t.Errorf("unexpected offsets %d, %d", got[0].Offset, got[1].Offset)
	}
	if lost != 1 {
		t.Errorf("expected one lost proposal, found %d", lost)
	}
}

func TestAdmin(t *testing.T) {
	s := startServer(t, newFakeCluster(3), nil)
	adm := kadm.NewClient(newClient(t, s))
	ctx := testContext(t)
	retention := "1000"
	created, err := adm.CreateTopics(ctx, 6, 1, map[string]*string{"retention.ms": &retention}, "one", "two")
	if err != nil || created.Error() != nil {
		t.Fatal(err, created.Error())
	}
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, "one"); !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("second creation: %v", err)
	}
	if _, err := adm.CreateTopic(ctx, -2, 9, nil, "neither"); !errors.Is(err, kerr.InvalidPartitions) {
		t.Errorf("no partitions and too many replicas: %v, expected %v first", err, kerr.InvalidPartitions)
	}
	if _, err := adm.CreateTopic(ctx, 1, 3, nil, "many-replicas"); !errors.Is(err, kerr.InvalidReplicationFactor) {
		t.Errorf("too many replicas: %v", err)
	}
	if _, err := adm.CreateTopic(ctx, 1, 1, map[string]*string{"retention.msx": &retention}, "typo"); !errors.Is(err, kerr.InvalidConfig) {
		t.Errorf("unknown config: %v", err)
	}
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, "__consumer_offsets"); !errors.Is(err, kerr.InvalidTopicException) {
		t.Errorf("reserved name: %v", err)
	}
	topics, err := adm.ListTopics(ctx)
	if err != nil || len(topics) != 2 || len(topics["one"].Partitions) != 6 {
		t.Errorf("topics: %v %v", topics, err)
	}
	if _, err := adm.CreatePartitions(ctx, 2, "one"); err != nil {
		t.Fatal(err)
	}
	if topics, _ = adm.ListTopics(ctx, "one"); len(topics["one"].Partitions) != 8 {
		t.Errorf("expected 8 partitions, found %d", len(topics["one"].Partitions))
	}
	value := "compact"
	alter, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: &value}, {Op: kadm.DeleteConfig, Name: "retention.ms"}}, "one")
	if err != nil || alter[0].Err != nil {
		t.Fatal(err, alter)
	}
	described, err := adm.DescribeTopicConfigs(ctx, "one")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range described[0].Configs {
		if c.Key == "cleanup.policy" && c.MaybeValue() != "delete,compact" || c.Key == "retention.ms" && c.MaybeValue() != "604800000" {
			t.Errorf("%s is %q", c.Key, c.MaybeValue())
		}
	}
	if brokers, err := adm.DescribeBrokerConfigs(ctx, 1); err != nil || len(brokers[0].Configs) == 0 {
		t.Errorf("broker configs: %v %v", brokers, err)
	}
	deleted, err := adm.DeleteTopics(ctx, "two")
	if err != nil || deleted.Error() != nil {
		t.Fatal(err, deleted.Error())
	}
	if meta, err := adm.Metadata(ctx); err != nil || meta.Cluster != "thermocline-test-cluster" || meta.Controller != 1 {
		t.Errorf("metadata: %+v %v", meta, err)
	}
	if _, ok := s.cluster.TopicByName("two"); ok {
		t.Error("topic two is still there")
	}
	if dirs, err := adm.DescribeAllLogDirs(ctx, nil); err != nil || len(dirs) != 1 {
		t.Errorf("log dirs: %v %v", dirs, err)
	}
}

func TestOffsetsAndDeleteRecords(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "offsets", 1, nil)
	cl := newClient(t, s, kgo.DefaultProduceTopic("offsets"))
	adm := kadm.NewClient(cl)
	ctx := testContext(t)
	base := time.UnixMilli(time.Now().UnixMilli()).Add(-time.Hour)
	for i := range 20 {
		r := kgo.StringRecord(fmt.Sprint(i))
		r.Timestamp = base.Add(time.Duration(i) * time.Second)
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if i == 9 {
			s.cluster.replicas[1].tier(t, s.cold)
		}
	}
	check := func(what string, want int64, got kadm.ListedOffsets, err error) {
		t.Helper()
		o, _ := got.Lookup("offsets", 0)
		if err != nil || o.Err != nil || o.Offset != want {
			t.Errorf("%s: expected %d, found %d (%v, %v)", what, want, o.Offset, err, o.Err)
		}
	}
	end, err := adm.ListEndOffsets(ctx, "offsets")
	check("end", 20, end, err)
	start, err := adm.ListStartOffsets(ctx, "offsets")
	check("start", 0, start, err)
	for _, i := range []int64{0, 1, 9, 10, 19} {
		at := base.Add(time.Duration(i) * time.Second).UnixMilli()
		got, err := adm.ListOffsetsAfterMilli(ctx, at, "offsets")
		check(fmt.Sprint("at second ", i), i, got, err)
		got, err = adm.ListOffsetsAfterMilli(ctx, at-1, "offsets")
		check(fmt.Sprint("just before second ", i), i, got, err)
	}
	var to kadm.Offsets
	to.AddOffset("offsets", 0, 12, -1)
	low, err := adm.DeleteRecords(ctx, to)
	if err != nil || low.Error() != nil || low["offsets"][0].LowWatermark != 12 {
		t.Fatalf("delete records: %v %v", low, err)
	}
	start, err = adm.ListStartOffsets(ctx, "offsets")
	check("start after deletion", 12, start, err)
	got, err := adm.ListOffsetsAfterMilli(ctx, base.UnixMilli(), "offsets")
	check("first record after deletion", 12, got, err)
	if rs := consume(t, s, "offsets", 8); rs[0].Offset != 12 {
		t.Errorf("expected to consume from 12, found %d", rs[0].Offset)
	}
	// What is compacted alone keeps its records, as in Kafka.
	compact := "compact"
	create(t, s, "kept", 1, map[string]*string{"cleanup.policy": &compact})
	var kept kadm.Offsets
	kept.AddOffset("kept", 0, 0, -1)
	if low, err := adm.DeleteRecords(ctx, kept); err != nil || !errors.Is(low.Error(), kerr.PolicyViolation) {
		t.Errorf("delete records of a compacted topic: %v %v, expected %v", low, err, kerr.PolicyViolation)
	}
}

func TestAutoCreate(t *testing.T) {
	s := startServer(t, newFakeCluster(2), nil)
	cl := newClient(t, s, kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("made-on-use"))
	if err := cl.ProduceSync(testContext(t), kgo.StringRecord("x")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.cluster.TopicByName("made-on-use"); !ok {
		t.Error("topic was not created")
	}
}
