package format

import (
	"bytes"
	"math/rand"
	"testing"
)

// The rules of every target: no panic, no memory beyond a small multiple of
// the input, and what parses encodes to the same bytes again.

func FuzzSegment(f *testing.F) {
	for seed := range int64(4) {
		obj, _ := build(f, makeContent(rand.New(rand.NewSource(seed)), 1+int(seed), 3, 30))
		f.Add(obj)
	}
	f.Add([]byte(segmentFooterMagic))
	f.Fuzz(func(t *testing.T, p []byte) {
		s, err := OpenSegment(bytes.NewReader(p), int64(len(p)))
		if err != nil {
			return
		}
		for _, ref := range s.Refs() {
			pos, n, ok := s.Index(ref)
			if !ok || pos+int64(n) > int64(len(p)) {
				t.Fatalf("index of %d: %d bytes at %d of %d", ref, n, pos, len(p))
			}
			_, _ = ParsePartitionIndex(p[pos : pos+int64(n)])
		}
		for i := range s.Directory.Extents {
			e := &s.Directory.Extents[i]
			_, _ = VerifyExtent(e, s.Directory.Epoch(i), p[e.Position:e.Position+e.Length])
		}
		_, _ = Describe(bytes.NewReader(p), int64(len(p)))
	})
}

// FuzzDirectory seals the input's checksums first, so that mutation reaches
// what lies behind them.
func FuzzDirectory(f *testing.F) {
	for seed := range int64(4) {
		obj, row := build(f, makeContent(rand.New(rand.NewSource(seed)), 1+int(seed), 3, 30))
		f.Add(obj[len(obj)-int(row.FooterLen):], row.Size)
		s := open(f, obj, row)
		pos, n, _ := s.Index(s.Refs()[0])
		f.Add(obj[pos:pos+int64(n)], int64(0))
	}
	f.Fuzz(func(t *testing.T, tail []byte, size int64) {
		p := bytes.Clone(tail)
		if len(p) > 4 {
			le.PutUint32(p[len(p)-4:], Checksum(p[:len(p)-4]))
		}
		if x, err := ParsePartitionIndex(p); err == nil {
			_ = x.Floor(x.LastOffset)
			if again := AppendPartitionIndex(nil, x); len(again) != len(p) {
				t.Fatalf("parsed %d bytes, encoded %d", len(p), len(again))
			}
		}
		if s, err := parseFooter(lastBytes(p, segmentFooterLen)); err == nil && s.extents > 0 {
			_, _ = ParseSegment(p, segmentHeaderLen+s.dataLen+s.indexLen+int64(len(p)))
		}
		_, _ = ParseSegment(p, size)
		_, _, _ = DecodeManifest(p)
	})
}

func lastBytes(p []byte, n int) []byte { return p[max(0, len(p)-n):] }

func FuzzPage(f *testing.F) {
	run, _, row, _ := runContent(f, 300)
	f.Add(run[:PageLen-4])
	f.Add(run[int(row.Pages)*PageLen:])
	f.Fuzz(func(t *testing.T, p []byte) {
		_, _ = ParseRunFooter(lastBytes(p, runFooterLen), int64(len(p)))
		body := make([]byte, PageLen-4, PageLen)
		copy(body, p)
		pg, err := ParsePage(le.AppendUint32(body, Checksum(body)))
		if err != nil {
			return
		}
		for i := range pg.Directory.Extents {
			if _, ok := pg.Segment(pg.Directory.Extents[i].Segment); !ok {
				t.Fatalf("entry %d names no segment", i)
			}
			_ = pg.Directory.Epoch(i)
		}
		again, err := ParsePage(pg.appendTo(nil))
		if err != nil || len(again.Directory.Extents) != len(pg.Directory.Extents) {
			t.Fatalf("encoded again: %v", err)
		}
	})
}

func FuzzFence(f *testing.F) {
	_, fences, _, _ := runContent(f, 300)
	f.Add(fences[:PageLen-4])
	f.Add(fences[len(fences)-fenceFooterLen:])
	f.Fuzz(func(t *testing.T, p []byte) {
		_, _ = ParseFenceFooter(lastBytes(p, fenceFooterLen))
		_, _, _ = DecodeFenceRow(p)
		body := make([]byte, PageLen-4, PageLen)
		copy(body, p)
		b, err := ParseFenceBlock(le.AppendUint32(body, Checksum(body)))
		if err != nil {
			return
		}
		for i := range b.Fences {
			if lo, hi := b.Of(b.Fences[i].Partition); i < lo || i >= hi {
				t.Fatalf("fence %d is not in [%d, %d)", i, lo, hi)
			}
		}
	})
}

func FuzzName(f *testing.F) {
	f.Add(Name{Kind: KindSegment, Shard: 1, Term: 2, Number: 3, Random: 4}.Key())
	f.Fuzz(func(t *testing.T, key string) {
		if n, err := ParseName(key); err == nil && n.Key() != key {
			t.Fatalf("%q parsed to %q", key, n.Key())
		}
	})
}
