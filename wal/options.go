package wal

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Limits and defaults of the log, with the reason for each.
const (
	// DefaultFileBytes makes a rotation (about 2 ms) rare at full speed and
	// recycling fine-grained at a budget of 1 GiB and more.
	DefaultFileBytes = 64 << 20
	// DefaultMaxBytes is the budget when none is given.
	DefaultMaxBytes = 1 << 30
	// minFileBytes holds the header block and a few groups.
	minFileBytes = 4 * blockSize
	// maxFileBytes keeps offsets in a file within 32 bits.
	maxFileBytes = 1 << 31
	// minFiles is the least budget in files: one active, one being emptied, two
	// in reserve, and as many for data.
	minFiles = 8
	// reserveFiles is what intake of client data may not use: two files for what
	// was under way when it stopped, tiering commits and markers; one for hard
	// states; one that is being filled.
	reserveFiles = 4
	// maxDescriptor is the longest descriptor or marshalled change of an entry.
	maxDescriptor = 64 << 10
	// maxAppend bounds one append: lengths inside a group are 32 bits, and the
	// whole of it is held in memory at recovery.
	maxAppend = 1 << 30
	// maxFileName is the longest snapshot file name.
	maxFileName = 255
	// copyBelow is the payload size up to which a copy into the group's own
	// buffer is cheaper than one more piece of the vectored write.
	copyBelow = 1 << 10
	// copyStep is how many live bytes one step of recycling rewrites: 1 MiB with
	// its fdatasync takes about 2 ms, which an append may have to wait.
	copyStep = 1 << 20
)

// Options configures a log. The zero value is usable.
type Options struct {
	// FileBytes is the size of a log file. 0 means DefaultFileBytes, or less
	// when MaxBytes is small. The largest append should not exceed an eighth.
	FileBytes int64
	// MaxBytes is the budget for all log files together. 0 means DefaultMaxBytes.
	MaxBytes int64
	// FillPerSecond is how fast the Writer writes zeroes into the next file ahead
	// of need, in bytes: an fdatasync of a file that was written before takes
	// about half of one that grows. 0: never.
	FillPerSecond int64
	// Logger gets what an operator should know (a cut tail); nil discards.
	Logger *slog.Logger
	// Clock reads a monotonic clock for the latencies in Stats. Nil, as in the
	// simulator, means that none are kept; NewWriter sets it.
	Clock func() time.Duration
	// Bugs plants mistakes for the tests. Off outside tests.
	Bugs Bugs
}

// Bugs are mistakes that tests plant, to see that they would be found. Each one
// breaks a rule of the log.
type Bugs struct {
	// AckBeforeSync calls Done when the write returned, before the fdatasync.
	AckBeforeSync bool
	// SkipClosingRecord leaves an idle log without its closing record.
	SkipClosingRecord bool
	// RecycleWithoutRewrite recycles the oldest file with what lives in it.
	RecycleWithoutRewrite bool
	// ReuseUseNumber checks records against the same use number and start
	// position in every file, so that records of a file's earlier use pass.
	ReuseUseNumber bool
	// IgnoreSyncError takes a failed fdatasync for a good one.
	IgnoreSyncError bool
	// RetryAfterError goes on after a failed write or fdatasync instead of
	// taking the log out of service.
	RetryAfterError bool
	// SkipRecoverySync hands out what recovery read without having synced it.
	SkipRecoverySync bool
	// ShareBlocks starts a group right behind the last one, in a block that
	// holds acked bytes.
	ShareBlocks bool
	// CutAnywhere takes every damage for a torn tail.
	CutAnywhere bool
}

func (o Options) withDefaults() (Options, error) {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.FileBytes == 0 {
		o.FileBytes = min(DefaultFileBytes, o.MaxBytes/16)
	}
	o.FileBytes = max(o.FileBytes/blockSize*blockSize, minFileBytes)
	if o.FileBytes > maxFileBytes {
		return o, fmt.Errorf("wal: file bytes %d: expected at most %d", o.FileBytes, int64(maxFileBytes))
	}
	if o.MaxBytes < minFiles*o.FileBytes {
		return o, fmt.Errorf("wal: max bytes %d: expected at least %d files of %d bytes", o.MaxBytes, minFiles, o.FileBytes)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Errors of the log; test with errors.Is.
var (
	// ErrClosed is given to appends after Close.
	ErrClosed = errors.New("wal: closed")
	// ErrFailed wraps the failure that took the log out of service.
	ErrFailed = errors.New("wal: log out of service")
	// ErrTrimmed says that an entry was trimmed and its file is recycled.
	ErrTrimmed = errors.New("wal: entry trimmed")
	// ErrNotFound says that the log holds no such entry of that term.
	ErrNotFound = errors.New("wal: no such entry")
	// ErrFull refuses entries that the budget has no room for. The log stays in
	// service; hard states, snapshot pointers and entries without payload pass.
	ErrFull = errors.New("wal: budget used up")
	// ErrInvalid refuses an append that breaks the rules of record.go. Nothing
	// of it was written.
	ErrInvalid = errors.New("wal: invalid append")
	// ErrCorrupt is matched by every *CorruptionError.
	ErrCorrupt = errors.New("wal: corruption")
	// ErrVersion says that a file was written by a newer version.
	ErrVersion = errors.New("wal: newer format version")
)

// CorruptionError reports damage to bytes that were synced: where, and what was
// expected and found. It is never a torn tail.
type CorruptionError struct {
	File            string
	Offset          int64
	Expected, Found string
}

// Error says where the damage is, and what was expected and found.
func (e *CorruptionError) Error() string {
	return fmt.Sprintf("wal: corruption in %s at offset %d: expected %s, found %s", e.File, e.Offset, e.Expected, e.Found)
}

// Is makes every CorruptionError match ErrCorrupt.
func (e *CorruptionError) Is(target error) bool { return target == ErrCorrupt }
