package history

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Read reads the given partitions of a topic whole, from their leaders: up to
// the end that they name once asked, and at least to where the history says
// that records were acknowledged.
func Read(ctx context.Context, bootstrap []string, topic string, partitions []int32, ops []Op) (map[int32][]Entry, error) {
	ends, err := endOffsets(ctx, bootstrap, topic, partitions, ops)
	if err != nil {
		return nil, err
	}
	from := map[int32]kgo.Offset{}
	out := map[int32][]Entry{}
	left := 0
	for p, end := range ends {
		out[p] = nil
		if end > 0 {
			from[p] = kgo.NewOffset().At(0)
			left++
		}
	}
	if left == 0 {
		return out, nil
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchMaxPartitionBytes(4<<20), kgo.MetadataMinAge(100*time.Millisecond), kgo.DialTimeout(2*time.Second),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("history: reading %s: %s: %w", topic, progress(out, ends), ctx.Err())
		}
		for _, e := range fetches.Errors() {
			return nil, fmt.Errorf("history: reading %s/%d: %w", topic, e.Partition, e.Err)
		}
		var bad error
		fetches.EachRecord(func(r *kgo.Record) {
			id, err := Parse(r.Value)
			if err != nil && bad == nil {
				bad = fmt.Errorf("%s/%d at %d: %w", topic, r.Partition, r.Offset, err)
			}
			if r.Offset < ends[r.Partition] {
				out[r.Partition] = append(out[r.Partition], Entry{Offset: r.Offset, ID: id})
			}
			if r.Offset == ends[r.Partition]-1 {
				left--
			}
		})
		if bad != nil {
			return nil, bad
		}
	}
	return out, nil
}

// endOffsets asks the leaders until each names an end at or behind every
// acknowledged record: a leader that has just been elected may not yet know
// its high watermark, but must come to it.
func endOffsets(ctx context.Context, bootstrap []string, topic string, partitions []int32, ops []Op) (map[int32]int64, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.MetadataMinAge(50*time.Millisecond), kgo.DialTimeout(2*time.Second))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	least := map[int32]int64{}
	for _, op := range ops {
		if op.Outcome == Acked {
			least[op.Partition] = max(least[op.Partition], op.Offset+1)
		}
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		listed, err := adm.ListEndOffsets(ctx, topic)
		if err == nil {
			err = listed.Error()
		}
		if err == nil {
			ends := map[int32]int64{}
			for _, p := range partitions {
				o, ok := listed.Lookup(topic, p)
				if !ok {
					return nil, fmt.Errorf("history: %s has no partition %d", topic, p)
				}
				if o.Offset < least[p] {
					err = fmt.Errorf("history: %s/%d ends at %d, a record was acknowledged at %d: %w", topic, p, o.Offset, least[p]-1, ErrLost)
				}
				ends[p] = o.Offset
			}
			if err == nil {
				return ends, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("history: end offsets of %s: %w (%w)", topic, err, ctx.Err())
		case <-tick.C:
		}
	}
}

func progress(out map[int32][]Entry, ends map[int32]int64) string {
	s := ""
	for p, end := range ends {
		if int64(len(out[p])) < end {
			s += fmt.Sprintf(" %d/%d of partition %d", len(out[p]), end, p)
		}
	}
	return "read" + s
}
