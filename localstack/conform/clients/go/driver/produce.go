package driver

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// scenarios by name.
var scenarios = map[string]func(context.Context, *env) error{
	"codec-none":         codec("none"),
	"codec-gzip":         codec("gzip"),
	"codec-snappy":       codec("snappy"),
	"codec-lz4":          codec("lz4"),
	"codec-zstd":         codec("zstd"),
	"shapes":             shapes,
	"idempotent":         idempotent,
	"seek-times":         seekTimes,
	"pause-resume":       pauseResume,
	"group-commit":       groupCommit,
	"group-rebalance":    groupRebalance,
	"group-848":          group848,
	"admin-topics":       adminTopics,
	"admin-configs":      adminConfigs,
	"admin-groups":       adminGroups,
	"admin-offsets":      adminOffsets,
	"topic-deleted":      topicDeleted,
	"leader-moved":       fault("move-leader", "leader-moved"),
	"broker-killed":      fault("kill-leader", "broker-killed"),
	"coordinator-killed": coordinatorKilled,
}

// numbered makes n records over the partitions in turn; the values tell
// partition and place.
func numbered(topic string, n, partitions int) []Record {
	out := make([]Record, n)
	for i := range out {
		p := i % partitions
		out[i] = Record{Topic: topic, Partition: int32(p), Key: fmt.Appendf(nil, "key-%d", i),
			Value: fmt.Appendf(nil, "%d:%d:%s", p, i/partitions, strings.Repeat("thermocline ", 8))}
	}
	return out
}

// send makes a producer for one batch of records.
func send(ctx context.Context, e *env, o ProducerOptions, records []Record) error {
	p, err := e.Producer(o)
	if err != nil {
		return err
	}
	defer p.Close()
	return p.Send(ctx, records)
}

// readAll reads a topic from its beginning until n records are there, and
// looks a little longer for more than that.
func readAll(ctx context.Context, e *env, topic string, partitions, n int) ([]Record, error) {
	c, err := e.Reader(ctx, topic, upTo(partitions), Earliest)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return collect(ctx, c, n)
}

func collect(ctx context.Context, c Consumer, n int) ([]Record, error) {
	var out []Record
	for len(out) < n {
		got, err := c.Poll(ctx, time.Second)
		out = append(out, got...)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return out, fmt.Errorf("%d of %d records read: %w", len(out), n, err)
		}
	}
	got, err := c.Poll(ctx, 50*time.Millisecond)
	if len(got) > 0 || len(out) > n {
		return out, fmt.Errorf("%d records read, expected %d", len(out)+len(got), n)
	}
	return out, err
}

func upTo(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// sameInOrder checks that each partition holds exactly what was sent to it, in
// order and with dense offsets.
func sameInOrder(sent, got []Record) error {
	want := byPartition(sent)
	have := byPartition(got)
	for p, w := range want {
		if len(have[p]) != len(w) {
			return fmt.Errorf("partition %d: %d records read, %d sent", p, len(have[p]), len(w))
		}
		for i, r := range have[p] {
			if r.Offset != int64(i) {
				return fmt.Errorf("partition %d: offset %d where %d was expected", p, r.Offset, i)
			}
			if err := same(w[i], r); err != nil {
				return fmt.Errorf("partition %d, offset %d: %w", p, i, err)
			}
		}
	}
	return nil
}

func byPartition(rs []Record) map[int32][]Record {
	out := map[int32][]Record{}
	for _, r := range rs {
		out[r.Partition] = append(out[r.Partition], r)
	}
	return out
}

func same(want, got Record) error {
	switch {
	case (want.Key == nil) != (got.Key == nil) || !bytes.Equal(want.Key, got.Key):
		return fmt.Errorf("key %s, sent %s", brief(got.Key), brief(want.Key))
	case (want.Value == nil) != (got.Value == nil) || !bytes.Equal(want.Value, got.Value):
		return fmt.Errorf("value %s, sent %s", brief(got.Value), brief(want.Value))
	case !slices.EqualFunc(want.Headers, got.Headers, func(a, b Header) bool {
		return a.Key == b.Key && (a.Value == nil) == (b.Value == nil) && bytes.Equal(a.Value, b.Value)
	}):
		return fmt.Errorf("headers %v, sent %v", got.Headers, want.Headers)
	}
	return nil
}

func brief(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case len(b) > 40:
		return fmt.Sprintf("%q… (%d bytes)", b[:40], len(b))
	}
	return fmt.Sprintf("%q", b)
}

func codec(name string) func(context.Context, *env) error {
	return func(ctx context.Context, e *env) error {
		topic := e.topic("codec-" + name)
		if err := e.CreateTopic(ctx, topic, 3, nil); err != nil {
			return err
		}
		sent := numbered(topic, 1500, 3)
		if err := send(ctx, e, ProducerOptions{Codec: name}, sent); err != nil {
			return err
		}
		got, err := readAll(ctx, e, topic, 3, len(sent))
		if err != nil {
			return err
		}
		return sameInOrder(sent, got)
	}
}

// idempotent sends from several goroutines, so that batches are in flight
// together, and expects each record once.
func idempotent(ctx context.Context, e *env) error {
	topic := e.topic("idempotent")
	if err := e.CreateTopic(ctx, topic, 3, nil); err != nil {
		return err
	}
	sent := numbered(topic, 6000, 3)
	p, err := e.Producer(ProducerOptions{Codec: "none", Idempotent: true})
	if err != nil {
		return err
	}
	defer p.Close()
	for part := range slices.Chunk(sent, 1000) {
		if err := p.Send(ctx, part); err != nil {
			return err
		}
	}
	got, err := readAll(ctx, e, topic, 3, len(sent))
	if err != nil {
		return err
	}
	return sameInOrder(sent, got)
}

// largest is a value that fits into max.message.bytes' default, 1,048,588
// bytes for the whole batch, with some room for what a client adds.
const largest = 1_048_000

// tooLarge does not.
const tooLarge = 1_100_000

func shapes(ctx context.Context, e *env) error {
	topic := e.topic("shapes")
	if err := e.CreateTopic(ctx, topic, 1, nil); err != nil {
		return err
	}
	headers := []Header{{"h", []byte("a")}, {"h", []byte("b")}, {"empty", []byte{}}}
	if n, ok := e.Client.(interface{ NullHeaders() bool }); ok && !n.NullHeaders() {
		e.note("the client has no null header values")
	} else {
		headers = append(headers, Header{"null", nil})
	}
	sent := []Record{
		{Key: nil, Value: []byte("no key")},
		{Key: []byte("tombstone"), Value: nil},
		{Key: []byte{}, Value: []byte{}},
		{Key: nil, Value: []byte("x")},
		{Key: []byte("with headers"), Value: []byte("v"), Headers: headers},
		{Key: []byte(strings.Repeat("ключ", 100)), Value: []byte("long key")},
		{Key: nil, Value: filler(largest)},
	}
	for i := range sent {
		sent[i].Topic = topic
	}
	if n, ok := e.Client.(interface{ NoEmptyKeys() string }); ok {
		e.note("%s", n.NoEmptyKeys())
		sent = slices.Delete(sent, 2, 3)
	}
	p, err := e.Producer(ProducerOptions{Codec: "none", MaxBytes: 2 << 20})
	if err != nil {
		return err
	}
	defer p.Close()
	for _, r := range sent {
		if err := p.Send(ctx, []Record{r}); err != nil {
			return fmt.Errorf("key %s, value %s: %w", brief(r.Key), brief(r.Value), err)
		}
	}
	if err := p.Send(ctx, []Record{{Topic: topic, Value: filler(tooLarge)}}); err == nil {
		return fmt.Errorf("a record of %d bytes was accepted, the limit is 1048588", tooLarge)
	}
	last := Record{Topic: topic, Value: []byte("after the refused one")}
	if err := p.Send(ctx, []Record{last}); err != nil {
		return fmt.Errorf("after a refused record: %w", err)
	}
	sent = append(sent, last)
	got, err := readAll(ctx, e, topic, 1, len(sent))
	if err != nil {
		return err
	}
	return sameInOrder(sent, got)
}

// filler is text without line ends that does not compress to nothing.
func filler(n int) []byte {
	out := make([]byte, n)
	x := uint32(1)
	for i := range out {
		x = x*1664525 + 1013904223
		out[i] = 'a' + byte(x>>24)%26
	}
	return out
}
