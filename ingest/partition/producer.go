package partition

import (
	"fmt"
	"math"

	"thermocline/tiering/format"
)

// producerBatches is how many batches of a producer are remembered for
// duplicates: Kafka's number, and the most that its clients have in flight.
const producerBatches = 5

// producersPerPage is how many producers a page shared with images holds; a
// change after an image copies one page (3 KiB).
const producersPerPage = 32

// producersIndexed is the number of producers from which a map finds them; a
// partition that few write to does without.
const producersIndexed = 8

// producer is what a partition remembers of one producer id.
type producer struct {
	id       int64
	lastTime int64 // of its newest entry, unix ms
	epoch    int16
	// batches holds the newest count batches, oldest first. It is empty after a
	// marker with a new epoch: the next sequence is then 0.
	count   uint8
	batches [producerBatches]producerBatch
}

type producerBatch struct {
	first, last int32 // sequence numbers
	base        int64 // offset
}

// noSequence is the last sequence of an epoch in which nothing was written.
const noSequence = int32(-1)

func (p *producer) lastSequence() int32 {
	if p.count == 0 {
		return noSequence
	}
	return p.batches[p.count-1].last
}

// find returns the offset of a remembered batch with exactly these sequences.
func (p *producer) find(epoch int16, first, last int32) (base int64, ok bool) {
	if p.epoch != epoch {
		return 0, false
	}
	for i := 0; i < int(p.count); i++ {
		if b := p.batches[i]; b.first == first && b.last == last {
			return b.base, true
		}
	}
	return 0, false
}

// add remembers an appended batch.
func (p *producer) add(epoch int16, b producerBatch) {
	if epoch != p.epoch {
		p.epoch, p.count = epoch, 0
	}
	if p.count == producerBatches {
		copy(p.batches[:], p.batches[1:])
		p.count--
	}
	p.batches[p.count] = b
	p.count++
}

// sequenceState is what the next batch of a producer is checked against.
type sequenceState struct {
	known bool
	epoch int16
	last  int32
}

// checkSequence decides as Kafka 4 does (ProducerAppendInfo.checkProducerEpoch
// and checkSequence): an older epoch is fenced, a new one begins at sequence 0,
// within an epoch sequences follow each other and wrap from the largest int32
// to 0. A producer of whom nothing is known may begin anywhere: it may have
// been idle for longer than its state is kept, and must be able to go on.
func checkSequence(st sequenceState, epoch int16, first int32) error {
	if epoch < 0 || first < 0 {
		return fmt.Errorf("producer epoch %d, sequence %d: %w", epoch, first, ErrOutOfOrderSequence)
	}
	if !st.known {
		return nil
	}
	if epoch < st.epoch {
		return fmt.Errorf("producer epoch: expected %d or more, found %d: %w", st.epoch, epoch, ErrFencedProducer)
	}
	expected := int32(0)
	if epoch == st.epoch {
		expected = nextSequence(st.last)
	}
	if first != expected {
		return fmt.Errorf("sequence of producer epoch %d: expected %d, found %d: %w", epoch, expected, first, ErrOutOfOrderSequence)
	}
	return nil
}

func nextSequence(last int32) int32 {
	if last == math.MaxInt32 {
		return 0
	}
	return last + 1
}

// producers is a partition's producers, in pages that images share. All pages
// but the last are full.
type producers struct {
	pages []*producerPage
	count int
}

type producerPage struct {
	gen  uint64
	list []producer
}

func (t *producers) at(i int) *producer {
	return &t.pages[i/producersPerPage].list[i%producersPerPage]
}

// findProducer returns the position of a producer id in p's state; -1 if unknown.
func (p *part) findProducer(id int64) int {
	if p.producerAt != nil {
		if i, ok := p.producerAt[id]; ok {
			return i
		}
		return -1
	}
	t := &p.state.producers
	for i := 0; i < t.count; i++ {
		if t.at(i).id == id {
			return i
		}
	}
	return -1
}

// producer returns what is known of a producer id; nil if nothing is.
func (p *part) producer(id int64) *producer {
	if i := p.findProducer(id); i >= 0 {
		return p.state.producers.at(i)
	}
	return nil
}

// ownPage returns the i-th page for changing.
func (s *Set) ownPage(st *state, i int) *producerPage {
	pg := st.producers.pages[i]
	if pg.gen != s.gen {
		pg = &producerPage{gen: s.gen, list: append([]producer(nil), pg.list...)}
		st.producers.pages[i] = pg
	}
	return pg
}

// ownProducer returns a producer for changing, which it adds if it is unknown.
func (s *Set) ownProducer(p *part, id int64) (pr *producer, added bool) {
	st := s.own(p)
	i := p.findProducer(id)
	if i < 0 {
		i, added = st.producers.count, true
		if i%producersPerPage == 0 {
			st.producers.pages = append(st.producers.pages, &producerPage{gen: s.gen})
		}
		pg := s.ownPage(st, i/producersPerPage)
		pg.list = append(pg.list, producer{id: id})
		st.producers.count++
		p.indexProducer(id, i)
		s.stats.Producers++
	}
	return &s.ownPage(st, i/producersPerPage).list[i%producersPerPage], added
}

// indexProducer tells the map, once there is one, where a producer is.
func (p *part) indexProducer(id int64, i int) {
	if p.producerAt != nil {
		p.producerAt[id] = i
		return
	}
	if p.state.producers.count < producersIndexed {
		return
	}
	p.producerAt = make(map[int64]int, 2*producersIndexed)
	for i := 0; i < p.state.producers.count; i++ {
		p.producerAt[p.state.producers.at(i).id] = i
	}
}

// forgetProducer removes the producer at position i: the last one takes its place.
func (s *Set) forgetProducer(p *part, i int) {
	st := s.own(p)
	last := st.producers.count - 1
	if p.producerAt != nil {
		delete(p.producerAt, st.producers.at(i).id)
	}
	if i != last {
		moved := *st.producers.at(last)
		s.ownPage(st, i/producersPerPage).list[i%producersPerPage] = moved
		if p.producerAt != nil {
			p.producerAt[moved.id] = i
		}
	}
	pg := s.ownPage(st, last/producersPerPage)
	pg.list = pg.list[:last%producersPerPage]
	if len(pg.list) == 0 {
		st.producers.pages = st.producers.pages[:last/producersPerPage]
	}
	st.producers.count--
	if st.producers.count == 0 {
		p.producerAt = nil
	}
	s.stats.Producers--
}

// expireProducers forgets producers that have been silent for too long at an
// entry's time, the longest silent first, a bounded number per entry. Which
// ones depends on the producers alone, not on the heap's marks, which are a
// lower bound of the times: so replicas agree, whenever they were restored.
func (s *Set) expireProducers(now int64) {
	for n := 0; n < producerExpiryBatch && len(s.expiry) > 0; {
		m := s.expiry[0]
		if now-m.time <= ProducerExpiryMilli {
			return
		}
		p := s.byRef[m.ref]
		i := -1
		if p != nil {
			i = p.findProducer(m.id)
		}
		if i < 0 {
			s.expiry.pop() // its partition is gone
			continue
		}
		if t := p.state.producers.at(i).lastTime; t != m.time {
			s.expiry[0].time = t
			s.expiry.down(0)
			continue
		}
		s.forgetProducer(p, i)
		s.expiry.pop()
		n++
	}
}

// expiryMark says that a producer was last seen at time or later.
type expiryMark struct {
	time int64
	ref  format.PartitionRef
	id   int64
}

func (a expiryMark) less(b expiryMark) bool {
	switch {
	case a.time != b.time:
		return a.time < b.time
	case a.ref != b.ref:
		return a.ref < b.ref
	}
	return a.id < b.id
}

// expiryHeap is a binary heap, the oldest mark first; one mark per producer.
type expiryHeap []expiryMark

func (h *expiryHeap) push(m expiryMark) {
	*h = append(*h, m)
	l := *h
	for i := len(l) - 1; i > 0; {
		up := (i - 1) / 2
		if !l[i].less(l[up]) {
			return
		}
		l[i], l[up] = l[up], l[i]
		i = up
	}
}

func (h *expiryHeap) pop() {
	l := *h
	l[0] = l[len(l)-1]
	*h = l[:len(l)-1]
	h.down(0)
}

func (h expiryHeap) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h); c++ {
			if h[c].less(h[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
