package sim

import (
	"bytes"
	"errors"
	"fmt"
	"sort"

	"thermocline/ingest/partition"
	"thermocline/tiering/format"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

// store is the object store: whole segments in memory, by name. Names are
// never used twice.
type store struct {
	objects map[string]*object
	names   uint64
}

func newStore() *store { return &store{objects: map[string]*object{}} }

// object holds a sealed range's batches by partition, in offset order.
type object struct {
	first, last uint64
	parts       map[partition.Key][]batch.Batch
}

// find returns the batch that holds offset.
func (o *object) find(k partition.Key, offset int64) []byte {
	bs := o.parts[k]
	i := sort.Search(len(bs), func(i int) bool { return bs[i].LastOffset() >= offset })
	if i == len(bs) || bs[i].BaseOffset() > offset {
		return nil
	}
	return bs[i]
}

// read finds the batch at offset the way a broker does: below the tiered end
// through the manifest in the store, else in the tail.
func (w *world) read(r *replica, k partition.Key, v *partition.View, offset int64) ([]byte, string) {
	if offset < v.TieredEnd {
		return w.readCold(r, k, v, offset)
	}
	refs := r.set.Tail(k, offset, 1, true, v.LogEnd, nil)
	if len(refs) == 0 {
		return nil, "no row in the tail"
	}
	p, err := r.core.View(refs[0].Index, refs[0].Term)
	if err != nil {
		return nil, err.Error()
	}
	defer p.Release()
	b := p.Bytes()
	if int(refs[0].Pos+refs[0].Len) > len(b) {
		return nil, "the row points beyond its payload"
	}
	return bytes.Clone(b[refs[0].Pos : refs[0].Pos+refs[0].Len]), ""
}

func (w *world) readCold(r *replica, k partition.Key, v *partition.View, offset int64) ([]byte, string) {
	var keys []string
	segs := w.model[r.shard].segments
	for _, run := range v.Manifest.Runs {
		for id := run.First; id <= run.Last && int(id) <= len(segs); id++ {
			keys = append(keys, segs[id-1].key)
		}
	}
	for _, row := range v.Manifest.Segments {
		keys = append(keys, row.Key)
	}
	for _, key := range keys {
		o := w.store.objects[key]
		if o == nil {
			return nil, "the manifest names " + key + ", which is not in the store"
		}
		if b := o.find(k, offset); b != nil {
			return b, ""
		}
	}
	return nil, fmt.Sprintf("none of %d segments has it", len(keys))
}

// sealSomething lets each leader seal, upload and commit, as the tiering does.
func (w *world) sealSomething() {
	for _, n := range w.nodes {
		if !n.up {
			continue
		}
		for _, r := range n.reps {
			if r.core.Leadership().Ready && r.sealing < 2 {
				w.seal(r)
			} else if rg, ok := r.set.Seal(w.plan.sealBytes); ok {
				w.checkSeal(r, rg) // a follower's range would hold as well
			}
		}
	}
}

func (w *world) checkSeal(r *replica, rg *partition.SealRange) {
	if rg.Last > r.sm.hw {
		w.violate("seal-within-bound", "node %d shard %d seals up to %d, acknowledged are %d", r.node.index, r.shard, rg.Last, r.sm.hw)
	}
}

func (w *world) seal(r *replica) {
	if _, ok := r.set.SealPending(); !ok {
		return
	}
	rg, ok := r.set.Seal(w.plan.sealBytes)
	if !ok {
		return
	}
	w.checkSeal(r, rg)
	o := &object{first: rg.First, last: rg.Last, parts: map[partition.Key][]batch.Batch{}}
	for _, p := range rg.Partitions {
		for _, ref := range p.Batches {
			v, err := r.core.View(ref.Index, ref.Term)
			if err != nil {
				if r.node.log.Err() == nil {
					w.violate("no-hole", "node %d shard %d: sealing index %d: %v", r.node.index, r.shard, ref.Index, err)
				}
				return
			}
			o.parts[p.Key] = append(o.parts[p.Key], bytes.Clone(v.Bytes()[ref.Pos:ref.Pos+ref.Len]))
			v.Release()
		}
	}
	w.store.names++
	key := fmt.Sprintf("segment/%d/%016x-%016x", r.shard, rg.First, w.store.names)
	row := format.SegmentRow{Key: key, FirstIndex: rg.First, LastIndex: rg.Last, Size: rg.Bytes + 64, FooterLen: 64}
	r.sealing++
	gen := r.node.gen
	w.after(w.between(5, 150), func() { w.uploaded(r, gen, o, row) })
}

// uploaded commits a segment that the store has, unless the upload failed or
// its answer was lost: then the object is an orphan.
func (w *world) uploaded(r *replica, gen int, o *object, row format.SegmentRow) {
	failed := w.chance(w.plan.uploadLost)
	if !failed || w.rng.IntN(2) == 0 {
		w.store.objects[row.Key] = o
	}
	if !r.alive(gen) {
		return
	}
	if failed {
		r.sealing--
		return
	}
	w.submit(r, &shard.Proposal{
		Commands: []any{&partition.TierSegment{Row: row}}, Bytes: 256, Acks: shard.AcksAll, Class: shard.ClassSystem,
		Done: func(out []shard.Outcome) {
			if r.alive(gen) {
				r.sealing--
			}
			if out[0].Err == nil {
				w.counts.Tiered++
			} else if !expected(out[0].Err) && !errors.Is(out[0].Err, partition.ErrNotNextSegment) {
				w.violate("tiering-commits", "shard %d: segment %d..%d: %v", r.shard, row.FirstIndex, row.LastIndex, out[0].Err)
			}
		},
	})
}
