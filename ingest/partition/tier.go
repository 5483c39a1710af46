package partition

import (
	"fmt"
	"sort"

	"thermocline/tiering/format"
)

// checkTier checks a tiering commit against the manifest: the segment begins
// exactly where the store ends, and holds applied entries only.
func (s *Set) checkTier(r *format.SegmentRow, applied uint64) error {
	next := s.manifest.TieredIndex + 1
	if s.opt.Bugs.TierAnywhere && r.LastIndex >= next {
		next = r.FirstIndex
	}
	if r.FirstIndex != next || r.LastIndex < r.FirstIndex || r.LastIndex > applied {
		return fmt.Errorf("segment %q: expected indexes %d to at most %d, found %d to %d: %w",
			r.Key, next, applied, r.FirstIndex, r.LastIndex, ErrNotNextSegment)
	}
	return nil
}

// applyTier commits a segment: its rows leave the tails. This is the one entry
// whose work follows the number of partitions with a tail; it comes once per
// segment, not once per batch.
func (s *Set) applyTier(r *format.SegmentRow, index uint64) (any, error) {
	if err := s.checkTier(r, index-1); err != nil {
		return nil, err
	}
	if err := checkCommand(&TierSegment{Row: *r}); err != nil {
		return nil, err
	}
	if s.nextSegment == 0 {
		return nil, fmt.Errorf("segment %q: all numbers of this shard are used: %w", r.Key, ErrInvalidCommand)
	}
	row := *r
	row.ID = s.nextSegment
	s.nextSegment++
	m := *s.manifest
	// Readers of the old manifest do not see beyond its length, and only the
	// newest one is ever appended to.
	m.Segments = append(m.Segments, row)
	m.TieredIndex = row.LastIndex
	s.manifest = &m
	for i := len(s.hot) - 1; i >= 0; i-- { // from the end: dropRows moves the last one here
		p := s.hot[i]
		if n := p.state.tail.findIndexAfter(row.LastIndex); n > 0 {
			s.tierRows(p, n)
		}
	}
	s.popEntries()
	return row.ID, nil
}

// tierRows moves p's tiered end behind its first n rows, and drops them.
func (s *Set) tierRows(p *part, n int) {
	st := s.own(p)
	before := st.tail.bytes
	end := st.tail.at(n-1).Last + 1
	s.dropRows(p, n)
	if s.opt.Bugs.KeepTieredEnd {
		return
	}
	st.coldBytes += before - st.tail.bytes
	st.tieredEnd = max(st.tieredEnd, end)
	cutEpochs(st)
	// Only acknowledged entries are sealed: a follower's HW may follow.
	if s.raiseHW(p, end) {
		s.touch(p)
	}
}

// checkRun checks a run commit: what it replaces is current, and adds up to
// exactly the segments that it covers.
func (s *Set) checkRun(c *CommitRun) error {
	if s.opt.Bugs.AcceptStaleRows {
		return nil
	}
	stale := func(what string, expected, found any) error {
		return fmt.Errorf("run %d: %s: expected %v, found %v: %w", c.Run.ID, what, expected, found, ErrStaleRows)
	}
	if c.Run.ID < s.nextRun || c.Run.ID == 1<<32-1 {
		return stale("id", fmt.Sprintf("%d or more", s.nextRun), c.Run.ID)
	}
	if c.Run.Last < c.Run.First {
		return stale("last segment", c.Run.First, c.Run.Last)
	}
	if len(c.Replaces) == 0 {
		// A run of level 1: the segments that follow the last run.
		first := s.firstLoose()
		if c.Run.First != first || c.Run.Last >= s.nextSegment {
			return stale("segments", fmt.Sprintf("%d to at most %d", first, s.nextSegment-1), fmt.Sprintf("%d to %d", c.Run.First, c.Run.Last))
		}
		return nil
	}
	next := c.Run.First
	for _, r := range s.replaced(c.Replaces) {
		if r.First != next {
			return stale("replaced segments", next, r.First)
		}
		next = r.Last + 1
	}
	if n := len(s.replaced(c.Replaces)); n != len(c.Replaces) || next != c.Run.Last+1 {
		return stale("replaced runs", fmt.Sprintf("%d to segment %d", len(c.Replaces), c.Run.Last), fmt.Sprintf("%d to segment %d", n, next-1))
	}
	return nil
}

// firstLoose is the first segment that is in no run.
func (s *Set) firstLoose() format.SegmentID {
	first := format.SegmentID(1)
	for _, r := range s.manifest.Runs {
		first = max(first, r.Last+1)
	}
	return first
}

// replaced returns the current runs with these ids, by first segment.
func (s *Set) replaced(ids []uint32) []format.RunRow {
	want := make(map[uint32]bool, len(ids))
	for _, id := range ids {
		want[id] = true
	}
	var rows []format.RunRow
	for _, r := range s.manifest.Runs {
		if want[r.ID] {
			rows = append(rows, r)
		}
	}
	return rows
}

func (s *Set) applyRun(c *CommitRun) error {
	if err := checkCommand(c); err != nil {
		return err
	}
	if err := s.checkRun(c); err != nil {
		return err
	}
	gone := make(map[uint32]bool, len(c.Replaces))
	for _, id := range c.Replaces {
		gone[id] = true
	}
	m := *s.manifest
	m.Runs = make([]format.RunRow, 0, len(s.manifest.Runs)+1)
	for _, r := range s.manifest.Runs {
		if !gone[r.ID] {
			m.Runs = append(m.Runs, r)
		}
	}
	m.Runs = append(m.Runs, c.Run)
	sort.Slice(m.Runs, func(i, j int) bool { return m.Runs[i].First < m.Runs[j].First })
	m.Fence = c.Fence
	// A run names the segments that it covers: their rows are not needed here.
	loose := sort.Search(len(m.Segments), func(i int) bool { return m.Segments[i].ID > c.Run.Last })
	m.Segments = append([]format.SegmentRow(nil), m.Segments[loose:]...)
	s.nextRun = max(s.nextRun, c.Run.ID+1)
	s.manifest = &m
	return nil
}
