package partition

import (
	"math"
	"testing"

	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

// step is one batch of a producer and what becomes of it.
type step struct {
	epoch    int16
	sequence int32
	n        int
	base     int64 // expected
	err      error
}

// TestSequences holds Kafka's rules, one table per story.
func TestSequences(t *testing.T) {
	for name, steps := range map[string][]step{
		"in order":           {{0, 0, 2, 0, nil}, {0, 2, 1, 2, nil}, {0, 3, 5, 3, nil}},
		"gap":                {{0, 0, 2, 0, nil}, {0, 3, 1, 0, ErrOutOfOrderSequence}, {0, 2, 1, 2, nil}},
		"duplicate":          {{0, 0, 2, 0, nil}, {0, 2, 1, 2, nil}, {0, 0, 2, 0, nil}, {0, 2, 1, 2, nil}, {0, 3, 1, 3, nil}},
		"other extent":       {{0, 0, 2, 0, nil}, {0, 0, 1, 0, ErrOutOfOrderSequence}, {0, 0, 3, 0, ErrOutOfOrderSequence}},
		"sixth is forgotten": {{0, 0, 1, 0, nil}, {0, 1, 1, 1, nil}, {0, 2, 1, 2, nil}, {0, 3, 1, 3, nil}, {0, 4, 1, 4, nil}, {0, 0, 1, 0, nil}, {0, 5, 1, 5, nil}, {0, 0, 1, 0, ErrOutOfOrderSequence}, {0, 1, 1, 1, nil}},
		"older epoch":        {{3, 0, 1, 0, nil}, {2, 1, 1, 0, ErrFencedProducer}, {2, 0, 1, 0, ErrFencedProducer}},
		"new epoch from 0":   {{3, 0, 4, 0, nil}, {4, 4, 1, 0, ErrOutOfOrderSequence}, {4, 0, 1, 4, nil}, {4, 1, 1, 5, nil}, {3, 0, 4, 0, ErrFencedProducer}},
		"unknown anywhere":   {{0, 17, 1, 0, nil}, {0, 18, 1, 1, nil}, {0, 16, 1, 0, ErrOutOfOrderSequence}},
		"negative":           {{0, -1, 1, 0, ErrOutOfOrderSequence}, {-1, 0, 1, 0, ErrOutOfOrderSequence}, {0, 0, 1, 0, nil}},
		"wrap to 0":          {{0, math.MaxInt32 - 1, 2, 0, nil}, {0, 1, 1, 0, ErrOutOfOrderSequence}, {0, 0, 1, 2, nil}, {0, math.MaxInt32 - 1, 2, 0, nil}},
		"wrap inside":        {{0, math.MaxInt32, 3, 0, nil}, {0, 2, 1, 3, nil}, {0, math.MaxInt32, 3, 0, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, Options{})
			d.create(key(1, 0))
			for i, st := range steps {
				r, err := d.produce(key(1, 0), from(9, st.epoch, st.sequence, st.n))
				if st.err != nil {
					wantErr(t, err, st.err)
					continue
				}
				if err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				want(t, "base offset", r.BaseOffset, st.base)
			}
		})
	}
}

// TestSequencesInFlight is the same with the batches in flight.
func TestSequencesInFlight(t *testing.T) {
	d := newDriver(t, Options{})
	k := key(1, 0)
	d.create(k)
	p := func(epoch int16, sequence int32, n int) any {
		return &Produce{Key: k, Batch: from(9, epoch, sequence, n)}
	}
	e, got := d.prepare(p(0, 0, 1), p(0, 1, 2), p(0, 1, 2), p(0, 0, 1), p(0, 4, 1), p(0, 3, 1), p(1, 1, 1), p(1, 0, 1), p(0, 4, 1), p(0, 3, 1))
	first := d.ticket - 9
	expect := []shard.Prepared{
		{}, {},
		{SameAs: first + 1}, {SameAs: first},
		{Err: ErrOutOfOrderSequence}, {},
		{Err: ErrOutOfOrderSequence}, {},
		{Err: ErrFencedProducer}, {SameAs: first + 5},
	}
	for i, x := range expect {
		if x.Err != nil {
			wantErr(t, got[i].Err, x.Err)
			continue
		}
		want(t, "error", got[i].Err, nil)
		want(t, "same as", got[i].SameAs, x.SameAs)
		want(t, "final", got[i].Final, false)
	}
	for i, o := range d.apply(e) {
		want(t, "outcome", o.err, nil)
		want(t, "base offset", o.result.(ProduceResult).BaseOffset, []int64{0, 1, 3, 4}[i])
	}
	// Applied, the last of them is a duplicate to be answered at once.
	_, got = d.prepare(p(1, 0, 1))
	want(t, "final", got[0].Final, true)
	want(t, "base offset", got[0].Result.(ProduceResult).BaseOffset, int64(4))
}

// TestDroppedProducer: after a reset, the later batches of whoever lost one are
// refused until the lost one comes back, also for a producer that is new.
func TestDroppedProducer(t *testing.T) {
	for _, known := range []bool{false, true} {
		d := newDriver(t, Options{})
		k := key(1, 0)
		d.create(k)
		s := int32(0)
		if known {
			if _, err := d.produce(k, from(9, 0, 0, 1)); err != nil {
				t.Fatal(err)
			}
			s = 1
		}
		d.prepare(&Produce{Key: k, Batch: from(9, 0, s, 1)}, &Produce{Key: k, Batch: from(9, 0, s+1, 1)})
		d.s.ResetProposed()
		_, err := d.produce(k, from(9, 0, s+1, 1))
		wantErr(t, err, ErrOutOfOrderSequence)
		for i := int32(0); i < 3; i++ {
			r, err := d.produce(k, from(9, 0, s+i, 1))
			want(t, "error", err, nil)
			want(t, "base offset", r.BaseOffset, int64(s+i))
		}
	}
}

func TestProducerExpiry(t *testing.T) {
	d := newDriver(t, Options{})
	k := key(1, 0)
	d.create(k)
	const n = 40 // several pages, and the map
	for i := int64(0); i < n; i++ {
		d.time++
		if _, err := d.produce(k, from(i, 0, 0, 1)); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "producers", len(d.s.Producers(k)), n)
	// The even ones go on half a day later.
	d.time += ProducerExpiryMilli / 2
	for i := int64(0); i < n; i += 2 {
		if _, err := d.produce(k, from(i, 0, 1, 1)); err != nil {
			t.Fatal(err)
		}
	}
	d.time += ProducerExpiryMilli/2 + 1
	if _, err := d.produce(k, plain(1, 5)); err != nil {
		t.Fatal(err)
	}
	want(t, "producers", len(d.s.Producers(k)), n/2)
	for i := int64(0); i < n; i++ {
		_, err := d.produce(k, from(i, 0, 7, 1))
		if i%2 == 0 {
			wantErr(t, err, ErrOutOfOrderSequence) // still known
		} else {
			want(t, "error", err, nil) // forgotten: may go on anywhere
		}
	}
	d.time += 2 * ProducerExpiryMilli
	d.must(&AllocateProducerIDs{Count: 1})
	want(t, "producers", len(d.s.Producers(k)), 0)
	want(t, "counter", d.s.Stats().Producers, int64(0))
	want(t, "heap", len(d.s.expiry), 0)
}

func TestMarkerFencesEpoch(t *testing.T) {
	d := newDriver(t, Options{})
	k := key(1, 0)
	d.create(k)
	if _, err := d.produce(k, from(9, 2, 0, 3)); err != nil {
		t.Fatal(err)
	}
	marker := batch.NewBuilder(batch.BuilderOptions{Control: true, Transactional: true, Producer: &batch.Producer{ID: 9, Epoch: 3, Sequence: -1}}).
		Add(7, []byte{0, 0, 0, 0}, []byte{0, 0, 0, 0, 0, 0}).Build()
	r, err := d.produce(k, marker)
	want(t, "error", err, nil)
	want(t, "base offset", r.BaseOffset, int64(3))
	_, err = d.produce(k, from(9, 2, 3, 1))
	wantErr(t, err, ErrFencedProducer)
	_, err = d.produce(k, from(9, 3, 3, 1))
	wantErr(t, err, ErrOutOfOrderSequence)
	r, err = d.produce(k, from(9, 3, 0, 1))
	want(t, "error", err, nil)
	want(t, "base offset", r.BaseOffset, int64(4))
}
