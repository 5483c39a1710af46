package coordinator

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/group"
	"thermocline/ingest/partition"
	"thermocline/wal/shard"
)

// service is one coordinator from its loading to its end, within one term.
type service struct {
	*slot
	term uint64
	m    Machine
	// settings is the version of those that the coordinator has.
	settings int64
	// anchor is when it began. Its clock goes on from there without jumps: a
	// clock that is set must not end every session.
	anchor time.Time

	// base is the slot's number before the coordinator's first write; write n
	// follows the slot's number base+n-1.
	base          uint64
	made, written uint64
	// pending are writes that the shard has not taken yet, and stalled is when
	// it last began to refuse them.
	pending []*partition.CoordinatorWrite
	stalled time.Time
	// outstanding proposals are not answered yet; bytes is what they hold.
	outstanding, bytes int

	// reads wait for the next confirmation of leadership, inRound for the one
	// under way, which has the number round.
	reads, inRound []group.Call
	round          uint64
	asking         bool
	shown          int // what submit was told of them
}

// now is the coordinator's clock, in milliseconds.
func (v *service) now() int64 {
	return v.anchor.UnixMilli() + v.r.o.Now().Sub(v.anchor).Milliseconds()
}

// goOn is why the coordinator cannot go on, or nil.
func (v *service) goOn() error {
	select {
	case <-v.stop:
		return errStopped
	default:
	}
	if !v.leads(v.term) {
		return errLost
	}
	return nil
}

// awaitConfirmation makes the confirmation that loading begins with.
func (v *service) awaitConfirmation() error {
	v.slot.lastRound++
	v.confirm(v.slot.lastRound)
	for {
		v.mu.Lock()
		got := v.in.confirmed
		v.in.confirmed = nil
		v.mu.Unlock()
		for _, c := range got {
			switch {
			case c.round != v.slot.lastRound:
			case c.err != nil:
				return fmt.Errorf("confirming leadership: %w", c.err)
			default:
				return v.goOn()
			}
		}
		if err := v.goOn(); err != nil {
			return err
		}
		select {
		case <-v.wake:
		case <-v.stop:
			return errStopped
		}
	}
}

// serve works until the coordinator cannot go on.
func (v *service) serve() error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if err := v.goOn(); err != nil {
			return err
		}
		more, err := v.pass()
		if err != nil {
			return err
		}
		if more {
			continue
		}
		var due <-chan time.Time
		if wait, ok := v.wait(); ok {
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-v.wake:
		case <-due:
		case <-v.stop:
		}
	}
}

// wait is how long nothing is to be done if nothing comes.
func (v *service) wait() (time.Duration, bool) {
	if len(v.pending) > 0 {
		return stallRetry, true
	}
	at, ok := v.m.Deadline()
	if !ok || v.blocked() {
		return 0, false
	}
	return max(tickMin, time.Duration(at-v.now())*time.Millisecond), true
}

// blocked: so much is on its way that nothing may be added.
func (v *service) blocked() bool {
	return len(v.pending) > 0 || v.bytes > inflightBytes || v.made-v.written > inflightWrites
}

// pass works on what has come: what makes room comes first. more tells that
// calls were left.
func (v *service) pass() (more bool, err error) {
	if err := v.complete(); err != nil {
		return false, err
	}
	if err := v.flush(); err != nil || v.blocked() {
		return false, err
	}
	in, more := v.take()
	v.configure()
	if in.topics {
		v.m.SetTopics(v.now(), v.r.topics.Load())
	}
	for _, c := range in.confirmed {
		v.confirmed(c)
	}
	for _, c := range in.calls {
		if readsOnly(c.Request) {
			v.reads = append(v.reads, c)
		} else {
			v.m.Handle(v.now(), c)
		}
	}
	v.ask()
	v.tick(more)
	v.showWaiting()
	return more, v.flush()
}

// configure brings the coordinator's settings up to date. Nobody is woken for
// them: they hold for what comes.
func (v *service) configure() {
	if version := v.r.o.SettingsVersion(); version != v.settings {
		v.settings = version
		v.m.Configure(v.r.o.Settings())
	}
}

// showWaiting tells submit how many calls are held here.
func (v *service) showWaiting() {
	if n := len(v.reads) + len(v.inRound); n != v.shown {
		v.mu.Lock()
		v.waiting, v.shown = n, n
		v.mu.Unlock()
	}
}

// tick lets timers fire that are due. While calls wait they come first, since
// one of them may be the heartbeat that a timer waits for; but not for ever.
func (v *service) tick(more bool) {
	now := v.now()
	if at, ok := v.m.Deadline(); ok && (at <= now && !more || at <= now-tickLate) {
		v.m.Tick(now)
	}
}

// take empties the inbox of all but outcomes.
func (v *service) take() (in inbox, more bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	in.confirmed, v.in.confirmed = v.in.confirmed, nil
	in.topics, v.in.topics = v.in.topics, false
	n := min(len(v.in.calls), callsPerPass)
	in.calls = v.in.calls[:n:n]
	if v.in.calls = v.in.calls[n:]; len(v.in.calls) == 0 {
		v.in.calls = nil
	}
	return in, len(v.in.calls) > 0
}

// readsOnly tells which requests an old leader could answer wrongly: what they
// say follows from the records, and no write of theirs would fail.
// DeleteGroups is one: for a group that is not there it writes nothing.
func readsOnly(r kmsg.Request) bool {
	switch r.(type) {
	case *kmsg.OffsetFetchRequest, *kmsg.DescribeGroupsRequest, *kmsg.ListGroupsRequest,
		*kmsg.ConsumerGroupDescribeRequest, *kmsg.DeleteGroupsRequest:
		return true
	}
	return false
}

// ask begins a confirmation for the reads that wait, unless one is under way.
func (v *service) ask() {
	if v.asking || len(v.reads) == 0 {
		return
	}
	v.inRound, v.reads, v.asking = v.reads, nil, true
	v.slot.lastRound++
	v.round = v.slot.lastRound
	v.confirm(v.round)
}

// confirmed hands the reads of a round to the coordinator.
func (v *service) confirmed(c confirmation) {
	if !v.asking || c.round != v.round {
		return
	}
	calls := v.inRound
	v.inRound, v.asking = nil, false
	switch {
	case c.err == nil:
		for i := range calls {
			v.m.Handle(v.now(), calls[i])
		}
	case errors.Is(c.err, shard.ErrBusy):
		answer(calls, kerr.CoordinatorLoadInProgress)
	default:
		answer(calls, kerr.NotCoordinator)
	}
}

// complete takes the outcomes of proposals. After the first that failed, the
// others only count as answered.
func (v *service) complete() error {
	v.mu.Lock()
	completed := v.in.completed
	v.in.completed = nil
	v.mu.Unlock()
	var failed error
	before := v.written
	for _, c := range completed {
		v.outstanding--
		v.bytes -= c.bytes
		for i, o := range c.outcomes {
			if failed == nil {
				failed = v.outcome(c.first+uint64(i), o)
			}
		}
	}
	if v.written > before {
		v.m.Written(v.written)
	}
	return failed
}

// outcome takes one write's outcome. They come in order.
func (v *service) outcome(n uint64, o shard.Outcome) error {
	switch {
	case o.Err != nil:
		return fmt.Errorf("%w: write %d: %w", errWrite, v.base+n, o.Err)
	case n != v.written+1 || o.Result != v.base+n:
		return fmt.Errorf("%w: expected write %d next, with number %d, found write %d with number %v", errWrite, v.written+1, v.base+n, n, o.Result)
	}
	v.written = n
	return nil
}

// flush proposes the writes that have been made.
func (v *service) flush() error {
	for _, w := range v.m.Writes() {
		v.made++
		if w.Number != v.made {
			return fmt.Errorf("%w: expected the coordinator's write %d, found %d", errWrite, v.made, w.Number)
		}
		v.pending = append(v.pending, v.command(w))
	}
	for len(v.pending) > 0 {
		taken, err := v.propose()
		if err != nil || !taken {
			return err
		}
	}
	v.stalled = time.Time{}
	return nil
}

func (v *service) command(w group.Write) *partition.CoordinatorWrite {
	c := &partition.CoordinatorWrite{Slot: v.number, After: v.base + w.Number - 1, Records: make([]partition.CoordinatorRecord, len(w.Records))}
	for i, r := range w.Records {
		c.Records[i] = partition.CoordinatorRecord(r)
	}
	return c
}

// propose offers the shard as many writes as go into one proposal.
func (v *service) propose() (taken bool, err error) {
	set := v.replica.State()
	p := &shard.Proposal{Acks: shard.AcksAll, Class: shard.ClassClient}
	for _, c := range v.pending {
		size := set.Size(c)
		if len(p.Commands) > 0 && p.Bytes+size > proposalBytes {
			break
		}
		p.Commands = append(p.Commands, c)
		p.Bytes += size
	}
	c := completion{first: v.made - uint64(len(v.pending)) + 1, bytes: p.Bytes}
	p.Done = func(outcomes []shard.Outcome) {
		c.outcomes = outcomes
		v.note(func(in *inbox) { in.completed = append(in.completed, c) })
	}
	if !v.replica.Propose(p) {
		return false, v.refused(v.replica.Intake(shard.ClassClient))
	}
	n := len(p.Commands)
	clear(v.pending[:n])
	if v.pending = v.pending[n:]; len(v.pending) == 0 {
		v.pending = nil
	}
	v.outstanding++
	v.bytes += p.Bytes
	return true, nil
}

// refused: a shard without room is asked again for a while.
func (v *service) refused(reason error) error {
	now := v.r.o.Now()
	if v.stalled.IsZero() {
		v.stalled = now
	}
	if room := errors.Is(reason, shard.ErrBusy) || errors.Is(reason, shard.ErrLogFull); room && now.Sub(v.stalled) < stallMax {
		return nil
	}
	return fmt.Errorf("%w: write %d was not taken: %w", errWrite, v.base+v.made-uint64(len(v.pending))+1, reason)
}

// end unloads the coordinator: everyone who waits is answered.
func (v *service) end() {
	v.m.Unload(kerr.NotCoordinator)
	answer(v.inRound, kerr.NotCoordinator)
	answer(v.reads, kerr.NotCoordinator)
	v.inRound, v.reads = nil, nil
}
