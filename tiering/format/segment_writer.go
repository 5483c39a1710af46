package format

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"

	"thermocline/wal/batch"
)

// SegmentInfo is what a segment says about itself.
type SegmentInfo struct {
	Cluster               string
	Shard                 uint32
	Term                  uint64
	FirstIndex, LastIndex uint64
}

// maxSegmentBytes bounds data and positions to what an extent can name.
const maxSegmentBytes = math.MaxUint32

// Writer builds one segment, front to back. Call BeginPartition and then Add
// for each of its batches, in order, and Finish at the end. It holds the
// indexes in memory (about 130 B per partition, 32 B per MiB and partition, and
// 40 B per producer) and none of the data. It is for one goroutine.
//
// Invariants: partitions come in the order of (topic name, partition number);
// offsets of a partition rise; every batch's CRC is right when it is written.
type Writer struct {
	w    io.Writer
	info SegmentInfo
	err  error

	pos   int64
	crc   uint32
	dir   []extentEpoch
	table []tableRow
	index []byte // encoded blocks so far

	cur       *PartitionIndex
	producers map[int64]int
	next      int64 // smallest offset that the next batch may have
	openPiece bool

	maxTimestamp int64
	batches      uint32
	records      uint64
	scratch      []byte
}

type extentEpoch struct {
	Extent
	epoch int32
}

// tableRow says where a partition's index block lies.
type tableRow struct {
	ref      PartitionRef
	length   uint32
	position int64
}

// NewWriter begins a segment; it writes the header.
func NewWriter(w io.Writer, info SegmentInfo) (*Writer, error) {
	if err := checkCluster(info.Cluster); err != nil {
		return nil, err
	}
	if info.LastIndex < info.FirstIndex {
		return nil, fmt.Errorf("segment: expected an index range, found %d to %d", info.FirstIndex, info.LastIndex)
	}
	sw := &Writer{w: w, info: info, maxTimestamp: -1, producers: map[int64]int{}}
	head := make([]byte, segmentHeaderLen)
	copy(head, segmentMagic)
	head[8] = segmentVersion
	return sw, sw.write(head)
}

func checkCluster(id string) error {
	if len(id) == 0 || len(id) > clusterMax {
		return fmt.Errorf("cluster id: expected 1 to %d bytes, found %d", clusterMax, len(id))
	}
	return nil
}

func (w *Writer) write(p []byte) error {
	if w.err != nil {
		return w.err
	}
	if _, err := w.w.Write(p); err != nil {
		w.err = fmt.Errorf("segment: write at %d: %w", w.pos, err)
		return w.err
	}
	w.pos += int64(len(p))
	w.crc = UpdateChecksum(w.crc, p)
	return nil
}

// BeginPartition ends the partition before and begins the next.
func (w *Writer) BeginPartition(ref PartitionRef, key Key, topic string) error {
	if len(topic) > math.MaxUint16 {
		return fmt.Errorf("segment: topic name of %d bytes", len(topic))
	}
	if c := w.cur; c != nil && (topic < c.Topic || topic == c.Topic && key.Partition <= c.Key.Partition && key.Topic == c.Key.Topic) {
		return fmt.Errorf("segment: expected partitions by topic and number, found %s/%d after %s/%d", topic, key.Partition, c.Topic, c.Key.Partition)
	}
	w.endPartition()
	w.cur = &PartitionIndex{Ref: ref, Key: key, Topic: topic}
	clear(w.producers)
	w.next, w.openPiece = 0, false
	return w.err
}

// Add writes the partition's next batch verbatim, after a check of its CRC. It
// keeps nothing of b.
func (w *Writer) Add(b batch.Batch) error {
	if w.cur == nil {
		return fmt.Errorf("segment: a batch before any partition")
	}
	if err := b.CheckCRC(); err != nil {
		return fmt.Errorf("segment: %s/%d offset %d: %w", w.cur.Topic, w.cur.Key.Partition, b.BaseOffset(), err)
	}
	if b.BaseOffset() < w.next || b.LastOffsetDelta() < 0 {
		return fmt.Errorf("segment: %s/%d: expected offset %d or later, found %d to %d", w.cur.Topic, w.cur.Key.Partition, w.next, b.BaseOffset(), b.LastOffset())
	}
	if w.pos+int64(len(b)) > maxSegmentBytes {
		return fmt.Errorf("segment: expected at most %d bytes, found %d", int64(maxSegmentBytes), w.pos+int64(len(b)))
	}
	pos := w.pos
	if err := w.write(b); err != nil {
		return err
	}
	w.cur.add(b, pos, w.producers)
	w.addExtent(b, pos)
	w.next = b.LastOffset() + 1
	w.maxTimestamp = max(w.maxTimestamp, batchTime(b))
	w.batches++
	w.records += uint64(max(b.Count(), 0))
	return nil
}

func (w *Writer) addExtent(b batch.Batch, pos int64) {
	// Offsets are dense inside a piece, so that VerifyExtent can tell a damaged
	// base offset, which the batch's own CRC does not cover, from a gap.
	if n := len(w.dir) - 1; w.openPiece && b.BaseOffset() == w.next && w.dir[n].epoch == b.LeaderEpoch() && int64(w.dir[n].Length)+int64(len(b)) <= PieceBytes {
		w.dir[n].Length += uint32(len(b))
		w.dir[n].MaxTimestamp = max(w.dir[n].MaxTimestamp, batchTime(b))
		return
	}
	w.openPiece = true
	w.dir = append(w.dir, extentEpoch{epoch: b.LeaderEpoch(), Extent: Extent{
		Partition: w.cur.Ref, FirstOffset: b.BaseOffset(), MaxTimestamp: batchTime(b),
		Position: uint32(pos), Length: uint32(len(b)),
	}})
}

func (w *Writer) endPartition() {
	if w.cur == nil || w.cur.Batches == 0 {
		return
	}
	sort.Slice(w.cur.Producers, func(i, j int) bool { return w.cur.Producers[i].ID < w.cur.Producers[j].ID })
	start := len(w.index)
	w.index = AppendPartitionIndex(w.index, w.cur)
	// position is relative to the blocks until Finish knows where they begin.
	w.table = append(w.table, tableRow{ref: w.cur.Ref, length: uint32(len(w.index) - start), position: int64(start)})
}

// Finish writes the indexes and the footer. The row lacks ID and Key, which
// are not the segment's to know.
func (w *Writer) Finish() (SegmentRow, error) {
	w.endPartition()
	w.cur = nil
	if w.err == nil && w.batches == 0 {
		w.err = fmt.Errorf("segment: expected at least one batch, found none")
	}
	if w.err != nil {
		return SegmentRow{}, w.err
	}
	f := footer{info: w.info, maxTimestamp: w.maxTimestamp, dataLen: w.pos - segmentHeaderLen, indexLen: int64(len(w.index)),
		batches: w.batches, records: w.records, dataCRC: w.crc, indexCRC: Checksum(w.index)}
	indexAt := w.pos
	if err := w.write(w.index); err != nil {
		return SegmentRow{}, err
	}
	tail, err := w.tail(&f, indexAt)
	if err != nil {
		w.err = err
		return SegmentRow{}, err
	}
	if err := w.write(tail); err != nil {
		return SegmentRow{}, err
	}
	w.err = fmt.Errorf("segment: finished already")
	return SegmentRow{FirstIndex: w.info.FirstIndex, LastIndex: w.info.LastIndex, Size: w.pos, CRC32C: w.crc,
		FooterLen: uint32(len(tail)), MaxTimestamp: w.maxTimestamp, Batches: w.batches, Records: w.records}, nil
}

// tail encodes directory, epochs, partition table and footer.
func (w *Writer) tail(f *footer, indexAt int64) ([]byte, error) {
	slices.SortFunc(w.dir, func(a, b extentEpoch) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.FirstOffset, b.FirstOffset))
	})
	slices.SortFunc(w.table, func(a, b tableRow) int { return cmp.Compare(a.ref, b.ref) })
	var epochs Directory
	var dir, table []byte
	for i := range w.dir {
		epochs.addEpoch(w.dir[i].epoch)
		epochs.Extents = append(epochs.Extents, w.dir[i].Extent)
		dir = appendExtent(dir, &w.dir[i].Extent)
	}
	for i, r := range w.table {
		if i > 0 && w.table[i-1].ref == r.ref {
			return nil, fmt.Errorf("segment: partition reference %d occurs twice", r.ref)
		}
		table = le.AppendUint32(table, uint32(r.ref))
		table = le.AppendUint32(table, r.length)
		table = le.AppendUint64(table, uint64(indexAt+r.position))
	}
	runs := appendEpochRuns(nil, epochs.Epochs)
	f.extents, f.epochRuns, f.partitions = uint32(len(w.dir)), uint32(len(epochs.Epochs)), uint32(len(w.table))
	f.dirCRC, f.epochCRC, f.tableCRC = Checksum(dir), Checksum(runs), Checksum(table)
	tail := slices.Concat(dir, runs, table)
	f.footerLen = uint32(len(tail) + segmentFooterLen)
	return f.append(tail), nil
}
