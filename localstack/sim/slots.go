package sim

import (
	"encoding/binary"
	"errors"
	"fmt"

	"thermocline/ingest/partition"
	"thermocline/wal/shard"
)

const (
	slotOf        = uint32(7) // the coordinator slot of each shard
	writersOfSlot = 2         // two coordinators that both take the slot for theirs
	slotWindow    = 4         // writes in flight
	slotKept      = 64        // records that a slot keeps, one for each write
	slotLooks     = 8         // of them the checker looks at with each entry
)

// slotModel is the truth about a coordinator slot: which write has each
// number. A slot's records say the same about its newest ones.
type slotModel struct {
	number  uint64
	ids     map[uint64]uint64
	acked   uint64          // highest acknowledged number
	refused map[uint64]bool // writes that were refused for certain
}

func slotKey(number uint64) string { return fmt.Sprintf("%016x", number) }

// learnSlot takes what an entry wrote, and looks whether what was written
// before still stands: one number, one write.
func (mo *model) learnSlot(m *machine, index uint64) {
	v, sl := m.Slot(slotOf), &mo.slot
	if v.Number < sl.number {
		mo.w.violate("slot-write-once", "shard %d index %d: the slot's number falls from %d to %d", mo.shard, index, sl.number, v.Number)
	}
	for n := sl.number + 1; n <= v.Number; n++ {
		id, ok := slotRecord(v, n)
		if !ok || sl.refused[id] {
			mo.w.violate("slot-write-once", "shard %d index %d: write %d has left no record of its own (%d, %v), or was refused for certain", mo.shard, index, n, id, ok)
		}
		sl.ids[n] = id
		delete(sl.ids, n-slotKept)
	}
	sl.number = v.Number
	mo.checkSlot(v, slotLooks, fmt.Sprintf("index %d", index))
}

// checkSlot holds a slot's newest records against the truth.
func (mo *model) checkSlot(v partition.SlotView, looks uint64, where string) {
	for n := v.Number; n > 0 && n+looks > v.Number; n-- {
		id, ok := slotRecord(v, n)
		if want, known := mo.slot.ids[n]; known && (!ok || id != want) {
			mo.w.violate("slot-write-once", "shard %d %s: expected write %d under number %d, found %d, %v", mo.shard, where, want, n, id, ok)
		}
	}
}

func slotRecord(v partition.SlotView, number uint64) (uint64, bool) {
	value, ok := v.Get(slotKey(number))
	if !ok || len(value) != 8 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(value), true
}

// slotWriter writes to a slot as a coordinator's runtime does: it loads the
// slot from a leader, writes with several in flight, and loads again when one fails.
type slotWriter struct {
	w       *world
	shard   int
	ids     uint64
	session uint64 // of one loading; answers to an earlier one change nothing
	r       *replica
	gen     int
	ready   bool
	next    uint64 // number of the next write
	flying  int
	patient int64 // when to give up waiting
}

func (w *world) startSlotWriters(s int) {
	for i := range uint64(writersOfSlot) {
		c := &slotWriter{w: w, shard: s, ids: i << 32}
		w.after(w.between(800, 1500), c.work)
	}
}

// work writes or loads, and comes back.
func (c *slotWriter) work() {
	w := c.w
	w.after(w.between(10, 80), c.work)
	if w.quiet {
		return
	}
	switch {
	case c.r != nil && (!c.r.alive(c.gen) || w.now > c.patient):
		c.r, c.ready = nil, false
		c.session++
	case c.r == nil:
		c.load()
	case c.ready && c.flying < slotWindow:
		for range 1 + w.rng.IntN(slotWindow-c.flying) {
			if c.ready {
				c.write()
			}
		}
	}
}

// load reads the slot at a leader, once a quorum has confirmed that it is one:
// everything acknowledged before must be there.
func (c *slotWriter) load() {
	w, mo := c.w, c.w.model[c.shard]
	r := w.leaderOf(c.shard)
	if r == nil {
		return
	}
	c.session++
	session, gen, acked := c.session, r.node.gen, mo.slot.acked
	c.r, c.gen, c.flying, c.patient = r, gen, 0, w.now+requestTimeout
	confirm := r.core.ReadIndex
	if w.o.LoadUnconfirmed {
		confirm = func(done func(error)) { done(nil) }
	}
	confirm(func(err error) {
		if session != c.session || !r.alive(gen) {
			return
		}
		if err != nil {
			c.r = nil
			return
		}
		v := r.set.Slot(slotOf)
		if v.Number < acked {
			w.violate("slot-has-acked", "node %d shard %d: a coordinator loads the slot at number %d, acknowledged before was %d", r.node.index, c.shard, v.Number, acked)
		}
		mo.checkSlot(v, slotKept, fmt.Sprintf("node %d", r.node.index))
		c.ready, c.next = true, v.Number+1
		w.counts.SlotLoads++
	})
	w.drain(r)
}

func (c *slotWriter) write() {
	w := c.w
	c.ids++
	id, number, session, r := c.ids, c.next, c.session, c.r
	c.next++
	c.flying++
	c.patient = w.now + requestTimeout
	cmd := &partition.CoordinatorWrite{Slot: slotOf, After: number - 1, Records: []partition.CoordinatorRecord{
		{Key: slotKey(number), Value: idBytes(id)}, {Key: "newest", Value: idBytes(id)},
	}}
	if number > slotKept {
		cmd.Records = append(cmd.Records, partition.CoordinatorRecord{Key: slotKey(number - slotKept)})
	}
	w.submit(r, &shard.Proposal{
		Commands: []any{cmd}, Bytes: 100, Acks: shard.AcksAll, Class: shard.ClassClient,
		Done: func(out []shard.Outcome) {
			c.answered(r, id, number, out[0])
			if session != c.session {
				return
			}
			c.flying--
			if out[0].Err != nil {
				c.session++
				c.r, c.ready = nil, false
			}
		},
	})
}

// answered holds an answer against the truth.
func (c *slotWriter) answered(r *replica, id, number uint64, o shard.Outcome) {
	w, sl := c.w, &c.w.model[c.shard].slot
	w.log("slot-answer", uint64(r.node.index), uint64(c.shard), number, id, b2u(o.Err == nil))
	switch {
	case o.Err == nil:
		got, known := sl.ids[number]
		if o.Result != number || number > sl.number || known && got != id {
			w.violate("slot-acked", "node %d shard %d: write %d is acknowledged as number %v, expected %d; the slot is at %d, where that number is write %d",
				r.node.index, c.shard, id, o.Result, number, sl.number, got)
		}
		sl.acked = max(sl.acked, number)
		w.counts.SlotWrites++
	case !expected(o.Err) && !errors.Is(o.Err, partition.ErrStaleCoordinator):
		w.violate("outcome-expected", "shard %d: coordinator write %d: %v", c.shard, id, o.Err)
	case definite(o.Err):
		sl.refused[id] = true
		for n := sl.number; n > 0 && n+slotKept > sl.number; n-- {
			if sl.ids[n] == id {
				w.violate("definite-failure", "shard %d: coordinator write %d was refused for certain, and is the slot's write %d: %v", c.shard, id, n, o.Err)
			}
		}
	}
}
