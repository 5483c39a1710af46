package batch

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is the compression of a batch's records, as in the attributes.
type Codec int8

// The codecs of Kafka, and CodecProducer: whatever the producer chose.
const (
	CodecProducer Codec = iota - 1
	None
	Gzip
	Snappy
	LZ4
	Zstd
)

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

// String is the name as in compression.type.
func (c Codec) String() string {
	switch {
	case c == CodecProducer:
		return "producer"
	case c.valid():
		return codecNames[c]
	default:
		return "codec(" + itoa(int(c)) + ")"
	}
}

// ParseCodec reads a value of compression.type; "uncompressed" is its other name for none.
func ParseCodec(s string) (Codec, error) {
	switch s {
	case "producer":
		return CodecProducer, nil
	case "uncompressed":
		return None, nil
	}
	for i, name := range codecNames {
		if s == name {
			return Codec(i), nil
		}
	}
	return None, fmt.Errorf("compression type: expected producer, none, gzip, snappy, lz4 or zstd, found %q: %w", s, ErrCodec)
}

func (c Codec) valid() bool { return c >= None && c <= Zstd }

const (
	// zstdWindow is what a decoder must support at the least by RFC 8878, and
	// what every level but the "ultra" ones stays within. A decoder allocates
	// it up front, so a 20-byte frame can cost this much.
	zstdWindow = 8 << 20
	// zstdUltraWindow is what Java's "ultra" levels (20 to 22) use. One batch
	// at a time in the whole process may use such a decoder.
	zstdUltraWindow = 128 << 20
	// zstdEncoderWindow keeps encoders, and everybody's decoders, small.
	zstdEncoderWindow = 1 << 20
)

// decoder turns a compressed records section into a stream. It is pooled;
// unread tells how much of the input it has not touched.
type decoder interface {
	io.Reader
	reset(src []byte, limit int) error
	unread() int
}

// decoderPools are by codec; None has no decoder.
var decoderPools = [...]sync.Pool{
	Gzip:   {New: func() any { return new(gzipDecoder) }},
	Snappy: {New: func() any { return new(snappyDecoder) }},
	LZ4:    {New: func() any { return &lz4Decoder{z: lz4.NewReader(nil)} }},
	Zstd:   {New: func() any { return newZstdDecoder(zstdWindow) }},
}

// zstdUltra lets one batch at a time through to a decoder with a huge window,
// which is made for it and left to the collector.
var zstdUltra sync.Mutex

// openDecoder takes a decoder for src, which may give limit+1 bytes before the
// caller must stop. On success close must be called.
func openDecoder(c Codec, src []byte, limit int) (decoder, error) {
	if !c.valid() || c == None {
		return nil, fmt.Errorf("batch codec: %d: %w", int8(c), ErrCodec)
	}
	var d decoder
	if c == Zstd && needsUltra(src) {
		zstdUltra.Lock()
		d = newZstdDecoder(zstdUltraWindow)
	} else {
		d = decoderPools[c].Get().(decoder)
	}
	if err := d.reset(src, limit); err != nil {
		closeDecoder(c, d, false)
		return nil, decodeError(c, err)
	}
	return d, nil
}

// closeDecoder gives d back. One that has failed is not used again: what state
// a library is in after hostile input is nobody's promise.
func closeDecoder(c Codec, d decoder, healthy bool) {
	if z, ok := d.(*zstdDecoder); ok && z.ultra {
		z.z.Close()
		zstdUltra.Unlock()
		return
	}
	if healthy && d.reset(nil, 0) == nil {
		decoderPools[c].Put(d)
	}
}

func decodeError(c Codec, err error) error {
	return fmt.Errorf("batch %s stream: %w: %w", c, err, ErrCorrupt)
}

type gzipDecoder struct {
	in bytes.Reader
	z  gzip.Reader
}

func (d *gzipDecoder) reset(src []byte, _ int) error {
	d.in.Reset(src)
	if src == nil {
		return nil // the reader keeps pointing at in, which is empty now
	}
	return d.z.Reset(&d.in)
}

func (d *gzipDecoder) Read(p []byte) (int, error) { return d.z.Read(p) }
func (d *gzipDecoder) unread() int                { return d.in.Len() }

type lz4Decoder struct {
	in bytes.Reader
	z  *lz4.Reader
}

func (d *lz4Decoder) reset(src []byte, _ int) error {
	d.in.Reset(src)
	d.z.Reset(&d.in)
	return nil
}

func (d *lz4Decoder) Read(p []byte) (int, error) { return d.z.Read(p) }
func (d *lz4Decoder) unread() int                { return d.in.Len() }

type zstdDecoder struct {
	in    bytes.Reader
	z     *zstd.Decoder
	ultra bool
}

// needsUltra looks at the first frame's header. A later frame with a larger
// window than the first is refused by the small decoder.
func needsUltra(src []byte) bool {
	var h zstd.Header
	return h.Decode(src) == nil && h.WindowSize > zstdWindow
}

func newZstdDecoder(window uint64) *zstdDecoder {
	// Concurrency 1 decodes on the caller's goroutine and starts no other, so
	// a decoder dropped by a pool leaks nothing.
	z, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(window),
		zstd.WithDecoderMaxMemory(MaxUncompressedBytes))
	if err != nil {
		panic("batch: zstd decoder options: " + err.Error()) // constants above are wrong
	}
	return &zstdDecoder{z: z, ultra: window > zstdWindow}
}

func (d *zstdDecoder) reset(src []byte, _ int) error {
	d.in.Reset(src)
	if src == nil {
		return d.z.Reset(nil)
	}
	return d.z.Reset(&d.in)
}

func (d *zstdDecoder) Read(p []byte) (int, error) { return d.z.Read(p) }
func (d *zstdDecoder) unread() int                { return d.in.Len() }
