package partition

import (
	"fmt"
	"io"
	"math"

	"thermocline/metadata"
	"thermocline/tiering/format"
)

// Restore implements shard.StateMachine. r holds exactly one encoded image. On
// an error the state is as before.
func (s *Set) Restore(r io.Reader) error {
	next := &Set{opt: s.opt, gen: s.gen + 1, slotGen: s.slotGen + 1}
	next.clear()
	if err := next.decodeImage(newStreamDecoder(r)); err != nil {
		return fmt.Errorf("restore partition image: %w", err)
	}
	s.dropProposed()
	s.mu.Lock()
	s.take(next)
	s.mu.Unlock()
	s.wake()
	return nil
}

// take replaces the replicated state. The acknowledgement bound stays.
func (s *Set) take(next *Set) {
	for _, p := range s.parts {
		p.gone = true
	}
	for _, p := range next.parts {
		p.hw = hwOf(p.state, s.hw)
		if old := s.byKey[p.state.key]; old != nil {
			p.hw = min(max(p.hw, old.hw), p.state.logEnd)
		}
	}
	s.gen = next.gen
	s.index, s.term = next.index, next.term
	s.nextRef, s.nextSegment, s.nextRun, s.nextProducer = next.nextRef, next.nextSegment, next.nextRun, next.nextProducer
	s.manifest, s.topics = next.manifest, next.topics
	s.byKey, s.byRef, s.parts, s.hot = next.byKey, next.byRef, next.parts, next.hot
	s.entries, s.expiry = next.entries, next.expiry
	s.slots, s.slotBytes, s.slotGen = next.slots, next.slotBytes, next.slotGen
	s.stats.CoordinatorRecords, s.stats.CoordinatorBytes = next.stats.CoordinatorRecords, next.stats.CoordinatorBytes
	s.stats.TailRows, s.stats.TailBytes, s.stats.Producers = next.stats.TailRows, next.stats.TailBytes, next.stats.Producers
	s.restored++
	s.wakeAll = true
	s.rebuildMarks()
}

// rebuildMarks lists the ends of partitions above the bound, from the rows.
func (s *Set) rebuildMarks() {
	s.marks.clear()
	var marks []hwMark
	for _, p := range s.hot {
		t := &p.state.tail
		for i := t.findIndexAfter(s.hw); i < t.rows; i++ {
			marks = append(marks, hwMark{t.at(i).Index, p, t.at(i).Last + 1})
		}
	}
	sortMarks(marks)
	for _, m := range marks {
		s.marks.push(m)
	}
}

// decodeImage fills an empty Set.
func (s *Set) decodeImage(d *decoder) error {
	head := d.bytes(8)
	switch {
	case d.err != nil:
		return d.err
	case string(head[:4]) != imageMagic:
		return fmt.Errorf("magic: expected %q, found %q: %w", imageMagic, head[:4], ErrCorrupt)
	case head[4] > imageVersion:
		return fmt.Errorf("image version: expected at most %d, found %d: %w", imageVersion, head[4], ErrNewerVersion)
	case head[4] == 0 || head[5]|head[6]|head[7] != 0:
		return fmt.Errorf("image version: expected 1 to %d, found % x: %w", imageVersion, head[4:8], ErrCorrupt)
	}
	version := head[4] // head is valid until the next read
	if n := d.u32("shard"); d.err == nil && n != s.opt.Shard {
		d.fail("shard: expected %d, found %d", s.opt.Shard, n)
	}
	s.index, s.term = d.uvarint(), d.uvarint()
	s.nextRef = format.PartitionRef(d.u32("next partition"))
	s.nextSegment = format.SegmentID(d.u32("next segment"))
	s.nextRun = d.u32("next run")
	s.nextProducer = d.varint()
	if s.nextProducer < 0 || s.nextProducer > 1<<producerIDBits {
		d.fail("next producer id %d", s.nextProducer)
	}
	s.decodeManifest(d)
	topics := s.decodeTopics(d)
	s.decodeStates(d, topics)
	s.decodeEntries(d)
	if version > 1 {
		s.decodeSlots(d)
	}
	if d.err != nil {
		return d.err
	}
	d.sum()
	sum := d.crc
	if found := d.fixed32(); d.err == nil && found != sum {
		d.fail("crc: expected %08x, found %08x", sum, found)
	}
	d.fill(1)
	return d.end()
}

func (s *Set) decodeManifest(d *decoder) {
	b := d.blob(d.upTo(maxManifest, "manifest"))
	if d.err != nil {
		return
	}
	m, rest, err := format.DecodeManifest(b)
	if err != nil {
		d.err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		return
	}
	if len(rest) != 0 || m.Shard != s.opt.Shard || m.TieredIndex > s.index {
		d.fail("manifest of shard %d up to index %d of %d, %d bytes too many", m.Shard, m.TieredIndex, s.index, len(rest))
		return
	}
	last := format.SegmentID(0)
	for _, r := range m.Runs {
		if r.First <= last || r.Last < r.First {
			d.fail("run of segments %d to %d after %d", r.First, r.Last, last)
		}
		last = r.Last
	}
	for _, r := range m.Segments {
		if r.ID <= last || (s.nextSegment != 0 && r.ID >= s.nextSegment) {
			d.fail("segment %d after %d, next is %d", r.ID, last, s.nextSegment)
		}
		last = r.ID
	}
	s.manifest = m
}

func (s *Set) decodeTopics(d *decoder) []*topic {
	var list []*topic
	for n := d.u32("topics"); n > 0 && d.err == nil; n-- {
		t := &topicState{}
		copy(t.id[:], d.bytes(len(metadata.TopicID{})))
		t.revision = d.varint()
		t.name = d.string(maxName, "topic name")
		t.config = d.config()
		if s.topics[t.id] != nil {
			d.fail("topic %x twice", t.id)
			return nil
		}
		list = append(list, s.addTopic(t))
	}
	return list
}

func (s *Set) decodeStates(d *decoder, topics []*topic) {
	last := format.PartitionRef(0)
	for n := d.u32("partitions"); n > 0 && d.err == nil; n-- {
		st := &state{gen: s.gen, maxTime: -1, ref: format.PartitionRef(d.u32("partition number"))}
		if st.ref <= last || (s.nextRef != 0 && st.ref >= s.nextRef) {
			d.fail("partition %d after %d, next is %d", st.ref, last, s.nextRef)
		}
		last = st.ref
		number := d.uvarint()
		if number >= uint64(len(topics)) {
			d.fail("topic: expected less than %d, found %d", len(topics), number)
			return
		}
		p := &part{topic: topics[number], state: st}
		st.key = Key{Topic: p.topic.cur.id, Partition: d.int32("partition")}
		st.epochBase = d.int32("epoch base")
		st.logStart, st.tieredEnd, st.logEnd, st.coldBytes = d.varint(), d.varint(), d.varint(), d.varint()
		if st.logStart < 0 || st.tieredEnd < st.logStart || st.logEnd < st.tieredEnd || s.byKey[st.key] != nil {
			d.fail("partition %d: offsets %d, %d, %d, or it comes twice", st.ref, st.logStart, st.tieredEnd, st.logEnd)
		}
		for n := d.u32("epochs"); n > 0 && d.err == nil; n-- {
			e := epochStart{d.int32("epoch"), d.varint()}
			if k := len(st.epochs); k > 0 && (e.epoch <= st.epochs[k-1].epoch || e.first < st.epochs[k-1].first) {
				d.fail("epoch %d at %d after epoch %d at %d", e.epoch, e.first, st.epochs[k-1].epoch, st.epochs[k-1].first)
			}
			st.epochs = append(st.epochs, e)
		}
		s.decodeProducers(d, p)
		if n := d.uvarint(); n != 0 {
			d.fail("open transactions: expected none, found %d", n)
		}
		s.decodeTail(d, st)
		if d.err != nil {
			return
		}
		s.addPart(p)
	}
	for _, t := range topics {
		if t.parts == 0 {
			d.fail("topic %q has no partition", t.cur.name)
		}
	}
}

func (s *Set) decodeProducers(d *decoder, p *part) {
	first, last := true, int64(0)
	for n := d.u32("producers"); n > 0 && d.err == nil; n-- {
		pr := producer{id: d.varint(), lastTime: d.varint()}
		epoch := d.int32("producer epoch")
		pr.epoch, pr.count = int16(epoch), d.u8()
		if int32(pr.epoch) != epoch || pr.count > producerBatches || (!first && pr.id <= last) {
			d.fail("producer %d: epoch %d, %d batches, after %d", pr.id, epoch, pr.count, last)
			return
		}
		for i := range pr.batches[:pr.count] {
			pr.batches[i] = producerBatch{d.int32("sequence"), d.int32("sequence"), d.varint()}
		}
		if d.err != nil {
			return
		}
		first, last = false, pr.id
		own, _ := s.ownProducer(p, pr.id)
		*own = pr
		s.expiry.push(expiryMark{pr.lastTime, p.state.ref, pr.id})
	}
}

func (s *Set) decodeTail(d *decoder, st *state) {
	n := d.u32("tail rows")
	if n == 0 {
		return
	}
	next := d.varint()
	if next < 0 || next > st.tieredEnd {
		d.fail("tail: expected to begin at %d or before, found %d", st.tieredEnd, next)
	}
	last := TailRef{}
	for ; n > 0 && d.err == nil; n-- {
		r := TailRef{Index: last.Index + d.uvarint(), Term: last.Term + d.uvarint()}
		r.Pos, r.Len = d.u32("position"), d.u32("length")
		r.First = next
		r.Last = next + int64(d.upTo(math.MaxInt32, "offset delta"))
		r.MaxTimestamp = last.MaxTimestamp + d.varint()
		r.Epoch = last.Epoch + d.int32("epoch")
		if r.Last < r.First || r.Last == math.MaxInt64 || r.Index < last.Index || r.Index > s.index {
			d.fail("tail row at offset %d, index %d of %d", r.First, r.Index, s.index)
			return
		}
		st.push(r)
		s.stats.TailRows++
		s.stats.TailBytes += int64(r.Len)
		last, next = r, r.Last+1
	}
	if d.err == nil && next != st.logEnd {
		d.fail("tail: expected to end at %d, found %d", st.logEnd, next)
	}
}

// decodeEntries reads the entries' times, and counts the rows into them.
func (s *Set) decodeEntries(d *decoder) {
	index := uint64(0)
	for n := d.u32("entries"); n > 0 && d.err == nil; n-- {
		step := d.uvarint()
		if step == 0 || index+step > s.index || index+step < index {
			d.fail("entry %d after %d, of %d", index+step, index, s.index)
			return
		}
		index += step
		s.entries.push(entryMark{index: index, time: d.varint()})
	}
	for _, p := range s.hot {
		t := &p.state.tail
		for i := 0; i < t.rows && d.err == nil; i++ {
			at := s.findEntry(t.at(i).Index)
			if at == s.entries.len() || s.entries.at(at).index != t.at(i).Index {
				d.fail("row of entry %d, which is not listed", t.at(i).Index)
				return
			}
			s.entries.at(at).bytes += int64(t.at(i).Len)
		}
	}
	// An entry in the middle whose rows are all deleted stays listed until it
	// comes to the front; at the front there is none.
	if d.err == nil && s.entries.len() > 0 && s.entries.at(0).bytes <= 0 {
		d.fail("entry %d has no rows", s.entries.at(0).index)
	}
}
