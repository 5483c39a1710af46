package members

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
)

// gate is where a member's connections can be held or cut.
type gate struct {
	mu    sync.Mutex
	way   chan struct{} // closed while open
	gone  bool
	conns map[net.Conn]struct{}
}

var errCut = errors.New("members: the member is cut off")

func newGate() *gate {
	g := &gate{way: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	close(g.way)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.way = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.way)
}

// cut ends every connection, for good; whoever waits at the gate fails.
func (g *gate) cut() {
	g.mu.Lock()
	g.gone = true
	close(g.way)
	conns := slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

// pass waits while the gate is shut.
func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	way := g.way
	g.mu.Unlock()
	select {
	case <-way:
	case <-ctx.Done():
		return ctx.Err()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone {
		return errCut
	}
	return nil
}

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := g.pass(ctx); err != nil {
		return nil, err
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	closed, cancel := context.WithCancel(context.Background())
	c := &gatedConn{Conn: nc, gate: g, closed: closed, cancel: cancel}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[c] = struct{}{}
	return c, nil
}

type gatedConn struct {
	net.Conn
	gate   *gate
	closed context.Context
	cancel context.CancelFunc
}

// Read implements net.Conn: what has come stays unread while the gate is shut.
func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if gateErr := c.gate.pass(c.closed); gateErr != nil {
		return 0, gateErr
	}
	return n, err
}

// Write implements net.Conn.
func (c *gatedConn) Write(b []byte) (int, error) {
	if err := c.gate.pass(c.closed); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *gatedConn) Close() error {
	c.cancel()
	c.gate.mu.Lock()
	delete(c.gate.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
