package faulty_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"thermocline/tiering/object"
	"thermocline/tiering/object/faulty"
	"thermocline/tiering/object/memory"
	"thermocline/tiering/object/objecttest"
)

func TestAcceptanceWithoutFaults(t *testing.T) {
	objecttest.Acceptance(t, func(*testing.T) object.Store { return faulty.New(memory.New(memory.Options{}), 1) }, objecttest.Options{})
}

// fates makes the same calls on a store and names what came of each.
func fates(seed uint64, f faulty.Faults) []string {
	inner := memory.New(memory.Options{})
	s := faulty.New(inner, seed)
	s.SetFaults(f)
	var out []string
	p := make([]byte, 10)
	for i := range 300 {
		body := fmt.Appendf(nil, "%010d", i)
		key := fmt.Sprint(i)
		put := s.Put(context.Background(), key, bytes.NewReader(body), object.PutOptions{CRC32C: object.CRC32C(body)})
		n, get := s.GetRange(context.Background(), key, 0, p)
		_, stored := inner.Head(context.Background(), key)
		out = append(out, fmt.Sprint(put, stored, n, get))
	}
	return out
}

func TestFaultsAreSeededAndAsAsked(t *testing.T) {
	f := faulty.Faults{Unavailable: 0.05, Burst: 3, Cut: 0.2, Unclear: 0.2}
	a, b, c := fates(1, f), fates(1, f), fates(2, f)
	if !slices.Equal(a, b) {
		t.Error("one seed gave two sequences")
	}
	if slices.Equal(a, c) {
		t.Error("two seeds gave one sequence")
	}
	all := fmt.Sprint(a)
	for _, cause := range []error{faulty.ErrSlowDown, faulty.ErrCut, faulty.ErrUnclear} {
		if !bytes.Contains([]byte(all), []byte(cause.Error())) {
			t.Errorf("never happened: %v", cause)
		}
	}
}

func TestUnclearPutIsCarriedOut(t *testing.T) {
	inner := memory.New(memory.Options{})
	s := faulty.New(inner, 1)
	s.SetFaults(faulty.Faults{Unclear: 1})
	err := s.Put(t.Context(), "x", bytes.NewReader(nil), object.PutOptions{})
	if !object.Retryable(err) || !errors.Is(err, faulty.ErrUnclear) {
		t.Errorf("expected an unclear outcome, got %v", err)
	}
	if _, err := inner.Head(t.Context(), "x"); err != nil {
		t.Error(err)
	}
}

func TestAwayHangAndHook(t *testing.T) {
	s := faulty.New(memory.New(memory.Options{}), 1)
	s.SetAway(true)
	if _, err := s.Head(t.Context(), "x"); !object.Retryable(err) || !errors.Is(err, faulty.ErrAway) {
		t.Errorf("away: got %v", err)
	}
	s.SetAway(false)
	s.SetFaults(faulty.Faults{Hang: 1})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Head(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hang: got %v", err)
	}
	s.SetFaults(faulty.Faults{})
	hook, met := s.FailNth(2, errors.New("second"))
	s.SetHook(hook)
	_, first := s.Head(t.Context(), "x")
	if met() {
		t.Error("the second operation has not come yet")
	}
	_, second := s.Head(t.Context(), "x")
	_, third := s.Head(t.Context(), "x")
	if !errors.Is(first, object.ErrNotFound) || !object.Retryable(second) || !errors.Is(third, object.ErrNotFound) || !met() {
		t.Errorf("expected only the second to be failed: %v, %v, %v", first, second, third)
	}
	if c := s.Counts(object.OpHead); c.Calls != 5 || c.Injected != 3 {
		t.Errorf("expected 5 calls, 3 of them failed on purpose, got %+v", c)
	}
}

func TestLinkTakesItsTimePerConnection(t *testing.T) {
	s := faulty.New(memory.New(memory.Options{}), 1)
	objecttest.Put(t, s, "x", make([]byte, 100_000))
	s.SetLink(faulty.Link{FirstByte: 10 * time.Millisecond, BytesPerSecond: 10_000_000, Conns: 2})
	start := time.Now()
	var wg sync.WaitGroup
	for range 4 { // two rounds of two, 10 ms + 10 ms each
		wg.Go(func() {
			if n, err := s.GetRange(t.Context(), "x", 0, make([]byte, 100_000)); n != 100_000 || err != nil {
				t.Error(n, err)
			}
		})
	}
	wg.Wait()
	if took := time.Since(start); took < 40*time.Millisecond {
		t.Errorf("expected at least 40 ms, took %v", took)
	}
}
