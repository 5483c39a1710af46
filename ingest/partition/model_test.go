package partition

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"

	"thermocline/tiering/format"
	"thermocline/wal/batch"
)

// model is the reference: it keeps the whole history of every partition and
// computes each answer from all of it. It is slow on purpose, and shares no
// code with Set but the codec of commands.
type model struct {
	index, term uint64
	hw          uint64
	parts       []*modelPart // existing ones
	nextRef     format.PartitionRef
	ids         int64
	segments    format.SegmentID
	tiered      uint64
	configs     map[[16]byte]modelConfig
	slots       map[uint32]*modelSlot
}

type modelSlot struct {
	number  uint64
	records map[string]string
}

func (m *model) slot(n uint32) *modelSlot {
	if m.slots[n] == nil {
		m.slots[n] = &modelSlot{records: map[string]string{}}
	}
	return m.slots[n]
}

type modelConfig struct {
	revision int64
	config   map[string]string
}

type modelPart struct {
	key      Key
	ref      format.PartitionRef
	base     int32
	logStart int64
	log      []modelBatch
	// forgotten[id]: batches of producer id before this place in log do not count.
	forgotten map[int64]int
}

type modelBatch struct {
	TailRef
	time       int64
	id         int64
	epoch      int16
	fseq, lseq int32
}

func newModel() *model {
	return &model{index: 1, term: 1, hw: 1, nextRef: 1, segments: 1, tiered: 1, configs: map[[16]byte]modelConfig{}, slots: map[uint32]*modelSlot{}}
}

func (m *model) clone() *model {
	c := *m
	c.parts = nil
	for _, p := range m.parts {
		q := *p
		q.log = slices.Clone(p.log)
		q.forgotten = maps.Clone(p.forgotten)
		c.parts = append(c.parts, &q)
	}
	c.configs = maps.Clone(m.configs)
	return &c
}

func (m *model) find(k Key) *modelPart {
	for _, p := range m.parts {
		if p.key == k {
			return p
		}
	}
	return nil
}

func (m *model) byRef(ref format.PartitionRef) *modelPart {
	for _, p := range m.parts {
		if p.ref == ref {
			return p
		}
	}
	return nil
}

func (p *modelPart) end() int64 {
	if len(p.log) == 0 {
		return 0
	}
	return p.log[len(p.log)-1].Last + 1
}

// endAt is the end of what entries up to index hold.
func (p *modelPart) endAt(index uint64) int64 {
	end := int64(0)
	for _, b := range p.log {
		if b.Index <= index {
			end = b.Last + 1
		}
	}
	return end
}

func (m *model) tieredEnd(p *modelPart) int64 { return max(p.logStart, p.endAt(m.tiered)) }
func (m *model) hwOf(p *modelPart) int64      { return max(m.tieredEnd(p), p.endAt(m.hw)) }
func (m *model) epoch(p *modelPart) int32     { return p.base + int32(m.term) }

// rows are those that a tail must hold.
func (m *model) rows(p *modelPart) (rows []TailRef) {
	for _, b := range p.log {
		if b.Index > m.tiered && b.Last >= p.logStart {
			rows = append(rows, b.TailRef)
		}
	}
	return rows
}

// producer gathers a producer's batches that count.
func (p *modelPart) producer(id int64) (all []modelBatch) {
	for i, b := range p.log {
		if b.id == id && i >= p.forgotten[id] {
			all = append(all, b)
		}
	}
	return all
}

// check judges a batch after these: the offset of a duplicate, or an error.
func check(before []modelBatch, epoch int16, fseq, lseq int32) (duplicate int64, err error) {
	if len(before) == 0 {
		return -1, nil
	}
	last := before[len(before)-1]
	if last.epoch == epoch {
		remembered := before
		for i := range before {
			if before[i].epoch != epoch {
				remembered = before[i+1:]
			}
		}
		for _, b := range remembered[max(0, len(remembered)-5):] {
			if b.fseq == fseq && b.lseq == lseq {
				return b.First, nil
			}
		}
		if int64(fseq) == int64(last.lseq)+1 || (fseq == 0 && last.lseq == math.MaxInt32) {
			return -1, nil
		}
		return -1, ErrOutOfOrderSequence
	}
	if epoch < last.epoch {
		return -1, ErrFencedProducer
	}
	if fseq != 0 {
		return -1, ErrOutOfOrderSequence
	}
	return -1, nil
}

func (m *model) apply(e entry) (out []outcome) {
	m.index, m.term = e.index, e.term
	m.expire(e.time)
	for pos := 0; pos < len(e.payload); {
		it, next, err := nextItem(e.payload, pos)
		if err != nil {
			panic(err)
		}
		var o outcome
		if it.kind == itemProduce {
			o = m.produce(e, it)
		} else {
			o.result, o.err = m.command(it)
		}
		out = append(out, o)
		pos = next
	}
	return out
}

func (m *model) produce(e entry, it item) outcome {
	p, b := m.byRef(it.ref), batch.Batch(it.body)
	if p == nil {
		return outcome{err: ErrUnknownPartition}
	}
	n := modelBatch{TailRef: TailRef{Index: e.index, Term: e.term, Pos: uint32(it.pos), Len: uint32(len(b)), First: b.BaseOffset(), Last: b.LastOffset(), MaxTimestamp: b.MaxTimestamp(), Epoch: m.epoch(p)},
		time: e.time, id: b.ProducerID(), epoch: b.ProducerEpoch(), fseq: b.BaseSequence(), lseq: b.LastSequence()}
	result := ProduceResult{BaseOffset: n.First, LogStart: p.logStart, Epoch: m.epoch(p)}
	if n.id >= 0 {
		dup, err := check(p.producer(n.id), n.epoch, n.fseq, n.lseq)
		if err != nil {
			return outcome{err: err}
		}
		if dup >= 0 {
			result.BaseOffset = dup
			return outcome{result: result}
		}
	}
	if n.First != p.end() || b.LeaderEpoch() != m.epoch(p) {
		return outcome{err: ErrNotNextOffset}
	}
	p.log = append(p.log, n)
	return outcome{result: result}
}

func (m *model) command(it item) (any, error) {
	cmd, err := decodeCommand(it)
	if err != nil {
		panic(err)
	}
	p := m.byRef(it.ref)
	switch c := cmd.(type) {
	case *CreatePartition:
		if m.find(c.Key) != nil {
			return nil, ErrPartitionExists
		}
		m.parts = append(m.parts, &modelPart{key: c.Key, ref: m.nextRef, base: c.EpochBase, forgotten: map[int64]int{}})
		m.nextRef++
		if _, ok := m.configs[c.Key.Topic]; !ok {
			m.configs[c.Key.Topic] = modelConfig{0, c.Config}
		}
		return nil, nil
	case *SetConfig:
		old, ok := m.configs[c.Topic]
		if !ok {
			return nil, ErrUnknownPartition
		}
		if c.Revision >= old.revision {
			m.configs[c.Topic] = modelConfig{c.Revision, c.Config}
		}
		return nil, nil
	case *AllocateProducerIDs:
		m.ids += c.Count
		return int64(7)<<40 + m.ids - c.Count, nil
	case *TierSegment:
		if c.Row.FirstIndex != m.tiered+1 || c.Row.LastIndex >= m.index {
			return nil, ErrNotNextSegment
		}
		m.tiered = c.Row.LastIndex
		m.segments++
		return m.segments - 1, nil
	case *CoordinatorWrite:
		sl := m.slot(c.Slot)
		if c.After != sl.number {
			return nil, ErrStaleCoordinator
		}
		sl.number++
		for _, r := range c.Records {
			if delete(sl.records, r.Key); r.Value != nil {
				sl.records[r.Key] = string(r.Value)
			}
		}
		return sl.number, nil
	}
	if p == nil {
		return nil, ErrUnknownPartition
	}
	switch c := cmd.(type) {
	case *DeletePartition:
		m.parts = slices.DeleteFunc(m.parts, func(q *modelPart) bool { return q == p })
		if !slices.ContainsFunc(m.parts, func(q *modelPart) bool { return q.key.Topic == p.key.Topic }) {
			delete(m.configs, p.key.Topic)
		}
	case *DeleteRecords:
		if c.Offset > p.end() {
			return nil, ErrOffsetOutOfRange
		}
		p.logStart = max(p.logStart, c.Offset)
		return p.logStart, nil
	}
	return nil, nil
}

// expire forgets the longest silent producers, at most 1,024 at once.
func (m *model) expire(now int64) {
	type silent struct {
		time int64
		p    *modelPart
		id   int64
	}
	var all []silent
	for _, p := range m.parts {
		last := map[int64]int64{}
		for i, b := range p.log {
			if b.id >= 0 && i >= p.forgotten[b.id] {
				last[b.id] = max(last[b.id], b.time)
			}
		}
		for id, t := range last {
			if now-t > 24*3600*1000 {
				all = append(all, silent{t, p, id})
			}
		}
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		if a.time != b.time {
			return a.time < b.time
		}
		if a.p.ref != b.p.ref {
			return a.p.ref < b.p.ref
		}
		return a.id < b.id
	})
	for _, s := range all[:min(len(all), 1024)] {
		s.p.forgotten[s.id] = len(s.p.log)
	}
}

// verify compares everything that a Set answers with the history.
func (m *model) verify(s *Set) error {
	if n := len(s.Keys()); n != len(m.parts) {
		return fmt.Errorf("partitions: expected %d, found %d", len(m.parts), n)
	}
	oldest := m.index + 1
	for _, p := range m.parts {
		if err := m.verifyPart(s, p); err != nil {
			return fmt.Errorf("partition %d: %w", p.ref, err)
		}
		if rows := m.rows(p); len(rows) > 0 {
			oldest = min(oldest, rows[0].Index)
		}
	}
	if t := s.TrimmableIndex(); t != oldest-1 {
		return fmt.Errorf("trimmable: expected %d, found %d", oldest-1, t)
	}
	if t := s.Manifest().TieredIndex; t != m.tiered || len(s.Manifest().Segments) != int(m.segments)-1 {
		return fmt.Errorf("tiered index: expected %d, found %d", m.tiered, t)
	}
	for n, sl := range m.slots {
		if err := sl.verify(s.Slot(n)); err != nil {
			return fmt.Errorf("slot %d: %w", n, err)
		}
	}
	return nil
}

func (sl *modelSlot) verify(v SlotView) error {
	last, n, bytes := "", 0, int64(0)
	for key, value := range v.All() {
		if expected, ok := sl.records[key]; !ok || expected != string(value) || key <= last {
			return fmt.Errorf("record %q: expected %q, found %q after %q", key, expected, value, last)
		}
		n, bytes, last = n+1, bytes+int64(len(key)+len(value))+64, key
	}
	if v.Number != sl.number || n != len(sl.records) || v.Len() != n || v.Bytes() != bytes {
		return fmt.Errorf("expected number %d and %d records, found number %d, %d records of %d, %d bytes of %d",
			sl.number, len(sl.records), v.Number, n, v.Len(), bytes, v.Bytes())
	}
	return nil
}

func (m *model) verifyPart(s *Set, p *modelPart) error {
	v, ok := s.View(p.key)
	if !ok {
		return errors.New("is missing")
	}
	rows := m.rows(p)
	expected := View{Key: p.key, Ref: p.ref, LogStart: p.logStart, TieredEnd: m.tieredEnd(p), HW: m.hwOf(p), LSO: m.hwOf(p), LogEnd: p.end(),
		Epoch: m.epoch(p), MaxTimestampTail: -1, ColdBytes: v.ColdBytes, LatestKnown: v.LatestKnown}
	for _, r := range rows {
		expected.HotBytes += int64(r.Len)
		expected.MaxTimestampTail = max(expected.MaxTimestampTail, r.MaxTimestamp)
	}
	found := v
	found.Topic, found.Config, found.Manifest = "", nil, nil
	if fmt.Sprint(found) != fmt.Sprint(expected) {
		return fmt.Errorf("view: expected %+v, found %+v", expected, found)
	}
	if !maps.Equal(v.Config, m.configs[p.key.Topic].config) {
		return fmt.Errorf("config: expected %v, found %v", m.configs[p.key.Topic].config, v.Config)
	}
	if tail := s.Tail(p.key, v.TieredEnd, math.MaxInt, true, math.MaxInt64, nil); !slices.Equal(tail, rows) {
		return fmt.Errorf("tail: expected %v, found %v", rows, tail)
	}
	known := map[int64]bool{}
	for _, b := range p.log {
		if b.id >= 0 && len(p.producer(b.id)) > 0 {
			known[b.id] = true
		}
	}
	for _, pr := range s.Producers(p.key) {
		all := p.producer(pr.ID)
		if len(all) == 0 || all[len(all)-1].epoch != pr.Epoch || all[len(all)-1].lseq != pr.LastSequence {
			return fmt.Errorf("producer %+v: expected %+v", pr, all)
		}
		delete(known, pr.ID)
	}
	if len(known) > 0 {
		return fmt.Errorf("producers are missing: %v", known)
	}
	return m.verifyEpochs(s, p, rows)
}

func (m *model) verifyEpochs(s *Set, p *modelPart, rows []TailRef) error {
	for asked := int32(0); asked <= m.epoch(p); asked++ {
		found, end := int32(-1), p.end()
		if asked == m.epoch(p) {
			found = asked
		} else {
			for _, b := range p.log {
				if b.Epoch <= asked {
					found = b.Epoch
				} else if end > b.First {
					end = b.First
				}
			}
		}
		f, e, ok := s.EpochEnd(p.key, asked)
		if ok && (f != found || e != end) {
			return fmt.Errorf("epoch %d: expected %d ending at %d, found %d, %d", asked, found, end, f, e)
		}
		// Only epochs that ended in the store may be unknown.
		if !ok && found >= 0 && len(rows) > 0 && end > m.tieredEnd(p) {
			return fmt.Errorf("epoch %d, which ends at %d in the tail, is unknown", asked, end)
		}
	}
	return nil
}
