package coordinator

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"thermocline/ingest/group"
	"thermocline/metadata"
	"thermocline/wal/shard"
)

// state is where a slot is in its life; the package comment draws it.
type state uint8

const (
	following state = iota
	loading
	serving
	paused
	damaged
	stopped
)

func (s state) led() bool { return s == loading || s == serving || s == paused || s == damaged }

// refusal is why a slot in that state takes no calls, or nil.
func (s state) refusal() *kerr.Error {
	switch s {
	case loading, serving:
		return nil
	case paused:
		return kerr.CoordinatorLoadInProgress
	case damaged:
		return kerr.CoordinatorNotAvailable
	}
	return kerr.NotCoordinator
}

// Why a slot stops serving.
var (
	errStopped = errors.New("coordinator: stopped")
	errLost    = errors.New("coordinator: the shard is not led here any more")
	errDamaged = errors.New("coordinator: the slot's records cannot be read")
	errWrite   = errors.New("coordinator: a write failed")
)

// slot runs one slot's coordinator while its shard is led here: one goroutine,
// which owns everything but what mu guards.
type slot struct {
	r       *Runtime
	number  uint32
	shard   metadata.ShardID
	replica Replica
	log     *slog.Logger

	wake chan struct{} // has an element when there is something new
	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex
	state   state
	in      inbox
	waiting int // calls that wait for a confirmation

	lastRound uint64 // of the goroutine: numbers its ReadIndex calls
}

// inbox is what has come since the goroutine looked last.
type inbox struct {
	calls     []group.Call
	completed []completion
	confirmed []confirmation
	topics    bool
}

// completion is a proposal's answer: of the writes from first on.
type completion struct {
	first    uint64
	bytes    int
	outcomes []shard.Outcome
}

// confirmation is the answer to a ReadIndex.
type confirmation struct {
	round uint64
	err   error
}

func newSlot(r *Runtime, number uint32, id metadata.ShardID, replica Replica) *slot {
	return &slot{
		r: r, number: number, shard: id, replica: replica,
		log:  r.o.Logger.With("shard", id, "slot", number),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
}

func (s *slot) look() (state, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, len(s.in.calls) + s.waiting
}

// submit queues a call.
func (s *slot) submit(c group.Call) *kerr.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.state.refusal(); err != nil {
		return err
	}
	if len(s.in.calls)+s.waiting >= QueueMax {
		return kerr.CoordinatorLoadInProgress
	}
	s.in.calls = append(s.in.calls, c)
	s.nudge()
	return nil
}

// note puts something into the inbox.
func (s *slot) note(fn func(*inbox)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn(&s.in)
	s.nudge()
}

func (s *slot) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run is the slot's goroutine.
func (s *slot) run() {
	defer close(s.done)
	defer s.enter(stopped)
	defer s.replica.Subscribe(func(shard.Leadership) { s.nudge() })()
	pause := pauseMin
	for {
		term, ok := s.awaitLeadership()
		if !ok {
			return
		}
		wrote, err := s.lead(term)
		if wrote {
			pause = pauseMin
		}
		if errors.Is(err, errStopped) || !s.rest(err, pause) {
			return
		}
		pause = min(2*pause, pauseMax)
	}
}

// enter changes the state. In one that takes no calls, those that wait are
// answered.
func (s *slot) enter(st state) {
	s.mu.Lock()
	s.state = st
	var calls []group.Call
	err := st.refusal()
	if err != nil {
		calls, s.in.calls, s.waiting = s.in.calls, nil, 0
	}
	s.mu.Unlock()
	answer(calls, err)
}

// answer answers calls that no coordinator has taken.
func answer(calls []group.Call, err *kerr.Error) {
	for i := range calls {
		calls[i].Reply(group.ErrorResponse(calls[i].Request, err))
	}
}

// awaitLeadership returns the term in which this broker leads; false: stopped.
func (s *slot) awaitLeadership() (uint64, bool) {
	for {
		if l := s.replica.Leadership(); l.Ready {
			return l.Term, true
		}
		select {
		case <-s.wake:
		case <-s.stop:
			return 0, false
		}
	}
}

// leads tells whether this broker has led since term began.
func (s *slot) leads(term uint64) bool {
	l := s.replica.Leadership()
	return l.Ready && l.Term == term
}

// lead loads and serves until it cannot go on. wrote tells that a write
// succeeded, or that none was needed.
func (s *slot) lead(term uint64) (wrote bool, err error) {
	s.enter(loading)
	v, err := s.load(term)
	if err == nil {
		s.r.count.loads.Add(1)
		s.enter(serving)
		err = v.serve()
		wrote = v.written > 0
	}
	switch {
	case errors.Is(err, errWrite) && s.leads(term):
		s.r.count.writeFailures.Add(1)
		s.log.Warn("a coordinator's write failed; it will be loaded anew", "error", err)
	case errors.Is(err, errDamaged):
		s.r.count.damaged.Add(1)
		s.log.Error("a coordinator slot cannot be loaded: its groups are out of service", "error", err)
	}
	if v == nil {
		return false, err
	}
	v.end()
	s.enter(after(err))
	if !errors.Is(err, errStopped) && !s.settle(v) {
		err = errStopped
	}
	return wrote, err
}

// after is the state of a slot whose coordinator has ended with err.
func after(err error) state {
	switch {
	case errors.Is(err, errStopped):
		return stopped
	case errors.Is(err, errLost):
		return following
	case errors.Is(err, errDamaged):
		return damaged
	}
	return paused
}

// rest passes the time between two attempts; false: stopped. Calls are refused
// meanwhile.
func (s *slot) rest(err error, pause time.Duration) bool {
	st := after(err)
	s.enter(st)
	switch st {
	case following:
		return true
	case damaged:
		pause = pauseMax
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	for {
		if !s.replica.Leadership().Ready {
			s.enter(following)
			return true
		}
		select {
		case <-t.C:
			return true
		case <-s.wake:
		case <-s.stop:
			return false
		}
	}
}

// settle waits until the shard has answered every proposal of a coordinator
// that was unloaded; false: stopped.
func (s *slot) settle(v *service) bool {
	for {
		s.mu.Lock()
		v.outstanding -= len(s.in.completed)
		s.in.completed = nil
		s.mu.Unlock()
		if v.outstanding == 0 {
			return true
		}
		select {
		case <-s.wake:
		case <-s.stop:
			return false
		}
	}
}

// confirm asks a quorum whether this broker still leads; the answer comes to
// the inbox.
func (s *slot) confirm(round uint64) {
	s.replica.ReadIndex(func(err error) {
		s.note(func(in *inbox) { in.confirmed = append(in.confirmed, confirmation{round, err}) })
	})
}

// load reads the slot's records into a new coordinator.
func (s *slot) load(term uint64) (*service, error) {
	v := &service{slot: s, term: term, anchor: s.r.o.Now()}
	if err := v.awaitConfirmation(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.in.topics = false
	s.mu.Unlock()
	v.settings = s.r.o.SettingsVersion()
	v.m = s.r.o.New(s.r.o.Settings(), s.r.topics.Load())
	view := s.replica.State().Slot(s.number)
	v.base = view.Number
	n := 0
	for key, value := range view.All() {
		if err := v.m.Load(key, value); err != nil {
			return nil, fmt.Errorf("%w: %w", errDamaged, err)
		}
		if n++; n%1024 == 0 {
			if err := v.goOn(); err != nil {
				return nil, err
			}
		}
	}
	v.m.Loaded(v.now())
	return v, nil
}
