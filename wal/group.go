package wal

import (
	"fmt"
	"sync/atomic"

	"thermocline/wal/vfs"
)

// logFile is one use of a file on disk: recycling makes a new logFile.
type logFile struct {
	name   string
	file   vfs.File
	use    uint64
	start  Position
	length int64 // what the file may hold, its header included
	size   int64 // what it holds on disk
	off    int64 // where the next group goes
	// live counts the bytes of records that the log still needs.
	live int64
	// gone is set before the file's contents are touched again: a reader that
	// finds it set after its read has read nothing that counts.
	gone atomic.Bool
}

func (f *logFile) room() int64 { return f.length - f.off }

// placed is one record of the group under construction.
type placed struct {
	shard *shardState
	rec   record
	off   int64 // in the file
}

// group builds one group commit. Its buffers are used again for the next one,
// so that a commit allocates nothing once they have grown.
type group struct {
	file *logFile
	off  int64 // of the group in the file
	// check is what record and group checksums use as file start and use number:
	// the file's own, unless a planted bug says otherwise.
	use   uint64
	start Position

	scratch []byte   // headers, descriptors and small payloads
	from    int      // where the piece being collected starts in scratch
	pieces  [][]byte // the vectored write
	records []placed
	size    int64 // bytes so far, header included
	lazy    bool  // the waiting hard states are in it
	place   [16]byte
	body    [pointerBodyLen + maxFileName]byte
}

// begin starts a group at the end of f. meta bounds the bytes that will be
// collected in scratch: it must not move once pieces refer to it.
func (g *group) begin(f *logFile, use uint64, start Position, meta int64) {
	if need := groupHeaderLen + meta + blockSize; int64(cap(g.scratch)) < need {
		g.scratch = make([]byte, 0, need)
	}
	g.file, g.off, g.use, g.start = f, f.off, use, start
	g.scratch = g.scratch[:groupHeaderLen]
	g.from = 0
	g.pieces = g.pieces[:0]
	g.records = g.records[:0]
	g.size = groupHeaderLen
	g.lazy = false
}

// add appends one record. The payload is referred to, not copied, unless small.
func (g *group) add(s *shardState, r record, payload []byte) {
	at := len(g.scratch)
	head := recordHeaderLen + len(r.desc)
	if at+head > cap(g.scratch) {
		panic(fmt.Sprintf("wal: group scratch: expected room for %d bytes, found %d", head, cap(g.scratch)-at))
	}
	g.scratch = g.scratch[:at+head]
	off := g.off + g.size
	r.encode(g.scratch[at:], g.use, g.start+Position(off), &g.place)
	// The descriptor now lies in scratch, which lives as long as the group; what
	// the caller passed may be a buffer of its own.
	r.desc = g.scratch[at+recordHeaderLen : at+head]
	g.records = append(g.records, placed{shard: s, rec: r, off: off})
	g.size += r.size()
	switch {
	case len(payload) == 0:
	case len(payload) <= copyBelow:
		g.scratch = append(g.scratch, payload...)
	default:
		g.flush()
		g.pieces = append(g.pieces, payload)
	}
}

// flush ends the piece that is being collected in scratch.
func (g *group) flush() {
	if len(g.scratch) > g.from {
		g.pieces = append(g.pieces, g.scratch[g.from:len(g.scratch):len(g.scratch)])
		g.from = len(g.scratch)
	}
}

// metaSize is what a record needs in scratch.
func metaSize(descLen, payloadLen int) int64 {
	n := recordHeaderLen + int64(descLen)
	if payloadLen <= copyBelow {
		n += int64(payloadLen)
	}
	return n
}

// zeroes pads groups to whole blocks, so that the kernel never has to read a
// block in order to write part of it.
var zeroes [blockSize]byte

// finish writes the header and pads the pieces to a whole block.
func (g *group) finish(flags uint8, synced Position) {
	h := groupHeader{
		flags: flags, use: g.use, pos: g.start + Position(g.off),
		length: uint32(g.size), records: uint32(len(g.records)), synced: synced,
	}
	h.encode(g.scratch[:groupHeaderLen])
	g.flush()
	end := g.off + g.size
	if pad := roundUp(end) - end; pad > 0 {
		g.pieces = append(g.pieces, zeroes[:pad])
	}
}

// A file that grows with each group costs each sync a write of the file's
// metadata, and a wait for it, beside the data's. So a small group that makes
// its file grow makes it grow by more, in zeroes, as files that were written
// ahead have them; a large one has little to gain by it.
const (
	growStep  = 512 << 10
	growBelow = growStep / 2
)

// grow adds zeroes behind a group of total bytes, up to the file's next step, if
// the group is small and lets the file grow. It returns how many.
func (g *group) grow(f *logFile, total int64) int64 {
	end := g.off + total
	if end <= f.size || total > growBelow {
		return 0
	}
	to := min((end+growStep-1)/growStep*growStep, f.length)
	for at := end; at < to; at += blockSize {
		g.pieces = append(g.pieces, zeroes[:min(to-at, blockSize)])
	}
	return to - end
}

// release lets go of the callers' payloads.
func (g *group) release() {
	clear(g.pieces)
	clear(g.records)
}
