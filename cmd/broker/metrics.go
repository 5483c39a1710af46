package broker

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"thermocline/index"
	"thermocline/ingest"
	"thermocline/ingest/coordinator"
	"thermocline/ingest/partition"
	"thermocline/metadata"
	"thermocline/tiering"
	"thermocline/tiering/object"
	"thermocline/wal"
	"thermocline/wal/shard"
	"thermocline/wal/transport"
)

// metricKind is how a metric behaves.
type metricKind uint8

const (
	// counter only rises, from the start of the process (or, for a sealer's,
	// from the start of its term).
	counter metricKind = iota
	// gauge is what is now.
	gauge
	// histogram counts durations by bucket.
	histogram
)

// String names the kind for the documentation.
func (k metricKind) String() string { return [...]string{"counter", "gauge", "histogram"}[k] }

// metric is one figure that a broker exports: its name and meaning, and how it
// is read off a snapshot of the parts. Every point has the attribute broker,
// and those in attrs. All metrics are in the slice metrics.
type metric struct {
	name, unit, about string
	kind              metricKind
	attrs             []string
	// read emits the points of a counter or gauge; attribute values are in
	// the order of attrs.
	read func(s *figures, emit emitter)
	// buckets emits those of a histogram.
	buckets func(s *figures, emit func(h durations, attrs ...string))
}

// emitter takes one point.
type emitter func(value float64, attrs ...string)

// durations is one histogram: counts[i] are those up to bounds[i] seconds, the
// last one all others.
type durations struct {
	bounds []float64
	counts []uint64
	sum    float64
}

// figures is a snapshot of one broker's parts, taken once for each scrape.
type figures struct {
	b      *Broker
	ready  bool
	ingest ingest.Stats
	wal    wal.Stats
	usage  wal.Usage
	failed bool
	shards []shardFigures
	stats  *shard.Stats
	peers  transport.Stats
	index  index.Stats
	stores []storeFigures
	groups coordinator.Stats
	health metadata.Health
	now    time.Time
}

// shardFigures is one replica's part.
type shardFigures struct {
	id      string
	status  shard.Status
	set     partition.Status
	counts  partition.Stats
	changes int64
	segs    int
	runs    int
	sealer  *tiering.Stats // nil unless it is led here
}

// storeFigures is what one client of the object store has counted.
type storeFigures struct {
	use   string
	stats object.Stats
}

// figures takes the snapshot. A shard that is too busy to answer is left out.
func (b *Broker) figures(ctx context.Context) *figures {
	s := &figures{
		b: b, ready: b.Ready() == nil, ingest: b.server.Stats(), wal: b.writer.Stats(), usage: b.writer.Usage(),
		failed: b.writer.Err() != nil, stats: b.shardStats, peers: b.peers.Stats(), index: b.tier.reader.Stats(),
		health: b.view.Health(), groups: b.coordinators.Stats(), now: time.Now(),
	}
	for _, st := range []struct {
		use   string
		store object.Store
	}{{"uploads", b.uploads}, {"cold", b.cold}} {
		if c, ok := object.As[*object.Counted](st.store); ok {
			s.stores = append(s.stores, storeFigures{st.use, c.Stats()})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	for _, o := range b.shards.all() {
		status, err := o.runner.Status(ctx)
		if err != nil {
			continue
		}
		m := o.set.Manifest()
		f := shardFigures{
			id: strconv.FormatUint(uint64(o.id), 10), status: status, set: o.set.Status(), counts: o.set.Stats(),
			changes: o.leaderChanges.Load(), segs: len(m.Segments), runs: len(m.Runs),
		}
		if sealer, ok := b.tier.sealer(o.id); ok {
			st := sealer.Stats()
			f.sealer = &st
		}
		s.shards = append(s.shards, f)
	}
	return s
}

// exported are the brokers of one process whose figures are exported. It is an
// OpenTelemetry producer: the parts count by themselves, with atomics and in
// buckets of their own, so the SDK gets finished sums and never stands on a
// path of data.
type exported struct {
	mu      sync.Mutex
	brokers []*Broker
	started time.Time
}

// Export adds a broker's figures to what the process exports. The broker must
// have started; after Close its last figures stay.
func (a *Admin) Export(b *Broker) error {
	a.exported.mu.Lock()
	defer a.exported.mu.Unlock()
	a.exported.brokers = append(a.exported.brokers, b)
	return nil
}

// Produce implements the SDK's Producer.
func (e *exported) Produce(ctx context.Context) ([]metricdata.ScopeMetrics, error) {
	e.mu.Lock()
	brokers := slices.Clone(e.brokers)
	e.mu.Unlock()
	all := make([]*figures, len(brokers))
	for i, b := range brokers {
		all[i] = b.figures(ctx)
	}
	now := time.Now()
	out := metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: "thermocline"}}
	for i := range metrics {
		m := &metrics[i]
		data := m.data(all, e.started, now)
		if data != nil {
			out.Metrics = append(out.Metrics, metricdata.Metrics{Name: m.name, Description: m.about, Unit: m.unit, Data: data})
		}
	}
	return []metricdata.ScopeMetrics{out}, nil
}

// data reads one metric off every broker; nil when nobody has a point of it.
func (m *metric) data(all []*figures, started, now time.Time) metricdata.Aggregation {
	if m.kind == histogram {
		var points []metricdata.HistogramDataPoint[float64]
		for _, s := range all {
			m.buckets(s, func(h durations, attrs ...string) {
				var n uint64
				for _, c := range h.counts {
					n += c
				}
				points = append(points, metricdata.HistogramDataPoint[float64]{
					Attributes: m.set(s, attrs), StartTime: started, Time: now,
					Count: n, Bounds: h.bounds, BucketCounts: h.counts, Sum: h.sum,
				})
			})
		}
		if len(points) == 0 {
			return nil
		}
		return metricdata.Histogram[float64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality}
	}
	var points []metricdata.DataPoint[float64]
	for _, s := range all {
		m.read(s, func(v float64, attrs ...string) {
			points = append(points, metricdata.DataPoint[float64]{Attributes: m.set(s, attrs), StartTime: started, Time: now, Value: v})
		})
	}
	switch {
	case len(points) == 0:
		return nil
	case m.kind == counter:
		return metricdata.Sum[float64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality, IsMonotonic: true}
	default:
		return metricdata.Gauge[float64]{DataPoints: points}
	}
}

func (m *metric) set(s *figures, values []string) attribute.Set {
	kvs := []attribute.KeyValue{attribute.Int("broker", int(s.b.id))}
	for i, v := range values {
		kvs = append(kvs, attribute.String(m.attrs[i], v))
	}
	return attribute.NewSet(kvs...)
}
