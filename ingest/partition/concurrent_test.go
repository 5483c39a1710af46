package partition

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
)

// TestConcurrentReaders: readers beside a shard that appends, raises the HW,
// seals, freezes, deletes and restores never see a torn partition. It is worth
// most under the race detector.
func TestConcurrentReaders(t *testing.T) {
	d := newDriver(t, Options{})
	d.lagHW = true
	keys := []Key{key(1, 0), key(1, 1), key(2, 0)}
	d.create(keys...)
	var stop atomic.Bool
	var readers sync.WaitGroup
	defer stop.Store(true)
	errs := make(chan error, 32)
	for i := range 4 {
		readers.Go(func() {
			if err := readUntil(d.s, keys, i, &stop); err != nil {
				errs <- err
			}
		})
	}
	readers.Go(func() { waitUntil(d.s, keys, &stop) })
	for i := int32(0); i < 1500 && len(errs) == 0; i++ {
		k := keys[i%2]
		d.must(&Produce{Key: k, Batch: from(int64(i%11), 0, i/22, 1)})
		switch {
		case i%3 == 0:
			d.s.SetHW(d.index, i%2 == 0)
		case i%100 == 70:
			d.tier()
		case i%100 == 20:
			d.must(&DeleteRecords{Key: k, Offset: -1})
		case i%200 == 50:
			d.must(&DeletePartition{Key: keys[2]})
			d.create(keys[2])
		case i%100 == 40:
			im := d.s.Image()
			readers.Go(func() {
				if err := im.Encode(&failingWriter{math.MaxInt}); err != nil {
					errs <- err
				}
			})
		case i%500 == 301:
			if err := d.s.Restore(bytesReader(imageOf(t, d.s))); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop.Store(true)
	d.s.SetHW(d.index+1, d.index%2 == 0) // wakes who still waits
	d.must(&DeleteRecords{Key: keys[0], Offset: -1})
	d.must(&Produce{Key: keys[0], Batch: plain(1, 1)})
	d.s.SetHW(d.index+1, true)
	readers.Wait()
	select {
	case err := <-errs:
		t.Fatal(err)
	default:
	}
}

// readUntil checks what must hold in every View, and from one to the next.
func readUntil(s *Set, keys []Key, i int, stop *atomic.Bool) error {
	hw := make(map[Key]int64)
	var rows []TailRef
	for n := 0; !stop.Load() || n < 10; n++ {
		k := keys[(n+i)%2]
		v, ok := s.View(k)
		if !ok {
			return fmt.Errorf("partition %v is gone", k)
		}
		if v.LogStart > v.TieredEnd || v.TieredEnd > v.LogEnd || v.HW < v.TieredEnd || v.HW > v.LogEnd || v.HW < hw[k] {
			return fmt.Errorf("view after hw %d: %+v", hw[k], v)
		}
		hw[k] = v.HW
		rows = s.Tail(k, v.TieredEnd, 1<<20, true, v.HW, rows[:0])
		for j, r := range rows {
			if r.First > r.Last || (j > 0 && r.First != rows[j-1].Last+1) {
				return fmt.Errorf("tail: %v", rows)
			}
		}
		switch n % 8 {
		case 1:
			s.EpochEnd(k, 5)
			s.FindTail(k, 1000, v.HW)
		case 3:
			s.Producers(k)
			s.Keys()
			s.Topics()
		case 5:
			s.SealPending()
			if r, ok := s.Seal(10_000); ok && r.Last < r.First {
				return fmt.Errorf("sealed %d to %d", r.First, r.Last)
			}
		case 7:
			s.View(keys[2])
			s.Stats()
			s.Status()
			s.FindTailMax(k, v.HW)
		}
	}
	return nil
}

// waitUntil long polls: every wake must come with a change, or an end.
func waitUntil(s *Set, keys []Key, stop *atomic.Bool) {
	w := NewWaiter()
	defer w.Close()
	s.Subscribe(w, keys...)
	for !stop.Load() {
		w.Rearm()
		if stop.Load() {
			return
		}
		<-w.C()
	}
}

// TestSealDuringChanges: what Seal returns while the shard goes on is whole.
func TestSealDuringChanges(t *testing.T) {
	d := newDriver(t, Options{})
	const n = 3 * sealStride
	var cmds []any
	for i := int32(0); i < n; i++ {
		cmds = append(cmds, &CreatePartition{Key: key(1, i), Name: "t"})
	}
	e, _ := d.prepare(cmds...)
	d.apply(e)
	write := func() {
		cmds = cmds[:0]
		for i := int32(0); i < n; i++ {
			cmds = append(cmds, &Produce{Key: key(1, i), Batch: plain(1, 1)})
		}
		e, _ := d.prepare(cmds...)
		d.apply(e)
	}
	write()
	done := make(chan *SealRange)
	go func() {
		r, _ := d.s.Seal(1)
		done <- r
	}()
	for i := 0; i < 20; i++ {
		write()
	}
	r := <-done
	if r == nil {
		t.Fatal("nothing sealed")
	}
	want(t, "partitions", len(r.Partitions), n)
	for _, p := range r.Partitions {
		for _, b := range p.Batches {
			if b.Index < r.First || b.Index > r.Last {
				t.Fatalf("row of entry %d in %d to %d", b.Index, r.First, r.Last)
			}
		}
	}
}
