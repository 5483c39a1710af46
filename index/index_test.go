package index_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"thermocline/index"
	"thermocline/tiering"
	"thermocline/tiering/format"
	"thermocline/tiering/object"
	"thermocline/tiering/object/faulty"
	"thermocline/tiering/object/memory"
	"thermocline/tiering/tieringtest"
	"thermocline/wal/batch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const cluster = "test-cluster"

func background(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return c
}

// bucket is a filled store with the history that went into it.
type bucket struct {
	shard *tieringtest.Shard
	mem   *memory.Store
	store *object.Counted
	limit map[format.PartitionRef]int64 // log starts
}

// fill makes rounds segments, with their runs, of random batches.
func fill(t testing.TB, seed int64, rounds, partitions int, one func(rng *rand.Rand, ref format.PartitionRef, next int64) batch.Batch) *bucket {
	t.Helper()
	rng := rand.New(rand.NewSource(seed))
	b := &bucket{shard: tieringtest.New(1), mem: memory.New(memory.Options{}), limit: map[format.PartitionRef]int64{}}
	b.store = object.NewCounted(b.mem)
	s, err := tiering.Start(tiering.Options{Cluster: cluster, Shard: 1, Term: 1, Source: b.shard, Committer: b.shard, Store: b.mem,
		SegmentBytes: 1 << 40, SegmentAge: time.Hour, Tick: time.Hour, PaceFactor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	for i := range rounds {
		b.shard.Epoch = int32(1 + i/5)
		for range 1 + rng.Intn(3) {
			var refs []format.PartitionRef
			for ref := range format.PartitionRef(partitions) {
				if ref == 0 || rng.Intn(3) > 0 {
					refs = append(refs, ref*5)
				}
			}
			b.shard.Append(refs, func(ref format.PartitionRef, next int64) batch.Batch { return one(rng, ref, next) })
		}
		if err := s.Roll(background(t)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func small(rng *rand.Rand, ref format.PartitionRef, next int64) batch.Batch {
	codecs := []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd}
	o := batch.BuilderOptions{BaseOffset: next, Codec: codecs[rng.Intn(len(codecs))], LogAppendTime: rng.Intn(6) == 0, Control: rng.Intn(10) == 0}
	bl := batch.NewBuilder(o)
	for range 1 + rng.Intn(4) {
		ts := 1000 + next*10 + int64(rng.Intn(60)) - 30 // out of order, and equal now and then
		if rng.Intn(60) == 0 {
			ts += 100000 // from the future
		}
		if o.Control {
			ts += 1000000 // never to be found
		}
		bl.Add(ts, []byte{byte(ref)}, bytes.Repeat([]byte{byte(next)}, rng.Intn(40)))
	}
	return bl.Build()
}

func (b *bucket) partition(ref format.PartitionRef) index.Partition {
	return index.Partition{Manifest: b.shard.Manifest(), Ref: ref, LogStart: b.limit[ref], TieredEnd: b.shard.Partition(ref).TieredEnd()}
}

func (b *bucket) reader(t testing.TB, o index.Options) *index.Reader {
	return newReader(t, b.store, o)
}

func newReader(t testing.TB, store object.Store, o index.Options) *index.Reader {
	o.Cluster = cluster
	r := index.NewReader(store, o)
	t.Cleanup(r.Close)
	return r
}

// want is what a read from an offset on must return: all batches from the one
// that holds it.
func (b *bucket) want(ref format.PartitionRef, offset, upTo int64) []byte {
	var out []byte
	for _, x := range b.shard.Partition(ref).Batches {
		if x.LastOffset() >= offset && x.BaseOffset() < upTo {
			out = append(out, x...)
		}
	}
	return out
}

func TestReadFromEveryOffset(t *testing.T) {
	b := fill(t, 1, 75, 6, small)
	if m := b.shard.Manifest(); len(m.Runs) != 2 || len(m.LevelZero()) != 3 {
		t.Fatalf("%d runs, %d segments in level 0", len(m.Runs), len(m.LevelZero()))
	}
	r := b.reader(t, index.Options{})
	for _, ref := range b.shard.Refs() {
		p := b.partition(ref)
		for o := range p.TieredEnd {
			d, err := r.Read(background(t), index.ReadRequest{Partition: p, Offset: o, MaxBytes: 1, MinOne: true})
			if err != nil {
				t.Fatal(err)
			}
			want := b.want(ref, o, p.TieredEnd)
			first, _, err := batch.Next(want)
			if err != nil || len(d.Pieces) != 1 || !bytes.Equal(d.Pieces[0], first) || d.NextOffset != first.LastOffset()+1 {
				t.Fatalf("partition %d offset %d: %d pieces, %d bytes, next %d; expected the batch at %d", ref, o, len(d.Pieces), d.Bytes, d.NextOffset, first.BaseOffset())
			}
			d.Release()
			if o%17 == 0 {
				upTo := o + 1 + rand.New(rand.NewSource(o)).Int63n(p.TieredEnd-o)
				if got := replay(t, r, p, o, 1<<20, upTo); !bytes.Equal(got, b.want(ref, o, upTo)) {
					t.Fatalf("partition %d from %d up to %d: %d bytes, expected %d", ref, o, upTo, len(got), len(b.want(ref, o, upTo)))
				}
			}
		}
		for _, o := range []int64{-1, p.TieredEnd} {
			if _, err := r.Read(background(t), index.ReadRequest{Partition: p, Offset: o, MaxBytes: 1, MinOne: true}); !errors.Is(err, index.ErrOffset) {
				t.Fatalf("offset %d: %v", o, err)
			}
		}
	}
}

// replay reads a range to its end.
func replay(t testing.TB, r *index.Reader, p index.Partition, from int64, maxBytes int, upTo int64) (got []byte) {
	t.Helper()
	for from < upTo {
		d, err := r.Read(background(t), index.ReadRequest{Partition: p, Offset: from, MaxBytes: maxBytes, MinOne: true, UpTo: upTo})
		if err != nil {
			t.Fatal(err)
		}
		if d.NextOffset <= from {
			t.Fatalf("read at %d brought nothing", from)
		}
		n := 0
		for _, x := range d.Pieces {
			got = append(got, x...)
			n += len(x)
		}
		if n != d.Bytes {
			t.Fatalf("%d bytes in pieces, Bytes says %d", n, d.Bytes)
		}
		from = d.NextOffset
		d.Release()
	}
	return got
}

func TestMaxBytesWithoutMinOne(t *testing.T) {
	b := fill(t, 1, 2, 1, small)
	r := b.reader(t, index.Options{})
	p := b.partition(0)
	first := b.shard.Partition(0).Batches[0]
	for max, want := range map[int]int{0: 0, len(first) - 1: 0, len(first): len(first)} {
		d, err := r.Read(background(t), index.ReadRequest{Partition: p, Offset: 0, MaxBytes: max})
		if err != nil || d.Bytes != want || want == 0 && d.NextOffset != 0 {
			t.Fatalf("max bytes %d: %+v, %v", max, d, err)
		}
		d.Release()
	}
}

// records lists all records of a partition that look-ups may find.
func (b *bucket) records(t *testing.T, ref format.PartitionRef, from int64) (out []index.Found) {
	t.Helper()
	p := b.shard.Partition(ref)
	for _, x := range p.Batches {
		if x.IsControl() || x.BaseOffset() >= p.TieredEnd() {
			continue
		}
		err := batch.Iterate(x, func(r batch.Record) bool {
			if o := x.BaseOffset() + int64(r.OffsetDelta); o >= from {
				out = append(out, index.Found{Offset: o, Timestamp: r.Timestamp, Epoch: x.LeaderEpoch()})
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestTimesAgreeWithBruteForce(t *testing.T) {
	for seed := range int64(3) {
		b := fill(t, seed, 30+int(seed)*20, 3, small)
		r := b.reader(t, index.Options{})
		for _, ref := range b.shard.Refs() {
			p := b.partition(ref)
			starts := []int64{0, 1, p.TieredEnd / 3, p.TieredEnd / 2, p.TieredEnd - 1}
			for _, x := range b.shard.Partition(ref).Batches {
				if x.LastOffsetDelta() > 1 && x.BaseOffset()%4 == 0 {
					starts = append(starts, x.BaseOffset()+1) // inside a batch
				}
			}
			for _, from := range starts {
				checkTimes(t, b, r, p, from)
			}
		}
	}
}

func checkTimes(t *testing.T, b *bucket, r *index.Reader, p index.Partition, from int64) {
	t.Helper()
	recs := b.records(t, p.Ref, from)
	p.LogStart = from
	targets := map[int64]bool{0: true, 1 << 40: true}
	for i, rec := range recs {
		if i%9 == 0 || i < 6 {
			targets[rec.Timestamp], targets[rec.Timestamp+1] = true, true
		}
	}
	for ts := range targets {
		var want index.Found
		ok := false
		for _, rec := range recs {
			if rec.Timestamp >= ts {
				want, ok = rec, true
				break
			}
		}
		got, found, err := r.OffsetForTime(background(t), p, from, ts)
		if err != nil || found != ok || ok && got != want {
			t.Fatalf("partition %d from %d time %d: found %+v %v (%v), expected %+v %v", p.Ref, from, ts, got, found, err, want, ok)
		}
	}
	want := index.Found{Offset: -1, Timestamp: -1}
	for _, rec := range recs {
		if rec.Timestamp > want.Timestamp {
			want = rec
		}
	}
	got, found, err := r.MaxTimestamp(background(t), p, from)
	if err != nil || found != (want.Offset >= 0) || found && got != want {
		t.Fatalf("partition %d from %d: largest time %+v %v (%v), expected %+v", p.Ref, from, got, found, err, want)
	}
}

func TestEpochEndAgreesWithBruteForce(t *testing.T) {
	b := fill(t, 4, 77, 5, small)
	r := b.reader(t, index.Options{})
	for _, ref := range b.shard.Refs() {
		p := b.partition(ref)
		for _, p.LogStart = range []int64{0, 7, p.TieredEnd / 2} {
			for epoch := int32(0); epoch < 20; epoch++ {
				want, end, ok := int32(-1), p.TieredEnd, false
				for _, x := range b.shard.Partition(ref).Batches {
					if x.LeaderEpoch() <= epoch {
						want, ok = x.LeaderEpoch(), true
					} else if x.BaseOffset() < end {
						end = x.BaseOffset()
					}
				}
				ok = ok && end > p.LogStart
				found, gotEnd, gotOK, err := r.EpochEnd(background(t), p, epoch)
				if err != nil || gotOK != ok || gotEnd != end || ok && found != want {
					t.Fatalf("partition %d epoch %d: %d to %d %v (%v), expected %d to %d %v", ref, epoch, found, gotEnd, gotOK, err, want, end, ok)
				}
			}
		}
	}
}

// big makes batches of about 100 KiB.
func big(rng *rand.Rand, ref format.PartitionRef, next int64) batch.Batch {
	bl := batch.NewBuilder(batch.BuilderOptions{BaseOffset: next})
	p := make([]byte, 10<<10)
	for range 10 {
		_, _ = rng.Read(p)
		bl.Add(next, nil, p)
	}
	return bl.Build()
}

func TestOneRecordCostsThreeGetsAtMost(t *testing.T) {
	b := fill(t, 5, 67, 4, big)
	for _, ref := range b.shard.Refs() {
		p := b.partition(ref)
		for o := int64(0); o < p.TieredEnd; o += p.TieredEnd / 7 {
			for name, look := range map[string]func(r *index.Reader) error{
				"offset": func(r *index.Reader) error {
					d, err := r.Read(background(t), index.ReadRequest{Partition: p, Offset: o, MaxBytes: 64 << 10, MinOne: true})
					if err == nil {
						d.Release()
					}
					return err
				},
				"time": func(r *index.Reader) error { _, _, err := r.OffsetForTime(background(t), p, 0, o); return err },
			} {
				r := b.reader(t, index.Options{})
				if err := r.Warm(background(t), p.Manifest); err != nil {
					t.Fatal(err)
				}
				before := b.store.Stats()[object.OpGet]
				for round, most := range []int64{3, 0} {
					if err := look(r); err != nil {
						t.Fatal(err)
					}
					after := b.store.Stats()[object.OpGet]
					if n, bytes := after.Calls-before.Calls, after.Bytes-before.Bytes; n > most || bytes > 2<<20 {
						t.Fatalf("%s %d, round %d: %d GETs, %d bytes", name, o, round, n, bytes)
					}
					before = after
				}
				r.Close()
			}
		}
	}
}

func TestReplayReadsLittleMoreThanItDelivers(t *testing.T) {
	b := fill(t, 6, 40, 4, big)
	r := b.reader(t, index.Options{DataBytes: 16 << 20})
	var wg sync.WaitGroup
	for _, ref := range b.shard.Refs() {
		wg.Add(1)
		go func() {
			defer wg.Done()
			p := b.partition(ref)
			if got := replay(t, r, p, 0, 1<<20, p.TieredEnd); !bytes.Equal(got, b.want(ref, 0, p.TieredEnd)) {
				t.Errorf("partition %d: %d bytes are not its history", ref, len(got))
			}
		}()
	}
	wg.Wait()
	st, get := r.Stats(), b.store.Stats()[object.OpGet]
	if float64(get.Bytes) > 1.1*float64(st.Delivered) {
		t.Fatalf("%d bytes read for %d delivered; %+v", get.Bytes, st.Delivered, st)
	}
	if st.Ahead == 0 || st.DataBytes > 16<<20 {
		t.Fatalf("stats: %+v", st)
	}
}

func TestManyReadersStayWithinTheBudget(t *testing.T) {
	b := fill(t, 7, 20, 8, big)
	const budget = 2 << 20
	r := b.reader(t, index.Options{DataBytes: budget, Connections: 4})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewSource(int64(i)))
			for range 10 {
				ref := b.shard.Refs()[rng.Intn(8)]
				p := b.partition(ref)
				o := rng.Int63n(p.TieredEnd)
				d, err := r.Read(background(t), index.ReadRequest{Partition: p, Offset: o, MaxBytes: 150 << 10, MinOne: true})
				if err != nil {
					t.Error(err)
					return
				}
				want := b.want(ref, o, p.TieredEnd)
				if got := bytes.Join(d.Pieces, nil); !bytes.HasPrefix(want, got) || len(got) == 0 {
					t.Errorf("partition %d offset %d: wrong bytes", ref, o)
				}
				if held := r.Stats().DataBytes; held > budget {
					t.Errorf("%d bytes held, the budget is %d", held, budget)
				}
				d.Release()
			}
		}()
	}
	wg.Wait()
}

func TestEqualReadsShareOneGet(t *testing.T) {
	b := fill(t, 8, 1, 1, big)
	slow := faulty.New(b.mem, 1)
	r := newReader(t, slow, index.Options{})
	p := b.partition(0)
	if err := r.Warm(background(t), p.Manifest); err != nil {
		t.Fatal(err)
	}
	slow.SetLink(faulty.Link{FirstByte: 100 * time.Millisecond})
	before := slow.Counts(object.OpGet).Calls
	var wg sync.WaitGroup
	for range 20 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			d, err := r.Read(background(t), index.ReadRequest{Partition: p, Offset: 0, MaxBytes: 1, MinOne: true})
			if err != nil {
				t.Error(err)
				return
			}
			d.Release()
		}()
	}
	wg.Wait()
	if n := slow.Counts(object.OpGet).Calls - before; n != 1 {
		t.Fatalf("20 equal reads made %d GETs", n)
	}
}

// TestTimedOutFetchKeepsItsDownload: a store slower than fetch.max.wait.ms
// still makes progress, with one GET for each thing.
func TestTimedOutFetchKeepsItsDownload(t *testing.T) {
	b := fill(t, 9, 9, 1, small)
	slow := faulty.New(b.mem, 1)
	slow.SetLink(faulty.Link{FirstByte: 60 * time.Millisecond})
	r := newReader(t, slow, index.Options{})
	p := b.partition(0)
	tries := 0
	for ; ; tries++ {
		short, cancel := context.WithTimeout(background(t), 20*time.Millisecond)
		d, err := r.Read(short, index.ReadRequest{Partition: p, Offset: 0, MaxBytes: 1, MinOne: true})
		cancel()
		if err == nil {
			d.Release()
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) || !index.Retriable(err) {
			t.Fatal(err)
		}
		if tries == 500 {
			t.Fatal("no progress")
		}
	}
	if n := slow.Counts(object.OpGet).Calls; n != 4 || tries == 0 {
		t.Fatalf("%d tries, %d GETs: expected a directory, a fence block, a page and data", tries, n)
	}
}

func TestStoreTrouble(t *testing.T) {
	b := fill(t, 10, 30, 3, small)
	for seed := range uint64(4) {
		store := faulty.New(b.mem, seed)
		store.SetFaults(faulty.Faults{Unavailable: 0.1, Burst: 5, Hang: 0.01, Cut: 0.2})
		r := newReader(t, store, index.Options{AttemptTimeout: 20 * time.Millisecond, BackoffMin: time.Millisecond, BackoffMax: 4 * time.Millisecond})
		for _, ref := range b.shard.Refs() {
			p := b.partition(ref)
			if got := replay(t, r, p, 0, 500, p.TieredEnd); !bytes.Equal(got, b.want(ref, 0, p.TieredEnd)) {
				t.Fatalf("seed %d partition %d: wrong bytes", seed, ref)
			}
			checkTimes(t, b, r, p, 5)
		}
		r.Close()
	}
}

func TestStoreAway(t *testing.T) {
	b := fill(t, 11, 2, 1, small)
	store := faulty.New(b.mem, 1)
	store.SetAway(true)
	r := newReader(t, store, index.Options{LoadTimeout: 50 * time.Millisecond, BackoffMin: time.Millisecond, BackoffMax: 4 * time.Millisecond})
	req := index.ReadRequest{Partition: b.partition(0), MaxBytes: 1, MinOne: true}
	if _, err := r.Read(background(t), req); !errors.Is(err, object.ErrUnavailable) || !index.Retriable(err) {
		t.Fatal(err)
	}
	store.SetAway(false)
	for {
		// A load that began before may still fail, and this read have joined it.
		d, err := r.Read(background(t), req)
		if err == nil {
			d.Release()
			break
		}
		if !index.Retriable(err) {
			t.Fatal(err)
		}
	}
}

func TestMissingAndDamagedObjectsAreNamed(t *testing.T) {
	b := fill(t, 12, 18, 2, small)
	m := b.shard.Manifest()
	p := b.partition(0)
	// Objects that a read at offset 0 needs, and one of level 0.
	for _, key := range []string{m.Fence.Key, m.Runs[0].Key, m.LevelZero()[0].Key} {
		full := format.ObjectKey(cluster, key)
		info, err := b.mem.Head(background(t), full)
		if err != nil {
			t.Fatal(err)
		}
		whole := make([]byte, info.Size)
		if _, err := b.mem.GetRange(background(t), full, 0, whole); err != nil {
			t.Fatal(err)
		}
		damaged := bytes.Clone(whole)
		damaged[100] ^= 1
		damaged[len(damaged)-60] ^= 1
		for _, c := range []struct {
			name string
			with []byte
			want error
		}{{"missing", nil, object.ErrNotFound}, {"damaged", damaged, format.ErrCorrupt}, {"cut", whole[:len(whole)/2], format.ErrCorrupt}} {
			replace(t, b.mem, full, c.with)
			r := b.reader(t, index.Options{BackoffMin: time.Millisecond, BackoffMax: time.Millisecond})
			_, next, err := readOn(t, r, p, 0)
			var named *index.ObjectError
			if !errors.Is(err, c.want) || !errors.As(err, &named) || named.Key != full || index.Retriable(err) {
				t.Errorf("%s %s: %v", c.name, key, err)
			}
			if early := key != m.LevelZero()[0].Key; early != (next == 0) {
				t.Errorf("%s %s: read up to %d", c.name, key, next)
			}
			r.Close()
		}
		replace(t, b.mem, full, whole)
	}
	r := b.reader(t, index.Options{})
	if got := replay(t, r, p, 0, 1000, p.TieredEnd); !bytes.Equal(got, b.want(0, 0, p.TieredEnd)) {
		t.Fatal("wrong bytes after repair")
	}
}

func replace(t *testing.T, store object.Store, key string, p []byte) {
	t.Helper()
	if _, err := store.Delete(background(t), []string{key}); err != nil {
		t.Fatal(err)
	}
	if p != nil {
		if err := store.Put(background(t), key, bytes.NewReader(p), object.PutOptions{CRC32C: format.Checksum(p)}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDamagedDataIsNeverDelivered(t *testing.T) {
	b := fill(t, 13, 1, 1, small)
	p := b.partition(0)
	full := format.ObjectKey(cluster, p.Manifest.Segments[0].Key)
	whole := make([]byte, p.Manifest.Segments[0].Size)
	if _, err := b.mem.GetRange(background(t), full, 0, whole); err != nil {
		t.Fatal(err)
	}
	n := len(b.want(0, 0, p.TieredEnd))
	for at := format.SegmentHeaderLen; at < format.SegmentHeaderLen+n; at++ {
		bad := bytes.Clone(whole)
		bad[at] ^= 0x80
		replace(t, b.mem, full, bad)
		r := b.reader(t, index.Options{BackoffMin: 1, BackoffMax: 2})
		if d, err := r.Read(background(t), index.ReadRequest{Partition: p, Offset: 0, MaxBytes: 1 << 20, MinOne: true}); !errors.Is(err, format.ErrCorrupt) {
			t.Fatalf("flipped byte %d: %+v, %v", at, d, err)
		}
		r.Close()
	}
}

func TestLearnedDirectoriesNeedNoGet(t *testing.T) {
	shard, mem := tieringtest.New(1), memory.New(memory.Options{})
	store := object.NewCounted(mem)
	r := newReader(t, store, index.Options{})
	s, err := tiering.Start(tiering.Options{Cluster: cluster, Shard: 1, Term: 1, Source: shard, Committer: shard, Store: mem, Tick: time.Hour, PaceFactor: -1,
		Committed: func(row format.SegmentRow, tail []byte) {
			if err := r.Learn(row, tail); err != nil {
				t.Error(err)
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	for range 5 {
		shard.Append([]format.PartitionRef{1}, func(ref format.PartitionRef, next int64) batch.Batch {
			return small(rand.New(rand.NewSource(next)), ref, next)
		})
		if err := s.Roll(background(t)); err != nil {
			t.Fatal(err)
		}
	}
	b := &bucket{shard: shard}
	d, err := r.Read(background(t), index.ReadRequest{Partition: b.partition(1), Offset: 0, MaxBytes: 1, MinOne: true})
	if err != nil {
		t.Fatal(err)
	}
	d.Release()
	if n := store.Stats()[object.OpGet].Calls; n != 1 {
		t.Fatalf("expected 1 GET, found %d", n)
	}
}

func TestAbortedReadsThePartitionIndexes(t *testing.T) {
	b := fill(t, 14, 12, 2, small)
	r := b.reader(t, index.Options{})
	p := b.partition(5)
	got, err := r.Aborted(background(t), p, 0, p.TieredEnd)
	if err != nil || len(got) != 0 {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestClosedReader(t *testing.T) {
	b := fill(t, 15, 1, 1, small)
	r := b.reader(t, index.Options{})
	r.Close()
	if _, err := r.Read(background(t), index.ReadRequest{Partition: b.partition(0), MaxBytes: 1, MinOne: true}); !errors.Is(err, index.ErrClosed) {
		t.Fatal(err)
	}
}

// TestOldManifestsStayReadable keeps reading while segments become runs and runs
// are merged: any manifest that a reader holds stays readable.
func TestOldManifestsStayReadable(t *testing.T) {
	shard, mem := tieringtest.New(1), memory.New(memory.Options{})
	r := newReader(t, mem, index.Options{DataBytes: 1 << 20, BlockBytes: 256 << 10})
	s, err := tiering.Start(tiering.Options{Cluster: cluster, Shard: 1, Term: 1, Source: shard, Committer: shard, Store: mem, Tick: time.Hour, PaceFactor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	b := &bucket{shard: shard}
	rng := rand.New(rand.NewSource(1))
	var old []index.Partition
	for i := range 70 {
		shard.Append([]format.PartitionRef{0, 1, 2}, func(ref format.PartitionRef, next int64) batch.Batch { return small(rng, ref, next) })
		if err := s.Roll(background(t)); err != nil {
			t.Fatal(err)
		}
		if i%6 == 0 {
			old = append(old, b.partition(format.PartitionRef(i%3)))
		}
	}
	for i, p := range old {
		if got := replay(t, r, p, 0, 300+i, p.TieredEnd); !bytes.Equal(got, b.want(p.Ref, 0, p.TieredEnd)) {
			t.Fatalf("manifest %d: wrong bytes", i)
		}
	}
}

// TestManyPartitions puts partitions across the borders of pages and of fence
// blocks.
func TestManyPartitions(t *testing.T) {
	const partitions, segments = 1500, 25
	b := fillSegments(t, segments, 1, partitions, func(ref format.PartitionRef, next int64) batch.Batch {
		return batch.NewBuilder(batch.BuilderOptions{BaseOffset: next}).Add(1000*next+int64(ref), nil, nil).Build()
	})
	if m := b.shard.Manifest(); len(m.Runs) != 3 || len(m.Fence.Blocks) < 3 {
		t.Fatalf("%d runs, %d fence blocks", len(m.Runs), len(m.Fence.Blocks))
	}
	r := b.reader(t, index.Options{})
	for _, ref := range b.shard.Refs() {
		p := b.partition(ref)
		if got := replay(t, r, p, 0, 1<<20, p.TieredEnd); !bytes.Equal(got, b.want(ref, 0, p.TieredEnd)) {
			t.Fatalf("partition %d: wrong bytes", ref)
		}
		if ref%3 != 0 {
			continue
		}
		for o := range p.TieredEnd {
			ts := 1000*o + int64(ref)
			if f, ok, err := r.OffsetForTime(background(t), p, 0, ts); err != nil || !ok || f.Offset != o || f.Timestamp != ts {
				t.Fatalf("partition %d time %d: %+v %v %v", ref, ts, f, ok, err)
			}
			epoch := int32(1 + o/3)
			if found, end, ok, err := r.EpochEnd(background(t), p, epoch); err != nil || !ok || found != epoch || end != min(p.TieredEnd, int64(epoch)*3) {
				t.Fatalf("partition %d epoch %d: %d to %d %v %v", ref, epoch, found, end, ok, err)
			}
		}
		if f, ok, err := r.MaxTimestamp(background(t), p, 3); err != nil || !ok || f.Offset != p.TieredEnd-1 {
			t.Fatalf("partition %d: %+v %v %v", ref, f, ok, err)
		}
	}
	for _, ref := range []format.PartitionRef{partitions, partitions + 1} { // nothing of it anywhere
		p := index.Partition{Manifest: b.shard.Manifest(), Ref: ref, TieredEnd: 1}
		d, err := r.Read(background(t), index.ReadRequest{Partition: p, MaxBytes: 1, MinOne: true})
		if err != nil || d.Bytes != 0 || d.NextOffset != 1 {
			t.Fatalf("partition that has nothing: %+v, %v", d, err)
		}
		d.Release()
	}
}

func TestHundredsOfSegments(t *testing.T) {
	b := fill(t, 16, 530, 3, small)
	m := b.shard.Manifest()
	if m.Runs[0].Level != 3 {
		t.Fatalf("runs: %+v", m.Runs)
	}
	for _, ref := range b.shard.Refs() {
		p := b.partition(ref)
		rng := rand.New(rand.NewSource(int64(ref)))
		r := b.reader(t, index.Options{})
		if err := r.Warm(background(t), m); err != nil {
			t.Fatal(err)
		}
		if got := replay(t, r, p, 0, 10<<10, p.TieredEnd); !bytes.Equal(got, b.want(ref, 0, p.TieredEnd)) {
			t.Fatalf("partition %d: wrong bytes", ref)
		}
		for range 50 {
			o := rng.Int63n(p.TieredEnd)
			d, err := r.Read(background(t), index.ReadRequest{Partition: p, Offset: o, MaxBytes: 4 << 10, MinOne: true})
			if err != nil || !bytes.HasPrefix(b.want(ref, o, p.TieredEnd), bytes.Join(d.Pieces, nil)) || d.Bytes == 0 {
				t.Fatalf("partition %d offset %d: %+v, %v", ref, o, d, err)
			}
			d.Release()
		}
		checkTimes(t, b, r, p, p.TieredEnd/2)
	}
}

// TestBatchLargerThanEverything: a batch above a piece and above the cache.
func TestBatchLargerThanEverything(t *testing.T) {
	b := fillSegments(t, 1, 3, 2, func(ref format.PartitionRef, next int64) batch.Batch {
		return batch.NewBuilder(batch.BuilderOptions{BaseOffset: next}).Add(next, nil, make([]byte, 3<<20)).Build()
	})
	r := b.reader(t, index.Options{DataBytes: 1 << 20})
	for _, ref := range b.shard.Refs() {
		p := b.partition(ref)
		if got := replay(t, r, p, 0, 4096, p.TieredEnd); !bytes.Equal(got, b.want(ref, 0, p.TieredEnd)) {
			t.Fatalf("partition %d: wrong bytes", ref)
		}
	}
}

// BenchmarkReplay reads 12 partitions from a store of few connections, each
// of 80 MB/s and 30 ms to the first byte, beside the raw rate of ranged GETs.
func BenchmarkReplay(b *testing.B) {
	const conns = 4
	rng := rand.New(rand.NewSource(1))
	prebuilt := big(rng, 0, 0)
	bk := fillSegments(b, 6, 56, 12, func(format.PartitionRef, int64) batch.Batch { return prebuilt })
	link := faulty.New(bk.mem, 1)
	link.SetLink(faulty.Link{FirstByte: 30 * time.Millisecond, BytesPerSecond: 80 << 20, Conns: conns})
	var total int64
	for _, ref := range bk.shard.Refs() {
		for _, x := range bk.shard.Partition(ref).Batches {
			total += int64(len(x))
		}
	}
	b.Run("raw", func(b *testing.B) {
		b.SetBytes(conns * 16 * 4 << 20)
		row := bk.shard.Manifest().LevelZero()
		key := format.ObjectKey(cluster, bk.shard.Manifest().Fence.Key)
		if len(row) > 0 {
			key = format.ObjectKey(cluster, row[0].Key)
		}
		for b.Loop() {
			var wg sync.WaitGroup
			for range conns {
				wg.Add(1)
				go func() {
					defer wg.Done()
					p := make([]byte, 4<<20)
					for range 16 {
						if _, err := link.GetRange(background(b), key, 0, p); err != nil {
							b.Error(err)
						}
					}
				}()
			}
			wg.Wait()
		}
	})
	b.Run("replay", func(b *testing.B) {
		b.SetBytes(total)
		for b.Loop() {
			r := index.NewReader(link, index.Options{Cluster: cluster, Connections: conns})
			var wg sync.WaitGroup
			for _, ref := range bk.shard.Refs() {
				wg.Add(1)
				go func() {
					defer wg.Done()
					p := bk.partition(ref)
					discard(b, r, p)
				}()
			}
			wg.Wait()
			r.Close()
		}
	})
}

func discard(b *testing.B, r *index.Reader, p index.Partition) {
	for from := int64(0); from < p.TieredEnd; {
		d, err := r.Read(background(b), index.ReadRequest{Partition: p, Offset: from, MaxBytes: 1 << 20, MinOne: true})
		if err != nil {
			b.Fatal(err)
		}
		from = d.NextOffset
		d.Release()
	}
}

// fillSegments makes level-0 segments of entries with a batch for each partition.
func fillSegments(t testing.TB, segments, entries, partitions int, one func(format.PartitionRef, int64) batch.Batch) *bucket {
	t.Helper()
	b := &bucket{shard: tieringtest.New(1), mem: memory.New(memory.Options{})}
	b.store = object.NewCounted(b.mem)
	s, err := tiering.Start(tiering.Options{Cluster: cluster, Shard: 1, Term: 1, Source: b.shard, Committer: b.shard, Store: b.mem,
		SegmentBytes: 1 << 40, SegmentAge: time.Hour, Tick: time.Hour, PaceFactor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	var refs []format.PartitionRef
	for ref := range format.PartitionRef(partitions) {
		refs = append(refs, ref)
	}
	for i := range segments {
		b.shard.Epoch = int32(1 + i/3)
		for range entries {
			b.shard.Append(refs, one)
		}
		if err := s.Roll(background(t)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}
