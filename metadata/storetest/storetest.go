// Package storetest is the contract of metadata.Store as one test, which every
// implementation passes: so the memory store of the tests cannot drift away
// from the etcd store of the brokers.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"thermocline/metadata"
)

// callBound is far above what any store takes, so that a hang is a failure and
// not a stuck run.
const callBound = 20 * time.Second

// Harness is a fresh, empty store and the faults that its implementation can
// show.
type Harness struct {
	Store metadata.Store
	// Expire lets a lease lapse at once.
	Expire func(metadata.LeaseID)
	// Compact forgets the revisions so far.
	Compact func()
	// Outage makes the store unreachable, or reachable again. RunWithoutOutage needs none.
	Outage func(away bool)
}

// Run runs the contract; open makes a harness for each part.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	run(t, open, parts())
	run(t, open, outageParts())
}

// RunWithoutOutage runs the contract but for its parts about outages.
func RunWithoutOutage(t *testing.T, open func(t *testing.T) Harness) { run(t, open, parts()) }

type part func(*testing.T, context.Context, Harness)

func run(t *testing.T, open func(t *testing.T) Harness, parts map[string]part) {
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), callBound)
			defer cancel()
			parts[name](t, ctx, open(t))
		})
	}
}

func parts() map[string]part {
	return map[string]part{
		"rows":            testRows,
		"list":            testList,
		"guards":          testGuards,
		"limits":          testLimits,
		"one winner":      testOneWinner,
		"watch":           testWatch,
		"watch resumes":   testWatchResumes,
		"watch compacted": testWatchCompacted,
		"lease":           testLease,
		"lease lapses":    testLeaseLapses,
		"caller gives up": testCallerGivesUp,
		"close":           testClose,
	}
}

func outageParts() map[string]part {
	return map[string]part{
		"outage":       testOutage,
		"watch outage": testWatchOutage,
	}
}

func put(ctx context.Context, t *testing.T, s metadata.Store, key, value string) int64 {
	t.Helper()
	rev, err := s.Commit(ctx, metadata.Txn{Writes: []metadata.Write{{Key: key, Value: []byte(value)}}})
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	return rev
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: expected %v, found %v", what, want, err)
	}
}

func testRows(t *testing.T, ctx context.Context, h Harness) {
	s := h.Store
	_, err := s.Get(ctx, "a/1")
	wantErr(t, "get of nothing", err, metadata.ErrNotFound)
	first := put(ctx, t, s, "a/1", "one")
	second := put(ctx, t, s, "a/1", "two")
	if second <= first {
		t.Fatalf("revisions: expected to rise, found %d then %d", first, second)
	}
	r, err := s.Get(ctx, "a/1")
	if err != nil || string(r.Value) != "two" || r.Modified != second || r.Key != "a/1" || r.Lease != 0 {
		t.Fatalf("get: expected two at %d, found %+v, %v", second, r, err)
	}
	if _, err := s.Commit(ctx, metadata.Txn{Writes: []metadata.Write{{Key: "a/1", Delete: true}, {Key: "absent", Delete: true}}}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Get(ctx, "a/1")
	wantErr(t, "get of a deleted row", err, metadata.ErrNotFound)
	put(ctx, t, s, "empty", "")
	if r, err := s.Get(ctx, "empty"); err != nil || len(r.Value) != 0 {
		t.Fatalf("empty value: found %+v, %v", r, err)
	}
}

func testList(t *testing.T, ctx context.Context, h Harness) {
	s := h.Store
	put(ctx, t, s, "b/1", "other")
	// Enough for several pages of any implementation, in full transactions.
	const n = 40 * metadata.TxnOpsMax
	var last int64
	for from := 0; from < n; from += metadata.TxnOpsMax {
		var txn metadata.Txn
		for i := from; i < from+metadata.TxnOpsMax; i++ {
			txn.Writes = append(txn.Writes, metadata.Write{Key: fmt.Sprintf("a/%06d", i), Value: []byte{byte(i)}})
		}
		var err error
		if last, err = s.Commit(ctx, txn); err != nil {
			t.Fatal(err)
		}
	}
	l, err := s.List(ctx, "a/")
	if err != nil || len(l.Rows) != n || l.Revision < last {
		t.Fatalf("list: expected %d rows at %d or later, found %d at %d, %v", n, last, len(l.Rows), l.Revision, err)
	}
	for i, r := range l.Rows {
		if want := fmt.Sprintf("a/%06d", i); r.Key != want || r.Value[0] != byte(i) || r.Modified == 0 {
			t.Fatalf("row %d: expected %s, found %+v", i, want, r)
		}
	}
	if l, err := s.List(ctx, ""); err != nil || len(l.Rows) != n+1 {
		t.Fatalf("list of everything: expected %d rows, found %d, %v", n+1, len(l.Rows), err)
	}
	if l, err := s.List(ctx, "nothing/"); err != nil || len(l.Rows) != 0 || l.Revision == 0 {
		t.Fatalf("list of nothing: found %+v, %v", l, err)
	}
}

func testGuards(t *testing.T, ctx context.Context, h Harness) {
	s := h.Store
	commit := func(guard metadata.Guard, w ...metadata.Write) (int64, error) {
		return s.Commit(ctx, metadata.Txn{Guards: []metadata.Guard{guard}, Writes: w})
	}
	created, err := commit(metadata.Guard{Key: "k"}, metadata.Write{Key: "k", Value: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = commit(metadata.Guard{Key: "k"}, metadata.Write{Key: "k", Value: []byte("2")})
	wantErr(t, "create twice", err, metadata.ErrFenced)
	updated, err := commit(metadata.Guard{Key: "k", Revision: created}, metadata.Write{Key: "k", Value: []byte("2")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = commit(metadata.Guard{Key: "k", Revision: created}, metadata.Write{Key: "k", Value: []byte("3")}, metadata.Write{Key: "other"})
	wantErr(t, "update with an old revision", err, metadata.ErrFenced)
	_, err = s.Get(ctx, "other")
	wantErr(t, "write of a fenced transaction", err, metadata.ErrNotFound)
	if _, err = commit(metadata.Guard{Key: "k", Revision: updated}, metadata.Write{Key: "k", Delete: true}); err != nil {
		t.Fatal(err)
	}
	_, err = commit(metadata.Guard{Key: "k", Revision: updated}, metadata.Write{Key: "k", Value: []byte("4")})
	wantErr(t, "update of a deleted row", err, metadata.ErrFenced)
	// A row that is made anew is another row, also for an old guard.
	put(ctx, t, s, "k", "5")
	_, err = commit(metadata.Guard{Key: "k", Revision: updated}, metadata.Write{Key: "k", Value: []byte("6")})
	wantErr(t, "update of a row made anew", err, metadata.ErrFenced)
}

func testLimits(t *testing.T, ctx context.Context, h Harness) {
	s := h.Store
	var txn metadata.Txn
	for i := range metadata.TxnOpsMax {
		key := fmt.Sprintf("k%d", i)
		txn.Guards = append(txn.Guards, metadata.Guard{Key: key})
		txn.Writes = append(txn.Writes, metadata.Write{Key: key, Value: []byte("v")})
	}
	if _, err := s.Commit(ctx, txn); err != nil {
		t.Fatalf("the largest transaction: %v", err)
	}
	txn.Guards = nil
	txn.Writes = append(txn.Writes, metadata.Write{Key: "one more"})
	_, err := s.Commit(ctx, txn)
	wantErr(t, "too many operations", err, metadata.ErrTooLarge)
	big := strings.Repeat("x", metadata.RowBytesMax)
	put(ctx, t, s, "big", big)
	if r, err := s.Get(ctx, "big"); err != nil || string(r.Value) != big {
		t.Fatalf("largest row: found %d bytes, %v", len(r.Value), err)
	}
	_, err = s.Commit(ctx, metadata.Txn{Writes: []metadata.Write{{Key: "big", Value: []byte(big + "x")}}})
	wantErr(t, "row too large", err, metadata.ErrTooLarge)
	if _, err = s.Commit(ctx, metadata.Txn{Writes: []metadata.Write{{Key: "twice"}, {Key: "twice"}}}); err == nil {
		t.Fatal("a key written twice in one transaction: expected an error")
	}
}

// testOneWinner: of many who write under the same guard, one does.
func testOneWinner(t *testing.T, ctx context.Context, h Harness) {
	const writers, rounds = 8, 10
	for round := range rounds {
		key := fmt.Sprintf("race/%d", round)
		won := make([]error, writers)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				_, won[w] = h.Store.Commit(ctx, metadata.Txn{
					Guards: []metadata.Guard{{Key: key}},
					Writes: []metadata.Write{{Key: key, Value: []byte{byte(w)}}},
				})
			})
		}
		wg.Wait()
		winner := -1
		for w, err := range won {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("round %d: %d and %d both won", round, winner, w)
			case err == nil:
				winner = w
			case !errors.Is(err, metadata.ErrFenced):
				t.Fatalf("round %d: loser: expected ErrFenced, found %v", round, err)
			}
		}
		if r, err := h.Store.Get(ctx, key); err != nil || winner < 0 || r.Value[0] != byte(winner) {
			t.Fatalf("round %d: expected the winner's %d, found %+v, %v", round, winner, r, err)
		}
	}
}

// receive waits for the next delivery.
func receive(ctx context.Context, t *testing.T, w <-chan metadata.Changes) metadata.Changes {
	t.Helper()
	select {
	case c, ok := <-w:
		if !ok {
			t.Fatal("watch: expected changes, found its end")
		}
		return c
	case <-ctx.Done():
		t.Fatal("watch: expected changes, found none")
	}
	panic("unreachable")
}

// gather waits until n changes have come; it checks their order.
func gather(ctx context.Context, t *testing.T, w <-chan metadata.Changes, n int) []metadata.Change {
	t.Helper()
	var all []metadata.Change
	var at int64
	for len(all) < n {
		c := receive(ctx, t, w)
		if c.Err != nil {
			t.Fatalf("watch after %d of %d changes: %v", len(all), n, c.Err)
		}
		for _, ch := range c.Changes {
			if ch.Row.Modified < at || ch.Row.Modified > c.Revision {
				t.Fatalf("change at %d: expected revisions from %d to %d", ch.Row.Modified, at, c.Revision)
			}
		}
		at = c.Revision + 1 // a revision comes whole
		all = append(all, c.Changes...)
	}
	return all
}

func testWatch(t *testing.T, ctx context.Context, h Harness) {
	s := h.Store
	before := put(ctx, t, s, "w/before", "0")
	stop, cancel := context.WithCancel(ctx)
	w := s.Watch(stop, "w/", before)
	put(ctx, t, s, "elsewhere", "x")
	both, err := s.Commit(ctx, metadata.Txn{Writes: []metadata.Write{
		{Key: "w/1", Value: []byte("1")}, {Key: "elsewhere", Value: []byte("y")}, {Key: "w/2", Value: []byte("2")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := receive(ctx, t, w)
	if c.Err != nil || len(c.Changes) != 2 || c.Revision < both {
		t.Fatalf("one transaction: expected its two rows at once, found %+v", c)
	}
	if _, err := s.Commit(ctx, metadata.Txn{Writes: []metadata.Write{{Key: "w/1", Delete: true}}}); err != nil {
		t.Fatal(err)
	}
	c = receive(ctx, t, w)
	if len(c.Changes) != 1 || !c.Changes[0].Deleted || c.Changes[0].Row.Key != "w/1" {
		t.Fatalf("deletion: found %+v", c)
	}
	const n = 200
	for i := range n {
		put(ctx, t, s, "w/many", fmt.Sprint(i))
	}
	for i, ch := range gather(ctx, t, w, n) {
		if ch.Deleted || string(ch.Row.Value) != fmt.Sprint(i) {
			t.Fatalf("change %d: found %+v", i, ch)
		}
	}
	cancel()
	for range w { // must end
	}
}

func testWatchResumes(t *testing.T, ctx context.Context, h Harness) {
	var revs []int64
	for i := range 5 {
		revs = append(revs, put(ctx, t, h.Store, "w/k", fmt.Sprint(i)))
	}
	got := gather(ctx, t, h.Store.Watch(ctx, "w/", revs[1]), 3)
	for i, ch := range got {
		if string(ch.Row.Value) != fmt.Sprint(i+2) || ch.Row.Modified != revs[i+2] {
			t.Fatalf("change %d after revision %d: found %+v", i, revs[1], ch)
		}
	}
}

func testWatchCompacted(t *testing.T, ctx context.Context, h Harness) {
	first := put(ctx, t, h.Store, "w/k", "1")
	put(ctx, t, h.Store, "w/k", "2")
	last := put(ctx, t, h.Store, "w/k", "3")
	open := h.Store.Watch(ctx, "w/", last)
	h.Compact()
	w := h.Store.Watch(ctx, "w/", first)
	c := receive(ctx, t, w)
	wantErr(t, "watch from a compacted revision", c.Err, metadata.ErrCompacted)
	if _, more := <-w; more {
		t.Fatal("watch after its error: expected its end")
	}
	put(ctx, t, h.Store, "w/k", "4")
	if got := gather(ctx, t, open, 1); string(got[0].Row.Value) != "4" {
		t.Fatalf("watch that was open: found %+v", got)
	}
}

// testWatchOutage: after an outage a watch goes on without a gap, or says that
// it failed.
func testWatchOutage(t *testing.T, ctx context.Context, h Harness) {
	last := put(ctx, t, h.Store, "w/k", "0")
	w := h.Store.Watch(ctx, "w/", last)
	last = put(ctx, t, h.Store, "w/k", "1")
	gather(ctx, t, w, 1)
	h.Outage(true)
	h.Outage(false)
	for {
		_, err := h.Store.Commit(ctx, metadata.Txn{
			Guards: []metadata.Guard{{Key: "w/k", Revision: last}},
			Writes: []metadata.Write{{Key: "w/k", Value: []byte("2")}},
		})
		if err == nil || errors.Is(err, metadata.ErrFenced) { // an attempt whose answer was lost
			break
		}
		wantErr(t, "commit around an outage", err, metadata.ErrUnavailable)
	}
	c := receive(ctx, t, w)
	if c.Err != nil {
		wantErr(t, "watch over an outage", c.Err, metadata.ErrUnavailable)
		return
	}
	if len(c.Changes) != 1 || string(c.Changes[0].Row.Value) != "2" {
		t.Fatalf("watch over an outage: expected the next change, found %+v", c)
	}
}

func testLease(t *testing.T, ctx context.Context, h Harness) {
	s := h.Store
	lease, err := s.Lease(ctx, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"l/1", "l/2"} {
		if _, err := s.Commit(ctx, metadata.Txn{Writes: []metadata.Write{{Key: key, Lease: lease.ID}}}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := s.Get(ctx, "l/1")
	if err != nil || r.Lease != lease.ID {
		t.Fatalf("row with a lease: expected lease %d, found %+v, %v", lease.ID, r, err)
	}
	// A row that is written again without the lease outlives it.
	kept := put(ctx, t, s, "l/2", "kept")
	w := s.Watch(ctx, "l/", kept)
	if err := lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(ctx); err != nil {
		t.Fatalf("release twice: %v", err)
	}
	if got := gather(ctx, t, w, 1); len(got) != 1 || got[0].Row.Key != "l/1" || !got[0].Deleted {
		t.Fatalf("release: expected the end of l/1, found %+v", got)
	}
	if _, err := s.Get(ctx, "l/2"); err != nil {
		t.Fatalf("row that left the lease: %v", err)
	}
	_, err = s.Commit(ctx, metadata.Txn{Writes: []metadata.Write{{Key: "l/3", Lease: lease.ID}}})
	wantErr(t, "write with a lease that is gone", err, metadata.ErrLeaseLost)
}

func testLeaseLapses(t *testing.T, ctx context.Context, h Harness) {
	lease, err := h.Store.Lease(ctx, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Store.Commit(ctx, metadata.Txn{Writes: []metadata.Write{{Key: "l/1", Lease: lease.ID}}}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-lease.Lost:
		t.Fatal("a lease that is kept alive was lost")
	default:
	}
	h.Expire(lease.ID)
	select {
	case <-lease.Lost:
	case <-ctx.Done():
		t.Fatal("lapsed lease: its owner was not told")
	}
	_, err = h.Store.Get(ctx, "l/1")
	wantErr(t, "row of a lapsed lease", err, metadata.ErrNotFound)
	if err := lease.Release(ctx); err != nil {
		t.Fatalf("release of a lapsed lease: %v", err)
	}
}

func testOutage(t *testing.T, ctx context.Context, h Harness) {
	s := h.Store
	put(ctx, t, s, "k", "before")
	lease, err := s.Lease(ctx, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	h.Outage(true)
	_, err = s.Get(ctx, "k")
	wantErr(t, "get", err, metadata.ErrUnavailable)
	_, err = s.List(ctx, "")
	wantErr(t, "list", err, metadata.ErrUnavailable)
	_, err = s.Commit(ctx, metadata.Txn{Writes: []metadata.Write{{Key: "k", Value: []byte("during")}}})
	wantErr(t, "commit", err, metadata.ErrUnavailable)
	_, err = s.Lease(ctx, time.Second)
	wantErr(t, "lease", err, metadata.ErrUnavailable)
	h.Outage(false)
	for {
		if _, err = s.Commit(ctx, metadata.Txn{Writes: []metadata.Write{{Key: "k", Value: []byte("after"), Lease: lease.ID}}}); err == nil {
			break
		}
		wantErr(t, "commit after the outage", err, metadata.ErrUnavailable)
	}
	if r, err := s.Get(ctx, "k"); err != nil || string(r.Value) != "after" {
		t.Fatalf("after the outage: found %+v, %v", r, err)
	}
}

func testCallerGivesUp(t *testing.T, ctx context.Context, h Harness) {
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err := h.Store.Get(gone, "k")
	wantErr(t, "get with an ended context", err, context.Canceled)
	_, err = h.Store.Commit(gone, metadata.Txn{Writes: []metadata.Write{{Key: "k"}}})
	wantErr(t, "commit with an ended context", err, context.Canceled)
	for range h.Store.Watch(gone, "", 1) { // must end
	}
}

func testClose(t *testing.T, ctx context.Context, h Harness) {
	w := h.Store.Watch(ctx, "", put(ctx, t, h.Store, "k", "v"))
	if err := h.Store.Close(); err != nil {
		t.Fatal(err)
	}
	for c := range w {
		if c.Err != nil {
			wantErr(t, "watch of a closed store", c.Err, metadata.ErrClosed)
		}
	}
	if _, err := h.Store.Get(ctx, "k"); err == nil {
		t.Fatal("get from a closed store: expected an error")
	}
	if err := h.Store.Close(); err != nil {
		t.Fatalf("close twice: %v", err)
	}
}
