package partition

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"thermocline/metadata"
	"thermocline/tiering/format"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run only this seed of the random tests")
	seedsFlag = flag.Int("seeds", 100, "how many seeds the random tests run")
)

// world drives a leader and a follower against the model through one random
// list of operations.
type world struct {
	rng       *rand.Rand
	m         *model
	leader    *Set
	follower  *Set
	behind    []entry // applied on the leader, not yet on the follower
	flight    []entry // prepared, not yet applied
	sent      []modelFlight
	sentSlots []sentSlot // coordinator writes in flight, in order
	dropped   map[producerKey]droppedBatch
	index     uint64
	term      uint64
	time      int64
	ticket    uint64
	next      map[producerKey]int32 // what each producer will send next
	epochs    map[int64]int16
	fault     error
}

// modelFlight is one batch in flight.
type modelFlight struct {
	entry      uint64
	ticket     uint64
	ref        format.PartitionRef
	id         int64
	epoch      int16
	fseq, lseq int32
	n          int64
}

func newWorld(seed uint64, bugs Bugs) *world {
	o := Options{Shard: 7, Bugs: bugs}
	return &world{rng: rand.New(rand.NewPCG(seed, 1)), m: newModel(), leader: NewSet(o), follower: NewSet(o),
		dropped: map[producerKey]droppedBatch{}, index: 1, term: 1, time: 1 << 40, next: map[producerKey]int32{}, epochs: map[int64]int16{}}
}

func (w *world) key() Key { return key(byte(w.rng.IntN(2)), int32(w.rng.IntN(3))) }

// command draws a command; most are batches.
func (w *world) command() any {
	switch n := w.rng.IntN(100); {
	case n < 6:
		return &CreatePartition{Key: w.key(), Name: "t", EpochBase: int32(w.rng.IntN(3)), Config: map[string]string{"n": fmt.Sprint(w.rng.IntN(9))}}
	case n < 7:
		return &DeletePartition{Key: w.key()}
	case n < 9:
		return &SetConfig{Topic: metadata.TopicID(w.key().Topic), Revision: int64(w.rng.IntN(9)), Config: map[string]string{"s": fmt.Sprint(n)}}
	case n < 12:
		k := w.key()
		v, _ := w.leader.View(k)
		return &DeleteRecords{Key: k, Offset: v.LogStart - 1 + w.rng.Int64N(v.LogEnd-v.LogStart+2)}
	case n < 13:
		return &AllocateProducerIDs{Count: 1 + w.rng.Int64N(5)}
	case n >= 18 && n < 28:
		return w.coordinatorWrite()
	case n < 18:
		if r, ok := w.leader.Seal(1 + w.rng.Int64N(2000)); ok {
			if r.Last > w.m.hw {
				w.fault = fmt.Errorf("sealed up to %d, above the acknowledged %d", r.Last, w.m.hw)
			}
			return &TierSegment{Row: rowOf(r)}
		}
		return &AllocateProducerIDs{Count: 1}
	}
	k, n := w.key(), 1+w.rng.IntN(3)
	if w.rng.IntN(3) == 0 {
		return &Produce{Key: k, Batch: plain(n, w.rng.Int64N(50))}
	}
	id := w.rng.Int64N(4)
	if w.rng.IntN(40) == 0 {
		w.epochs[id]++
		for pk := range w.next {
			if pk.id == id {
				delete(w.next, pk)
			}
		}
	}
	pk := producerKey{id: id}
	if p := w.m.find(k); p != nil {
		pk.ref = p.ref
	}
	seq := w.next[pk]
	if seq > 0 && w.rng.IntN(5) == 0 {
		seq = w.rng.Int32N(seq + 2) // a repeat or a gap
		n = 1
	} else {
		n = 1
		w.next[pk] = seq + int32(n)
	}
	return &Produce{Key: k, Batch: from(id, 1+w.epochs[id]-int16(w.rng.IntN(20)/19), seq, n)}
}

// coordinatorWrite draws a write of a slot, most times upon the newest in flight.
func (w *world) coordinatorWrite() *CoordinatorWrite {
	c := &CoordinatorWrite{Slot: w.rng.Uint32N(3)}
	c.After = w.runningSlot(c.Slot)
	if w.rng.IntN(6) == 0 {
		c.After = max(1, c.After) - 1 + w.rng.Uint64N(3)
	}
	for range w.rng.IntN(6) {
		r := CoordinatorRecord{Key: fmt.Sprint(w.rng.IntN(100))}
		if w.rng.IntN(3) > 0 {
			r.Value = make([]byte, w.rng.IntN(4), 4)
			for i := range r.Value {
				r.Value[i] = byte(w.rng.IntN(256))
			}
		}
		c.Records = append(c.Records, r)
	}
	return c
}

// runningSlot is a slot's number after everything in flight.
func (w *world) runningSlot(slot uint32) uint64 {
	n := w.m.slot(slot).number
	for _, f := range w.sentSlots {
		if f.slot == slot {
			n++
		}
	}
	return n
}

// sentSlot is one coordinator write in flight.
type sentSlot struct {
	entry uint64
	slot  uint32
}

// checkWrite: Prepare takes exactly the writes that follow what is in flight.
func (w *world) checkWrite(c *CoordinatorWrite, got shard.Prepared) error {
	expected := w.runningSlot(c.Slot)
	if (c.After == expected) != (got.Err == nil) || got.Err != nil && !errors.Is(got.Err, ErrStaleCoordinator) {
		return fmt.Errorf("write of slot %d after %d, expected after %d: %v", c.Slot, c.After, expected, got.Err)
	}
	if got.Err == nil {
		if got.Result != c.After+1 {
			return fmt.Errorf("write of slot %d: expected number %d, found %v", c.Slot, c.After+1, got.Result)
		}
		w.sentSlots = append(w.sentSlots, sentSlot{w.index + 1, c.Slot})
	}
	return nil
}

// expected says what Prepare must answer for a batch.
func (w *world) expected(c *Produce) (prep shard.Prepared) {
	p := w.m.find(c.Key)
	if p == nil {
		return shard.Prepared{Err: ErrUnknownPartition}
	}
	b := c.Batch
	result := ProduceResult{LogStart: p.logStart, Epoch: p.base + int32(w.term), BaseOffset: p.end()}
	applied := p.producer(b.ProducerID())
	running := append([]modelBatch(nil), applied...)
	inFlight := false
	for _, f := range w.sent {
		if f.ref != p.ref {
			continue
		}
		result.BaseOffset += f.n
		if f.id == b.ProducerID() {
			inFlight = true
			running = append(running, modelBatch{epoch: f.epoch, fseq: f.fseq, lseq: f.lseq})
		}
	}
	prep.Result = result
	if b.ProducerID() < 0 {
		return prep
	}
	if d, ok := w.dropped[producerKey{p.ref, b.ProducerID()}]; ok && len(running) == 0 && d.epoch == b.ProducerEpoch() && d.first != b.BaseSequence() {
		return shard.Prepared{Err: ErrOutOfOrderSequence}
	}
	_, err := check(running[max(0, len(running)-1):], b.ProducerEpoch(), b.BaseSequence(), b.LastSequence())
	fresh := len(running) == 0 || (err == nil && !repeats(running[len(running)-1], b))
	if fresh {
		return prep
	}
	for i := len(w.sent) - 1; i >= 0; i-- {
		f := w.sent[i]
		if f.ref == p.ref && f.id == b.ProducerID() && f.epoch == b.ProducerEpoch() && f.fseq == b.BaseSequence() && f.lseq == b.LastSequence() {
			return shard.Prepared{SameAs: f.ticket}
		}
	}
	if len(applied) > 0 && (!inFlight || running[len(running)-1].epoch == b.ProducerEpoch()) {
		if dup, err := check(applied, b.ProducerEpoch(), b.BaseSequence(), b.LastSequence()); err == nil && dup >= 0 {
			return shard.Prepared{Final: true, Result: ProduceResult{BaseOffset: dup, LogStart: p.logStart, Epoch: w.m.epoch(p)}}
		}
	}
	if err == nil {
		err = ErrOutOfOrderSequence
	}
	return shard.Prepared{Err: err}
}

func repeats(a modelBatch, b batch.Batch) bool {
	return a.epoch == b.ProducerEpoch() && a.fseq == b.BaseSequence() && a.lseq == b.LastSequence()
}

// prepare makes one entry and checks every verdict on a batch.
func (w *world) prepare() error {
	w.time += w.rng.Int64N(1000)
	if w.rng.IntN(50) == 0 {
		w.time += 10 * 3600 * 1000
	}
	e := entry{index: w.index + 1, term: w.term, time: w.time}
	for range 1 + w.rng.IntN(3) {
		cmd := w.command()
		w.ticket++
		produce, isProduce := cmd.(*Produce)
		var expected shard.Prepared
		if isProduce {
			expected = w.expected(produce)
		}
		before := len(e.payload)
		var got shard.Prepared
		e.payload, got = w.leader.Prepare(cmd, w.term, w.ticket, w.time, e.payload)
		if len(e.payload) > before {
			e.tickets = append(e.tickets, w.ticket)
		}
		if !isProduce {
			if err := w.checkBounds(cmd, got); err != nil {
				return err
			}
			continue
		}
		if !errors.Is(got.Err, expected.Err) || (got.Err != nil) != (expected.Err != nil) || got.Final != expected.Final || got.SameAs != expected.SameAs {
			return fmt.Errorf("prepare %v: expected %+v, found %+v", produce.Key, expected, got)
		}
		if got.Err == nil && got.SameAs == 0 && got.Result != expected.Result {
			return fmt.Errorf("prepare %v: expected %+v, found %+v", produce.Key, expected.Result, got.Result)
		}
		if got.Err == nil && got.SameAs == 0 && !got.Final {
			b, ref := produce.Batch, w.m.find(produce.Key).ref
			w.sent = append(w.sent, modelFlight{e.index, w.ticket, ref, b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.LastSequence(), int64(b.LastOffsetDelta()) + 1})
			if b.ProducerID() >= 0 {
				delete(w.dropped, producerKey{ref, b.ProducerID()})
			}
		}
	}
	if len(e.payload) == 0 {
		return nil
	}
	w.index++
	if err := CheckPayload(e.payload); err != nil {
		return err
	}
	w.flight = append(w.flight, e)
	return nil
}

// checkBounds: nothing may be deleted or sealed that is not acknowledged.
func (w *world) checkBounds(cmd any, got shard.Prepared) error {
	if c, ok := cmd.(*CoordinatorWrite); ok {
		return w.checkWrite(c, got)
	}
	if c, ok := cmd.(*DeleteRecords); ok && got.Err == nil {
		if p := w.m.find(c.Key); c.Offset > w.m.hwOf(p) {
			return fmt.Errorf("deleting up to %d, above the high watermark %d", c.Offset, w.m.hwOf(p))
		}
	}
	return w.fault
}

// applyOne applies the oldest entry in flight on leader and model.
func (w *world) applyOne() error {
	e := w.flight[0]
	w.flight = w.flight[1:]
	for len(w.sent) > 0 && w.sent[0].entry == e.index {
		w.sent = w.sent[1:]
	}
	for len(w.sentSlots) > 0 && w.sentSlots[0].entry == e.index {
		w.sentSlots = w.sentSlots[1:]
	}
	expected := w.m.apply(e)
	got, err := applyTo(w.leader, e)
	if err != nil {
		return err
	}
	if len(got) != len(expected) {
		return fmt.Errorf("entry %d: expected %d outcomes, found %d", e.index, len(expected), len(got))
	}
	for i := range got {
		if !errors.Is(got[i].err, expected[i].err) || (got[i].err != nil) != (expected[i].err != nil) || got[i].result != expected[i].result {
			return fmt.Errorf("entry %d item %d: expected %+v, found %+v", e.index, i, expected[i], got[i])
		}
	}
	w.behind = append(w.behind, e)
	return nil
}

// lose drops what is in flight from the i-th entry on, as the shard does:
// what is before it is applied, then the running state is reset.
func (w *world) lose(from int) error {
	lost := w.flight[from:]
	w.flight = w.flight[:from]
	w.index -= uint64(len(lost))
	for len(w.flight) > 0 {
		if err := w.applyOne(); err != nil {
			return err
		}
	}
	seen := map[producerKey]bool{}
	for _, f := range w.sent {
		full := producerKey{f.ref, f.id}
		if f.id >= 0 && !seen[full] {
			seen[full] = true
			w.dropped[full] = droppedBatch{f.epoch, f.fseq}
			w.next[full] = f.fseq // the client sends it again
		}
	}
	w.sent, w.sentSlots = nil, nil
	w.leader.ResetProposed()
	return nil
}

// step does one random thing.
func (w *world) step() error {
	switch n := w.rng.IntN(20); {
	case n < 8:
		if len(w.flight) < 6 {
			return w.prepare()
		}
	case n < 13:
		if len(w.flight) > 0 {
			return w.applyOne()
		}
	case n < 14:
		if len(w.flight) > 0 {
			return w.lose(w.rng.IntN(len(w.flight)))
		}
	case n < 15: // another term, which begins with an empty entry
		if err := w.lose(w.rng.IntN(len(w.flight) + 1)); err != nil {
			return err
		}
		w.term += 1 + w.rng.Uint64N(3)
		w.index++
		e := entry{index: w.index, term: w.term}
		w.m.index, w.m.term = e.index, e.term
		w.leader.SkipEntry(e.index, e.term)
		w.behind = append(w.behind, e)
	case n < 18:
		w.m.hw = max(w.m.hw, w.m.hw+w.rng.Uint64N(w.m.index-min(w.m.hw, w.m.index)+1))
		w.leader.SetHW(w.m.hw, w.rng.IntN(4) > 0)
		if w.rng.IntN(2) == 0 {
			w.follower.SetHW(w.m.hw, false) // may be ahead of what it has applied
		}
	default:
		return w.follow()
	}
	return nil
}

// follow lets the follower catch up, by entries or by an image, and compares.
func (w *world) follow() error {
	var image bytes.Buffer
	im := w.leader.Image()
	if w.rng.IntN(3) == 0 {
		if err := im.Encode(&image); err != nil {
			return err
		}
		if err := w.follower.Restore(bytes.NewReader(image.Bytes())); err != nil {
			return err
		}
	} else {
		for _, e := range w.behind {
			if _, err := applyTo(w.follower, e); err != nil {
				return err
			}
		}
		if err := im.Encode(&image); err != nil {
			return err
		}
	}
	w.behind = nil
	var other bytes.Buffer
	if err := w.follower.Image().Encode(&other); err != nil {
		return err
	}
	if !bytes.Equal(image.Bytes(), other.Bytes()) {
		return fmt.Errorf("images of index %d differ", w.m.index)
	}
	w.follower.SetHW(w.m.hw, false)
	if err := w.m.verify(w.follower); err != nil {
		return fmt.Errorf("follower: %w", err)
	}
	return nil
}

func (w *world) run(steps int) error {
	for i := 0; i < steps; i++ {
		if err := w.step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if err := w.m.verify(w.leader); err != nil {
			return fmt.Errorf("step %d: leader: %w", i, err)
		}
	}
	return w.follow()
}

// TestRandomOperations compares Set with the model.
func TestRandomOperations(t *testing.T) {
	first, n := *seedFlag, 1
	if first == 0 {
		first, n = 1, *seedsFlag
	}
	for seed := first; seed < first+uint64(n); seed++ {
		if err := newWorld(seed, Bugs{}).run(300); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestPlantedBugs: the model finds each of them.
func TestPlantedBugs(t *testing.T) {
	for name, bugs := range map[string]Bugs{
		"SkipSequenceCheck":    {SkipSequenceCheck: true},
		"SkipWriteNumberCheck": {SkipWriteNumberCheck: true},
		"TierAnywhere":         {TierAnywhere: true},
		"KeepTieredEnd":        {KeepTieredEnd: true},
		"HWFromApplied":        {HWFromApplied: true},
		"AckInFlightDuplicate": {AckInFlightDuplicate: true},
		"KeepProposed":         {KeepProposed: true},
		"MapOrder":             {MapOrder: true},
		"DeleteAboveHW":        {DeleteAboveHW: true},
		"SealAboveHW":          {SealAboveHW: true},
	} {
		found := false
		for seed := uint64(1); seed <= 200 && !found; seed++ {
			found = newWorld(seed, bugs).run(400) != nil
		}
		if !found {
			t.Errorf("%s: not found", name)
		}
	}
}
