package transport

import (
	"fmt"
	"net"
	"time"
)

const (
	// flushBytes is how much is gathered for one vectored write.
	flushBytes = 4 << 20
	// loadWhole: payloads of a frame up to this size are loaded before its
	// header is sent, so that one which cannot be loaded costs the message
	// and not the connection. Larger frames (catch-up with huge batches) are
	// loaded and sent piece by piece, to hold little at a time.
	loadWhole = 16 << 20
	// keepScratch bounds the header buffer that is kept between batches.
	keepScratch = 1 << 20
)

// frameWriter gathers frames and writes them with as few system calls as
// possible: headers from its own buffer, payloads from where they are. It
// holds payloads from add until the flush after it, and releases each once.
type frameWriter struct {
	conn    net.Conn
	timeout time.Duration
	scratch []byte // headers; vec points into it (and into what it was before it grew)
	from    int    // where the header bytes begin that are not in vec yet
	vec     [][]byte
	held    []Payload
	loaded  [][]byte // of the message being added, as far as loaded ahead
	pending int      // bytes gathered
	written int64
	// broken: a frame was begun that cannot be finished, or a write failed.
	broken bool
}

func (w *frameWriter) begin(conn net.Conn, timeout time.Duration) {
	w.conn, w.timeout, w.written, w.broken = conn, timeout, 0, false
}

// end forgets the batch, releases what is still held, and returns the bytes written.
func (w *frameWriter) end() int64 {
	w.reset()
	clear(w.loaded[:cap(w.loaded)])
	w.conn = nil
	if cap(w.scratch) > keepScratch {
		w.scratch = nil
	}
	return w.written
}

func (w *frameWriter) reset() {
	for i, p := range w.held {
		p.Release()
		w.held[i] = nil
	}
	w.held = w.held[:0]
	clear(w.vec)
	w.vec = w.vec[:0]
	w.scratch = w.scratch[:0]
	w.from, w.pending = 0, 0
}

// add gathers one message. When it fails and the writer is not broken, the
// message left no trace and its payloads are still its own.
func (w *frameWriter) add(m *Message) error {
	mark := len(w.scratch)
	scratch, err := AppendHeader(w.scratch, m)
	if err != nil {
		return err
	}
	total := 0
	for _, p := range m.Payloads {
		if p != nil {
			total += p.Len()
		}
	}
	w.loaded = w.loaded[:0]
	if total <= loadWhole {
		if err := w.loadAll(m); err != nil {
			return err
		}
	}
	w.scratch = scratch
	w.pending += len(scratch) - mark
	for i := range m.Payloads {
		if err := w.payload(m, i); err != nil {
			return err
		}
	}
	if w.pending >= flushBytes {
		return w.flush()
	}
	return nil
}

// loadAll loads a message's payloads before anything of it is sent.
func (w *frameWriter) loadAll(m *Message) error {
	for _, p := range m.Payloads {
		var b []byte
		if p != nil {
			var err error
			if b, err = loadPayload(p); err != nil {
				return err
			}
		}
		w.loaded = append(w.loaded, b)
	}
	return nil
}

// payload gathers m's payload i behind the header that has been begun, and
// takes it over from the message.
func (w *frameWriter) payload(m *Message, i int) error {
	p := m.Payloads[i]
	if p == nil {
		return nil
	}
	var b []byte
	if i < len(w.loaded) {
		b = w.loaded[i]
	} else {
		var err error
		if b, err = loadPayload(p); err != nil {
			w.broken = true
			return fmt.Errorf("payload of a frame under way: %w", err)
		}
	}
	w.cutHeaders()
	w.vec = append(w.vec, b)
	w.held = append(w.held, p)
	m.Payloads[i] = nil
	w.pending += len(b)
	if w.pending >= flushBytes {
		return w.flush()
	}
	return nil
}

// cutHeaders makes the header bytes since the last payload one piece.
func (w *frameWriter) cutHeaders() {
	if len(w.scratch) > w.from {
		w.vec = append(w.vec, w.scratch[w.from:len(w.scratch):len(w.scratch)])
		w.from = len(w.scratch)
	}
}

// flush writes what is gathered and releases its payloads.
func (w *frameWriter) flush() error {
	w.cutHeaders()
	if len(w.vec) == 0 {
		return nil
	}
	err := w.conn.SetWriteDeadline(time.Now().Add(w.timeout))
	if err == nil {
		bufs := net.Buffers(w.vec)
		var n int64
		n, err = bufs.WriteTo(w.conn)
		w.written += n
	}
	w.reset()
	w.broken = w.broken || err != nil
	return err
}
