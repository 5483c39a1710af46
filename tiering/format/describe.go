package format

import (
	"fmt"
	"io"
)

// describeChunk is how much of an object is read at once while it is checked.
const describeChunk = 1 << 20

// Description is an object in words, for inspection; exactly one field besides
// Kind and Size is set.
type Description struct {
	Kind    string              `json:"kind"`
	Size    int64               `json:"size"`
	CRC32C  string              `json:"crc32c"`
	Segment *SegmentDescription `json:"segment,omitempty"`
	Run     *RunDescription     `json:"run,omitempty"`
	Fence   *FenceDescription   `json:"fence,omitempty"`
}

// SegmentDescription is a segment in words.
type SegmentDescription struct {
	Cluster      string                 `json:"cluster"`
	Shard        uint32                 `json:"shard"`
	Term         uint64                 `json:"term"`
	FirstIndex   uint64                 `json:"first_index"`
	LastIndex    uint64                 `json:"last_index"`
	DataBytes    int64                  `json:"data_bytes"`
	FooterBytes  uint32                 `json:"footer_bytes"`
	MaxTimestamp int64                  `json:"max_timestamp"`
	Batches      uint32                 `json:"batches"`
	Records      uint64                 `json:"records"`
	Extents      int                    `json:"extents"`
	Partitions   []PartitionDescription `json:"partitions"`
}

// PartitionDescription is a partition's share of a segment in words.
type PartitionDescription struct {
	Ref          uint32          `json:"ref"`
	Topic        string          `json:"topic"`
	TopicID      string          `json:"topic_id"`
	Partition    int32           `json:"partition"`
	FirstOffset  int64           `json:"first_offset"`
	LastOffset   int64           `json:"last_offset"`
	Position     int64           `json:"position"`
	Bytes        int64           `json:"bytes"`
	MaxTimestamp int64           `json:"max_timestamp"`
	Batches      uint32          `json:"batches"`
	Records      uint64          `json:"records"`
	Attributes   uint16          `json:"attributes"`
	Codecs       uint16          `json:"codecs"`
	Stretches    int             `json:"stretches"`
	Epochs       []EpochStart    `json:"epochs"`
	Producers    []ProducerState `json:"producers,omitempty"`
	Aborted      int             `json:"aborted_transactions"`
}

// RunDescription is a directory run in words.
type RunDescription struct {
	Cluster  string       `json:"cluster"`
	Shard    uint32       `json:"shard"`
	ID       uint32       `json:"id"`
	Level    uint8        `json:"level"`
	Pages    uint32       `json:"pages"`
	Entries  uint64       `json:"entries"`
	Segments []SegmentRow `json:"segments"`
}

// FenceDescription is a fence object in words.
type FenceDescription struct {
	Cluster string   `json:"cluster"`
	Shard   uint32   `json:"shard"`
	Blocks  uint32   `json:"blocks"`
	Fences  uint64   `json:"fences"`
	Runs    []uint32 `json:"runs"`
}

// Describe reads a whole object of any kind but a snapshot and verifies every
// checksum in it, those of the batches included.
func Describe(r io.ReaderAt, size int64) (*Description, error) {
	d := &Description{Size: size}
	crc, err := checksumRange(r, 0, size)
	if err != nil {
		return nil, err
	}
	d.CRC32C = fmt.Sprintf("%08x", crc)
	kind, err := kindOf(r, size)
	if err != nil {
		return nil, err
	}
	d.Kind = kind.String()
	switch kind {
	case KindSegment:
		d.Segment, err = describeSegment(r, size)
	case KindRun:
		d.Run, err = describeRun(r, size)
	default:
		d.Fence, err = describeFence(r, size)
	}
	return d, err
}

// kindOf tells an object by its footer's magic.
func kindOf(r io.ReaderAt, size int64) (Kind, error) {
	for _, k := range []struct {
		kind  Kind
		len   int64
		magic string
	}{{KindSegment, segmentFooterLen, segmentFooterMagic}, {KindRun, runFooterLen, runFooterMagic}, {KindFence, fenceFooterLen, fenceFooterMagic}} {
		if size < k.len {
			continue
		}
		p, err := readRange(r, size-k.len, len(k.magic))
		if err != nil {
			return 0, err
		}
		if string(p) == k.magic {
			return k.kind, nil
		}
	}
	return 0, corrupt("object of %d bytes: found no footer of ours", size)
}

func readRange(r io.ReaderAt, at int64, n int) ([]byte, error) {
	p := make([]byte, n)
	if got, err := r.ReadAt(p, at); got < n {
		return nil, fmt.Errorf("read %d bytes at %d: found %d: %w", n, at, got, err)
	}
	return p, nil
}

func checksumRange(r io.ReaderAt, at, n int64) (uint32, error) {
	buf := make([]byte, min(n, describeChunk))
	var crc uint32
	for n > 0 {
		p := buf[:min(n, int64(len(buf)))]
		if got, err := r.ReadAt(p, at); got < len(p) {
			return 0, fmt.Errorf("read %d bytes at %d: found %d: %w", len(p), at, got, err)
		}
		crc = UpdateChecksum(crc, p)
		at, n = at+int64(len(p)), n-int64(len(p))
	}
	return crc, nil
}

// OpenSegment reads and parses a segment's end.
func OpenSegment(r io.ReaderAt, size int64) (*Segment, error) {
	if size < segmentHeaderLen+segmentFooterLen {
		return nil, corrupt("segment: expected at least %d bytes, found %d", segmentHeaderLen+segmentFooterLen, size)
	}
	last, err := readRange(r, size-segmentFooterLen, segmentFooterLen)
	if err != nil {
		return nil, err
	}
	n, err := FooterLen(last)
	if err != nil {
		return nil, err
	}
	if int64(n) > size {
		return nil, corrupt("segment: expected a tail within %d bytes, found %d", size, n)
	}
	tail, err := readRange(r, size-int64(n), int(n))
	if err != nil {
		return nil, err
	}
	return ParseSegment(tail, size)
}

func describeSegment(r io.ReaderAt, size int64) (*SegmentDescription, error) {
	s, err := OpenSegment(r, size)
	if err != nil {
		return nil, err
	}
	for _, part := range []struct {
		name  string
		at, n int64
		crc   uint32
	}{{"header and data", 0, s.indexAt, s.f.dataCRC}, {"partition indexes", s.indexAt, s.indexLen, s.f.indexCRC}} {
		crc, err := checksumRange(r, part.at, part.n)
		if err != nil {
			return nil, err
		}
		if crc != part.crc {
			return nil, corrupt("segment %s, %d bytes at %d: expected crc %08x, found %08x", part.name, part.n, part.at, part.crc, crc)
		}
	}
	d := &SegmentDescription{Cluster: s.Info.Cluster, Shard: s.Info.Shard, Term: s.Info.Term, FirstIndex: s.Info.FirstIndex,
		LastIndex: s.Info.LastIndex, DataBytes: s.DataLen, FooterBytes: s.FooterLen, MaxTimestamp: s.MaxTimestamp,
		Batches: s.Batches, Records: s.Records, Extents: len(s.Directory.Extents)}
	for _, ref := range s.Refs() {
		x, err := s.describePartition(r, ref)
		if err != nil {
			return nil, err
		}
		d.Partitions = append(d.Partitions, *x)
	}
	for i := range s.Directory.Extents {
		e := &s.Directory.Extents[i]
		data, err := readRange(r, int64(e.Position), int(e.Length))
		if err != nil {
			return nil, err
		}
		if _, err := VerifyExtent(e, s.Directory.Epoch(i), data); err != nil {
			return nil, fmt.Errorf("extent of %d bytes at %d: %w", e.Length, e.Position, err)
		}
	}
	return d, nil
}

func (s *Segment) describePartition(r io.ReaderAt, ref PartitionRef) (*PartitionDescription, error) {
	pos, n, _ := s.Index(ref)
	p, err := readRange(r, pos, n)
	if err != nil {
		return nil, err
	}
	x, err := ParsePartitionIndex(p)
	if err != nil {
		return nil, fmt.Errorf("partition index at %d: %w", pos, err)
	}
	if x.Ref != ref {
		return nil, corrupt("partition index at %d: expected partition reference %d, found %d", pos, ref, x.Ref)
	}
	return &PartitionDescription{Ref: uint32(x.Ref), Topic: x.Topic, TopicID: x.Key.Topic.String(), Partition: x.Key.Partition,
		FirstOffset: x.FirstOffset, LastOffset: x.LastOffset, Position: x.Position, Bytes: x.Length, MaxTimestamp: x.MaxTimestamp,
		Batches: x.Batches, Records: x.Records, Attributes: x.Attributes, Codecs: x.Codecs, Stretches: len(x.Stretches),
		Epochs: x.Epochs, Producers: x.Producers, Aborted: len(x.Aborted)}, nil
}

func describeRun(r io.ReaderAt, size int64) (*RunDescription, error) {
	p, err := readRange(r, size-runFooterLen, runFooterLen)
	if err != nil {
		return nil, err
	}
	f, err := ParseRunFooter(p, size)
	if err != nil {
		return nil, err
	}
	d := &RunDescription{Cluster: f.Cluster, Shard: f.Shard, ID: f.ID, Level: f.Level, Pages: f.Pages}
	for i := range int64(f.Pages) {
		if p, err = readRange(r, i*PageLen, PageLen); err != nil {
			return nil, err
		}
		pg, err := ParsePage(p)
		if err != nil {
			return nil, fmt.Errorf("run %d, page %d at %d: %w", f.ID, i, i*PageLen, err)
		}
		d.Entries += uint64(len(pg.Directory.Extents))
	}
	if d.Entries != f.Entries {
		return nil, corrupt("run %d: expected %d entries, found %d", f.ID, f.Entries, d.Entries)
	}
	if p, err = readRange(r, int64(f.Pages)*PageLen, int(f.SegmentsLen)); err != nil {
		return nil, err
	}
	d.Segments, err = DecodeSegmentRows(&f, p)
	return d, err
}

func describeFence(r io.ReaderAt, size int64) (*FenceDescription, error) {
	p, err := readRange(r, size-fenceFooterLen, fenceFooterLen)
	if err != nil {
		return nil, err
	}
	f, err := ParseFenceFooter(p)
	if err != nil {
		return nil, err
	}
	if want := int64(f.Blocks)*PageLen + fenceFooterLen; want != size {
		return nil, corrupt("fences: expected an object of %d bytes, found %d", want, size)
	}
	d := &FenceDescription{Cluster: f.Cluster, Shard: f.Shard, Blocks: f.Blocks}
	seen := map[uint32]bool{}
	for i := range int64(f.Blocks) {
		if p, err = readRange(r, i*PageLen, PageLen); err != nil {
			return nil, err
		}
		b, err := ParseFenceBlock(p)
		if err != nil {
			return nil, fmt.Errorf("fence block %d at %d: %w", i, i*PageLen, err)
		}
		d.Fences += uint64(len(b.Fences))
		for _, fence := range b.Fences {
			if !seen[fence.Run] {
				seen[fence.Run] = true
				d.Runs = append(d.Runs, fence.Run)
			}
		}
	}
	if d.Fences != f.Fences {
		return nil, corrupt("fences: expected %d, found %d", f.Fences, d.Fences)
	}
	return d, nil
}
