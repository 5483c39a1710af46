package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// load sends numbered records to every partition of a topic until it is
// stopped, and remembers which were acknowledged.
type load struct {
	topic      string
	partitions int
	idempotent bool

	mu      sync.Mutex
	acked   map[string]int32 // value → partition
	unknown map[string]bool  // neither acknowledged nor surely refused
	last    error

	stop context.CancelFunc
	done chan struct{}
}

// loadPause is between two batches: some hundred records a second.
const loadPause = 20 * time.Millisecond

// startLoad starts sending; finish ends it.
func startLoad(ctx context.Context, e *env, topic string, partitions int) (*load, error) {
	l := &load{topic: topic, partitions: partitions, idempotent: true, acked: map[string]int32{}, unknown: map[string]bool{}, done: make(chan struct{})}
	p, err := e.Producer(ProducerOptions{Codec: "none", Idempotent: true})
	var na NotApplicable
	if errors.As(err, &na) {
		l.idempotent = false
		p, err = e.Producer(ProducerOptions{Codec: "none"})
	}
	if err != nil {
		return nil, err
	}
	ctx, l.stop = context.WithCancel(ctx)
	go func() {
		defer close(l.done)
		defer p.Close()
		tick := time.NewTicker(loadPause)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			l.batch(p, i)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	return l, nil
}

// batch sends one record per partition. It is not cut short by the end of
// the load, so that its outcome is known.
func (l *load) batch(p Producer, i int) {
	var records []Record
	for part := range l.partitions {
		records = append(records, Record{Topic: l.topic, Partition: int32(part), Value: fmt.Appendf(nil, "%d:%d", part, i)})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := p.Send(ctx, records)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range records {
		if err == nil {
			l.acked[string(r.Value)] = r.Partition
		} else {
			l.unknown[string(r.Value)] = true
		}
	}
	if err != nil {
		l.last = err
	}
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// more waits until n more records are acknowledged.
func (l *load) more(ctx context.Context, n int) error {
	from := l.count()
	return waitFor(ctx, func() error {
		if have := l.count() - from; have < n {
			l.mu.Lock()
			defer l.mu.Unlock()
			return fmt.Errorf("%d records acknowledged, %d expected (last error: %w)", have, n, orNone(l.last))
		}
		return nil
	})
}

// finish stops the load and waits for its last batch.
func (l *load) finish() {
	l.stop()
	<-l.done
}

var errNone = errors.New("none")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

// waitFor looks at a condition until it holds or ctx ends.
func waitFor(ctx context.Context, cond func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// reading polls a consumer in a goroutine and keeps what it got.
type reading struct {
	mu   sync.Mutex
	got  []Record
	last error

	stop context.CancelFunc
	done chan struct{}
	end  error
}

// startReading takes the consumer over: it is closed by finish. With commit,
// each poll is followed by one.
func startReading(ctx context.Context, c Consumer, commit bool) *reading {
	r := &reading{done: make(chan struct{})}
	ctx, r.stop = context.WithCancel(ctx)
	go func() {
		defer close(r.done)
		for ctx.Err() == nil {
			got, err := c.Poll(ctx, 200*time.Millisecond)
			r.keep(got, err)
			if commit && len(got) > 0 {
				// A commit meets rebalances and dead brokers; the next one counts.
				r.keep(nil, c.Commit(ctx))
			}
		}
		r.end = c.Close()
	}()
	return r
}

func (r *reading) keep(got []Record, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, got...)
	if err != nil {
		r.last = err
	}
}

func (r *reading) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

func (r *reading) lastError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// more waits until n more records are read.
func (r *reading) more(ctx context.Context, n int) error {
	from := r.count()
	return waitFor(ctx, func() error {
		if have := r.count() - from; have < n {
			return fmt.Errorf("%d records read, %d expected (last error: %w)", have, n, orNone(r.lastError()))
		}
		return nil
	})
}

func (r *reading) finish() error {
	r.stop()
	<-r.done
	return r.end
}

// covers waits until every acknowledged record was read by one of the readers.
func (l *load) covers(ctx context.Context, readers ...*reading) error {
	return l.coversBut(ctx, 0, readers...)
}

// coversBut is covers where some records may be missing.
func (l *load) coversBut(ctx context.Context, dropped int, readers ...*reading) error {
	return waitFor(ctx, func() error {
		seen := map[string]bool{}
		for _, r := range readers {
			r.mu.Lock()
			for _, rec := range r.got {
				seen[string(rec.Value)] = true
			}
			r.mu.Unlock()
		}
		missing, example := 0, ""
		for v := range l.acked {
			if !seen[v] {
				missing, example = missing+1, v
			}
		}
		if missing > dropped {
			return fmt.Errorf("%d of %d acknowledged records were not read, such as %s", missing, len(l.acked), example)
		}
		return nil
	})
}

// once checks what one reader got: offsets without gaps, nothing that was not
// sent, and, from an idempotent producer, nothing twice and all in order.
func (l *load) once(r *reading) error {
	next := map[int32]int64{}
	lastSeq := map[int32]int{}
	for _, rec := range r.got {
		if want, ok := next[rec.Partition]; ok && rec.Offset != want {
			return fmt.Errorf("partition %d: offset %d where %d was expected", rec.Partition, rec.Offset, want)
		}
		next[rec.Partition] = rec.Offset + 1
		v := string(rec.Value)
		if _, ok := l.acked[v]; !ok && !l.unknown[v] {
			return fmt.Errorf("partition %d, offset %d: %q was never sent", rec.Partition, rec.Offset, v)
		}
		var part, seq int
		if _, err := fmt.Sscanf(v, "%d:%d", &part, &seq); err != nil || int32(part) != rec.Partition {
			return fmt.Errorf("partition %d, offset %d: %q does not belong there (%v)", rec.Partition, rec.Offset, v, err)
		}
		if before, ok := lastSeq[rec.Partition]; ok && l.idempotent && seq <= before {
			return fmt.Errorf("partition %d, offset %d: record %d after %d", rec.Partition, rec.Offset, seq, before)
		}
		lastSeq[rec.Partition] = seq
	}
	return nil
}
