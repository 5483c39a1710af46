package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sort"
)

// Limits of what commands and images hold. Kafka bounds topic names to 249
// bytes and its strings to 32,767; S3 bounds keys to 1,024.
const (
	maxName        = 249
	maxConfigKey   = 249
	maxConfigValue = 32767
	maxConfig      = 1024 // entries of one topic; Kafka has some 30 topic configs
	maxObjectKey   = 1024
	maxManifest    = 1 << 30 // bytes; far above 2 million segments' worth of runs and fences
	// maxPrealloc bounds what a decoder allocates for a count before it has
	// seen the elements.
	maxPrealloc = 1024
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// appendConfig writes a config in the order of its keys.
func appendConfig(b []byte, c map[string]string) []byte {
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, k := range keys {
		b = appendString(appendString(b, k), c[k])
	}
	return b
}

func checkConfig(c map[string]string) error {
	if len(c) > maxConfig {
		return fmt.Errorf("config: expected at most %d entries, found %d: %w", maxConfig, len(c), ErrInvalidCommand)
	}
	for k, v := range c {
		if k == "" || len(k) > maxConfigKey || len(v) > maxConfigValue {
			return fmt.Errorf("config: key of %d bytes, value of %d bytes: %w", len(k), len(v), ErrInvalidCommand)
		}
	}
	return nil
}

// decoder reads from a slice, or from a stream with a running checksum. After
// an error every read returns zero; err tells the first one.
type decoder struct {
	src   io.Reader // nil: buf is all there is
	buf   []byte
	pos   int
	crc   uint32 // of everything before summed
	crcAt int    // where in buf it ends
	err   error
}

// decodeBuffer is larger than any single value, so that each can be read in place.
const decodeBuffer = 64 << 10

func newStreamDecoder(r io.Reader) *decoder {
	return &decoder{src: r, buf: make([]byte, 0, decodeBuffer)}
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format+": %w", append(args, ErrCorrupt)...)
	}
}

// fill tries to have n bytes at pos; at the end of the input there are fewer.
func (d *decoder) fill(n int) {
	if len(d.buf)-d.pos >= n || d.src == nil || d.err != nil {
		return
	}
	d.sum()
	d.buf = d.buf[:copy(d.buf, d.buf[d.pos:])]
	d.pos, d.crcAt = 0, 0
	for len(d.buf) < n {
		got, err := d.src.Read(d.buf[len(d.buf):cap(d.buf)])
		d.buf = d.buf[:len(d.buf)+got]
		if err != nil {
			if !errors.Is(err, io.EOF) {
				d.err = fmt.Errorf("partition image: %w", err)
			}
			d.src = nil
			return
		}
	}
}

// sum brings the checksum up to pos.
func (d *decoder) sum() {
	d.crc = crc32.Update(d.crc, castagnoli, d.buf[d.crcAt:d.pos])
	d.crcAt = d.pos
}

// bytes returns the next n bytes, in place.
func (d *decoder) bytes(n int) []byte {
	d.fill(n)
	if d.err != nil || len(d.buf)-d.pos < n {
		d.fail("ends early: expected %d bytes, found %d", n, len(d.buf)-d.pos)
		return nil
	}
	b := d.buf[d.pos : d.pos+n]
	d.pos += n
	return b
}

func (d *decoder) uvarint() uint64 {
	d.fill(binary.MaxVarintLen64)
	v, n := binary.Uvarint(d.buf[d.pos:])
	if n <= 0 || d.err != nil {
		d.fail("bad number")
		return 0
	}
	d.pos += n
	return v
}

func (d *decoder) varint() int64 {
	v := d.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// upTo reads a number that may be at most limit.
func (d *decoder) upTo(limit uint64, what string) uint64 {
	v := d.uvarint()
	if v > limit {
		d.fail("%s: expected at most %d, found %d", what, limit, v)
		return 0
	}
	return v
}

func (d *decoder) u32(what string) uint32 { return uint32(d.upTo(1<<32-1, what)) }

// int32 reads a signed number of 32 bits.
func (d *decoder) int32(what string) int32 {
	v := d.varint()
	if int64(int32(v)) != v {
		d.fail("%s: %d needs more than 32 bits", what, v)
		return 0
	}
	return int32(v)
}

func (d *decoder) fixed32() uint32 {
	if b := d.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u8() uint8 {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) string(limit int, what string) string {
	return string(d.bytes(int(d.upTo(uint64(limit), what))))
}

func (d *decoder) config() map[string]string {
	n := int(d.upTo(maxConfig, "config entries"))
	c := make(map[string]string, min(n, maxPrealloc))
	last := ""
	for i := 0; i < n && d.err == nil; i++ {
		k := d.string(maxConfigKey, "config key")
		if k <= last {
			d.fail("config key %q after %q", k, last)
		}
		c[k] = d.string(maxConfigValue, "config value")
		last = k
	}
	return c
}

// blob reads n bytes into a slice of their own, which grows as they come.
func (d *decoder) blob(n uint64) []byte {
	var b []byte
	for n > 0 && d.err == nil {
		step := min(n, decodeBuffer)
		b = append(b, d.bytes(int(step))...)
		n -= step
	}
	return b
}

// rest returns what is left of a slice.
func (d *decoder) rest() []byte { return d.buf[d.pos:] }

// after goes on where another decoder stopped, or takes over its error.
func (d *decoder) after(rest []byte, err error) {
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if d.err == nil {
		d.pos = len(d.buf) - len(rest)
	}
}

// end checks that nothing is left of a slice.
func (d *decoder) end() error {
	if d.err == nil && d.pos != len(d.buf) {
		d.fail("%d bytes too many", len(d.buf)-d.pos)
	}
	return d.err
}
