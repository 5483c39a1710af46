package sim

import (
	"bytes"

	"thermocline/ingest/partition"
	"thermocline/wal"
	"thermocline/wal/shard"
)

// checkHeld: what is committed or acknowledged is in the durable logs of a
// majority; a snapshot in its place counts, since it is as durable.
func (mo *model) checkHeld(index, term uint64, what string) {
	held := 0
	for _, n := range mo.w.nodes {
		if n == nil || n.reps[mo.shard] == nil {
			continue
		}
		inLog, inSnapshot := n.reps[mo.shard].durable.holds(index, term)
		if inLog || inSnapshot && mo.covered(index) {
			held++
		}
	}
	for _, ghost := range mo.w.placed[mo.shard].ghosts {
		inLog, inSnapshot := ghost.holds(index, term)
		if inLog || inSnapshot && mo.covered(index) {
			held++
		}
	}
	if held < majority {
		mo.w.violate("durable-majority", "shard %d: %s at index %d term %d is durable on %d of %d", mo.shard, what, index, term, held, nodes)
	}
}

// covered: every row at or below index that is not deleted is in the store.
func (mo *model) covered(index uint64) bool {
	tiered := uint64(0)
	if n := len(mo.segments); n > 0 {
		tiered = mo.segments[n-1].last
	}
	if index <= tiered {
		return true
	}
	for k, l := range mo.logs {
		for i := len(l.batches) - 1; i >= 0 && l.batches[i].index > tiered; i-- {
			if b := &l.batches[i]; b.index <= index && b.last >= mo.starts[k] {
				return false
			}
		}
	}
	return true
}

// checkAllAcked looks at everything acknowledged so far.
func (w *world) checkAllAcked() {
	for s := range shards {
		mo := w.model[s]
		for _, a := range mo.acked {
			mo.checkHeld(a.index, a.term, "an acknowledged record")
		}
	}
}

// checkAck takes an acknowledgement of acks=all that leaves a leader.
func (w *world) checkAck(r *replica, k partition.Key, id uint64, base int64) {
	mo := w.model[r.shard]
	l := mo.logs[k]
	if l == nil {
		w.violate("acked-is-there", "shard %d: node %d acknowledges batch %d in a partition that is not there", r.shard, r.node.index, id)
	}
	b := l.at(base)
	if b == nil || b.first != base || b.id != id {
		w.violate("acked-is-there", "shard %d %v: node %d acknowledges batch %d at offset %d, where the committed log has %+v", r.shard, k.Partition, r.node.index, id, base, short(b))
	}
	mo.checkHeld(b.index, b.term, "an acknowledged record")
	if n := len(mo.acked); n == 0 || mo.acked[n-1].index != b.index {
		mo.acked = append(mo.acked, ackedIndex{b.index, b.term})
	}
}

func short(b *modelBatch) any {
	if b == nil {
		return "nothing"
	}
	return struct {
		First, Last     int64
		Index, Term, ID uint64
	}{b.first, b.last, b.index, b.term, b.id}
}

// checkLeaderAck takes an acknowledgement of acks=1: the leader itself has it.
func (w *world) checkLeaderAck(r *replica, id uint64) {
	for i := r.durable.end; i > r.durable.ptr.Trimmed; i-- {
		if w.entryHasBatch(r, i, id) {
			return
		}
	}
	if w.model[r.shard].produced[id] > 0 {
		return
	}
	w.violate("acks-1-is-durable", "shard %d: node %d acknowledges batch %d, which its disk does not hold", r.shard, r.node.index, id)
}

func (w *world) entryHasBatch(r *replica, index, id uint64) bool {
	e := r.durable.entries[index]
	if e.PayloadLen == 0 {
		return false
	}
	v, err := r.core.View(index, e.Term)
	if err != nil {
		return false
	}
	defer v.Release()
	return bytes.Contains(v.Bytes(), idBytes(id))
}

// checkLeader: one leader per term.
func (w *world) checkLeader(r *replica, l shard.Leadership) {
	mo := w.model[r.shard]
	if l.Leader != r.node.id() {
		return
	}
	if was, ok := mo.leaders[l.Term]; ok && was != l.Leader {
		w.violate("one-leader-per-term", "shard %d term %d: replicas %d and %d", r.shard, l.Term, was, l.Leader)
	} else if !ok {
		mo.leaders[l.Term] = l.Leader
		w.counts.Elections++
	}
	w.log("leader", uint64(r.node.index), uint64(r.shard), l.Term, b2u(l.Ready))
}

// checkFailed: a replica goes out of service only when its disk failed.
func (w *world) checkFailed(r *replica) {
	if err := r.core.Failed(); err != nil && r.node.up && r.node.log.Err() == nil && !r.node.dying {
		w.violate("stays-in-service", "node %d shard %d: %v", r.node.index, r.shard, err)
	}
}

// checkHW: what clients are told lies below the index that was told to the
// state machine, and the view is consistent.
func (w *world) checkHW(m *machine) {
	mo := w.model[m.r.shard]
	for _, k := range w.keys[m.r.shard] {
		v, ok := m.View(k)
		if !ok {
			continue
		}
		if v.LogStart > v.TieredEnd || v.TieredEnd > v.LogEnd || v.LogStart > v.HW || v.HW > v.LogEnd {
			w.violate("view-consistent", "node %d shard %d %v: start %d, tiered end %d, high watermark %d, end %d", m.r.node.index, m.r.shard, k.Partition, v.LogStart, v.TieredEnd, v.HW, v.LogEnd)
		}
		l := mo.logs[k]
		if l == nil || v.HW == 0 || l.end < v.HW {
			continue
		}
		if b := l.at(v.HW - 1); b != nil && b.index > m.hw && v.HW > v.TieredEnd && v.HW > v.LogStart {
			w.violate("hw-within-bound", "node %d shard %d %v: high watermark %d is of index %d, acknowledged are %d", m.r.node.index, m.r.shard, k.Partition, v.HW, b.index, m.hw)
		}
	}
	if m.hw > mo.last {
		w.checkBound(m)
	}
}

// checkBound: an index that nobody has applied may be acknowledged only when
// it is on the disks of a majority.
func (w *world) checkBound(m *machine) {
	held := 0
	for _, n := range w.nodes {
		if n != nil && n.reps[m.r.shard] != nil && n.reps[m.r.shard].durable.last() >= m.hw {
			held++
		}
	}
	for _, ghost := range w.placed[m.r.shard].ghosts {
		if ghost.last() >= m.hw {
			held++
		}
	}
	if held < majority {
		w.violate("durable-majority", "shard %d: node %d tells a high watermark of %d, durable on %d of %d", m.r.shard, m.r.node.index, m.hw, held, nodes)
	}
}

// checkPointer: a pointer goes to the log only when its file is complete.
func (w *world) checkPointer(r *replica, a *wal.Append) {
	if a.Snapshot == nil {
		return
	}
	meta, _, err := shard.VerifySnapshot(r.node.fs, logDir, a.Snapshot.File)
	if err != nil && !r.node.dying {
		w.violate("snapshot-before-pointer", "node %d shard %d: pointer to %s: %v", r.node.index, r.shard, a.Snapshot.File, err)
	}
	if err == nil && meta.Index != a.Snapshot.Index {
		w.violate("snapshot-before-pointer", "node %d shard %d: pointer to index %d names a file of %d", r.node.index, r.shard, a.Snapshot.Index, meta.Index)
	}
}

// checkTrim: the log is trimmed only up to what the snapshot itself knows to
// be in the store.
func (w *world) checkTrim(r *replica, p *wal.SnapshotPointer) {
	w.log("trim", uint64(r.node.index), uint64(r.shard), p.Index, p.Trimmed)
	if tiered, ok := r.sm.imageTiered[p.Index]; ok && p.Trimmed > tiered {
		w.violate("trim-after-tiering", "node %d shard %d: trimmed to %d, the snapshot at %d knows %d to be in the store", r.node.index, r.shard, p.Trimmed, p.Index, tiered)
	}
	if !w.model[r.shard].covered(p.Trimmed) {
		w.violate("trim-after-tiering", "node %d shard %d: trimmed to %d, which the store does not hold", r.node.index, r.shard, p.Trimmed)
	}
	gen := r.node.gen
	w.after(0, func() { w.checkCover(r, gen) })
}

// checkCover: between log start and log end there is no hole: each offset is
// in the store, in memory or in the log, with the committed bytes.
func (w *world) checkCover(r *replica, gen int) {
	if r.node.gen != gen || r.core.Failed() != nil {
		return
	}
	for _, k := range w.keys[r.shard] {
		v, ok := r.set.View(k)
		l := w.model[r.shard].logs[k]
		if !ok || l == nil {
			continue
		}
		for off := v.LogStart; off < v.LogEnd && off < l.end; {
			want := l.at(off)
			got, why := w.read(r, k, &v, off)
			if got == nil {
				w.violate("no-hole", "node %d shard %d %v: offset %d of %d..%d (tiered end %d) is nowhere: %s", r.node.index, r.shard, k.Partition, off, v.LogStart, v.LogEnd, v.TieredEnd, why)
			}
			if want == nil || !bytes.Equal(got, want.bytes) {
				w.violate("hot-equals-cold", "node %d shard %d %v: offset %d has other bytes than were committed", r.node.index, r.shard, k.Partition, off)
			}
			off = want.last + 1
		}
	}
}
