package format

import (
	"thermocline/metadata"
	"thermocline/wal/batch"
)

const (
	partitionMagic   = "TPIX"
	partitionVersion = 1
	partitionFixed   = 104
	stretchLen       = 24
	epochStartLen    = 16
	producerLen      = 40
	abortedLen       = 32
	// StretchBytes is how far apart a partition's index entries are, to the
	// next batch: small enough that a look-up reads little, large enough that
	// the index stays below 0.04 % of the data.
	StretchBytes = 64 << 10
)

// Stretch is an entry of the sparse index: batches from FirstOffset up to the
// next stretch. MaxTimestamp is its own, never a prefix maximum.
type Stretch struct {
	FirstOffset, Position, MaxTimestamp int64
}

// EpochStart is the first offset of a leader epoch inside a segment.
type EpochStart struct {
	FirstOffset int64
	Epoch       int32
}

// ProducerState is what a segment tells of a producer: its state after its
// last batch inside.
type ProducerState struct {
	ID            int64
	Epoch         int16
	LastSequence  int32
	LastOffset    int64
	LastTimestamp int64
	Batches       uint32
}

// AbortedTransaction is one aborted transaction, for read_committed fetches.
type AbortedTransaction struct {
	ProducerID, FirstOffset, LastOffset, LastStableOffset int64
}

// PartitionIndex is what a segment holds about one partition.
type PartitionIndex struct {
	Ref                     PartitionRef
	Key                     Key
	Topic                   string
	FirstOffset, LastOffset int64
	Position, Length        int64
	MaxTimestamp            int64
	Records                 uint64
	Batches                 uint32
	// Attributes is the disjunction of the batches' attribute bits; bit n of
	// Codecs tells that codec n occurs.
	Attributes, Codecs uint16
	Stretches          []Stretch
	Epochs             []EpochStart
	Producers          []ProducerState
	Aborted            []AbortedTransaction
}

// Floor returns the position from which a scan finds the batch of offset.
func (x *PartitionIndex) Floor(offset int64) int64 {
	pos := x.Position
	for lo, hi := 0, len(x.Stretches); lo < hi; {
		mid := (lo + hi) / 2
		if x.Stretches[mid].FirstOffset <= offset {
			pos, lo = x.Stretches[mid].Position, mid+1
		} else {
			hi = mid
		}
	}
	return pos
}

// add takes the next batch, which lies at pos.
func (x *PartitionIndex) add(b batch.Batch, pos int64, producers map[int64]int) {
	ts, base := batchTime(b), b.BaseOffset()
	if x.Batches == 0 {
		x.FirstOffset, x.Position, x.MaxTimestamp = base, pos, -1
	}
	if n := len(x.Stretches); n == 0 || pos-x.Stretches[n-1].Position >= StretchBytes {
		x.Stretches = append(x.Stretches, Stretch{FirstOffset: base, Position: pos, MaxTimestamp: -1})
	}
	s := &x.Stretches[len(x.Stretches)-1]
	s.MaxTimestamp = max(s.MaxTimestamp, ts)
	if n := len(x.Epochs); n == 0 || x.Epochs[n-1].Epoch != b.LeaderEpoch() {
		x.Epochs = append(x.Epochs, EpochStart{FirstOffset: base, Epoch: b.LeaderEpoch()})
	}
	x.MaxTimestamp = max(x.MaxTimestamp, ts)
	x.LastOffset = b.LastOffset()
	x.Length += int64(len(b))
	x.Batches++
	x.Records += uint64(max(b.Count(), 0))
	x.Attributes |= uint16(b.Attributes())
	x.Codecs |= 1 << uint(b.Codec())
	if id := b.ProducerID(); id >= 0 {
		i, ok := producers[id]
		if !ok {
			i = len(x.Producers)
			producers[id] = i
			x.Producers = append(x.Producers, ProducerState{ID: id})
		}
		p := &x.Producers[i]
		p.Epoch, p.LastOffset, p.LastTimestamp = b.ProducerEpoch(), b.LastOffset(), b.MaxTimestamp()
		p.LastSequence = b.LastSequence()
		p.Batches++
	}
}

// AppendPartitionIndex appends the block's encoding.
func AppendPartitionIndex(dst []byte, x *PartitionIndex) []byte {
	start := len(dst)
	dst = append(dst, partitionMagic...)
	dst = append(dst, partitionVersion, 0)
	dst = le.AppendUint16(dst, uint16(len(x.Topic)))
	dst = le.AppendUint32(dst, uint32(x.Ref))
	dst = le.AppendUint32(dst, uint32(x.Key.Partition))
	dst = append(dst, x.Key.Topic[:]...)
	for _, v := range [...]int64{x.FirstOffset, x.LastOffset, x.Position, x.Length, x.MaxTimestamp, int64(x.Records)} {
		dst = le.AppendUint64(dst, uint64(v))
	}
	dst = le.AppendUint32(dst, x.Batches)
	dst = le.AppendUint16(dst, x.Attributes)
	dst = le.AppendUint16(dst, x.Codecs)
	for _, n := range [...]int{len(x.Stretches), len(x.Epochs), len(x.Producers), len(x.Aborted)} {
		dst = le.AppendUint32(dst, uint32(n))
	}
	dst = append(dst, x.Topic...)
	for _, s := range x.Stretches {
		dst = le.AppendUint64(dst, uint64(s.FirstOffset))
		dst = le.AppendUint64(dst, uint64(s.Position))
		dst = le.AppendUint64(dst, uint64(s.MaxTimestamp))
	}
	for _, e := range x.Epochs {
		dst = le.AppendUint64(dst, uint64(e.FirstOffset))
		dst = le.AppendUint64(dst, uint64(uint32(e.Epoch)))
	}
	for i := range x.Producers {
		dst = appendProducer(dst, &x.Producers[i])
	}
	for _, a := range x.Aborted {
		for _, v := range [...]int64{a.ProducerID, a.FirstOffset, a.LastOffset, a.LastStableOffset} {
			dst = le.AppendUint64(dst, uint64(v))
		}
	}
	return le.AppendUint32(dst, Checksum(dst[start:]))
}

func appendProducer(dst []byte, p *ProducerState) []byte {
	dst = le.AppendUint64(dst, uint64(p.ID))
	dst = le.AppendUint16(dst, uint16(p.Epoch))
	dst = le.AppendUint16(dst, 0)
	dst = le.AppendUint32(dst, uint32(p.LastSequence))
	dst = le.AppendUint64(dst, uint64(p.LastOffset))
	dst = le.AppendUint64(dst, uint64(p.LastTimestamp))
	dst = le.AppendUint32(dst, p.Batches)
	return le.AppendUint32(dst, 0)
}

// ParsePartitionIndex parses and checks one block. Nothing of the result
// refers to p.
func ParsePartitionIndex(p []byte) (*PartitionIndex, error) {
	const what = "partition index"
	if err := checkMagic(what, p, partitionMagic); err != nil {
		return nil, err
	}
	if len(p) < partitionFixed+4 {
		return nil, corrupt("%s: expected at least %d bytes, found %d", what, partitionFixed+4, len(p))
	}
	if err := checkVersion(what, p[4], partitionVersion); err != nil {
		return nil, err
	}
	if err := checkCRC(what, p[:len(p)-4], le.Uint32(p[len(p)-4:])); err != nil {
		return nil, err
	}
	c := cursor{p: p[6 : len(p)-4]}
	nameLen := int(c.u16())
	x := &PartitionIndex{Ref: PartitionRef(c.u32())}
	x.Key.Partition = int32(c.u32())
	x.Key.Topic = metadata.TopicID(c.take(16))
	for _, f := range [...]*int64{&x.FirstOffset, &x.LastOffset, &x.Position, &x.Length, &x.MaxTimestamp} {
		*f = c.i64()
	}
	x.Records, x.Batches, x.Attributes, x.Codecs = c.u64(), c.u32(), c.u16(), c.u16()
	var n [4]int64
	for i := range n {
		n[i] = int64(c.u32())
	}
	if want := int64(nameLen) + n[0]*stretchLen + n[1]*epochStartLen + n[2]*producerLen + n[3]*abortedLen; want != int64(len(c.p)) {
		return nil, corrupt("%s: expected %d bytes of lists, found %d", what, want, len(c.p))
	}
	x.Topic = string(c.take(nameLen))
	x.lists(&c, n)
	return x, x.check()
}

func (x *PartitionIndex) lists(c *cursor, n [4]int64) {
	x.Stretches = make([]Stretch, n[0])
	for i := range x.Stretches {
		x.Stretches[i] = Stretch{FirstOffset: c.i64(), Position: c.i64(), MaxTimestamp: c.i64()}
	}
	x.Epochs = make([]EpochStart, n[1])
	for i := range x.Epochs {
		x.Epochs[i] = EpochStart{FirstOffset: c.i64(), Epoch: int32(c.u64())}
	}
	x.Producers = make([]ProducerState, n[2])
	for i := range x.Producers {
		p := &x.Producers[i]
		p.ID, p.Epoch = c.i64(), int16(c.u16())
		c.u16()
		p.LastSequence, p.LastOffset, p.LastTimestamp = int32(c.u32()), c.i64(), c.i64()
		p.Batches = c.u32()
		c.u32()
	}
	x.Aborted = make([]AbortedTransaction, n[3])
	for i := range x.Aborted {
		x.Aborted[i] = AbortedTransaction{ProducerID: c.i64(), FirstOffset: c.i64(), LastOffset: c.i64(), LastStableOffset: c.i64()}
	}
}

func (x *PartitionIndex) check() error {
	const what = "partition index"
	if x.FirstOffset < 0 || x.LastOffset < x.FirstOffset || x.Position < segmentHeaderLen || x.Length <= 0 || len(x.Stretches) == 0 {
		return corrupt("%s of %s/%d: offsets %d to %d, position %d, length %d, %d stretches", what,
			x.Topic, x.Key.Partition, x.FirstOffset, x.LastOffset, x.Position, x.Length, len(x.Stretches))
	}
	for i := 1; i < len(x.Stretches); i++ {
		if a, b := x.Stretches[i-1], x.Stretches[i]; b.FirstOffset <= a.FirstOffset || b.Position <= a.Position {
			return corrupt("%s: stretch %d: expected a rise, found offset %d after %d", what, i, b.FirstOffset, a.FirstOffset)
		}
	}
	for i := 1; i < len(x.Epochs); i++ {
		if a, b := x.Epochs[i-1], x.Epochs[i]; b.FirstOffset <= a.FirstOffset {
			return corrupt("%s: epoch %d: expected a rise, found offset %d after %d", what, i, b.FirstOffset, a.FirstOffset)
		}
	}
	return nil
}
