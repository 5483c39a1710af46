package tiering

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"thermocline/tiering/format"
	"thermocline/tiering/object"
)

// What a Committer's errors wrap.
var (
	// ErrNotLeader: the shard is not led from here any more. The commit's fate
	// may be unknown.
	ErrNotLeader = errors.New("tiering: not the shard's leader")
	// ErrRefused: apply refused the commit, since the shard's rows are not what
	// the commit says. It has had no effect and never will.
	ErrRefused = errors.New("tiering: commit refused")
	// ErrStopped: the sealer has been stopped.
	ErrStopped = errors.New("tiering: sealer stopped")
)

// Pending is what could be sealed now.
type Pending struct {
	// Bytes are acknowledged and not in the store.
	Bytes int64
	// OldestIndex and OldestUnixMilli are of the first such entry.
	OldestIndex     uint64
	OldestUnixMilli int64
	// Urgent asks for a seal whatever the size and age: the oldest entry lies
	// behind half of the WAL's budget.
	Urgent bool
}

// Payload is an entry's payload, held for reading.
type Payload interface {
	Bytes() []byte
	Release()
}

// Source is the shard that a Sealer reads: what is sealed is below the
// acknowledgement bound, always.
type Source interface {
	// Pending is cheap: it is asked every Tick.
	Pending() (Pending, bool)
	// Seal returns the next range of whole entries from the tiered end on,
	// about maxBytes of it, or false when there is none.
	Seal(maxBytes int64) (*format.SealRange, bool)
	// Payload returns an entry's payload, from memory or from the log's files.
	Payload(index, term uint64) (Payload, error)
	// Manifest is the shard's current one. It shows a commit as soon as
	// Committer has returned.
	Manifest() *format.Manifest
}

// Committer proposes tiering commits to the shard and waits for their fate.
// Any error that wraps neither ErrNotLeader nor ErrRefused leaves the fate
// unknown and the leadership as it is.
type Committer interface {
	// CommitSegment commits an uploaded and verified segment.
	CommitSegment(ctx context.Context, row format.SegmentRow) (format.SegmentID, error)
	// CommitRun commits a directory run in place of others, with the fence
	// object that goes with it.
	CommitRun(ctx context.Context, run format.RunRow, replaces []uint32, fence format.FenceRow) error
}

// Options say how a Sealer works. Zero values mean the defaults.
type Options struct {
	Cluster string
	Shard   uint32
	// Term is the Raft term of the leadership; it is part of every name.
	Term      uint64
	Source    Source
	Committer Committer
	Store     object.Store

	// SegmentBytes and SegmentAge are the triggers (tiering.segment.bytes, tiering.segment.ms).
	SegmentBytes int64
	SegmentAge   time.Duration
	// Tick is how often the triggers are looked at.
	Tick time.Duration
	// Memory is shared by all sealers of a broker; what does not fit is built
	// in a file in TempDir.
	Memory  *Memory
	TempDir string
	// PaceFactor times the rate of ingest is the rate of upload, as long as
	// nothing is urgent; negative: not paced.
	PaceFactor float64
	// AttemptTimeout bounds one PUT, HEAD or GET; BackoffMin and BackoffMax the
	// waits between attempts.
	AttemptTimeout         time.Duration
	BackoffMin, BackoffMax time.Duration
	// Committed, if set, is told of each committed segment and its last
	// FooterLen bytes, which it may keep: the broker's index need not GET them.
	Committed func(row format.SegmentRow, tail []byte)
	// Random draws the last part of a name; nil: crypto/rand.
	Random func() uint64
	Logger *slog.Logger
	Now    func() time.Time
}

// Defaults and limits.
const (
	defaultSegmentBytes = 64 << 20
	defaultSegmentAge   = 30 * time.Second
	// defaultTick bounds how late a trigger is seen; asking is a lock and a few loads.
	defaultTick = 100 * time.Millisecond
	// defaultPace lets an upload catch up with what came during the last one.
	defaultPace = 1.5
	// defaultAttempt lets 64 MiB pass at 1 MiB/s; what hangs longer is asked again.
	defaultAttempt    = 90 * time.Second
	defaultBackoffMin = 100 * time.Millisecond
	defaultBackoffMax = 10 * time.Second
	// rollQueue bounds explicit rolls that wait for their turn.
	rollQueue = 64
	// givenUpMax bounds the names remembered as given up; older ones are
	// collected by the rule of terms.
	givenUpMax = 1024
)

func (o *Options) withDefaults() Options {
	d := *o
	def(&d.SegmentBytes, defaultSegmentBytes)
	def(&d.SegmentAge, defaultSegmentAge)
	def(&d.Tick, defaultTick)
	def(&d.PaceFactor, defaultPace)
	def(&d.AttemptTimeout, defaultAttempt)
	def(&d.BackoffMin, defaultBackoffMin)
	def(&d.BackoffMax, defaultBackoffMax)
	if d.Memory == nil {
		d.Memory = NewMemory(DefaultMemory)
	}
	if d.Random == nil {
		d.Random = randomUint64
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	return d
}

func def[T int64 | float64 | time.Duration](v *T, value T) {
	if *v == 0 {
		*v = value
	}
}

// Stats is a snapshot of a Sealer's counters.
type Stats struct {
	// Segments and Bytes are committed ones.
	Segments, Bytes int64
	// Runs are committed ones, of any level.
	Runs int64
	// Attempts counts PUTs, Failures those of any operation that had to be
	// repeated, Orphans uploads that were given up.
	Attempts, Failures, Orphans int64
	// PendingBytes and PendingAge are what waits to be tiered.
	PendingBytes int64
	PendingAge   time.Duration
	// Blocked is how long the current seal has been failing; 0: it is not.
	Blocked time.Duration
}
