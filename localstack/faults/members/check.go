package members

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// What a history can show to be wrong.
var (
	// ErrOverlap: two members that never paused owned a partition at one time.
	ErrOverlap = errors.New("members: two owners at one time")
	// ErrCommits: commits of one owner were accepted after those of the next.
	ErrCommits = errors.New("members: a former owner's commit was accepted")
	// ErrSkipped: records were passed over.
	ErrSkipped = errors.New("members: records were skipped")
	// ErrRepeated: records were read again though their offset was committed.
	ErrRepeated = errors.New("members: committed records were read again")
)

// Check verifies a history against the ends of the partitions' logs (every log
// starts at 0). All violations are joined, at most 20.
func Check(h History, ends map[int32]int64) error {
	c := checker{h: h}
	for p, end := range ends {
		c.owners(p)
		c.accepted(p)
		c.reads(p, end)
	}
	return errors.Join(c.found...)
}

const maxFound = 20

type checker struct {
	h     History
	found []error
}

func (c *checker) add(kind error, partition int32, format string, args ...any) {
	if len(c.found) < maxFound {
		c.found = append(c.found, fmt.Errorf("partition %d: %s: %w", partition, fmt.Sprintf(format, args...), kind))
	}
}

// owners: intervals of members that never paused do not overlap.
func (c *checker) owners(p int32) {
	var list []Interval
	for _, i := range c.h.Intervals {
		if i.Partition == p && !i.Paused {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b Interval) int { return int(a.Start - b.Start) })
	for n := 1; n < len(list); n++ {
		a, b := list[n-1], list[n]
		if a.End == 0 || a.End > b.Start {
			c.add(ErrOverlap, p, "%s from %v to %v, %s from %v", a.Member, a.Start, a.End, b.Member, b.Start)
		}
	}
}

// accepted: once a commit of a later interval was accepted, none of the earlier
// one is. What overlaps in time may have taken effect in either order.
func (c *checker) accepted(p int32) {
	type span struct {
		interval               int
		firstReturn, lastCall  time.Duration
		firstAnswer, lastAsked int64
	}
	byInterval := map[int]*span{}
	for _, k := range c.h.Commits {
		if !k.Accepted || c.h.Intervals[k.Interval].Partition != p {
			continue
		}
		s := byInterval[k.Interval]
		if s == nil {
			s = &span{interval: k.Interval, firstReturn: k.Return, firstAnswer: k.Offset}
			byInterval[k.Interval] = s
		}
		if k.Return < s.firstReturn {
			s.firstReturn, s.firstAnswer = k.Return, k.Offset
		}
		if k.Call >= s.lastCall {
			s.lastCall, s.lastAsked = k.Call, k.Offset
		}
	}
	for _, a := range byInterval {
		for _, b := range byInterval {
			// a began before b by what was accepted, and went on after it.
			if a != b && a.firstReturn < b.firstReturn && b.firstReturn < a.lastCall {
				c.add(ErrCommits, p, "%s committed %d at %v, after %s had committed %d at %v",
					c.h.Intervals[a.interval].Member, a.lastAsked, a.lastCall, c.h.Intervals[b.interval].Member, b.firstAnswer, b.firstReturn)
			}
		}
	}
}

// reads: each interval begins where the group had committed, goes on without
// gaps, and all together read everything.
func (c *checker) reads(p int32, end int64) {
	next := map[int]int64{}
	var runs []Read
	for _, r := range c.h.Reads {
		i := c.h.Intervals[r.Interval]
		if i.Partition != p {
			continue
		}
		runs = append(runs, r)
		if want, begun := next[r.Interval]; begun {
			if r.First != want {
				c.add(ErrSkipped, p, "%s: expected %d next, read %d", i.Member, want, r.First)
			}
		} else {
			c.begins(p, i, r)
		}
		next[r.Interval] = r.Last + 1
	}
	slices.SortFunc(runs, func(a, b Read) int { return int(a.First - b.First) })
	covered := int64(0)
	for _, r := range runs {
		if r.First > covered {
			c.add(ErrSkipped, p, "nobody read %d to %d", covered, r.First-1)
		}
		covered = max(covered, r.Last+1)
	}
	if covered < end {
		c.add(ErrSkipped, p, "nobody read %d to %d", covered, end-1)
	}
}

// begins: an interval's first record is where the group's commits were: not
// below what was acknowledged before the interval began, not above anything
// that anyone had asked to commit by then.
func (c *checker) begins(p int32, i Interval, first Read) {
	least, most := int64(0), int64(0)
	for _, k := range c.h.Commits {
		if c.h.Intervals[k.Interval].Partition != p {
			continue
		}
		if k.Accepted && k.Return < i.Start {
			least = max(least, k.Offset)
		}
		if k.Call < first.At && (k.Accepted || !k.Known) {
			most = max(most, k.Offset)
		}
	}
	if first.First < least {
		c.add(ErrRepeated, p, "%s began at %d at %v, %d was committed before", i.Member, first.First, i.Start, least)
	}
	if first.First > most {
		c.add(ErrSkipped, p, "%s began at %d at %v, at most %d was committed", i.Member, first.First, i.Start, most)
	}
}
