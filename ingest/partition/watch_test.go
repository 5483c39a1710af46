package partition

import "testing"

func woken(w *Waiter) bool {
	select {
	case <-w.C():
		return true
	default:
		return false
	}
}

func TestSubscribe(t *testing.T) {
	d := newDriver(t, Options{})
	a, b := key(1, 0), key(1, 1)
	d.create(a, b)
	w, other := NewWaiter(), NewWaiter()
	want(t, "subscribed", d.s.Subscribe(w, a, key(5, 5)), true)
	want(t, "subscribed", d.s.Subscribe(other, b), true)

	d.lagHW = true
	d.must(&Produce{Key: a, Batch: plain(1, 1)})
	want(t, "woken by apply alone", woken(w), false)
	d.s.SetHW(d.index, true)
	want(t, "woken by the high watermark", woken(w), true)
	want(t, "other", woken(other), false)

	d.lagHW = false
	d.must(&Produce{Key: a, Batch: plain(1, 1)})
	want(t, "woken twice", woken(w), false)
	w.Rearm()
	d.must(&Produce{Key: a, Batch: plain(1, 1)})
	want(t, "woken after rearm", woken(w), true)
	d.must(&Produce{Key: a, Batch: plain(1, 1)})
	w.Rearm() // also empties the channel
	want(t, "rearmed", woken(w), false)

	for what, cmd := range map[string]any{
		"log start": &DeleteRecords{Key: a, Offset: 1},
		"creation":  &CreatePartition{Key: key(5, 5), Name: "x"},
	} {
		w.Rearm()
		d.must(cmd)
		want(t, what, woken(w), true)
	}
	w.Rearm()
	d.must(&DeletePartition{Key: a})
	want(t, "deletion", woken(w), true)
	w.Rearm()
	d.s.SetHW(d.index, false)
	want(t, "not ready", woken(w), true)
	want(t, "not ready, other", woken(other), true)

	w.Close()
	other.Rearm()
	d.must(&Produce{Key: b, Batch: plain(1, 1)})
	want(t, "other", woken(other), true)
	other.Close()
	want(t, "subscriptions", d.s.watch.n.Load(), int64(0))
	want(t, "lists", len(d.s.watch.lists), 0)
}

// TestWaiterAcrossSets closes subscriptions in the middle, front and back of a list.
func TestWaiterAcrossSets(t *testing.T) {
	d, e := newDriver(t, Options{Shard: 1}), newDriver(t, Options{Shard: 2})
	k := key(1, 0)
	d.create(k)
	e.create(k)
	ws := make([]*Waiter, 5)
	for i := range ws {
		ws[i] = NewWaiter()
		d.s.Subscribe(ws[i], k)
		e.s.Subscribe(ws[i], k)
	}
	open := map[int]bool{0: true, 1: true, 2: true, 3: true, 4: true}
	for i, close := range []int{2, 4, 0, 1, 3} {
		from := d
		if i%2 == 1 {
			from = e
		}
		from.must(&Produce{Key: k, Batch: plain(1, 1)})
		for j, w := range ws {
			want(t, "woken", woken(w), open[j])
			w.Rearm()
		}
		ws[close].Close()
		delete(open, close)
	}
	want(t, "subscriptions", d.s.watch.n.Load()+e.s.watch.n.Load(), int64(0))
}

func TestSubscriptionsAreBounded(t *testing.T) {
	s := NewSet(Options{})
	s.watch.n.Store(MaxSubscriptions - 1)
	w := NewWaiter()
	want(t, "the last", s.Subscribe(w, key(1, 0)), true)
	want(t, "one too many", s.Subscribe(w, key(1, 0)), false)
	w.Close()
	want(t, "after close", s.Subscribe(w, key(1, 0)), true)
}

func TestRestoreWakes(t *testing.T) {
	d := newDriver(t, Options{})
	d.create(key(1, 0))
	f := NewSet(d.s.opt)
	w := NewWaiter()
	f.Subscribe(w, key(1, 0))
	if err := f.Restore(bytesReader(imageOf(t, d.s))); err != nil {
		t.Fatal(err)
	}
	want(t, "woken", woken(w), true)
}
