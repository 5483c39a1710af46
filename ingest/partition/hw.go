package partition

import (
	"cmp"
	"slices"
)

// SetHW implements shard.StateMachine. Its work follows the partitions that
// were written between the old bound and the new one, not their number.
func (s *Set) SetHW(hw uint64, leaderReady bool) {
	if s.opt.Bugs.LatestAlwaysKnown {
		leaderReady = true
	}
	if hw <= s.hw && leaderReady == s.ready && !s.opt.Bugs.HWGoesBack {
		return
	}
	s.mu.Lock()
	switch {
	case hw > s.hw:
		s.hw = hw
		s.popMarks()
	case s.opt.Bugs.HWGoesBack && hw < s.hw:
		s.lowerHW(hw)
	}
	if leaderReady != s.ready {
		s.ready = leaderReady
		s.wakeAll = true // whoever waits for the log's end, or asked a leader
	}
	s.mu.Unlock()
	s.wake()
}

// noteEnd tells that p ends at end as of index.
func (s *Set) noteEnd(index uint64, p *part, end int64) {
	if index <= s.hw || s.opt.Bugs.HWFromApplied {
		if s.raiseHW(p, end) {
			s.touch(p)
		}
		return
	}
	if n := s.marks.len(); n > 0 {
		if m := s.marks.at(n - 1); m.index == index && m.p == p {
			m.end = end
			return
		}
	}
	s.marks.push(hwMark{index, p, end})
}

// popMarks takes over all marks up to the bound.
func (s *Set) popMarks() {
	for s.marks.len() > 0 && s.marks.at(0).index <= s.hw {
		m := *s.marks.at(0)
		s.marks.pop()
		if !m.p.gone && s.raiseHW(m.p, m.end) {
			s.touch(m.p)
		}
	}
}

func sortMarks(marks []hwMark) {
	slices.SortFunc(marks, func(a, b hwMark) int {
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.end, b.end))
	})
}

// raiseHW moves a partition's high watermark up; it never goes back.
func (s *Set) raiseHW(p *part, to int64) bool {
	if to <= p.hw {
		return false
	}
	p.hw = to
	return true
}

// lowerHW is a planted bug: it believes a bound that went back.
func (s *Set) lowerHW(hw uint64) {
	s.hw = hw
	for _, p := range s.hot {
		p.hw = hwOf(p.state, hw)
	}
	s.rebuildMarks()
}

// hwOf computes a partition's high watermark from the rows.
func hwOf(st *state, hw uint64) int64 {
	n := st.tail.findIndexAfter(hw)
	if n > 0 {
		return st.tail.at(n-1).Last + 1
	}
	if st.tail.rows == 0 {
		return st.logEnd
	}
	return max(st.logStart, st.tieredEnd)
}
