package batch

import (
	"bytes"
	"errors"
	"testing"
)

func seeds(f *testing.F) {
	for _, c := range allCodecs {
		f.Add([]byte(build(BuilderOptions{Codec: c}, samples(uint64(c), 3, 20))), true)
		f.Add([]byte(build(BuilderOptions{Codec: c, Transactional: true, Producer: &Producer{ID: 4, Epoch: 2, Sequence: 9}}, samples(uint64(c), 1, 0))), true)
	}
	ctl := NewBuilder(BuilderOptions{Control: true}).Add(1, []byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 1}).Build()
	f.Add([]byte(ctl), true)
	f.Add([]byte(build(BuilderOptions{}, samples(1, 1, windowBytes+500))), true)
	f.Add([]byte(build(BuilderOptions{Codec: Zstd}, samples(1, 2, windowBytes+500))), true)
	f.Add([]byte(build(BuilderOptions{}, samples(1, 5, 9))[:80]), false)
	f.Add([]byte{}, false)
}

// fuzzed prepares an input: with repair, length and CRC are made true, so that
// what lies behind them is reached.
func fuzzed(data []byte, repair bool) Batch {
	b := Batch(bytes.Clone(data))
	if repair && len(b) >= HeaderLen {
		b[offMagic] = Magic
		b.seal()
	}
	return b
}

// FuzzGate: whatever passes is a fixed point, holds what its header says, has
// a true max timestamp, and can be built again record by record.
func FuzzGate(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte, repair bool) {
		b := fuzzed(data, repair)
		before := bytes.Clone(b)
		o := &GateOptions{Codec: CodecProducer, MaxUncompressed: 1 << 20}
		out, info, err := Gate(b, o)
		if !bytes.Equal(before, b) {
			t.Fatal("the gate wrote into its input")
		}
		if err != nil {
			classified(t, err)
			return
		}
		again, info2, err := Gate(out, o)
		if err != nil || &again[0] != &out[0] || info != info2 {
			t.Fatalf("second pass: %v, %+v and %+v", err, info, info2)
		}
		var bl *Builder
		top, n := int64(-1), 0
		if err := Iterate(out, func(r Record) bool {
			if bl == nil {
				bl = NewBuilder(BuilderOptions{})
			}
			bl.Add(r.Timestamp, r.Key, r.Value, r.Headers...)
			top = max(top, r.Timestamp)
			n++
			return true
		}); err != nil {
			t.Fatalf("iterate refused what the gate took: %v", err)
		}
		if n != info.Records || n != out.Count() || top != out.MaxTimestamp() || top != info.MaxTimestamp {
			t.Fatalf("%d records, max %d; info %+v", n, top, info)
		}
		rebuilt := bl.Build()
		if same, _, err := Gate(rebuilt, o); err != nil || &same[0] != &rebuilt[0] {
			t.Fatalf("rebuilt batch: %v", err)
		}
		sameSamples(t, iterated(t, out), iterated(t, rebuilt))
		for _, c := range []Codec{None, Snappy} {
			changed, _, err := Gate(out, &GateOptions{Codec: c})
			if err != nil {
				t.Fatalf("recompress to %s: %v", c, err)
			}
			sameSamples(t, iterated(t, out), iterated(t, changed))
		}
	})
}

// FuzzIterate: readers of damaged bytes fail with a named error, never panic,
// and agree with each other.
func FuzzIterate(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte, repair bool) {
		for rest := []byte(fuzzed(data, repair)); ; {
			b, next, err := Next(rest)
			if err != nil {
				classified(t, err)
				return
			}
			offAt, tsAt, found := int64(0), int64(0), false
			ierr := Iterate(b, func(r Record) bool {
				if !found && r.Timestamp >= 0 {
					offAt, tsAt, found = b.BaseOffset()+int64(r.OffsetDelta), r.Timestamp, true
				}
				return true
			})
			off, ts, ok, ferr := FindTime(b, 0)
			if ierr == nil && ferr == nil && ok && (!found || off != offAt || ts != tsAt) {
				t.Fatalf("find time: %d %d, iterate: %d %d", off, ts, offAt, tsAt)
			}
			_, _, merr := FindMaxTime(b)
			for _, err := range []error{ierr, ferr, merr} {
				if err != nil {
					classified(t, err)
				}
			}
			rest = next
		}
	})
}

// FuzzRecord holds the two record scanners against each other: a whole body in
// memory, and the same through a window that it does not fit in.
func FuzzRecord(f *testing.F) {
	b := build(BuilderOptions{}, samples(5, 6, 30))
	for rest := []byte(b.Records()); len(rest) > 0; {
		length, n := varint32(rest)
		f.Add(rest[n : n+int(length)])
		rest = rest[n+int(length):]
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var whole, long fields
		bad := scanRecord(p, &whole)
		w := window{buf: p, w: len(p), eof: true}
		l := longRecord{w: &w, left: len(p)}
		bad2 := l.scan(&long)
		if (bad == "") != (bad2 == "") || bad == "" && whole != long {
			t.Fatalf("%x: whole %q %+v, long %q %+v", p, bad, whole, bad2, long)
		}
	})
}

func classified(t *testing.T, err error) {
	t.Helper()
	for _, known := range []error{ErrTruncated, ErrCorrupt, ErrMagic, ErrTooLarge, ErrInvalidRecord, ErrTimestamp, ErrCodec} {
		if errors.Is(err, known) {
			return
		}
	}
	t.Fatalf("an error that wraps none of the package's: %v", err)
}
