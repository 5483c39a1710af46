package ingest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Principal is who a connection speaks for.
type Principal struct {
	// Name is "User:ANONYMOUS" until there is authentication.
	Name string
}

var anonymous = Principal{Name: "User:ANONYMOUS"}

// frame is one request's bytes, lent from the pool and charged to the byte
// budget until the last holder releases it.
type frame struct {
	srv     *Server
	buf     *[]byte
	charged int64
	refs    atomic.Int32
}

func (f *frame) hold() { f.refs.Add(1) }

func (f *frame) release() {
	if n := f.refs.Add(-1); n == 0 {
		f.srv.pool.put(f.buf)
		f.srv.requestBytes.give(f.charged)
		f.buf = nil
	}
}

// request is one request from its frame to its answer.
type request struct {
	conn        *conn
	api         *api
	version     int16
	correlation int32
	clientID    string
	principal   Principal
	received    time.Time
	size        int
	frame       *frame
	body        []byte // slice of the frame
	msg         kmsg.Request

	// finished is set by the first finish; done tells the writer.
	finished atomic.Bool
	done     chan struct{}
	// The answer, written before done.
	lazy     func() kmsg.Response // encoded by the writer
	head     *[]byte              // pooled: size, header, encoded response
	rest     net.Buffers          // stored bytes and what lies between them, after head
	restSize int
	cleanup  func()
	silent   bool  // acks=0: nothing is sent
	abort    error // closes the connection instead of an answer
	failed   bool  // counts as an error in the statistics
	throttle time.Duration
}

// parseHeader reads the request header that follows the frame's size.
func (r *request) parseHeader(b []byte) error {
	if len(b) < minFrame {
		return fmt.Errorf("request header: expected at least %d bytes, found %d", minFrame, len(b))
	}
	r.correlation = int32(binary.BigEndian.Uint32(b[4:]))
	b = b[8:]
	n := int(int16(binary.BigEndian.Uint16(b)))
	b = b[2:]
	if n > len(b) || n > maxClientID {
		return fmt.Errorf("client id: expected at most %d bytes, found %d", min(len(b), maxClientID), n)
	}
	if n > 0 {
		r.clientID, b = string(b[:n]), b[n:]
	}
	r.body = b
	if !r.msg.IsFlexible() {
		return nil
	}
	rest, err := skipTags(b)
	if err != nil {
		return fmt.Errorf("request header: %w", err)
	}
	r.body = rest
	return nil
}

// decode reads the body. A panic of the decoder is the frame's fault.
func (r *request) decode() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("decoder failed: %v", p)
		}
	}()
	return r.msg.ReadFrom(r.body)
}

var errTags = errors.New("tagged fields are truncated, or too many")

// skipTags skips a tag section: count, then tag, size, bytes for each.
func skipTags(b []byte) ([]byte, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 || count > maxTags {
		return nil, errTags
	}
	b = b[n:]
	for range count {
		_, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errTags
		}
		b = b[n:]
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, errTags
		}
		b = b[n+int(size):]
	}
	return b, nil
}

// finish answers with resp, encoded here.
func (r *request) finish(resp kmsg.Response) {
	if !r.finished.CompareAndSwap(false, true) {
		return
	}
	r.encode(resp)
	r.conn.held.add(len(*r.head))
	r.signal()
}

// finishLazy answers with what make returns, called and encoded by the writer.
func (r *request) finishLazy(make func() kmsg.Response) {
	if !r.finished.CompareAndSwap(false, true) {
		return
	}
	r.lazy = make
	r.signal()
}

// finishRaw answers with bytes that are encoded already: head begins with room
// for size and header (see rawHeader); rest follows it. cleanup runs when the
// last byte has left, or will never leave.
func (r *request) finishRaw(head *[]byte, rest net.Buffers, restSize int, cleanup func()) {
	if !r.finished.CompareAndSwap(false, true) {
		r.conn.srv.pool.put(head)
		cleanup()
		return
	}
	binary.BigEndian.PutUint32(*head, uint32(len(*head)-4+restSize))
	r.head, r.rest, r.restSize, r.cleanup = head, rest, restSize, cleanup
	r.conn.held.add(len(*head) + restSize)
	r.signal()
}

// finishSilent ends a request that has no answer.
func (r *request) finishSilent() {
	if r.finished.CompareAndSwap(false, true) {
		r.silent = true
		r.signal()
	}
}

// finishAbort closes the connection in place of an answer.
func (r *request) finishAbort(err error) {
	if r.finished.CompareAndSwap(false, true) {
		r.abort = err
		r.signal()
	}
}

func (r *request) signal() { close(r.done) }

// rawHeader appends room for the size, and the response header.
func (r *request) rawHeader(dst []byte, flexible bool) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.correlation))
	if flexible {
		dst = append(dst, 0)
	}
	return dst
}

// encode builds head from a kmsg response. ApiVersions answers have the v0
// header always, since a client cannot know yet what we understand.
func (r *request) encode(resp kmsg.Response) {
	if t, ok := resp.(kmsg.SetThrottleResponse); ok && r.throttle > 0 {
		t.SetThrottle(int32(r.throttle.Milliseconds()))
	}
	r.head = r.conn.srv.pool.get(4 << 10)
	dst := r.rawHeader((*r.head)[:0], resp.IsFlexible() && r.api.key != apiVersionsKey)
	dst = resp.AppendTo(dst)
	binary.BigEndian.PutUint32(dst, uint32(len(dst)-4))
	*r.head = dst
}

// dispose gives back everything that the answer holds.
func (r *request) dispose() {
	srv := r.conn.srv
	held := r.restSize
	if r.head != nil {
		held += len(*r.head)
		srv.pool.put(r.head)
		r.head = nil
	}
	r.conn.held.add(-held)
	if r.cleanup != nil {
		r.cleanup()
		r.cleanup = nil
	}
	r.rest = nil
}
