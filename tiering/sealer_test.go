package tiering_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

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

func makeBatch(next int64, n, size int, ts int64) batch.Batch {
	b := batch.NewBuilder(batch.BuilderOptions{BaseOffset: next})
	for i := range n {
		b.Add(ts+int64(i), nil, bytes.Repeat([]byte{byte(next) + byte(i)}, size))
	}
	return b.Build()
}

func fill(s *tieringtest.Shard, rng *rand.Rand, entries, partitions, size int) {
	for range entries {
		refs := []format.PartitionRef{format.PartitionRef(rng.Intn(partitions))}
		if o := format.PartitionRef(rng.Intn(partitions)); o != refs[0] {
			refs = append(refs, o)
		}
		s.Append(refs, func(_ format.PartitionRef, next int64) batch.Batch {
			return makeBatch(next, 1+rng.Intn(3), size, next*10)
		})
	}
}

func options(s *tieringtest.Shard, store object.Store) tiering.Options {
	return tiering.Options{Cluster: cluster, Shard: s.Manifest().Shard, Term: 3, Source: s, Committer: s, Store: store,
		SegmentBytes: 64 << 10, SegmentAge: time.Hour, Tick: time.Millisecond, PaceFactor: -1,
		AttemptTimeout: 2 * time.Second, BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond}
}

func start(t *testing.T, o tiering.Options) *tiering.Sealer {
	t.Helper()
	s, err := tiering.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return c
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("never came: %s", what)
		}
	}
}

type objectReader struct {
	store object.Store
	key   string
}

func (r objectReader) ReadAt(p []byte, at int64) (int, error) {
	n, err := r.store.GetRange(context.Background(), r.key, at, p)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// segments lists the rows of all segments, in runs or not.
func segments(t *testing.T, s *tieringtest.Shard, store object.Store) []format.SegmentRow {
	t.Helper()
	m := s.Manifest()
	var rows []format.SegmentRow
	for i := range m.Runs {
		err := tiering.EachSegment(ctx(t), store, cluster, &m.Runs[i], func(r *format.SegmentRow) error { rows = append(rows, *r); return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	return append(rows, m.LevelZero()...)
}

// checkStore reads every segment and compares each partition with its history
// up to the tiered end, byte for byte.
func checkStore(t *testing.T, s *tieringtest.Shard, store object.Store) {
	t.Helper()
	got := map[format.PartitionRef][]byte{}
	next := uint64(2)
	for i, row := range segments(t, s, store) {
		if row.ID != format.SegmentID(i+1) || row.FirstIndex != next {
			t.Fatalf("segment %d: expected id %d from index %d, found %d from %d", i, i+1, next, row.ID, row.FirstIndex)
		}
		next = row.LastIndex + 1
		r := objectReader{store, format.ObjectKey(cluster, row.Key)}
		if _, err := format.Describe(r, row.Size); err != nil {
			t.Fatalf("%s: %v", row.Key, err)
		}
		seg, err := format.OpenSegment(r, row.Size)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range seg.Directory.Extents {
			p := make([]byte, e.Length)
			if _, err := r.ReadAt(p, int64(e.Position)); err != nil {
				t.Fatal(err)
			}
			got[e.Partition] = append(got[e.Partition], p...)
		}
	}
	for _, ref := range s.Refs() {
		p := s.Partition(ref)
		var want []byte
		for _, b := range p.Batches {
			if b.BaseOffset() < p.TieredEnd() {
				want = append(want, b...)
			}
		}
		if !bytes.Equal(want, got[ref]) {
			t.Fatalf("partition %d: the store holds %d bytes, expected %d, up to offset %d", ref, len(got[ref]), len(want), p.TieredEnd())
		}
	}
	if s.Held() != 0 {
		t.Fatalf("%d payloads were not released", s.Held())
	}
}

func TestSealsBySize(t *testing.T) {
	s, store := tieringtest.New(1), memory.New(memory.Options{})
	sealer := start(t, options(s, store))
	fill(s, rand.New(rand.NewSource(1)), 300, 7, 1000)
	eventually(t, "all but the last segment in the store", func() bool { p, _ := s.Pending(); return p.Bytes < 64<<10 })
	checkStore(t, s, store)
	if st := sealer.Stats(); st.Segments < 5 || st.Failures != 0 || st.Orphans != 0 {
		t.Fatalf("stats: %+v", st)
	}
}

func TestSealsByAge(t *testing.T) {
	s, store := tieringtest.New(1), memory.New(memory.Options{})
	o := options(s, store)
	o.SegmentAge = 20 * time.Millisecond
	start(t, o)
	fill(s, rand.New(rand.NewSource(1)), 2, 2, 10)
	eventually(t, "everything in the store", func() bool { _, ok := s.Pending(); return !ok })
	checkStore(t, s, store)
}

func TestSealsWhenUrgent(t *testing.T) {
	s, store := tieringtest.New(1), memory.New(memory.Options{})
	s.Urgent = true
	start(t, options(s, store))
	fill(s, rand.New(rand.NewSource(1)), 1, 2, 10)
	eventually(t, "everything in the store", func() bool { _, ok := s.Pending(); return !ok })
}

func TestRollStopsAtTheAcknowledgementBound(t *testing.T) {
	s, store := tieringtest.New(1), memory.New(memory.Options{})
	sealer := start(t, options(s, store))
	fill(s, rand.New(rand.NewSource(1)), 10, 2, 10)
	s.SetHW(s.Index() - 3)
	if err := sealer.Roll(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if m := s.Manifest(); m.TieredIndex != s.Index()-3 {
		t.Fatalf("tiered to %d, the bound is %d", m.TieredIndex, s.Index()-3)
	}
	checkStore(t, s, store)
	if err := sealer.Roll(ctx(t)); err != nil {
		t.Fatalf("roll of nothing: %v", err)
	}
}

func TestRunsAndMerges(t *testing.T) {
	s, store := tieringtest.New(1), memory.New(memory.Options{})
	sealer := start(t, options(s, store))
	rng := rand.New(rand.NewSource(1))
	for i := range 75 {
		s.Epoch = int32(1 + i/20)
		fill(s, rng, 3, 40, 50)
		if err := sealer.Roll(ctx(t)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a run of level 2 and one of level 1", func() bool {
		m := s.Manifest()
		return len(m.Runs) == 2 && m.Runs[0].Level == 2 && m.Runs[1].Level == 1 && len(m.LevelZero()) == 3
	})
	checkStore(t, s, store)
	m := s.Manifest()
	var fences uint64
	for _, key := range []string{m.Runs[0].Key, m.Runs[1].Key, m.Fence.Key} {
		size := m.Fence.Size
		for _, r := range m.Runs {
			if r.Key == key {
				size = r.Size
			}
		}
		d, err := format.Describe(objectReader{store, format.ObjectKey(cluster, key)}, size)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if d.Fence != nil {
			fences = d.Fence.Fences
			if len(d.Fence.Runs) != 2 {
				t.Fatalf("fences of runs %v", d.Fence.Runs)
			}
		}
	}
	if fences <= 40 {
		t.Fatalf("%d fences for 40 partitions in 2 runs", fences)
	}
	// Only replaced runs and fence objects are orphans, and only once another
	// term has come.
	o := tiering.OrphanOptions{Cluster: cluster, Manifests: []*format.Manifest{m}, Terms: map[uint32]uint64{1: 3}, Now: time.Now()}
	if n := orphans(t, store, o); n != 0 {
		t.Fatalf("%d orphans in their own term", n)
	}
	o.Terms[1] = 4
	if n := orphans(t, store, o); n != 8+9 {
		t.Fatalf("expected 8 replaced runs and 9 replaced fence objects, found %d orphans", n)
	}
	o.Grace = time.Hour
	if n := orphans(t, store, o); n != 0 {
		t.Fatalf("%d orphans within the grace", n)
	}
}

func orphans(t *testing.T, store object.Store, o tiering.OrphanOptions) (n int) {
	t.Helper()
	if _, err := tiering.ListOrphans(ctx(t), store, o, func(tiering.Orphan) bool { n++; return true }); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestStoreTroubleLosesNothing(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := tieringtest.New(1)
			inner := memory.New(memory.Options{})
			store := faulty.New(inner, seed)
			store.SetFaults(faulty.Faults{Unavailable: 0.1, Burst: 4, Hang: 0.02, Cut: 0.1, Unclear: 0.2})
			o := options(s, store)
			o.AttemptTimeout = 20 * time.Millisecond
			sealer := start(t, o)
			rng := rand.New(rand.NewSource(int64(seed)))
			for range 12 {
				fill(s, rng, 20, 5, 100)
				if err := sealer.Roll(ctx(t)); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "a run", func() bool { return len(s.Manifest().Runs) > 0 })
			sealer.Stop()
			checkStore(t, s, inner)
			// Everything in the bucket is referred to or listed as an orphan.
			all := 0
			if err := inner.List(ctx(t), cluster+"/", "", func(object.Info) bool { all++; return true }); err != nil {
				t.Fatal(err)
			}
			m := s.Manifest()
			live := len(segments(t, s, inner)) + len(m.Runs) + 1
			oo := tiering.OrphanOptions{Cluster: cluster, Manifests: []*format.Manifest{m}, Terms: map[uint32]uint64{1: 3}, GivenUp: sealer.GivenUp(), Now: time.Now()}
			fences := 0 // replaced fence objects stay until another term
			for _, r := range m.Runs {
				fences += int(r.Last-r.First+1)/8 - 1
			}
			if n := orphans(t, inner, oo); n+live+fences != all {
				t.Fatalf("%d objects: %d live, %d replaced, %d orphans", all, live, fences, n)
			}
		})
	}
}

func TestStoreAwayThenBack(t *testing.T) {
	s := tieringtest.New(1)
	inner := memory.New(memory.Options{})
	store := faulty.New(inner, 1)
	store.SetAway(true)
	sealer := start(t, options(s, store))
	fill(s, rand.New(rand.NewSource(1)), 200, 5, 1000)
	eventually(t, "failures", func() bool { return sealer.Stats().Failures > 5 })
	if st := sealer.Stats(); st.Segments != 0 || st.Blocked == 0 || st.PendingBytes == 0 {
		t.Fatalf("stats while away: %+v", st)
	}
	store.SetAway(false)
	eventually(t, "the store has caught up", func() bool { p, _ := s.Pending(); return p.Bytes < 64<<10 })
	eventually(t, "no longer blocked", func() bool { return sealer.Stats().Blocked == 0 })
	checkStore(t, s, inner)
}

func TestLostAnswerNeverReusesAName(t *testing.T) {
	s := tieringtest.New(1)
	inner := memory.New(memory.Options{})
	store := faulty.New(inner, 1)
	puts := map[string]int{}
	store.SetHook(func(op faulty.Op) error {
		if op.Kind != object.OpPut {
			return nil
		}
		puts[op.Key]++
		if len(puts) <= 3 {
			return faulty.ErrUnclear
		}
		return nil
	})
	sealer := start(t, options(s, store))
	fill(s, rand.New(rand.NewSource(1)), 5, 2, 10)
	if err := sealer.Roll(ctx(t)); err != nil {
		t.Fatal(err)
	}
	sealer.Stop()
	for key, n := range puts {
		if n != 1 {
			t.Fatalf("%s was put %d times", key, n)
		}
	}
	checkStore(t, s, inner)
	o := tiering.OrphanOptions{Cluster: cluster, Manifests: []*format.Manifest{s.Manifest()}, Terms: map[uint32]uint64{1: 3}, GivenUp: sealer.GivenUp(), Now: time.Now()}
	if n := orphans(t, inner, o); n != 3 {
		t.Fatalf("expected 3 orphans, found %d", n)
	}
}

// TestLeaderLossBetweenPutAndCommit: the next leader uploads the range again,
// and the first upload is an orphan only once an entry of the new term applied.
func TestLeaderLossBetweenPutAndCommit(t *testing.T) {
	s, store := tieringtest.New(1), memory.New(memory.Options{})
	var lost atomic.Bool
	s.OnCommit = func(row format.SegmentRow) (bool, error) {
		if n, err := format.ParseName(row.Key); err != nil || n.Term == 3 {
			lost.Store(true)
			return false, errors.Join(err, tiering.ErrNotLeader)
		}
		return false, nil
	}
	old := start(t, options(s, store))
	fill(s, rand.New(rand.NewSource(1)), 5, 2, 10)
	if err := old.Roll(ctx(t)); !errors.Is(err, tiering.ErrNotLeader) {
		t.Fatalf("roll of a deposed leader: %v", err)
	}
	old.Stop()
	o := options(s, store)
	o.Term = 4
	next := start(t, o)
	if err := next.Roll(ctx(t)); err != nil {
		t.Fatal(err)
	}
	checkStore(t, s, store)
	oo := tiering.OrphanOptions{Cluster: cluster, Manifests: []*format.Manifest{s.Manifest()}, Terms: map[uint32]uint64{1: 3}, GivenUp: old.GivenUp(), Now: time.Now()}
	if n := orphans(t, store, oo); n != 0 || !lost.Load() {
		t.Fatalf("%d orphans before an entry of the new term", n)
	}
	oo.Terms[1] = 4
	if n := orphans(t, store, oo); n != 1 {
		t.Fatalf("expected 1 orphan, found %d", n)
	}
}

// TestUnclearCommit: the commit applied, its answer was lost.
func TestUnclearCommit(t *testing.T) {
	s, store := tieringtest.New(1), memory.New(memory.Options{})
	n := 0
	s.OnCommit = func(format.SegmentRow) (bool, error) { n++; return n%2 == 0, errors.New("no answer") }
	s.OnRun = func(format.RunRow) (bool, error) { n++; return n%2 == 0, errors.New("no answer") }
	sealer := start(t, options(s, store))
	rng := rand.New(rand.NewSource(1))
	for range 9 {
		fill(s, rng, 2, 2, 10)
		if err := sealer.Roll(ctx(t)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a run", func() bool { return len(s.Manifest().Runs) == 1 })
	sealer.Stop()
	checkStore(t, s, store)
	if g := sealer.GivenUp(); len(g) != 0 {
		t.Fatalf("given up: %v", g)
	}
}

func TestDamagedPayloadIsNeverUploaded(t *testing.T) {
	s, store := tieringtest.New(1), memory.New(memory.Options{})
	sealer := start(t, options(s, store))
	fill(s, rand.New(rand.NewSource(1)), 1, 1, 100)
	s.Damage(s.Index(), 100)
	short, cancel := context.WithTimeout(ctx(t), 50*time.Millisecond)
	defer cancel()
	if err := sealer.Roll(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("roll: %v", err)
	}
	if st := sealer.Stats(); st.Attempts != 0 || st.Failures == 0 {
		t.Fatalf("stats: %+v", st)
	}
	s.Damage(s.Index(), 100) // the log's copy is sound
	eventually(t, "everything in the store", func() bool { _, ok := s.Pending(); return !ok })
	checkStore(t, s, store)
}

func TestBuildsInFilesWhenMemoryIsUsed(t *testing.T) {
	s, store := tieringtest.New(1), memory.New(memory.Options{})
	o := options(s, store)
	o.Memory, o.TempDir = tiering.NewMemory(0), t.TempDir()
	sealer := start(t, o)
	rng := rand.New(rand.NewSource(1))
	for range 9 {
		fill(s, rng, 20, 3, 3000)
		if err := sealer.Roll(ctx(t)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a run", func() bool { return len(s.Manifest().Runs) > 0 })
	checkStore(t, s, store)
}

func TestMemoryIsGivenBack(t *testing.T) {
	s, store := tieringtest.New(1), memory.New(memory.Options{})
	o := options(s, store)
	o.Memory = tiering.NewMemory(8 << 20)
	sealer := start(t, o)
	fill(s, rand.New(rand.NewSource(1)), 100, 3, 3000)
	if err := sealer.Roll(ctx(t)); err != nil {
		t.Fatal(err)
	}
	sealer.Stop()
	if n := o.Memory.Used(); n != 0 {
		t.Fatalf("%d bytes are still reserved", n)
	}
	checkStore(t, s, store)
}

func TestJunkIsNoOrphan(t *testing.T) {
	store := memory.New(memory.Options{})
	for _, key := range []string{"segments/junk", "segments/1/x.seg", "runs/readme.txt"} {
		if err := store.Put(ctx(t), format.ObjectKey(cluster, key), bytes.NewReader([]byte("x")), object.PutOptions{CRC32C: format.Checksum([]byte("x"))}); err != nil {
			t.Fatal(err)
		}
	}
	o := tiering.OrphanOptions{Cluster: cluster, Terms: map[uint32]uint64{1: 100}, Now: time.Now()}
	junk, err := tiering.ListOrphans(ctx(t), store, o, func(o tiering.Orphan) bool { t.Errorf("orphan %+v", o); return true })
	if err != nil || junk != 3 {
		t.Fatalf("junk %d, %v", junk, err)
	}
}

func BenchmarkSeal(b *testing.B) {
	store := memory.New(memory.Options{Discard: true})
	data := makeBatch(0, 16, 1000, 1)
	b.SetBytes(64 << 20)
	for b.Loop() {
		b.StopTimer()
		s := tieringtest.New(1)
		refs := []format.PartitionRef{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
		for range (64 << 20) / (len(data) * len(refs)) {
			s.Append(refs, func(format.PartitionRef, int64) batch.Batch { return data })
		}
		o := options(s, store)
		o.Tick, o.SegmentBytes = time.Hour, 64<<20
		sealer, err := tiering.Start(o)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := sealer.Roll(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		sealer.Stop()
		b.StartTimer()
	}
}
