package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/s2"
)

// xerialHeader begins the framing of Java's snappy library: magic, version 1,
// compatible version 1.
var xerialHeader = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

const (
	// xerialMagicLen is what tells the framing from a raw block: versions are
	// not checked, as nobody checks them.
	xerialMagicLen = 8
	// xerialBlock is the input of one block when we write: Java's default.
	xerialBlock = 32 << 10
	// snappyKeep is the largest buffer that goes back to the pool with its decoder.
	snappyKeep = 1 << 20
)

var (
	errSnappyBlock = errors.New("malformed snappy block")
	errSnappyFrame = errors.New("malformed snappy framing")
)

// snappyDecoder reads both forms of snappy in Kafka. Snappy blocks cannot be
// decoded in part, so it holds one decoded block: 32 KiB for nearly every
// client in the framing, everything for a raw block.
type snappyDecoder struct {
	src    []byte // what is left of the input
	framed bool
	left   int // bytes that may still come out
	block  []byte
	pos    int // read position in block
}

func (d *snappyDecoder) reset(src []byte, limit int) error {
	block := d.block[:0]
	if cap(block) > snappyKeep {
		block = nil
	}
	*d = snappyDecoder{src: src, left: limit, block: block}
	if bytes.HasPrefix(src, xerialHeader[:xerialMagicLen]) {
		if len(src) < len(xerialHeader) {
			return errSnappyFrame
		}
		d.framed, d.src = true, src[len(xerialHeader):]
	}
	return nil
}

func (d *snappyDecoder) unread() int { return len(d.src) }

func (d *snappyDecoder) Read(p []byte) (int, error) {
	for d.pos == len(d.block) {
		if len(d.src) == 0 {
			return 0, io.EOF
		}
		if err := d.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, d.block[d.pos:])
	d.pos += n
	return n, nil
}

func (d *snappyDecoder) next() error {
	in := d.src
	if d.framed {
		if len(in) < 4 {
			return errSnappyFrame
		}
		n := binary.BigEndian.Uint32(in)
		if uint64(n) > uint64(len(in)-4) || n == 0 {
			return errSnappyFrame
		}
		in, d.src = in[4:4+n], in[4+n:]
	} else {
		d.src = nil
	}
	n, err := snappyScan(in)
	if err != nil {
		return err
	}
	if n > d.left {
		return errBomb
	}
	d.left -= n
	if cap(d.block) < n {
		d.block = make([]byte, n)
	}
	out, err := s2.Decode(d.block[:n], in)
	if err != nil {
		return err
	}
	d.block, d.pos = out, 0
	return nil
}

// snappyScan walks a block's elements and returns how many bytes they make,
// which must be what the block claims. It runs before anything is allocated by
// that claim, and it refuses a copy from distance 0, which is no snappy: the
// decoder below takes it for an S2 repeat, but other clients' decoders do not.
func snappyScan(in []byte) (int, error) {
	claim, n := binary.Uvarint(in)
	if n <= 0 || claim > MaxUncompressedBytes {
		return 0, errSnappyBlock
	}
	total := uint64(0)
	for i := n; i < len(in); {
		tag := in[i]
		size, length := 1, uint64(0)
		switch tag & 3 {
		case 0: // literal
			length = uint64(tag>>2) + 1
			if extra := int(tag>>2) - 59; extra > 0 {
				if i+1+extra > len(in) {
					return 0, errSnappyBlock
				}
				length = 1
				for k := range extra {
					length += uint64(in[i+1+k]) << (8 * k)
				}
				size += extra
			}
			if length > uint64(len(in)-i-size) {
				return 0, errSnappyBlock
			}
			size += int(length)
		case 1: // copy, 11-bit distance
			size, length = 2, uint64(tag>>2&7)+4
			if i+1 < len(in) && tag&0xe0 == 0 && in[i+1] == 0 {
				return 0, errSnappyBlock
			}
		case 2: // copy, 16-bit distance
			size, length = 3, uint64(tag>>2)+1
		case 3: // copy, 32-bit distance
			size, length = 5, uint64(tag>>2)+1
		}
		i += size
		total += length
		if i > len(in) || total > claim {
			return 0, errSnappyBlock
		}
	}
	if total != claim {
		return 0, errSnappyBlock
	}
	return int(total), nil
}

// xerialWriter compresses what is written to it in blocks of xerialBlock bytes
// and appends them to out.
type xerialWriter struct {
	out     *limitedBuffer
	pending []byte
	scratch []byte
}

func (w *xerialWriter) reset(out *limitedBuffer) error {
	w.out, w.pending = out, w.pending[:0]
	_, err := out.Write(xerialHeader)
	return err
}

func (w *xerialWriter) Write(p []byte) (int, error) {
	written := len(p)
	for len(p) > 0 {
		if len(w.pending) == 0 && len(p) >= xerialBlock {
			if err := w.block(p[:xerialBlock]); err != nil {
				return 0, err
			}
			p = p[xerialBlock:]
			continue
		}
		n := min(xerialBlock-len(w.pending), len(p))
		w.pending, p = append(w.pending, p[:n]...), p[n:]
		if len(w.pending) == xerialBlock {
			if err := w.Close(); err != nil {
				return 0, err
			}
		}
	}
	return written, nil
}

// Close writes what is pending.
func (w *xerialWriter) Close() error {
	if len(w.pending) == 0 {
		return nil
	}
	err := w.block(w.pending)
	w.pending = w.pending[:0]
	return err
}

func (w *xerialWriter) block(p []byte) error {
	if w.scratch == nil {
		w.scratch = make([]byte, s2.MaxEncodedLen(xerialBlock))
	}
	enc := s2.EncodeSnappy(w.scratch[:cap(w.scratch)], p)
	var size [4]byte
	binary.BigEndian.PutUint32(size[:], uint32(len(enc)))
	if _, err := w.out.Write(size[:]); err != nil {
		return err
	}
	_, err := w.out.Write(enc)
	return err
}
