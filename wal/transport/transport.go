package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// ErrClosed: the transport is closed, or closing.
var ErrClosed = errors.New("transport: closed")

// Defaults of the options, and bounds that are not options.
const (
	// defaultBulkBytes bounds what waits for one slow peer: several round
	// trips' worth of full payloads, while what is in flight per shard is
	// bounded by the shard.
	defaultBulkBytes    = 64 << 20
	defaultBulkMessages = 4096
	// Urgent messages are tens of bytes; a queue of them means a dead peer.
	defaultUrgentBytes    = 4 << 20
	defaultUrgentMessages = 4096
	defaultSnapshots      = 2
	// snapshotQueue bounds streams that wait for their turn: one per shard
	// and peer would be too many to be of use.
	snapshotQueue = 64
	// maxPeers bounds the peers that are remembered, whoever names them.
	maxPeers = 1024
	// maxInbound bounds connections in their handshake or beyond.
	maxInbound = 1024

	dialTimeout      = 2 * time.Second
	handshakeTimeout = 5 * time.Second
	// A lane that makes no progress for so long is closed. Back-pressure may
	// hold bulk for a while; urgent is never held.
	bulkTimeout   = 30 * time.Second
	urgentTimeout = 5 * time.Second
	backoffMin    = 20 * time.Millisecond
	// backoffMax is short: a peer that is back should be heard well within a
	// failover's time, and a refused dial costs nearly nothing.
	backoffMax = time.Second
)

// Options configure a Transport. Zero numbers mean defaults.
type Options struct {
	// ClusterID must be the same on both sides; at most 64 bytes.
	ClusterID string
	// Replica is the local replica id.
	Replica uint64
	// Listener takes the peers' connections; Transport closes it.
	Listener net.Listener
	Resolve  Resolver
	Handler  Handler
	Buffers  Buffers
	Logger   *slog.Logger
	// Dial opens connections to peers; nil: TCP. Tests put faults here.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	// Each lane to each peer has a queue bounded by messages and bytes. What
	// does not fit is dropped; one message of any size fits an empty queue.
	BulkMessages, BulkBytes     int
	UrgentMessages, UrgentBytes int
	// Snapshots bounds snapshot streams under way, in each direction.
	Snapshots int
	// SnapshotBytesPerSecond paces all outgoing streams together; 0: no pacing.
	SnapshotBytesPerSecond int64
	// SocketBuffer sets the kernel's buffers of bulk connections. 0 leaves
	// them to the kernel, which grows them by need up to tcp_rmem and
	// tcp_wmem; a fixed size switches that off, and is cut to rmem_max, which
	// is far smaller on most machines.
	SocketBuffer int
}

func (o *Options) check() error {
	switch {
	case o.Listener == nil || o.Resolve == nil || o.Handler == nil || o.Buffers == nil:
		return errors.New("transport options: listener, resolver, handler and buffers must be set")
	case o.Replica == 0:
		return errors.New("transport options: replica id must not be 0")
	case len(o.ClusterID) > clusterIDMax:
		return fmt.Errorf("transport options: cluster id: expected at most %d bytes, found %d", clusterIDMax, len(o.ClusterID))
	}
	for _, d := range []struct {
		v   *int
		def int
	}{
		{&o.BulkMessages, defaultBulkMessages}, {&o.BulkBytes, defaultBulkBytes},
		{&o.UrgentMessages, defaultUrgentMessages}, {&o.UrgentBytes, defaultUrgentBytes},
		{&o.Snapshots, defaultSnapshots},
	} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		var d net.Dialer
		o.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }
	}
	return nil
}

// Transport connects one data directory's replica to its peers. All methods
// are safe for concurrent use.
type Transport struct {
	o     Options
	log   *slog.Logger
	count counters

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	notify    notifier
	snapshots chan *Message
	// inSlots bounds streams that are being received.
	inSlots chan struct{}
	pace    pacer

	mu      sync.Mutex
	closed  bool
	peers   map[uint64]*peer
	inbound map[*inbound]struct{}
	// current is the newest connection of each (peer, lane).
	current map[inboundKey]*inbound
}

// New starts listening.
func New(o Options) (*Transport, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	t := &Transport{
		o: o, log: o.Logger.With("component", "transport", "replica", o.Replica),
		peers: map[uint64]*peer{}, inbound: map[*inbound]struct{}{}, current: map[inboundKey]*inbound{},
		snapshots: make(chan *Message, snapshotQueue), inSlots: make(chan struct{}, o.Snapshots),
	}
	t.pace.perSecond = o.SnapshotBytesPerSecond
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.notify.init()
	t.start(t.accept)
	t.start(t.runNotifier)
	for range o.Snapshots {
		t.start(t.sendSnapshots)
	}
	return t, nil
}

// start runs f on a goroutine that Close waits for.
func (t *Transport) start(f func()) {
	t.wg.Add(1)
	go func() {
		defer t.wg.Done()
		f()
	}()
}

// Addr is the address that peers dial.
func (t *Transport) Addr() net.Addr { return t.o.Listener.Addr() }

// Send queues m for its peer and never blocks. m and its payloads belong to
// the transport from here on. What cannot be queued or delivered is dropped:
// payloads are released and Handler.Unreachable is called, or
// Handler.SnapshotSent for a message with a snapshot.
func (t *Transport) Send(m *Message) {
	if m.Snapshot != nil {
		t.queueSnapshot(m)
		return
	}
	p := t.peer(m.To, true)
	if p == nil {
		t.dropUnqueued(m)
		return
	}
	kind := laneUrgent
	if m.Raft.GetType() == raftpb.MsgApp || len(m.Raft.GetEntries()) > 0 {
		kind = laneBulk
	}
	p.lanes[kind].enqueue(m)
}

// dropUnqueued drops a message that has no peer: the transport is closed, the
// message is to ourselves, or there are too many peers.
func (t *Transport) dropUnqueued(m *Message) {
	releasePayloads(m)
	t.notify.unreachable(m.Shard, m.To)
}

// Forget ends the connections to a replica that is gone for good, and drops
// what waits for it. A later Send begins anew.
func (t *Transport) Forget(replica uint64) {
	t.mu.Lock()
	p := t.peers[replica]
	delete(t.peers, replica)
	t.mu.Unlock()
	if p != nil {
		p.stop()
	}
}

// peer returns the peer of that id, and with make begins one; nil after Close,
// for ourselves, and beyond maxPeers.
func (t *Transport) peer(replica uint64, make bool) *peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || replica == 0 || replica == t.o.Replica {
		return nil
	}
	p := t.peers[replica]
	if p == nil && make && len(t.peers) < maxPeers {
		p = newPeer(t, replica)
		t.peers[replica] = p
	}
	return p
}

// Close ends all connections and waits for all goroutines. What is queued is
// dropped without a call to the handler. A handler's method that blocks must
// be released before.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	peers := t.peers
	t.peers = nil
	conns := t.inbound
	t.inbound = nil
	t.mu.Unlock()

	t.cancel()
	err := t.o.Listener.Close()
	for _, p := range peers {
		p.stop()
	}
	for c := range conns {
		c.conn.Close()
	}
	t.wg.Wait()
	t.drainSnapshots()
	if err != nil {
		return fmt.Errorf("transport: close listener: %w", err)
	}
	return nil
}

// dial opens a connection of one lane to a replica, handshake included.
func (t *Transport) dial(ctx context.Context, replica uint64, lane laneKind) (net.Conn, error) {
	addr, ok := t.o.Resolve(replica)
	if !ok {
		return nil, fmt.Errorf("address of replica %d is unknown", replica)
	}
	dctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := t.o.Dial(dctx, addr)
	if err != nil {
		return nil, err
	}
	// The handshake must end when the transport does.
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := t.greet(conn, replica, lane); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	return conn, nil
}

func (t *Transport) greet(conn net.Conn, replica uint64, lane laneKind) error {
	tuneSocket(conn, lane, t.o.SocketBuffer)
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	h := hello{version: protocolVersion, lane: lane, from: t.o.Replica, to: replica, cluster: t.o.ClusterID}
	if _, err := conn.Write(h.append(nil)); err != nil {
		return err
	}
	a, err := readAnswer(conn)
	if err != nil {
		return err
	}
	if err := a.check(&h); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// tuneSocket sets what the lane needs. Failures are harmless: the connection
// works with the system's own settings.
func tuneSocket(conn net.Conn, lane laneKind, buffer int) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tcp.SetNoDelay(true)
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3})
	timeout := bulkTimeout
	if lane == laneUrgent {
		timeout = urgentTimeout
	}
	setUserTimeout(tcp, timeout)
	if buffer > 0 && lane != laneUrgent {
		_ = tcp.SetReadBuffer(buffer)
		_ = tcp.SetWriteBuffer(buffer)
	}
}
