package format

import (
	"fmt"
	"math"
)

// rowVersion is the version of every row's encoding.
const rowVersion = 1

// Smallest encodings, which bound list counts before anything is allocated.
const (
	segmentRowMin = 1 + 4 + 2 + 8 + 8 + 8 + 4 + 4 + 8 + 4 + 8
	runRowMin     = 1 + 4 + 1 + 2 + 4 + 4 + 4 + 8 + 4
	fenceKeyLen   = 12
)

func appendText(dst []byte, s string) []byte {
	s = s[:min(len(s), math.MaxUint16)]
	return append(le.AppendUint16(dst, uint16(len(s))), s...)
}

// AppendSegmentRow appends the row's encoding.
func AppendSegmentRow(dst []byte, r *SegmentRow) []byte {
	dst = append(dst, rowVersion)
	dst = le.AppendUint32(dst, uint32(r.ID))
	dst = appendText(dst, r.Key)
	dst = le.AppendUint64(dst, r.FirstIndex)
	dst = le.AppendUint64(dst, r.LastIndex)
	dst = le.AppendUint64(dst, uint64(r.Size))
	dst = le.AppendUint32(dst, r.CRC32C)
	dst = le.AppendUint32(dst, r.FooterLen)
	dst = le.AppendUint64(dst, uint64(r.MaxTimestamp))
	dst = le.AppendUint32(dst, r.Batches)
	return le.AppendUint64(dst, r.Records)
}

// DecodeSegmentRow decodes one row off p and returns what follows it.
func DecodeSegmentRow(p []byte) (SegmentRow, []byte, error) {
	c := cursor{p: p}
	r, err := c.segmentRow()
	return r, c.p, err
}

func (c *cursor) segmentRow() (SegmentRow, error) {
	if err := c.version("segment row"); err != nil {
		return SegmentRow{}, err
	}
	r := SegmentRow{
		ID: SegmentID(c.u32()), Key: c.text(), FirstIndex: c.u64(), LastIndex: c.u64(), Size: c.i64(),
		CRC32C: c.u32(), FooterLen: c.u32(), MaxTimestamp: c.i64(), Batches: c.u32(), Records: c.u64(),
	}
	return r, c.end("segment row")
}

// AppendRunRow appends the row's encoding.
func AppendRunRow(dst []byte, r *RunRow) []byte {
	dst = append(dst, rowVersion)
	dst = le.AppendUint32(dst, r.ID)
	dst = append(dst, r.Level)
	dst = appendText(dst, r.Key)
	dst = le.AppendUint32(dst, uint32(r.First))
	dst = le.AppendUint32(dst, uint32(r.Last))
	dst = le.AppendUint32(dst, r.Pages)
	dst = le.AppendUint64(dst, uint64(r.Size))
	return le.AppendUint32(dst, r.CRC32C)
}

// DecodeRunRow decodes one row off p and returns what follows it.
func DecodeRunRow(p []byte) (RunRow, []byte, error) {
	c := cursor{p: p}
	r, err := c.runRow()
	return r, c.p, err
}

func (c *cursor) runRow() (RunRow, error) {
	if err := c.version("run row"); err != nil {
		return RunRow{}, err
	}
	r := RunRow{
		ID: c.u32(), Level: c.u8(), Key: c.text(), First: SegmentID(c.u32()), Last: SegmentID(c.u32()),
		Pages: c.u32(), Size: c.i64(), CRC32C: c.u32(),
	}
	return r, c.end("run row")
}

// AppendFenceRow appends the row's encoding.
func AppendFenceRow(dst []byte, r *FenceRow) []byte {
	dst = append(dst, rowVersion)
	dst = appendText(dst, r.Key)
	dst = le.AppendUint64(dst, uint64(r.Size))
	dst = le.AppendUint32(dst, r.CRC32C)
	dst = le.AppendUint32(dst, uint32(len(r.Blocks)))
	for _, b := range r.Blocks {
		dst = le.AppendUint32(dst, uint32(b.Partition))
		dst = le.AppendUint64(dst, uint64(b.Offset))
	}
	return dst
}

// DecodeFenceRow decodes one row off p and returns what follows it.
func DecodeFenceRow(p []byte) (FenceRow, []byte, error) {
	c := cursor{p: p}
	r, err := c.fenceRow()
	return r, c.p, err
}

func (c *cursor) fenceRow() (FenceRow, error) {
	if err := c.version("fence row"); err != nil {
		return FenceRow{}, err
	}
	r := FenceRow{Key: c.text(), Size: c.i64(), CRC32C: c.u32()}
	if n := c.count(fenceKeyLen); n > 0 {
		r.Blocks = make([]FenceKey, n)
		for i := range r.Blocks {
			r.Blocks[i] = FenceKey{Partition: PartitionRef(c.u32()), Offset: c.i64()}
		}
	}
	return r, c.end("fence row")
}

// AppendManifest appends the manifest's encoding.
func AppendManifest(dst []byte, m *Manifest) []byte {
	dst = append(dst, rowVersion)
	dst = le.AppendUint32(dst, m.Shard)
	dst = le.AppendUint64(dst, m.TieredIndex)
	dst = le.AppendUint32(dst, uint32(len(m.Segments)))
	for i := range m.Segments {
		dst = AppendSegmentRow(dst, &m.Segments[i])
	}
	dst = le.AppendUint32(dst, uint32(len(m.Runs)))
	for i := range m.Runs {
		dst = AppendRunRow(dst, &m.Runs[i])
	}
	return AppendFenceRow(dst, &m.Fence)
}

// DecodeManifest decodes a manifest off p and returns what follows it.
func DecodeManifest(p []byte) (*Manifest, []byte, error) {
	c := cursor{p: p}
	if err := c.version("manifest"); err != nil {
		return nil, p, err
	}
	m := &Manifest{Shard: c.u32(), TieredIndex: c.u64()}
	var err error
	if n := c.count(segmentRowMin); n > 0 {
		m.Segments = make([]SegmentRow, n)
		for i := range m.Segments {
			if m.Segments[i], err = c.segmentRow(); err != nil {
				return nil, p, fmt.Errorf("manifest, segment %d of %d: %w", i, n, err)
			}
		}
	}
	if n := c.count(runRowMin); n > 0 {
		m.Runs = make([]RunRow, n)
		for i := range m.Runs {
			if m.Runs[i], err = c.runRow(); err != nil {
				return nil, p, fmt.Errorf("manifest, run %d of %d: %w", i, n, err)
			}
		}
	}
	if m.Fence, err = c.fenceRow(); err != nil {
		return nil, p, fmt.Errorf("manifest: %w", err)
	}
	return m, c.p, nil
}

func (c *cursor) version(what string) error {
	v := c.u8()
	if c.bad {
		return corrupt("%s: no bytes", what)
	}
	return checkVersion(what, v, rowVersion)
}

func (c *cursor) end(what string) error {
	if c.bad {
		return corrupt("%s: cut short", what)
	}
	return nil
}

// LevelZero returns the segments that no run covers yet, by id.
func (m *Manifest) LevelZero() []SegmentRow {
	var last SegmentID
	for i := range m.Runs {
		last = max(last, m.Runs[i].Last)
	}
	i := len(m.Segments)
	for i > 0 && m.Segments[i-1].ID > last {
		i--
	}
	return m.Segments[i:]
}

// Run returns the live run with that id.
func (m *Manifest) Run(id uint32) (*RunRow, bool) {
	for i := range m.Runs {
		if m.Runs[i].ID == id {
			return &m.Runs[i], true
		}
	}
	return nil, false
}
