package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"hash/crc64"
	"io"
	"sort"

	"thermocline/ingest/partition"
	"thermocline/tiering/format"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

// model is the truth about one shard: what the first replica that applies an
// entry makes of it is what every other one must come to.
type model struct {
	w     *world
	shard int
	// entries are the committed entries by index, as a hash chain.
	entries map[uint64]committed
	last    uint64
	// images are hashes of the encoded state at some indexes.
	images map[uint64]uint64
	logs   map[partition.Key]*partLog
	// leaders by term; bound is the highest acknowledged index of any leader.
	leaders map[uint64]shard.ReplicaID
	acked   []ackedIndex
	// produced counts each batch id in the log; refused are ids that were
	// definitely not written.
	produced map[uint64]int
	refused  map[uint64]bool
	segments []segmentRange
	starts   map[partition.Key]int64 // highest log start seen
	toldBy   map[partition.Key]told
	slot     slotModel
}

// committed is one entry: its own hash and the chain's up to it.
type committed struct {
	term        uint64
	hash, chain uint32
	// by is which replica applied it first.
	by int
}

type ackedIndex struct{ index, term uint64 }

type segmentRange struct {
	key         string
	first, last uint64
}

// partLog is one partition as committed.
type partLog struct {
	batches []modelBatch
	end     int64
	next    map[int64]sequence // what must come next, by producer
	made    uint64             // index that created it
}

type sequence struct {
	epoch int16
	next  int32
}

type modelBatch struct {
	first, last int64
	index, term uint64
	id          uint64
	bytes       []byte
}

func newModel(w *world, s int) *model {
	return &model{
		w: w, shard: s, entries: map[uint64]committed{}, last: 1, images: map[uint64]uint64{},
		logs: map[partition.Key]*partLog{}, leaders: map[uint64]shard.ReplicaID{},
		produced: map[uint64]int{}, refused: map[uint64]bool{}, starts: map[partition.Key]int64{},
		slot: slotModel{ids: map[uint64]uint64{}, refused: map[uint64]bool{}},
	}
}

// machine is a replica's partition state with the checkers around it.
type machine struct {
	*partition.Set
	r     *replica
	hw    uint64
	ready bool
	// imageTiered is the trimmable index that each image knew.
	imageTiered map[uint64]uint64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Apply implements shard.StateMachine.
func (m *machine) Apply(e shard.Applied, emit func(int, any, error)) error {
	w, mo := m.r.node.w, m.r.node.w.model[m.r.shard]
	first := mo.commit(m.r, e.Index, e.Term, crc32.Checksum(e.Payload, castagnoli))
	var before []partition.Key
	if first {
		before = w.keys[m.r.shard]
	}
	err := m.Set.Apply(e, func(i int, result any, err error) {
		if err != nil && refusedProduce(err) {
			w.violate("apply-agrees", "node %d shard %d index %d item %d: apply refuses what the leader of its term stamped: %v",
				m.r.node.index, m.r.shard, e.Index, i, err)
		}
		emit(i, result, err)
	})
	if err != nil {
		w.violate("apply-agrees", "node %d shard %d index %d: %v", m.r.node.index, m.r.shard, e.Index, err)
	}
	if first {
		for _, k := range before {
			mo.learn(m, k, e)
		}
		mo.learnSegments(m)
		mo.checkRuns(m)
		mo.learnSlot(m, e.Index)
	}
	mo.compare(m, e.Index)
	return nil
}

// refusedProduce tells the refusals that Prepare excludes.
func refusedProduce(err error) bool {
	for _, e := range []error{
		partition.ErrNotNextOffset, partition.ErrOutOfOrderSequence, partition.ErrFencedProducer,
		partition.ErrUnknownProducer, partition.ErrDuplicateSequence, partition.ErrStaleCoordinator,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// SkipEntry implements shard.StateMachine.
func (m *machine) SkipEntry(index, term uint64) {
	mo := m.r.node.w.model[m.r.shard]
	if index > 1 && mo.commit(m.r, index, term, 0) {
		mo.configured(m.r, index)
	}
	m.Set.SkipEntry(index, term)
	mo.compare(m, index)
}

// SetHW implements shard.StateMachine.
func (m *machine) SetHW(hw uint64, ready bool) {
	w := m.r.node.w
	if hw < m.hw {
		w.violate("hw-monotone", "node %d shard %d: high watermark falls from %d to %d", m.r.node.index, m.r.shard, m.hw, hw)
	}
	m.hw, m.ready = hw, ready
	m.Set.SetHW(hw, ready)
	w.checkHW(m)
}

// Image implements shard.StateMachine.
func (m *machine) Image() shard.Image {
	if m.imageTiered == nil {
		m.imageTiered = map[uint64]uint64{}
	}
	img := m.Set.Image()
	m.imageTiered[img.Index()] = m.Set.TrimmableIndex()
	return img
}

// Restore implements shard.StateMachine.
func (m *machine) Restore(r io.Reader) error { return m.Set.Restore(r) }

// commit takes an entry that a replica applies, and reports whether it is the
// first one to.
func (mo *model) commit(r *replica, index, term uint64, payload uint32) bool {
	var b [20]byte
	binary.LittleEndian.PutUint64(b[:], index)
	binary.LittleEndian.PutUint64(b[8:], term)
	binary.LittleEndian.PutUint32(b[16:], payload)
	h := crc32.Checksum(b[:], castagnoli)
	if c, ok := mo.entries[index]; ok {
		if c.hash != h || c.term != term {
			mo.w.violate("committed-agrees", "shard %d index %d: node %d applies term %d payload %08x, node %d applied term %d",
				mo.shard, index, r.node.index, term, payload, c.by, c.term)
		}
		return false
	}
	if index != mo.last+1 {
		mo.w.violate("committed-agrees", "shard %d: node %d applies index %d, first applied so far %d", mo.shard, r.node.index, index, mo.last)
	}
	mo.entries[index] = committed{term: term, hash: h, chain: crc32.Update(mo.entries[mo.last].chain, castagnoli, b[:]), by: r.node.index}
	mo.last = index
	if term < mo.entries[index-1].term {
		mo.w.violate("committed-agrees", "shard %d index %d: term falls to %d", mo.shard, index, term)
	}
	mo.checkHeld(index, term, "a committed entry")
	return true
}

// learn takes what an entry appended to a partition.
func (mo *model) learn(m *machine, k partition.Key, e shard.Applied) {
	v, ok := m.View(k)
	l := mo.logs[k]
	if !ok {
		delete(mo.logs, k)
		delete(mo.starts, k)
		delete(mo.toldBy, k)
		return
	}
	mo.starts[k] = v.LogStart
	if l == nil || l.end > v.LogEnd && v.LogEnd == 0 {
		l = &partLog{next: map[int64]sequence{}, made: e.Index}
		mo.logs[k] = l
	}
	if v.LogEnd == l.end {
		return
	}
	for _, ref := range m.Tail(k, l.end, 1<<30, true, 1<<62, nil) {
		if ref.First != l.end || ref.Index != e.Index || ref.Last < ref.First {
			mo.w.violate("offsets-dense", "shard %d %v: expected offset %d of index %d, found %d of %d", mo.shard, k.Partition, l.end, e.Index, ref.First, ref.Index)
		}
		mo.append(l, k, ref, bytes.Clone(e.Payload[ref.Pos:ref.Pos+ref.Len]))
	}
	if l.end != v.LogEnd {
		mo.w.violate("offsets-dense", "shard %d %v: the log ends at %d, its rows at %d", mo.shard, k.Partition, v.LogEnd, l.end)
	}
}

func (mo *model) append(l *partLog, k partition.Key, ref partition.TailRef, raw []byte) {
	b := batch.Batch(raw)
	if err := b.CheckCRC(); err != nil || b.BaseOffset() != ref.First || b.LastOffset() != ref.Last {
		mo.w.violate("offsets-dense", "shard %d %v offset %d: the batch says %d to %d, %v", mo.shard, k.Partition, ref.First, b.BaseOffset(), b.LastOffset(), err)
	}
	if int64(b.LeaderEpoch()) != int64(ref.Term) || ref.Epoch != b.LeaderEpoch() {
		mo.w.violate("epoch-is-term", "shard %d %v offset %d: stamped in epoch %d, in an entry of term %d", mo.shard, k.Partition, ref.First, b.LeaderEpoch(), ref.Term)
	}
	id := batchID(b)
	mo.produced[id]++
	if b.ProducerID() >= 0 {
		want := l.next[b.ProducerID()]
		if b.ProducerEpoch() > want.epoch {
			want = sequence{epoch: b.ProducerEpoch()}
		}
		if b.BaseSequence() != want.next || b.ProducerEpoch() != want.epoch {
			mo.w.violate("idempotent-order", "shard %d %v offset %d: producer %d: expected epoch and sequence %v, found %d, %d",
				mo.shard, k.Partition, ref.First, b.ProducerID(), want, b.ProducerEpoch(), b.BaseSequence())
		}
		l.next[b.ProducerID()] = sequence{want.epoch, b.LastSequence() + 1}
	} else if mo.produced[id] > 1 {
		mo.w.violate("no-invention", "shard %d %v offset %d: batch %d is in the log twice", mo.shard, k.Partition, ref.First, id)
	}
	if mo.refused[id] {
		mo.w.violate("definite-failure", "shard %d %v offset %d: batch %d was refused for certain", mo.shard, k.Partition, ref.First, id)
	}
	l.batches = append(l.batches, modelBatch{first: ref.First, last: ref.Last, index: ref.Index, term: ref.Term, id: id, bytes: raw})
	l.end = ref.Last + 1
}

// batchID is the number in the batch's first record.
func batchID(b batch.Batch) uint64 {
	var id uint64
	_ = batch.Iterate(b, func(r batch.Record) bool {
		if len(r.Value) >= 8 {
			id = binary.LittleEndian.Uint64(r.Value)
		}
		return false
	})
	return id
}

// at returns the batch that holds offset.
func (l *partLog) at(offset int64) *modelBatch {
	i := sort.Search(len(l.batches), func(i int) bool { return l.batches[i].last >= offset })
	if i == len(l.batches) || l.batches[i].first > offset {
		return nil
	}
	return &l.batches[i]
}

// learnSegments takes new segment rows, as the store must stand behind them.
func (mo *model) learnSegments(m *machine) {
	rows := m.Manifest().Segments
	known := len(mo.segments)
	for _, row := range rows {
		if int(row.ID) <= known {
			continue
		}
		first := uint64(2)
		if n := len(mo.segments); n > 0 {
			first = mo.segments[n-1].last + 1
		}
		if row.FirstIndex != first {
			mo.w.violate("segments-contiguous", "shard %d segment %d: expected first index %d, found %d", mo.shard, row.ID, first, row.FirstIndex)
		}
		mo.segments = append(mo.segments, segmentRange{row.Key, row.FirstIndex, row.LastIndex})
		mo.checkSegment(row.Key, row.FirstIndex, row.LastIndex)
	}
}

// checkRuns: runs and loose segments follow each other without gap or overlap.
func (mo *model) checkRuns(m *machine) {
	mf := m.Manifest()
	next := format.SegmentID(1)
	for _, r := range mf.Runs {
		if r.First != next || r.Last < r.First {
			mo.w.violate("runs-consistent", "shard %d run %d: expected first segment %d, found %d", mo.shard, r.ID, next, r.First)
		}
		next = r.Last + 1
	}
	if len(mf.Segments) > 0 && mf.Segments[0].ID != next {
		mo.w.violate("runs-consistent", "shard %d: expected first loose segment %d, found %d", mo.shard, next, mf.Segments[0].ID)
	}
}

// checkSegment: everything that the range appended is in the object.
func (mo *model) checkSegment(key string, first, last uint64) {
	obj := mo.w.store.objects[key]
	if obj == nil {
		mo.w.violate("store-covers", "shard %d: segment %s is committed and not in the store", mo.shard, key)
	}
	for k, l := range mo.logs {
		for i := len(l.batches) - 1; i >= 0 && l.batches[i].index >= first; i-- {
			b := &l.batches[i]
			if b.index > last || b.last < mo.starts[k] {
				continue
			}
			if !bytes.Equal(obj.find(k, b.first), b.bytes) {
				mo.w.violate("store-covers", "shard %d: segment %s lacks offset %d of %v", mo.shard, key, b.first, k.Partition)
			}
		}
	}
}

// compare holds the replica's whole state against the first one's at the same
// index, now and then.
func (mo *model) compare(m *machine, index uint64) {
	if index%16 != 0 {
		return
	}
	var buf bytes.Buffer
	if err := m.Set.Image().Encode(&buf); err != nil {
		mo.w.violate("state-agrees", "shard %d index %d: encode: %v", mo.shard, index, err)
	}
	h := stateHash(buf.Bytes())
	if was, ok := mo.images[index]; ok && was != h {
		mo.w.violate("state-agrees", "shard %d index %d: node %d has another state than the first to apply it", mo.shard, index, m.r.node.index)
	}
	mo.images[index] = h
}

var crc64Table = crc64.MakeTable(crc64.ECMA)

// stateHash is not CRC32C: an image ends with its own, so all would be equal.
func stateHash(b []byte) uint64 { return crc64.Checksum(b, crc64Table) }
