package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"thermocline/metadata"
	"thermocline/wal/batch"
)

var writeGolden = flag.Bool("write-golden", false, "write golden files that do not exist yet")

// content is what a test segment is made of, for comparison.
type content struct {
	ref     PartitionRef
	key     Key
	topic   string
	batches []batch.Batch
}

func topicID(n byte) (id metadata.TopicID) {
	for i := range id {
		id[i] = n
	}
	return id
}

func makeBatch(base int64, epoch int32, ts []int64, size int, p *batch.Producer) batch.Batch {
	b := batch.NewBuilder(batch.BuilderOptions{BaseOffset: base, LeaderEpoch: epoch, Producer: p})
	for i, t := range ts {
		b.Add(t, []byte(fmt.Sprint("k", i)), bytes.Repeat([]byte{byte(base)}, size))
	}
	return b.Build()
}

func makeContent(rng *rand.Rand, partitions, batches, size int) []content {
	var out []content
	for i := range partitions {
		c := content{ref: PartitionRef(1000 - i*7), key: Key{Topic: topicID(byte(i / 3)), Partition: int32(i % 3)}, topic: fmt.Sprintf("topic-%02d", i/3)}
		next, epoch := int64(i*10), int32(1)
		for range batches {
			if rng.Intn(5) == 0 {
				epoch++
			}
			n := 1 + rng.Intn(4)
			ts := make([]int64, n)
			for k := range ts {
				ts[k] = 1000 + int64(rng.Intn(500))
			}
			var p *batch.Producer
			if rng.Intn(2) == 0 {
				p = &batch.Producer{ID: int64(rng.Intn(3)), Epoch: 1, Sequence: int32(next)}
			}
			c.batches = append(c.batches, makeBatch(next, epoch, ts, size, p))
			next += int64(n)
		}
		out = append(out, c)
	}
	return out
}

func build(t testing.TB, cs []content) ([]byte, SegmentRow) {
	t.Helper()
	var buf bytes.Buffer
	w, err := NewWriter(&buf, SegmentInfo{Cluster: "cluster-1", Shard: 3, Term: 7, FirstIndex: 100, LastIndex: 200})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cs {
		if err := w.BeginPartition(c.ref, c.key, c.topic); err != nil {
			t.Fatal(err)
		}
		for _, b := range c.batches {
			if err := w.Add(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	row, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes(), row
}

func open(t testing.TB, obj []byte, row SegmentRow) *Segment {
	t.Helper()
	s, err := ParseSegment(obj[len(obj)-int(row.FooterLen):], row.Size)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSegmentHoldsEveryBatchVerbatim(t *testing.T) {
	cs := makeContent(rand.New(rand.NewSource(1)), 7, 40, 20<<10)
	obj, row := build(t, cs)
	if row.Size != int64(len(obj)) || row.CRC32C != Checksum(obj) {
		t.Fatalf("row says %d bytes, crc %08x; the object has %d, %08x", row.Size, row.CRC32C, len(obj), Checksum(obj))
	}
	s := open(t, obj, row)
	if s.Info != (SegmentInfo{Cluster: "cluster-1", Shard: 3, Term: 7, FirstIndex: 100, LastIndex: 200}) {
		t.Fatalf("info: %+v", s.Info)
	}
	for _, c := range cs {
		want := bytes.Join(toBytes(c.batches), nil)
		pos, n, ok := s.Index(c.ref)
		if !ok {
			t.Fatalf("partition %d has no index", c.ref)
		}
		x, err := ParsePartitionIndex(obj[pos : pos+int64(n)])
		if err != nil {
			t.Fatal(err)
		}
		if x.Key != c.key || x.Topic != c.topic || !bytes.Equal(obj[x.Position:x.Position+x.Length], want) {
			t.Fatalf("partition %d: index %+v does not cover its data", c.ref, x)
		}
		checkExtents(t, s, c, obj)
		checkIndex(t, x, c)
	}
	if _, err := Describe(bytes.NewReader(obj), int64(len(obj))); err != nil {
		t.Fatal(err)
	}
}

func toBytes(bs []batch.Batch) [][]byte {
	out := make([][]byte, len(bs))
	for i := range bs {
		out[i] = bs[i]
	}
	return out
}

// checkExtents compares the directory with brute force.
func checkExtents(t *testing.T, s *Segment, c content, obj []byte) {
	t.Helper()
	var got []byte
	lo, hi := s.Directory.Of(c.ref)
	for i := lo; i < hi; i++ {
		e := s.Directory.Extents[i]
		piece := obj[e.Position : e.Position+e.Length]
		if _, err := VerifyExtent(&e, s.Directory.Epoch(i), piece); err != nil {
			t.Fatal(err)
		}
		best := int64(-1)
		for p := piece; len(p) > 0; {
			b, rest, err := batch.Next(p)
			if err != nil {
				t.Fatal(err)
			}
			best, p = max(best, b.MaxTimestamp()), rest
		}
		if best != e.MaxTimestamp || len(piece) > PieceBytes {
			t.Fatalf("extent %+v: expected max timestamp %d and at most %d bytes", e, best, PieceBytes)
		}
		got = append(got, piece...)
	}
	if !bytes.Equal(got, bytes.Join(toBytes(c.batches), nil)) {
		t.Fatalf("partition %d: extents do not add up to its data", c.ref)
	}
	for _, b := range c.batches {
		i, below, ok := s.Directory.Floor(c.ref, b.LastOffset())
		if e := s.Directory.Extents[i]; !ok || below || e.FirstOffset > b.BaseOffset() || i+1 < hi && s.Directory.Extents[i+1].FirstOffset <= b.BaseOffset() {
			t.Fatalf("floor of %d: extent %+v", b.LastOffset(), e)
		}
	}
}

func checkIndex(t *testing.T, x *PartitionIndex, c content) {
	t.Helper()
	producers := map[int64]batch.Batch{}
	var epochs []EpochStart
	pos := x.Position
	for _, b := range c.batches {
		if p := x.Floor(b.LastOffset()); p > pos || pos-p > StretchBytes+int64(len(b)) {
			t.Fatalf("floor of %d: position %d, the batch lies at %d", b.LastOffset(), p, pos)
		}
		pos += int64(len(b))
		if b.ProducerID() >= 0 {
			producers[b.ProducerID()] = b
		}
		if n := len(epochs); n == 0 || epochs[n-1].Epoch != b.LeaderEpoch() {
			epochs = append(epochs, EpochStart{FirstOffset: b.BaseOffset(), Epoch: b.LeaderEpoch()})
		}
	}
	if !reflect.DeepEqual(epochs, x.Epochs) || len(x.Producers) != len(producers) {
		t.Fatalf("expected epochs %v and %d producers, found %v and %v", epochs, len(producers), x.Epochs, x.Producers)
	}
	for _, p := range x.Producers {
		if b := producers[p.ID]; p.LastSequence != b.LastSequence() || p.LastOffset != b.LastOffset() {
			t.Fatalf("producer %+v: its last batch ends at offset %d, sequence %d", p, b.LastOffset(), b.LastSequence())
		}
	}
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	obj, _ := build(t, makeContent(rand.New(rand.NewSource(2)), 4, 3, 10))
	for i := range obj {
		bad := bytes.Clone(obj)
		bad[i] ^= 1 << (i % 8)
		if _, err := Describe(bytes.NewReader(bad), int64(len(bad))); err == nil {
			t.Fatalf("a flipped bit at %d of %d was not found", i, len(obj))
		} else if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
			t.Fatalf("flipped bit at %d: %v", i, err)
		}
	}
	for n := range len(obj) {
		if _, err := Describe(bytes.NewReader(obj[:n]), int64(n)); err == nil {
			t.Fatalf("an object cut to %d of %d bytes was not found", n, len(obj))
		}
	}
}

func TestControlBatchesHaveNoTime(t *testing.T) {
	ctl := batch.NewBuilder(batch.BuilderOptions{BaseOffset: 1, LeaderEpoch: 1, Control: true}).Add(99999, []byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 0}).Build()
	obj, row := build(t, []content{{ref: 1, topic: "t", batches: []batch.Batch{makeBatch(0, 1, []int64{5}, 1, nil), ctl}}})
	if e := open(t, obj, row).Directory.Extents[0]; e.MaxTimestamp != 5 || row.MaxTimestamp != 5 {
		t.Fatalf("extent %+v and row %+v: expected max timestamp 5", e, row)
	}
}

func TestWriterRefuses(t *testing.T) {
	good := makeBatch(5, 1, []int64{1, 2}, 1, nil)
	damaged := batch.Batch(bytes.Clone(good))
	damaged[len(damaged)-1] ^= 1
	for name, f := range map[string]func(w *Writer) error{
		"a batch with a wrong crc": func(w *Writer) error { return w.Add(damaged) },
		"an offset twice":          func(w *Writer) error { _ = w.Add(good); return w.Add(good) },
		"partitions out of order": func(w *Writer) error {
			_ = w.Add(good)
			return w.BeginPartition(2, Key{}, "a")
		},
		"no batch": func(w *Writer) error { _, err := w.Finish(); return err },
		"a reference twice": func(w *Writer) error {
			_ = w.Add(good)
			_ = w.BeginPartition(1, Key{Partition: 1}, "m")
			_ = w.Add(good)
			_, err := w.Finish()
			return err
		},
	} {
		w, err := NewWriter(&bytes.Buffer{}, SegmentInfo{Cluster: "c", FirstIndex: 1, LastIndex: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.BeginPartition(1, Key{}, "m"); err != nil {
			t.Fatal(err)
		}
		if err := f(w); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestNames(t *testing.T) {
	for k := KindSegment; k <= KindSnapshot; k++ {
		n := Name{Kind: k, Shard: 12, Term: 3, Number: 1 << 40, Random: 0xdeadbeef}
		if got, err := ParseName(n.Key()); err != nil || got != n {
			t.Fatalf("%s: %+v, %v", n.Key(), got, err)
		}
	}
	good := Name{Kind: KindSegment, Shard: 1}.Key()
	for _, bad := range []string{"", "x", "segments/1/x.seg", "segments/01/" + good[11:], strings.ToUpper(good), good + "x", "a/" + good,
		strings.Replace(good, "segments", "runs", 1), strings.Replace(good, "/1/", "/-1/", 1), good[:len(good)-5] + "g.seg"} {
		if n, err := ParseName(bad); !errors.Is(err, ErrName) {
			t.Errorf("%q was taken for %+v (%v)", bad, n, err)
		}
	}
}

func testManifest() *Manifest {
	m := &Manifest{Shard: 9, TieredIndex: 1 << 33}
	for i := range 3 {
		m.Segments = append(m.Segments, SegmentRow{ID: SegmentID(i + 7), Key: Name{Kind: KindSegment, Number: uint64(i)}.Key(), FirstIndex: uint64(i * 10),
			LastIndex: uint64(i*10 + 9), Size: 1 << 34, CRC32C: 5, FooterLen: 300, MaxTimestamp: -1, Batches: 4, Records: 1 << 35})
	}
	m.Runs = []RunRow{{ID: 1, Level: 2, Key: "runs/x", First: 1, Last: 7, Pages: 4, Size: 1 << 20, CRC32C: 8}}
	m.Fence = FenceRow{Key: "fences/x", Size: 65536, CRC32C: 1, Blocks: []FenceKey{{1, 2}, {3, 1 << 40}}}
	return m
}

func TestManifestRoundTrip(t *testing.T) {
	for _, m := range []*Manifest{testManifest(), {Shard: 1}} {
		p := AppendManifest(nil, m)
		got, rest, err := DecodeManifest(append(p, 1, 2, 3))
		if err != nil || len(rest) != 3 || !reflect.DeepEqual(got, m) {
			t.Fatalf("%+v, rest %d, %v", got, len(rest), err)
		}
		for n := range p {
			if _, _, err := DecodeManifest(p[:n]); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("cut to %d: %v", n, err)
			}
		}
		p[0] = rowVersion + 1
		if _, _, err := DecodeManifest(p); !errors.Is(err, ErrVersion) {
			t.Fatalf("newer version: %v", err)
		}
	}
	if l0 := testManifest().LevelZero(); len(l0) != 2 || l0[0].ID != 8 {
		t.Fatalf("level 0: %+v", l0)
	}
}

// runContent writes a run and its fences over many segments.
func runContent(t testing.TB, entries int) (run, fences []byte, row RunRow, fence FenceRow) {
	t.Helper()
	var rb, fb bytes.Buffer
	fw, err := NewFenceWriter(&fb, "cluster-1", 3)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewRunWriter(&rb, fw.Add, RunInfo{Cluster: "cluster-1", Shard: 3, ID: 5, Level: 1, First: 1, Last: 8})
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		seg := SegmentID(1 + i%8)
		e := Extent{Partition: PartitionRef(i / 3000), FirstOffset: int64(i), MaxTimestamp: int64(i * 7 % 1000), Segment: seg, Position: 16, Length: 100}
		if err := w.Add(e, int32(i/1000), SegmentRef{Name: Name{Kind: KindSegment, Shard: 3, Number: uint64(seg)}, Size: int64(seg) << 33, FooterLen: uint32(seg)}); err != nil {
			t.Fatal(err)
		}
	}
	for id := SegmentID(1); id <= 8; id++ {
		if err := w.AddSegment(&SegmentRow{ID: id, Key: Name{Kind: KindSegment, Shard: 3, Number: uint64(id)}.Key()}); err != nil {
			t.Fatal(err)
		}
	}
	if row, err = w.Finish(); err != nil {
		t.Fatal(err)
	}
	if fence, err = fw.Finish(); err != nil {
		t.Fatal(err)
	}
	return rb.Bytes(), fb.Bytes(), row, fence
}

func TestRunPagesHoldEveryEntry(t *testing.T) {
	const entries = 9000
	run, fences, row, fence := runContent(t, entries)
	if row.Size != int64(len(run)) || row.CRC32C != Checksum(run) || fence.Size != int64(len(fences)) || fence.CRC32C != Checksum(fences) {
		t.Fatalf("rows %+v, %+v do not fit objects of %d and %d bytes", row, fence, len(run), len(fences))
	}
	at := 0
	for n := range int(row.Pages) {
		pg, err := ParsePage(run[n*PageLen : (n+1)*PageLen])
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range pg.Directory.Extents {
			ref, ok := pg.Segment(e.Segment)
			if e.FirstOffset != int64(at) || pg.Directory.Epoch(i) != int32(at/1000) || !ok || ref.Name.Number != uint64(e.Segment) ||
				ref.Size != int64(e.Segment)<<33 || ref.FooterLen != uint32(e.Segment) {
				t.Fatalf("entry %d: %+v, epoch %d, segment %+v", at, e, pg.Directory.Epoch(i), ref)
			}
			at++
		}
	}
	if at != entries {
		t.Fatalf("expected %d entries, found %d", entries, at)
	}
	for name, obj := range map[string][]byte{"run": run, "fences": fences} {
		d, err := Describe(bytes.NewReader(obj), int64(len(obj)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := json.Marshal(d); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(obj); i += 997 {
			bad := bytes.Clone(obj)
			bad[i] ^= 0x10
			if _, err := Describe(bytes.NewReader(bad), int64(len(bad))); err == nil {
				t.Fatalf("%s: a flipped bit at %d was not found", name, i)
			}
		}
	}
}

// TestPagesOfManySegments fills pages whose every entry names another segment.
func TestPagesOfManySegments(t *testing.T) {
	var pg Page
	n := 0
	for pg.add(&Extent{Partition: 1, FirstOffset: int64(n), Length: 1, Segment: SegmentID(100000 - n)}, int32(n), SegmentRef{Name: Name{Kind: KindSegment, Number: uint64(n)}}) {
		n++
	}
	if n != pageRoom/(ExtentLen+pageSegmentLen+epochRunLen) {
		t.Fatalf("a page took %d entries", n)
	}
	got, err := ParsePage(pg.appendTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range got.Directory.Extents {
		if ref, ok := got.Segment(e.Segment); !ok || ref.Name.Number != uint64(i) || got.Directory.Epoch(i) != int32(i) {
			t.Fatalf("entry %d: %+v", i, ref)
		}
	}
}

// TestGolden decodes the files of every version with today's code. Files are
// never rewritten: a changed encoding is a new version with a file of its own.
func TestGolden(t *testing.T) {
	seg, _ := build(t, makeContent(rand.New(rand.NewSource(3)), 5, 4, 20))
	run, fences, _, _ := runContent(t, 100)
	for name, now := range map[string][]byte{"segment-v1": seg, "run-v1": run, "fences-v1": fences, "manifest-v1": AppendManifest(nil, testManifest())} {
		path := filepath.Join("testdata", name+".golden")
		golden, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) && *writeGolden {
			if err := os.WriteFile(path, now, 0o644); err != nil {
				t.Fatal(err)
			}
			golden = now
		} else if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(golden, now) {
			t.Errorf("%s: today's encoding differs from the golden file: raise the version", name)
		}
		if name == "manifest-v1" {
			if m, _, err := DecodeManifest(golden); err != nil || !reflect.DeepEqual(m, testManifest()) {
				t.Errorf("%s: %+v, %v", name, m, err)
			}
		} else if _, err := Describe(bytes.NewReader(golden), int64(len(golden))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
