package batch

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"
)

// goldenBatch is two records at time 1700000000123, key "k", value "v1", and a
// null key with value "v2" 5 ms earlier; no producer. It never changes: it is
// Kafka's format.
const goldenBatch = "0000000000000000" + "00000044" + "00000000" + "02" + "8f7a2311" + "0000" + "00000001" +
	"0000018bcfe5687b" + "0000018bcfe5687b" + "ffffffffffffffff" + "ffff" + "ffffffff" + "00000002" +
	"12" + "00" + "00" + "00" + "026b" + "047631" + "00" +
	"10" + "00" + "09" + "02" + "01" + "047632" + "00"

func TestGolden(t *testing.T) {
	want, err := hex.DecodeString(goldenBatch)
	if err != nil {
		t.Fatal(err)
	}
	got := NewBuilder(BuilderOptions{}).Add(1700000000123, []byte("k"), []byte("v1")).
		Add(1700000000118, nil, []byte("v2")).Build()
	if !bytes.Equal(want, got) {
		t.Fatalf("golden batch:\nexpected %x\nfound    %x", want, got)
	}
	if _, _, err := Gate(want, &GateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// reseal gives a batch that was tampered with its true length and CRC again.
func reseal(b Batch) Batch { b.seal(); return b }

// raw makes a batch around a records section that need not be sound.
func raw(c Codec, count int, records []byte) Batch {
	b := make(Batch, HeaderLen, HeaderLen+len(records))
	b = append(b, records...)
	b[offMagic] = Magic
	b.putI16(offAttributes, int16(c))
	b.putI32(offLastOffsetDelta, int32(count-1))
	b.putI64(offProducerID, -1)
	b.putI32(offCount, int32(count))
	return reseal(b)
}

func TestGateRefuses(t *testing.T) {
	plain := func() Batch { return build(BuilderOptions{}, samples(3, 10, 40)) }
	patch := func(f func(b Batch)) func() Batch {
		return func() Batch { b := plain(); f(b); return reseal(b) }
	}
	cases := []struct {
		name string
		make func() Batch
		o    GateOptions
		want error
	}{
		{"empty", func() Batch { return nil }, GateOptions{}, ErrTruncated},
		{"short header", func() Batch { return plain()[:40] }, GateOptions{}, ErrTruncated},
		{"cut", func() Batch { b := plain(); return b[:len(b)-1] }, GateOptions{}, ErrTruncated},
		{"two batches", func() Batch { return append(plain(), plain()...) }, GateOptions{}, ErrCorrupt},
		{"negative length", func() Batch { b := plain(); b.putI32(offLength, -5); return b }, GateOptions{}, ErrCorrupt},
		{"huge length", func() Batch { b := plain(); b.putI32(offLength, math.MaxInt32); return b }, GateOptions{}, ErrCorrupt},
		{"tiny length", func() Batch { b := plain(); b.putI32(offLength, 48); return b }, GateOptions{}, ErrCorrupt},
		{"magic 0", patch(func(b Batch) { b[offMagic] = 0 }), GateOptions{}, ErrMagic},
		{"magic 1", patch(func(b Batch) { b[offMagic] = 1 }), GateOptions{}, ErrMagic},
		{"magic 3", patch(func(b Batch) { b[offMagic] = 3 }), GateOptions{}, ErrMagic},
		{"bit flip", func() Batch { b := plain(); b[len(b)-3] ^= 4; return b }, GateOptions{}, ErrCorrupt},
		{"over max bytes", plain, GateOptions{MaxBytes: 200}, ErrTooLarge},
		{"over max uncompressed", plain, GateOptions{MaxUncompressed: 100}, ErrTooLarge},
		{"control", patch(func(b Batch) { b.putI16(offAttributes, attrControl) }), GateOptions{}, ErrInvalidRecord},
		{"delete horizon", patch(func(b Batch) { b.putI16(offAttributes, attrDeleteHorizon) }), GateOptions{}, ErrInvalidRecord},
		{"bit 15", patch(func(b Batch) { b.putI16(offAttributes, math.MinInt16) }), GateOptions{}, ErrInvalidRecord},
		{"log append time", patch(func(b Batch) { b.putI16(offAttributes, attrLogAppendTime) }), GateOptions{}, ErrTimestamp},
		{"codec 5", patch(func(b Batch) { b.putI16(offAttributes, 5) }), GateOptions{}, ErrCodec},
		{"codec 7", patch(func(b Batch) { b.putI16(offAttributes, 7) }), GateOptions{}, ErrCodec},
		{"count 0", patch(func(b Batch) { b.putI32(offCount, 0); b.putI32(offLastOffsetDelta, -1) }), GateOptions{}, ErrInvalidRecord},
		{"count negative", patch(func(b Batch) { b.putI32(offCount, math.MinInt32); b.putI32(offLastOffsetDelta, math.MaxInt32) }), GateOptions{}, ErrInvalidRecord},
		{"count low", patch(func(b Batch) { b.putI32(offCount, 9); b.putI32(offLastOffsetDelta, 8) }), GateOptions{}, ErrInvalidRecord},
		{"count high", patch(func(b Batch) { b.putI32(offCount, 11); b.putI32(offLastOffsetDelta, 10) }), GateOptions{}, ErrInvalidRecord},
		{"count absurd", patch(func(b Batch) { b.putI32(offCount, math.MaxInt32); b.putI32(offLastOffsetDelta, math.MaxInt32-1) }), GateOptions{}, ErrInvalidRecord},
		{"last offset delta", patch(func(b Batch) { b.putI32(offLastOffsetDelta, 10) }), GateOptions{}, ErrInvalidRecord},
		{"transactional without producer", patch(func(b Batch) { b.putI16(offAttributes, attrTransactional) }), GateOptions{}, ErrInvalidRecord},
		{"producer id -2", patch(func(b Batch) { b.putI64(offProducerID, -2) }), GateOptions{}, ErrInvalidRecord},
		{"producer without epoch", patch(func(b Batch) { b.putI64(offProducerID, 5); b.putI32(offBaseSequence, 0) }), GateOptions{}, ErrInvalidRecord},
		{"producer without sequence", patch(func(b Batch) { b.putI64(offProducerID, 5); b.putI16(offProducerEpoch, 0) }), GateOptions{}, ErrInvalidRecord},
		{"keys", plain, GateOptions{KeysRequired: true}, ErrInvalidRecord},
		{"too old", plain, GateOptions{NowUnixMilli: 1_800_000_000_000, TimestampBeforeMax: 1000, TimestampAfterMax: -1}, ErrTimestamp},
		{"too new", plain, GateOptions{NowUnixMilli: 1_600_000_000_000, TimestampBeforeMax: -1, TimestampAfterMax: 1000}, ErrTimestamp},
		{"negative time", patch(func(b Batch) { b.putI64(offFirstTimestamp, -1_000_000) }), GateOptions{}, ErrTimestamp},
		{"time overflow", patch(func(b Batch) { b.putI64(offFirstTimestamp, math.MaxInt64) }), GateOptions{}, ErrTimestamp},
		{"old time and no key", plain, GateOptions{KeysRequired: true, NowUnixMilli: 1_800_000_000_000, TimestampBeforeMax: 0}, ErrTimestamp},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b, _, err := Gate(c.make(), &c.o)
			if !errors.Is(err, c.want) {
				t.Fatalf("expected %v, found %v", c.want, err)
			}
			if b != nil {
				t.Fatal("a refused batch was returned")
			}
		})
	}
}

// body is a record of one timestamp and offset, as parts to tamper with.
func body(parts ...[]byte) []byte {
	p := bytes.Join(parts, nil)
	return append(appendVarint(nil, int64(len(p))), p...)
}

func TestGateRefusesRecords(t *testing.T) {
	v := func(n int64) []byte { return appendVarint(nil, n) }
	long := bytes.Repeat([]byte("x"), windowBytes+100)
	overlong := []byte{0xff, 0xff, 0xff, 0xff, 0x7f}
	zero := []byte{0}
	cases := []struct {
		name  string
		rec   []byte
		index int
		says  string
	}{
		{"attributes", body([]byte{1}, v(0), v(0), v(-1), v(-1), v(0)), 0, "attributes"},
		{"empty body", append(body(), make([]byte, 8)...), 0, "length"},
		{"negative length", v(-7), 0, ""},
		{"length over end", append(v(100), 0, 0, 0), 0, ""},
		{"overlong number", body(zero, v(0), overlong, v(-1), v(-1), v(0)), 0, "number"},
		{"overlong time", body(zero, bytes.Repeat([]byte{0xff}, 11), v(0), v(-1), v(-1), v(0)), 0, "number"},
		{"offset delta 1", body(zero, v(0), v(1), v(-1), v(-1), v(0)), 0, "offset delta is 1"},
		{"offset delta -1", body(zero, v(0), v(-1), v(-1), v(-1), v(0)), 0, "offset delta"},
		{"key -2", body(zero, v(0), v(0), v(-2), v(-1), v(0)), 0, "key length"},
		{"value -2", body(zero, v(0), v(0), v(-1), v(-2), v(0)), 0, "value length"},
		{"key too long", body(zero, v(0), v(0), v(9), []byte("abc"), v(-1), v(0)), 0, "ends"},
		{"value huge", body(zero, v(0), v(0), v(-1), v(math.MaxInt32), v(0)), 0, "ends"},
		{"header count", body(zero, v(0), v(0), v(-1), v(-1), v(-1)), 0, "headers"},
		{"header count huge", body(zero, v(0), v(0), v(-1), v(-1), v(math.MaxInt32)), 0, "headers"},
		{"headers missing", body(zero, v(0), v(0), v(-1), v(-1), v(2)), 0, "number"},
		{"header key null", body(zero, v(0), v(0), v(-1), v(-1), v(1), v(-1), v(-1)), 0, "header key"},
		{"bytes after headers", body(zero, v(0), v(0), v(-1), v(-1), v(0), zero), 0, "length"},
		{"long: key null in headers", body(zero, v(0), v(0), v(-1), v(int64(len(long))), long, v(1), v(-1), v(-1)), 0, "header key"},
		{"long: bytes after", body(zero, v(0), v(0), v(-1), v(int64(len(long))), long, v(0), zero), 0, "length"},
		{"long: value over end", body(zero, v(0), v(0), v(-1), v(int64(len(long)+9)), long, v(0)), 0, "ends"},
		{"long: attributes", body([]byte{9}, v(0), v(0), v(-1), v(int64(len(long))), long, v(0)), 0, "attributes"},
		{"long: key -5", body(zero, v(0), v(0), v(-5), v(int64(len(long))), long, v(0)), 0, "key length"},
		{"long: header count", body(zero, v(0), v(0), v(-1), v(int64(len(long))), long, v(-3)), 0, "headers"},
		{"long: overlong", body(zero, v(0), overlong, v(-1), v(int64(len(long))), long, v(0)), 0, "number"},
	}
	for _, c := range cases {
		for _, codec := range allCodecs {
			t.Run(c.name+"/"+codec.String(), func(t *testing.T) {
				b := raw(None, 1, c.rec)
				if codec != None {
					var err error
					if b, err = recompress(b, codec, 0, len(c.rec), 1<<20); err != nil {
						t.Fatal(err)
					}
				}
				_, _, err := Gate(b, &GateOptions{Codec: CodecProducer})
				if !errors.Is(err, ErrInvalidRecord) {
					t.Fatalf("expected %v, found %v", ErrInvalidRecord, err)
				}
				var re *RecordsError
				if c.says != "" && (!errors.As(err, &re) || re.Records[0].Index != c.index || !strings.Contains(re.Records[0].Message, c.says)) {
					t.Fatalf("expected record %d %q, found %v", c.index, c.says, err)
				}
				if err := Iterate(b, func(Record) bool { return true }); err == nil && c.name != "offset delta 1" {
					t.Fatal("iterate accepted it")
				}
			})
		}
	}
}

func TestRecordErrorsNameRecords(t *testing.T) {
	ss := samples(1, 5000, 10)
	for i := range ss {
		ss[i].key = nil
	}
	_, _, err := Gate(build(BuilderOptions{}, ss), &GateOptions{KeysRequired: true})
	var re *RecordsError
	if !errors.As(err, &re) || len(re.Records) != MaxRecordErrors {
		t.Fatalf("expected %d record errors, found %v", MaxRecordErrors, err)
	}
	for i, r := range re.Records {
		if r.Index != i {
			t.Fatalf("record error %d names %d", i, r.Index)
		}
	}
	if !strings.Contains(err.Error(), "and 1023 more") {
		t.Fatalf("message: %v", err)
	}
}

// TestGateAllows: what real clients send and a strict reading would refuse.
func TestGateAllows(t *testing.T) {
	patch := func(f func(b Batch)) Batch {
		b := build(BuilderOptions{}, samples(3, 10, 40))
		f(b)
		return reseal(b)
	}
	for name, b := range map[string]Batch{
		"kafkajs: epoch 0, sequence 0, no id": patch(func(b Batch) { b.putI16(offProducerEpoch, 0); b.putI32(offBaseSequence, 0) }),
		"sarama: epoch -1, sequence 0, no id": patch(func(b Batch) { b.putI32(offBaseSequence, 0) }),
		"stamped before":                      patch(func(b Batch) { b.Stamp(99, 3) }),
		"transactional with producer": patch(func(b Batch) {
			b.putI16(offAttributes, attrTransactional)
			b.putI64(offProducerID, 0)
			b.putI16(offProducerEpoch, 0)
			b.putI32(offBaseSequence, math.MaxInt32)
		}),
		"no timestamps": NewBuilder(BuilderOptions{}).Add(-1, nil, []byte("x")).Add(-1, nil, nil).Build(),
	} {
		o := GateOptions{NowUnixMilli: 1_700_000_000_000, TimestampBeforeMax: 3_600_000, TimestampAfterMax: 3_600_000}
		if out, _, err := Gate(b, &o); err != nil || &out[0] != &b[0] {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGateCorrectsMaxTimestamp(t *testing.T) {
	for _, c := range allCodecs {
		ss := samples(9, 30, 50)
		b := build(BuilderOptions{Codec: c}, ss)
		for _, wrong := range []int64{-1, 0, maxTime(ss) - 1, maxTime(ss) + 1, math.MaxInt64, math.MinInt64} {
			bad := bytes.Clone(b)
			Batch(bad).putI64(offMaxTimestamp, wrong)
			reseal(bad)
			before := bytes.Clone(bad)
			out, info, err := Gate(bad, &GateOptions{Codec: CodecProducer})
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			if !bytes.Equal(bad, before) {
				t.Fatal("the gate wrote into its input")
			}
			if !bytes.Equal(out, b) || info.MaxTimestamp != maxTime(ss) {
				t.Fatalf("%s: max timestamp: expected %d, found %d", c, maxTime(ss), out.MaxTimestamp())
			}
		}
	}
}

func TestGateLogAppendTime(t *testing.T) {
	const now = 1_750_000_000_000
	for _, c := range allCodecs {
		ss := samples(4, 12, 30)
		ss[3].ts = -50 // refused with create time, overruled here
		out, info, err := Gate(build(BuilderOptions{Codec: c}, ss), &GateOptions{Codec: CodecProducer, LogAppendTime: true, NowUnixMilli: now})
		if err != nil {
			t.Fatal(err)
		}
		if out.TimestampType() != LogAppendTime || out.MaxTimestamp() != now || info.MaxTimestamp != now || out.CheckCRC() != nil {
			t.Fatalf("%s: not stamped: %v", c, out.CheckCRC())
		}
		for i := range ss {
			ss[i].ts = now
		}
		sameSamples(t, ss, iterated(t, out))
		if off, ts, ok, err := FindTime(out, now); off != 0 || ts != now || !ok || err != nil {
			t.Fatalf("find time: %d %d %v %v", off, ts, ok, err)
		}
	}
}

func TestGateRecompresses(t *testing.T) {
	for _, from := range allCodecs {
		for _, to := range allCodecs {
			for _, level := range []int{0, 12} {
				ss := samples(uint64(level+5), 800, 60)
				b := build(BuilderOptions{Codec: from, Producer: &Producer{ID: 9, Epoch: 1, Sequence: 4}}, ss)
				out, info, err := Gate(b, &GateOptions{Codec: to, CompressionLevel: level})
				if err != nil {
					t.Fatalf("%s to %s: %v", from, to, err)
				}
				if out.Codec() != to || (from == to) != (&out[0] == &b[0]) {
					t.Fatalf("%s to %s: codec is %s", from, to, out.Codec())
				}
				sameSamples(t, ss, kmsgRecords(t, out))
				sameSamples(t, ss, iterated(t, out))
				if out.ProducerID() != 9 || out.BaseSequence() != 4 || out.MaxTimestamp() != maxTime(ss) {
					t.Fatalf("%s to %s: header changed", from, to)
				}
				if again, info2, err := Gate(out, &GateOptions{Codec: to}); err != nil || &again[0] != &out[0] || info2 != info {
					t.Fatalf("%s to %s: second pass: %v", from, to, err)
				}
			}
		}
	}
	b := build(BuilderOptions{Codec: Zstd}, samples(1, 3000, 60))
	if _, _, err := Gate(b, &GateOptions{Codec: None, MaxBytes: len(b) + 1000}); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("a batch over the limit after decompression: expected %v, found %v", ErrTooLarge, err)
	}
}

func TestSplit(t *testing.T) {
	var buf []byte
	var want []Batch
	for i := range 5 {
		b := build(BuilderOptions{BaseOffset: int64(i), Codec: Codec(i)}, samples(uint64(i), 5, 20))
		want = append(want, b)
		buf = append(buf, b...)
	}
	rest := append(bytes.Clone(buf), want[0][:70]...)
	for i := range want {
		b, r, err := Next(rest)
		if err != nil || !bytes.Equal(b, want[i]) || cap(b) != len(b) {
			t.Fatalf("batch %d: %v", i, err)
		}
		rest = r
	}
	if _, r, err := Next(rest); !errors.Is(err, ErrTruncated) || len(r) != 70 {
		t.Fatalf("expected %v and 70 bytes, found %v and %d", ErrTruncated, err, len(r))
	}
}

func TestStampLeavesCRC(t *testing.T) {
	b := build(BuilderOptions{}, samples(1, 3, 10))
	crc := b.CRC()
	b.Stamp(math.MaxInt64-10, 1<<30)
	if b.CheckCRC() != nil || b.CRC() != crc || b.BaseOffset() != math.MaxInt64-10 || b.LeaderEpoch() != 1<<30 || b.LastOffset() != math.MaxInt64-8 {
		t.Fatal("stamp changed what the crc covers, or did not stamp")
	}
}

func TestVarints(t *testing.T) {
	for _, v := range []int64{0, 1, -1, 63, 64, -64, -65, 1 << 20, math.MaxInt32, math.MinInt32, 1 << 40, math.MaxInt64, math.MinInt64} {
		p := appendVarint(nil, v)
		if len(p) != varintLen(v) || !bytes.Equal(p, binary.AppendVarint(nil, v)) {
			t.Fatalf("%d: encoded as %x", v, p)
		}
		if got, n := varint64(p); got != v || n != len(p) {
			t.Fatalf("%d: decoded as %d from %d bytes", v, got, n)
		}
		if v == int64(int32(v)) {
			if got, n := varint32(p); int64(got) != v || n != len(p) {
				t.Fatalf("%d: decoded as %d from %d bytes", v, got, n)
			}
		} else if _, n := varint32(p); n != -1 {
			t.Fatalf("%d fits no int32 but gave %d", v, n)
		}
		if _, n := varint64(p[:len(p)-1]); n != 0 {
			t.Fatalf("%d: a cut number gave %d", v, n)
		}
	}
}

func TestParseCodec(t *testing.T) {
	for _, c := range append(allCodecs, CodecProducer) {
		if got, err := ParseCodec(c.String()); err != nil || got != c {
			t.Errorf("%s: %v %v", c, got, err)
		}
	}
	if got, err := ParseCodec("uncompressed"); err != nil || got != None {
		t.Errorf("uncompressed: %v %v", got, err)
	}
	if _, err := ParseCodec("brotli"); !errors.Is(err, ErrCodec) {
		t.Errorf("brotli: %v", err)
	}
}
