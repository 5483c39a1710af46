package transport

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// countingBuffers counts what is out, and what was ever asked for at once.
type countingBuffers struct {
	out, largest, bytes atomic.Int64
}

func (c *countingBuffers) Get(n int) []byte {
	c.out.Add(1)
	c.bytes.Add(int64(n))
	if int64(n) > c.largest.Load() {
		c.largest.Store(int64(n))
	}
	return make([]byte, n)
}

func (c *countingBuffers) Put(b []byte) {
	c.out.Add(-1)
	c.bytes.Add(-int64(len(b)))
	for i := range b {
		b[i] = 0xdb // whoever still looks at it shall see
	}
}

// fakePayload is a payload that counts how it is used.
type fakePayload struct {
	b        []byte
	n        int // told length, if not len(b)
	err      error
	released *atomic.Int64
}

func (f *fakePayload) Len() int {
	if f.n != 0 {
		return f.n
	}
	return len(f.b)
}
func (f *fakePayload) Load() ([]byte, error) { return f.b, f.err }
func (f *fakePayload) Release() {
	if f.released != nil {
		f.released.Add(1)
	}
}

// app is a MsgApp with one entry for each payload; "" is an entry without one.
func app(shard uint32, from, to, index uint64, payloads ...string) *Message {
	m := &Message{Shard: shard, From: from, To: to, HW: index,
		Raft: &raftpb.Message{Type: raftpb.MsgApp.Enum(), From: &from, To: &to, Index: &index, Term: proto.Uint64(3)}}
	for i, p := range payloads {
		m.Raft.Entries = append(m.Raft.Entries, &raftpb.Entry{Index: proto.Uint64(index + uint64(i) + 1), Term: proto.Uint64(3), Data: []byte("descriptor")})
		if p == "" {
			m.Payloads = append(m.Payloads, nil)
		} else {
			m.Payloads = append(m.Payloads, &fakePayload{b: []byte(p)})
		}
	}
	return m
}

func heartbeat(shard uint32, from, to, commit uint64) *Message {
	return &Message{Shard: shard, From: from, To: to, HW: commit,
		Raft: &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: &from, To: &to, Commit: &commit}}
}

// sameMessage compares what was sent with what came.
func sameMessage(m *Message, in *Inbound) bool {
	if m.Shard != in.Shard || m.From != in.From || m.To != in.To || m.HW != in.HW || !proto.Equal(m.Raft, in.Raft) || len(m.Payloads) != len(in.Payloads) {
		return false
	}
	for i, p := range m.Payloads {
		if (p == nil) != (in.Payloads[i] == nil) || p != nil && !bytes.Equal(p.(*fakePayload).b, in.Payloads[i]) {
			return false
		}
	}
	return true
}

func TestFrameRoundTrip(t *testing.T) {
	bufs := &countingBuffers{}
	messages := []*Message{
		heartbeat(1, 2, 3, 4),
		app(0xffffffff, 1<<63, 1<<63+1, 1<<62, "x"),
		app(7, 1, 2, 10, "", strings.Repeat("payload ", 1000), "", "y"),
		app(7, 1, 2, 10, "", ""),
		app(7, 1, 2, 10),
	}
	var all []byte
	for _, m := range messages {
		var err error
		if all, err = AppendFrame(all, m); err != nil {
			t.Fatal(err)
		}
	}
	for i, m := range messages {
		in, n, err := DecodeFrame(all, bufs)
		if err != nil || !sameMessage(m, in) {
			t.Fatalf("message %d: %v, %+v", i, err, in)
		}
		all = all[n:]
	}
	if len(all) != 0 {
		t.Fatalf("%d bytes left", len(all))
	}
}

// goldenFrame is version 1, made once; today's code must read and write it.
// goldenFrameHex is a frame of version 1, made once; this code must read and write it.
const goldenFrameHex = "54430100" + "07000000" + "0100000000000000" + "0200000000000000" + "0a00000000000000" +
	"2e000000" + "02000000" + "eb1b4ebb" + "02000000" + "00000000" +
	"0803100218012003300a3a101003180b220a64657363726970746f723a101003180c220a64657363726970746f72" + "6869"

func TestFrameGolden(t *testing.T) {
	m := app(7, 1, 2, 10, "hi", "")
	got, err := AppendFrame(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	want, err := hex.DecodeString(goldenFrameHex)
	if err != nil {
		t.Fatal(err)
	}
	in, n, err := DecodeFrame(want, &countingBuffers{})
	if err != nil || n != len(want) || !sameMessage(m, in) {
		t.Fatalf("golden frame: %v\nfound %x", err, got)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("golden frame:\nexpected %x\nfound    %x", want, got)
	}
}

func TestFrameCutAnywhere(t *testing.T) {
	bufs := &countingBuffers{}
	b, err := AppendFrame(nil, app(7, 1, 2, 10, "hello", "", "world"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(b) {
		if _, _, err := DecodeFrame(b[:n], bufs); err != io.ErrUnexpectedEOF {
			t.Fatalf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	if bufs.out.Load() != 0 {
		t.Fatalf("%d buffers lost", bufs.out.Load())
	}
}

func TestFrameBitFlips(t *testing.T) {
	m := app(7, 1, 2, 10, "hello", "", "world")
	b, err := AppendFrame(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * (len(b) - len("helloworld")) {
		b[bit/8] ^= 1 << (bit % 8)
		if in, _, err := DecodeFrame(b, &countingBuffers{}); err == nil {
			t.Fatalf("bit %d flipped: decoded as %+v", bit, in)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

// TestFrameLimits: what a head claims is refused before any memory follows it.
func TestFrameLimits(t *testing.T) {
	valid, err := AppendFrame(nil, app(7, 1, 2, 10, "hello"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		at   int
		v    uint32
		want error
	}{
		{"raft length", 32, MaxRaftMessage + 1, ErrFrame},
		{"raft length huge", 32, 0xffffffff, ErrFrame},
		{"payload count", 36, MaxPayloads + 1, ErrFrame},
		{"payload count huge", 36, 0xffffffff, ErrFrame},
		{"payload length", frameHeadLen, MaxPayload + 1, ErrFrame},
		{"payload length huge", frameHeadLen, 0xffffffff, ErrFrame},
		{"version", 0, 0x00024354, ErrVersion},
		{"magic", 0, 0x00014355, ErrFrame},
		{"flags", 0, 0x01014354, ErrFrame},
	} {
		b := bytes.Clone(valid)
		binary.LittleEndian.PutUint32(b[c.at:], c.v)
		headEnd := len(b) - len("hello")
		binary.LittleEndian.PutUint32(b[frameCRCAt:], frameCRC(b[:frameHeadLen], b[frameHeadLen:headEnd]))
		bufs := &countingBuffers{}
		if _, _, err := DecodeFrame(b, bufs); !errors.Is(err, c.want) || bufs.largest.Load() != 0 {
			t.Errorf("%s: expected %v and no buffer, found %v and one of %d", c.name, c.want, err, bufs.largest.Load())
		}
	}
}

// TestFrameRefusesToSend: a sender makes no frame that a receiver would refuse.
func TestFrameRefusesToSend(t *testing.T) {
	lie := func(n int) *Message {
		m := app(1, 1, 2, 0, "x")
		m.Payloads[0].(*fakePayload).n = n
		return m
	}
	huge := app(1, 1, 2, 0)
	huge.Raft.Context = make([]byte, MaxRaftMessage)
	many := app(1, 1, 2, 0, make([]string, MaxPayloads+1)...)
	uneven := app(1, 1, 2, 0, "a", "b")
	uneven.Payloads = uneven.Payloads[:1]
	from := app(1, 1, 2, 0)
	from.From = 9
	sum := app(1, 1, 2, 0, strings.Split(strings.Repeat("x,", 20), ",")...)
	for _, p := range sum.Payloads {
		if p != nil {
			p.(*fakePayload).n = MaxPayload
		}
	}
	for name, m := range map[string]*Message{
		"payload too long": lie(MaxPayload + 1), "negative payload": lie(-1), "raft message": huge, "entries": many,
		"payload count": uneven, "from": from, "no raft message": {From: 1, To: 2}, "sum": sum,
	} {
		if b, err := AppendHeader([]byte("kept"), m); !errors.Is(err, ErrFrameLimit) || string(b) != "kept" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := AppendFrame(nil, lie(5)); !errors.Is(err, ErrFrameLimit) {
		t.Errorf("payload of another length than told: %v", err)
	}
}

func TestFrameEntriesWithoutPayloads(t *testing.T) {
	// As many entries as fit the raft message, and no payload list: refused by
	// the number of entries alone.
	from, to := uint64(1), uint64(2)
	m := &raftpb.Message{Type: raftpb.MsgApp.Enum(), From: &from, To: &to}
	for range MaxPayloads + 1 {
		m.Entries = append(m.Entries, &raftpb.Entry{})
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	b, err := AppendFrame(nil, heartbeat(1, 1, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	b = append(b[:frameHeadLen], raw...)
	binary.LittleEndian.PutUint32(b[32:], uint32(len(raw)))
	binary.LittleEndian.PutUint32(b[frameCRCAt:], frameCRC(b[:frameHeadLen], raw))
	if _, _, err := DecodeFrame(b, &countingBuffers{}); !errors.Is(err, ErrFrame) {
		t.Fatalf("expected %v, found %v", ErrFrame, err)
	}
}

// FuzzFrame: no panic, no lost buffer, no more memory than bytes that came;
// what decodes encodes to a frame that decodes to the same.
func FuzzFrame(f *testing.F) {
	for _, m := range []*Message{heartbeat(1, 2, 3, 4), app(7, 1, 2, 10, "hello", "", "world"), app(1, 1, 2, 3)} {
		b, err := AppendFrame(nil, m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, true)
		f.Add(b[:len(b)/2], false)
	}
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, b []byte, repair bool) {
		if repair {
			repairFrame(b)
		}
		bufs := &countingBuffers{}
		in, n, err := DecodeFrame(b, bufs)
		if err != nil {
			if bufs.out.Load() != 0 {
				t.Fatalf("%d buffers lost on %v", bufs.out.Load(), err)
			}
			if !errors.Is(err, ErrFrame) && !errors.Is(err, ErrVersion) && err != io.ErrUnexpectedEOF {
				t.Fatalf("unnamed error: %v", err)
			}
			return
		}
		if n > len(b) || bufs.bytes.Load() > int64(n) {
			t.Fatalf("took %d bytes of %d, buffers of %d", n, len(b), bufs.bytes.Load())
		}
		m := &Message{Shard: in.Shard, From: in.From, To: in.To, HW: in.HW, Raft: in.Raft}
		for _, p := range in.Payloads {
			if p == nil {
				m.Payloads = append(m.Payloads, nil)
			} else {
				m.Payloads = append(m.Payloads, &fakePayload{b: p})
			}
		}
		again, err := AppendFrame(nil, m)
		if err != nil {
			t.Fatalf("encode what was decoded: %v", err)
		}
		in2, _, err := DecodeFrame(again, bufs)
		if err != nil || !sameMessage(m, in2) {
			t.Fatalf("second round: %v", err)
		}
	})
}

// repairFrame makes the CRC true where the lengths allow, so that what lies
// behind it is reached.
func repairFrame(b []byte) {
	if len(b) < frameHeadLen {
		return
	}
	b[0], b[1], b[2], b[3] = frameMagicLow, frameMagicHi, frameVersion, 0
	end := uint64(frameHeadLen) + 4*uint64(binary.LittleEndian.Uint32(b[36:])) + uint64(binary.LittleEndian.Uint32(b[32:]))
	if end <= uint64(len(b)) {
		binary.LittleEndian.PutUint32(b[frameCRCAt:], frameCRC(b[:frameHeadLen], b[frameHeadLen:end]))
	}
}
