package batch

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// TestFindAgainstBruteForce asks for every timestamp near each record's.
func TestFindAgainstBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range allCodecs {
		for round := range 40 {
			ss := samples(uint64(round), 1+rng.IntN(30), 10)
			for i := range ss {
				ss[i].ts = int64(rng.IntN(40)) - 1 // equal, out of order, none
			}
			b := build(BuilderOptions{BaseOffset: 1000, Codec: c}, ss)
			for ts := int64(0); ts < 42; ts++ {
				wantOff, wantTS, wantOK := int64(0), int64(0), false
				for i, s := range ss {
					if s.ts >= ts {
						wantOff, wantTS, wantOK = 1000+int64(i), s.ts, true
						break
					}
				}
				off, at, ok, err := FindTime(b, ts)
				if err != nil || off != wantOff || at != wantTS || ok != wantOK {
					t.Fatalf("%s, time %d: expected %d %d %v, found %d %d %v (%v)", c, ts, wantOff, wantTS, wantOK, off, at, ok, err)
				}
			}
			wantOff, wantTS := int64(-1), int64(-1)
			for i, s := range ss {
				if s.ts > wantTS {
					wantOff, wantTS = 1000+int64(i), s.ts
				}
			}
			if off, at, err := FindMaxTime(b); err != nil || off != wantOff || at != wantTS {
				t.Fatalf("%s, max: expected %d %d, found %d %d (%v)", c, wantOff, wantTS, off, at, err)
			}
		}
	}
}

func TestControlBatchesHaveNoTime(t *testing.T) {
	b := NewBuilder(BuilderOptions{Control: true, Producer: &Producer{ID: 1}, Transactional: true}).
		Add(5000, []byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 9}).Build()
	if _, _, ok, err := FindTime(b, 1); ok || err != nil {
		t.Fatalf("found a control batch by time: %v", err)
	}
	if off, ts, err := FindMaxTime(b); off != -1 || ts != -1 || err != nil {
		t.Fatalf("max time of a control batch: %d %d %v", off, ts, err)
	}
	if !b.IsControl() || len(iterated(t, b)) != 1 {
		t.Fatal("a control batch must be readable")
	}
}

func TestIterateStopsAndPoolsRecover(t *testing.T) {
	for _, c := range allCodecs {
		ss := samples(8, 4000, 40)
		b := build(BuilderOptions{Codec: c}, ss)
		for range 5 {
			seen := 0
			if err := Iterate(b, func(Record) bool { seen++; return seen < 3 }); err != nil || seen != 3 {
				t.Fatalf("%s: %d %v", c, seen, err)
			}
			sameSamples(t, ss, iterated(t, b))
		}
	}
}

// TestIterateSparse: offset deltas after compaction have holes, and must rise.
func TestIterateSparse(t *testing.T) {
	rec := func(delta int64) []byte { return body([]byte{0, 0}, appendVarint(nil, delta), []byte{1, 1, 0}) }
	b := raw(None, 2, append(rec(3), rec(9)...))
	b.putI32(offLastOffsetDelta, 12)
	reseal(b)
	var got []int32
	if err := Iterate(b, func(r Record) bool { got = append(got, r.OffsetDelta); return true }); err != nil || len(got) != 2 || got[0] != 3 || got[1] != 9 {
		t.Fatalf("%v %v", got, err)
	}
	for _, bad := range [][2]int64{{3, 3}, {9, 3}, {3, 13}, {-1, 2}} {
		b := raw(None, 2, append(rec(bad[0]), rec(bad[1])...))
		b.putI32(offLastOffsetDelta, 12)
		if err := Iterate(reseal(b), func(Record) bool { return true }); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("deltas %v: %v", bad, err)
		}
	}
}
