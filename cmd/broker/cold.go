package broker

import (
	"context"
	"errors"
	"log/slog"

	"thermocline/cmd/config"
	"thermocline/index"
	"thermocline/tiering/format"
	"thermocline/tiering/object"
)

type coldReader struct{}

func newColdReader(object.Store, string, *config.Config, *slog.Logger) coldReader {
	return coldReader{}
}

var errNoCold = errors.New("no cold reader yet")

func (coldReader) Read(context.Context, index.ReadRequest) (*index.Data, error) {
	return nil, errNoCold
}
func (coldReader) OffsetForTime(context.Context, index.Partition, int64, int64) (index.Found, bool, error) {
	return index.Found{}, false, errNoCold
}
func (coldReader) MaxTimestamp(context.Context, index.Partition, int64) (index.Found, bool, error) {
	return index.Found{}, false, errNoCold
}
func (coldReader) EpochEnd(context.Context, index.Partition, int32) (int32, int64, bool, error) {
	return 0, 0, false, errNoCold
}
func (coldReader) Committed(uint32) func(format.SegmentRow, []byte) { return nil }
func (coldReader) Close() error                                     { return nil }
