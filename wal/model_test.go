package wal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"thermocline/wal/vfs"
)

// model is what a log should hold: the tests' own reading of record.go, kept as
// plain as possible. Shards are immutable: a step replaces those it changes.
type model map[ShardID]*modelShard

type modelShard struct {
	hard HardState
	// surely is the commit index that a synced append stored: a later one from a
	// NoSync append may be lost.
	surely  uint64
	ptr     SnapshotPointer
	hasPtr  bool
	entries []Entry // contiguous; from ptr.Trimmed+1 when there is a pointer
	staged  []Entry
}

func (m *modelShard) first() uint64 {
	if len(m.entries) > 0 {
		return m.entries[0].Index
	}
	return m.last() + 1
}

func (m *modelShard) last() uint64 {
	if n := len(m.entries); n > 0 {
		return m.entries[n-1].Index
	}
	return m.ptr.Index
}

// step is one append and whether its snapshot pointer replaces the log.
type step struct {
	a       *Append
	install bool
}

// after returns the model with one more append.
func (m model) after(s step) model {
	m = maps.Clone(m)
	a := s.a
	if a.Remove {
		delete(m, a.Shard)
		return m
	}
	sh := &modelShard{}
	if was := m[a.Shard]; was != nil {
		*sh = *was
	}
	m[a.Shard] = sh
	if a.Staged {
		n := len(a.Entries)
		if len(sh.staged) > 0 && n > 0 && sh.staged[len(sh.staged)-1].Index+1 == a.Entries[0].Index {
			sh.staged = append(slices.Clip(sh.staged), a.Entries...)
		} else {
			sh.staged = a.Entries
		}
	}
	if a.Snapshot != nil {
		sh.point(*a.Snapshot, s.install)
	}
	if !a.Staged && len(a.Entries) > 0 {
		keep := a.Entries[0].Index - min(a.Entries[0].Index, sh.first())
		sh.entries = append(slices.Clip(sh.entries[:min(keep, uint64(len(sh.entries)))]), a.Entries...)
	}
	if a.Hard != nil {
		if !a.NoSync || a.Hard.Term != sh.hard.Term || a.Hard.Vote != sh.hard.Vote {
			sh.surely = a.Hard.Commit
		}
		sh.hard = *a.Hard
	}
	return m
}

func (m *modelShard) point(p SnapshotPointer, install bool) {
	if install {
		m.entries, m.staged = m.staged, nil
		if p.Trimmed == p.Index {
			m.entries = nil
		}
	} else if n := len(m.staged); n > 0 && m.staged[n-1].Index == p.Index {
		m.staged = nil
	}
	for len(m.entries) > 0 && m.entries[0].Index <= p.Trimmed {
		m.entries = m.entries[1:]
	}
	m.ptr, m.hasPtr = p, true
}

// differs says how a recovered log differs from the model, or nothing. Shards
// that hold nothing may be missing.
func (m model) differs(l *Log, got map[ShardID]*RecoveredShard) string {
	for id := range got {
		if m[id] == nil {
			return fmt.Sprintf("shard %d is there and should not be", id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m)) {
		want, r := m[id], got[id]
		if r == nil {
			r = &RecoveredShard{}
		}
		if d := want.differs(r); d != "" {
			return fmt.Sprintf("shard %d: %s", id, d)
		}
		for i := range r.Entries {
			e := &want.entries[i]
			p, err := l.ReadPayload(id, e.Index, e.Term, grab)
			if err != nil || !bytes.Equal(p, e.Payload) {
				return fmt.Sprintf("shard %d, index %d: payload of %d bytes, want %d (%v)", id, e.Index, len(p), len(e.Payload), err)
			}
		}
	}
	return ""
}

func (m *modelShard) differs(r *RecoveredShard) string {
	if r.Hard.Term != m.hard.Term || r.Hard.Vote != m.hard.Vote {
		return fmt.Sprintf("hard state %+v, want %+v", r.Hard, m.hard)
	}
	if lo, hi := m.surely, max(m.hard.Commit, m.ptr.Index); r.Hard.Commit < lo || r.Hard.Commit > hi {
		return fmt.Sprintf("commit %d, want %d to %d", r.Hard.Commit, lo, hi)
	}
	if r.Snapshot != m.ptr {
		return fmt.Sprintf("pointer %+v, want %+v", r.Snapshot, m.ptr)
	}
	if len(r.Entries) != len(m.entries) {
		return fmt.Sprintf("%d entries, want %d", len(r.Entries), len(m.entries))
	}
	for i, g := range r.Entries {
		w := &m.entries[i]
		if g.Index != w.Index || g.Term != w.Term || g.Type != w.Type || !bytes.Equal(g.Descriptor, w.Descriptor) ||
			int(g.PayloadLen) != len(w.Payload) || g.PayloadCRC != w.PayloadCRC {
			return fmt.Sprintf("entry %+v, want %d, term %d, %d bytes", g, w.Index, w.Term, len(w.Payload))
		}
	}
	return ""
}

// script makes random appends that keep the rules.
type script struct {
	rng *rand.Rand
	m   model // what the appends so far come to
	seq int
	// shards is how many shards are written; one more, the idle shard, is
	// written once.
	shards int
	// live bounds the entries a shard holds before it trims.
	live int
}

const idleShard ShardID = 99

func newScript(seed uint64) *script {
	return &script{rng: rand.New(rand.NewPCG(seed, 1)), m: model{}, shards: 3, live: 8}
}

// payload draws a payload with recognizable bytes; some are large enough for a
// piece of their own, some span blocks.
func (s *script) payload() string {
	s.seq++
	size := []int{0, 40, 400, 1200, 2500, 4500}[s.rng.IntN(6)]
	if size == 0 {
		return ""
	}
	return strings.Repeat(fmt.Sprintf("<%d>", s.seq), size/3+1)[:size]
}

func (s *script) entries(first, term uint64, n int) []Entry {
	var out []Entry
	for i := range n {
		e := entry(first+uint64(i), term, s.payload())
		if s.rng.IntN(8) == 0 {
			e.Type = uint8(1 + s.rng.IntN(2))
			e.Descriptor = bytes.Repeat([]byte{byte(s.seq)}, 200)
		}
		out = append(out, e)
	}
	return out
}

// group draws the steps of one Commit.
func (s *script) group() []step {
	if len(s.m) == 0 {
		return []step{s.take(step{a: &Append{
			Shard: idleShard, Entries: s.entries(1, 1, 3), Hard: &HardState{Term: 1, Vote: 5, Commit: 2},
			Snapshot: &SnapshotPointer{Index: 0, Term: 0, File: "idle.snap"},
		}, install: true})}
	}
	var out []step
	for range 1 + s.rng.IntN(4) {
		out = append(out, s.take(s.draw(ShardID(1+s.rng.IntN(s.shards)))))
	}
	return out
}

func (s *script) take(st step) step {
	s.m = s.m.after(st)
	return st
}

func (s *script) draw(id ShardID) step {
	sh := s.m[id]
	if sh == nil {
		if s.rng.IntN(2) == 0 { // a shard that begins with a snapshot
			return step{a: &Append{
				Shard: id, Hard: &HardState{Term: 1, Commit: 1},
				Snapshot: &SnapshotPointer{Index: 1, Term: 1, File: "first.snap", Trimmed: 1, TrimmedTerm: 1},
			}, install: true}
		}
		return step{a: &Append{Shard: id, Entries: s.entries(1, 1, 2), Hard: &HardState{Term: 1}}}
	}
	if len(sh.entries) > s.live {
		return s.trim(id, sh)
	}
	hard := sh.hard
	switch s.rng.IntN(20) {
	case 0: // a new term replaces part of the uncommitted end
		hard.Term, hard.Vote = hard.Term+1, uint64(s.rng.IntN(3))
		from := sh.last() + 1
		if lo := max(hard.Commit, sh.ptr.Index) + 1; lo < from {
			from = lo + s.rng.Uint64N(from-lo)
		}
		return step{a: &Append{Shard: id, Entries: s.entries(from, hard.Term, 1+s.rng.IntN(2)), Hard: &hard}}
	case 1: // a vote alone
		hard.Term, hard.Vote = hard.Term+1, 3
		return step{a: &Append{Shard: id, Hard: &hard}}
	case 2, 3, 4: // the commit index moves on; not synced
		hard.Commit = max(hard.Commit, sh.last()-min(sh.last(), s.rng.Uint64N(3)))
		return step{a: &Append{Shard: id, Hard: &hard, NoSync: true}}
	case 5:
		return s.trim(id, sh)
	case 6: // part of a snapshot stream
		first := sh.last() + 5
		if n := len(sh.staged); n > 0 && s.rng.IntN(4) > 0 {
			first = sh.staged[n-1].Index + 1
		}
		return step{a: &Append{Shard: id, Staged: true, Entries: s.entries(first, hard.Term, 1+s.rng.IntN(3))}}
	case 7:
		return s.install(id, sh)
	case 8:
		if s.rng.IntN(4) == 0 {
			return step{a: &Append{Shard: id, Remove: true}}
		}
	}
	return step{a: &Append{Shard: id, Entries: s.entries(sh.last()+1, max(hard.Term, 1), 1+s.rng.IntN(3))}}
}

// trim points to a snapshot of the shard's own, and trims up to it or less.
func (s *script) trim(id ShardID, sh *modelShard) step {
	n := len(sh.entries)
	if n < 2 {
		return step{a: &Append{Shard: id, Entries: s.entries(sh.last()+1, max(sh.hard.Term, 1), 1)}}
	}
	at := n/2 + s.rng.IntN(n-n/2)
	e := sh.entries[at]
	p := &SnapshotPointer{Index: e.Index, Term: e.Term, File: fmt.Sprintf("s%d-%d.snap", id, s.seq)}
	if p.Index < sh.ptr.Index {
		p.Index, p.Term = sh.ptr.Index, sh.ptr.Term
	}
	cut := sh.entries[s.rng.IntN(at+1)]
	p.Trimmed, p.TrimmedTerm = cut.Index, cut.Term
	if p.Trimmed > p.Index {
		p.Trimmed, p.TrimmedTerm = p.Index, p.Term
	}
	hard := sh.hard
	hard.Commit = max(hard.Commit, p.Index)
	return step{a: &Append{Shard: id, Snapshot: p, Hard: &hard}}
}

// install points to a received snapshot that the log does not reach.
func (s *script) install(id ShardID, sh *modelShard) step {
	hard := sh.hard
	p := &SnapshotPointer{File: fmt.Sprintf("r%d-%d.snap", id, s.seq)}
	if n := len(sh.staged); n > 0 && sh.staged[n-1].Index > sh.last() {
		first, last := sh.staged[0], sh.staged[n-1]
		p.Index, p.Term, p.Trimmed, p.TrimmedTerm = last.Index, last.Term, first.Index-1, first.Term
	} else {
		p.Index, p.Term = sh.last()+10, max(hard.Term, 1)
		p.Trimmed, p.TrimmedTerm = p.Index, p.Term
	}
	hard.Commit = max(hard.Commit, p.Index)
	a := &Append{Shard: id, Snapshot: p, Hard: &hard}
	if s.rng.IntN(2) == 0 { // entries right behind the snapshot, as Raft may hand them over
		a.Entries = s.entries(p.Index+1, max(hard.Term, 1), 1)
	}
	return step{a: a, install: true}
}

// history is the states of the model, one for each append submitted, and how
// many of them are acked: what a crash may leave is any state from the acked one
// on.
type history struct {
	states []model // states[k]: after k appends
	acked  int
}

// verify opens a log as a crash left it and compares it with the history. It
// opens it again after a second crash and must find the same: what recovery
// handed out is durable. It returns the matching state.
func (h *history) verify(m *vfs.Mem, seed uint64, o Options) (int, error) {
	l, got, err := Open(m, "wal", o)
	if err != nil {
		return 0, err
	}
	defer l.closeFiles()
	k, diff := h.match(l, got)
	if diff != "" {
		return 0, fmt.Errorf("no state from %d to %d: %s", h.acked, len(h.states)-1, diff)
	}
	again := m.Crash(seed + 1)
	l2, got2, err := Open(again, "wal", o)
	if err != nil {
		return 0, fmt.Errorf("second recovery: %w", err)
	}
	defer l2.closeFiles()
	if d := h.states[k].differs(l2, got2); d != "" {
		return 0, fmt.Errorf("second recovery: %s", d)
	}
	for id, r := range got {
		if got2[id] == nil || got2[id].Hard != r.Hard {
			return 0, fmt.Errorf("second recovery: shard %d: hard state %+v, was %+v", id, got2[id], r.Hard)
		}
	}
	return k, nil
}

// match finds the latest state that equals what was recovered.
func (h *history) match(l *Log, got map[ShardID]*RecoveredShard) (int, string) {
	diff := "no state"
	for k := len(h.states) - 1; k >= h.acked; k-- {
		if diff = h.states[k].differs(l, got); diff == "" {
			return k, ""
		}
	}
	return 0, diff
}

// play runs n groups of a script on a log and keeps the history. It stops at the
// first error that takes the log out of service and returns it.
func (h *history) play(l *Log, s *script, n int) error {
	for i := range n {
		steps := s.group()
		var appends []*Append
		for _, st := range steps {
			h.states = append(h.states, h.states[len(h.states)-1].after(st))
			at := len(h.states) - 1
			st.a.Done = func(err error) {
				// A NoSync append may be answered before an earlier one of another
				// shard: it is the states' order that counts, and its only effect is
				// a commit index that may be lost.
				if err == nil && !st.a.NoSync {
					h.acked = max(h.acked, at)
				}
			}
			appends = append(appends, st.a)
		}
		err := l.Commit(appends)
		if err == nil && i%7 == 3 {
			err = l.Idle()
		}
		if err == nil && i%2 == 0 {
			_, err = l.Maintain(8 << 10)
		}
		if err != nil {
			if errors.Is(err, ErrInvalid) || errors.Is(err, ErrFull) {
				return fmt.Errorf("the script broke a rule: %w", err)
			}
			return err
		}
	}
	return nil
}
