package partition

import (
	"fmt"
	"testing"

	"thermocline/tiering/format"
)

func TestTierSegment(t *testing.T) {
	d := newDriver(t, Options{})
	a, b, c := key(2, 0), key(1, 1), key(1, 0)
	d.create(a, b, c)
	d.must(&Produce{Key: a, Batch: plain(2, 9)})
	d.must(&Produce{Key: b, Batch: plain(3, 9)})
	first := d.index - 1
	d.must(&Produce{Key: c, Batch: plain(4, 9)})
	p, ok := d.s.SealPending()
	want(t, "pending", ok, true)
	want(t, "bytes", p.Bytes, int64(len(plain(2, 9))+len(plain(3, 9))+len(plain(4, 9))))
	want(t, "oldest", p.OldestIndex, first)
	want(t, "oldest time", p.OldestUnixMilli, d.time)
	want(t, "trimmable", d.s.TrimmableIndex(), first-1)

	r, ok := d.s.Seal(1) // one entry at the least
	want(t, "sealed", ok, true)
	want(t, "first", r.First, uint64(BootstrapIndex+1))
	want(t, "last", r.Last, first)
	want(t, "partitions", len(r.Partitions), 1)

	for _, row := range []format.SegmentRow{
		{Key: "s", FirstIndex: r.First + 1, LastIndex: r.Last},
		{Key: "s", FirstIndex: r.First - 1, LastIndex: r.Last},
		{Key: "s", FirstIndex: r.First, LastIndex: r.First - 1},
		{Key: "s", FirstIndex: r.First, LastIndex: d.index + 9},
	} {
		_, err := d.do(&TierSegment{Row: row})
		wantErr(t, err, ErrNotNextSegment)
	}
	// Two uploads of one range are in flight: the second is refused by apply.
	e, _ := d.prepare(&TierSegment{Row: rowOf(r)}, &TierSegment{Row: rowOf(r)})
	old := d.s.Manifest()
	out := d.apply(e)
	want(t, "first id", out[0].result.(format.SegmentID), format.SegmentID(1))
	wantErr(t, out[1].err, ErrNotNextSegment)
	want(t, "old manifest", len(old.Segments), 0)
	want(t, "manifest", len(d.s.Manifest().Segments), 1)
	v := d.view(a)
	want(t, "tiered end", v.TieredEnd, int64(2))
	want(t, "hot bytes", v.HotBytes, int64(0))
	want(t, "cold bytes", v.ColdBytes, int64(len(plain(2, 9))))
	want(t, "max timestamp", v.MaxTimestampTail, int64(-1))
	want(t, "trimmable", d.s.TrimmableIndex(), first)
	want(t, "b stays hot", d.view(b).TieredEnd, int64(0))

	id, r := d.tier()
	want(t, "id", id, format.SegmentID(2))
	want(t, "partitions", fmt.Sprint(r.Partitions[0].Key.Partition, r.Partitions[1].Key.Partition, len(r.Partitions)), "0 1 2")
	want(t, "trimmable", d.s.TrimmableIndex(), d.index)
	want(t, "tail", len(d.s.Tail(b, 0, 1, true, 3, nil)), 0)
	_, ok = d.s.Seal(1)
	want(t, "seal", ok, false)
}

func TestSealStopsAtHW(t *testing.T) {
	d := newDriver(t, Options{})
	d.create(key(1, 0))
	d.must(&Produce{Key: key(1, 0), Batch: plain(1, 1)})
	hw := d.index
	d.lagHW = true
	d.must(&Produce{Key: key(1, 0), Batch: plain(1, 1)})
	p, _ := d.s.SealPending()
	want(t, "pending", p.Bytes, int64(len(plain(1, 1))))
	r, ok := d.s.Seal(1 << 30)
	want(t, "sealed", ok, true)
	want(t, "last", r.Last, hw)
	d.must(&TierSegment{Row: rowOf(r)})
	_, ok = d.s.SealPending()
	want(t, "pending", ok, false)
	_, ok = d.s.Seal(1 << 30)
	want(t, "sealed", ok, false)
}

// TestFollowerTiersAboveItsHW: a follower that hears late of the bound takes it
// from what was sealed under it.
func TestFollowerTiersAboveItsHW(t *testing.T) {
	d := newDriver(t, Options{})
	k := key(1, 0)
	d.create(k)
	for i := 0; i < 3; i++ {
		d.must(&Produce{Key: k, Batch: plain(1, 1)})
	}
	d.must(&DeleteRecords{Key: k, Offset: 1})
	f := NewSet(Options{Shard: 7})
	for _, e := range d.log {
		if _, err := applyTo(f, e); err != nil {
			t.Fatal(err)
		}
	}
	v, _ := f.View(k)
	want(t, "hw", v.HW, int64(1)) // at the log start
	d.tier()
	if _, err := applyTo(f, d.log[len(d.log)-1]); err != nil {
		t.Fatal(err)
	}
	v, _ = f.View(k)
	want(t, "hw", v.HW, int64(3))
}

func TestCommitRun(t *testing.T) {
	d := newDriver(t, Options{})
	k := key(1, 0)
	d.create(k)
	for i := 0; i < 20; i++ {
		d.must(&Produce{Key: k, Batch: plain(1, 1)})
		d.tier()
	}
	run := func(id uint32, first, last format.SegmentID, replaces ...uint32) error {
		c := &CommitRun{Run: format.RunRow{ID: id, Key: "r", First: first, Last: last}, Replaces: replaces,
			Fence: format.FenceRow{Key: fmt.Sprint("f", id), Blocks: []format.FenceKey{{Partition: 1, Offset: int64(id)}}}}
		_, err := d.do(c)
		return err
	}
	wantErr(t, run(1, 2, 8), ErrStaleRows)
	wantErr(t, run(1, 1, 21), ErrStaleRows)
	wantErr(t, run(1, 3, 1), ErrStaleRows)
	want(t, "run 1", run(1, 1, 8), nil)
	wantErr(t, run(1, 9, 16), ErrStaleRows)
	wantErr(t, run(2, 8, 16), ErrStaleRows)
	want(t, "run 5", run(5, 9, 16), nil)
	m := d.s.Manifest()
	want(t, "rows", fmt.Sprint(len(m.Segments), m.Segments[0].ID, len(m.Runs), m.Fence.Key), "4 17 2f5")
	wantErr(t, run(6, 1, 16, 1), ErrStaleRows)
	wantErr(t, run(6, 1, 15, 1, 5), ErrStaleRows)
	wantErr(t, run(6, 1, 16, 1, 4), ErrStaleRows)
	wantErr(t, run(6, 1, 16, 1, 5, 5), ErrStaleRows)
	want(t, "merge", run(6, 1, 16, 1, 5), nil)
	m = d.s.Manifest()
	want(t, "rows", fmt.Sprint(len(m.Segments), len(m.Runs), m.Runs[0].ID), "4 1 6")
	d.must(&Produce{Key: k, Batch: plain(1, 1)})
	id, _ := d.tier()
	want(t, "id", id, format.SegmentID(21))
	s := restored(t, d.s.opt, imageOf(t, d.s))
	want(t, "image", string(imageOf(t, s)), string(imageOf(t, d.s)))
}

// TestStateDoesNotGrowWithSegments: many partitions that each get one record
// per segment leave nothing behind but one row per segment.
func TestStateDoesNotGrowWithSegments(t *testing.T) {
	const partitions, rounds = 10_000, 100
	d := newDriver(t, Options{})
	for i := int32(0); i < partitions; i += 1000 {
		var cmds []any
		for j := i; j < i+1000; j++ {
			cmds = append(cmds, &CreatePartition{Key: key(1, j), Name: "t"})
		}
		e, _ := d.prepare(cmds...)
		d.apply(e)
	}
	b := plain(1, 1)
	round := func() {
		cmds := make([]any, partitions)
		for i := range cmds {
			cmds[i] = &Produce{Key: key(1, int32(i)), Batch: b}
		}
		e, _ := d.prepare(cmds...)
		d.apply(e)
		d.log = nil
		d.tier()
	}
	round()
	before := len(imageOf(t, d.s))
	for i := 0; i < rounds; i++ {
		round()
	}
	// Offsets and sizes become longer numbers: up to 2 bytes each here.
	grown := len(imageOf(t, d.s)) - before
	if most := partitions*5 + rounds*150; grown > most {
		t.Fatalf("the image grew by %d bytes, expected at most %d", grown, most)
	}
	want(t, "rows", d.s.Stats().TailRows, int64(0))
	want(t, "hot", d.s.Status().Hot, 0)
	want(t, "entries", d.s.entries.len(), 0)
}
