package index_test

import (
	"bytes"
	"errors"
	"math/rand"
	"testing"
	"time"

	"thermocline/index"
	"thermocline/tiering"
	"thermocline/tiering/format"
	"thermocline/tiering/object"
	"thermocline/tiering/object/memory"
	"thermocline/tiering/tieringtest"
	"thermocline/wal/batch"
)

// readOn reads on from an offset, batch by batch, until it fails.
func readOn(t *testing.T, r *index.Reader, p index.Partition, from int64) (got []byte, next int64, err error) {
	t.Helper()
	for from < p.TieredEnd {
		d, err := r.Read(background(t), index.ReadRequest{Partition: p, Offset: from, MaxBytes: 1, MinOne: true})
		if err != nil {
			return got, from, err
		}
		if d.NextOffset <= from {
			t.Fatalf("read at %d brought nothing", from)
		}
		for _, x := range d.Pieces {
			got = append(got, x...)
		}
		from = d.NextOffset
		d.Release()
	}
	return got, from, nil
}

// intact checks that everything is readable but the offsets [from, to), and that
// the error there names the object.
func (b *bucket) intact(t *testing.T, from, to int64, object string, want error) {
	t.Helper()
	r, p := b.reader(t, index.Options{BackoffMin: time.Millisecond, BackoffMax: time.Millisecond}), b.partition(0)
	got, next, err := readOn(t, r, p, 0)
	if next != from || !bytes.Equal(got, b.want(0, 0, from)) {
		t.Errorf("expected the records below %d, found those below %d: %v", from, next, err)
	}
	var named *index.ObjectError
	if !errors.Is(err, want) || !errors.As(err, &named) || named.Key != object {
		t.Errorf("at %d: expected %v of %s, found %v", from, want, object, err)
	}
	if from > 0 { // one answer that reaches up to the damage
		d, err := r.Read(background(t), index.ReadRequest{Partition: p, Offset: 0, MaxBytes: 1 << 20, MinOne: true})
		if err != nil || d.NextOffset != from {
			t.Fatalf("expected everything below %d in one answer, found %+v, %v", from, d, err)
		}
		d.Release()
	}
	if got := replay(t, r, p, to, 1000, p.TieredEnd); !bytes.Equal(got, b.want(0, to, p.TieredEnd)) {
		t.Errorf("wrong bytes from %d on", to)
	}
}

// A missing or damaged segment takes with it what is in it, and nothing else.
func TestLostSegmentLeavesTheOthers(t *testing.T) {
	rng := rand.New(rand.NewSource(15))
	b := fillSegments(t, 5, 3, 2, func(ref format.PartitionRef, next int64) batch.Batch { return small(rng, ref, next) })
	batches := b.shard.Partition(0).Batches
	for k, row := range b.shard.Manifest().LevelZero() {
		full := format.ObjectKey(cluster, row.Key)
		whole := b.whole(t, full, row.Size)
		from, to := batches[3*k].BaseOffset(), batches[3*k+2].LastOffset()+1
		replace(t, b.mem, full, nil)
		b.intact(t, from, to, full, object.ErrNotFound)
		bad := bytes.Clone(whole)
		bad[len(bad)-60] ^= 1
		replace(t, b.mem, full, bad)
		b.intact(t, from, to, full, format.ErrCorrupt)
		replace(t, b.mem, full, whole)
	}
}

// Damage inside a segment takes with it its own piece alone, also from a
// sequential reader, which gets several pieces with one GET.
func TestDamagedPieceLeavesTheOthers(t *testing.T) {
	const pieces = 12
	b := &bucket{shard: tieringtest.New(1), mem: memory.New(memory.Options{})}
	b.store = object.NewCounted(b.mem)
	s, err := tiering.Start(tiering.Options{Cluster: cluster, Shard: 1, Term: 1, Source: b.shard, Committer: b.shard, Store: b.mem,
		SegmentBytes: 1 << 40, SegmentAge: time.Hour, Tick: time.Hour, PaceFactor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	rng := rand.New(rand.NewSource(16))
	for i := range pieces { // each epoch begins a piece
		b.shard.Epoch = int32(1 + i)
		b.shard.Append([]format.PartitionRef{0}, func(ref format.PartitionRef, next int64) batch.Batch { return small(rng, ref, next) })
	}
	if err := s.Roll(background(t)); err != nil {
		t.Fatal(err)
	}
	row := b.shard.Manifest().LevelZero()[0]
	full := format.ObjectKey(cluster, row.Key)
	whole := b.whole(t, full, row.Size)
	for _, x := range b.shard.Partition(0).Batches {
		at := bytes.Index(whole, x)
		if at < 0 {
			t.Fatalf("the batch at %d is not in its segment", x.BaseOffset())
		}
		bad := bytes.Clone(whole)
		bad[at+len(x)-1] ^= 1
		replace(t, b.mem, full, bad)
		b.intact(t, x.BaseOffset(), x.LastOffset()+1, full, format.ErrCorrupt)
	}
}

func (b *bucket) whole(t *testing.T, key string, size int64) []byte {
	t.Helper()
	p := make([]byte, size)
	if _, err := b.mem.GetRange(background(t), key, 0, p); err != nil {
		t.Fatal(err)
	}
	return p
}
