package ingest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire is a raw client: it sends kmsg requests and reads answers.
type wire struct {
	t           testing.TB
	nc          net.Conn
	correlation int32
}

func dial(t testing.TB, addr string) *wire {
	t.Helper()
	var d net.Dialer
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(time.Minute))
	return &wire{t: t, nc: nc}
}

func (w *wire) write(b []byte) {
	w.t.Helper()
	if _, err := w.nc.Write(b); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) send(req kmsg.Request) {
	w.t.Helper()
	w.correlation++
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("wire"))
	w.write(f.AppendRequest(nil, req, w.correlation))
}

// frame reads one answer's bytes after its size.
func (w *wire) frame() []byte {
	w.t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(w.nc, size[:]); err != nil {
		w.t.Fatalf("answer's size: %v", err)
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(w.nc, b); err != nil {
		w.t.Fatalf("answer's body: %v", err)
	}
	return b
}

// receive reads the answer to req, and checks that nothing is left over by
// encoding it again.
func (w *wire) receive(req kmsg.Request, correlation int32) kmsg.Response {
	w.t.Helper()
	b := w.frame()
	if got := int32(binary.BigEndian.Uint32(b)); got != correlation {
		w.t.Fatalf("correlation id: expected %d, found %d", correlation, got)
	}
	b = b[4:]
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && req.Key() != apiVersionsKey {
		if b[0] != 0 {
			w.t.Fatalf("response header has tags: %x", b[0])
		}
		b = b[1:]
	}
	if err := resp.ReadFrom(b); err != nil {
		w.t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	if again := resp.AppendTo(nil); len(again) != len(b) {
		w.t.Fatalf("%s v%d: answer of %d bytes, encoded again %d", kmsg.NameForKey(req.Key()), req.GetVersion(), len(b), len(again))
	}
	return resp
}

// ask sends a request and reads its answer.
func ask[T kmsg.Response](w *wire, req kmsg.Request) T {
	w.t.Helper()
	w.send(req)
	return w.receive(req, w.correlation).(T)
}
