package format

import (
	"encoding/binary"
	"sort"

	"thermocline/wal/batch"
)

// Sizes of the layout.
const (
	// ExtentLen is the encoded size of an extent.
	ExtentLen = 32
	// PieceBytes bounds one extent entry, unless one batch alone is longer: it
	// bounds what one record costs to read when nothing finer is cached.
	PieceBytes = 1 << 20
	// epochRunLen is the encoded size of an epoch run in a segment and in a page.
	epochRunLen = 8
)

var le = binary.LittleEndian

// Extent is one piece of a partition's bytes in a segment: whole batches, of
// one leader epoch, contiguous.
type Extent struct {
	FirstOffset int64
	// MaxTimestamp is these batches' own maximum; -1 when they have none.
	MaxTimestamp int64
	Partition    PartitionRef
	// Segment is 0 inside a segment's own directory.
	Segment          SegmentID
	Position, Length uint32
}

func appendExtent(dst []byte, e *Extent) []byte {
	dst = le.AppendUint32(dst, uint32(e.Partition))
	dst = le.AppendUint64(dst, uint64(e.FirstOffset))
	dst = le.AppendUint64(dst, uint64(e.MaxTimestamp))
	dst = le.AppendUint32(dst, uint32(e.Segment))
	dst = le.AppendUint32(dst, e.Position)
	return le.AppendUint32(dst, e.Length)
}

func decodeExtent(p []byte) Extent {
	return Extent{
		Partition:    PartitionRef(le.Uint32(p)),
		FirstOffset:  int64(le.Uint64(p[4:])),
		MaxTimestamp: int64(le.Uint64(p[12:])),
		Segment:      SegmentID(le.Uint32(p[20:])),
		Position:     le.Uint32(p[24:]),
		Length:       le.Uint32(p[28:]),
	}
}

func (e *Extent) less(o *Extent) bool {
	if e.Partition != o.Partition {
		return e.Partition < o.Partition
	}
	return e.FirstOffset < o.FirstOffset
}

// EpochRun gives the extents from Entry on their leader epoch.
type EpochRun struct {
	Entry uint32
	Epoch int32
}

// Directory lists extents by (partition, first offset): all of a segment, or
// those of one page of a run.
type Directory struct {
	Extents []Extent
	Epochs  []EpochRun
}

// Of returns the range [lo, hi) of a partition's extents.
func (d *Directory) Of(ref PartitionRef) (lo, hi int) {
	lo = sort.Search(len(d.Extents), func(i int) bool { return d.Extents[i].Partition >= ref })
	hi = lo + sort.Search(len(d.Extents)-lo, func(i int) bool { return d.Extents[lo+i].Partition > ref })
	return lo, hi
}

// Floor returns the last extent of the partition that begins at or below
// offset, or hi-range's first when all begin above (below is then true); ok is
// false when the partition has none here.
func (d *Directory) Floor(ref PartitionRef, offset int64) (i int, below, ok bool) {
	lo, hi := d.Of(ref)
	if lo == hi {
		return 0, false, false
	}
	n := sort.Search(hi-lo, func(i int) bool { return d.Extents[lo+i].FirstOffset > offset })
	if n == 0 {
		return lo, true, true
	}
	return lo + n - 1, false, true
}

// Epoch is the leader epoch of extent i.
func (d *Directory) Epoch(i int) int32 {
	n := sort.Search(len(d.Epochs), func(k int) bool { return int(d.Epochs[k].Entry) > i })
	if n == 0 {
		return 0
	}
	return d.Epochs[n-1].Epoch
}

// addEpoch records the epoch of the extent that is about to be appended.
func (d *Directory) addEpoch(epoch int32) {
	if n := len(d.Epochs); n == 0 || d.Epochs[n-1].Epoch != epoch {
		d.Epochs = append(d.Epochs, EpochRun{Entry: uint32(len(d.Extents)), Epoch: epoch})
	}
}

// decodeDirectory decodes and checks what parsers may rely on: strict order,
// and epoch runs that cover every entry.
func decodeDirectory(what string, extents, epochs []byte) (Directory, error) {
	d := Directory{Extents: make([]Extent, len(extents)/ExtentLen), Epochs: make([]EpochRun, len(epochs)/epochRunLen)}
	for i := range d.Extents {
		d.Extents[i] = decodeExtent(extents[i*ExtentLen:])
		if i > 0 && !d.Extents[i-1].less(&d.Extents[i]) {
			return d, corrupt("%s: entry %d: expected order by partition and offset, found %d/%d after %d/%d", what, i,
				d.Extents[i].Partition, d.Extents[i].FirstOffset, d.Extents[i-1].Partition, d.Extents[i-1].FirstOffset)
		}
		if e := &d.Extents[i]; e.Length == 0 || e.FirstOffset < 0 || e.Position+e.Length < e.Position {
			return d, corrupt("%s: entry %d: offset %d, position %d, length %d", what, i, e.FirstOffset, e.Position, e.Length)
		}
	}
	for i := range d.Epochs {
		d.Epochs[i] = EpochRun{Entry: le.Uint32(epochs[i*epochRunLen:]), Epoch: int32(le.Uint32(epochs[i*epochRunLen+4:]))}
		e := &d.Epochs[i]
		if (i == 0) != (e.Entry == 0) || i > 0 && e.Entry <= d.Epochs[i-1].Entry || int(e.Entry) >= len(d.Extents) {
			return d, corrupt("%s: epoch run %d: entry %d of %d", what, i, e.Entry, len(d.Extents))
		}
	}
	if len(d.Extents) > 0 && len(d.Epochs) == 0 {
		return d, corrupt("%s: expected an epoch run, found none for %d entries", what, len(d.Extents))
	}
	return d, nil
}

func appendEpochRuns(dst []byte, runs []EpochRun) []byte {
	for _, r := range runs {
		dst = le.AppendUint32(dst, r.Entry)
		dst = le.AppendUint32(dst, uint32(r.Epoch))
	}
	return dst
}

// VerifyExtent checks bytes read for an extent: whole batches and nothing else,
// each with a right CRC, the first at the extent's first offset, each right
// after the one before, all of its epoch. It returns the offset after the last.
func VerifyExtent(e *Extent, epoch int32, data []byte) (next int64, err error) {
	if len(data) != int(e.Length) {
		return 0, corrupt("extent at %d: expected %d bytes, found %d", e.Position, e.Length, len(data))
	}
	next = e.FirstOffset
	rest := data
	for len(rest) > 0 {
		b, after, err := batch.Next(rest)
		if err != nil {
			return 0, corrupt("extent at %d, offset %d: %v", e.Position, next, err)
		}
		if base := b.BaseOffset(); base != next || b.LastOffsetDelta() < 0 {
			return 0, corrupt("extent at %d: expected offset %d, found %d", e.Position, next, base)
		}
		if b.LeaderEpoch() != epoch {
			return 0, corrupt("extent at %d, offset %d: expected epoch %d, found %d", e.Position, next, epoch, b.LeaderEpoch())
		}
		if err := b.CheckCRC(); err != nil {
			return 0, corrupt("extent at %d, offset %d: %v", e.Position, next, err)
		}
		next, rest = b.LastOffset()+1, after
	}
	return next, nil
}

// batchTime is the timestamp that the indexes know a batch by: markers have no
// place in look-ups by time.
func batchTime(b batch.Batch) int64 {
	if b.IsControl() {
		return -1
	}
	return b.MaxTimestamp()
}
