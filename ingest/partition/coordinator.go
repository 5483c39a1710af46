package partition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// Limits of coordinator slots. They are constants, since apply may only depend
// on state and entry: replicas with other settings would diverge.
const (
	// MaxCoordinatorSlots is one more than the largest slot number.
	MaxCoordinatorSlots = 4096
	// MaxCoordinatorKey and MaxCoordinatorValue bound one record, in bytes.
	MaxCoordinatorKey   = 4 << 10
	MaxCoordinatorValue = 4 << 20
	// MaxCoordinatorRecords and MaxCoordinatorWrite bound one write: in
	// records, and in bytes of keys and values.
	MaxCoordinatorRecords = 100_000
	MaxCoordinatorWrite   = 32 << 20
	// MaxCoordinatorBytes bounds the records of all slots of a shard, each
	// counted as SlotView.Bytes says.
	MaxCoordinatorBytes = 256 << 20
	// coordinatorRecordBytes is what a record takes beside key and value.
	coordinatorRecordBytes = 64
)

var (
	// ErrStaleCoordinator: a write does not follow the slot's newest one.
	// Whoever proposed it has missed a write, or one of its own was lost: it
	// must begin anew from the slot's records.
	ErrStaleCoordinator = errors.New("partition: coordinator write does not follow the slot's newest one")
	// ErrCoordinatorFull: the shard's slots hold as much as they may; only
	// writes that do not grow them are taken.
	ErrCoordinatorFull = errors.New("partition: coordinator slots are full")
)

// CoordinatorRecord is one change of a slot's map.
type CoordinatorRecord struct {
	Key string
	// Value nil deletes the key.
	Value []byte
}

// CoordinatorWrite changes the records of one slot as a whole. After is the
// number of the write that it was made upon (0 for a slot's first): a write
// that was lost makes all that were built on it refused, so that a slot's
// records never have a hole. Result: uint64, its own number, After+1.
type CoordinatorWrite struct {
	Slot    uint32
	After   uint64
	Records []CoordinatorRecord
}

// SlotView is a slot as of one index. It never changes.
type SlotView struct {
	// Number counts the writes that were applied to the slot.
	Number  uint64
	records recordMap
}

// Len is the number of records.
func (v SlotView) Len() int { return v.records.count }

// Bytes is what the records count for MaxCoordinatorBytes: their keys and
// values, and 64 for each.
func (v SlotView) Bytes() int64 { return v.records.bytes }

// All ranges over the records in order of their keys; values are not to be changed.
func (v SlotView) All() iter.Seq2[string, []byte] { return v.records.all }

// Get returns one record's value.
func (v SlotView) Get(key string) ([]byte, bool) { return v.records.get(key) }

// Slot returns a slot's records. It costs nothing, however many there are.
func (s *Set) Slot(slot uint32) SlotView {
	s.mu.RLock()
	defer s.mu.RUnlock()
	st := s.slots[slot]
	return SlotView{st.number, st.records}
}

// slotState is the replicated state of one slot.
type slotState struct {
	number  uint64
	records recordMap
}

// runningSlot is a slot's number after everything that is in flight.
type runningSlot struct {
	number  uint64
	pending int
}

func checkCoordinatorWrite(c *CoordinatorWrite) error {
	switch {
	case c.Slot >= MaxCoordinatorSlots:
		return fmt.Errorf("coordinator slot: expected less than %d, found %d: %w", MaxCoordinatorSlots, c.Slot, ErrInvalidCommand)
	case c.After == 1<<64-1:
		return fmt.Errorf("coordinator slot %d: all numbers are used: %w", c.Slot, ErrInvalidCommand)
	case len(c.Records) > MaxCoordinatorRecords:
		return fmt.Errorf("coordinator write: expected at most %d records, found %d: %w", MaxCoordinatorRecords, len(c.Records), ErrInvalidCommand)
	}
	bytes := 0
	for _, r := range c.Records {
		if r.Key == "" || len(r.Key) > MaxCoordinatorKey || len(r.Value) > MaxCoordinatorValue {
			return fmt.Errorf("coordinator record: expected a key of 1 to %d bytes and a value of at most %d, found %d and %d: %w",
				MaxCoordinatorKey, MaxCoordinatorValue, len(r.Key), len(r.Value), ErrInvalidCommand)
		}
		if bytes += len(r.Key) + len(r.Value); bytes > MaxCoordinatorWrite {
			return fmt.Errorf("coordinator write: expected at most %d bytes of keys and values, found more: %w", MaxCoordinatorWrite, ErrInvalidCommand)
		}
	}
	return nil
}

// coordinatorSize bounds the bytes of a write's item.
func coordinatorSize(c *CoordinatorWrite) int {
	n := itemHeaderLen + 3*binary.MaxVarintLen64
	for i := range c.Records {
		n += 2*binary.MaxVarintLen32 + len(c.Records[i].Key) + len(c.Records[i].Value)
	}
	return n
}

func appendCoordinatorWrite(b []byte, c *CoordinatorWrite) []byte {
	b = binary.AppendUvarint(b, uint64(c.Slot))
	b = binary.AppendUvarint(b, c.After)
	b = binary.AppendUvarint(b, uint64(len(c.Records)))
	for _, r := range c.Records {
		b = appendString(b, r.Key)
		if r.Value == nil {
			b = append(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(r.Value))+1)
		b = append(b, r.Value...)
	}
	return b
}

// coordinatorWrite decodes a body; the values point into it.
func (d *decoder) coordinatorWrite() *CoordinatorWrite {
	c := &CoordinatorWrite{Slot: d.u32("slot"), After: d.uvarint()}
	n := int(d.upTo(MaxCoordinatorRecords, "records"))
	c.Records = make([]CoordinatorRecord, 0, min(n, maxPrealloc))
	for i := 0; i < n && d.err == nil; i++ {
		r := CoordinatorRecord{Key: d.string(MaxCoordinatorKey, "record key")}
		if size := d.upTo(MaxCoordinatorValue+1, "record value"); size > 0 {
			if r.Value = d.bytes(int(size - 1)); r.Value == nil {
				r.Value = []byte{}
			}
		}
		c.Records = append(c.Records, r)
	}
	return c
}

// runningNumber is the slot's number after everything that is in flight.
func (s *Set) runningNumber(slot uint32) uint64 {
	if run, ok := s.proposed.slots[slot]; ok {
		return run.number
	}
	return s.slots[slot].number
}

// prepareCoordinator checks a write against applied and proposed state.
func (s *Set) prepareCoordinator(c *CoordinatorWrite) error {
	if n := s.runningNumber(c.Slot); n != c.After && !s.opt.Bugs.SkipWriteNumberCheck {
		return staleCoordinator(c, n)
	}
	most := s.slotBytes
	for _, r := range c.Records {
		if r.Value != nil {
			most += recordSize(r.Key, r.Value)
		}
	}
	if most <= MaxCoordinatorBytes {
		return nil
	}
	// It may replace more than it adds; apply decides, on what is then there.
	_, err := s.tryCoordinator(c)
	return err
}

func staleCoordinator(c *CoordinatorWrite, number uint64) error {
	return fmt.Errorf("coordinator slot %d: expected a write after number %d, found one after %d: %w", c.Slot, number, c.After, ErrStaleCoordinator)
}

// tryCoordinator returns the slot as it will be; the slot itself stays.
func (s *Set) tryCoordinator(c *CoordinatorWrite) (slotState, error) {
	st := s.slots[c.Slot]
	before := st.records.bytes
	s.slotGen++
	for _, r := range c.Records {
		if r.Value == nil {
			st.records.remove(s.slotGen, r.Key)
		} else {
			st.records.put(s.slotGen, r.Key, r.Value)
		}
	}
	after := s.slotBytes - before + st.records.bytes
	if after > MaxCoordinatorBytes && st.records.bytes > before {
		return st, fmt.Errorf("coordinator slot %d: expected at most %d bytes in the shard's slots, found %d: %w", c.Slot, MaxCoordinatorBytes, after, ErrCoordinatorFull)
	}
	st.number = c.After + 1
	return st, nil
}

// applyCoordinator replaces a slot by what a write makes of it.
func (s *Set) applyCoordinator(c *CoordinatorWrite) (any, error) {
	if err := checkCoordinatorWrite(c); err != nil {
		return nil, err
	}
	old := s.slots[c.Slot]
	if c.After != old.number && !s.opt.Bugs.SkipWriteNumberCheck {
		return nil, staleCoordinator(c, old.number)
	}
	next, err := s.tryCoordinator(c)
	if err != nil {
		return nil, err
	}
	s.slots[c.Slot] = next
	s.slotBytes += next.records.bytes - old.records.bytes
	s.stats.CoordinatorWrites++
	s.stats.CoordinatorRecords += int64(next.records.count - old.records.count)
	s.stats.CoordinatorBytes = s.slotBytes
	return next.number, nil
}

// pushSlot adds a prepared write to the running state.
func (s *Set) pushSlot(pr *proposal) {
	run := s.proposed.slots[pr.slot]
	run.number = uint64(pr.base) + 1
	run.pending++
	if s.proposed.slots == nil {
		s.proposed.slots = make(map[uint32]runningSlot)
	}
	s.proposed.slots[pr.slot] = run
}

// popSlot takes a write out of the running state. If apply has refused it, all
// behind it will be refused too; the running number is the applied one again
// once they have been.
func (s *Set) popSlot(pr *proposal) {
	run := s.proposed.slots[pr.slot]
	if run.pending--; run.pending <= 0 {
		delete(s.proposed.slots, pr.slot)
		return
	}
	s.proposed.slots[pr.slot] = run
}

// isWrite tells whether a coordinator item's body is the write that a proposal
// stands for.
func isWrite(body []byte, pr *proposal) bool {
	d := &decoder{buf: body}
	return d.uvarint() == uint64(pr.slot) && d.uvarint() == uint64(pr.base) && d.err == nil
}

// frozenSlot is a slot in an image.
type frozenSlot struct {
	slot uint32
	slotState
}

// freezeSlots lists the slots by number.
func (s *Set) freezeSlots() []frozenSlot {
	if len(s.slots) == 0 || s.opt.Bugs.ImageWithoutSlots {
		return nil
	}
	list := make([]frozenSlot, 0, len(s.slots))
	for slot, st := range s.slots {
		list = append(list, frozenSlot{slot, st})
	}
	slices.SortFunc(list, func(a, b frozenSlot) int { return int(a.slot) - int(b.slot) })
	return list
}

func encodeSlots(w *imageWriter, slots []frozenSlot) {
	w.uvarint(uint64(len(slots)))
	for _, sl := range slots {
		w.uvarint(uint64(sl.slot))
		w.uvarint(sl.number)
		w.uvarint(uint64(sl.records.count))
		for key, value := range sl.records.all {
			w.b = appendString(w.b, key)
			w.uvarint(uint64(len(value)))
			w.b = append(w.b, value...)
			w.flush()
		}
	}
	w.flush()
}

// decodeSlots reads what encodeSlots wrote.
func (s *Set) decodeSlots(d *decoder) {
	last := -1
	for n := d.upTo(MaxCoordinatorSlots, "slots"); n > 0 && d.err == nil; n-- {
		slot := int(d.upTo(MaxCoordinatorSlots-1, "slot"))
		st := slotState{number: d.uvarint()}
		if slot <= last || st.number == 0 {
			d.fail("slot %d of number %d after slot %d", slot, st.number, last)
			return
		}
		last = slot
		s.decodeRecords(d, &st.records)
		s.slots[uint32(slot)] = st
		s.slotBytes += st.records.bytes
		s.stats.CoordinatorRecords += int64(st.records.count)
	}
	s.stats.CoordinatorBytes = s.slotBytes
}

func (s *Set) decodeRecords(d *decoder, m *recordMap) {
	last := ""
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		key := d.string(MaxCoordinatorKey, "record key")
		value := d.blob(d.upTo(MaxCoordinatorValue, "record value"))
		if key <= last {
			d.fail("record key %q after %q", key, last)
		}
		if d.err == nil {
			m.put(s.slotGen, key, value)
		}
		last = key
	}
}
