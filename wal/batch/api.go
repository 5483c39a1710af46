package batch

import "errors"

// Batch is a view over the bytes of exactly one record batch v2. Its accessors
// need the header to be there: a Batch comes from Next, Gate or a Builder.
type Batch []byte

// Info is what the gate learned about a batch while validating it.
type Info struct {
	Records      int
	MaxTimestamp int64
	// Uncompressed is the size of the records section after decompression.
	Uncompressed int
}

// Why bytes are refused. ingest maps each to one Kafka error; all errors of
// this package wrap one of them.
var (
	// ErrTruncated: the buffer ends inside a batch (a fetch may end so).
	ErrTruncated = errors.New("batch: truncated")
	// ErrCorrupt: length, CRC or compressed stream are broken (CORRUPT_MESSAGE).
	ErrCorrupt = errors.New("batch: corrupt")
	// ErrMagic: a format other than v2 (UNSUPPORTED_FOR_MESSAGE_FORMAT).
	ErrMagic = errors.New("batch: unsupported message format")
	// ErrTooLarge: the batch, or what it decompresses to, is over a limit (MESSAGE_TOO_LARGE).
	ErrTooLarge = errors.New("batch: too large")
	// ErrInvalidRecord: header or records break the rules (INVALID_RECORD).
	// A *RecordsError in the chain names the records.
	ErrInvalidRecord = errors.New("batch: invalid record")
	// ErrTimestamp: timestamps out of the allowed range (INVALID_TIMESTAMP).
	// A *RecordsError in the chain names the records.
	ErrTimestamp = errors.New("batch: invalid timestamp")
	// ErrCodec: a compression codec that does not exist (UNSUPPORTED_COMPRESSION_TYPE).
	ErrCodec = errors.New("batch: unsupported compression codec")
)

// RecordError says what is wrong with one record of a batch.
type RecordError struct {
	Index   int
	Message string
}

// RecordsError lists the records for which a batch was refused, at most
// MaxRecordErrors of them. It unwraps to ErrInvalidRecord or ErrTimestamp.
type RecordsError struct {
	Kind    error
	Records []RecordError
}

// Error implements error; it tells the first record's trouble and how many there are.
func (e *RecordsError) Error() string {
	if len(e.Records) == 0 {
		return e.Kind.Error()
	}
	first := e.Records[0]
	s := e.Kind.Error() + ": record " + itoa(first.Index) + ": " + first.Message
	if n := len(e.Records) - 1; n > 0 {
		s += " (and " + itoa(n) + " more)"
	}
	return s
}

// Unwrap returns Kind.
func (e *RecordsError) Unwrap() error { return e.Kind }

// Limits that hold whatever the options say.
const (
	// MaxBatchBytes bounds one batch. A batch may fill a payload of its own,
	// and a payload travels as one frame, which must be held in memory whole.
	MaxBatchBytes = 64 << 20
	// MaxUncompressedBytes bounds what one batch may decompress to. Nothing is
	// held of it but a window; the bound is for time, and for readers that do
	// hold whole batches (every client does).
	MaxUncompressedBytes = 256 << 20
	// MaxRecordErrors bounds the list in a RecordsError: producers split the
	// batch by it, and a hostile batch may hold millions of bad records.
	MaxRecordErrors = 1024
	// MaxHeaders bounds the headers of one record. Kafka has no such limit;
	// each needs at least two bytes, and Iterate hands them out as a slice.
	MaxHeaders = 1 << 16
)

// GateOptions say what a topic allows. Sizes of zero mean this package's limits.
type GateOptions struct {
	// MaxBytes bounds the batch as it arrives and as it is kept (max.message.bytes).
	MaxBytes int
	// MaxUncompressed bounds the records section after decompression.
	MaxUncompressed int
	// LogAppendTime replaces the producer's timestamps by NowUnixMilli.
	LogAppendTime bool
	// NowUnixMilli is the time to check against, or to stamp. Zero: timestamps
	// are not checked against the clock.
	NowUnixMilli int64
	// TimestampBeforeMax and TimestampAfterMax bound how far a record's
	// timestamp may lie before and after now, in milliseconds; negative: no bound.
	TimestampBeforeMax int64
	TimestampAfterMax  int64
	// Codec is what the batch is kept in; CodecProducer keeps the producer's.
	Codec Codec
	// CompressionLevel is the codec's own level for recompression; zero: its default.
	CompressionLevel int
	// KeysRequired refuses records without a key (compacted topics).
	KeysRequired bool
}
