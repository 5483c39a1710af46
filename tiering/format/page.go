package format

import (
	"slices"
	"sort"
)

const (
	pageMagic   = "TPAG"
	pageVersion = 1
	// PageLen is the size of a run's page and of a fence block: one ranged GET
	// of it costs about what a request costs anyway.
	PageLen        = 64 << 10
	pageHeader     = 32
	pageRoom       = PageLen - pageHeader - 4
	pageSegmentLen = 48
)

// Page is one page of a directory run.
type Page struct {
	Shard, Run, Number uint32
	Directory          Directory
	segments           []pageSegment // by id
}

// SegmentRef is what a page tells of a segment: enough to read its data, its
// directory and its partitions' indexes.
type SegmentRef struct {
	Name      Name
	Size      int64
	FooterLen uint32
}

// Ref is the row as a page keeps it.
func (r *SegmentRow) Ref() (SegmentRef, error) {
	name, err := ParseName(r.Key)
	return SegmentRef{Name: name, Size: r.Size, FooterLen: r.FooterLen}, err
}

type pageSegment struct {
	id  SegmentID
	ref SegmentRef
}

// Segment returns what the page tells of a segment that one of its extents
// points into.
func (p *Page) Segment(id SegmentID) (SegmentRef, bool) {
	i := sort.Search(len(p.segments), func(i int) bool { return p.segments[i].id >= id })
	if i == len(p.segments) || p.segments[i].id != id {
		return SegmentRef{}, false
	}
	return p.segments[i].ref, true
}

// has tells whether the page names the segment already.
func (p *Page) has(id SegmentID) bool { _, ok := p.Segment(id); return ok }

// add appends an entry if there is room.
func (p *Page) add(e *Extent, epoch int32, ref SegmentRef) bool {
	room := pageRoom - len(p.Directory.Extents)*ExtentLen - len(p.segments)*pageSegmentLen - len(p.Directory.Epochs)*epochRunLen
	need := ExtentLen
	if n := len(p.Directory.Epochs); n == 0 || p.Directory.Epochs[n-1].Epoch != epoch {
		need += epochRunLen
	}
	known := p.has(e.Segment)
	if !known {
		need += pageSegmentLen
	}
	if need > room {
		return false
	}
	if !known {
		i := sort.Search(len(p.segments), func(i int) bool { return p.segments[i].id >= e.Segment })
		p.segments = slices.Insert(p.segments, i, pageSegment{id: e.Segment, ref: ref})
	}
	p.Directory.addEpoch(epoch)
	p.Directory.Extents = append(p.Directory.Extents, *e)
	return true
}

func (p *Page) reset(number uint32) {
	p.Number = number
	p.Directory.Extents, p.Directory.Epochs, p.segments = p.Directory.Extents[:0], p.Directory.Epochs[:0], p.segments[:0]
}

// appendTo appends the page's encoding, PageLen bytes.
func (p *Page) appendTo(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, pageMagic...)
	dst = append(dst, pageVersion, 0, 0, 0)
	dst = le.AppendUint32(dst, p.Shard)
	dst = le.AppendUint32(dst, p.Run)
	dst = le.AppendUint32(dst, p.Number)
	dst = le.AppendUint16(dst, uint16(len(p.Directory.Extents)))
	dst = le.AppendUint16(dst, uint16(len(p.segments)))
	dst = le.AppendUint16(dst, uint16(len(p.Directory.Epochs)))
	dst = append(dst, 0, 0, 0, 0, 0, 0)
	for i := range p.Directory.Extents {
		dst = appendExtent(dst, &p.Directory.Extents[i])
	}
	for _, s := range p.segments {
		dst = le.AppendUint32(dst, uint32(s.id))
		dst = le.AppendUint32(dst, s.ref.Name.Shard)
		dst = le.AppendUint64(dst, s.ref.Name.Term)
		dst = le.AppendUint64(dst, s.ref.Name.Number)
		dst = le.AppendUint64(dst, s.ref.Name.Random)
		dst = le.AppendUint64(dst, uint64(s.ref.Size))
		dst = le.AppendUint32(dst, s.ref.FooterLen)
		dst = le.AppendUint32(dst, 0)
	}
	dst = appendEpochRuns(dst, p.Directory.Epochs)
	return sealBlock(dst, start)
}

// sealBlock pads a block to PageLen and ends it with its checksum.
func sealBlock(dst []byte, start int) []byte {
	used := len(dst)
	dst = slices.Grow(dst, start+PageLen-used)[:start+PageLen-4]
	clear(dst[used:])
	return le.AppendUint32(dst, Checksum(dst[start:]))
}

func checkBlock(what string, p []byte, magic string, version uint8) error {
	if len(p) != PageLen {
		return corrupt("%s: expected %d bytes, found %d", what, PageLen, len(p))
	}
	if err := checkMagic(what, p, magic); err != nil {
		return err
	}
	if err := checkVersion(what, p[4], version); err != nil {
		return err
	}
	return checkCRC(what, p[:PageLen-4], le.Uint32(p[PageLen-4:]))
}

// ParsePage parses and checks one page. Nothing of the result refers to p.
func ParsePage(p []byte) (*Page, error) {
	const what = "directory page"
	if err := checkBlock(what, p, pageMagic, pageVersion); err != nil {
		return nil, err
	}
	c := cursor{p: p[8 : PageLen-4]}
	pg := &Page{Shard: c.u32(), Run: c.u32(), Number: c.u32()}
	n, s, e := int(c.u16()), int(c.u16()), int(c.u16())
	c.take(6)
	if n == 0 || n*ExtentLen+s*pageSegmentLen+e*epochRunLen > pageRoom {
		return nil, corrupt("%s %d: %d entries, %d segments, %d epoch runs", what, pg.Number, n, s, e)
	}
	extents := c.take(n * ExtentLen)
	pg.segments = make([]pageSegment, s)
	for i := range pg.segments {
		s := &pg.segments[i]
		s.id = SegmentID(c.u32())
		s.ref.Name = Name{Kind: KindSegment, Shard: c.u32(), Term: c.u64(), Number: c.u64(), Random: c.u64()}
		s.ref.Size, s.ref.FooterLen = c.i64(), c.u32()
		c.u32()
		if i > 0 && pg.segments[i].id <= pg.segments[i-1].id {
			return nil, corrupt("%s %d: segment %d after %d", what, pg.Number, pg.segments[i].id, pg.segments[i-1].id)
		}
	}
	var err error
	if pg.Directory, err = decodeDirectory(what, extents, c.take(e*epochRunLen)); err != nil {
		return nil, err
	}
	for i := range pg.Directory.Extents {
		if id := pg.Directory.Extents[i].Segment; !pg.has(id) {
			return nil, corrupt("%s %d: entry %d: segment %d is not named", what, pg.Number, i, id)
		}
	}
	return pg, nil
}
