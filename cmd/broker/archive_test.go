package broker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.etcd.io/raft/v3/raftpb"

	"thermocline/ingest/partition"
	"thermocline/metadata"
	metadatamemory "thermocline/metadata/memory"
	"thermocline/tiering/format"
	"thermocline/tiering/object"
	"thermocline/tiering/object/memory"
	"thermocline/wal/shard"
	"thermocline/wal/vfs"
)

// archiving is an archiver of shard 7 over stores in memory, with a clock that
// the test turns. Snapshots of index and term are made as they are asked for.
type archiving struct {
	*archiver
	t           *testing.T
	clock       time.Time
	index, term uint64
	led         bool
	officer     bool
	objects     object.Store
	mem         *vfs.Mem
	view        *metadata.View
}

func newArchiving(t *testing.T, store object.Store) *archiving {
	t.Helper()
	meta := metadatamemory.New()
	view, err := metadata.OpenView(t.Context(), meta, metadata.ViewOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(view.Close)
	x := &archiving{t: t, clock: time.Now(), index: 10, term: 3, led: true, objects: store, mem: vfs.NewMem(1), view: view}
	if err := x.mem.MkdirAll(walDir); err != nil {
		t.Fatal(err)
	}
	x.archiver = &archiver{
		cluster: "c", store: store, meta: meta, fs: x.mem, log: slog.New(slog.DiscardHandler), pointer: view.SnapshotPointer,
		office: func() bool { return x.officer }, now: func() time.Time { return x.clock }, every: archiveEvery, grace: archiveGrace,
		asked: make(chan metadata.ShardID, archiveAsked), last: map[metadata.ShardID]time.Time{},
		led: func() []archived {
			if !x.led {
				return nil
			}
			return []archived{{id: 7, term: x.term, applied: x.index, hold: x.hold}}
		},
	}
	return x
}

// hold writes a snapshot of a shard with one partition.
func (x *archiving) hold(context.Context) (*shard.HeldSnapshot, error) {
	set := partition.NewSet(partition.Options{Shard: 7})
	set.SkipEntry(x.index, x.term)
	name := shard.SnapshotName(7, x.index, 1)
	meta := shard.SnapshotMeta{Shard: 7, Index: x.index, Term: x.term, HW: x.index, ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}}
	if err := shard.WriteSnapshot(x.mem, walDir, name, meta, set.Image().Encode); err != nil {
		return nil, err
	}
	return shard.Held(name, x.index, x.term), nil
}

// keys lists the shard's snapshot objects.
func (x *archiving) keys() (keys []string) {
	x.t.Helper()
	err := x.objects.List(x.t.Context(), format.Prefix("c", format.KindSnapshot), "", func(i object.Info) bool {
		keys = append(keys, strings.TrimPrefix(i.Key, "c/"))
		return true
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return keys
}

// points waits until the view shows the pointer at an index, and returns it.
func (x *archiving) points(index uint64) metadata.SnapshotPointer {
	x.t.Helper()
	err := x.view.WaitFor(x.t.Context(), func() bool {
		p, ok := x.view.SnapshotPointer(7)
		return ok && p.Index == index
	})
	if err != nil {
		x.t.Fatal(err)
	}
	p, _ := x.view.SnapshotPointer(7)
	return p
}

func TestArchiveOrderRateAndCleaning(t *testing.T) {
	x := newArchiving(t, memory.New(memory.Options{}))
	ctx := t.Context()
	x.turn(ctx, x.due)
	first := x.points(10)
	if got := x.keys(); !slices.Equal(got, []string{first.Object}) {
		t.Fatalf("objects %v, pointer %+v", got, first)
	}
	// Nothing new, or too soon: nothing is stored.
	x.clock = x.clock.Add(2 * archiveEvery)
	x.turn(ctx, x.due)
	x.clock, x.last[7] = x.clock.Add(archiveEvery), x.clock
	x.index = 20
	x.clock = x.clock.Add(-time.Second)
	x.turn(ctx, x.due)
	if n := x.stored.Load(); n != 1 {
		t.Fatalf("stored %d snapshots, expected one in ten minutes and only when something changed", n)
	}
	x.clock = x.clock.Add(time.Second)
	x.turn(ctx, x.due)
	second := x.points(20)
	if got := x.keys(); len(got) != 2 || second.Object == first.Object {
		t.Fatalf("objects %v: the first one is younger than the grace and stays", got)
	}
	// Of a newer term, by whoever leads now: not this broker's to remove.
	newer := format.Name{Kind: format.KindSnapshot, Shard: 7, Term: 9, Number: 5, Random: 1}.Key()
	other := format.Name{Kind: format.KindSnapshot, Shard: 70, Term: 1, Number: 5, Random: 1}.Key()
	for _, k := range []string{newer, other} {
		body := bytes.NewReader([]byte("x"))
		crc, _ := object.Checksum(body)
		if err := x.objects.Put(ctx, format.ObjectKey("c", k), body, object.PutOptions{CRC32C: crc}); err != nil {
			t.Fatal(err)
		}
	}
	x.clock, x.index = x.clock.Add(2*archiveGrace), 30
	x.turn(ctx, x.due)
	third := x.points(30)
	want := []string{third.Object, newer, other}
	slices.Sort(want)
	if got := x.keys(); !slices.Equal(got, want) {
		t.Fatalf("objects: expected %v, found %v", want, got)
	}
	// A roll does not wait.
	x.index = 40
	x.turn(ctx, func(s archived) bool { return s.id == 7 })
	x.points(40)
}

// A leader that was deposed cannot move the pointer back, and removes nothing.
func TestArchiveOfADeposedLeader(t *testing.T) {
	x := newArchiving(t, memory.New(memory.Options{}))
	ctx := t.Context()
	now := metadata.SnapshotPointer{Shard: 7, Object: format.Name{Kind: format.KindSnapshot, Shard: 7, Term: 4, Number: 50, Random: 3}.Key(), Index: 50, Term: 4}
	if err := metadata.WriteSnapshotPointer(ctx, x.meta, now); err != nil {
		t.Fatal(err)
	}
	x.points(50)
	x.clock = x.clock.Add(5 * archiveGrace)
	x.turn(ctx, func(archived) bool { return true })
	if p := x.points(50); p != now || x.failures.Load() != 1 || x.removed.Load() != 0 || len(x.keys()) != 1 {
		t.Fatalf("pointer %+v, %d failures, %d removed, objects %v", p, x.failures.Load(), x.removed.Load(), x.keys())
	}
}

// failingPut is a store whose PUT fails.
type failingPut struct{ object.Store }

// Put fails.
func (failingPut) Put(context.Context, string, object.Body, object.PutOptions) error {
	return errors.New("away")
}

// Without its object no pointer moves, and a store that is away is not asked
// again and again.
func TestArchiveWithoutAStore(t *testing.T) {
	x := newArchiving(t, failingPut{memory.New(memory.Options{})})
	for range 5 {
		x.turn(t.Context(), x.due)
	}
	if _, ok := x.view.SnapshotPointer(7); ok || x.failures.Load() != 1 {
		t.Fatalf("pointer there: %v, %d failures: expected one attempt", ok, x.failures.Load())
	}
}

// halfDone is a store with uploads that were left half done.
type halfDone struct {
	object.Store
	ages []time.Duration
}

// AbortUploads counts.
func (h *halfDone) AbortUploads(_ context.Context, age time.Duration) (int, error) {
	h.ages = append(h.ages, age)
	return 2, nil
}

func TestArchiveAbortsOldUploads(t *testing.T) {
	h := &halfDone{Store: memory.New(memory.Options{})}
	x := newArchiving(t, object.NewCounted(h))
	x.abort(t.Context())
	if len(h.ages) != 0 {
		t.Fatal("a broker without the office aborted uploads")
	}
	x.officer = true
	x.abort(t.Context())
	x.abort(t.Context())
	x.clock = x.clock.Add(abortEvery)
	x.abort(t.Context())
	if !slices.Equal(h.ages, []time.Duration{24 * time.Hour, 24 * time.Hour}) || x.abortedUploads.Load() != 4 {
		t.Fatalf("ages %v, %d aborted", h.ages, x.abortedUploads.Load())
	}
}

// TestBucketDescribesShards: what a broker stored is enough to know the shard's
// partitions, topics and manifest, without any disk or metadata store.
func TestBucketDescribesShards(t *testing.T) {
	b := startBrokers(t, 1)[0]
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.KafkaAddr()), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("described"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	topic := b.view.Topic("described")
	id := topic.Shards[0]
	b.archiver.ask(id)
	err = b.view.WaitFor(ctx, func() bool { _, ok := b.view.SnapshotPointer(id); return ok })
	if err != nil {
		t.Fatal(err)
	}
	p, _ := b.view.SnapshotPointer(id)
	if s := b.Tiering(); !slices.ContainsFunc(s.Shards, func(m ShardManifest) bool { return m.Snapshot != nil && *m.Snapshot == p }) {
		t.Errorf("/tiering does not show the pointer %+v", p)
	}
	key := format.ObjectKey(b.view.Cluster().Info.ID, p.Object)
	info, err := b.uploads.Head(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, info.Size)
	if _, err := b.uploads.GetRange(ctx, key, 0, raw); err != nil {
		t.Fatal(err)
	}
	mem := vfs.NewMem(1)
	f, err := mem.Create("object")
	if err == nil {
		_, err = f.WriteAtv([][]byte{raw}, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	meta, r, err := shard.OpenSnapshot(mem, ".", "object")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	set := partition.NewSet(partition.Options{Shard: uint32(id)})
	if err := set.Restore(r); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Fatal(err)
	}
	v, ok := set.View(partition.Key{Topic: topic.ID})
	if topics := set.Topics(); !ok || v.LogEnd != 1 || len(topics) != 1 || topics[0].Name != "described" || uint64(meta.Index) != p.Index || meta.Term != p.Term {
		t.Fatalf("view %+v (%v), topics %+v, snapshot %+v, pointer %+v", v, ok, topics, meta, p)
	}
}
