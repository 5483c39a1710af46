package sim

import (
	"thermocline/ingest/partition"
	"thermocline/wal"
	"thermocline/wal/batch"
)

// checkLookups compares what a replica finds by epoch, by time and through
// long polls with the model, by brute force.
func (w *world) checkLookups(r *replica, k partition.Key, v *partition.View) {
	l := w.model[r.shard].logs[k]
	if len(l.batches) == 0 || v.LogEnd > l.end {
		return
	}
	w.checkPoll(r, k, v)
	pick := &l.batches[w.rng.IntN(len(l.batches))]
	epoch := int32(pick.term)
	if found, end, ok := r.set.EpochEnd(k, epoch); ok && found == epoch && pick.first < v.LogEnd {
		want := v.LogEnd
		for _, b := range l.batches {
			if b.term > pick.term && b.first < v.LogEnd {
				want = b.first
				break
			}
		}
		if end != want {
			w.violate("lookups-exact", "node %d shard %d %v: epoch %d ends at %d, found %d", r.node.index, r.shard, k.Partition, epoch, want, end)
		}
	}
	ts := batch.Batch(pick.bytes).MaxTimestamp()
	got, ok := r.set.FindTail(k, ts, v.HW)
	want := w.findTime(l, v, ts)
	if want != nil && (!ok || got.First != want.first) || want == nil && ok {
		w.violate("lookups-exact", "node %d shard %d %v: time %d: expected %+v, found %v at %d", r.node.index, r.shard, k.Partition, ts, short(want), ok, got.First)
	}
	if row, ok := r.set.FindTailMax(k, v.HW); ok {
		for i := range l.batches {
			b := &l.batches[i]
			if b.first >= v.TieredEnd && b.first >= v.LogStart && b.first < v.HW && batch.Batch(b.bytes).MaxTimestamp() > row.MaxTimestamp {
				w.violate("lookups-exact", "node %d shard %d %v: offset %d has a later time than %d", r.node.index, r.shard, k.Partition, b.first, row.First)
			}
		}
	}
	if st := r.set.Status(); st.Index != r.core.Applied() || len(r.set.Keys()) != st.Partitions || len(r.set.Topics()) != st.Topics {
		w.violate("lookups-exact", "node %d shard %d: status %+v, applied %d", r.node.index, r.shard, st, r.core.Applied())
	}
	for _, p := range r.set.Producers(k) {
		if s := l.next[p.ID]; p.Epoch > s.epoch || p.Epoch == s.epoch && p.LastSequence >= s.next {
			w.violate("lookups-exact", "node %d shard %d %v: producer %+v is ahead of %+v", r.node.index, r.shard, k.Partition, p, s)
		}
	}
}

// findTime is the first batch of the tail below the high watermark with a
// record of that time or later.
func (w *world) findTime(l *partLog, v *partition.View, ts int64) *modelBatch {
	for i := range l.batches {
		b := &l.batches[i]
		if b.last < v.TieredEnd || b.last < v.LogStart || b.first >= v.HW {
			continue
		}
		if batch.Batch(b.bytes).MaxTimestamp() >= ts {
			return b
		}
	}
	return nil
}

// checkPoll: a long poll is woken when the high watermark moves.
func (w *world) checkPoll(r *replica, k partition.Key, v *partition.View) {
	if k.Partition != 0 {
		return
	}
	if r.poll == nil {
		r.poll = partition.NewWaiter()
		r.set.Subscribe(r.poll, k)
		r.pollHW = v.HW
		return
	}
	woken := false
	select {
	case <-r.poll.C():
		woken = true
		w.counts.Woken++
	default:
	}
	if v.HW > r.pollHW && !woken {
		w.violate("polls-wake", "node %d shard %d: the high watermark went from %d to %d and nobody was woken", r.node.index, r.shard, r.pollHW, v.HW)
	}
	if w.rng.IntN(8) == 0 {
		r.poll.Close()
		r.poll = nil
		return
	}
	r.poll.Rearm()
	r.pollHW = v.HW
}

// checkScan reads every node's log as inspect does: nothing of it is damaged.
func (w *world) checkScan() {
	for _, n := range w.nodes {
		seen := map[wal.ShardID]bool{}
		var cut *wal.ScanRecord
		err := wal.Scan(n.fs, logDir, func(r wal.ScanRecord) error {
			switch r.Kind {
			case wal.ScanDamage:
				// A tail that an earlier start cut is no damage: the next file
				// names a synced end below it.
				cut = &r
			case wal.ScanFile, wal.ScanGroup:
				if cut != nil && r.Synced > cut.Position {
					w.violate("log-scans", "node %d: %s at %d: %s", n.index, cut.File, cut.Offset, cut.Problem)
				}
				cut = nil
			}
			seen[r.Shard] = true
			return nil
		})
		if cut != nil && !cut.Torn {
			w.violate("log-scans", "node %d: %s at %d: %s", n.index, cut.File, cut.Offset, cut.Problem)
		}
		if err != nil || len(seen) < shards {
			w.violate("log-scans", "node %d: %d shards, %v", n.index, len(seen), err)
		}
		if err := n.log.RemoveShard(wal.ShardID(0)); err != nil {
			w.violate("log-serves", "node %d: remove a shard: %v", n.index, err)
		}
		if _, err := n.log.ReadPayload(0, n.reps[0].durable.end, w.model[0].entries[n.reps[0].durable.end].term, n.bufs.Get); err == nil {
			w.violate("log-serves", "node %d: a removed shard is still read", n.index)
		}
		if err := n.log.Close(); err != nil {
			w.violate("log-serves", "node %d: close: %v", n.index, err)
		}
	}
}
