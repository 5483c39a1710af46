package partition

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"thermocline/wal/shard"
)

func write(slot uint32, after uint64, pairs ...string) *CoordinatorWrite {
	c := &CoordinatorWrite{Slot: slot, After: after}
	for i := 0; i < len(pairs); i += 2 {
		r := CoordinatorRecord{Key: pairs[i]}
		if pairs[i+1] != "" {
			r.Value = []byte(pairs[i+1])
		}
		c.Records = append(c.Records, r)
	}
	return c
}

// sampleSlots is sample with coordinator slots: one large, one emptied.
func sampleSlots(t testing.TB) *driver {
	d := sample(t)
	for i := range uint64(100) {
		d.must(write(3, i, fmt.Sprintf("group-%d", i*7%100), strings.Repeat("x", int(i)), "newest", fmt.Sprint(i)))
	}
	d.must(write(47, 0, "a", "1"))
	d.must(write(47, 1, "a", ""))
	d.must(&CoordinatorWrite{Slot: 11, Records: []CoordinatorRecord{{Key: "empty value", Value: []byte{}}}})
	return d
}

func recordsOf(v SlotView) string {
	var b strings.Builder
	for key, value := range v.All() {
		fmt.Fprintf(&b, "%s=%s ", key, value)
	}
	return b.String()
}

func TestCoordinatorWrites(t *testing.T) {
	d := newDriver(t, Options{})
	want(t, "unwritten slot", d.s.Slot(5).Number, 0)
	want(t, "number", d.must(write(5, 0, "b", "2", "a", "1")).(uint64), 1)
	want(t, "number", d.must(write(5, 1, "c", "3", "a", "", "nobody", "")).(uint64), 2)
	want(t, "number", d.must(write(6, 0, "a", "other")).(uint64), 1)
	want(t, "empty write", d.must(write(6, 1)).(uint64), 2)
	v := d.s.Slot(5)
	want(t, "records", recordsOf(v), "b=2 c=3 ")
	want(t, "len", v.Len(), 2)
	want(t, "bytes", v.Bytes(), 2*66)
	value, ok := v.Get("c")
	want(t, "get", string(value)+fmt.Sprint(ok), "3true")
	_, ok = v.Get("a")
	want(t, "deleted", ok, false)
	for _, after := range []uint64{0, 1, 3} {
		_, err := d.do(write(5, after, "a", "1"))
		wantErr(t, err, ErrStaleCoordinator)
	}
	want(t, "nothing happened", d.s.Slot(5).Number, 2)
	st := d.s.Stats()
	want(t, "records", st.CoordinatorRecords, 3)
	want(t, "writes", st.CoordinatorWrites, 4)
	want(t, "bytes", st.CoordinatorBytes, 2*66+70)
}

// TestCoordinatorWriteInFlight: a write that is lost takes with it all that
// were built on it.
func TestCoordinatorWriteInFlight(t *testing.T) {
	d := newDriver(t, Options{})
	e1, _ := d.prepare(write(1, 0, "a", "1"))
	e2, preps := d.prepare(write(1, 1, "a", "2"), write(1, 1, "a", "3"))
	want(t, "second", preps[0].Result.(uint64), 2)
	wantErr(t, preps[1].Err, ErrStaleCoordinator)
	d.index-- // e2 is lost
	d.apply(e1)
	_, preps = d.prepare(write(1, 1, "a", "4"))
	wantErr(t, preps[0].Err, ErrStaleCoordinator) // nobody has told that it is lost
	d.index--
	d.s.ResetProposed()
	_, preps = d.prepare(write(1, 2, "a", "5"))
	wantErr(t, preps[0].Err, ErrStaleCoordinator)
	d.index--
	d.must(write(1, 1, "b", "6"))
	want(t, "records", recordsOf(d.s.Slot(1)), "a=1 b=6 ")
	// An old leader's entry, should it come to be applied, changes nothing.
	e2.index, e2.term = d.index+1, d.term
	wantErr(t, d.apply(e2)[0].err, ErrStaleCoordinator)
	want(t, "records", recordsOf(d.s.Slot(1)), "a=1 b=6 ")
}

// TestCoordinatorWriteRefusedAtApply: what follows a write that apply refuses
// is refused too, and then the slot goes on.
func TestCoordinatorWriteRefusedAtApply(t *testing.T) {
	d := newDriver(t, Options{})
	value := bytes.Repeat([]byte("x"), MaxCoordinatorValue)
	n := uint64(0)
	big := func() *CoordinatorWrite {
		n++
		return &CoordinatorWrite{Slot: 2, After: n - 1, Records: []CoordinatorRecord{{Key: fmt.Sprint(n), Value: value}}}
	}
	for d.s.slotBytes+2*(MaxCoordinatorValue+100) <= MaxCoordinatorBytes {
		d.must(big())
		d.log = nil
	}
	e, preps := d.prepare(big(), big(), write(2, n, "small", "y"), write(3, 0, "other", "z"))
	for i, p := range preps {
		if p.Err != nil {
			t.Fatalf("prepare %d: %v", i, p.Err)
		}
	}
	out := d.apply(e)
	want(t, "fits", out[0].err, nil)
	wantErr(t, out[1].err, ErrCoordinatorFull)
	wantErr(t, out[2].err, ErrStaleCoordinator)
	want(t, "another slot", out[3].err, nil)
	n--
	_, err := d.do(&CoordinatorWrite{Slot: 2, After: n, Records: []CoordinatorRecord{{Key: "one more", Value: value}}})
	wantErr(t, err, ErrCoordinatorFull)
	want(t, "number", d.s.Slot(2).Number, n)
	// What does not grow is taken, and deletions make room.
	d.must(&CoordinatorWrite{Slot: 2, After: n, Records: []CoordinatorRecord{{Key: "1", Value: value}}})
	d.must(write(2, n+1, "1", "", "2", ""))
	d.must(&CoordinatorWrite{Slot: 2, After: n + 2, Records: []CoordinatorRecord{{Key: "one more", Value: value}}})
}

func TestCoordinatorWriteLimits(t *testing.T) {
	d := newDriver(t, Options{})
	many := &CoordinatorWrite{Records: make([]CoordinatorRecord, MaxCoordinatorRecords+1)}
	large := &CoordinatorWrite{}
	for i := range MaxCoordinatorWrite/MaxCoordinatorValue + 1 {
		large.Records = append(large.Records, CoordinatorRecord{Key: fmt.Sprint(i), Value: make([]byte, MaxCoordinatorValue)})
	}
	for _, c := range []*CoordinatorWrite{
		write(MaxCoordinatorSlots, 0), write(0, 1<<64-1), many, large, write(0, 0, "", "x"),
		write(0, 0, strings.Repeat("k", MaxCoordinatorKey+1), "x"),
		{Records: []CoordinatorRecord{{Key: "k", Value: make([]byte, MaxCoordinatorValue+1)}}},
	} {
		_, err := d.do(c)
		wantErr(t, err, ErrInvalidCommand)
	}
	d.must(&CoordinatorWrite{Slot: MaxCoordinatorSlots - 1, Records: []CoordinatorRecord{{Key: strings.Repeat("k", MaxCoordinatorKey), Value: make([]byte, MaxCoordinatorValue)}}})
	restored(t, d.s.opt, imageOf(t, d.s))
}

// TestSlotViewIsFrozen: a view keeps what it showed.
func TestSlotViewIsFrozen(t *testing.T) {
	d := sampleSlots(t)
	v := d.s.Slot(3)
	before := recordsOf(v)
	image := imageOf(t, d.s)
	im := d.s.Image()
	for i := range 90 {
		d.must(write(3, 100+uint64(i), fmt.Sprintf("group-%d", i), "", "newest", "", fmt.Sprintf("more-%d", i), "y"))
	}
	want(t, "view", recordsOf(v), before)
	var again bytes.Buffer
	if err := im.Encode(&again); err != nil {
		t.Fatal(err)
	}
	want(t, "image", again.String(), string(image))
	if err := d.s.Restore(bytes.NewReader(image)); err != nil {
		t.Fatal(err)
	}
	want(t, "restored", recordsOf(d.s.Slot(3)), before)
}

// TestCoordinatorTrim: a shard with nothing but coordinator writes needs no
// segment to trim its log, and one that has data trims with the data.
func TestCoordinatorTrim(t *testing.T) {
	d := newDriver(t, Options{})
	d.must(write(1, 0, "a", "1"))
	want(t, "trimmable", d.s.TrimmableIndex(), d.index)
	if _, ok := d.s.SealPending(); ok {
		t.Fatal("something to seal")
	}
	d.create(key(1, 0))
	d.must(&Produce{Key: key(1, 0), Batch: plain(1, 1)})
	at := d.index
	d.must(write(1, 1, "a", "2"))
	want(t, "trimmable", d.s.TrimmableIndex(), at-1)
	d.tier()
	want(t, "trimmable", d.s.TrimmableIndex(), d.index)
	d.must(write(1, 2, "a", "3"))
	want(t, "trimmable", d.s.TrimmableIndex(), d.index)
}

// TestSlotsImageGolden: images of version 2, and those of version 1 go on.
func TestSlotsImageGolden(t *testing.T) {
	path := filepath.Join("testdata", "image-v2.bin")
	d := sampleSlots(t)
	image := imageOf(t, d.s)
	if *update {
		if err := os.WriteFile(path, image, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(golden, image) {
		t.Fatalf("the image of version 2 has changed: expected %d bytes, found %d", len(golden), len(image))
	}
	s := restored(t, d.s.opt, golden)
	for _, slot := range []uint32{3, 11, 47, 1} {
		want(t, "records", recordsOf(s.Slot(slot)), recordsOf(d.s.Slot(slot)))
		want(t, "number", s.Slot(slot).Number, d.s.Slot(slot).Number)
	}
	a, b := s.Stats(), d.s.Stats()
	want(t, "bytes", a.CoordinatorBytes, b.CoordinatorBytes)
	want(t, "records", a.CoordinatorRecords, b.CoordinatorRecords)
	for n := range image {
		if err := NewSet(d.s.opt).Restore(bytes.NewReader(image[:n])); err == nil {
			t.Fatalf("cut to %d bytes: restored", n)
		}
	}
	old, err := os.ReadFile(filepath.Join("testdata", "image-v1.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(bytes.NewReader(old)); err != nil {
		t.Fatal(err)
	}
	want(t, "slot of an image without slots", s.Slot(3).Number, 0)
	want(t, "bytes", s.Stats().CoordinatorBytes, 0)
}

// TestRecordMap compares the tree with a map, and old versions with what they
// were.
func TestRecordMap(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 2))
		type version struct {
			m    recordMap
			want map[string]string
		}
		var now version
		now.want = map[string]string{}
		var old []version
		keys := 1 + rng.IntN(3000)
		for gen := uint64(1); gen < 60; gen++ {
			if rng.IntN(4) == 0 {
				old = append(old, version{now.m, maps.Clone(now.want)})
			}
			grow := rng.IntN(3)
			for range rng.IntN(200) {
				k := fmt.Sprint(rng.IntN(keys))
				if rng.IntN(3) < grow {
					v := fmt.Sprint(rng.Uint32())
					now.m.put(gen, k, []byte(v))
					now.want[k] = v
				} else {
					now.m.remove(gen, k)
					delete(now.want, k)
				}
			}
		}
		for i, v := range append(old, now) {
			if err := (&modelSlot{records: v.want}).verify(SlotView{records: v.m}); err != nil {
				t.Fatalf("seed %d version %d: %v", seed, i, err)
			}
			for k, value := range v.want {
				if got, ok := v.m.get(k); !ok || string(got) != value {
					t.Fatalf("seed %d version %d: get %s: expected %s, found %s", seed, i, k, value, got)
				}
			}
		}
		for _, k := range slices.Sorted(maps.Keys(now.want)) {
			now.m.remove(100, k)
		}
		if now.m.root != nil || now.m.count != 0 || now.m.bytes != 0 {
			t.Fatalf("seed %d: emptied: %+v", seed, now.m)
		}
	}
}

// TestSlotsWhileApplying: readers take views while the shard's goroutine writes.
func TestSlotsWhileApplying(t *testing.T) {
	d := newDriver(t, Options{})
	stop := make(chan struct{})
	done := make(chan error, 2)
	for range 2 {
		go func() {
			for {
				v, sum := d.s.Slot(1), 0
				for _, value := range v.All() {
					sum += len(value)
				}
				if v.Len() > 0 && sum != v.Len() {
					done <- fmt.Errorf("view %d: %d records, %d bytes", v.Number, v.Len(), sum)
					return
				}
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
			}
		}()
	}
	for i := range uint64(500) {
		d.must(write(1, i, fmt.Sprint(i%90), "x", fmt.Sprint(i%70), "", fmt.Sprint(i%50), "y"))
	}
	close(stop)
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkCoordinatorWrite(b *testing.B) {
	d := newDriver(b, Options{})
	fill := &CoordinatorWrite{}
	for i := range MaxCoordinatorRecords {
		fill.Records = append(fill.Records, CoordinatorRecord{Key: fmt.Sprintf("offset/group-%d", i), Value: make([]byte, 40)})
	}
	d.must(fill)
	b.ReportAllocs()
	n := uint64(1)
	for b.Loop() {
		c := &CoordinatorWrite{After: n, Records: []CoordinatorRecord{{Key: fmt.Sprintf("offset/group-%d", n*7919%MaxCoordinatorRecords), Value: make([]byte, 40)}}}
		d.index++
		payload, prep := d.s.Prepare(c, d.term, n, d.time, nil)
		if prep.Err != nil {
			b.Fatal(prep.Err)
		}
		if err := d.s.Apply(shard.Applied{Index: d.index, Term: d.term, Kind: shard.KindItems, Payload: payload}, func(int, any, error) {}); err != nil {
			b.Fatal(err)
		}
		n++
	}
}
