package object

import (
	"context"
	"time"
)

// Options tunes an adapter that talks to a remote store. The zero value is
// usable; WithDefaults says what it means. Each Store has HTTP connections of
// its own, so that cold reads and uploads opened apart cannot starve each other.
type Options struct {
	// MaxConns bounds connections and requests in flight.
	MaxConns int
	// Attempts bounds how often one request is sent (a part of a multipart
	// upload and the missing rest of a read are requests of their own).
	Attempts int
	// Timeout ends an attempt that has made no progress for so long.
	Timeout time.Duration
	// Backoff is waited before the second attempt, doubled before each
	// further one up to BackoffMax, and spread over half to the whole of that.
	Backoff, BackoffMax time.Duration
	// PartBytes is the size of a multipart upload's parts and the largest body
	// that goes by a single PUT. Stores refuse parts below 5 MiB.
	PartBytes int64
	// PartsInFlight bounds the parallelism of one upload.
	PartsInFlight int
	// Pace, if set, is called before each piece of at most 256 KiB of an upload
	// is sent, and delays it, by less than Timeout. It returns an error only when
	// ctx has ended. The parts of an upload call it at the same time.
	Pace func(ctx context.Context, bytes int) error
}

// Limits of the protocol, and defaults.
const (
	// PartBytesMin is S3's smallest part other than the last.
	PartBytesMin = 5 << 20
	// PartsMax is S3's largest number of parts.
	PartsMax = 10_000
	// BatchKeysMax is S3's largest number of keys in one DELETE or one page.
	BatchKeysMax = 1000

	defaultMaxConns      = 16
	defaultAttempts      = 5
	defaultTimeout       = 15 * time.Second
	defaultBackoff       = 100 * time.Millisecond
	defaultBackoffMax    = 3 * time.Second
	defaultPartBytes     = 16 << 20
	defaultPartsInFlight = 4
)

// WithDefaults fills what is unset and lifts what no store would take.
func (o Options) WithDefaults() Options {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	wait := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&o.MaxConns, defaultMaxConns)
	set(&o.Attempts, defaultAttempts)
	set(&o.PartsInFlight, defaultPartsInFlight)
	wait(&o.Timeout, defaultTimeout)
	wait(&o.Backoff, defaultBackoff)
	wait(&o.BackoffMax, defaultBackoffMax)
	if o.PartBytes <= 0 {
		o.PartBytes = defaultPartBytes
	}
	o.PartBytes = max(o.PartBytes, PartBytesMin)
	return o
}

// Uploads is what adapters with multipart uploads offer beyond Store: to get
// rid of what a crash has left half uploaded, which is listed nowhere else and
// costs money. Aborting another broker's upload under way fails that upload,
// so age must be longer than any.
type Uploads interface {
	AbortUploads(ctx context.Context, age time.Duration) (int, error)
}
