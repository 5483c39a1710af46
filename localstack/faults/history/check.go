package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxViolations bounds a report: the first ones say enough.
const maxViolations = 20

// Kinds of violations; each found one wraps its kind.
var (
	ErrGap       = errors.New("offsets are not dense")
	ErrInvented  = errors.New("a record that nobody sent there")
	ErrDuplicate = errors.New("a record twice")
	ErrLost      = errors.New("an acknowledged record is not at its offset")
	ErrRefused   = errors.New("a refused record is in the log")
	ErrOrder     = errors.New("a producer's records are out of order")
	ErrRealTime  = errors.New("a record called after another's acknowledgement precedes it")
)

// Check compares a history with whole logs, by partition, and returns all kinds
// of violations (nil: none). Logs must have been read after the last call ended.
//
//   - offsets are dense from 0;
//   - an acknowledged record is exactly once in the log, at its offset;
//   - a record of unknown fate is at most once there, a refused one never;
//   - nothing else is there;
//   - each producer's records are in the order of its calls;
//   - of two calls that did not overlap, the earlier has the lower offset.
func Check(ops []Op, logs map[int32][]Entry) error {
	c := checker{}
	byPartition := map[int32][]Op{}
	for _, op := range ops {
		byPartition[op.Partition] = append(byPartition[op.Partition], op)
	}
	for p := range logs {
		if _, ok := byPartition[p]; !ok {
			byPartition[p] = nil
		}
	}
	for p, list := range byPartition {
		c.partition(p, list, logs[p])
	}
	return c.result()
}

type checker struct {
	found []error
	more  int
}

func (c *checker) result() error {
	if c.more > 0 {
		c.found = append(c.found, fmt.Errorf("and %d more violations", c.more))
	}
	return errors.Join(c.found...)
}

func (c *checker) add(kind error, partition int32, format string, args ...any) {
	if len(c.found) >= maxViolations {
		c.more++
		return
	}
	c.found = append(c.found, fmt.Errorf("partition %d: %w: %s", partition, kind, fmt.Sprintf(format, args...)))
}

// placed is a call whose record is in the log.
type placed struct {
	Op
	at int64
}

func (c *checker) partition(p int32, ops []Op, log []Entry) {
	at := make(map[ID]int64, len(log))
	for i, e := range log {
		if e.Offset != int64(i) {
			c.add(ErrGap, p, "expected offset %d, found %d (%s)", i, e.Offset, e.ID)
			// One gap shifts all that follow: said once.
			break
		}
	}
	for _, e := range log {
		if first, ok := at[e.ID]; ok {
			c.add(ErrDuplicate, p, "%s at %d and %d", e.ID, first, e.Offset)
			continue
		}
		at[e.ID] = e.Offset
	}
	list := c.fates(p, ops, at)
	for id, offset := range at {
		c.add(ErrInvented, p, "%s at %d", id, offset)
	}
	c.order(p, list)
	c.realTime(p, list)
}

// fates compares each call's outcome with the log, and takes what was called
// out of at: what is left was invented.
func (c *checker) fates(p int32, ops []Op, at map[ID]int64) []placed {
	list := make([]placed, 0, len(ops))
	for _, op := range ops {
		offset, ok := at[op.ID]
		switch {
		case op.Outcome == Acked && !ok:
			c.add(ErrLost, p, "%s acknowledged at %d after %v is nowhere", op.ID, op.Offset, op.Return)
		case op.Outcome == Acked && offset != op.Offset:
			c.add(ErrLost, p, "%s acknowledged at %d is at %d", op.ID, op.Offset, offset)
		case op.Outcome == Refused && ok:
			c.add(ErrRefused, p, "%s at %d", op.ID, offset)
		}
		if ok {
			list = append(list, placed{op, offset})
			delete(at, op.ID)
		}
	}
	return list
}

func (c *checker) order(p int32, list []placed) {
	slices.SortFunc(list, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	last := map[int32]placed{}
	for _, op := range list {
		if prev, ok := last[op.Producer]; ok && prev.Seq > op.Seq {
			c.add(ErrOrder, p, "%s at %d, then %s at %d", prev.ID, prev.at, op.ID, op.at)
		}
		last[op.Producer] = op
	}
}

// realTime: going through calls by their begin, the highest offset among those
// that had been acknowledged by then must be below.
func (c *checker) realTime(p int32, list []placed) {
	calls := slices.Clone(list)
	slices.SortFunc(calls, func(a, b placed) int { return cmp.Compare(a.Call, b.Call) })
	returns := slices.DeleteFunc(list, func(o placed) bool { return o.Outcome != Acked })
	slices.SortFunc(returns, func(a, b placed) int { return cmp.Compare(a.Return, b.Return) })
	highest := placed{at: -1}
	next := 0
	for _, call := range calls {
		for ; next < len(returns) && returns[next].Return < call.Call; next++ {
			if returns[next].at > highest.at {
				highest = returns[next]
			}
		}
		if highest.at > call.at {
			c.add(ErrRealTime, p, "%s acknowledged at %d by %v, then %s called at %v is at %d",
				highest.ID, highest.at, highest.Return, call.ID, call.Call, call.at)
		}
	}
}

// Longest is the longest time within a history in which nothing was acknowledged.
func Longest(ops []Op) time.Duration {
	var returns []time.Duration
	for _, op := range ops {
		if op.Outcome == Acked {
			returns = append(returns, op.Return)
		}
	}
	slices.Sort(returns)
	var longest time.Duration
	for i := 1; i < len(returns); i++ {
		longest = max(longest, returns[i]-returns[i-1])
	}
	return longest
}
