package transport

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// takeMessages and takeBytes bound what is taken off a queue for one
	// vectored write: enough to share a system call, and not so much that the
	// queue's bound means little.
	takeMessages = 512
	takeBytes    = 4 << 20
)

// peer is another replica: two lanes to it, and its counters. It lives from
// the first message in either direction until Forget or Close.
type peer struct {
	replica uint64
	count   peerCounters
	lanes   [2]*lane
	cancel  context.CancelFunc
}

// newPeer is called with t.mu held. Lanes start their goroutines here, and
// their connections with their first messages.
func newPeer(t *Transport, replica uint64) *peer {
	p := &peer{replica: replica}
	ctx, cancel := context.WithCancel(t.ctx)
	p.cancel = cancel
	p.lanes[laneBulk] = newLane(t, p, ctx, laneBulk, t.o.BulkMessages, t.o.BulkBytes, bulkTimeout)
	p.lanes[laneUrgent] = newLane(t, p, ctx, laneUrgent, t.o.UrgentMessages, t.o.UrgentBytes, urgentTimeout)
	for _, l := range p.lanes {
		t.start(l.run)
	}
	return p
}

func (p *peer) stop() { p.cancel() }

// lane is one direction of one connection: a bounded queue, and the goroutine
// (run) that owns the connection and writes what it finds in the queue.
type lane struct {
	t       *Transport
	p       *peer
	kind    laneKind
	ctx     context.Context
	timeout time.Duration
	wake    chan struct{}

	mu          sync.Mutex
	queue       []*Message // waiting, in order
	bytes       int        // of queue
	maxMessages int
	maxBytes    int
	// down: the peer did not answer and its next try is not due yet. What
	// comes meanwhile is dropped, so that Raft hears of it.
	down   bool
	closed bool

	// The rest belongs to run.
	conn   net.Conn
	dead   *atomic.Bool // set by conn's watcher
	writer frameWriter
	reason string // of the last failure, to log a change and not each try
}

func newLane(t *Transport, p *peer, ctx context.Context, kind laneKind, messages, bytes int, timeout time.Duration) *lane {
	return &lane{t: t, p: p, ctx: ctx, kind: kind, timeout: timeout, wake: make(chan struct{}, 1),
		maxMessages: messages, maxBytes: bytes}
}

// messageBytes is what a message weighs in a queue.
func messageBytes(m *Message) int {
	n := 128
	for _, e := range m.Raft.GetEntries() {
		n += 32 + len(e.GetData())
	}
	n += len(m.Raft.GetContext())
	for _, p := range m.Payloads {
		if p != nil {
			n += p.Len()
		}
	}
	return n
}

func releasePayloads(m *Message) {
	for i, p := range m.Payloads {
		if p != nil {
			m.Payloads[i] = nil
			p.Release()
		}
	}
}

// enqueue never blocks.
func (l *lane) enqueue(m *Message) {
	n := messageBytes(m)
	l.mu.Lock()
	full := len(l.queue) > 0 && (len(l.queue) >= l.maxMessages || l.bytes+n > l.maxBytes)
	if l.closed || l.down || full {
		l.mu.Unlock()
		l.drop(m)
		return
	}
	l.queue = append(l.queue, m)
	l.bytes += n
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *lane) queued() (messages, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue), l.bytes
}

// drop gives a message up, and says so.
func (l *lane) drop(m *Message) {
	releasePayloads(m)
	l.p.count.drops.Add(1)
	l.t.notify.unreachable(m.Shard, m.To)
}

// take moves the queue's front to batch.
func (l *lane) take(batch []*Message) []*Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken, k := 0, 0
	for k < len(l.queue) && k < takeMessages && (k == 0 || taken < takeBytes) {
		taken += messageBytes(l.queue[k])
		k++
	}
	batch = append(batch, l.queue[:k]...)
	l.bytes -= taken
	// What is left moves to the front; it is short unless the peer is slow.
	rest := copy(l.queue, l.queue[k:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	return batch
}

// flush drops all that waits.
func (l *lane) flush() {
	l.mu.Lock()
	queue := l.queue
	l.queue, l.bytes = nil, 0
	l.mu.Unlock()
	for _, m := range queue {
		l.drop(m)
	}
}

func (l *lane) setDown(down bool) {
	l.mu.Lock()
	l.down = down
	l.mu.Unlock()
}

// run owns the lane's connection until the peer is stopped.
func (l *lane) run() {
	defer l.end()
	var batch []*Message
	backoff := backoffMin
	for {
		if n, _ := l.queued(); n == 0 {
			select {
			case <-l.ctx.Done():
				return
			case <-l.wake:
			}
			continue
		}
		if !l.connected() {
			if err := l.connect(); err != nil {
				if !l.backOff(err, backoff) {
					return
				}
				backoff = min(2*backoff, backoffMax)
				continue
			}
			backoff = backoffMin
		}
		if l.ctx.Err() != nil {
			return
		}
		batch = l.take(batch[:0])
		if err := l.write(batch); err != nil {
			l.disconnect(err)
		}
		clear(batch)
	}
}

func (l *lane) end() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.flush()
	if l.conn != nil {
		l.conn.Close()
	}
}

func (l *lane) connected() bool {
	if l.conn != nil && l.dead.Load() {
		l.disconnect(fmt.Errorf("closed by the peer"))
	}
	return l.conn != nil
}

func (l *lane) connect() error {
	conn, err := l.t.dial(l.ctx, l.p.replica, l.kind)
	if err != nil {
		l.p.count.failures.Add(1)
		return err
	}
	l.p.count.connects.Add(1)
	l.reason = ""
	l.t.log.Info("connected", "peer", l.p.replica, "lane", l.kind.String(), "address", conn.RemoteAddr().String())
	dead := new(atomic.Bool)
	l.conn, l.dead = conn, dead
	// Nothing ever comes back on a lane, so a read ends only when the
	// connection does. Closing it also ends a write that is under way.
	stop := context.AfterFunc(l.ctx, func() { conn.Close() })
	l.t.start(func() {
		defer stop()
		var b [1]byte
		_, _ = conn.Read(b[:])
		dead.Store(true)
		conn.Close()
	})
	return nil
}

// disconnect closes a broken connection; its watcher ends by that.
func (l *lane) disconnect(err error) {
	if l.conn == nil {
		return
	}
	l.conn.Close()
	l.conn = nil
	if l.ctx.Err() == nil {
		l.t.log.Warn("connection lost", "peer", l.p.replica, "lane", l.kind.String(), "reason", err)
	}
}

// backOff drops what waits, and what comes, until the next try is due. It
// returns false when the lane was stopped meanwhile.
func (l *lane) backOff(err error, d time.Duration) bool {
	if l.ctx.Err() != nil {
		return false
	}
	if reason := err.Error(); reason != l.reason {
		l.reason = reason
		l.t.log.Warn("cannot connect", "peer", l.p.replica, "lane", l.kind.String(), "reason", reason)
	}
	l.setDown(true)
	l.flush()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.ctx.Done():
		return false
	case <-timer.C:
	}
	l.setDown(false)
	return true
}

// write sends a batch. On an error the connection is of no more use, and what
// may not have arrived is reported as lost.
func (l *lane) write(batch []*Message) error {
	w := &l.writer
	w.begin(l.conn, l.timeout)
	var err error
	sent := 0
	for _, m := range batch {
		if err = w.add(m); err != nil && !w.broken {
			// The message's own fault: the stream is where it was.
			l.t.log.Error("message not sent", "peer", l.p.replica, "shard", m.Shard, "type", m.Raft.GetType().String(), "reason", err)
			l.drop(m)
			err = nil
			continue
		}
		if err != nil {
			break
		}
		sent++
	}
	if err == nil {
		err = w.flush()
	}
	l.p.count.bytesOut.Add(uint64(w.end()))
	if err != nil {
		for _, m := range batch {
			l.drop(m)
		}
		return err
	}
	l.p.count.framesOut.Add(uint64(sent))
	return nil
}
