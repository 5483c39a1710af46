package ingest

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"thermocline/wal/batch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hostileFrames must each close their connection with one log line.
var hostileFrames = map[string][]byte{
	"size alone, negative":      {0xff, 0xff, 0xff, 0xff},
	"size alone, 2 GiB":         {0x7f, 0xff, 0xff, 0xff},
	"size alone, tiny":          {0, 0, 0, 3},
	"negative size":             {0xff, 0xff, 0xff, 0xff, 0, 18, 0, 0},
	"size of 2 GiB":             {0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 9},
	"tiny size":                 {0, 0, 0, 3, 0, 18, 0, 0},
	"unknown key":               {0, 0, 0, 12, 0, 90, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0, 0},
	"negative key":              {0, 0, 0, 12, 0xff, 0xf0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0, 0},
	"unsupported version":       {0, 0, 0, 12, 0, 3, 0, 77, 0, 0, 0, 1, 0xff, 0xff, 0, 0},
	"old produce":               {0, 0, 0, 12, 0, 0, 0, 2, 0, 0, 0, 1, 0xff, 0xff, 0, 0},
	"client id beyond the end":  {0, 0, 0, 12, 0, 3, 0, 1, 0, 0, 0, 1, 0x70, 0x00, 0, 0},
	"truncated body":            {0, 0, 0, 12, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 0},
	"array of 2 billion":        {0, 0, 0, 14, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff},
	"too many header tags":      {0, 0, 0, 14, 0, 3, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0, 0, 0},
	"small key with big frame":  {0x00, 0xd0, 0, 0, 0, 3, 0, 9, 0, 0, 0, 1},
	"produce with many topics":  append([]byte{0, 0, 0, 30, 0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0, 0, 0}, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0),
	"produce with huge records": {0, 0, 0, 38, 0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 1, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0},
}

func TestHostileFrames(t *testing.T) {
	for name, frame := range hostileFrames {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, newFakeCluster(1), nil)
			good := dial(t, s.addr)
			bad := dial(t, s.addr)
			bad.write(frame)
			closedByPeer(t, bad.nc)
			eventually(t, "one connection is left", func() bool { return s.Stats().Connections == 1 })
			if n := strings.Count(s.logs.String(), "connection closed"); n != 1 {
				t.Errorf("expected one log line, found %d:\n%s", n, s.logs)
			}
			ask[*kmsg.ApiVersionsResponse](good, kmsg.NewPtrApiVersionsRequest()) // nobody else is hurt
			eventually(t, "byte budget is given back", func() bool { return s.requestBytes.sem.TryAcquire(s.requestBytes.total) })
		})
	}
}

// TestStalledFramesAreClosed: whatever a begun frame lacks, it is waited for
// for a bounded time. The time is the bubble's.
func TestStalledFramesAreClosed(t *testing.T) {
	for name, tc := range map[string]struct {
		sent   []byte
		within time.Duration
	}{
		"one byte":              {[]byte{0}, frameWait},
		"size alone":            {[]byte{0, 0, 0, 12}, frameWait},
		"size, key and version": {[]byte{0, 0, 0, 12, 0, 3, 0, 9}, 2 * frameWait},
		"half a frame":          {[]byte{0, 0, 0, 12, 0, 3, 0, 9, 0, 0}, 2 * frameWait},
		"a large frame's begin": {[]byte{0, 0x10, 0, 0, 0, 0, 0, 9, 0, 0}, 2*frameWait + (1<<20)/frameRate*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := NewServer(testConfig(), newFakeCluster(1), newFakeCluster(1), newFakeCold(), newFakeCluster(1).coordinators)
				if err != nil {
					t.Fatal(err)
				}
				client, server := net.Pipe()
				defer client.Close()
				c := newConn(s, server)
				go c.readLoop()
				begun := time.Now()
				if _, err := client.Write(tc.sent); err != nil {
					t.Fatal(err)
				}
				<-c.ctx.Done()
				if took := time.Since(begun); took > tc.within {
					t.Errorf("closed after %v, expected at most %v", took, tc.within)
				}
			})
		})
	}
}

// FuzzRequestFrame sends arbitrary bytes through framing, header, shape check
// and decoder: never a panic, every frame given back, and what decodes within
// the rules encodes to what decodes again.
func FuzzRequestFrame(f *testing.F) {
	for _, frame := range hostileFrames {
		f.Add(frame)
	}
	format := kmsg.NewRequestFormatter()
	for _, a := range registrations() {
		for _, v := range []int16{a.min, a.max} {
			req := kmsg.RequestForKey(a.key)
			req.SetVersion(v)
			f.Add(format.AppendRequest(nil, req, 1))
		}
	}
	s, err := NewServer(testConfig(), newFakeCluster(1), newFakeCluster(1), newFakeCold(), newFakeCluster(1).coordinators)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		c := newConn(s, &bytesConn{Reader: bytes.NewReader(data)})
		defer c.cancel()
		for {
			r, err := c.next()
			if err != nil {
				break
			}
			if r.version >= r.api.min && r.version <= r.api.max {
				again := r.api.newRequest()
				again.SetVersion(r.version)
				if err := again.ReadFrom(r.msg.AppendTo(nil)); err != nil {
					t.Errorf("%s v%d does not decode again: %v", r.api.name, r.version, err)
				}
			}
			r.frame.release()
		}
		if !s.requestBytes.sem.TryAcquire(s.requestBytes.total) {
			t.Fatal("byte budget was not given back")
		}
		s.requestBytes.give(s.requestBytes.total)
	})
}

// bytesConn is a connection that delivers given bytes.
type bytesConn struct {
	*bytes.Reader
	net.Conn
}

func (c *bytesConn) Read(p []byte) (int, error)      { return c.Reader.Read(p) }
func (c *bytesConn) Write(p []byte) (int, error)     { return len(p), nil }
func (c *bytesConn) Close() error                    { return nil }
func (c *bytesConn) RemoteAddr() net.Addr            { return &net.TCPAddr{} }
func (c *bytesConn) SetReadDeadline(time.Time) error { return nil }

// TestPipelining: answers leave in order, a long poll holds its place, and the
// requests behind it are worked on meanwhile.
func TestPipelining(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "pipe", 1, nil)
	row := topicOf(t, s, "pipe")
	w := dial(t, s.addr)
	poll := fetchRequest(12, row, 0)
	poll.MaxWaitMillis = 15_000
	w.send(poll)
	produce := produceRequest(9, row, 0, -1, testBatch(batch.None, "behind the poll"))
	w.send(produce)
	versions := kmsg.NewPtrApiVersionsRequest()
	w.send(versions)
	// The produce behind it wakes the poll.
	if resp := w.receive(poll, 1).(*kmsg.FetchResponse); len(resp.Topics[0].Partitions[0].RecordBatches) == 0 {
		t.Error("the poll was not woken by the produce behind it")
	}
	if c := firstError(w.receive(produce, 2)); c != 0 {
		t.Errorf("produce: error %d", c)
	}
	w.receive(versions, 3)
}

func TestManyPipelinedProduces(t *testing.T) {
	s := startServer(t, newFakeCluster(2), nil)
	create(t, s, "burst", 2, nil)
	row := topicOf(t, s, "burst")
	w := dial(t, s.addr)
	const n = 3 * maxPipelined // more than the queue holds
	sent := make(chan error, 1)
	go func() {
		format := kmsg.NewRequestFormatter()
		var all []byte
		for i := range n {
			all = append(all, format.AppendRequest(nil, produceRequest(9, row, int32(i%2), -1, testBatch(batch.None, "x")), int32(i))...)
		}
		_, err := w.nc.Write(all)
		sent <- err
	}()
	for i := range n {
		resp := w.receive(produceRequest(9, row, 0, -1, nil), int32(i)).(*kmsg.ProduceResponse)
		if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 || p.BaseOffset != int64(i/2) {
			t.Fatalf("request %d: %+v", i, p)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// TestSlowReader: a client that asks and does not read costs bounded memory.
func TestSlowReader(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "wide", 10_000, nil)
	w := dial(t, s.addr)
	meta := kmsg.NewPtrMetadataRequest()
	format := kmsg.NewRequestFormatter()
	var all []byte
	for i := range maxPipelined {
		all = append(all, format.AppendRequest(nil, meta, int32(i))...)
	}
	w.write(all)
	one := len(s.metadataAnswer(meta, true, nil).AppendTo(nil))
	held := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			if c.remote == w.nc.LocalAddr().String() {
				c.held.mu.Lock()
				defer c.held.mu.Unlock()
				return c.held.n
			}
		}
		return 0
	}
	eventually(t, "the limit is reached", func() bool { return held() > maxHeldAnswer-one })
	if n := held(); n > maxHeldAnswer+2*one {
		t.Errorf("held %d bytes, expected at most %d", n, maxHeldAnswer+2*one)
	}
	for i := range maxPipelined { // it goes on as soon as the client reads
		if got := int32(binary.BigEndian.Uint32(w.frame())); got != int32(i) {
			t.Fatalf("answer %d: correlation %d", i, got)
		}
	}
}

func TestConnectionLimits(t *testing.T) {
	s := startServer(t, newFakeCluster(1), func(c *Config) { c.MaxConnectionsPerIP = 2 })
	a, b := dial(t, s.addr), dial(t, s.addr)
	ask[*kmsg.ApiVersionsResponse](a, kmsg.NewPtrApiVersionsRequest())
	ask[*kmsg.ApiVersionsResponse](b, kmsg.NewPtrApiVersionsRequest())
	closedByPeer(t, dial(t, s.addr).nc)
	a.nc.Close()
	eventually(t, "a place is free", func() bool { return s.Stats().Connections == 1 })
	ask[*kmsg.ApiVersionsResponse](dial(t, s.addr), kmsg.NewPtrApiVersionsRequest())
	if n := s.Stats().Rejected; n != 1 {
		t.Errorf("expected 1 refused connection, found %d", n)
	}
}

func TestIdleConnectionIsClosed(t *testing.T) {
	s := startServer(t, newFakeCluster(1), func(c *Config) { c.MaxIdle = time.Second })
	closedByPeer(t, dial(t, s.addr).nc)
	if s.Stats().ClosedOnError != 0 {
		t.Error("an idle end counts as an error")
	}
}

// TestIdleTimeSparesLongPolls: waiting for an answer is not idleness.
func TestIdleTimeSparesLongPolls(t *testing.T) {
	s := startServer(t, newFakeCluster(1), func(c *Config) { c.MaxIdle = time.Second })
	create(t, s, "long", 1, nil)
	w := dial(t, s.addr)
	req := fetchRequest(12, topicOf(t, s, "long"), 0)
	req.MaxWaitMillis = 1500
	if resp := ask[*kmsg.FetchResponse](w, req); resp.ErrorCode != 0 {
		t.Errorf("error %d", resp.ErrorCode)
	}
}

// TestCloseCutsWhatHangs: a request that is never answered does not hold up Close.
func TestCloseCutsWhatHangs(t *testing.T) {
	cluster := newFakeCluster(1)
	s, err := NewServer(testConfig(), cluster, cluster, newFakeCold(), cluster.coordinators)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	row, err := cluster.CreateTopic(testContext(t), NewTopic{Name: "hangs", Partitions: 1, ReplicationFactor: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := cluster.replicas[1]
	r.mu.Lock()
	r.stall = true
	r.mu.Unlock()
	w := dial(t, l.Addr().String())
	req := produceRequest(9, row, 0, -1, testBatch(batch.None, "x"))
	req.TimeoutMillis = 600_000
	w.send(req)
	eventually(t, "the proposal is there", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.stalled) == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); err != context.DeadlineExceeded {
		t.Errorf("close: %v", err)
	}
	<-served
	closedByPeer(t, w.nc)
	r.apply(r.stalled[0]) // too late, and harmless
}

// TestByteBudget: a frame is not read before its bytes are granted.
func TestByteBudget(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "budget", 1, nil)
	if !s.requestBytes.sem.TryAcquire(s.requestBytes.total) {
		t.Fatal("budget is in use")
	}
	w := dial(t, s.addr)
	req := produceRequest(9, topicOf(t, s, "budget"), 0, -1, testBatch(batch.None, "x"))
	w.send(req)
	w.nc.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := io.ReadFull(w.nc, make([]byte, 1)); err == nil {
		t.Fatal("answered without budget")
	}
	s.requestBytes.give(s.requestBytes.total)
	w.nc.SetReadDeadline(time.Now().Add(time.Minute))
	if c := firstError(w.receive(req, 1)); c != 0 {
		t.Errorf("error %d", c)
	}
	eventually(t, "budget is given back", func() bool { return s.requestBytes.sem.TryAcquire(s.requestBytes.total) })
}

func TestThrottleMutes(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	for i := range s.apis {
		if a := s.apis[i]; a != nil && a.key == apiVersionsKey {
			handle := a.handle
			a.handle = func(s *Server, r *request) {
				r.throttle = 200 * time.Millisecond
				handle(s, r)
			}
		}
	}
	w := dial(t, s.addr)
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = 2
	if resp := ask[*kmsg.ApiVersionsResponse](w, req); resp.ThrottleMillis != 200 {
		t.Errorf("expected a throttle time of 200, found %d", resp.ThrottleMillis)
	}
	began := time.Now()
	ask[*kmsg.ApiVersionsResponse](w, req)
	if d := time.Since(began); d < 150*time.Millisecond {
		t.Errorf("the muted connection was read after %v", d)
	}
}

func TestBufferClasses(t *testing.T) {
	var p buffers
	for _, n := range []int{0, 1, 511, 512, 513, 640, 641, 1 << 20, 1<<20 + 1, 100 << 20} {
		b := p.get(n)
		if len(*b) != n {
			t.Errorf("size %d: length %d", n, len(*b))
		}
		if c := cap(*b); n > 512 && c > n+n/4+1 {
			t.Errorf("size %d: capacity %d wastes more than a quarter", n, c)
		}
		class, size := classOf(cap(*b))
		if size != cap(*b) {
			t.Errorf("size %d: a buffer of %d belongs to class %d of size %d", n, cap(*b), class, size)
		}
		p.put(b)
	}
	for n := 1; n < 1<<14; n++ {
		class, size := classOf(n)
		if size < n {
			t.Fatalf("class %d of size %d does not hold %d", class, size, n)
		}
		if next, _ := classOf(size + 1); next != class+1 {
			t.Fatalf("class after %d: expected %d, found %d", size, class+1, next)
		}
	}
}
