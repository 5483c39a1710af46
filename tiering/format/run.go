package format

import (
	"fmt"
	"io"
)

const (
	runFooterMagic = "TCRUNFTR"
	runVersion     = 1
	runFooterLen   = 160
	// RunFooterLen is the length of a run's footer.
	RunFooterLen = runFooterLen
)

// RunInfo is what a run says about itself.
type RunInfo struct {
	Cluster     string
	Shard, ID   uint32
	Level       uint8
	First, Last SegmentID
}

// RunWriter writes a directory run, front to back: Add for each entry in order
// of (partition, first offset), then AddSegment for each segment by id, then
// Finish. It holds one page.
type RunWriter struct {
	w      io.Writer
	fences func(Fence) error
	info   RunInfo
	page   Page
	last   Extent
	err    error

	size    int64
	crc     uint32
	entries uint64
	rows    uint32
	rowsLen int64
	rowsCRC uint32
	lastRow SegmentID
	inRows  bool
	buf     []byte
}

// NewRunWriter begins a run; fences gets its fences, in order.
func NewRunWriter(w io.Writer, fences func(Fence) error, info RunInfo) (*RunWriter, error) {
	return &RunWriter{w: w, fences: fences, info: info, page: Page{Shard: info.Shard, Run: info.ID}}, checkCluster(info.Cluster)
}

// Add appends an entry; ref tells of its segment.
func (w *RunWriter) Add(e Extent, epoch int32, ref SegmentRef) error {
	if w.inRows {
		return fmt.Errorf("run: an entry after the segment rows")
	}
	if w.entries > 0 && !w.last.less(&e) {
		return fmt.Errorf("run: expected order, found %d/%d after %d/%d: %w", e.Partition, e.FirstOffset, w.last.Partition, w.last.FirstOffset, ErrCorrupt)
	}
	if !w.page.add(&e, epoch, ref) {
		w.flush()
		w.page.add(&e, epoch, ref)
	}
	w.last = e
	w.entries++
	return w.err
}

func (w *RunWriter) flush() {
	if len(w.page.Directory.Extents) == 0 {
		return
	}
	for _, f := range w.page.fences() {
		if w.err == nil {
			w.err = w.fences(f)
		}
	}
	w.write(w.page.appendTo(w.buf[:0]))
	w.page.reset(w.page.Number + 1)
}

// fences derives one fence for each partition of the page.
func (p *Page) fences() []Fence {
	var out []Fence
	for i := range p.Directory.Extents {
		e := &p.Directory.Extents[i]
		if n := len(out); n > 0 && out[n-1].Partition == e.Partition {
			out[n-1].MaxTimestamp = max(out[n-1].MaxTimestamp, e.MaxTimestamp)
			continue
		}
		out = append(out, Fence{Partition: e.Partition, Epoch: p.Directory.Epoch(i), FirstOffset: e.FirstOffset,
			MaxTimestamp: e.MaxTimestamp, Run: p.Run, Page: p.Number})
	}
	return out
}

func (w *RunWriter) write(p []byte) {
	w.buf = p
	if w.err != nil {
		return
	}
	if _, w.err = w.w.Write(p); w.err == nil {
		w.size += int64(len(p))
		w.crc = UpdateChecksum(w.crc, p)
	}
}

// AddSegment appends the row of a segment that the run covers.
func (w *RunWriter) AddSegment(r *SegmentRow) error {
	if !w.inRows {
		w.flush()
		w.inRows = true
	}
	if w.rows > 0 && r.ID <= w.lastRow {
		return fmt.Errorf("run: segment %d after %d: %w", r.ID, w.lastRow, ErrCorrupt)
	}
	p := AppendSegmentRow(w.buf[:0], r)
	w.write(p)
	w.lastRow = r.ID
	w.rows++
	w.rowsLen += int64(len(p))
	w.rowsCRC = UpdateChecksum(w.rowsCRC, p)
	return w.err
}

// Finish ends the object. The row lacks its key.
func (w *RunWriter) Finish() (RunRow, error) {
	if w.err == nil && (w.entries == 0 || w.rows == 0) {
		w.err = fmt.Errorf("run: expected entries and segments, found %d and %d", w.entries, w.rows)
	}
	i := &w.info
	dst := append([]byte(nil), runFooterMagic...)
	dst = append(dst, runVersion, uint8(len(i.Cluster)), i.Level, 0)
	for _, v := range [...]uint32{i.Shard, i.ID, w.page.Number, uint32(i.First), uint32(i.Last)} {
		dst = le.AppendUint32(dst, v)
	}
	dst = le.AppendUint64(dst, w.entries)
	dst = le.AppendUint64(dst, uint64(w.rowsLen))
	dst = le.AppendUint32(dst, w.rows)
	dst = le.AppendUint32(dst, w.rowsCRC)
	dst = appendCluster(dst, i.Cluster)
	dst = append(dst, make([]byte, runFooterLen-4-len(dst))...)
	w.write(le.AppendUint32(dst, Checksum(dst)))
	return RunRow{ID: i.ID, Level: i.Level, First: i.First, Last: i.Last, Pages: w.page.Number, Size: w.size, CRC32C: w.crc}, w.err
}

// RunFooter is what a run's end tells.
type RunFooter struct {
	RunInfo
	Pages   uint32
	Entries uint64
	// SegmentsLen bytes of SegmentCount segment rows follow the pages.
	SegmentsLen  int64
	SegmentCount uint32
	SegmentsCRC  uint32
}

// ParseRunFooter parses a run's last RunFooterLen bytes; size is the object's.
func ParseRunFooter(p []byte, size int64) (RunFooter, error) {
	const what = "run footer"
	if len(p) != runFooterLen {
		return RunFooter{}, corrupt("%s: expected %d bytes, found %d", what, runFooterLen, len(p))
	}
	if err := checkMagic(what, p, runFooterMagic); err != nil {
		return RunFooter{}, err
	}
	if err := checkVersion(what, p[8], runVersion); err != nil {
		return RunFooter{}, err
	}
	if err := checkCRC(what, p[:runFooterLen-4], le.Uint32(p[runFooterLen-4:])); err != nil {
		return RunFooter{}, err
	}
	c := cursor{p: p[9:]}
	n, level := c.u8(), c.u8()
	c.u8()
	f := RunFooter{RunInfo: RunInfo{Shard: c.u32(), ID: c.u32(), Level: level}, Pages: c.u32()}
	f.First, f.Last = SegmentID(c.u32()), SegmentID(c.u32())
	f.Entries, f.SegmentsLen, f.SegmentCount, f.SegmentsCRC = c.u64(), c.i64(), c.u32(), c.u32()
	f.Cluster = c.cluster(n)
	if want := int64(f.Pages)*PageLen + f.SegmentsLen + runFooterLen; want != size || f.SegmentsLen < 0 {
		return f, corrupt("%s: expected an object of %d bytes, found %d", what, want, size)
	}
	return f, nil
}

// DecodeSegmentRows decodes a run's whole segment rows section.
func DecodeSegmentRows(f *RunFooter, p []byte) ([]SegmentRow, error) {
	if int64(len(p)) != f.SegmentsLen || int64(f.SegmentCount)*segmentRowMin > f.SegmentsLen {
		return nil, corrupt("run segment rows: expected %d bytes of %d rows, found %d", f.SegmentsLen, f.SegmentCount, len(p))
	}
	if err := checkCRC("run segment rows", p, f.SegmentsCRC); err != nil {
		return nil, err
	}
	rows := make([]SegmentRow, f.SegmentCount)
	var err error
	for i := range rows {
		if rows[i], p, err = DecodeSegmentRow(p); err != nil {
			return nil, fmt.Errorf("run segment row %d of %d: %w", i, len(rows), err)
		}
	}
	if len(p) != 0 {
		return nil, corrupt("run segment rows: %d bytes after the last", len(p))
	}
	return rows, nil
}
