package broker

import (
	"log/slog"

	"thermocline/cmd/config"
	"thermocline/index"
	"thermocline/tiering/format"
	"thermocline/tiering/object"
)

// newColdReader makes the reader of what is in the store. It has a client,
// workers and memory of its own, so that it cannot slow a producer.
func newColdReader(store object.Store, cluster string, c *config.Config, log *slog.Logger) *index.Reader {
	return index.NewReader(store, index.Options{
		Cluster: cluster, DataBytes: int64(c.ColdCacheBytes), ReadAheadMax: int64(c.ColdReadAhead),
		Connections: c.ColdConns, Logger: log,
	})
}

// learned hands a segment's directory, which was just built here, to the
// reader, so that it need not be read back.
func (t *tier) learned(log *slog.Logger) func(format.SegmentRow, []byte) {
	return func(row format.SegmentRow, tail []byte) {
		if err := t.reader.Learn(row, tail); err != nil {
			log.Warn("the reader refused the directory of a segment built here", "segment", row.Key, "error", err)
		}
	}
}
