package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"thermocline/wal"
	"thermocline/wal/vfs"
)

const (
	snapshotMagic     = 0x4e534354 // "TCSN"
	snapshotVersion   = 1
	snapshotHeaderLen = 64
	// snapshotChunkBytes is how much state stands under one checksum: a reader
	// never hands on a byte that it has not verified.
	snapshotChunkBytes = 64 << 10
	// confStateMaxBytes bounds the encoded replica set.
	confStateMaxBytes = 64 << 10
)

// snapshotHeader begins a snapshot file and a snapshot stream.
type snapshotHeader struct {
	meta                 SnapshotMeta
	trimmed, trimmedTerm uint64 // streams only
	entries              uint32 // streams only
}

func (h snapshotHeader) append(b []byte) ([]byte, error) {
	cs, err := proto.MarshalOptions{Deterministic: true}.Marshal(h.meta.raft().GetConfState())
	if err != nil {
		return nil, fmt.Errorf("shard: encode replica set: %w", err)
	}
	n := len(b)
	b = binary.LittleEndian.AppendUint32(b, snapshotMagic)
	b = append(b, snapshotVersion, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.meta.Shard))
	b = binary.LittleEndian.AppendUint32(b, h.entries)
	for _, v := range []uint64{h.meta.Index, h.meta.Term, h.meta.HW, h.trimmed, h.trimmedTerm} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(cs)))
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = append(b, cs...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[n:], castagnoli)), nil
}

func readSnapshotHeader(r io.Reader) (snapshotHeader, error) {
	var h snapshotHeader
	b := make([]byte, snapshotHeaderLen)
	if _, err := io.ReadFull(r, b); err != nil {
		return h, snapshotCut("header", err)
	}
	if m := binary.LittleEndian.Uint32(b); m != snapshotMagic {
		return h, fmt.Errorf("magic: expected %08x, found %08x: %w", snapshotMagic, m, ErrSnapshot)
	}
	if b[4] != snapshotVersion {
		return h, fmt.Errorf("version: expected %d, found %d: %w", snapshotVersion, b[4], ErrSnapshot)
	}
	n := binary.LittleEndian.Uint32(b[56:])
	if n > confStateMaxBytes {
		return h, fmt.Errorf("replica set: expected at most %d bytes, found %d: %w", confStateMaxBytes, n, ErrSnapshot)
	}
	b = append(b, make([]byte, n+4)...)
	if _, err := io.ReadFull(r, b[snapshotHeaderLen:]); err != nil {
		return h, snapshotCut("header", err)
	}
	body := b[:len(b)-4]
	if want, got := binary.LittleEndian.Uint32(b[len(body):]), crc32.Checksum(body, castagnoli); want != got {
		return h, fmt.Errorf("header checksum: expected %08x, found %08x: %w", want, got, ErrSnapshot)
	}
	h.meta.Shard = wal.ShardID(binary.LittleEndian.Uint32(b[8:]))
	h.entries = binary.LittleEndian.Uint32(b[12:])
	for i, p := range []*uint64{&h.meta.Index, &h.meta.Term, &h.meta.HW, &h.trimmed, &h.trimmedTerm} {
		*p = binary.LittleEndian.Uint64(b[16+8*i:])
	}
	h.meta.ConfState = &raftpb.ConfState{}
	if err := proto.Unmarshal(body[snapshotHeaderLen:], h.meta.ConfState); err != nil {
		return h, fmt.Errorf("replica set: %w: %w", err, ErrSnapshot)
	}
	return h, nil
}

// snapshotCut turns an early end into damage, and leaves other errors alone.
func snapshotCut(what string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%s is cut short: %w", what, ErrSnapshot)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// chunkWriter frames state: chunks of at most 64 KiB, each with a checksum.
type chunkWriter struct {
	w     io.Writer
	buf   []byte // room for the length before the data
	total uint64
	sum   hash.Hash32
}

func newChunkWriter(w io.Writer) *chunkWriter {
	return &chunkWriter{w: w, buf: make([]byte, 4, snapshotChunkBytes+8), sum: crc32.New(castagnoli)}
}

// Write implements io.Writer.
func (c *chunkWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		k := min(len(p), snapshotChunkBytes+4-len(c.buf))
		c.buf, p = append(c.buf, p[:k]...), p[k:]
		if len(c.buf) == snapshotChunkBytes+4 {
			if err := c.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (c *chunkWriter) flush() error {
	data := c.buf[4:]
	if len(data) == 0 {
		return nil
	}
	c.total += uint64(len(data))
	c.sum.Write(data)
	binary.LittleEndian.PutUint32(c.buf, uint32(len(data)))
	b := binary.LittleEndian.AppendUint32(c.buf, crc32.Checksum(data, castagnoli))
	_, err := c.w.Write(b)
	c.buf = c.buf[:4]
	return err
}

// close writes the last chunk and the end.
func (c *chunkWriter) close() error {
	if err := c.flush(); err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint32(nil, 0)
	b = binary.LittleEndian.AppendUint64(b, c.total)
	b = binary.LittleEndian.AppendUint32(b, c.sum.Sum32())
	_, err := c.w.Write(b)
	return err
}

// chunkReader reads what chunkWriter wrote, up to and including the end.
type chunkReader struct {
	r     io.Reader
	buf   []byte
	rest  []byte
	total uint64
	sum   hash.Hash32
	done  bool
}

func newChunkReader(r io.Reader) *chunkReader {
	return &chunkReader{r: r, sum: crc32.New(castagnoli)}
}

// Read implements io.Reader.
func (c *chunkReader) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		if c.done {
			return 0, io.EOF
		}
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *chunkReader) next() error {
	var head [4]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return snapshotCut("state", err)
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 {
		return c.end()
	}
	if n > snapshotChunkBytes {
		return fmt.Errorf("chunk: expected at most %d bytes, found %d: %w", snapshotChunkBytes, n, ErrSnapshot)
	}
	if cap(c.buf) < int(n)+4 {
		c.buf = make([]byte, snapshotChunkBytes+4)
	}
	b := c.buf[:n+4]
	if _, err := io.ReadFull(c.r, b); err != nil {
		return snapshotCut("chunk", err)
	}
	data := b[:n]
	if want, got := binary.LittleEndian.Uint32(b[n:]), crc32.Checksum(data, castagnoli); want != got {
		return fmt.Errorf("chunk checksum: expected %08x, found %08x: %w", want, got, ErrSnapshot)
	}
	c.total += uint64(n)
	c.sum.Write(data)
	c.rest = data
	return nil
}

func (c *chunkReader) end() error {
	var tail [12]byte
	if _, err := io.ReadFull(c.r, tail[:]); err != nil {
		return snapshotCut("state's end", err)
	}
	if n := binary.LittleEndian.Uint64(tail[:]); n != c.total {
		return fmt.Errorf("state length: expected %d, found %d: %w", n, c.total, ErrSnapshot)
	}
	if want := binary.LittleEndian.Uint32(tail[8:]); want != c.sum.Sum32() {
		return fmt.Errorf("state checksum: expected %08x, found %08x: %w", want, c.sum.Sum32(), ErrSnapshot)
	}
	c.done = true
	return nil
}

// drain reads to the end, so that everything has been verified.
func (c *chunkReader) drain() error {
	_, err := io.Copy(io.Discard, c)
	return err
}

// WriteSnapshot encodes an image into a new file in dir and makes it durable:
// the header, then the state, inside the log's own checked snapshot format.
func WriteSnapshot(fs vfs.FS, dir, name string, meta SnapshotMeta, encode func(io.Writer) error) error {
	head, err := snapshotHeader{meta: meta}.append(nil)
	if err != nil {
		return err
	}
	return wal.WriteSnapshot(fs, dir, name, func(w io.Writer) error {
		if _, err := w.Write(head); err != nil {
			return err
		}
		return encode(w)
	})
}

// OpenSnapshot opens a snapshot file in dir for reading: every byte is
// verified before it is handed out.
func OpenSnapshot(fs vfs.FS, dir, name string) (SnapshotMeta, io.ReadCloser, error) {
	r, err := wal.OpenSnapshot(fs, dir, name)
	if err != nil {
		return SnapshotMeta{}, nil, err
	}
	h, err := readSnapshotHeader(r)
	if err != nil {
		r.Close()
		return SnapshotMeta{}, nil, fmt.Errorf("shard: snapshot %s: %w", name, err)
	}
	return h.meta, r, nil
}

// VerifySnapshot reads a whole snapshot file and checks it. It returns the
// size of the state.
func VerifySnapshot(fs vfs.FS, dir, name string) (meta SnapshotMeta, stateBytes int64, err error) {
	meta, r, err := OpenSnapshot(fs, dir, name)
	if err != nil {
		return meta, 0, err
	}
	defer r.Close()
	if stateBytes, err = io.Copy(io.Discard, r); err != nil {
		return meta, 0, fmt.Errorf("shard: snapshot %s: %w", name, err)
	}
	return meta, stateBytes, nil
}
