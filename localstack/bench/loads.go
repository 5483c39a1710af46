package bench

import (
	"context"
	"time"
)

// mainRows are what the main cluster, and a peer, are measured by.
var mainRows = []string{
	rowProduce, rowFranz, rowPrebuilt, rowAck82, "ack p99 at 24 MB/s of 100 B", "ack p99 at 10 MB/s of 1 KiB", rowPoll, rowKeyed, rowStart, rowIdle,
}

// The loads: the rows of the table that a cluster is measured by. Each uses
// topics of its own.

func (r *runner) loads(ctx context.Context, t *target) error {
	for _, load := range []func(context.Context, *target) error{
		r.produce1K, r.produce100, r.prebuilt, r.fixedRates, r.endToEnd, r.keyed,
	} {
		if err := load(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

const partitions = 12

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// produce1K is full speed with 1 KiB records, and reading them back hot.
func (r *runner) produce1K(ctx context.Context, t *target) error {
	if !r.wantedAny(rowProduce, rowOff) || t.column == Ours && !r.wanted(rowProduce) {
		return nil
	}
	p, err := r.steady(ctx, t, "kib")
	if err != nil {
		return err
	}
	r.put(t.column, rowProduce, "MB/s", p.MBps(), true)
	r.put(t.column, rowProduceCPU, "s/GB", p.CPUPerGB(), false)
	r.put(t.column, "produce 1 KiB, ack p99 at full speed", "ms", ms(p.Delays.At(0.99)), false)
	if t.column != Ours { // ours with tiering off is a cluster of its own
		r.put(t.column, rowOff, "MB/s", p.MBps(), true)
		r.put(t.column, rowOffCPU, "s/GB", p.CPUPerGB(), false)
	}
	// The newest second's worth is what a hot consumer reads; reading it all
	// shows the log's files too.
	n := min(p.Records, int64(p.RecordsPerSecond()))
	c, err := ConsumeTail(ctx, t.seeds, "kib", n, t.pids)
	if err != nil {
		return err
	}
	r.put(t.column, rowHot, "MB/s", c.MBps(), true)
	r.put(t.column, "consume hot, broker CPU", "s/GB", c.CPU/(float64(c.Bytes)/1e9), false)
	if t.column == Ours {
		return r.cold(ctx, t, p.Records)
	}
	return nil
}

// steady is full speed with 1 KiB records, measured once the load has gone on
// for so long that segments are sealed, uploaded and trimmed.
func (r *runner) steady(ctx context.Context, t *target, topic string) (Produced, error) {
	if err := CreateTopic(ctx, t.seeds, topic, partitions); err != nil {
		return Produced{}, err
	}
	load := Load{Topic: topic, RecordBytes: 1024, Duration: r.o.Duration / 2, BatchBytes: 1 << 20}
	if _, err := Produce(ctx, t.seeds, load, t.pids); err != nil {
		return Produced{}, err
	}
	load.Duration = r.o.Duration
	return Produce(ctx, t.seeds, load, t.pids)
}

// cold rolls the topic to the store and reads all of it back from there.
func (r *runner) cold(ctx context.Context, t *target, records int64) error {
	if err := Roll(ctx, t.seeds, "kib"); err != nil {
		return err
	}
	c, err := Consume(ctx, t.seeds, "kib", records, t.pids)
	if err != nil {
		return err
	}
	r.put(t.column, rowCold, "MB/s", c.MBps(), true)
	r.put(t.column, "consume cold, broker CPU", "s/GB", c.CPU/(float64(c.Bytes)/1e9), false)
	return nil
}

func (r *runner) produce100(ctx context.Context, t *target) error {
	const name = rowFranz
	if !r.wanted(name) {
		return nil
	}
	if t.column == Ours {
		if err := r.sink(ctx, name); err != nil {
			return err
		}
	}
	if err := CreateTopic(ctx, t.seeds, "small", partitions); err != nil {
		return err
	}
	p, err := Produce(ctx, t.seeds, Load{Topic: "small", RecordBytes: 100, Duration: r.o.Duration, BatchBytes: 1 << 20}, t.pids)
	if err != nil {
		return err
	}
	r.put(t.column, name, "records/s", p.RecordsPerSecond(), true)
	return nil
}

// sink runs the same client against a peer that only answers.
func (r *runner) sink(ctx context.Context, name string) error {
	s, err := NewSink("small", partitions)
	if err != nil {
		return err
	}
	defer s.Close()
	p, err := Produce(ctx, []string{s.Addr()}, Load{Topic: "small", RecordBytes: 100, Duration: min(r.o.Duration, 10*time.Second), BatchBytes: 1 << 20}, nil)
	if err != nil {
		return err
	}
	r.put(Floor, name, "records/s", p.RecordsPerSecond(), true)
	return nil
}

func (r *runner) prebuilt(ctx context.Context, t *target) error {
	if !r.wanted(rowPrebuilt) {
		return nil
	}
	if err := CreateTopic(ctx, t.seeds, "prebuilt", partitions); err != nil {
		return err
	}
	p, err := ProducePrebuilt(ctx, t.seeds, "prebuilt", 100, r.o.Duration, t.pids)
	if err != nil {
		return err
	}
	r.put(t.column, rowPrebuilt, "records/s", p.RecordsPerSecond(), true)
	return nil
}

// fixedRates measures the delay to the ack below saturation.
func (r *runner) fixedRates(ctx context.Context, t *target) error {
	for _, l := range []struct {
		name  string
		bytes int
		mbps  float64
	}{{"82 MB/s of 1 KiB", 1024, 82}, {"24 MB/s of 100 B", 100, 24}, {"10 MB/s of 1 KiB", 1024, 10}} {
		name := "ack p99 at " + l.name
		if !r.wanted(name) {
			continue
		}
		topic := "rate-" + l.name[:2]
		if err := CreateTopic(ctx, t.seeds, topic, partitions); err != nil {
			return err
		}
		load := Load{Topic: topic, RecordBytes: l.bytes, Rate: int(l.mbps * 1e6 / float64(l.bytes)), Duration: r.o.Duration}
		p, err := Produce(ctx, t.seeds, load, t.pids)
		if err != nil {
			return err
		}
		r.put(t.column, name, "ms", ms(p.Delays.At(0.99)), false)
		r.put(t.column, "ack p50 at "+l.name, "ms", ms(p.Delays.At(0.5)), false)
	}
	return nil
}

func (r *runner) endToEnd(ctx context.Context, t *target) error {
	const name = rowPoll
	if !r.wanted(name) {
		return nil
	}
	if err := CreateTopic(ctx, t.seeds, "e2e", partitions); err != nil {
		return err
	}
	d, err := EndToEnd(ctx, t.seeds, "e2e", 2000, min(r.o.Duration, 10*time.Second))
	if err != nil {
		return err
	}
	r.put(t.column, name, "ms", ms(d.At(0.99)), false)
	return nil
}

func (r *runner) keyed(ctx context.Context, t *target) error {
	const name = rowKeyed
	if !r.wanted(name) {
		return nil
	}
	if err := CreateTopic(ctx, t.seeds, "wide", 1000); err != nil {
		return err
	}
	p, err := Produce(ctx, t.seeds, Load{Topic: "wide", RecordBytes: 1024, Keys: 100_000, Duration: r.o.Duration, BatchBytes: 1 << 20}, t.pids)
	if err != nil {
		return err
	}
	r.put(t.column, name, "MB/s", p.MBps(), true)
	return nil
}
