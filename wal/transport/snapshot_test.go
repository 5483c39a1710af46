package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
)

// source is a snapshot of given bytes.
type source struct {
	data   []byte
	err    error         // after data
	begun  chan struct{} // closed by the first write, if set
	wait   chan struct{} // WriteTo waits for it, if set
	closed *atomic.Int64
}

func (s *source) WriteTo(w io.Writer) (int64, error) {
	if s.begun != nil {
		close(s.begun)
	}
	if s.wait != nil {
		<-s.wait
	}
	n, err := w.Write(s.data)
	if err == nil {
		err = s.err
	}
	return int64(n), err
}

func (s *source) Close() error {
	if s.closed != nil {
		s.closed.Add(1)
	}
	return nil
}

func snap(from, to uint64, s *source) *Message {
	return &Message{Shard: 3, From: from, To: to, HW: 8, Snapshot: s,
		Raft: &raftpb.Message{Type: raftpb.MsgSnap.Enum(), From: &from, To: &to, Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{}}}}
}

func TestSnapshotArrives(t *testing.T) {
	w := newWorld(t)
	a, b := w.add(1, nil), w.add(2, nil)
	data := bytes.Repeat([]byte("state and entries "), 200_000)
	got := make(chan []byte, 1)
	b.rec.snapshot = func(in *Inbound, r io.Reader) error {
		if in.Shard != 3 || in.HW != 8 || in.Raft.GetType() != raftpb.MsgSnap {
			t.Errorf("message: %+v", in)
		}
		all, err := io.ReadAll(r)
		got <- all
		return err
	}
	closed := new(atomic.Int64)
	a.Send(snap(1, 2, &source{data: data, closed: closed}))
	if err := next(t, a.rec.sent); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(next(t, got), data) || closed.Load() != 1 {
		t.Fatalf("stream differs, or source closed %d times", closed.Load())
	}
	if as, bs := a.Stats(), b.Stats(); as.SnapshotsSent != 1 || bs.SnapshotsReceived != 1 {
		t.Fatalf("stats: %+v %+v", as, bs)
	}
}

func TestSnapshotFailures(t *testing.T) {
	w := newWorld(t)
	a, b := w.add(1, nil), w.add(2, nil)
	big := make([]byte, 8<<20)
	readAll := func(_ *Inbound, r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }
	for name, c := range map[string]struct {
		src     *source
		receive func(in *Inbound, r io.Reader) error
		says    string
	}{
		"source fails":         {&source{data: big, err: errors.New("disk read failed")}, readAll, "disk read failed"},
		"receiver fails early": {&source{data: big}, func(*Inbound, io.Reader) error { return errors.New("no room on disk") }, "no room on disk"},
		"receiver fails late": {&source{data: big}, func(in *Inbound, r io.Reader) error {
			if err := readAll(in, r); err != nil {
				return err
			}
			return errors.New("fsync failed")
		}, "fsync failed"},
		"receiver leaves the rest": {&source{data: big}, func(_ *Inbound, r io.Reader) error {
			_, err := r.Read(make([]byte, 10))
			return err
		}, "not read to its end"},
	} {
		received := make(chan error, 1)
		b.rec.snapshot = func(in *Inbound, r io.Reader) error {
			err := c.receive(in, r)
			received <- err
			return err
		}
		closed := new(atomic.Int64)
		c.src.closed = closed
		a.Send(snap(1, 2, c.src))
		err := next(t, a.rec.sent)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if closed.Load() != 1 {
			t.Errorf("%s: source closed %d times", name, closed.Load())
		}
		if rerr := next(t, received); name == "source fails" && !errors.Is(rerr, io.ErrUnexpectedEOF) {
			t.Errorf("%s: the receiver saw %v", name, rerr)
		}
	}
	a.Send(snap(1, 77, &source{}))
	if err := next(t, a.rec.sent); err == nil {
		t.Error("a snapshot to an unknown address succeeded")
	}
}

// flipping damages one byte of what is written, after skip bytes.
type flipping struct {
	net.Conn
	skip int
}

func (f *flipping) Write(p []byte) (int, error) {
	if f.skip >= 0 && f.skip < len(p) {
		p = bytes.Clone(p)
		p[f.skip] ^= 0x10
	}
	f.skip -= len(p)
	return f.Conn.Write(p)
}

func TestSnapshotCorruptionIsSeen(t *testing.T) {
	for _, at := range []int{40, 120, 1000, chunkMax, chunkMax + 500, 3 << 20} {
		w := newWorld(t)
		a := w.add(1, func(o *Options) {
			o.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
				return &flipping{Conn: c, skip: at}, err
			}
		})
		b := w.add(2, nil)
		data := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
		b.rec.snapshot = func(_ *Inbound, r io.Reader) error {
			got, err := io.ReadAll(r)
			if !bytes.HasPrefix(data, got) {
				t.Errorf("flip at %d: damaged bytes reached the handler", at)
			}
			return err
		}
		a.Send(snap(1, 2, &source{data: data}))
		if err := next(t, a.rec.sent); err == nil {
			t.Fatalf("flip at %d: delivered", at)
		}
		if s := b.Stats(); s.SnapshotsReceived != 0 {
			t.Fatalf("flip at %d: received", at)
		}
	}
}

// TestSnapshotsAreBounded: streams beyond the bound wait, those beyond the
// queue fail, the receiver turns away more than it takes at once, and Close
// ends all of them.
func TestSnapshotsAreBounded(t *testing.T) {
	w := newWorld(t)
	a := w.add(1, func(o *Options) { o.Snapshots = 1 })
	c := w.add(3, nil)
	b := w.add(2, func(o *Options) { o.Snapshots = 1 })
	b.rec.snapshot = func(_ *Inbound, r io.Reader) error { _, err := io.Copy(io.Discard, r); return err }
	closed := new(atomic.Int64)
	first := &source{data: []byte("x"), begun: make(chan struct{}), wait: make(chan struct{}), closed: closed}
	a.Send(snap(1, 2, first))
	next(t, first.begun)
	c.Send(snap(3, 2, &source{data: []byte("x")}))
	if err := next(t, c.rec.sent); !errors.Is(err, ErrHandshake) {
		t.Fatalf("a second stream to a receiver of one: %v", err)
	}
	for range snapshotQueue + 1 {
		a.Send(snap(1, 2, &source{data: []byte("x"), closed: closed}))
	}
	if err := next(t, a.rec.sent); !errors.Is(err, ErrSnapshot) {
		t.Fatalf("one more than the queue holds: %v", err)
	}
	close(first.wait)
	if err := next(t, a.rec.sent); err != nil {
		t.Fatalf("the first stream: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a.Send(snap(1, 2, &source{closed: closed}))
	if closed.Load() != snapshotQueue+3 {
		t.Fatalf("sources closed: expected %d, found %d", snapshotQueue+3, closed.Load())
	}
}

// TestCloseEndsStream: neither side's Close waits for a stream to end.
func TestCloseEndsStream(t *testing.T) {
	w := newWorld(t)
	a := w.add(1, func(o *Options) { o.SnapshotBytesPerSecond = 1000 }) // would take an hour
	b := w.add(2, nil)
	got := make(chan error, 1)
	first := make(chan struct{})
	b.rec.snapshot = func(_ *Inbound, r io.Reader) error {
		_, err := r.Read(make([]byte, 1))
		close(first)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		got <- err
		return err
	}
	a.Send(snap(1, 2, &source{data: make([]byte, 4<<20)}))
	next(t, first)
	start := time.Now()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := next(t, got); err == nil {
		t.Fatal("the receiver took a stream that was cut")
	}
	if d := time.Since(start); d > patience {
		t.Fatalf("close took %v", d)
	}
}
