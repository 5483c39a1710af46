package transport

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"
)

const (
	// chunkTimeout bounds the wait for one chunk in either direction. The
	// source reads disks, and the receiver writes them.
	chunkTimeout = time.Minute
	// resultTimeout bounds the receiver's fsyncs after the last chunk.
	resultTimeout = 5 * time.Minute
	reasonMax     = 1024
	resultFixed   = 6
)

var resultMagic = [4]byte{'T', 'C', 'P', 'R'}

// ErrSnapshot: the stream did not end up durable at the other side.
var ErrSnapshot = errors.New("transport: snapshot not delivered")

// queueSnapshot hands a MsgSnap to the snapshot senders, or gives it up.
func (t *Transport) queueSnapshot(m *Message) {
	if t.peer(m.To, true) == nil {
		t.snapshotDone(m, ErrClosed)
		return
	}
	select {
	case t.snapshots <- m:
	default:
		t.snapshotDone(m, fmt.Errorf("%d streams wait already: %w", snapshotQueue, ErrSnapshot))
	}
	if t.ctx.Err() != nil {
		t.drainSnapshots() // Close may have looked before us
	}
}

// snapshotDone ends a message with a snapshot; it is called once for each.
func (t *Transport) snapshotDone(m *Message, err error) {
	releasePayloads(m)
	if cerr := m.Snapshot.Close(); err == nil && cerr != nil {
		// The peer has it all the same.
		t.log.Warn("close snapshot source", "shard", m.Shard, "reason", cerr)
	}
	if err == nil {
		t.count.snapsOut.Add(1)
	} else {
		t.count.snapsOutFailed.Add(1)
		if t.ctx.Err() == nil {
			t.log.Warn("snapshot not delivered", "peer", m.To, "shard", m.Shard, "reason", err)
		}
	}
	t.notify.snapshotSent(m.Shard, m.To, err)
}

func (t *Transport) drainSnapshots() {
	for {
		select {
		case m := <-t.snapshots:
			t.snapshotDone(m, ErrClosed)
		default:
			return
		}
	}
}

// sendSnapshots is one of the snapshot senders.
func (t *Transport) sendSnapshots() {
	for {
		select {
		case <-t.ctx.Done():
			return
		case m := <-t.snapshots:
			t.snapshotDone(m, t.sendSnapshot(m))
		}
	}
}

// sendSnapshot streams one snapshot over a connection of its own, and waits
// for the receiver's word that it is durable.
func (t *Transport) sendSnapshot(m *Message) error {
	p := t.peer(m.To, true)
	if p == nil {
		return ErrClosed
	}
	head, err := AppendHeader(nil, &Message{Shard: m.Shard, From: m.From, To: m.To, HW: m.HW, Raft: m.Raft})
	if err != nil {
		return err
	}
	conn, err := t.dial(t.ctx, m.To, laneSnapshot)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	stop := context.AfterFunc(t.ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	if err := t.stream(conn, head, m.Snapshot, p); err != nil {
		// A receiver that gave up has said why before it closed.
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		if rerr := readResult(conn); errors.Is(rerr, ErrSnapshot) {
			return rerr
		}
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(resultTimeout)); err != nil {
		return err
	}
	return readResult(conn)
}

func (t *Transport) stream(conn net.Conn, head []byte, src SnapshotSource, p *peer) error {
	if err := conn.SetWriteDeadline(time.Now().Add(chunkTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(head); err != nil {
		return err
	}
	p.count.framesOut.Add(1)
	cw := newChunkWriter(conn, func(n int) error {
		if wait := t.pace.reserve(n, time.Now()); wait > 0 && !t.pause(wait) {
			return ErrClosed
		}
		p.count.bytesOut.Add(uint64(n))
		return conn.SetWriteDeadline(time.Now().Add(chunkTimeout))
	})
	if _, err := src.WriteTo(cw); err != nil {
		return fmt.Errorf("snapshot source: %w", err)
	}
	return cw.finish()
}

// receiveSnapshot takes one MsgSnap and its stream, and answers with the outcome.
func (t *Transport) receiveSnapshot(conn net.Conn, p *peer, h hello) error {
	deadline := func() error { return conn.SetReadDeadline(time.Now().Add(chunkTimeout)) }
	r := bufio.NewReaderSize(conn, readBuffer)
	if err := deadline(); err != nil {
		return err
	}
	f := frameReader{r: r, bufs: t.o.Buffers}
	in, err := f.next()
	if err != nil {
		return err
	}
	if in.From != h.from || in.To != h.to || in.Payloads != nil {
		putPayloads(t.o.Buffers, in)
		return fmt.Errorf("snapshot frame: expected from %d to %d, found %d and %d, %d payloads: %w",
			h.from, h.to, in.From, in.To, len(in.Payloads), ErrFrame)
	}
	p.count.framesIn.Add(1)
	cr := &chunkReader{r: r, before: deadline}
	err = t.o.Handler.ReceiveSnapshot(in, cr)
	p.count.bytesIn.Add(uint64(f.size) + cr.total)
	if err == nil && cr.err != io.EOF {
		// Whoever is done before the end has seen no end, and no end's check.
		var one [1]byte
		if n, rerr := cr.Read(one[:]); n != 0 || rerr != io.EOF {
			err = fmt.Errorf("snapshot stream not read to its end: %w", ErrSnapshot)
		}
	}
	if err == nil {
		t.count.snapsIn.Add(1)
	} else {
		t.count.snapsInFailed.Add(1)
	}
	return t.sendResult(conn, err, cr)
}

func (t *Transport) sendResult(conn net.Conn, outcome error, cr *chunkReader) error {
	reason := ""
	if outcome != nil {
		if reason = outcome.Error(); reason == "" {
			reason = "unknown"
		}
		reason = reason[:min(len(reason), reasonMax)]
	}
	if err := conn.SetWriteDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(appendResult(nil, reason)); err != nil && outcome == nil {
		return err
	}
	if outcome != nil {
		// Let the reason arrive before the reset that unread bytes cause.
		if tcp, ok := conn.(*net.TCPConn); ok && tcp.CloseWrite() == nil {
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			_, _ = io.CopyN(io.Discard, conn, 16<<20)
		}
	}
	if cr.err != nil && cr.err != io.EOF {
		return cr.err
	}
	return outcome
}

func appendResult(dst []byte, reason string) []byte {
	start := len(dst)
	dst = append(dst, resultMagic[:]...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(reason)))
	dst = append(dst, reason...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// readResult returns nil when the receiver says that all is durable, and its
// reason, as ErrSnapshot, when it says otherwise.
func readResult(r io.Reader) error {
	var b [resultFixed + reasonMax + 4]byte
	if _, err := io.ReadFull(r, b[:resultFixed]); err != nil {
		return fmt.Errorf("snapshot result: %w", unexpected(err))
	}
	n := int(binary.LittleEndian.Uint16(b[4:]))
	if [4]byte(b[:4]) != resultMagic || n > reasonMax {
		return fmt.Errorf("snapshot result: found %x: %w", b[:resultFixed], ErrFrame)
	}
	if _, err := io.ReadFull(r, b[resultFixed:resultFixed+n+4]); err != nil {
		return fmt.Errorf("snapshot result: %w", unexpected(err))
	}
	body := b[:resultFixed+n]
	if binary.LittleEndian.Uint32(b[resultFixed+n:]) != crc32.Checksum(body, castagnoli) {
		return fmt.Errorf("snapshot result crc: %w", ErrFrame)
	}
	if n > 0 {
		return fmt.Errorf("receiver: %s: %w", body[resultFixed:], ErrSnapshot)
	}
	return nil
}
