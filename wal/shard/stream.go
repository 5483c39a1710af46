package shard

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"go.etcd.io/raft/v3/raftpb"

	"thermocline/wal"
	"thermocline/wal/vfs"
)

const (
	streamEntryHeadLen = 32
	streamEnd          = 0x45534354 // "TCSE"
	// stagedBytes closes a staged append while a stream is taken in: a group of
	// 1 MiB takes the disk about 2 ms, and fits into the smallest log files.
	stagedBytes = 1 << 20
	// streamPayloadMax bounds one entry's payload in a stream: the largest
	// batch a topic may allow, with room.
	streamPayloadMax = 256 << 20
	// streamDescriptorMax bounds an entry's Raft data: a configuration change.
	streamDescriptorMax = 64 << 10
)

// streamSource writes a snapshot stream: the newest snapshot's state, then the
// raw entries that the object store does not hold yet. It runs on the sender's
// goroutine, beside the shard's: what it needs of the core is either fixed at
// its making or safe for concurrent use.
type streamSource struct {
	core                 *Core
	file                 string
	entries              []*raftpb.Entry
	trimmed, trimmedTerm uint64
	closed               bool
}

// Close implements transport.SnapshotSource.
func (s *streamSource) Close() error {
	if !s.closed {
		s.closed = true
		s.core.files.add(s.file, -1)
	}
	return nil
}

// WriteTo implements io.WriterTo.
func (s *streamSource) WriteTo(w io.Writer) (int64, error) {
	cw := &countWriter{w: w}
	bw := bufio.NewWriterSize(cw, 256<<10)
	meta, r, err := s.core.o.OpenSnapshot(s.file)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	head, err := snapshotHeader{meta, s.trimmed, s.trimmedTerm, uint32(len(s.entries))}.append(nil)
	if err != nil {
		return 0, err
	}
	if _, err := bw.Write(head); err != nil {
		return cw.n, err
	}
	state := newChunkWriter(bw)
	if _, err := io.Copy(state, r); err != nil {
		return cw.n, fmt.Errorf("shard: stream of %s: %w", s.file, err)
	}
	if err := state.close(); err != nil {
		return cw.n, err
	}
	for _, e := range s.entries {
		if err := s.writeEntry(bw, e); err != nil {
			return cw.n, err
		}
	}
	if _, err := bw.Write(binary.LittleEndian.AppendUint32(nil, streamEnd)); err != nil {
		return cw.n, err
	}
	err = bw.Flush()
	return cw.n, err
}

type countWriter struct {
	w io.Writer
	n int64
}

// Write implements io.Writer.
func (c *countWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func (s *streamSource) writeEntry(w io.Writer, e *raftpb.Entry) error {
	var payload []byte
	var crc uint32
	if e.GetType() == raftpb.EntryNormal && len(e.GetData()) > 0 {
		d, err := ParseDescriptor(e.GetData())
		if err != nil {
			return err
		}
		if d.PayloadLen > 0 {
			v, err := s.core.table.view(e.GetIndex(), e.GetTerm())
			if err != nil {
				return err
			}
			defer v.Release()
			payload, crc = v.Bytes(), d.PayloadCRC
		}
	}
	b := make([]byte, 0, streamEntryHeadLen+len(e.GetData())+4)
	b = binary.LittleEndian.AppendUint64(b, e.GetIndex())
	b = binary.LittleEndian.AppendUint64(b, e.GetTerm())
	b = append(b, byte(e.GetType()), 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(e.GetData())))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, crc)
	b = append(b, e.GetData()...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if _, err := w.Write(b); err != nil {
		return err
	}
	_, err := w.Write(payload)
	return err
}

// StreamSink is what taking a stream in needs: where the state's file goes,
// and how staged appends reach the log.
type StreamSink struct {
	FS      vfs.FS
	Dir     string
	File    string // as BeginReceive named it
	Shard   wal.ShardID
	Buffers *Buffers
	// Submit hands a staged append to the log and returns once it is written
	// (durable or to be made so by the pointer's append), or an error.
	Submit func(a *wal.Append) error
	// StagedBytes closes a staged append (1 MiB when 0).
	StagedBytes int
	// CheckPayload is Options.CheckPayload.
	CheckPayload func(payload []byte) error
}

// Receive takes a snapshot stream in: the state into a durable file, the raw
// entries as staged appends. Core.StepSnapshot follows; nothing of it counts
// before the pointer's append that this causes.
func (s StreamSink) Receive(r io.Reader) (*ReceivedSnapshot, error) {
	br := bufio.NewReaderSize(r, 256<<10)
	h, err := readSnapshotHeader(br)
	if err != nil {
		return nil, fmt.Errorf("shard: snapshot stream: %w", err)
	}
	if h.meta.Shard != s.Shard || h.trimmed > h.meta.Index || uint64(h.entries) != h.meta.Index-h.trimmed {
		return nil, fmt.Errorf("shard: snapshot stream: shard %d, entries %d..%d, found %d: %w", h.meta.Shard, h.trimmed+1, h.meta.Index, h.entries, ErrSnapshot)
	}
	state := newChunkReader(br)
	err = WriteSnapshot(s.FS, s.Dir, s.File, h.meta, func(w io.Writer) error {
		_, err := io.Copy(w, state)
		return err
	})
	if err == nil {
		err = state.drain()
	}
	if err != nil {
		return nil, fmt.Errorf("shard: snapshot stream: %w", err)
	}
	rs := &ReceivedSnapshot{Meta: h.meta, File: s.File, Trimmed: h.trimmed, TrimmedTerm: h.trimmedTerm}
	if err := s.stage(br, rs, h); err != nil {
		return nil, fmt.Errorf("shard: snapshot stream: %w", err)
	}
	return rs, nil
}

func (s StreamSink) stage(br io.Reader, rs *ReceivedSnapshot, h snapshotHeader) error {
	a := &wal.Append{Shard: s.Shard, Staged: true}
	size, limit := 0, s.StagedBytes
	if limit == 0 {
		limit = stagedBytes
	}
	flush := func() error {
		if len(a.Entries) == 0 {
			return nil
		}
		err := s.Submit(a)
		for _, e := range a.Entries {
			if e.Payload != nil {
				s.Buffers.Put(e.Payload)
			}
		}
		a, size = &wal.Append{Shard: s.Shard, Staged: true}, 0
		return err
	}
	for i := range h.entries {
		e, err := s.readEntry(br)
		if err != nil {
			return err
		}
		if want := h.trimmed + 1 + uint64(i); e.Index != want {
			return fmt.Errorf("entry: expected index %d, found %d: %w", want, e.Index, ErrSnapshot)
		}
		rs.Entries = append(rs.Entries, wal.EntryMeta{
			Index: e.Index, Term: e.Term, Type: e.Type, Descriptor: e.Descriptor,
			PayloadLen: uint32(len(e.Payload)), PayloadCRC: e.PayloadCRC,
		})
		a.Entries = append(a.Entries, e)
		if size += len(e.Payload) + len(e.Descriptor); size >= limit {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	var end [4]byte
	if _, err := io.ReadFull(br, end[:]); err != nil {
		return snapshotCut("end", err)
	}
	if got := binary.LittleEndian.Uint32(end[:]); got != streamEnd {
		return fmt.Errorf("end: expected %08x, found %08x: %w", streamEnd, got, ErrSnapshot)
	}
	return flush()
}

func (s StreamSink) readEntry(r io.Reader) (wal.Entry, error) {
	var e wal.Entry
	b := make([]byte, streamEntryHeadLen)
	if _, err := io.ReadFull(r, b); err != nil {
		return e, snapshotCut("entry", err)
	}
	nd, np := binary.LittleEndian.Uint32(b[20:]), binary.LittleEndian.Uint32(b[24:])
	if nd > streamDescriptorMax || np > streamPayloadMax {
		return e, fmt.Errorf("entry: %d and %d bytes are too many: %w", nd, np, ErrSnapshot)
	}
	b = append(b, make([]byte, nd+4)...)
	if _, err := io.ReadFull(r, b[streamEntryHeadLen:]); err != nil {
		return e, snapshotCut("entry", err)
	}
	body := b[:len(b)-4]
	if want, got := binary.LittleEndian.Uint32(b[len(body):]), crc32.Checksum(body, castagnoli); want != got {
		return e, fmt.Errorf("entry checksum: expected %08x, found %08x: %w", want, got, ErrSnapshot)
	}
	e = wal.Entry{
		Index: binary.LittleEndian.Uint64(b), Term: binary.LittleEndian.Uint64(b[8:]), Type: b[16],
		Descriptor: body[streamEntryHeadLen:], PayloadCRC: binary.LittleEndian.Uint32(b[28:]),
	}
	if np == 0 {
		return e, nil
	}
	e.Payload = s.Buffers.Get(int(np))
	if _, err := io.ReadFull(r, e.Payload); err != nil {
		return e, snapshotCut("payload", err)
	}
	d, err := ParseDescriptor(e.Descriptor)
	if err != nil {
		return e, err
	}
	if err := d.CheckPayload(e.Payload); err != nil {
		return e, err
	}
	if s.CheckPayload != nil {
		if err := s.CheckPayload(e.Payload); err != nil {
			return e, err
		}
	}
	return e, nil
}

// InitialSnapshot writes the state that every replica of a new shard begins
// with, index 1 and term 1 with its voters and an empty state machine, and
// returns the append whose durability makes the replica exist. The core then
// starts from what the log would recover of it (Recovered).
func InitialSnapshot(fs vfs.FS, dir string, id wal.ShardID, voters []uint64, sm StateMachine) (*wal.Append, *wal.RecoveredShard, error) {
	sm.SkipEntry(1, 1)
	img := sm.Image()
	name := SnapshotName(id, 1, 0)
	meta := SnapshotMeta{Shard: id, Index: 1, Term: 1, ConfState: &raftpb.ConfState{Voters: voters}}
	if err := WriteSnapshot(fs, dir, name, meta, img.Encode); err != nil {
		return nil, nil, err
	}
	ptr := wal.SnapshotPointer{Index: 1, Term: 1, File: name, Trimmed: 1, TrimmedTerm: 1}
	hard := wal.HardState{Term: 1, Commit: 1}
	return &wal.Append{Shard: id, Hard: &hard, Snapshot: &ptr}, &wal.RecoveredShard{Hard: hard, Snapshot: ptr}, nil
}
