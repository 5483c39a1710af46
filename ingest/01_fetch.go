package ingest

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/partition"
	"thermocline/metadata"
)

const fetchKey = 1

// Fetch v4-18.
//
// v5 adds the log start, v7 sessions (KIP-227), v9 the leader epoch check, v10
// zstd, v11 the rack (KIP-392: from here on followers serve), v12 diverging
// epochs and the current leader, v13 topic ids in place of names, v15 moves
// the replica's id into a tag, v16 leader endpoints (KIP-951).
//
// A fetch looks at its partitions (fetch_plan.go), waits until there is
// enough, loads the stored bytes and is encoded by hand (fetch_encode.go).
func fetchAPI() api {
	h, n := serve(kmsg.NewPtrFetchRequest, (*Server).handleFetch)
	return api{key: fetchKey, name: "Fetch", min: 4, max: 18, handle: h, newRequest: n}
}

// Versions from which a fetch knows of these.
const (
	sessionFetch  = 7
	zstdFetch     = 10
	followerFetch = 11
	endpointFetch = 16
)

// fetchOp is one fetch under way, on a goroutine of its own.
type fetchOp struct {
	srv         *Server
	r           *request
	req         *kmsg.FetchRequest
	ctx         context.Context
	session     *fetchSession // nil without one; its turn is held
	incremental bool
	parts       []*fetchPart
	start       int
	maxBytes    int
	deadline    time.Time
	wait        patience      // for partitions created just now
	wake        chan struct{} // a cold read is done

	// What the last look has found.
	results   []*fetched
	planned   int  // bytes of results, those that cold reads have brought included
	urgent    bool // an error, or something else that the client must know at once
	coldUnder int  // cold reads under way
	coldShort bool // a cold read could not be started
	unwatched int  // partitions that cannot be subscribed to
	firstData int  // position of the first partition with data, -1

	cold   map[*fetchPart]*coldRead
	views  []payloadHold
	taken  int64 // of Server.fetchBytes
	places *placement
}

func (s *Server) handleFetch(r *request, req *kmsg.FetchRequest) {
	op := &fetchOp{srv: s, r: r, req: req, ctx: r.conn.ctx, wake: make(chan struct{}, 1), wait: patience{most: fetchCreationWait}}
	op.deadline = time.Now().Add(min(max(time.Duration(req.MaxWaitMillis)*time.Millisecond, 0), maxFetchWait))
	op.maxBytes = min(max(int(req.MaxBytes), 0), s.cfg.FetchMaxBytes)
	r.conn.goAsync(r, op.run)
}

func (op *fetchOp) run() {
	if err := op.begin(); err != nil {
		op.r.failed = true
		op.reply(&fetchAnswer{err: code(err)})
		return
	}
	op.await()
	op.load()
	op.reply(op.answer())
}

// begin finds or makes the session, and the list of partitions.
func (op *fetchOp) begin() error {
	s, req := op.srv, op.req
	op.parts = fetchParts(req)
	if req.Version < sessionFetch {
		req.SessionID, req.SessionEpoch = 0, -1
	}
	now := s.now()
	if req.SessionEpoch > 0 {
		session, err := s.sessions.use(op.ctx, req.SessionID, now)
		if err != nil {
			return err
		}
		if err := session.continueWith(req, op.parts); err != nil {
			s.sessions.done(session)
			return err
		}
		s.sessions.resize(session)
		op.session, op.incremental = session, true
		op.parts, op.start = session.order, session.start
		return nil
	}
	if req.SessionID != 0 {
		s.sessions.close(req.SessionID)
	}
	if req.SessionEpoch < -1 {
		return kerr.InvalidFetchSessionEpoch
	}
	if req.SessionEpoch == 0 {
		if op.session = s.sessions.open(op.parts, req.Version >= firstFetchIDs, now); op.session != nil {
			op.parts = op.session.order
		}
	}
	if n := len(op.parts); n > 0 && op.session == nil {
		op.start = int(op.r.conn.fetchTurn.Load() % uint32(n))
	}
	return nil
}

// await looks until there is enough, something urgent, or no time left.
func (op *fetchOp) await() {
	if w := op.watch(); w != nil {
		if op.session.quiet && !op.session.fired() {
			op.firstData = -1
			if !op.enough() {
				op.waitOn(w, false)
			}
			return
		}
		op.waitOn(w, true)
		return
	}
	op.look()
	if op.enough() {
		return
	}
	w := partition.NewWaiter()
	defer w.Close()
	if op.subscribe(w) {
		op.waitOn(w, true) // with a look, since the subscription began after the last one
	}
}

// watch returns the waiter of a session, subscribed to all its partitions; nil
// without a session, or when a partition cannot be watched.
func (op *fetchOp) watch() *partition.Waiter {
	s := op.session
	if s == nil {
		return nil
	}
	if !s.watched {
		s.unwatch()
		s.waiter = partition.NewWaiter()
		if s.watched = op.subscribe(s.waiter) && op.unwatched == 0; !s.watched {
			s.unwatch()
			return nil
		}
	}
	return s.waiter
}

// waitOn looks each time that w or a cold read wakes it.
func (op *fetchOp) waitOn(w *partition.Waiter, look bool) {
	timer := time.NewTimer(time.Until(op.deadline))
	defer timer.Stop()
	grace := false
	for ; ; look = true {
		if look {
			w.Rearm()
			op.look()
			if op.enough() {
				return
			}
		}
		if op.coldUnder > 0 && !grace && (op.satisfied() || !time.Now().Before(op.deadline)) {
			grace = true
			timer.Reset(coldGrace)
		}
		select {
		case <-w.C():
		case <-op.wake:
		case <-timer.C:
			if grace || op.coldUnder == 0 {
				return
			}
		case <-op.ctx.Done():
			return
		}
	}
}

// satisfied tells whether the fetch could be answered now.
func (op *fetchOp) satisfied() bool {
	return op.urgent || len(op.parts) == 0 || op.planned >= int(op.req.MinBytes) || op.planned >= op.maxBytes && op.planned > 0
}

// enough tells whether there is nothing left to wait for.
func (op *fetchOp) enough() bool {
	return op.coldUnder == 0 && (op.satisfied() || !time.Now().Before(op.deadline))
}

func (op *fetchOp) signal() {
	select {
	case op.wake <- struct{}{}:
	default:
	}
}

// subscribe asks every replica concerned to wake this fetch; false when one
// has no room for it.
func (op *fetchOp) subscribe(w *partition.Waiter) bool {
	op.unwatched = 0
	for _, p := range op.parts {
		row, err := op.srv.topic(p.topic, p.topicID, op.req.Version >= firstFetchIDs)
		if err != nil {
			op.unwatched++
			continue
		}
		t, err := op.srv.locate(row, p.partition)
		if err != nil {
			op.unwatched++
		} else if !t.replica.State().Subscribe(w, t.key) {
			return false
		}
	}
	return true
}

// answer groups the results by topic and notes what the client is told.
func (op *fetchOp) answer() *fetchAnswer {
	a := &fetchAnswer{}
	at := map[partKey]int{}
	for _, f := range op.results {
		if op.session != nil {
			f.part.told, f.part.toldHW, f.part.toldLSO, f.part.toldFrom = f.err == 0, f.hw, f.lso, f.logStart
		}
		if op.incremental && !f.news {
			continue
		}
		k := partKey{topic: f.part.topic, topicID: f.part.topicID}
		i, ok := at[k]
		if !ok {
			i = len(a.topics)
			at[k] = i
			a.topics = append(a.topics, fetchAnswerTopic{name: f.part.topic, id: f.part.topicID})
		}
		a.topics[i].partitions = append(a.topics[i].partitions, f)
		op.r.failed = op.r.failed || f.err != 0
		op.endpoint(a, f)
	}
	if op.session != nil {
		a.sessionID = op.session.id
		if op.firstData >= 0 {
			op.session.start = op.firstData + 1
		}
	} else if op.firstData >= 0 {
		op.r.conn.fetchTurn.Add(1)
	}
	return a
}

// endpoint adds the address of the leader that a partition's answer names.
func (op *fetchOp) endpoint(a *fetchAnswer, f *fetched) {
	if f.leader < 0 || op.req.Version < endpointFetch {
		return
	}
	for _, b := range a.brokers {
		if int32(b.ID) == f.leader {
			return
		}
	}
	if b, ok := op.srv.broker(f.leader); ok {
		a.brokers = append(a.brokers, b)
	}
}

// reply encodes and sends; what the answer holds is released once it has left.
func (op *fetchOp) reply(a *fetchAnswer) {
	s := op.srv
	a.throttle = int32(op.r.throttle.Milliseconds())
	head := s.pool.get(4 << 10)
	e := fetchEncoder{version: op.req.Version, flexible: op.req.IsFlexible()}
	e.dst = op.r.rawHeader((*head)[:0], e.flexible)
	e.encode(a)
	first, rest, size := e.buffers()
	*head = first
	s.stats.recordBytesOut.Add(int64(e.stored))
	if op.session != nil {
		s.sessions.done(op.session)
	}
	op.r.finishRaw(head, rest, size, op.release)
}

// release gives back payloads, cold reads and byte budget.
func (op *fetchOp) release() {
	for i := range op.views {
		op.views[i].view.Release()
	}
	for _, c := range op.cold {
		op.srv.dropCold(c)
	}
	op.srv.fetchBytes.give(op.taken)
	op.views, op.cold, op.taken = nil, nil, 0
}

// leaderOf fills in who leads, for KIP-951.
func (op *fetchOp) leaderOf(f *fetched, shard metadata.ShardID) {
	if op.places == nil {
		op.places = newPlacement(op.srv.cluster)
	}
	if leader, epoch, ok := op.srv.leaderHint(op.places, shard); ok && op.req.Version >= 12 {
		f.leader, f.leaderEpoch = leader, epoch
	}
}
