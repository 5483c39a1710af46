package bench

import (
	"context"
	"testing"
)

// TestVerdicts walks the kinds of goal.
func TestVerdicts(t *testing.T) {
	row := func(higher bool, values map[string]float64) *Row { return &Row{Values: values, Higher: higher} }
	for _, c := range []struct {
		name    string
		row     *Row
		goal    goal
		verdict string
	}{
		{"absolute, reached", row(false, map[string]float64{Ours: 2.9}), goal{itself, 10, 3}, "aim"},
		{"absolute, must", row(false, map[string]float64{Ours: 9}), goal{itself, 10, 3}, "must"},
		{"absolute, below", row(false, map[string]float64{Ours: 11}), goal{itself, 10, 3}, "below"},
		{"nothing at all", row(false, map[string]float64{Ours: 0}), goal{itself, 0, 0}, "aim"},
		{"the better of two", row(true, map[string]float64{Ours: 150, KafkaPlain: 100, KafkaFsync: 200}), goal{kafka, 0.7, 1}, "must"},
		{"the smaller of two", row(false, map[string]float64{Ours: 6, KafkaPlain: 10, KafkaFsync: 7}), goal{kafkaDefault, 0.7, 0.4}, "must"},
		{"the machine's", row(true, map[string]float64{Ours: 95, Floor: 100}), goal{machine, 0.7, 0.9}, "aim"},
		{"one of two is missing", row(true, map[string]float64{Ours: 95, KafkaFsync: 10}), goal{kafka, 0.7, 0.9}, ""},
		{"no column to compare with", row(true, map[string]float64{Ours: 95}), goal{kafka, 0.7, 0.9}, ""},
	} {
		v, ok := c.row.judged(c.goal)
		if !ok {
			if c.verdict != "" {
				t.Errorf("%s: not judged", c.name)
			}
			continue
		}
		if got := c.row.verdict(c.goal, v); got != c.verdict {
			t.Errorf("%s: %v is %q, expected %q", c.name, v, got, c.verdict)
		}
	}
}

// TestLookupCosts: the row of the bench, in a history short enough for a test,
// keeps what must be reached.
func TestLookupCosts(t *testing.T) {
	h, err := newLookupHistory(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.places) < lookupPlaces {
		t.Fatalf("%d places to look up, expected %d", len(h.places), lookupPlaces)
	}
	var most lookupCost
	for _, at := range h.places {
		if err := h.measure(context.Background(), at, lookupOffset, &most); err != nil {
			t.Fatal(err)
		}
		if err := h.measure(context.Background(), at, lookupTime, &most); err != nil {
			t.Fatal(err)
		}
	}
	if most.cold > 3 || most.cold == 0 || most.warm > 0 || most.bytes > 2<<20 {
		t.Errorf("a look-up takes up to %d GETs, %d for a warm index, %d bytes", most.cold, most.warm, most.bytes)
	}
}

// TestStateOfRounds: rounds that are tiered add next to nothing to the state.
func TestStateOfRounds(t *testing.T) {
	var out recorder
	r := &runner{o: Options{Out: &out, Only: []string{rowState}}, rows: map[string]*Row{}}
	if err := r.rounds(t.Context(), 2_000, 10); err != nil {
		t.Fatal(err)
	}
	if v := r.rows[rowState].Values[Ours]; v > 0.5 {
		t.Errorf("the state of 2,000 partitions grew by %v MiB in 10 rounds", v)
	}
}

type recorder []byte

func (r *recorder) Write(p []byte) (int, error) { *r = append(*r, p...); return len(p), nil }
