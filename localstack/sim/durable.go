package sim

import (
	"thermocline/wal"
)

// durable is what a replica must still have after any crash: kept beside the
// log, from the appends that were synced.
type durable struct {
	hard    wal.HardState
	ptr     wal.SnapshotPointer
	entries map[uint64]wal.EntryMeta
	staged  map[uint64]wal.EntryMeta
	end     uint64
}

// blank: nothing that a start must find.
func (d *durable) blank() bool {
	return d.end == 0 && d.ptr.Index == 0 && d.hard == (wal.HardState{})
}

func (d *durable) last() uint64 { return max(d.end, d.ptr.Index) }

func meta(e *wal.Entry) wal.EntryMeta {
	return wal.EntryMeta{
		Index: e.Index, Term: e.Term, Type: e.Type, Descriptor: e.Descriptor,
		PayloadLen: uint32(len(e.Payload)), PayloadCRC: e.PayloadCRC,
	}
}

// commit takes a synced append.
func (d *durable) commit(a *wal.Append) {
	if d.entries == nil {
		d.entries, d.staged = map[uint64]wal.EntryMeta{}, map[uint64]wal.EntryMeta{}
	}
	if a.Staged {
		for i := range a.Entries {
			e := meta(&a.Entries[i])
			if i == 0 && d.staged[e.Index-1].Index == 0 {
				clear(d.staged)
			}
			d.staged[e.Index] = e
		}
		return
	}
	if p := a.Snapshot; p != nil {
		d.point(p)
	}
	for i := range a.Entries {
		e := meta(&a.Entries[i])
		for j := e.Index; j <= d.end; j++ {
			delete(d.entries, j)
		}
		d.entries[e.Index] = e
		d.end = e.Index
	}
	if a.Hard != nil {
		d.hard = *a.Hard
	}
}

func (d *durable) point(p *wal.SnapshotPointer) {
	at, ok := d.entries[p.Index]
	known := ok && at.Term == p.Term || p.Index == d.ptr.Index && p.Term == d.ptr.Term
	if !known {
		d.entries, d.staged = d.staged, map[uint64]wal.EntryMeta{}
		for i := range d.entries {
			if i > p.Index {
				delete(d.entries, i)
			}
		}
		d.end = p.Index
	}
	for i := d.ptr.Trimmed; i <= p.Trimmed; i++ {
		delete(d.entries, i)
	}
	if !known {
		for i := range d.entries {
			if i <= p.Trimmed {
				delete(d.entries, i)
			}
		}
	}
	d.ptr = *p
}

// holds tells whether the replica's log has that entry for good, or a snapshot
// in its place.
func (d *durable) holds(index, term uint64) (inLog, inSnapshot bool) {
	e, ok := d.entries[index]
	return ok && e.Term == term, index <= d.ptr.Trimmed
}

// reset takes what a start recovered: at least what was durable.
func (d *durable) reset(rec *wal.RecoveredShard) {
	*d = durable{hard: rec.Hard, ptr: rec.Snapshot, entries: map[uint64]wal.EntryMeta{}, staged: map[uint64]wal.EntryMeta{}}
	d.end = rec.Snapshot.Index
	for _, e := range rec.Entries {
		d.entries[e.Index] = e
		d.end = e.Index
	}
}

// recovered is the same in the log's form.
func (d *durable) recovered() *wal.RecoveredShard {
	rec := &wal.RecoveredShard{Hard: d.hard, Snapshot: d.ptr}
	for i := d.ptr.Trimmed + 1; i <= d.end; i++ {
		rec.Entries = append(rec.Entries, d.entries[i])
	}
	return rec
}

// becameDurable is called when an append is on the disk for certain.
func (w *world) becameDurable(r *replica, a *wal.Append) {
	r.durable.commit(a)
	if a.Snapshot != nil {
		w.checkTrim(r, a.Snapshot)
	}
}

// checkRecovered holds what the log recovered against what was durable.
func (w *world) checkRecovered(r *replica, got *wal.RecoveredShard) {
	d := &r.durable
	fail := func(what string, want, found any) {
		w.violate("durable-survives", "node %d shard %d: %s: was durable %v, recovered %v", r.node.index, r.shard, what, want, found)
	}
	if got.Hard.Term < d.hard.Term || got.Hard.Term == d.hard.Term && d.hard.Vote != 0 && got.Hard.Vote != d.hard.Vote {
		fail("hard state", d.hard, got.Hard)
	}
	if got.Snapshot.Index < d.ptr.Index {
		fail("snapshot", d.ptr, got.Snapshot)
	}
	have := map[uint64]wal.EntryMeta{}
	for _, e := range got.Entries {
		have[e.Index] = e
	}
	for i := d.ptr.Trimmed + 1; i <= d.end; i++ {
		want := d.entries[i]
		e, ok := have[i]
		if ok && e.Term >= want.Term && (e.Term > want.Term || e.PayloadCRC == want.PayloadCRC) {
			continue
		}
		// Something later may have survived without being known as synced: a
		// shorter log of a higher term, or a snapshot that trims.
		if i <= got.Snapshot.Trimmed || overwritten(got, want) {
			continue
		}
		fail("entry", want, e)
	}
}

// overwritten: the recovered log ends in a term above the entry's.
func overwritten(got *wal.RecoveredShard, e wal.EntryMeta) bool {
	n := len(got.Entries)
	return n > 0 && got.Entries[n-1].Term > e.Term
}
