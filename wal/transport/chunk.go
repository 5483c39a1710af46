package transport

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
	"time"
)

const (
	chunkHeadLen = 8
	// chunkMax bounds what a receiver must hold to check a chunk.
	chunkMax = 256 << 10
)

func chunkCRC(number uint64, p []byte) uint32 {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], number)
	return crc32.Update(crc32.Checksum(n[:], castagnoli), castagnoli, p)
}

// chunkEnd is the CRC of the chunk that ends a stream of total bytes.
func chunkEnd(number, total uint64) uint32 {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], total)
	return chunkCRC(number, n[:])
}

// chunkWriter cuts a stream into chunks. before is called with each chunk's
// size before it is written: pacing and deadlines.
type chunkWriter struct {
	w      io.Writer
	before func(n int) error
	number uint64
	total  uint64
	buf    []byte // chunk head, then what waits
}

func newChunkWriter(w io.Writer, before func(n int) error) *chunkWriter {
	return &chunkWriter{w: w, before: before, buf: make([]byte, chunkHeadLen, chunkHeadLen+chunkMax)}
}

// Write implements io.Writer.
func (c *chunkWriter) Write(p []byte) (int, error) {
	written := len(p)
	for len(p) > 0 {
		n := min(len(p), cap(c.buf)-len(c.buf))
		c.buf, p = append(c.buf, p[:n]...), p[n:]
		if len(c.buf) == cap(c.buf) {
			if err := c.flush(); err != nil {
				return 0, err
			}
		}
	}
	return written, nil
}

func (c *chunkWriter) flush() error {
	n := len(c.buf) - chunkHeadLen
	if n == 0 {
		return nil
	}
	c.total += uint64(n)
	return c.emit(n, chunkCRC(c.number, c.buf[chunkHeadLen:]))
}

func (c *chunkWriter) emit(n int, crc uint32) error {
	binary.LittleEndian.PutUint32(c.buf, uint32(n))
	binary.LittleEndian.PutUint32(c.buf[4:], crc)
	if err := c.before(len(c.buf)); err != nil {
		return err
	}
	_, err := c.w.Write(c.buf)
	c.number++
	c.buf = c.buf[:chunkHeadLen]
	return err
}

// finish writes what waits, and the end.
func (c *chunkWriter) finish() error {
	if err := c.flush(); err != nil {
		return err
	}
	return c.emit(0, chunkEnd(c.number, c.total))
}

// chunkReader gives a stream back, checked. io.EOF comes only after the chunk
// that ends it; a connection that ends before gives io.ErrUnexpectedEOF.
type chunkReader struct {
	r      io.Reader
	before func() error // before each chunk: deadlines
	number uint64
	total  uint64
	buf    []byte
	rest   []byte // of buf, not yet read
	err    error  // sticky; io.EOF at the end
}

// Read implements io.Reader.
func (c *chunkReader) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		if c.err == nil {
			c.err = c.next()
		}
		if c.err != nil {
			return 0, c.err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *chunkReader) next() error {
	if err := c.before(); err != nil {
		return err
	}
	var head [chunkHeadLen]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return unexpected(err)
	}
	n, want := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:])
	if n > chunkMax {
		return fmt.Errorf("snapshot chunk %d: expected at most %d bytes, found %d: %w", c.number, chunkMax, n, ErrFrame)
	}
	if n == 0 {
		if found := chunkEnd(c.number, c.total); found != want {
			return fmt.Errorf("snapshot end after %d bytes: expected crc %08x, found %08x: %w", c.total, want, found, ErrFrame)
		}
		return io.EOF
	}
	if cap(c.buf) < int(n) {
		c.buf = make([]byte, chunkMax)
	}
	b := c.buf[:n]
	if _, err := io.ReadFull(c.r, b); err != nil {
		return unexpected(err)
	}
	if found := chunkCRC(c.number, b); found != want {
		return fmt.Errorf("snapshot chunk %d: expected crc %08x, found %08x: %w", c.number, want, found, ErrFrame)
	}
	c.number++
	c.total += uint64(n)
	c.rest = b
	return nil
}

// pacer spreads bytes over time: all that share it get perSecond together.
type pacer struct {
	perSecond int64 // 0: no pacing
	mu        sync.Mutex
	due       time.Time // when the bytes granted so far will have been paid for
}

// reserve grants n bytes and tells how long to wait before sending them.
func (p *pacer) reserve(n int, now time.Time) time.Duration {
	if p.perSecond <= 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due.Before(now) {
		p.due = now
	}
	wait := p.due.Sub(now)
	p.due = p.due.Add(time.Duration(int64(n) * int64(time.Second) / p.perSecond))
	return wait
}
