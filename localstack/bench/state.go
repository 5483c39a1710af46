package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"thermocline/ingest/partition"
	"thermocline/metadata"
	"thermocline/tiering"
	"thermocline/tiering/format"
	"thermocline/tiering/object/memory"
	"thermocline/wal/batch"
	"thermocline/wal/shard"
)

// stateTerm is the Raft term of all that plainShard applies.
const stateTerm = 5

// stateEntry is how many commands one entry takes.
const stateEntry = 1000

// state gives every partition one record a round, tiers each round, and
// measures what a snapshot of the state has grown by between the first round
// and the last: what brokers hold, write and send must not grow with history.
// One shard in this process holds all partitions; time does not count.
func (r *runner) state(ctx context.Context) error {
	if !r.wanted(rowState) {
		return nil
	}
	n, rounds := 100_000, 100
	if r.o.Quick {
		n, rounds = 20_000, 30
	}
	return r.rounds(ctx, n, rounds)
}

func (r *runner) rounds(ctx context.Context, n, rounds int) error {
	s := newPlainShard(n)
	if err := s.create(n); err != nil {
		return err
	}
	sealer, err := tiering.Start(tiering.Options{
		Cluster: "bench", Shard: 1, Term: stateTerm, Source: s, Committer: s, Store: memory.New(memory.Options{}),
		SegmentBytes: 1 << 40, SegmentAge: 24 * time.Hour, Tick: time.Hour, PaceFactor: -1,
	})
	if err != nil {
		return err
	}
	defer sealer.Stop()
	first := int64(0)
	for round := range rounds {
		if err := s.write(n, int32(round)); err != nil {
			return err
		}
		if err := sealer.Roll(ctx); err != nil {
			return err
		}
		if round == 0 {
			if first, err = s.size(); err != nil {
				return err
			}
		}
	}
	last, err := s.size()
	if err != nil {
		return err
	}
	m := s.set.Manifest()
	r.say("state of %d partitions: %.4g MiB after the first round, %.4g MiB after %d (%d segment rows, %d runs)",
		n, float64(first)/(1<<20), float64(last)/(1<<20), rounds, len(m.Segments), len(m.Runs))
	r.put(Ours, rowState, "MiB", float64(last-first)/(1<<20), false)
	return nil
}

// plainShard is a shard's state machine without Raft and log: entries apply at
// once. It is a tiering.Source and a tiering.Committer.
type plainShard struct {
	mu       sync.Mutex // writers take turns: rounds and the sealer
	set      *partition.Set
	index    uint64
	ticket   uint64
	payloads map[uint64][]byte
	keys     []partition.Key
}

func newPlainShard(n int) *plainShard {
	// Index 1 is what a shard begins with.
	s := &plainShard{set: partition.NewSet(partition.Options{Shard: 1}), index: 1, payloads: map[uint64][]byte{}}
	for i := range n {
		s.keys = append(s.keys, partition.Key{Topic: metadata.TopicID{byte(i / 1000), byte(i / 1000 >> 8), 1}, Partition: int32(i % 1000)})
	}
	return s
}

// command applies one entry of commands and returns the last one's result.
func (s *plainShard) command(cmds ...any) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var payload []byte
	for _, c := range cmds {
		var p shard.Prepared
		s.ticket++
		if payload, p = s.set.Prepare(c, stateTerm, s.ticket, 0, payload); p.Err != nil {
			return nil, p.Err
		}
	}
	s.index++
	var result any
	var failed error
	err := s.set.Apply(shard.Applied{Index: s.index, Term: stateTerm, Kind: shard.KindItems, Payload: payload}, func(_ int, r any, err error) {
		if result = r; err != nil {
			failed = err
		}
	})
	if err == nil {
		err = failed
	}
	s.payloads[s.index] = payload
	s.set.SetHW(s.index, true)
	return result, err
}

func (s *plainShard) create(n int) error {
	for from := 0; from < n; from += stateEntry {
		var cmds []any
		for _, k := range s.keys[from:min(n, from+stateEntry)] {
			cmds = append(cmds, &partition.CreatePartition{Key: k, Name: fmt.Sprintf("topic-%d", k.Topic[0])})
		}
		if _, err := s.command(cmds...); err != nil {
			return err
		}
	}
	return nil
}

// write appends one record of an idempotent producer to every partition.
func (s *plainShard) write(n int, sequence int32) error {
	b := batch.NewBuilder(batch.BuilderOptions{Producer: &batch.Producer{ID: 1, Sequence: sequence}})
	b.Add(1_700_000_000_000+30_000*int64(sequence), nil, make([]byte, 100))
	record := b.Build()
	for from := 0; from < n; from += stateEntry {
		var cmds []any
		for _, k := range s.keys[from:min(n, from+stateEntry)] {
			cmds = append(cmds, &partition.Produce{Key: k, Batch: record, Info: batch.Info{Records: 1}})
		}
		if _, err := s.command(cmds...); err != nil {
			return err
		}
	}
	return nil
}

// size is what a snapshot of the state takes, with the trimmed entries gone.
func (s *plainShard) size() (int64, error) {
	var n counter
	err := s.set.Image().Encode(&n)
	return int64(n), err
}

type counter int64

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// Pending implements tiering.Source.
func (s *plainShard) Pending() (tiering.Pending, bool) {
	p, ok := s.set.SealPending()
	return tiering.Pending{Bytes: p.Bytes, OldestIndex: p.OldestIndex, OldestUnixMilli: p.OldestUnixMilli}, ok
}

// Seal implements tiering.Source.
func (s *plainShard) Seal(maxBytes int64) (*format.SealRange, bool) { return s.set.Seal(maxBytes) }

// Manifest implements tiering.Source.
func (s *plainShard) Manifest() *format.Manifest { return s.set.Manifest() }

type plainPayload []byte

// Bytes implements tiering.Payload.
func (p plainPayload) Bytes() []byte { return p }

// Release implements tiering.Payload.
func (p plainPayload) Release() {}

// Payload implements tiering.Source.
func (s *plainShard) Payload(index, _ uint64) (tiering.Payload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.payloads[index]
	if !ok {
		return nil, fmt.Errorf("bench: entry %d has no payload", index)
	}
	return plainPayload(p), nil
}

// CommitSegment implements tiering.Committer.
func (s *plainShard) CommitSegment(_ context.Context, row format.SegmentRow) (format.SegmentID, error) {
	id, err := s.command(&partition.TierSegment{Row: row})
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.payloads {
		if i <= row.LastIndex {
			delete(s.payloads, i)
		}
	}
	return id.(format.SegmentID), nil
}

// CommitRun implements tiering.Committer.
func (s *plainShard) CommitRun(_ context.Context, run format.RunRow, replaces []uint32, fence format.FenceRow) error {
	_, err := s.command(&partition.CommitRun{Run: run, Replaces: replaces, Fence: fence})
	return err
}
