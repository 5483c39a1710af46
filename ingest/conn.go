package ingest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is one client connection: a reader and a writer goroutine, and up to
// maxAsync goroutines of requests that wait. The reader owns queue's sending
// end and closes it; the writer closes the socket.
type conn struct {
	srv       *Server
	nc        net.Conn
	in        *bufio.Reader
	remote    string
	principal Principal
	ctx       context.Context
	cancel    context.CancelFunc
	queue     chan *request
	async     chan struct{} // slots
	held      heldBytes
	// unanswered counts requests from their place in the queue to their answer.
	unanswered atomic.Int32
	bufs       net.Buffers  // the writer's scratch
	muted      atomic.Int64 // unix nanoseconds until which nothing is read
	failure    sync.Once
	// fetchTurn rotates the partitions of fetches without a session.
	fetchTurn atomic.Uint32
}

// heldBytes counts the bytes of answers that are finished and not written.
type heldBytes struct {
	mu   sync.Mutex
	n    int
	room chan struct{} // closed and replaced when n falls to the limit
}

func (h *heldBytes) add(n int) {
	h.mu.Lock()
	h.n += n
	if h.n <= maxHeldAnswer && h.room != nil {
		close(h.room)
		h.room = nil
	}
	h.mu.Unlock()
}

// wait returns once at most maxHeldAnswer bytes are held.
func (h *heldBytes) wait(ctx context.Context) error {
	for {
		h.mu.Lock()
		if h.n <= maxHeldAnswer {
			h.mu.Unlock()
			return nil
		}
		if h.room == nil {
			h.room = make(chan struct{})
		}
		room := h.room
		h.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func newConn(s *Server, nc net.Conn) *conn {
	ctx, cancel := context.WithCancel(s.ctx)
	return &conn{
		srv: s, nc: nc, in: bufio.NewReaderSize(nc, connBuffer), remote: nc.RemoteAddr().String(),
		principal: anonymous, ctx: ctx, cancel: cancel,
		queue: make(chan *request, maxPipelined), async: make(chan struct{}, maxAsync),
	}
}

// fail logs why the connection is closed, once, and makes both loops end.
func (c *conn) fail(err error) {
	c.failure.Do(func() {
		c.cancel()
		if quiet(err) {
			return
		}
		c.srv.stats.closedOnError.Add(1)
		c.srv.logLine("connection closed", "remote", c.remote, "error", err)
	})
}

// quiet tells whether an end is ordinary: the client went away, was idle, or
// the server closes.
func quiet(err error) bool {
	var ne net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, context.Canceled) ||
		errors.Is(err, errIdle) || errors.Is(err, ErrServerClosed) || errors.As(err, &ne) && !ne.Timeout()
}

var errIdle = errors.New("ingest: connection was idle")

// readLoop reads and dispatches requests until the connection ends.
func (c *conn) readLoop() {
	defer close(c.queue)
	for {
		r, err := c.next()
		if err != nil {
			c.fail(err)
			return
		}
		c.unanswered.Add(1)
		select {
		case c.queue <- r:
		case <-c.ctx.Done():
			r.frame.release()
			return
		}
		r.api.handle(c.srv, r)
		r.frame.release()
	}
}

// next reads one request, within every bound.
func (c *conn) next() (*request, error) {
	size, key, version, err := c.readPrefix()
	if err != nil {
		return nil, err
	}
	if err := c.pause(); err != nil {
		return nil, err
	}
	a := c.srv.api(key)
	if a == nil {
		return nil, fmt.Errorf("request: API key %d is not known", key)
	}
	r := &request{conn: c, api: a, version: version, principal: c.principal, size: size, done: make(chan struct{})}
	if a.key != apiVersionsKey && (version < a.served || version > a.max) {
		return nil, fmt.Errorf("request: %s version %d, expected %d to %d", a.name, version, a.served, a.max)
	}
	if !a.records && size > maxSmallFrame {
		return nil, fmt.Errorf("request: %s of %d bytes, expected at most %d", a.name, size, maxSmallFrame)
	}
	if r.frame, err = c.readBody(size, key, version, a.records); err != nil {
		return nil, err
	}
	r.received = c.srv.now()
	if err := c.parse(r); err != nil {
		r.frame.release()
		return nil, fmt.Errorf("request: %s version %d: %w", a.name, version, err)
	}
	return r, nil
}

// parse fills the request from its frame.
func (c *conn) parse(r *request) error {
	r.msg = r.api.newRequest()
	r.msg.SetVersion(r.version)
	if err := r.parseHeader((*r.frame.buf)[:r.size]); err != nil {
		return err
	}
	if r.version > r.api.max || r.version < r.api.min {
		return nil // ApiVersions only: the body's layout is not known
	}
	if r.api.records {
		if err := checkProduceShape(r.body, r.version); err != nil {
			return err
		}
	}
	return r.decode()
}

// pause waits while the connection is muted or holds too many answers.
func (c *conn) pause() error {
	if until := c.muted.Load(); until != 0 {
		if d := time.Until(time.Unix(0, until)); d > 0 {
			t := time.NewTimer(d)
			defer t.Stop()
			select {
			case <-t.C:
			case <-c.ctx.Done():
				return c.ctx.Err()
			}
		}
	}
	return c.held.wait(c.ctx)
}

// readPrefix waits for the next request and reads size, key and version.
func (c *conn) readPrefix() (size int, key, version int16, err error) {
	var b [8]byte
	if c.in.Buffered() < len(b) {
		if err := c.awaitRequest(); err != nil {
			return 0, 0, 0, err
		}
	}
	// The size is judged by itself: what is no request need not be waited for.
	if _, err := io.ReadFull(c.in, b[:4]); err != nil {
		return 0, 0, 0, fmt.Errorf("request size: %w", err)
	}
	size = int(int32(binary.BigEndian.Uint32(b[:])))
	if size < minFrame || size > c.srv.cfg.MaxRequestBytes {
		return 0, 0, 0, fmt.Errorf("request size: expected %d to %d, found %d", minFrame, c.srv.cfg.MaxRequestBytes, size)
	}
	if _, err := io.ReadFull(c.in, b[4:]); err != nil {
		return 0, 0, 0, fmt.Errorf("request prefix: %w", err)
	}
	return size, int16(binary.BigEndian.Uint16(b[4:])), int16(binary.BigEndian.Uint16(b[6:])), nil
}

// awaitRequest waits for the first byte of a request for at most the idle
// time, counted anew while earlier requests are unanswered; then the rest of
// the prefix has frameWait.
func (c *conn) awaitRequest() error {
	for {
		if err := c.deadline(c.srv.cfg.MaxIdle); err != nil {
			return err
		}
		_, err := c.in.Peek(1)
		if err == nil {
			return c.deadline(frameWait)
		}
		var ne net.Error
		if !errors.As(err, &ne) || !ne.Timeout() {
			return err
		}
		if c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		if c.unanswered.Load() == 0 {
			return errIdle
		}
	}
}

// deadline bounds the next reads; a connection that is being closed keeps its
// deadline in the past.
func (c *conn) deadline(d time.Duration) error {
	if err := c.nc.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	return c.ctx.Err()
}

// readBody takes byte budget, then reads the frame into a pooled buffer. The
// buffer begins with key and version as the frame does.
func (c *conn) readBody(size int, key, version int16, records bool) (*frame, error) {
	charge := int64(size)
	if !records {
		charge *= decodeFactor
	}
	charged, err := c.srv.requestBytes.take(c.ctx, charge)
	if err != nil {
		return nil, err
	}
	f := &frame{srv: c.srv, buf: c.srv.pool.get(size), charged: charged}
	f.refs.Store(1)
	b := *f.buf
	binary.BigEndian.PutUint16(b, uint16(key))
	binary.BigEndian.PutUint16(b[2:], uint16(version))
	if c.in.Buffered() < size-4 {
		err = c.deadline(frameWait + time.Duration(size/frameRate)*time.Second)
	}
	if err == nil {
		_, err = io.ReadFull(c.in, b[4:])
	}
	if err != nil {
		f.release()
		return nil, fmt.Errorf("request body of %d bytes: %w", size, err)
	}
	return f, nil
}

// goAsync runs fn on a goroutine of its own, when one of the connection's
// slots is free. The request's frame is released when the handler returns:
// fn may use decoded strings and numbers, but no bytes of the frame.
func (c *conn) goAsync(r *request, fn func()) {
	select {
	case c.async <- struct{}{}:
	case <-c.ctx.Done():
		r.finishAbort(c.ctx.Err())
		return
	}
	c.srv.wg.Go(func() {
		defer func() { <-c.async }()
		fn()
	})
}

// writeLoop sends answers in order until the queue is closed and empty, or the
// connection fails; then it closes the socket and disposes of what is left.
// Answers that are ready at the same time leave with one system call.
func (c *conn) writeLoop() {
	defer c.srv.forget(c)
	var broken bool
	var ready []*request
	var next *request // taken from the queue, and not ready when it was looked at
	for {
		if next == nil {
			var ok bool
			if next, ok = <-c.queue; !ok {
				break
			}
		}
		c.awaitAnswer(next)
		ready, next = c.gather(append(ready[:0], next))
		if !broken {
			if err := c.write(ready); err != nil {
				c.fail(err)
				broken = true
				c.nc.Close() // ends the reader; later requests are only disposed of
			}
		}
		for i, r := range ready {
			r.dispose()
			ready[i] = nil
			c.unanswered.Add(-1)
		}
	}
	c.cancel()
	c.nc.Close()
}

// awaitAnswer waits for a request's answer. When connections are cut, what is
// unanswered stays so.
func (c *conn) awaitAnswer(r *request) {
	select {
	case <-r.done:
	case <-c.srv.ctx.Done():
		r.finishAbort(ErrServerClosed)
		<-r.done
	}
}

// gather adds the answers that are ready without waiting, and returns the
// first one that is not.
func (c *conn) gather(ready []*request) ([]*request, *request) {
	for len(ready) < maxGathered {
		select {
		case r, ok := <-c.queue:
			if !ok {
				return ready, nil
			}
			select {
			case <-r.done:
				ready = append(ready, r)
			default:
				return ready, r
			}
		default:
			return ready, nil
		}
	}
	return ready, nil
}

// write sends answers, up to the first that closes the connection instead.
func (c *conn) write(ready []*request) error {
	bufs := c.bufs[:0]
	var aborted error
	size := 0
	for i, r := range ready {
		if r.abort != nil {
			ready, aborted = ready[:i], fmt.Errorf("%s: %w", r.api.name, r.abort)
			break
		}
		if r.lazy != nil {
			r.encode(r.lazy())
			c.held.add(len(*r.head))
		}
		if r.silent {
			continue
		}
		bufs = append(bufs, *r.head)
		bufs = append(bufs, r.rest...)
		size += len(*r.head) + r.restSize
		if r.throttle > 0 { // before the answer leaves, so that it holds for the next request
			c.muted.Store(time.Now().Add(r.throttle).UnixNano())
		}
	}
	c.bufs = bufs // keeps what has grown; WriteTo consumes the copy
	if size > 0 {
		err := c.nc.SetWriteDeadline(time.Now().Add(writeWait + time.Duration(size/writeRate)*time.Second))
		if err == nil && len(bufs) == 1 {
			_, err = c.nc.Write(bufs[0])
		} else if err == nil {
			_, err = bufs.WriteTo(c.nc)
		}
		if err != nil {
			return fmt.Errorf("answers of %d bytes: %w", size, err)
		}
	}
	for _, r := range ready {
		c.count(r)
	}
	return aborted
}

// count adds an answered request to the statistics.
func (c *conn) count(r *request) {
	k := &c.srv.stats.keys[r.api.key]
	k.requests.Add(1)
	k.bytesIn.Add(int64(r.size) + 4)
	if r.head != nil {
		k.bytesOut.Add(int64(len(*r.head) + r.restSize))
	}
	if r.failed {
		k.errors.Add(1)
	}
	k.observe(c.srv.now().Sub(r.received))
}
