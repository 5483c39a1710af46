package ingest

import (
	"context"

	"thermocline/ingest/partition"
	"thermocline/wal/batch"
)

// Look-ups by time, exact over store and tail. Segments may be committed while
// one runs, so that rows move from the tail to the store behind its back: when
// the tail has no answer and the tiered end has moved, it starts again.

// findTime finds the first record in [log start, upTo) whose timestamp is ts or later.
func (s *Server) findTime(ctx context.Context, t *target, ts, upTo int64) (listed, error) {
	for range tailAttempts {
		v, ok := t.replica.State().View(t.key)
		if !ok {
			return notListed, partition.ErrUnknownPartition
		}
		if v.TieredEnd > v.LogStart {
			found, ok, err := s.cold.OffsetForTime(ctx, indexPartition(&v), v.LogStart, ts)
			if err != nil {
				return notListed, err
			}
			if ok && found.Offset < upTo {
				return listed{found.Offset, found.Timestamp, found.Epoch}, nil
			}
		}
		found, err := tailTime(t, &v, ts, upTo)
		if err == nil && found.offset >= 0 {
			return found, nil
		}
		now, ok := t.replica.State().View(t.key)
		if ok && now.TieredEnd == v.TieredEnd {
			return found, err
		}
	}
	return notListed, context.DeadlineExceeded
}

// tailTime finds the first record of the tail.
func tailTime(t *target, v *partition.View, ts, upTo int64) (listed, error) {
	from := max(v.LogStart, v.TieredEnd)
	ref, ok := t.replica.State().FindTail(t.key, ts, upTo)
	if !ok {
		return notListed, nil
	}
	found, err := timeIn(t.replica, &ref, ts, from, upTo)
	if err != nil || found.offset >= 0 {
		return found, err
	}
	// All that matches in that batch lies below the log start: go on behind it.
	for next := ref.Last + 1; next < upTo; {
		refs := t.replica.State().Tail(t.key, next, 0, true, upTo, nil)
		if len(refs) == 0 {
			return notListed, nil
		}
		if refs[0].MaxTimestamp >= ts {
			found, err := timeIn(t.replica, &refs[0], ts, from, upTo)
			if err != nil || found.offset >= 0 {
				return found, err
			}
		}
		next = refs[0].Last + 1
	}
	return notListed, nil
}

// eachRecord calls fn for each record of a batch of the tail in [from, upTo).
func eachRecord(r Replica, ref *partition.TailRef, from, upTo int64, fn func(offset, timestamp int64) bool) error {
	view, err := r.Payload(ref.Index, ref.Term)
	if err != nil {
		return err
	}
	defer view.Release()
	b, err := sliceRef(view, ref)
	if err != nil {
		return err
	}
	return batch.Iterate(b, func(rec batch.Record) bool {
		offset := ref.First + int64(rec.OffsetDelta)
		if offset < from || offset >= upTo {
			return true
		}
		return fn(offset, rec.Timestamp)
	})
}

func timeIn(r Replica, ref *partition.TailRef, ts, from, upTo int64) (listed, error) {
	found := notListed
	err := eachRecord(r, ref, from, upTo, func(offset, timestamp int64) bool {
		if timestamp < ts {
			return true
		}
		found = listed{offset, timestamp, ref.Epoch}
		return false
	})
	return found, err
}

// findMaxTime finds the first record with the largest timestamp in [log start, upTo).
func (s *Server) findMaxTime(ctx context.Context, t *target, upTo int64) (listed, error) {
	for range tailAttempts {
		v, ok := t.replica.State().View(t.key)
		if !ok {
			return notListed, partition.ErrUnknownPartition
		}
		best := notListed
		if v.TieredEnd > v.LogStart {
			found, ok, err := s.cold.MaxTimestamp(ctx, indexPartition(&v), v.LogStart)
			if err != nil {
				return notListed, err
			}
			if ok && found.Offset < upTo {
				best = listed{found.Offset, found.Timestamp, found.Epoch}
			}
		}
		hot, err := tailMaxTime(t, &v, upTo)
		now, ok := t.replica.State().View(t.key)
		if !ok || now.TieredEnd != v.TieredEnd {
			continue
		}
		if err == nil && hot.offset >= 0 && (best.offset < 0 || hot.timestamp > best.timestamp) {
			best = hot
		}
		return best, err
	}
	return notListed, context.DeadlineExceeded
}

// tailMaxTime finds the first record of the tail with the largest timestamp.
func tailMaxTime(t *target, v *partition.View, upTo int64) (listed, error) {
	from := max(v.LogStart, v.TieredEnd)
	ref, ok := t.replica.State().FindTailMax(t.key, upTo)
	if !ok {
		return notListed, nil
	}
	best, err := maxIn(t.replica, &ref, notListed, from, upTo)
	if err != nil || ref.First >= from && ref.Last < upTo {
		return best, err
	}
	// That batch lies across a bound, so that its largest timestamp may be
	// outside: look at all.
	best = notListed
	for next := from; next < upTo; {
		refs := t.replica.State().Tail(t.key, next, 0, true, upTo, nil)
		if len(refs) == 0 {
			break
		}
		if refs[0].MaxTimestamp > best.timestamp || best.offset < 0 {
			if best, err = maxIn(t.replica, &refs[0], best, from, upTo); err != nil {
				return notListed, err
			}
		}
		next = refs[0].Last + 1
	}
	return best, nil
}

func maxIn(r Replica, ref *partition.TailRef, best listed, from, upTo int64) (listed, error) {
	err := eachRecord(r, ref, from, upTo, func(offset, timestamp int64) bool {
		if best.offset < 0 || timestamp > best.timestamp {
			best = listed{offset, timestamp, ref.Epoch}
		}
		return true
	})
	return best, err
}
