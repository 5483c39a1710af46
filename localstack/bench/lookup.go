package bench

import (
	"context"
	"fmt"
	"time"

	"thermocline/index"
	"thermocline/ingest/partition"
	"thermocline/tiering"
	"thermocline/tiering/object"
	"thermocline/tiering/object/memory"
	"thermocline/wal/batch"
)

// The history that is looked up: one small segment every 30 s, and here and
// there one in which the partition has lookupLarge batches of 16 KiB.
const (
	lookupEvery   = int64(30_000) // milliseconds
	lookupStart   = int64(1_700_000_000_000)
	lookupLarge   = 256
	lookupRecords = 16 // of a batch
	lookupPlaces  = 20
)

// place is a record in the middle of a large segment.
type place struct{ offset, timestamp int64 }

// lookups measures what finding one record by offset or time takes in a
// partition of very many segments: GETs with nothing cached but the newest
// directories, as after a start; GETs for the index once it is warm; and the
// bytes. The shard is in this process, its store in memory; the worst of
// lookupPlaces look-ups counts.
func (r *runner) lookups(ctx context.Context) error {
	if !r.wantedAny(rowLookupCold, rowLookupWarm, rowTimeCold, rowTimeWarm, rowLookupSize) {
		return nil
	}
	segments := 100_000
	if r.o.Quick {
		segments = 5_000
	}
	start := time.Now()
	h, err := newLookupHistory(ctx, segments)
	if err != nil {
		return err
	}
	m := h.partition.Manifest
	r.say("a partition of %d segments in %v: %d rows, %d runs", segments, time.Since(start).Round(time.Millisecond), len(m.Segments), len(m.Runs))
	var byOffset, byTime lookupCost
	for i := range h.places {
		if err := h.measure(ctx, h.places[i], lookupOffset, &byOffset); err != nil {
			return err
		}
		if err := h.measure(ctx, h.places[i], lookupTime, &byTime); err != nil {
			return err
		}
	}
	r.put(Ours, rowLookupCold, "GETs", float64(byOffset.cold), false)
	r.put(Ours, rowLookupWarm, "GETs", float64(byOffset.warm), false)
	r.put(Ours, rowTimeCold, "GETs", float64(byTime.cold), false)
	r.put(Ours, rowTimeWarm, "GETs", float64(byTime.warm), false)
	r.put(Ours, rowLookupSize, "KiB", float64(max(byOffset.bytes, byTime.bytes))/(1<<10), false)
	return nil
}

// lookupCost is the most that a look-up took.
type lookupCost struct{ cold, warm, bytes int64 }

type lookupHistory struct {
	store     object.Store
	partition index.Partition
	places    []place
}

func newLookupHistory(ctx context.Context, segments int) (*lookupHistory, error) {
	s := newPlainShard(1)
	if err := s.create(1); err != nil {
		return nil, err
	}
	h := &lookupHistory{store: memory.New(memory.Options{})}
	sealer, err := tiering.Start(tiering.Options{
		Cluster: "bench", Shard: 1, Term: stateTerm, Source: s, Committer: s, Store: h.store,
		SegmentBytes: 1 << 40, SegmentAge: 24 * time.Hour, Tick: time.Hour, PaceFactor: -1,
	})
	if err != nil {
		return nil, err
	}
	defer sealer.Stop()
	offset := int64(0)
	for n := range segments {
		batches := 1
		if n%(segments/lookupPlaces) == segments/lookupPlaces/2 {
			batches = lookupLarge
		}
		now := lookupStart + int64(n)*lookupEvery
		for range batches {
			if err := s.append(now); err != nil {
				return nil, err
			}
			offset, now = offset+lookupRecords, now+lookupRecords
		}
		if batches > 1 {
			back := int64(lookupLarge / 2 * lookupRecords)
			h.places = append(h.places, place{offset - back, now - back})
		}
		if err := sealer.Roll(ctx); err != nil {
			return nil, err
		}
	}
	v, _ := s.set.View(s.keys[0])
	h.partition = index.Partition{Manifest: v.Manifest, Ref: v.Ref, TieredEnd: v.TieredEnd}
	if v.TieredEnd != offset {
		return nil, fmt.Errorf("bench: expected %d offsets in the store, found %d", offset, v.TieredEnd)
	}
	return h, nil
}

// append adds one batch of lookupRecords records, a millisecond apart.
func (s *plainShard) append(now int64) error {
	b := batch.NewBuilder(batch.BuilderOptions{})
	for i := range int64(lookupRecords) {
		b.Add(now+i, nil, make([]byte, 1000))
	}
	_, err := s.command(&partition.Produce{Key: s.keys[0], Batch: b.Build(), Info: batch.Info{Records: lookupRecords}})
	return err
}

// measure looks a place up with a new reader, then the one before it, and keeps
// what is more than has been seen.
func (h *lookupHistory) measure(ctx context.Context, at place, look func(context.Context, *index.Reader, index.Partition, place) error, most *lookupCost) error {
	reader := index.NewReader(h.store, index.Options{Cluster: "bench"})
	defer reader.Close()
	if err := reader.Warm(ctx, h.partition.Manifest); err != nil {
		return err
	}
	before := reader.Stats()
	if err := look(ctx, reader, h.partition, at); err != nil {
		return err
	}
	after := reader.Stats()
	most.cold = max(most.cold, after.Gets-before.Gets)
	most.bytes = max(most.bytes, after.GetBytes-before.GetBytes)
	near := place{at.offset - lookupLarge/2*lookupRecords - lookupRecords, at.timestamp - lookupLarge/2*lookupRecords - lookupEvery}
	if err := look(ctx, reader, h.partition, near); err != nil {
		return err
	}
	most.warm = max(most.warm, reader.Stats().IndexMisses-after.IndexMisses)
	return nil
}

func lookupOffset(ctx context.Context, r *index.Reader, p index.Partition, at place) error {
	d, err := r.Read(ctx, index.ReadRequest{Partition: p, Offset: at.offset, MaxBytes: 1, MinOne: true})
	if err != nil {
		return err
	}
	defer d.Release()
	if d.NextOffset <= at.offset {
		return fmt.Errorf("bench: offset %d was not found", at.offset)
	}
	return nil
}

func lookupTime(ctx context.Context, r *index.Reader, p index.Partition, at place) error {
	f, ok, err := r.OffsetForTime(ctx, p, 0, at.timestamp)
	if err != nil {
		return err
	}
	if !ok || f.Offset != at.offset {
		return fmt.Errorf("bench: expected offset %d for time %d, found %d, %v", at.offset, at.timestamp, f.Offset, ok)
	}
	return nil
}
