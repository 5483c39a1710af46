package index

import (
	"thermocline/tiering/format"
)

// Partition names what to read: a partition inside one version of its shard's manifest.
type Partition struct {
	Manifest *format.Manifest
	Ref      format.PartitionRef
	// LogStart and TieredEnd bound the offsets that may be returned: [LogStart, TieredEnd).
	LogStart, TieredEnd int64
}

// ReadRequest asks for whole batches from the one that holds Offset on.
type ReadRequest struct {
	Partition Partition
	Offset    int64
	MaxBytes  int
	// MinOne returns the first batch even if it is larger than MaxBytes.
	MinOne bool
	// UpTo ends the answer: no batch that begins at or after it.
	UpTo int64
}

// Data is an answer: verbatim batches, in pieces of cached blocks. Release it
// when the last byte has been used.
type Data struct {
	Pieces [][]byte
	Bytes  int
	// NextOffset is the offset after the last batch.
	NextOffset int64
	release    func()
}

// Release gives the cached blocks back. It may be called once.
func (d *Data) Release() {
	if d.release != nil {
		d.release()
		d.release = nil
	}
}

// Found is a record found by time.
type Found struct {
	Offset, Timestamp int64
	Epoch             int32
}
