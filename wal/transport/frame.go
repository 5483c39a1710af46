package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Limits, all checked before anything is allocated by what a frame claims.
const (
	// MaxRaftMessage bounds the Raft message: descriptors are 64 bytes, and a
	// configuration change at most 64 KiB.
	MaxRaftMessage = 1 << 20
	// MaxPayload bounds one payload: the largest batch (64 MiB) and its item header.
	MaxPayload = 65 << 20
	// MaxPayloads bounds the entries of one message; shards send far fewer.
	MaxPayloads = 1024
	// MaxFramePayloads bounds the payloads of one frame together. It leaves
	// room for a message of 8 largest batches, which must be sendable or its
	// follower would never catch up; a receiver holds only what has arrived.
	MaxFramePayloads = 1 << 30
)

const (
	frameHeadLen  = 44
	frameVersion  = 1
	frameCRCAt    = 40
	frameMagicLow = 'T'
	frameMagicHi  = 'C'
)

// Errors of the codec. A frame that gives ErrFrame or ErrVersion ends its
// connection: where the next one starts is not known.
var (
	// ErrFrame: the bytes are no frame of ours.
	ErrFrame = errors.New("transport: malformed frame")
	// ErrVersion: a frame or handshake of a version that this binary does not know.
	ErrVersion = errors.New("transport: unknown version")
	// ErrFrameLimit: a message too large to be framed; it is the sender's error.
	ErrFrameLimit = errors.New("transport: message over the frame's limits")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendHeader appends everything of m's frame up to its payloads.
func AppendHeader(dst []byte, m *Message) ([]byte, error) {
	if err := checkPayloads(m); err != nil {
		return dst, err
	}
	start := len(dst)
	var head [frameHeadLen]byte
	head[0], head[1], head[2] = frameMagicLow, frameMagicHi, frameVersion
	binary.LittleEndian.PutUint32(head[4:], m.Shard)
	binary.LittleEndian.PutUint64(head[8:], m.From)
	binary.LittleEndian.PutUint64(head[16:], m.To)
	binary.LittleEndian.PutUint64(head[24:], m.HW)
	binary.LittleEndian.PutUint32(head[36:], uint32(len(m.Payloads)))
	out := append(dst, head[:]...)
	for _, p := range m.Payloads {
		n := 0
		if p != nil {
			n = p.Len()
		}
		out = binary.LittleEndian.AppendUint32(out, uint32(n))
	}
	raftAt := len(out)
	out, err := proto.MarshalOptions{}.MarshalAppend(out, m.Raft)
	if err != nil {
		return dst, fmt.Errorf("raft message: %w", err)
	}
	n := len(out) - raftAt
	if n > MaxRaftMessage {
		return dst, fmt.Errorf("raft message: expected at most %d bytes, found %d: %w", MaxRaftMessage, n, ErrFrameLimit)
	}
	f := out[start:]
	binary.LittleEndian.PutUint32(f[32:], uint32(n))
	binary.LittleEndian.PutUint32(f[frameCRCAt:], frameCRC(f[:frameHeadLen], f[frameHeadLen:]))
	return out, nil
}

// checkPayloads keeps a sender from making what a receiver would refuse.
func checkPayloads(m *Message) error {
	switch {
	case m.Raft == nil || m.Raft.GetFrom() != m.From || m.Raft.GetTo() != m.To:
		return fmt.Errorf("raft message: expected from %d to %d, found %d and %d: %w",
			m.From, m.To, m.Raft.GetFrom(), m.Raft.GetTo(), ErrFrameLimit)
	case len(m.Raft.GetEntries()) > MaxPayloads:
		return fmt.Errorf("entries: expected at most %d, found %d: %w", MaxPayloads, len(m.Raft.GetEntries()), ErrFrameLimit)
	case len(m.Payloads) != 0 && len(m.Payloads) != len(m.Raft.GetEntries()):
		return fmt.Errorf("payloads: expected %d, found %d: %w", len(m.Raft.GetEntries()), len(m.Payloads), ErrFrameLimit)
	}
	total := 0
	for _, p := range m.Payloads {
		if p == nil {
			continue
		}
		n := p.Len()
		if total += n; n <= 0 || n > MaxPayload || total > MaxFramePayloads {
			return fmt.Errorf("payload: expected 1 to %d bytes, and at most %d in a frame, found %d and %d: %w",
				MaxPayload, MaxFramePayloads, n, total, ErrFrameLimit)
		}
	}
	return nil
}

func frameCRC(head, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum(head[:frameCRCAt], castagnoli), castagnoli, rest)
}

// AppendFrame appends m's whole frame, payloads and all. It loads them and
// does not release them. The network never copies so; the simulator may.
func AppendFrame(dst []byte, m *Message) ([]byte, error) {
	out, err := AppendHeader(dst, m)
	if err != nil {
		return dst, err
	}
	for i, p := range m.Payloads {
		if p == nil {
			continue
		}
		b, err := loadPayload(p)
		if err != nil {
			return dst, fmt.Errorf("payload %d: %w", i, err)
		}
		out = append(out, b...)
	}
	return out, nil
}

// loadPayload insists on the length that the header has told already.
func loadPayload(p Payload) ([]byte, error) {
	want := p.Len()
	b, err := p.Load()
	if err != nil {
		return nil, err
	}
	if len(b) != want {
		return nil, fmt.Errorf("payload: expected %d bytes, loaded %d: %w", want, len(b), ErrFrameLimit)
	}
	return b, nil
}

// DecodeFrame reads one frame from the front of b and says how many bytes it
// took. Payloads are copied into buffers from bufs; on an error none is kept.
// io.ErrUnexpectedEOF means that b ends inside the frame.
func DecodeFrame(b []byte, bufs Buffers) (*Inbound, int, error) {
	r := bytes.NewReader(b)
	in, err := (&frameReader{r: r, bufs: bufs}).next()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, 0, err
	}
	return in, len(b) - r.Len(), nil
}

// frameReader reads frames off a stream. Its buffer holds one frame's header
// part, at most a little over MaxRaftMessage; payloads go straight into
// buffers of their own.
type frameReader struct {
	r    io.Reader
	bufs Buffers
	head [frameHeadLen]byte
	buf  []byte
	// body, when set, is called before what follows a head is read, and before
	// each payload: the place for a deadline.
	body func()
	// size is the last frame's, for the counters.
	size int
}

// next reads one frame. io.EOF comes only between frames.
func (f *frameReader) next() (*Inbound, error) {
	if _, err := io.ReadFull(f.r, f.head[:]); err != nil {
		return nil, err
	}
	raftLen, count, err := checkHead(f.head[:])
	if err != nil {
		return nil, err
	}
	if f.body != nil {
		f.body()
	}
	n := 4*count + raftLen
	if cap(f.buf) < n {
		f.buf = make([]byte, n)
	}
	rest := f.buf[:n]
	if _, err := io.ReadFull(f.r, rest); err != nil {
		return nil, unexpected(err)
	}
	in, lengths, err := parseFrame(f.head[:], rest, count)
	if err != nil {
		return nil, err
	}
	f.size = frameHeadLen + n
	if err := f.payloads(in, lengths); err != nil {
		return nil, err
	}
	return in, nil
}

// checkHead checks the fixed part: what bounds the rest.
func checkHead(head []byte) (raftLen, count int, err error) {
	if head[0] != frameMagicLow || head[1] != frameMagicHi {
		return 0, 0, fmt.Errorf("frame magic: found %x: %w", head[:2], ErrFrame)
	}
	if head[2] != frameVersion {
		return 0, 0, fmt.Errorf("frame version: expected %d, found %d: %w", frameVersion, head[2], ErrVersion)
	}
	r, p := binary.LittleEndian.Uint32(head[32:]), binary.LittleEndian.Uint32(head[36:])
	if head[3] != 0 || r > MaxRaftMessage || p > MaxPayloads {
		return 0, 0, fmt.Errorf("frame: expected at most %d bytes and %d payloads, found %d and %d (flags %d): %w",
			MaxRaftMessage, MaxPayloads, r, p, head[3], ErrFrame)
	}
	return int(r), int(p), nil
}

// parseFrame reads everything up to the payloads. The result shares nothing
// with its input but lengths, which is a part of rest.
func parseFrame(head, rest []byte, count int) (in *Inbound, lengths []byte, err error) {
	if want, found := binary.LittleEndian.Uint32(head[frameCRCAt:]), frameCRC(head, rest); want != found {
		return nil, nil, fmt.Errorf("frame crc: expected %08x, found %08x: %w", want, found, ErrFrame)
	}
	lengths = rest[:4*count]
	total := 0
	for i := 0; i < len(lengths); i += 4 {
		n := binary.LittleEndian.Uint32(lengths[i:])
		if n > MaxPayload {
			return nil, nil, fmt.Errorf("frame payload: expected at most %d bytes, found %d: %w", MaxPayload, n, ErrFrame)
		}
		if total += int(n); total > MaxFramePayloads {
			return nil, nil, fmt.Errorf("frame payloads: expected at most %d bytes: %w", MaxFramePayloads, ErrFrame)
		}
	}
	in = &Inbound{
		Shard: binary.LittleEndian.Uint32(head[4:]),
		From:  binary.LittleEndian.Uint64(head[8:]),
		To:    binary.LittleEndian.Uint64(head[16:]),
		HW:    binary.LittleEndian.Uint64(head[24:]),
		Raft:  &raftpb.Message{},
	}
	if err := proto.Unmarshal(rest[4*count:], in.Raft); err != nil {
		return nil, nil, fmt.Errorf("frame's raft message: %w: %w", err, ErrFrame)
	}
	if in.Raft.GetFrom() != in.From || in.Raft.GetTo() != in.To {
		return nil, nil, fmt.Errorf("frame's raft message: expected from %d to %d, found %d and %d: %w",
			in.From, in.To, in.Raft.GetFrom(), in.Raft.GetTo(), ErrFrame)
	}
	if n := len(in.Raft.GetEntries()); n > MaxPayloads || count != 0 && count != n {
		return nil, nil, fmt.Errorf("frame payloads: expected %d, at most %d, found %d: %w", n, MaxPayloads, count, ErrFrame)
	}
	return in, lengths, nil
}

// payloads reads them one by one, so that a frame cut short has claimed no
// more memory than one payload beyond what it brought.
func (f *frameReader) payloads(in *Inbound, lengths []byte) error {
	if len(lengths) == 0 {
		return nil
	}
	in.Payloads = make([][]byte, len(lengths)/4)
	for i := range in.Payloads {
		n := int(binary.LittleEndian.Uint32(lengths[4*i:]))
		if n == 0 {
			continue
		}
		if f.body != nil {
			f.body()
		}
		p := f.bufs.Get(n)
		in.Payloads[i] = p
		if _, err := io.ReadFull(f.r, p); err != nil {
			putPayloads(f.bufs, in)
			return unexpected(err)
		}
		f.size += n
	}
	return nil
}

// putPayloads gives an inbound message's buffers back.
func putPayloads(bufs Buffers, in *Inbound) {
	for i, p := range in.Payloads {
		if p != nil {
			bufs.Put(p)
			in.Payloads[i] = nil
		}
	}
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
