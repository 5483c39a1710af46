package partition

import (
	"bytes"
	"flag"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"

	"thermocline/tiering/format"
)

var update = flag.Bool("update", false, "write the golden file anew (only together with a new version)")

func bytesReader(b []byte) io.Reader { return bytes.NewReader(b) }

// sample is a Set with something of everything.
func sample(t testing.TB) *driver {
	d := newDriver(t, Options{})
	a, b, c := key(1, 0), key(1, 1), key(2, 0)
	d.create(a, b, c, key(3, 0))
	d.must(&SetConfig{Topic: c.Topic, Revision: 44, Config: map[string]string{"retention.ms": "1000", "cleanup.policy": "delete"}})
	d.must(&AllocateProducerIDs{Count: 1000})
	for i := int32(0); i < 9; i++ {
		d.time += 10
		d.must(&Produce{Key: a, Batch: from(1<<40, 1, i*3, 3)})
		d.must(&Produce{Key: b, Batch: plain(2, 77+int64(i))})
		if i == 3 {
			d.tier()
			d.term = 8
		}
		if i == 5 {
			d.tier()
			d.must(&CommitRun{Run: format.RunRow{ID: 3, Level: 1, Key: "runs/3", First: 1, Last: 1, Pages: 2, Size: 131072, CRC32C: 5},
				Fence: format.FenceRow{Key: "fences/3", Size: 65536, CRC32C: 6, Blocks: []format.FenceKey{{Partition: 1, Offset: 3}}}})
		}
	}
	d.must(&DeletePartition{Key: key(3, 0)})
	d.must(&DeleteRecords{Key: a, Offset: 20})
	return d
}

func TestImageGolden(t *testing.T) {
	path := filepath.Join("testdata", "image-v1.bin")
	d := sample(t)
	image := imageOf(t, d.s)
	if *update {
		if err := os.WriteFile(path, image, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(golden, image) {
		t.Fatalf("the image of version 1 has changed: expected %d bytes, found %d", len(golden), len(image))
	}
	s := restored(t, d.s.opt, golden)
	s.SetHW(d.index, true)
	for _, k := range d.s.Keys() {
		v, _ := s.View(k)
		v.Manifest, v.Config = nil, nil
		w := d.view(k)
		w.Manifest, w.Config = nil, nil
		if v.Key != w.Key || v.HW != w.HW || v.TieredEnd != w.TieredEnd || v.LogStart != w.LogStart || v.MaxTimestampTail != w.MaxTimestampTail || v.HotBytes != w.HotBytes || v.Ref != w.Ref {
			t.Fatalf("view: expected %+v, found %+v", w, v)
		}
	}
	want(t, "producers", len(s.Producers(key(1, 0))), 1)
	want(t, "producer", s.Producers(key(1, 0))[0], d.s.Producers(key(1, 0))[0])
	want(t, "trimmable", s.TrimmableIndex(), d.s.TrimmableIndex())
	want(t, "stats", s.Stats().TailBytes, d.s.Stats().TailBytes)
}

// TestImageIsFrozen: what happens after Image does not show in it.
func TestImageIsFrozen(t *testing.T) {
	d := sample(t)
	before := imageOf(t, d.s)
	im := d.s.Image()
	a, b := key(1, 0), key(1, 1)
	for i := int32(0); i < 100; i++ {
		d.must(&Produce{Key: a, Batch: from(1<<40, 1, 27+i, 1)})
		d.must(&Produce{Key: b, Batch: from(int64(i), 0, 0, 1)})
	}
	d.must(&SetConfig{Topic: a.Topic, Revision: 99, Config: map[string]string{"x": "y"}})
	d.create(key(9, 9))
	d.tier()
	d.must(&DeletePartition{Key: b})
	d.time += 3 * ProducerExpiryMilli
	d.must(&AllocateProducerIDs{Count: 1})
	var after bytes.Buffer
	for range 2 { // encoding changes nothing either
		after.Reset()
		if err := im.Encode(&after); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(before, after.Bytes()) {
			t.Fatal("the image has changed")
		}
	}
	want(t, "index", im.Index()+205, d.index)
}

func TestRestoreSmallReads(t *testing.T) {
	d := sample(t)
	image := imageOf(t, d.s)
	s := NewSet(d.s.opt)
	if err := s.Restore(iotest.OneByteReader(bytes.NewReader(image))); err != nil {
		t.Fatal(err)
	}
	want(t, "image", string(imageOf(t, s)), string(image))
	err := s.Restore(iotest.TimeoutReader(iotest.OneByteReader(bytes.NewReader(image))))
	wantErr(t, err, iotest.ErrTimeout)
}

// TestRestoreDamage: every cut and every flipped bit is found, and the state
// stays as it was.
func TestRestoreDamage(t *testing.T) {
	d := sample(t)
	image := imageOf(t, d.s)
	s := NewSet(d.s.opt)
	empty := string(imageOf(t, s))
	for n := range image {
		if err := s.Restore(bytes.NewReader(image[:n])); err == nil {
			t.Fatalf("cut to %d bytes: restored", n)
		}
		b := bytes.Clone(image)
		b[n] ^= 1 << (n % 8)
		if err := s.Restore(bytes.NewReader(b)); err == nil {
			t.Fatalf("bit flipped in byte %d: restored", n)
		}
	}
	wantErr(t, s.Restore(bytes.NewReader(append(bytes.Clone(image), 0))), ErrCorrupt)
	want(t, "image", string(imageOf(t, s)), empty)
	newer := bytes.Clone(image)
	newer[4] = imageVersion + 1
	wantErr(t, s.Restore(bytes.NewReader(newer)), ErrNewerVersion)
	wantErr(t, NewSet(Options{Shard: 8}).Restore(bytes.NewReader(image)), ErrCorrupt)
}

type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

func TestEncodeError(t *testing.T) {
	wantErr(t, sample(t).s.Image().Encode(&failingWriter{10}), io.ErrClosedPipe)
}

// reseal gives a damaged image a right checksum.
func reseal(b []byte) []byte {
	b = bytes.Clone(b[:len(b)-4])
	sum := crc32.Checksum(b, castagnoli)
	return append(b, byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
}

// FuzzRestore: any bytes either restore, and then encode to an image that
// restores to itself, or are refused.
func FuzzRestore(f *testing.F) {
	image := imageOf(f, sample(f).s)
	f.Add(image[:len(image)-4])
	slots := imageOf(f, sampleSlots(f).s)
	f.Add(slots[:len(slots)-4])
	f.Add(imageOf(f, NewSet(Options{Shard: 7})))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := NewSet(Options{Shard: 7})
		if err := s.Restore(bytes.NewReader(reseal(append(b, 0, 0, 0, 0)))); err != nil {
			return
		}
		again := imageOf(t, s)
		want(t, "image", string(imageOf(t, restored(t, s.opt, again))), string(again))
		d := &driver{t: t, s: s, index: s.index, term: s.term + 1}
		if d.index > 1<<60 || d.term > 1<<60 {
			return
		}
		for _, k := range s.Keys() {
			_, _ = d.produce(k, plain(1, 1))
		}
		if r, ok := s.Seal(1 << 20); ok {
			_, _ = d.do(&TierSegment{Row: rowOf(r)})
		}
	})
}

// FuzzApplyPayload: any payload is refused, by CheckPayload at the latest, or
// applies, with the same state on every replica.
func FuzzApplyPayload(f *testing.F) {
	for _, e := range slices.Concat(sample(f).log, sampleSlots(f).log) {
		f.Add(e.payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		image := imageOf(t, sampleSlots(t).s)
		a, b := restored(t, Options{Shard: 7}, image), restored(t, Options{Shard: 7}, image)
		e := entry{index: 1000, term: 9, time: 5, payload: payload}
		check := CheckPayload(payload)
		if len(payload) == 0 {
			return
		}
		_, errA := applyTo(a, e)
		_, errB := applyTo(b, e)
		if (errA == nil) != (errB == nil) || (errA != nil && check == nil) {
			t.Fatalf("check %v, replicas %v, %v", check, errA, errB)
		}
		if errA == nil {
			want(t, "image", string(imageOf(t, a)), string(imageOf(t, b)))
			restored(t, a.opt, imageOf(t, a))
		}
	})
}
