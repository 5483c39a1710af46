package format

import (
	"fmt"
	"io"
	"sort"
)

const (
	fenceMagic       = "TFEN"
	fenceFooterMagic = "TCFENFTR"
	fenceVersion     = 1
	fenceHeader      = 16
	fenceLen         = 32
	fenceFooterLen   = 128
	// FencesPerBlock is how many fences fit into one block.
	FencesPerBlock = (PageLen - fenceHeader - 4) / fenceLen
)

// Fence stands for one partition's entries in one page of a live run.
type Fence struct {
	Partition    PartitionRef
	Epoch        int32 // of the first entry
	FirstOffset  int64
	MaxTimestamp int64
	Run, Page    uint32
}

// FenceBlock is one block of the fence object.
type FenceBlock struct {
	Shard, Number uint32
	Fences        []Fence
}

// Of returns the range [lo, hi) of a partition's fences.
func (b *FenceBlock) Of(ref PartitionRef) (lo, hi int) {
	lo = sort.Search(len(b.Fences), func(i int) bool { return b.Fences[i].Partition >= ref })
	hi = lo + sort.Search(len(b.Fences)-lo, func(i int) bool { return b.Fences[lo+i].Partition > ref })
	return lo, hi
}

func appendFence(dst []byte, f *Fence) []byte {
	dst = le.AppendUint32(dst, uint32(f.Partition))
	dst = le.AppendUint32(dst, uint32(f.Epoch))
	dst = le.AppendUint64(dst, uint64(f.FirstOffset))
	dst = le.AppendUint64(dst, uint64(f.MaxTimestamp))
	dst = le.AppendUint32(dst, f.Run)
	return le.AppendUint32(dst, f.Page)
}

func (f *Fence) less(o *Fence) bool {
	if f.Partition != o.Partition {
		return f.Partition < o.Partition
	}
	return f.FirstOffset < o.FirstOffset
}

// ParseFenceBlock parses and checks one block. Nothing of the result refers to p.
func ParseFenceBlock(p []byte) (*FenceBlock, error) {
	const what = "fence block"
	if err := checkBlock(what, p, fenceMagic, fenceVersion); err != nil {
		return nil, err
	}
	c := cursor{p: p[6:]}
	n := int(c.u16())
	b := &FenceBlock{Number: c.u32(), Shard: c.u32()}
	if n == 0 || n > FencesPerBlock {
		return nil, corrupt("%s %d: expected 1 to %d fences, found %d", what, b.Number, FencesPerBlock, n)
	}
	b.Fences = make([]Fence, n)
	for i := range b.Fences {
		b.Fences[i] = Fence{Partition: PartitionRef(c.u32()), Epoch: int32(c.u32()), FirstOffset: c.i64(), MaxTimestamp: c.i64(), Run: c.u32(), Page: c.u32()}
		if i > 0 && !b.Fences[i-1].less(&b.Fences[i]) {
			return nil, corrupt("%s %d: fence %d: expected order by partition and offset", what, b.Number, i)
		}
	}
	return b, nil
}

// FenceWriter writes a fence object, front to back, holding one block.
type FenceWriter struct {
	w       io.Writer
	cluster string
	block   FenceBlock
	last    Fence
	total   uint64
	row     FenceRow
	buf     []byte
	err     error
}

// NewFenceWriter begins a fence object.
func NewFenceWriter(w io.Writer, cluster string, shard uint32) (*FenceWriter, error) {
	return &FenceWriter{w: w, cluster: cluster, block: FenceBlock{Shard: shard}}, checkCluster(cluster)
}

// Add appends the next fence, in order of partition and offset.
func (w *FenceWriter) Add(f Fence) error {
	if w.total > 0 && !w.last.less(&f) {
		return fmt.Errorf("fences: expected order, found %d/%d after %d/%d: %w", f.Partition, f.FirstOffset, w.last.Partition, w.last.FirstOffset, ErrCorrupt)
	}
	if len(w.block.Fences) == FencesPerBlock {
		w.flush()
	}
	w.block.Fences = append(w.block.Fences, f)
	w.last = f
	w.total++
	return w.err
}

func (w *FenceWriter) flush() {
	b := &w.block
	first := b.Fences[0]
	w.row.Blocks = append(w.row.Blocks, FenceKey{Partition: first.Partition, Offset: first.FirstOffset})
	dst := append(w.buf[:0], fenceMagic...)
	dst = append(dst, fenceVersion, 0)
	dst = le.AppendUint16(dst, uint16(len(b.Fences)))
	dst = le.AppendUint32(dst, b.Number)
	dst = le.AppendUint32(dst, b.Shard)
	for i := range b.Fences {
		dst = appendFence(dst, &b.Fences[i])
	}
	w.write(sealBlock(dst, 0))
	b.Number++
	b.Fences = b.Fences[:0]
}

func (w *FenceWriter) write(p []byte) {
	w.buf = p
	if w.err != nil {
		return
	}
	if _, w.err = w.w.Write(p); w.err == nil {
		w.row.Size += int64(len(p))
		w.row.CRC32C = UpdateChecksum(w.row.CRC32C, p)
	}
}

// Finish ends the object. The row lacks its key.
func (w *FenceWriter) Finish() (FenceRow, error) {
	if len(w.block.Fences) > 0 {
		w.flush()
	}
	dst := append([]byte(nil), fenceFooterMagic...)
	dst = append(dst, fenceVersion, uint8(len(w.cluster)), 0, 0)
	dst = le.AppendUint32(dst, w.block.Shard)
	dst = le.AppendUint32(dst, w.block.Number)
	dst = le.AppendUint32(dst, 0)
	dst = le.AppendUint64(dst, w.total)
	dst = appendCluster(dst, w.cluster)
	dst = append(dst, make([]byte, fenceFooterLen-4-len(dst))...)
	w.write(le.AppendUint32(dst, Checksum(dst)))
	return w.row, w.err
}

// FenceFooter is what a fence object says about itself.
type FenceFooter struct {
	Cluster string
	Shard   uint32
	Blocks  uint32
	Fences  uint64
}

// FenceFooterLen is the length of a fence object's footer.
const FenceFooterLen = fenceFooterLen

// ParseFenceFooter parses a fence object's last FenceFooterLen bytes.
func ParseFenceFooter(p []byte) (FenceFooter, error) {
	const what = "fence footer"
	if len(p) != fenceFooterLen {
		return FenceFooter{}, corrupt("%s: expected %d bytes, found %d", what, fenceFooterLen, len(p))
	}
	if err := checkMagic(what, p, fenceFooterMagic); err != nil {
		return FenceFooter{}, err
	}
	if err := checkVersion(what, p[8], fenceVersion); err != nil {
		return FenceFooter{}, err
	}
	if err := checkCRC(what, p[:fenceFooterLen-4], le.Uint32(p[fenceFooterLen-4:])); err != nil {
		return FenceFooter{}, err
	}
	c := cursor{p: p[9:]}
	n := c.u8()
	c.u16()
	f := FenceFooter{Shard: c.u32(), Blocks: c.u32()}
	c.u32()
	f.Fences = c.u64()
	f.Cluster = c.cluster(n)
	return f, nil
}
