package batch

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sample is one record as the tests write it down.
type sample struct {
	ts         int64
	key, value []byte
	headers    []Header
}

var allCodecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// samples makes n records of about size bytes, of the kind that compresses
// like logs do. Every few records are unusual: nulls, empties, headers.
func samples(seed uint64, n, size int) []sample {
	rng := rand.New(rand.NewPCG(seed, 7))
	words := []string{"broker", "offset", "segment", "replica", "quorum", "thermocline", "cold", "warm"}
	out := make([]sample, n)
	for i := range out {
		var v []byte
		for len(v) < size {
			v = append(v, words[rng.IntN(len(words))]...)
			v = append(v, byte(rng.IntN(256)))
		}
		s := sample{ts: 1_700_000_000_000 + int64(rng.IntN(5000)) - 1000, key: fmt.Appendf(nil, "key-%d", i), value: v[:size]}
		switch i % 7 {
		case 2:
			s.key = nil
		case 3:
			s.value = nil
		case 4:
			s.key, s.value = []byte{}, []byte{}
		case 5:
			s.headers = []Header{{Key: []byte("trace"), Value: []byte{1, 2, 3}}, {Key: []byte(""), Value: nil}}
		}
		out[i] = s
	}
	return out
}

func build(o BuilderOptions, ss []sample) Batch {
	bl := NewBuilder(o)
	for _, s := range ss {
		bl.Add(s.ts, s.key, s.value, s.headers...)
	}
	return bl.Build()
}

func maxTime(ss []sample) int64 {
	m := int64(-1)
	for _, s := range ss {
		m = max(m, s.ts)
	}
	return m
}

func kgoCodec(c Codec) kgo.CompressionCodec {
	return map[Codec]kgo.CompressionCodec{None: kgo.NoCompression(), Gzip: kgo.GzipCompression(),
		Snappy: kgo.SnappyCompression(), LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression()}[c]
}

// kmsgBatch encodes the records with franz-go's encoders alone.
func kmsgBatch(t testing.TB, c Codec, ss []sample) []byte {
	t.Helper()
	var records []byte
	for i, s := range ss {
		r := kmsg.Record{TimestampDelta64: s.ts - ss[0].ts, OffsetDelta: int32(i), Key: s.key, Value: s.value}
		for _, h := range s.headers {
			r.Headers = append(r.Headers, kmsg.Header{Key: string(h.Key), Value: h.Value})
		}
		// The length counts what follows it; zero takes one byte.
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		records = r.AppendTo(records)
	}
	if c != None {
		comp, err := kgo.DefaultCompressor(kgoCodec(c))
		if err != nil {
			t.Fatal(err)
		}
		out, used := comp.Compress(new(bytes.Buffer), records)
		if Codec(used) != c {
			t.Fatalf("kgo used codec %d, wanted %d", used, c)
		}
		records = bytes.Clone(out)
	}
	rb := kmsg.RecordBatch{Magic: 2, Attributes: int16(c), LastOffsetDelta: int32(len(ss) - 1),
		FirstTimestamp: ss[0].ts, MaxTimestamp: maxTime(ss), ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: int32(len(ss)), Records: records}
	raw := rb.AppendTo(nil)
	rb.Length = int32(len(raw) - 12)
	rb.CRC = int32(crc32.Checksum(raw[21:], castagnoli))
	return rb.AppendTo(nil)
}

// kmsgRecords decodes a batch with franz-go's decoders alone.
func kmsgRecords(t testing.TB, b Batch) []sample {
	t.Helper()
	var rb kmsg.RecordBatch
	if err := rb.ReadFrom(b); err != nil {
		t.Fatalf("kmsg: %v", err)
	}
	if got := crc32.Checksum(b[21:], castagnoli); uint32(rb.CRC) != got {
		t.Fatalf("crc: expected %08x, found %08x", got, uint32(rb.CRC))
	}
	raw, err := kgo.DefaultDecompressor().Decompress(rb.Records, kgo.CompressionCodecType(rb.Attributes&7))
	if err != nil {
		t.Fatalf("kgo decompress %s: %v", b.Codec(), err)
	}
	var out []sample
	for range rb.NumRecords {
		length, n := varint32(raw)
		var r kmsg.Record
		if err := r.ReadFrom(raw[:n+int(length)]); err != nil {
			t.Fatalf("kmsg record %d: %v", len(out), err)
		}
		s := sample{ts: rb.FirstTimestamp + r.TimestampDelta64, key: r.Key, value: r.Value}
		for _, h := range r.Headers {
			s.headers = append(s.headers, Header{Key: []byte(h.Key), Value: h.Value})
		}
		out = append(out, s)
		raw = raw[n+int(length):]
	}
	if len(raw) != 0 {
		t.Fatalf("kmsg: %d bytes left", len(raw))
	}
	return out
}

// iterated collects what Iterate gives.
func iterated(t testing.TB, b Batch) []sample {
	t.Helper()
	var out []sample
	err := Iterate(b, func(r Record) bool {
		s := sample{ts: r.Timestamp, key: bytes.Clone(r.Key), value: bytes.Clone(r.Value)}
		for _, h := range r.Headers {
			s.headers = append(s.headers, Header{Key: bytes.Clone(h.Key), Value: bytes.Clone(h.Value)})
		}
		if int(r.OffsetDelta) != len(out) {
			t.Fatalf("offset delta: expected %d, found %d", len(out), r.OffsetDelta)
		}
		out = append(out, s)
		return true
	})
	if err != nil {
		t.Fatalf("iterate: %v", err)
	}
	return out
}

func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func sameSamples(t testing.TB, want, got []sample) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("records: expected %d, found %d", len(want), len(got))
	}
	for i := range want {
		w, g := want[i], got[i]
		same := w.ts == g.ts && sameBytes(w.key, g.key) && sameBytes(w.value, g.value) && len(w.headers) == len(g.headers)
		for k := 0; same && k < len(w.headers); k++ {
			same = bytes.Equal(w.headers[k].Key, g.headers[k].Key) && sameBytes(w.headers[k].Value, g.headers[k].Value)
		}
		if !same {
			t.Fatalf("record %d: expected %+v, found %+v", i, w, g)
		}
	}
}

// TestAgainstFranz: batches made by franz-go pass the gate untouched and read
// back the same; batches of ours read the same by franz-go.
func TestAgainstFranz(t *testing.T) {
	shapes := []struct{ n, size int }{{1, 0}, {1, 100}, {50, 30}, {2000, 100}, {3, 200_000}}
	for _, c := range allCodecs {
		for _, sh := range shapes {
			t.Run(fmt.Sprintf("%s/%dx%d", c, sh.n, sh.size), func(t *testing.T) {
				ss := samples(uint64(sh.n), sh.n, sh.size)
				theirs := Batch(kmsgBatch(t, c, ss))
				out, info, err := Gate(theirs, &GateOptions{Codec: CodecProducer})
				if err != nil {
					t.Fatalf("gate: %v", err)
				}
				if &out[0] != &theirs[0] || len(out) != len(theirs) {
					t.Fatal("the gate copied a batch that needed no change")
				}
				if info.Records != sh.n || info.MaxTimestamp != maxTime(ss) {
					t.Fatalf("info: %+v", info)
				}
				sameSamples(t, ss, iterated(t, theirs))
				ours := build(BuilderOptions{Codec: c}, ss)
				sameSamples(t, ss, kmsgRecords(t, ours))
				if c == None && !bytes.Equal(ours, theirs) {
					t.Fatal("an uncompressed batch of ours differs from franz-go's")
				}
			})
		}
	}
}

// TestHeaderAgainstFranz compares each accessor with kmsg's field.
func TestHeaderAgainstFranz(t *testing.T) {
	b := build(BuilderOptions{BaseOffset: 1 << 40, LeaderEpoch: 77, Codec: Zstd, Transactional: true,
		Producer: &Producer{ID: 1 << 50, Epoch: 300, Sequence: 2147483640}}, samples(1, 20, 50))
	var rb kmsg.RecordBatch
	if err := rb.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	checks := []struct {
		name      string
		want, got int64
	}{
		{"base offset", rb.FirstOffset, b.BaseOffset()},
		{"epoch", int64(rb.PartitionLeaderEpoch), int64(b.LeaderEpoch())},
		{"magic", int64(rb.Magic), int64(b.Magic())},
		{"crc", int64(uint32(rb.CRC)), int64(b.CRC())},
		{"attributes", int64(rb.Attributes), int64(b.Attributes())},
		{"last offset delta", int64(rb.LastOffsetDelta), int64(b.LastOffsetDelta())},
		{"first timestamp", rb.FirstTimestamp, b.FirstTimestamp()},
		{"max timestamp", rb.MaxTimestamp, b.MaxTimestamp()},
		{"producer id", rb.ProducerID, b.ProducerID()},
		{"producer epoch", int64(rb.ProducerEpoch), int64(b.ProducerEpoch())},
		{"sequence", int64(rb.FirstSequence), int64(b.BaseSequence())},
		{"count", int64(rb.NumRecords), int64(b.Count())},
		{"records", int64(len(rb.Records)), int64(len(b.Records()))},
		{"last offset", 1<<40 + 19, b.LastOffset()},
		{"last sequence wraps", 11, int64(b.LastSequence())},
	}
	for _, c := range checks {
		if c.want != c.got {
			t.Errorf("%s: expected %d, found %d", c.name, c.want, c.got)
		}
	}
	if !b.IsTransactional() || b.IsControl() || b.Codec() != Zstd || b.TimestampType() != CreateTime {
		t.Errorf("attributes read wrong: %04x", b.Attributes())
	}
}
