package object

import (
	"hash/crc32"
	"io"
	"math/bits"
	"sync"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C is the Castagnoli checksum of p.
func CRC32C(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

// UpdateCRC32C is the checksum of what crc covers followed by p.
func UpdateCRC32C(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) }

// chunkBytes is how much of a body is read at once: past the point where the
// system call matters, small enough to stay in the second-level cache.
const chunkBytes = 256 << 10

var chunks = sync.Pool{New: func() any { b := make([]byte, chunkBytes); return &b }}

// EachChunk reads n bytes of r from offset on and hands them to fn in pieces,
// which are fn's only during the call.
func EachChunk(r io.ReaderAt, offset, n int64, fn func([]byte) error) error {
	buf := chunks.Get().(*[]byte)
	defer chunks.Put(buf)
	for n > 0 {
		p := (*buf)[:min(n, chunkBytes)]
		m, err := r.ReadAt(p, offset)
		if m < len(p) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if err := fn(p); err != nil {
			return err
		}
		offset, n = offset+int64(m), n-int64(m)
	}
	return nil
}

// Checksum reads the whole body and returns its CRC32C.
func Checksum(body Body) (uint32, error) { return ChecksumRange(body, 0, body.Size()) }

// ChecksumRange is the CRC32C of n bytes of r from offset on.
func ChecksumRange(r io.ReaderAt, offset, n int64) (uint32, error) {
	crc := uint32(0)
	err := EachChunk(r, offset, n, func(p []byte) error {
		crc = UpdateCRC32C(crc, p)
		return nil
	})
	return crc, err
}

// CombineCRC32C returns the checksum of A followed by B, given the checksum of
// each and the length of B. Appending a zero byte to A is a linear map on the
// 32 bits of its checksum; the map for lengthB zeros comes by squaring.
func CombineCRC32C(a, b uint32, lengthB int64) uint32 {
	if lengthB <= 0 {
		return a
	}
	var bit matrix
	bit[0] = crc32.Castagnoli // reflected polynomial: one zero bit
	for i := 1; i < 32; i++ {
		bit[i] = 1 << (i - 1)
	}
	byBytes := bit.squared().squared().squared() // eight zero bits
	for n := lengthB; n > 0; n >>= 1 {
		if n&1 == 1 {
			a = byBytes.times(a)
		}
		byBytes = byBytes.squared()
	}
	return a ^ b
}

// matrix is a linear map over GF(2): column i is the image of bit i.
type matrix [32]uint32

func (m *matrix) times(v uint32) uint32 {
	out := uint32(0)
	for ; v != 0; v &= v - 1 {
		out ^= m[bits.TrailingZeros32(v)]
	}
	return out
}

func (m *matrix) squared() *matrix {
	var out matrix
	for i := range m {
		out[i] = m.times(m[i])
	}
	return &out
}
