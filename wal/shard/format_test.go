package shard

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"thermocline/wal"
	"thermocline/wal/vfs"
)

var goldenDescriptor = Descriptor{
	Kind: KindItems, PayloadLen: 5, Term: 7, HW: 0x1122334455, ID: PayloadID{Replica: 3, Seq: 9},
	TimeUnixMilli: 1_700_000_000_000, PayloadCRC: crc32.Checksum([]byte("hello"), castagnoli),
}

// The layouts of version 1. A change of any of these needs a new version.
const (
	goldenDescriptorHex = "010100000500000007000000000000005544332211000000030000000000000009000000000000000068e5cf8b0100004cbb719a8260fb0c"
	goldenStreamCRC     = "e3764bcf"
)

func TestDescriptorGolden(t *testing.T) {
	b := goldenDescriptor.Append(nil)
	if len(b) != DescriptorLen {
		t.Fatalf("length: expected %d, found %d", DescriptorLen, len(b))
	}
	if got := hex.EncodeToString(b); got != goldenDescriptorHex {
		t.Fatalf("expected %s, found %s", goldenDescriptorHex, got)
	}
	d, err := ParseDescriptor(b)
	if err != nil || d != goldenDescriptor {
		t.Fatalf("%+v, %v", d, err)
	}
	b[0]++
	if _, err := ParseDescriptor(b); !errors.Is(err, ErrDescriptor) {
		t.Fatalf("a newer version: %v", err)
	}
	if err := d.CheckPayload([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"hellO", "hell", "hello!"} {
		if err := d.CheckPayload([]byte(p)); !errors.Is(err, ErrPayload) {
			t.Fatalf("%q: %v", p, err)
		}
	}
}

// testStream is a snapshot stream with two raw entries.
func testStream(tb testing.TB) []byte {
	tb.Helper()
	h := snapshotHeader{
		meta:    SnapshotMeta{Shard: testShard, Index: 12, Term: 4, HW: 11, ConfState: &raftpb.ConfState{Voters: []uint64{1, 2, 3}}},
		trimmed: 10, trimmedTerm: 3, entries: 2,
	}
	b, err := h.append(nil)
	if err != nil {
		tb.Fatal(err)
	}
	var buf bytes.Buffer
	buf.Write(b)
	cw := newChunkWriter(&buf)
	if _, err := cw.Write(bytes.Repeat([]byte("state "), 20000)); err != nil {
		tb.Fatal(err)
	}
	if err := cw.close(); err != nil {
		tb.Fatal(err)
	}
	s := &streamSource{core: &Core{table: newPayloadTable(NewBuffers(0, false), 0, func(uint64, uint64) ([]byte, error) {
		return []byte("hello"), nil
	})}}
	for i, e := range []*raftpb.Entry{
		{Index: new(uint64(11)), Term: new(uint64(4))},
		{Index: new(uint64(12)), Term: new(uint64(4)), Data: goldenDescriptor.Append(nil)},
	} {
		if err := s.writeEntry(&buf, e); err != nil {
			tb.Fatalf("entry %d: %v", i, err)
		}
	}
	buf.Write([]byte{'T', 'C', 'S', 'E'})
	return buf.Bytes()
}

func receive(tb testing.TB, stream []byte) (*ReceivedSnapshot, []wal.Entry, error) {
	fs := vfs.NewMem(1)
	if err := fs.MkdirAll("d"); err != nil {
		tb.Fatal(err)
	}
	var staged []wal.Entry
	sink := StreamSink{
		FS: fs, Dir: "d", File: SnapshotName(testShard, 12, 1), Shard: testShard, Buffers: NewBuffers(1<<20, true),
		Submit: func(a *wal.Append) error {
			for _, e := range a.Entries {
				staged = append(staged, copyEntry(e))
			}
			return nil
		},
	}
	rs, err := sink.Receive(bytes.NewReader(stream))
	if err == nil {
		meta, n, verr := VerifySnapshot(fs, "d", rs.File)
		if verr != nil || meta.Index != 12 || n != 120000 {
			tb.Fatalf("the stored snapshot: %+v, %d bytes, %v", meta, n, verr)
		}
	}
	return rs, staged, err
}

func TestStreamRoundTrip(t *testing.T) {
	stream := testStream(t)
	if sum := fmt.Sprintf("%08x", crc32.Checksum(stream, castagnoli)); sum != goldenStreamCRC {
		t.Fatalf("the stream's layout changed: expected checksum %s, found %s", goldenStreamCRC, sum)
	}
	rs, staged, err := receive(t, stream)
	if err != nil {
		t.Fatal(err)
	}
	if rs.Trimmed != 10 || rs.TrimmedTerm != 3 || rs.Meta.HW != 11 || len(rs.Entries) != 2 || len(staged) != 2 {
		t.Fatalf("%+v, %d staged", rs, len(staged))
	}
	if string(staged[1].Payload) != "hello" || rs.Entries[1].PayloadLen != 5 || rs.Entries[0].PayloadLen != 0 {
		t.Fatalf("entries: %+v", rs.Entries)
	}
}

// Every cut and every flipped bit of a stream is found before it counts.
func TestStreamDamageIsFound(t *testing.T) {
	stream := testStream(t)
	for n := 0; n < len(stream); n += 1 + n/64 {
		if _, _, err := receive(t, stream[:n]); !errors.Is(err, ErrSnapshot) {
			t.Fatalf("cut at %d of %d: %v", n, len(stream), err)
		}
	}
	for off := 0; off < len(stream); off += 1 + off%997 {
		bad := bytes.Clone(stream)
		bad[off] ^= 1 << (off % 8)
		if _, _, err := receive(t, bad); err == nil {
			t.Fatalf("bit flipped at %d of %d: not found", off, len(stream))
		}
	}
}

func FuzzDescriptor(f *testing.F) {
	f.Add(goldenDescriptor.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDescriptor(b)
		if err == nil && len(d.Append(nil)) != len(b) {
			t.Fatalf("%x parses and has another length", b)
		}
	})
}

func FuzzStream(f *testing.F) {
	f.Add(testStream(f))
	f.Add(testStream(f)[:300])
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := vfs.NewMem(1)
		if err := fs.MkdirAll("d"); err != nil {
			t.Fatal(err)
		}
		sink := StreamSink{
			FS: fs, Dir: "d", File: SnapshotName(testShard, 12, 1), Shard: testShard, Buffers: NewBuffers(1<<20, false),
			Submit: func(*wal.Append) error { return nil },
		}
		rs, err := sink.Receive(bytes.NewReader(b))
		if err == nil && uint64(len(rs.Entries)) != rs.Meta.Index-rs.Trimmed {
			t.Fatalf("%d entries for %d..%d", len(rs.Entries), rs.Trimmed+1, rs.Meta.Index)
		}
	})
}

func TestChunksEndExactly(t *testing.T) {
	for _, n := range []int{0, 1, snapshotChunkBytes - 1, snapshotChunkBytes, snapshotChunkBytes + 1, 3 * snapshotChunkBytes} {
		var buf bytes.Buffer
		cw := newChunkWriter(&buf)
		want := bytes.Repeat([]byte{0xAB}, n)
		if _, err := cw.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := cw.close(); err != nil {
			t.Fatal(err)
		}
		buf.WriteString("rest")
		got, err := io.ReadAll(newChunkReader(&buf))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: found %d, %v", n, len(got), err)
		}
		if buf.String() != "rest" {
			t.Fatalf("%d bytes: the reader took %d bytes too many", n, 4-buf.Len())
		}
	}
}
