package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait in these tests; none gets near it when all is well.
const patience = time.Minute

// recorder is a handler that keeps what comes, and can be made to block.
type recorder struct {
	in          chan *Inbound
	unreachable chan event
	sent        chan error
	gate        atomic.Pointer[chan struct{}] // Receive of entries waits for its closing
	snapshot    func(in *Inbound, r io.Reader) error
}

func newRecorder() *recorder {
	return &recorder{in: make(chan *Inbound, 1<<16), unreachable: make(chan event, 1<<16), sent: make(chan error, 1<<10)}
}

func (r *recorder) Receive(in *Inbound) {
	if g := r.gate.Load(); g != nil && len(in.Raft.GetEntries()) > 0 {
		<-*g
	}
	r.in <- in
}

func (r *recorder) ReceiveSnapshot(in *Inbound, s io.Reader) error { return r.snapshot(in, s) }
func (r *recorder) Unreachable(shard uint32, to uint64)            { r.unreachable <- event{shard, to} }
func (r *recorder) SnapshotSent(_ uint32, _ uint64, err error)     { r.sent <- err }

// block makes Receive wait until the returned function is called.
func (r *recorder) block() (release func()) {
	g := make(chan struct{})
	r.gate.Store(&g)
	return func() { r.gate.Store(nil); close(g) }
}

func next[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// eventually polls a condition that nothing announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// logBuffer collects log lines for tests that look at them.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// world is a set of transports that know each other.
type world struct {
	t     *testing.T
	mu    sync.Mutex
	addrs map[uint64]string
}

type node struct {
	*Transport
	rec  *recorder
	bufs *countingBuffers
	logs *logBuffer
}

func newWorld(t *testing.T) *world { return &world{t: t, addrs: map[uint64]string{}} }

func (w *world) resolve(r uint64) (string, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, ok := w.addrs[r]
	return a, ok
}

// add starts a replica, at the address it had before if it had one.
func (w *world) add(id uint64, change func(o *Options)) *node {
	w.t.Helper()
	addr, ok := w.resolve(id)
	if !ok {
		addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.addrs[id] = ln.Addr().String()
	w.mu.Unlock()
	n := &node{rec: newRecorder(), bufs: &countingBuffers{}, logs: &logBuffer{}}
	o := Options{ClusterID: "test", Replica: id, Listener: ln, Resolve: w.resolve, Handler: n.rec, Buffers: n.bufs,
		Logger: slog.New(slog.NewTextHandler(n.logs, nil))}
	if change != nil {
		change(&o)
	}
	if n.Transport, err = New(o); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := n.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return n
}

func (n *node) peerStats(replica uint64) PeerStats {
	for _, p := range n.Stats().Peers {
		if p.Replica == replica {
			return p
		}
	}
	return PeerStats{}
}

func TestOrderWithinLanes(t *testing.T) {
	w := newWorld(t)
	a, b := w.add(1, nil), w.add(2, nil)
	const count = 3000
	released := new(atomic.Int64)
	for i := range uint64(count) {
		m := app(7, 1, 2, i, fmt.Sprintf("payload %d", i), "", strings.Repeat("x", int(i*37%20000)+1))
		for _, p := range m.Payloads {
			if p != nil {
				p.(*fakePayload).released = released
			}
		}
		a.Send(m)
		a.Send(heartbeat(7, 1, 2, i))
		// Within the queues' bounds, whatever the machine does meanwhile.
		if i%500 == 499 {
			eventually(t, "queue drained", func() bool { return a.peerStats(2).QueuedMessages == 0 })
		}
	}
	var apps, beats uint64
	for apps < count || beats < count {
		in := next(t, b.rec.in)
		switch in.Raft.GetType() {
		case raftpb.MsgApp:
			if in.HW != apps || string(in.Payloads[0]) != fmt.Sprintf("payload %d", apps) || in.Payloads[1] != nil || len(in.Payloads[2]) != int(apps*37%20000)+1 {
				t.Fatalf("append %d: found %d", apps, in.HW)
			}
			apps++
		default:
			if in.HW != beats || in.Payloads != nil {
				t.Fatalf("heartbeat %d: found %d", beats, in.HW)
			}
			beats++
		}
	}
	eventually(t, "all payloads released once", func() bool { return released.Load() == 2*count })
	as, bs := a.peerStats(2), b.peerStats(1)
	if as.FramesOut != 2*count || bs.FramesIn != 2*count || as.BytesOut != bs.BytesIn || as.Drops != 0 || as.Connects != 2 || bs.Accepts != 2 {
		t.Fatalf("stats: %+v and %+v", as, bs)
	}
}

// TestEmptyAppendsStayInOrder: an empty MsgApp must not overtake entries.
func TestEmptyAppendsStayInOrder(t *testing.T) {
	w := newWorld(t)
	a, b := w.add(1, nil), w.add(2, nil)
	release := b.rec.block()
	a.Send(app(1, 1, 2, 1, "entry"))
	a.Send(app(1, 1, 2, 2))
	a.Send(heartbeat(1, 1, 2, 9))
	if in := next(t, b.rec.in); in.Raft.GetType() != raftpb.MsgHeartbeat {
		t.Fatalf("expected the heartbeat alone to pass a blocked lane, found %v", in.Raft)
	}
	release()
	for i := range uint64(2) {
		if in := next(t, b.rec.in); in.HW != i+1 {
			t.Fatalf("expected append %d, found %d", i+1, in.HW)
		}
	}
}

func TestUnknownAddressIsUnreachable(t *testing.T) {
	w := newWorld(t)
	a := w.add(1, nil)
	released := new(atomic.Int64)
	m := app(4, 1, 99, 1, "x")
	m.Payloads[0].(*fakePayload).released = released
	a.Send(m)
	if e := next(t, a.rec.unreachable); e != (event{4, 99}) {
		t.Fatalf("%+v", e)
	}
	if released.Load() != 1 || a.peerStats(99).Drops != 1 {
		t.Fatalf("released %d, stats %+v", released.Load(), a.peerStats(99))
	}
	a.Send(heartbeat(5, 1, 1, 0)) // to itself: never sent, and said so
	for e := next(t, a.rec.unreachable); e != (event{5, 1}); e = next(t, a.rec.unreachable) {
	}
}

// TestSlowPeerBounded: a peer that does not read costs a bounded queue.
func TestSlowPeerBounded(t *testing.T) {
	w := newWorld(t)
	a := w.add(1, func(o *Options) { o.BulkBytes = 4 << 20; o.BulkMessages = 100; o.SocketBuffer = 64 << 10 })
	b := w.add(2, nil)
	release := b.rec.block()
	released := new(atomic.Int64)
	big := strings.Repeat("z", 256<<10)
	const count = 400
	for i := range uint64(count) {
		m := app(1, 1, 2, i, big)
		m.Payloads[0].(*fakePayload).released = released
		a.Send(m)
		if s := a.peerStats(2); s.QueuedBytes > 5<<20 || s.QueuedMessages > 100 {
			t.Fatalf("queue grew to %+v", s)
		}
	}
	next(t, a.rec.unreachable)
	s := a.peerStats(2)
	if s.Drops == 0 || uint64(released.Load()) < s.Drops {
		t.Fatalf("drops %d, released %d", s.Drops, released.Load())
	}
	a.Send(heartbeat(1, 1, 2, 77)) // the urgent lane is free
	if in := next(t, b.rec.in); in.HW != 77 {
		t.Fatalf("expected the heartbeat, found %+v", in)
	}
	release()
	last := -1
	for range count - int(s.Drops) {
		in := next(t, b.rec.in)
		if int(in.HW) <= last || len(in.Payloads[0]) != len(big) {
			t.Fatalf("after %d came %d", last, in.HW)
		}
		last = int(in.HW)
	}
	eventually(t, "every payload released", func() bool { return released.Load() == count })
}

// TestOneHugeMessageFits: a bound smaller than a message must not stop it for good.
func TestOneHugeMessageFits(t *testing.T) {
	w := newWorld(t)
	a := w.add(1, func(o *Options) { o.BulkBytes = 1 << 10 })
	b := w.add(2, nil)
	parts := make([]string, 5)
	for i := range parts {
		parts[i] = strings.Repeat(string(rune('a'+i)), 5<<20) // sent piece by piece
	}
	a.Send(app(1, 1, 2, 1, parts...))
	in := next(t, b.rec.in)
	for i, p := range parts {
		if string(in.Payloads[i]) != p {
			t.Fatalf("payload %d differs", i)
		}
	}
}

func TestReconnectAfterRestart(t *testing.T) {
	w := newWorld(t)
	a, b := w.add(1, nil), w.add(2, nil)
	for round := range uint64(5) {
		// Lost messages are Raft's to repeat; so here.
		tick := time.NewTicker(5 * time.Millisecond)
		deadline := time.After(patience)
		for got := false; !got; {
			a.Send(app(1, 1, 2, round, "again"))
			a.Send(heartbeat(1, 1, 2, round))
			select {
			case in := <-b.rec.in:
				got = in.HW == round
			case <-tick.C:
			case <-deadline:
				t.Fatalf("round %d: the peer is not reached any more", round)
			}
		}
		tick.Stop()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = w.add(2, nil)
	}
	if s := a.peerStats(2); s.Connects < 5 {
		t.Fatalf("stats: %+v", s)
	}
}

// TestLoadFailure: a payload that cannot be loaded costs its message, or the
// connection when the frame has begun, and never the messages after it.
func TestLoadFailure(t *testing.T) {
	for _, size := range []int{10, loadWhole} {
		w := newWorld(t)
		a, b := w.add(1, nil), w.add(2, nil)
		bad := app(1, 1, 2, 1, strings.Repeat("x", size), "y", "z")
		released := new(atomic.Int64)
		for i, p := range bad.Payloads {
			p.(*fakePayload).released = released
			if i == 1 {
				p.(*fakePayload).err = errors.New("trimmed")
			}
		}
		a.Send(bad)
		next(t, a.rec.unreachable)
		eventually(t, "released", func() bool { return released.Load() == 3 })
		for {
			a.Send(app(1, 1, 2, 2, "fine"))
			select {
			case in := <-b.rec.in:
				if in.HW != 2 || string(in.Payloads[0]) != "fine" {
					t.Fatalf("found %+v", in)
				}
			case <-a.rec.unreachable:
				continue
			case <-time.After(patience):
				t.Fatal("nothing came after a failed load")
			}
			break
		}
		if c := a.peerStats(2).Connects; size < loadWhole && c != 1 {
			t.Fatalf("a small message's failure cost the connection: %d connects", c)
		}
		if out := b.bufs.out.Load(); size < loadWhole && out < 1 {
			t.Fatalf("buffers out: %d", out)
		}
	}
}

// shake dials a node by hand and returns the answer.
func shake(t *testing.T, n *node, raw []byte) (net.Conn, answer, error) {
	t.Helper()
	conn, err := net.Dial("tcp", n.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(raw); err != nil {
		t.Fatal(err)
	}
	a, err := readAnswer(conn)
	return conn, a, err
}

func TestHandshakeRefusals(t *testing.T) {
	w := newWorld(t)
	n := w.add(5, nil)
	good := hello{version: protocolVersion, lane: laneBulk, from: 9, to: 5, cluster: "test"}
	for name, c := range map[string]struct {
		change func(h *hello)
		want   status
		says   string
	}{
		"version":    {func(h *hello) { h.version = 2 }, statusVersion, "expected 1, found 2"},
		"cluster":    {func(h *hello) { h.cluster = "other" }, statusCluster, `expected cluster \"test\", found \"other\"`},
		"to another": {func(h *hello) { h.to = 6 }, statusReplica, "for replica 5, found one from 9 to 6"},
		"from us":    {func(h *hello) { h.from = 5 }, statusReplica, "from 5 to 5"},
		"lane":       {func(h *hello) { h.lane = 9 }, statusMalformed, "lane 9"},
	} {
		h := good
		c.change(&h)
		_, a, err := shake(t, n, h.append(nil))
		if err != nil || a.status != c.want || a.replica != 5 || a.version != protocolVersion {
			t.Errorf("%s: %+v %v", name, a, err)
		}
		eventually(t, name+" logged", func() bool { return strings.Contains(n.logs.String(), c.says) })
	}
	if _, a, err := shake(t, n, []byte("GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n")); err != nil || a.status != statusMalformed {
		t.Errorf("an http client: %+v %v", a, err)
	}
	if r := n.Stats().Refused; r != 6 {
		t.Errorf("refused: %d", r)
	}
	// From the dialling side, the reason is in our own log.
	a := w.add(1, func(o *Options) { o.ClusterID = "elsewhere" })
	a.Send(heartbeat(1, 1, 5, 1))
	next(t, a.rec.unreachable)
	eventually(t, "reason logged", func() bool { return strings.Contains(a.logs.String(), "another cluster than") })
}

// TestHostileFrames: garbage ends its connection and no other.
func TestHostileFrames(t *testing.T) {
	w := newWorld(t)
	a, b := w.add(1, nil), w.add(2, nil)
	a.Send(heartbeat(1, 1, 2, 1))
	next(t, b.rec.in)
	frame := func(m *Message) []byte {
		f, err := AppendFrame(nil, m)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	flipped := frame(app(1, 9, 2, 3, "payload"))
	flipped[60] ^= 1
	huge := frame(heartbeat(1, 9, 2, 3))
	huge[34] = 0xff
	hostile := map[string][]byte{
		"garbage":        []byte(strings.Repeat("garbage!", 100)),
		"flipped bit":    flipped,
		"huge length":    huge,
		"forged sender":  frame(heartbeat(1, 1, 2, 3)),
		"wrong receiver": frame(app(1, 9, 3, 3, "payload")),
	}
	h := hello{version: protocolVersion, lane: laneBulk, from: 9, to: 2, cluster: "test"}
	for name, bytes := range hostile {
		conn, ans, err := shake(t, b, h.append(nil))
		if err != nil || ans.status != statusWelcome {
			t.Fatalf("%s: %+v %v", name, ans, err)
		}
		if _, err := conn.Write(bytes); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 1)); err == nil || n != 0 || errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%s: the connection lives on: %v", name, err)
		}
	}
	if s := b.Stats(); s.BadFrames != uint64(len(hostile)) {
		t.Fatalf("bad frames: %d", s.BadFrames)
	}
	a.Send(heartbeat(1, 1, 2, 2))
	if in := next(t, b.rec.in); in.From != 1 || in.HW != 2 {
		t.Fatalf("the honest peer's message: %+v", in)
	}
	if a.peerStats(2).Connects != 1 || b.bufs.out.Load() != 0 {
		t.Fatalf("the honest peer had to reconnect, or buffers were lost: %+v, %d", a.peerStats(2), b.bufs.out.Load())
	}
}

// TestNewConnectionReplacesOld: the same peer again, while its old connection
// is half open and its last message still with the handler.
func TestNewConnectionReplacesOld(t *testing.T) {
	w := newWorld(t)
	b := w.add(2, nil)
	release := b.rec.block()
	h := hello{version: protocolVersion, lane: laneBulk, from: 9, to: 2, cluster: "test"}
	first, err := AppendFrame(nil, app(1, 9, 2, 1, "first"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := AppendFrame(nil, app(1, 9, 2, 2, "second"))
	if err != nil {
		t.Fatal(err)
	}
	old, _, err := shake(t, b, h.append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Write(first); err != nil {
		t.Fatal(err)
	}
	eventually(t, "first frame with the handler", func() bool { return b.peerStats(9).FramesIn == 1 })
	answered := make(chan error, 1)
	conn, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		if _, err := conn.Write(append(h.append(nil), second...)); err != nil {
			answered <- err
			return
		}
		a, err := readAnswer(conn)
		if err == nil && a.status != statusWelcome {
			err = fmt.Errorf("status %d", a.status)
		}
		answered <- err
	}()
	if n, err := old.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Fatalf("the old connection lives on: %v", err)
	}
	select {
	case err := <-answered:
		t.Fatalf("welcomed while the old reader was still at work: %v", err)
	case in := <-b.rec.in:
		t.Fatalf("a message overtook: %+v", in)
	default:
	}
	release()
	if err := next(t, answered); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(2) {
		if in := next(t, b.rec.in); in.HW != i+1 {
			t.Fatalf("expected message %d, found %d", i+1, in.HW)
		}
	}
}

// TestCloseUnderLoad: everything stops, every payload is released once.
func TestCloseUnderLoad(t *testing.T) {
	w := newWorld(t)
	a, b := w.add(1, nil), w.add(2, nil)
	released, sent := new(atomic.Int64), int64(0)
	release := b.rec.block()
	for i := range uint64(200) {
		m := app(1, 1, 2+i%3, i, strings.Repeat("x", 64<<10))
		m.Payloads[0].(*fakePayload).released = released
		sent++
		a.Send(m)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	m := app(1, 1, 2, 1, "late")
	m.Payloads[0].(*fakePayload).released = released
	a.Send(m)
	if released.Load() != sent+1 {
		t.Fatalf("sent %d, released %d", sent+1, released.Load())
	}
	if err := a.Close(); err != nil {
		t.Fatalf("second close: %v", err)
	}
	release()
}

func TestForget(t *testing.T) {
	w := newWorld(t)
	a, b := w.add(1, nil), w.add(2, nil)
	a.Send(heartbeat(1, 1, 2, 1))
	next(t, b.rec.in)
	a.Forget(2)
	a.Forget(3)
	if s := a.Stats(); len(s.Peers) != 0 {
		t.Fatalf("still known: %+v", s.Peers)
	}
	a.Send(heartbeat(1, 1, 2, 2))
	if in := next(t, b.rec.in); in.HW != 2 {
		t.Fatalf("found %+v", in)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ok := Options{Replica: 1, Listener: ln, Resolve: newWorld(t).resolve, Handler: newRecorder(), Buffers: &countingBuffers{}}
	for name, change := range map[string]func(o *Options){
		"replica": func(o *Options) { o.Replica = 0 }, "cluster": func(o *Options) { o.ClusterID = strings.Repeat("x", 65) },
		"listener": func(o *Options) { o.Listener = nil }, "handler": func(o *Options) { o.Handler = nil },
	} {
		o := ok
		change(&o)
		if tr, err := New(o); err == nil {
			tr.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}
