package index

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"thermocline/tiering/format"
)

// What this package's errors wrap, beside object's and format's sentinels.
var (
	// ErrOffset: the offset is not in [LogStart, TieredEnd).
	ErrOffset = errors.New("index: offset is not in the store")
	// ErrClosed: the reader has been closed.
	ErrClosed = errors.New("index: reader is closed")
)

// ObjectError tells which object could not be read. It wraps object.ErrNotFound
// when it is missing, format.ErrCorrupt when it is damaged, and
// object.ErrUnavailable when a later try may succeed.
type ObjectError struct {
	Key string
	// At and Bytes are the range that was asked for.
	At    int64
	Bytes int
	Err   error
}

// Error implements error.
func (e *ObjectError) Error() string {
	return fmt.Sprintf("index: %s, %d bytes at %d: %v", e.Key, e.Bytes, e.At, e.Err)
}

// Unwrap returns the cause.
func (e *ObjectError) Unwrap() error { return e.Err }

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
	// UpTo ends the answer: no batch that begins at or after it. Zero: TieredEnd.
	UpTo int64
}

// Data is an answer: verbatim batches, in pieces of cached blocks. Release it
// when the last byte has been used.
type Data struct {
	Pieces [][]byte
	Bytes  int
	// NextOffset is the offset after the last batch. Without a batch it is the
	// request's offset, or TieredEnd when the store has nothing at or after it.
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

// Options say how a Reader works. Zero values mean the defaults.
type Options struct {
	// Cluster is the prefix of the cluster's objects.
	Cluster string
	// DataBytes bounds the data cache with everything under way
	// (cold.cache.bytes), BlockBytes the index blocks, DirectoryBytes the
	// level-0 directories.
	DataBytes, BlockBytes, DirectoryBytes int64
	// ReadAheadMax is the largest read-ahead of one stream (cold.read.ahead.max.bytes).
	ReadAheadMax int64
	// Connections bounds GETs at the same time (cold.connections).
	Connections int
	// LoadTimeout bounds what goes on for a caller that has left, retries
	// included; AttemptTimeout bounds one GET.
	LoadTimeout, AttemptTimeout time.Duration
	// BackoffMin and BackoffMax bound the waits between retries.
	BackoffMin, BackoffMax time.Duration
	Logger                 *slog.Logger
}

// Defaults and limits.
const (
	defaultDataBytes      = 256 << 20
	defaultBlockBytes     = 64 << 20
	defaultDirectoryBytes = 128 << 20
	defaultReadAhead      = 32 << 20
	defaultConnections    = 32
	// defaultLoad is long enough for a throttling store, short enough that
	// what nobody waits for any more ends.
	defaultLoad       = 60 * time.Second
	defaultAttempt    = 20 * time.Second
	defaultBackoffMin = 20 * time.Millisecond
	defaultBackoffMax = time.Second

	// firstReadAhead is what the second sequential read asks for.
	firstReadAhead = 512 << 10
	// getMax is the largest GET: a connection then spends most of its time
	// with data, and what it brings is not late for the reader.
	getMax = 4 << 20
	// chargeMin is the least that a span counts for, so that tiny ones are
	// bounded in number as well.
	chargeMin = 16 << 10
	// aheadPieces bounds how many pieces a stream looks ahead.
	aheadPieces = 512
	// aheadShare of the data cache may hold what nobody has read yet.
	aheadShareNum, aheadShareDen = 3, 4
	// aheadStale is when read-ahead that nobody came for may be dropped for other read-ahead.
	aheadStale = 15 * time.Second
	// streamsMax bounds the sequential readers that are recognised.
	streamsMax = 4096
	// streamActive is how long a stream counts in the sharing of read-ahead.
	streamActive = 10 * time.Second
	// activeEvery is how old the count of active streams may be.
	activeEvery = 250 * time.Millisecond
	// aheadTasks bounds streams looking ahead at the same time.
	aheadTasks = 64
	// indexLoads bounds index blocks being loaded at the same time.
	indexLoads = 64
	// corruptAttempts bounds GETs of bytes that do not verify.
	corruptAttempts = 3
)

func (o *Options) withDefaults() Options {
	d := *o
	def(&d.DataBytes, defaultDataBytes)
	def(&d.BlockBytes, defaultBlockBytes)
	def(&d.DirectoryBytes, defaultDirectoryBytes)
	def(&d.ReadAheadMax, defaultReadAhead)
	def(&d.Connections, defaultConnections)
	def(&d.LoadTimeout, defaultLoad)
	def(&d.AttemptTimeout, defaultAttempt)
	def(&d.BackoffMin, defaultBackoffMin)
	def(&d.BackoffMax, defaultBackoffMax)
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d
}

func def[T int | int64 | time.Duration](v *T, value T) {
	if *v == 0 {
		*v = value
	}
}

// Stats is a snapshot of a Reader's counters.
type Stats struct {
	// Gets and GetBytes are GETs that succeeded, Failures those that did not.
	Gets, GetBytes, Failures int64
	// Delivered is what Read has returned.
	Reads, Delivered int64
	// Hits found their data in the cache, Shared waited for another's GET,
	// Misses made one.
	Hits, Shared, Misses int64
	// Ahead counts bytes fetched ahead, AheadUnused those dropped unread.
	Ahead, AheadUnused int64
	// IndexHits and IndexMisses are of directories, fences, pages and partition indexes.
	IndexHits, IndexMisses int64
	// DataBytes, BlockBytes and DirectoryBytes are held now; Streams are known now.
	DataBytes, BlockBytes, DirectoryBytes int64
	Streams                               int64
}

type counters struct {
	gets, getBytes, failures, reads, delivered atomic.Int64
	hits, shared, misses, ahead, aheadUnused   atomic.Int64
	indexHits, indexMisses                     atomic.Int64
}
