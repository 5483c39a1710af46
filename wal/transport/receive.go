package transport

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// readBuffer is what a bulk connection reads at a time: many small frames at
// once, and small beside a payload, which is read past it into its own buffer.
const readBuffer = 64 << 10

// frameTimeout bounds the time that a frame's head, or one payload, may take to
// follow what came before: buffers are held meanwhile.
const frameTimeout = 30 * time.Second

type inboundKey struct {
	from uint64
	lane laneKind
}

// inbound is a connection that a peer has dialled; its reader owns it.
type inbound struct {
	conn net.Conn
	done chan struct{} // closed when the reader has ended
}

// accept takes connections until the listener closes.
func (t *Transport) accept() {
	delay := backoffMin
	for {
		conn, err := t.o.Listener.Accept()
		if err != nil {
			if t.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors, most likely: it may pass.
			t.log.Error("accept", "reason", err)
			if !t.pause(delay) {
				return
			}
			delay = min(2*delay, backoffMax)
			continue
		}
		delay = backoffMin
		c := &inbound{conn: conn, done: make(chan struct{})}
		if !t.admit(c) {
			conn.Close()
			continue
		}
		t.start(func() { t.serve(c) })
	}
}

// pause waits; false when the transport closes meanwhile.
func (t *Transport) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (t *Transport) admit(c *inbound) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.inbound) >= maxInbound {
		t.count.refused.Add(1)
		return false
	}
	t.inbound[c] = struct{}{}
	return true
}

// serve runs a connection from its handshake to its end. Whatever comes over
// it can end this connection only.
func (t *Transport) serve(c *inbound) {
	defer func() {
		c.conn.Close()
		close(c.done)
		t.mu.Lock()
		delete(t.inbound, c)
		for k, cur := range t.current {
			if cur == c {
				delete(t.current, k)
			}
		}
		t.mu.Unlock()
	}()
	h, p, ok := t.welcome(c)
	if !ok {
		return
	}
	if h.lane == laneSnapshot {
		defer func() { <-t.inSlots }()
	}
	a := answer{version: protocolVersion, status: statusWelcome, replica: t.o.Replica}
	if _, err := c.conn.Write(a.append(nil)); err != nil {
		return
	}
	if err := c.conn.SetDeadline(time.Time{}); err != nil {
		return
	}
	p.count.accepts.Add(1)
	var err error
	if h.lane == laneSnapshot {
		err = t.receiveSnapshot(c.conn, p, h)
	} else {
		err = t.receive(c.conn, p, h)
	}
	t.closing(h, err)
}

// closing says why a connection has ended, where that is news.
func (t *Transport) closing(h hello, err error) {
	if errors.Is(err, ErrFrame) || errors.Is(err, ErrVersion) {
		t.count.badFrames.Add(1)
	}
	switch {
	case err == nil, err == io.EOF, t.ctx.Err() != nil, errors.Is(err, net.ErrClosed):
	default:
		t.log.Warn("incoming connection closed", "peer", h.from, "lane", h.lane.String(), "reason", err)
	}
}

// welcome does the handshake up to, but without, a welcoming answer.
func (t *Transport) welcome(c *inbound) (hello, *peer, bool) {
	if err := c.conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return hello{}, nil, false
	}
	h, err := readHello(c.conn)
	st := statusWelcome
	switch {
	case errors.Is(err, ErrVersion):
		st = statusVersion
	case err != nil:
		st = statusMalformed
	case h.cluster != t.o.ClusterID:
		st, err = statusCluster, fmt.Errorf("expected cluster %q, found %q: %w", t.o.ClusterID, h.cluster, ErrHandshake)
	case h.to != t.o.Replica || h.from == h.to || h.from == 0:
		st, err = statusReplica, fmt.Errorf("expected a message for replica %d, found one from %d to %d: %w", t.o.Replica, h.from, h.to, ErrHandshake)
	}
	var p *peer
	if err == nil {
		if p = t.peer(h.from, true); p == nil || !t.place(c, h) {
			st, err = statusBusy, fmt.Errorf("too many connections: %w", ErrHandshake)
		}
	}
	if err != nil {
		t.refuse(c, h, st, err)
		return h, nil, false
	}
	tuneSocket(c.conn, h.lane, t.o.SocketBuffer)
	return h, p, true
}

// place gives the connection its role. A snapshot takes one of the slots. A
// lane replaces the peer's connection before it, which the peer has given up;
// its reader must have ended, or messages could overtake each other.
func (t *Transport) place(c *inbound, h hello) bool {
	if h.lane == laneSnapshot {
		select {
		case t.inSlots <- struct{}{}:
			return true
		default:
			return false
		}
	}
	k := inboundKey{h.from, h.lane}
	t.mu.Lock()
	old := t.current[k]
	t.current[k] = c
	t.mu.Unlock()
	if old == nil {
		return true
	}
	old.conn.Close()
	timer := time.NewTimer(handshakeTimeout)
	defer timer.Stop()
	select {
	case <-old.done:
		return true
	case <-t.ctx.Done():
	case <-timer.C:
		// Its last message is still held back by the handler. The old reader
		// is the current one again, for the next try to wait on.
		t.mu.Lock()
		if t.current[k] == c {
			t.current[k] = old
		}
		t.mu.Unlock()
	}
	return false
}

// refuse answers with the reason, and closes in a way that lets the answer arrive.
func (t *Transport) refuse(c *inbound, h hello, st status, err error) {
	t.count.refused.Add(1)
	if t.ctx.Err() != nil {
		return
	}
	if err != io.ErrUnexpectedEOF { // someone who only knocked
		t.log.Warn("peer refused", "address", c.conn.RemoteAddr().String(), "peer", h.from, "lane", h.lane.String(), "reason", err)
	}
	a := answer{version: protocolVersion, status: st, replica: t.o.Replica}
	if _, err := c.conn.Write(a.append(nil)); err != nil {
		return
	}
	// Unread bytes at close make the kernel send a reset, which may overtake
	// the answer. So: no more from us, then read what there is, within bounds.
	if tcp, ok := c.conn.(*net.TCPConn); ok && tcp.CloseWrite() == nil {
		_ = c.conn.SetReadDeadline(time.Now().Add(time.Second))
		_, _ = io.CopyN(io.Discard, c.conn, 4<<10)
	}
}

// receive hands frames to the handler until the connection ends.
func (t *Transport) receive(conn net.Conn, p *peer, h hello) error {
	f := frameReader{r: bufio.NewReaderSize(conn, readBuffer), bufs: t.o.Buffers}
	// An idle connection is no trouble, one that stops inside a frame is.
	waiting := true
	f.body = func() {
		waiting = false
		_ = conn.SetReadDeadline(time.Now().Add(frameTimeout))
	}
	for {
		in, err := f.next()
		if err != nil {
			return err
		}
		if in.From != h.from || in.To != h.to {
			putPayloads(t.o.Buffers, in)
			return fmt.Errorf("frame: expected from %d to %d, found %d and %d: %w", h.from, h.to, in.From, in.To, ErrFrame)
		}
		if !waiting {
			waiting = true
			if err := conn.SetReadDeadline(time.Time{}); err != nil {
				putPayloads(t.o.Buffers, in)
				return err
			}
		}
		p.count.framesIn.Add(1)
		p.count.bytesIn.Add(uint64(f.size))
		t.o.Handler.Receive(in)
	}
}
