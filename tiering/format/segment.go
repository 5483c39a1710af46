package format

import (
	"sort"
)

const (
	segmentMagic       = "TCSEGMNT"
	segmentFooterMagic = "TCSEGFTR"
	segmentVersion     = 1
	segmentHeaderLen   = SegmentHeaderLen
	segmentFooterLen   = 192
	tableRowLen        = 16
	// clusterMax bounds a cluster id, which footers hold in a fixed field.
	clusterMax = 64

	// SegmentHeaderLen is where a segment's data begins.
	SegmentHeaderLen = 16
	// FooterFixedLen is the length of a segment footer's fixed part: enough to
	// learn FooterLen when no row is at hand.
	FooterFixedLen = segmentFooterLen
)

// footer is the fixed part at the end of a segment.
type footer struct {
	info                                          SegmentInfo
	maxTimestamp                                  int64
	dataLen, indexLen                             int64
	extents, epochRuns, partitions                uint32
	batches                                       uint32
	records                                       uint64
	dataCRC, indexCRC, dirCRC, epochCRC, tableCRC uint32
	footerLen                                     uint32
}

func (f *footer) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, segmentFooterMagic...)
	dst = append(dst, segmentVersion, uint8(len(f.info.Cluster)), 0, 0)
	dst = le.AppendUint32(dst, f.info.Shard)
	for _, v := range [...]uint64{f.info.Term, f.info.FirstIndex, f.info.LastIndex, uint64(f.maxTimestamp), uint64(f.dataLen), uint64(f.indexLen)} {
		dst = le.AppendUint64(dst, v)
	}
	for _, v := range [...]uint32{f.extents, f.epochRuns, f.partitions, f.batches} {
		dst = le.AppendUint32(dst, v)
	}
	dst = le.AppendUint64(dst, f.records)
	dst = le.AppendUint64(dst, 0)
	dst = appendCluster(dst, f.info.Cluster)
	for _, v := range [...]uint32{f.dataCRC, f.indexCRC, f.dirCRC, f.epochCRC, f.tableCRC, 0, f.footerLen} {
		dst = le.AppendUint32(dst, v)
	}
	return le.AppendUint32(dst, Checksum(dst[start:]))
}

func appendCluster(dst []byte, id string) []byte {
	var field [clusterMax]byte
	copy(field[:], id)
	return append(dst, field[:]...)
}

func (c *cursor) cluster(n uint8) string {
	p := c.take(clusterMax)
	return string(p[:min(int(n), len(p))])
}

func parseFooter(p []byte) (*footer, error) {
	const what = "segment footer"
	if len(p) != segmentFooterLen {
		return nil, corrupt("%s: expected %d bytes, found %d", what, segmentFooterLen, len(p))
	}
	if err := checkMagic(what, p, segmentFooterMagic); err != nil {
		return nil, err
	}
	if err := checkVersion(what, p[8], segmentVersion); err != nil {
		return nil, err
	}
	if err := checkCRC(what, p[:segmentFooterLen-4], le.Uint32(p[segmentFooterLen-4:])); err != nil {
		return nil, err
	}
	c := cursor{p: p[9:]}
	clusterLen := c.u8()
	c.u16()
	f := &footer{info: SegmentInfo{Shard: c.u32(), Term: c.u64(), FirstIndex: c.u64(), LastIndex: c.u64()}}
	f.maxTimestamp, f.dataLen, f.indexLen = c.i64(), c.i64(), c.i64()
	f.extents, f.epochRuns, f.partitions, f.batches = c.u32(), c.u32(), c.u32(), c.u32()
	f.records = c.u64()
	c.u64()
	f.info.Cluster = c.cluster(clusterLen)
	for _, v := range [...]*uint32{&f.dataCRC, &f.indexCRC, &f.dirCRC, &f.epochCRC, &f.tableCRC} {
		*v = c.u32()
	}
	c.u32()
	f.footerLen = c.u32()
	want := int64(f.extents)*ExtentLen + int64(f.epochRuns)*epochRunLen + int64(f.partitions)*tableRowLen + segmentFooterLen
	if want != int64(f.footerLen) || f.dataLen < 0 || f.indexLen < 0 || f.dataLen > maxSegmentBytes || f.info.LastIndex < f.info.FirstIndex {
		return nil, corrupt("%s: %d bytes for %d extents, %d epoch runs, %d partitions; data %d, indexes %d", what,
			f.footerLen, f.extents, f.epochRuns, f.partitions, f.dataLen, f.indexLen)
	}
	return f, nil
}

// Segment is what a segment's last FooterLen bytes tell.
type Segment struct {
	Info SegmentInfo
	// Size is the whole object's.
	Size         int64
	FooterLen    uint32
	DataLen      int64
	MaxTimestamp int64
	Batches      uint32
	Records      uint64
	Partitions   int
	Directory    Directory

	indexAt, indexLen int64
	table             []byte
	f                 *footer
}

// FooterLen reads how long the trailing part is from the object's last
// FooterFixedLen bytes.
func FooterLen(last []byte) (uint32, error) {
	f, err := parseFooter(last)
	if err != nil {
		return 0, err
	}
	return f.footerLen, nil
}

// ParseSegment parses a segment's last FooterLen bytes; size is the object's.
// It allocates in proportion to tail and keeps a reference to a part of it.
func ParseSegment(tail []byte, size int64) (*Segment, error) {
	const what = "segment"
	if len(tail) < segmentFooterLen {
		return nil, corrupt("%s: expected at least %d bytes, found %d", what, segmentFooterLen, len(tail))
	}
	f, err := parseFooter(tail[len(tail)-segmentFooterLen:])
	if err != nil {
		return nil, err
	}
	if int64(f.footerLen) != int64(len(tail)) {
		return nil, corrupt("%s: expected a tail of %d bytes, found %d", what, f.footerLen, len(tail))
	}
	if want := segmentHeaderLen + f.dataLen + f.indexLen + int64(f.footerLen); want != size {
		return nil, corrupt("%s: expected an object of %d bytes, found %d", what, want, size)
	}
	dir := tail[:int(f.extents)*ExtentLen]
	epochs := tail[len(dir) : len(dir)+int(f.epochRuns)*epochRunLen]
	table := tail[len(dir)+len(epochs) : len(tail)-segmentFooterLen]
	for _, part := range []struct {
		name string
		p    []byte
		crc  uint32
	}{{"directory", dir, f.dirCRC}, {"epochs", epochs, f.epochCRC}, {"partition table", table, f.tableCRC}} {
		if err := checkCRC(what+" "+part.name, part.p, part.crc); err != nil {
			return nil, err
		}
	}
	s := &Segment{Info: f.info, Size: size, FooterLen: f.footerLen, DataLen: f.dataLen, MaxTimestamp: f.maxTimestamp,
		Batches: f.batches, Records: f.records, Partitions: int(f.partitions),
		indexAt: segmentHeaderLen + f.dataLen, indexLen: f.indexLen, table: table, f: f}
	if s.Directory, err = decodeDirectory("segment directory", dir, epochs); err != nil {
		return nil, err
	}
	return s, s.check()
}

func (s *Segment) check() error {
	for i := range s.Directory.Extents {
		if e := &s.Directory.Extents[i]; e.Position < segmentHeaderLen || int64(e.Position)+int64(e.Length) > s.indexAt {
			return corrupt("segment directory: entry %d: expected data in [%d, %d), found [%d, %d)", i,
				segmentHeaderLen, s.indexAt, e.Position, int64(e.Position)+int64(e.Length))
		}
	}
	for i := range s.Partitions {
		r := s.row(i)
		if i > 0 && s.row(i-1).ref >= r.ref {
			return corrupt("segment partition table: row %d: expected a rise, found %d", i, r.ref)
		}
		if r.position < s.indexAt || r.position > s.indexAt+s.indexLen || r.position+int64(r.length) > s.indexAt+s.indexLen {
			return corrupt("segment partition table: row %d: expected an index in [%d, %d), found %d bytes at %d", i,
				s.indexAt, s.indexAt+s.indexLen, r.length, r.position)
		}
	}
	return nil
}

func (s *Segment) row(i int) tableRow {
	p := s.table[i*tableRowLen:]
	return tableRow{ref: PartitionRef(le.Uint32(p)), length: le.Uint32(p[4:]), position: int64(le.Uint64(p[8:]))}
}

// Index says where a partition's index block lies.
func (s *Segment) Index(ref PartitionRef) (position int64, length int, ok bool) {
	i := sort.Search(s.Partitions, func(i int) bool { return s.row(i).ref >= ref })
	if i == s.Partitions || s.row(i).ref != ref {
		return 0, 0, false
	}
	r := s.row(i)
	return r.position, int(r.length), true
}

// Refs lists the partitions inside, ascending.
func (s *Segment) Refs() []PartitionRef {
	out := make([]PartitionRef, s.Partitions)
	for i := range out {
		out[i] = s.row(i).ref
	}
	return out
}
