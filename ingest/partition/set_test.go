package partition

import (
	"math"
	"testing"

	"thermocline/tiering/format"
	"thermocline/wal/batch"
)

func TestStampAndView(t *testing.T) {
	d := newDriver(t, Options{})
	k := key(1, 3)
	d.must(&CreatePartition{Key: k, Name: "flights", EpochBase: 100, Config: map[string]string{"cleanup.policy": "delete"}})
	e, preps := d.prepare(&Produce{Key: k, Batch: plain(3, 50)}, &Produce{Key: k, Batch: plain(2, 40)})
	want(t, "prepared result", preps[1].Result.(ProduceResult), ProduceResult{BaseOffset: 3, Epoch: 105})
	v := d.view(k)
	want(t, "log end before apply", v.LogEnd, int64(0))
	d.lagHW = true
	out := d.apply(e)
	want(t, "result", out[1].result.(ProduceResult), ProduceResult{BaseOffset: 3, Epoch: 105})
	v = d.view(k)
	want(t, "log end", v.LogEnd, int64(5))
	want(t, "hw", v.HW, int64(0))
	d.s.SetHW(e.index, true)
	v = d.view(k)
	want(t, "hw", v.HW, int64(5))
	want(t, "lso", v.LSO, int64(5))
	want(t, "epoch", v.Epoch, int32(105))
	want(t, "topic", v.Topic, "flights")
	want(t, "config", v.Config["cleanup.policy"], "delete")
	want(t, "max timestamp", v.MaxTimestampTail, int64(50))

	rows := d.s.Tail(k, 4, 1<<20, true, v.HW, nil)
	want(t, "rows", len(rows), 1)
	b := batch.Batch(e.payload[rows[0].Pos : rows[0].Pos+rows[0].Len])
	want(t, "stamped offset", b.BaseOffset(), int64(3))
	want(t, "stamped epoch", b.LeaderEpoch(), int32(105))
	want(t, "crc", b.CheckCRC(), nil)
	want(t, "row", rows[0], TailRef{Index: e.index, Term: 5, Pos: rows[0].Pos, Len: uint32(len(plain(2, 40))), First: 3, Last: 4, MaxTimestamp: 40, Epoch: 105})
}

func TestTailBounds(t *testing.T) {
	d := newDriver(t, Options{})
	k := key(1, 0)
	d.create(k)
	size := len(plain(10, 1))
	for i := 0; i < 200; i++ { // several chunks
		d.must(&Produce{Key: k, Batch: plain(10, int64(i))})
	}
	for _, c := range []struct {
		offset   int64
		maxBytes int
		minOne   bool
		upTo     int64
		first, n int64
	}{
		{0, 3 * size, false, 2000, 0, 3},
		{5, 3*size + 1, false, 2000, 0, 3},
		{9, 1, true, 2000, 0, 1},
		{9, 1, false, 2000, 0, 0},
		{10, 0, true, 2000, 10, 1},
		{1990, 1 << 30, true, 2000, 1990, 1},
		{1999, 1 << 30, true, 2000, 1990, 1},
		{2000, 1 << 30, true, 2000, 0, 0},
		{0, 1 << 30, true, 15, 0, 2},
		{0, 1 << 30, true, 0, 0, 0},
		{635, 1 << 30, false, 1305, 630, 68},
	} {
		rows := d.s.Tail(k, c.offset, c.maxBytes, c.minOne, c.upTo, nil)
		if int64(len(rows)) != c.n || (c.n > 0 && rows[0].First != c.first) {
			t.Errorf("%+v: found %d rows %v", c, len(rows), rows)
		}
	}
	want(t, "no partition", len(d.s.Tail(key(2, 0), 0, 1, true, 1, nil)), 0)
}

func TestFindTail(t *testing.T) {
	d := newDriver(t, Options{})
	k := key(1, 0)
	d.create(k)
	_, ok := d.s.FindTail(k, 0, math.MaxInt64)
	want(t, "found in an empty tail", ok, false)
	for i := int64(0); i < 300; i++ {
		ts := i
		if i == 150 {
			ts = 1000 // out of order: later ones are earlier
		}
		d.must(&Produce{Key: k, Batch: plain(1, ts)})
	}
	for _, c := range []struct{ ts, upTo, first int64 }{
		{0, 300, 0}, {63, 300, 63}, {64, 300, 64}, {151, 300, 150}, {999, 300, 150}, {1000, 300, 150}, {1001, 300, -1},
		{100, 100, -1}, {100, 101, 100}, {200, 150, -1}, {-5, 300, 0},
	} {
		r, ok := d.s.FindTail(k, c.ts, c.upTo)
		if ok != (c.first >= 0) || (ok && r.First != c.first) {
			t.Errorf("%+v: found %v %v", c, ok, r)
		}
	}
	for _, c := range []struct{ upTo, first int64 }{{300, 150}, {150, 149}, {151, 150}, {1, 0}, {0, -1}} {
		r, ok := d.s.FindTailMax(k, c.upTo)
		if ok != (c.first >= 0) || (ok && r.First != c.first) {
			t.Errorf("%+v: found %v %v", c, ok, r)
		}
	}
}

func TestEpochEnd(t *testing.T) {
	d := newDriver(t, Options{})
	k := key(1, 0)
	d.create(k)
	for _, term := range []uint64{5, 5, 8, 11} {
		d.term = term
		d.must(&Produce{Key: k, Batch: plain(2, 1)})
	}
	d.index++
	d.s.SkipEntry(d.index, 14)
	d.term = 14
	check := func(epoch, found int32, end int64, ok bool) {
		t.Helper()
		f, e, o := d.s.EpochEnd(k, epoch)
		if f != found || e != end || o != ok {
			t.Fatalf("epoch %d: expected %d %d %v, found %d %d %v", epoch, found, end, ok, f, e, o)
		}
	}
	check(4, -1, 0, false)
	check(5, 5, 4, true)
	check(7, 5, 4, true)
	check(8, 8, 6, true)
	check(11, 11, 8, true)
	check(13, 11, 8, true)
	check(14, 14, 8, true)
	check(15, -1, -1, true)
	want(t, "epoch", d.view(k).Epoch, int32(14))
	d.s.SetHW(d.index, true)
	d.tier()
	check(10, -1, 6, false) // the store knows
	check(11, 11, 8, true)
}

func TestEpochNeverGoesBack(t *testing.T) {
	st := &state{epochBase: math.MaxInt32 - 1}
	want(t, "sum", leaderEpoch(st, 1), int32(math.MaxInt32))
	want(t, "above", leaderEpoch(st, 2), int32(math.MaxInt32))
	want(t, "huge term", leaderEpoch(&state{}, math.MaxUint64), int32(math.MaxInt32))
}

func TestHW(t *testing.T) {
	d := newDriver(t, Options{})
	d.lagHW = true
	a, b := key(1, 0), key(1, 1)
	d.create(a, b) // indexes 2, 3
	d.s.SetHW(3, true)
	pa := func() any { return &Produce{Key: a, Batch: plain(1, 1)} }
	pb := func() any { return &Produce{Key: b, Batch: plain(1, 1)} }
	for _, cmds := range [][]any{{pa(), pb()}, {pb()}, {pa(), pb(), pa()}, {pb()}} { // 4 to 7
		e, _ := d.prepare(cmds...)
		d.apply(e)
	}
	for _, c := range []struct {
		hw    uint64
		ready bool
		a, b  int64
	}{{3, true, 0, 0}, {4, true, 1, 1}, {4, false, 1, 1}, {5, false, 1, 2}, {4, true, 1, 2}, {6, true, 3, 3}, {99, true, 3, 4}} {
		d.s.SetHW(c.hw, c.ready)
		want(t, "hw of a", d.view(a).HW, c.a)
		want(t, "hw of b", d.view(b).HW, c.b)
		want(t, "latest known", d.view(a).LatestKnown, c.ready)
	}
	want(t, "marks", d.s.marks.len(), 0)
	// A bound ahead of apply counts as soon as entries are applied.
	d.must(pa())
	want(t, "hw of a", d.view(a).HW, int64(4))
}

func TestCreateDeleteConfig(t *testing.T) {
	d := newDriver(t, Options{})
	k := key(1, 0)
	d.create(k, key(1, 1))
	_, err := d.do(&CreatePartition{Key: k, Name: "x"})
	wantErr(t, err, ErrPartitionExists)
	// Both in flight: apply decides.
	e, _ := d.prepare(&CreatePartition{Key: key(1, 2), Name: "x"}, &CreatePartition{Key: key(1, 2), Name: "x"})
	out := d.apply(e)
	want(t, "first", out[0].err, nil)
	wantErr(t, out[1].err, ErrPartitionExists)

	d.must(&SetConfig{Topic: k.Topic, Revision: 10, Config: map[string]string{"b": "2"}})
	d.must(&SetConfig{Topic: k.Topic, Revision: 9, Config: map[string]string{"b": "old"}})
	want(t, "config", d.view(key(1, 2)).Config["b"], "2")
	want(t, "revision", d.s.Topics()[0].Revision, int64(10))
	_, err = d.do(&SetConfig{Topic: key(9, 0).Topic})
	wantErr(t, err, ErrUnknownPartition)

	d.must(&Produce{Key: k, Batch: plain(1, 1)})
	want(t, "tail bytes", d.s.Stats().TailBytes, int64(len(plain(1, 1))))
	// What is in flight behind the deletion fails in apply.
	e, _ = d.prepare(&DeletePartition{Key: k}, &Produce{Key: k, Batch: plain(1, 1)})
	out = d.apply(e)
	want(t, "delete", out[0].err, nil)
	wantErr(t, out[1].err, ErrUnknownPartition)
	_, ok := d.s.View(k)
	want(t, "exists", ok, false)
	want(t, "tail bytes", d.s.Stats().TailBytes, int64(0))
	want(t, "trimmable", d.s.TrimmableIndex(), d.index)
	_, err = d.do(&DeletePartition{Key: k})
	wantErr(t, err, ErrUnknownPartition)
	// A number is never used again.
	d.create(k)
	want(t, "ref", d.view(k).Ref, format.PartitionRef(4))
	for _, k := range d.s.Keys() {
		d.must(&DeletePartition{Key: k})
	}
	want(t, "topics", d.s.Status().Topics, 0)
}

func TestInvalidCommands(t *testing.T) {
	d := newDriver(t, Options{})
	long := make([]byte, maxConfigValue+1)
	for _, cmd := range []any{
		&CreatePartition{Key: key(1, 0)},
		&CreatePartition{Key: key(1, -1), Name: "a"},
		&CreatePartition{Key: key(1, 0), Name: "a", EpochBase: -1},
		&CreatePartition{Key: key(1, 0), Name: "a", Config: map[string]string{"k": string(long)}},
		&CreatePartition{Key: key(1, 0), Name: "a", Config: map[string]string{"": "v"}},
		&AllocateProducerIDs{}, &AllocateProducerIDs{Count: MaxProducerIDs + 1},
		&TierSegment{}, &CommitRun{}, struct{}{},
	} {
		_, err := d.do(cmd)
		wantErr(t, err, ErrInvalidCommand)
	}
	_, err := d.do(&Produce{Key: key(1, 0), Batch: plain(1, 1)})
	wantErr(t, err, ErrUnknownPartition)
}

func TestProducerIDs(t *testing.T) {
	d := newDriver(t, Options{Shard: MaxShard - 1})
	first := d.must(&AllocateProducerIDs{Count: 1000}).(int64)
	want(t, "first", first, int64(MaxShard-1)<<producerIDBits)
	want(t, "next", d.must(&AllocateProducerIDs{Count: 1}).(int64), first+1000)
	want(t, "next", d.must(&AllocateProducerIDs{Count: 1}).(int64), first+1001)
	d.s.nextProducer = 1 << producerIDBits
	_, err := d.do(&AllocateProducerIDs{Count: 1})
	wantErr(t, err, ErrInvalidCommand)
}

func TestDeleteRecords(t *testing.T) {
	d := newDriver(t, Options{})
	k := key(1, 0)
	d.create(k)
	for i := 0; i < 4; i++ {
		d.must(&Produce{Key: k, Batch: plain(10, int64(100-i))})
	}
	d.lagHW = true
	d.must(&Produce{Key: k, Batch: plain(10, 1)})
	_, err := d.do(&DeleteRecords{Key: k, Offset: 41})
	wantErr(t, err, ErrOffsetOutOfRange)
	_, err = d.do(&DeleteRecords{Key: k, Offset: -2})
	wantErr(t, err, ErrOffsetOutOfRange)
	want(t, "start", d.must(&DeleteRecords{Key: k, Offset: 25}).(int64), int64(25))
	want(t, "start", d.must(&DeleteRecords{Key: k, Offset: 7}).(int64), int64(25))
	v := d.view(k)
	want(t, "log start", v.LogStart, int64(25))
	want(t, "tiered end", v.TieredEnd, int64(25))
	want(t, "max timestamp", v.MaxTimestampTail, int64(98))
	want(t, "row", d.s.Tail(k, 25, 1, true, 40, nil)[0].First, int64(20))
	want(t, "start", d.must(&DeleteRecords{Key: k, Offset: -1}).(int64), int64(40))
	// Everything: the tail is empty, the log can be trimmed.
	d.s.SetHW(d.index, true)
	want(t, "start", d.must(&DeleteRecords{Key: k, Offset: -1}).(int64), int64(50))
	want(t, "trimmable", d.s.TrimmableIndex(), d.index)
	want(t, "max timestamp", d.view(k).MaxTimestampTail, int64(-1))
	r, err := d.produce(k, plain(1, 1))
	want(t, "error", err, nil)
	want(t, "result", r, ProduceResult{BaseOffset: 50, LogStart: 50, Epoch: 5})
}

// TestApplyRefusesStale: an entry that was stamped for another state changes
// nothing, and what its leader prepared behind it fails without blocking the
// partition for good.
func TestApplyRefusesStale(t *testing.T) {
	d := newDriver(t, Options{})
	k := key(1, 0)
	d.create(k)
	a, _ := d.prepare(&Produce{Key: k, Batch: plain(2, 1)})
	b, _ := d.prepare(&Produce{Key: k, Batch: plain(2, 1)})
	d.s.ResetProposed()
	b.index = a.index
	d.index = a.index
	wantErr(t, d.apply(b)[0].err, ErrNotNextOffset)
	want(t, "log end", d.view(k).LogEnd, int64(0))
	// A stale leader epoch is refused too.
	c, _ := d.prepare(&Produce{Key: k, Batch: plain(2, 1)})
	c.term++
	wantErr(t, d.apply(c)[0].err, ErrNotNextOffset)
	d.s.ResetProposed()
	d.term += 2
	// Lost in the middle without a reset: the next fails, then all is well.
	d.prepare(&Produce{Key: k, Batch: plain(2, 1)})
	_, err := d.produce(k, plain(2, 1))
	wantErr(t, err, ErrNotNextOffset)
	r, err := d.produce(k, plain(2, 1))
	want(t, "error", err, nil)
	want(t, "base", r.BaseOffset, int64(0))
}

func TestEmptyStateIsTheBootstrap(t *testing.T) {
	s := NewSet(Options{Shard: 3})
	s.SkipEntry(BootstrapIndex, BootstrapTerm)
	want(t, "index", s.Image().Index(), uint64(BootstrapIndex))
	want(t, "trimmable", s.TrimmableIndex(), uint64(BootstrapIndex))
	_, ok := s.Seal(1)
	want(t, "seal", ok, false)
	_, ok = s.SealPending()
	want(t, "pending", ok, false)
}
