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

// rewrite makes what must change under the CRC; it returns b when nothing must.
func rewrite(b Batch, o *GateOptions, info Info, maxBytes int) (Batch, error) {
	out := b
	if target := o.Codec; target != CodecProducer && target != b.Codec() {
		var err error
		if out, err = recompress(b, target, o.CompressionLevel, info.Uncompressed, maxBytes); err != nil {
			return nil, err
		}
	}
	if !o.LogAppendTime && b.MaxTimestamp() == info.MaxTimestamp {
		return out, nil
	}
	if &out[0] == &b[0] {
		out = bytes.Clone(b)
	}
	if o.LogAppendTime {
		out.putI16(offAttributes, out.Attributes()|attrLogAppendTime)
	}
	out.putI64(offMaxTimestamp, info.MaxTimestamp)
	out.seal()
	return out, nil
}

// recompress makes the same batch in another codec. The records have been
// validated; size is how many bytes they are.
func recompress(b Batch, target Codec, level, size, maxBytes int) (Batch, error) {
	if !target.valid() {
		return nil, fmt.Errorf("target codec: expected %d to %d, found %d: %w", None, Zstd, int8(target), ErrCodec)
	}
	guess := HeaderLen + size
	if target != None {
		guess = HeaderLen + size/2
	}
	out := limitedBuffer{b: make([]byte, HeaderLen, min(guess, maxBytes)), limit: maxBytes}
	copy(out.b, b[:HeaderLen])
	if err := transcode(b, target, level, &out); err != nil {
		return nil, err
	}
	nb := Batch(out.b)
	nb.putI16(offAttributes, nb.Attributes()&^attrCodecMask|int16(target))
	nb.seal()
	return nb, nil
}

// transcode streams b's records into out, compressed as target.
func transcode(b Batch, target Codec, level int, out *limitedBuffer) error {
	enc, err := openEncoder(target, level, out)
	if err != nil {
		return err
	}
	defer enc.release()
	var w window
	if err := w.open(b, MaxUncompressedBytes); err != nil {
		return err
	}
	defer w.close()
	for {
		w.need(1)
		if w.err != nil {
			return w.err
		}
		if w.have() == 0 {
			break
		}
		if _, err := enc.Write(w.buf[w.r:w.w]); err != nil {
			return fmt.Errorf("batch %s encoder: %w", target, err)
		}
		w.r = w.w
	}
	if err := enc.Close(); err != nil {
		return fmt.Errorf("batch %s encoder: %w", target, err)
	}
	return nil
}

// limitedBuffer appends what is written, and refuses to grow beyond its limit.
type limitedBuffer struct {
	b     []byte
	limit int
}

func (l *limitedBuffer) Write(p []byte) (int, error) {
	if len(l.b)+len(p) > l.limit {
		return 0, fmt.Errorf("recompressed batch: expected at most %d bytes: %w", l.limit, ErrTooLarge)
	}
	l.b = append(l.b, p...)
	return len(p), nil
}

// encoder is a pooled compressor. release gives it back, after Close or
// instead of it.
type encoder struct {
	io.WriteCloser
	release func()
}

type resetter interface {
	io.WriteCloser
	Reset(io.Writer)
}

// Levels: gzip 1 to 9, zstd's four of this library, lz4 0 (fast) to 9.
var (
	gzipEncoders [gzip.BestCompression + 1]sync.Pool
	zstdEncoders [zstd.SpeedBestCompression + 1]sync.Pool
	lz4Encoders  [lz4Levels]sync.Pool
	xerialPool   = sync.Pool{New: func() any { return new(xerialWriter) }}
)

const lz4Levels = 10

func openEncoder(c Codec, level int, out *limitedBuffer) (encoder, error) {
	switch c {
	case None:
		return encoder{nopCloser{out}, func() {}}, nil
	case Snappy:
		w := xerialPool.Get().(*xerialWriter)
		if err := w.reset(out); err != nil {
			return encoder{}, err
		}
		return encoder{w, func() { w.out = nil; xerialPool.Put(w) }}, nil
	case Gzip:
		if level < gzip.BestSpeed || level > gzip.BestCompression {
			level = 6 // what gzip.DefaultCompression means
		}
		return pooled(&gzipEncoders[level], out, func() (resetter, error) {
			return gzip.NewWriterLevel(nil, level)
		})
	case LZ4:
		level = min(max(level, 0), lz4Levels-1)
		return pooled(&lz4Encoders[level], out, func() (resetter, error) {
			return newLZ4Writer(level)
		})
	case Zstd:
		speed := zstd.SpeedDefault
		if level != 0 {
			speed = zstd.EncoderLevelFromZstd(level)
		}
		return pooled(&zstdEncoders[speed], out, func() (resetter, error) {
			return zstd.NewWriter(nil, zstd.WithEncoderLevel(speed), zstd.WithEncoderConcurrency(1),
				zstd.WithWindowSize(zstdEncoderWindow), zstd.WithLowerEncoderMem(true), zstd.WithZeroFrames(true))
		})
	}
	return encoder{}, fmt.Errorf("target codec: %d: %w", int8(c), ErrCodec)
}

func pooled(p *sync.Pool, out io.Writer, create func() (resetter, error)) (encoder, error) {
	w, ok := p.Get().(resetter)
	if !ok {
		var err error
		if w, err = create(); err != nil {
			return encoder{}, fmt.Errorf("batch encoder: %w", err)
		}
	}
	w.Reset(out)
	return encoder{w, func() { w.Reset(nil); p.Put(w) }}, nil
}

// newLZ4Writer makes frames as every client reads them: independent blocks of
// 64 KiB, no checksums of their own, since the batch has one.
func newLZ4Writer(level int) (*lz4.Writer, error) {
	w := lz4.NewWriter(nil)
	speed := lz4.Fast
	if level > 0 {
		speed = lz4.CompressionLevel(1 << (8 + level)) // lz4.Level1 is 1<<9
	}
	err := w.Apply(lz4.CompressionLevelOption(speed), lz4.BlockSizeOption(lz4.Block64Kb),
		lz4.ChecksumOption(false), lz4.ConcurrencyOption(1))
	return w, err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
