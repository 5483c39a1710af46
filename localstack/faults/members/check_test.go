package members

import (
	"errors"
	"testing"
	"time"
)

const ms = time.Millisecond

// sample: m1 reads 0 to 9 of partition 0 and commits; m2 goes on to 19.
func sample() (History, map[int32]int64) {
	return History{
		Intervals: []Interval{
			{Member: "m1", Start: 1 * ms, End: 50 * ms},
			{Member: "m2", Start: 60 * ms},
		},
		Reads: []Read{
			{Interval: 0, First: 0, Last: 4, At: 10 * ms},
			{Interval: 0, First: 5, Last: 9, At: 20 * ms},
			{Interval: 1, First: 10, Last: 19, At: 70 * ms},
		},
		Commits: []Commit{
			{Interval: 0, Offset: 5, Call: 11 * ms, Return: 12 * ms, Accepted: true, Known: true},
			{Interval: 0, Offset: 10, Call: 21 * ms, Return: 22 * ms, Accepted: true, Known: true},
			{Interval: 1, Offset: 20, Call: 71 * ms, Return: 72 * ms, Accepted: true, Known: true},
		},
	}, map[int32]int64{0: 20}
}

func TestCheckPassesAGoodHistory(t *testing.T) {
	if err := Check(sample()); err != nil {
		t.Fatal(err)
	}
}

func TestCheckFindsPlantedViolations(t *testing.T) {
	for _, c := range []struct {
		name  string
		plant func(h *History)
		want  error
	}{
		{"both own", func(h *History) { h.Intervals[0].End = 61 * ms }, ErrOverlap},
		{"never released", func(h *History) { h.Intervals[0].End = 0 }, ErrOverlap},
		{"late commit accepted", func(h *History) {
			h.Commits = append(h.Commits, Commit{Interval: 0, Offset: 10, Call: 80 * ms, Return: 81 * ms, Accepted: true, Known: true})
		}, ErrCommits},
		{"gap within", func(h *History) { h.Reads[1].First = 6 }, ErrSkipped},
		{"gap at the change", func(h *History) { h.Reads[2].First = 11 }, ErrSkipped},
		{"end never read", func(h *History) { h.Reads[2].Last = 18 }, ErrSkipped},
		{"committed read again", func(h *History) { h.Reads[2].First = 9 }, ErrRepeated},
	} {
		h, ends := sample()
		c.plant(&h)
		if err := Check(h, ends); !errors.Is(err, c.want) {
			t.Errorf("%s: expected %v, found %v", c.name, c.want, err)
		}
	}
}

// TestCheckAllowsWhatAtLeastOnceDoes: what was read and not committed may come
// again, and a member that paused may believe to own what another has.
func TestCheckAllowsWhatAtLeastOnceDoes(t *testing.T) {
	h, ends := sample()
	h.Commits[1].Accepted = false
	h.Reads[2].First = 5
	h.Intervals[0].Paused, h.Intervals[0].End = true, 90*ms
	if err := Check(h, ends); err != nil {
		t.Fatal(err)
	}
	h, ends = sample()
	h.Commits[1].Accepted, h.Commits[1].Known = false, false // no answer: either
	for _, first := range []int64{5, 10} {
		h.Reads[2].First = first
		if err := Check(h, ends); err != nil {
			t.Errorf("unknown commit, next owner begins at %d: %v", first, err)
		}
	}
}
