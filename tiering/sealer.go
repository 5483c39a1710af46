package tiering

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"thermocline/tiering/format"
)

// Sealer tiers one shard during one term of its leadership. One goroutine does
// all the work; the methods may be called from any.
type Sealer struct {
	o      Options
	pace   pace
	rolls  chan *roll
	cancel context.CancelCauseFunc
	done   chan struct{}

	mu      sync.Mutex
	givenUp []format.Name

	count struct {
		segments, bytes, runs, attempts, failures, orphans atomic.Int64
	}
	blockedSince atomic.Int64 // Unix nanoseconds; 0: not blocked
	tiered       atomic.Int64 // bytes committed in this term

	// Of the goroutine alone.
	seenIndex  uint64 // oldest pending entry, and when it was first seen
	seenAt     time.Time
	nextSeal   time.Time // not before: the last seal failed
	sealErrors int
	runs       runBuilder
}

// roll is an explicit request to seal everything.
type roll struct {
	done chan error
}

// Start begins tiering. Stop ends it.
func Start(o Options) (*Sealer, error) {
	if o.Source == nil || o.Committer == nil || o.Store == nil || o.Cluster == "" {
		return nil, fmt.Errorf("tiering: a sealer needs a cluster, a source, a committer and a store")
	}
	s := &Sealer{o: o.withDefaults(), rolls: make(chan *roll, rollQueue), done: make(chan struct{})}
	s.pace.factor = s.o.PaceFactor
	s.runs.s = s
	ctx, cancel := context.WithCancelCause(context.Background())
	s.cancel = cancel
	go s.run(ctx)
	return s, nil
}

// Stop gives up whatever is under way and waits for the goroutine. An upload
// that has not been committed stays in the store as an orphan.
func (s *Sealer) Stop() {
	s.cancel(ErrStopped)
	<-s.done
}

// Roll seals everything that is acknowledged now and waits until all of it is
// committed.
func (s *Sealer) Roll(ctx context.Context) error {
	r := &roll{done: make(chan error, 1)}
	select {
	case s.rolls <- r:
	case <-s.done:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.done:
		return err
	case <-s.done:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stats returns a snapshot of the counters.
func (s *Sealer) Stats() Stats {
	now := s.o.Now()
	p, _ := s.o.Source.Pending()
	st := Stats{Segments: s.count.segments.Load(), Bytes: s.count.bytes.Load(), Runs: s.count.runs.Load(),
		Attempts: s.count.attempts.Load(), Failures: s.count.failures.Load(), Orphans: s.count.orphans.Load(), PendingBytes: p.Bytes}
	if p.Bytes > 0 {
		st.PendingAge = max(0, now.Sub(time.UnixMilli(p.OldestUnixMilli)))
	}
	if since := s.blockedSince.Load(); since != 0 {
		st.Blocked = max(0, now.Sub(time.Unix(0, since)))
	}
	return st
}

func (s *Sealer) run(ctx context.Context) {
	defer close(s.done)
	ticker := time.NewTicker(s.o.Tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-s.rolls:
			r.done <- s.roll(ctx)
		case <-ticker.C:
			s.tick(ctx)
		}
	}
}

// tick seals as long as a trigger asks for it, then looks after the directory.
func (s *Sealer) tick(ctx context.Context) {
	for ctx.Err() == nil && s.triggered() {
		if progress, err := s.seal(ctx, s.o.SegmentBytes); err != nil || !progress {
			break
		}
		s.runs.step(ctx) // here too: under load the loop does not end
	}
	s.runs.step(ctx)
}

// observe looks at what is pending, and tells the pace.
func (s *Sealer) observe(now time.Time) (Pending, bool) {
	p, ok := s.o.Source.Pending()
	s.pace.observe(now, s.tiered.Load()+p.Bytes, p.Urgent)
	return p, ok
}

// triggered tells whether it is time to seal.
func (s *Sealer) triggered() bool {
	now := s.o.Now()
	p, ok := s.observe(now)
	if !ok || now.Before(s.nextSeal) {
		return false
	}
	if p.OldestIndex != s.seenIndex {
		s.seenIndex, s.seenAt = p.OldestIndex, now
	}
	// The proposer's clock may be another broker's, so ours counts as well.
	age := max(now.Sub(s.seenAt), now.Sub(time.UnixMilli(p.OldestUnixMilli)))
	return p.Urgent || p.Bytes >= s.o.SegmentBytes || age >= s.o.SegmentAge
}

// roll seals up to what is acknowledged at its beginning, in segments of the
// usual size.
func (s *Sealer) roll(ctx context.Context) error {
	r, ok := s.o.Source.Seal(math.MaxInt64)
	if !ok {
		return nil
	}
	for target := r.Last; s.o.Source.Manifest().TieredIndex < target; {
		progress, err := s.seal(ctx, s.o.SegmentBytes)
		switch {
		case err != nil && (ctx.Err() != nil || errors.Is(err, ErrNotLeader)):
			return err
		case err == nil && !progress:
			return nil // deleted meanwhile
		case err != nil && !s.wait(ctx, s.sealErrors):
			return err
		}
		s.runs.step(ctx)
	}
	return nil
}

// seal tiers one range. progress is false when there was nothing to seal.
func (s *Sealer) seal(ctx context.Context, maxBytes int64) (progress bool, err error) {
	r, ok := s.o.Source.Seal(maxBytes)
	if !ok {
		return false, nil
	}
	if err = s.tier(ctx, r); err == nil {
		s.sealErrors, s.nextSeal = 0, time.Time{}
		s.blockedSince.Store(0)
		return true, nil
	}
	if ctx.Err() == nil {
		s.failed("segment", err, s.sealErrors)
	}
	s.nextSeal = s.o.Now().Add(min(s.o.BackoffMax, s.o.BackoffMin<<min(s.sealErrors, 16)))
	s.sealErrors++
	return false, err
}

// tier builds, uploads, verifies and commits one segment.
func (s *Sealer) tier(ctx context.Context, r *format.SealRange) error {
	sp, err := newSpool(s.o.Memory, s.o.TempDir, r.Bytes+r.Bytes/64+chunkLen)
	if err != nil {
		return err
	}
	defer sp.close()
	info := format.SegmentInfo{Cluster: s.o.Cluster, Shard: s.o.Shard, Term: s.o.Term, FirstIndex: r.First, LastIndex: r.Last}
	row, err := buildSegment(s.o.Source, r, info, sp)
	if err != nil {
		return err
	}
	name := format.Name{Kind: format.KindSegment, Shard: s.o.Shard, Term: s.o.Term, Number: r.First}
	if row.Key, err = s.upload(ctx, name, sp, row.CRC32C); err != nil {
		return err
	}
	if row.ID, err = s.commit(ctx, row); err != nil {
		return err
	}
	s.tiered.Add(r.Bytes)
	s.count.segments.Add(1)
	s.count.bytes.Add(r.Bytes)
	if s.o.Committed != nil {
		tail := make([]byte, row.FooterLen)
		if n, err := sp.ReadAt(tail, row.Size-int64(len(tail))); n == len(tail) {
			s.o.Committed(row, tail)
		} else {
			return fmt.Errorf("tiering: spool: %w", err)
		}
	}
	return nil
}

// commit proposes a row until its fate is known. A row may be proposed again
// after an unclear answer: apply takes it once, since it must start exactly at
// the tiered end.
func (s *Sealer) commit(ctx context.Context, row format.SegmentRow) (format.SegmentID, error) {
	name, err := format.ParseName(row.Key)
	if err != nil {
		return 0, err
	}
	for attempt := 0; ; attempt++ {
		id, err := s.o.Committer.CommitSegment(ctx, row)
		if err == nil {
			return id, nil
		}
		m := s.o.Source.Manifest()
		if id, ok := committed(m, row.Key); ok {
			return id, nil
		}
		switch {
		case errors.Is(err, ErrRefused) || m.TieredIndex >= row.FirstIndex:
			// The store has this range from elsewhere; ours can never be accepted.
			s.giveUp(name)
			return 0, fmt.Errorf("tiering: commit of %s: tiered end is at index %d: %w", row.Key, m.TieredIndex, err)
		case errors.Is(err, ErrNotLeader) || ctx.Err() != nil:
			// Its fate is decided by the next leader; until an entry of that
			// term applies, nobody may take the object for an orphan.
			return 0, fmt.Errorf("tiering: commit of %s: %w", row.Key, err)
		}
		s.failed("commit", err, attempt)
		if !s.wait(ctx, attempt) {
			return 0, fmt.Errorf("tiering: commit of %s: %w", row.Key, context.Cause(ctx))
		}
	}
}

// committed looks for a segment's key in the manifest, newest first.
func committed(m *format.Manifest, key string) (format.SegmentID, bool) {
	for i := len(m.Segments) - 1; i >= 0; i-- {
		if m.Segments[i].Key == key {
			return m.Segments[i].ID, true
		}
	}
	return 0, false
}
