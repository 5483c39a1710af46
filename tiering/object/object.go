package object

import (
	"context"
	"errors"
	"io"
)

// What every Store wraps; test with errors.Is.
var (
	// ErrNotFound: no object has that key.
	ErrNotFound = errors.New("object: not found")
	// ErrExists: a create-only Put found the key taken.
	ErrExists = errors.New("object: exists already")
	// ErrRange: the range begins at or beyond the object's end.
	ErrRange = errors.New("object: range not satisfiable")
	// ErrCorrupt: the bytes do not have the checksum that the store or the caller names.
	ErrCorrupt = errors.New("object: checksum mismatch")
	// ErrDenied: wrong credentials or missing permission. Not worth a retry.
	ErrDenied = errors.New("object: access denied")
	// ErrNoBucket: the bucket or directory does not exist. Not worth a retry.
	ErrNoBucket = errors.New("object: no such bucket")
	// ErrRefused: the store, or the adapter, does not take the request as it is. Not worth a retry.
	ErrRefused = errors.New("object: request refused")
	// ErrUnavailable: the store is away, throttles or timed out, or the caller's
	// context ended. Worth a retry.
	ErrUnavailable = errors.New("object: store unavailable")
)

// Info describes one object.
type Info struct {
	Key  string
	Size int64
	// CRC32C is the whole object's Castagnoli checksum as the store knows it;
	// HasCRC is false when it does not. List never fills it.
	CRC32C            uint32
	HasCRC            bool
	ModifiedUnixMilli int64
}

// Body is what Put uploads: readable again from the start, since a request
// may be sent more than once. *bytes.Reader and *io.SectionReader are bodies.
type Body interface {
	io.ReaderAt
	Size() int64
}

// PutOptions qualifies a Put.
type PutOptions struct {
	// IfAbsent makes it create-only: ErrExists when the key is taken.
	IfAbsent bool
	// CRC32C of the whole body, always needed (Checksum computes it); verified
	// by the adapter, and by the store where it can.
	CRC32C uint32
}

// Store is an object store, as little of one as Thermocline needs. All
// methods are safe for concurrent use, honour ctx, and return errors that wrap
// one of the sentinels above, the operation and the key. A Put either stores
// the whole body under key or nothing. Keys are those that CheckKey passes.
type Store interface {
	// Put reads body until it returns; the body is the caller's again then.
	Put(ctx context.Context, key string, body Body, o PutOptions) error
	// GetRange fills p from offset on and returns how many bytes it got; fewer
	// than len(p) only at the object's end (then with a nil error).
	GetRange(ctx context.Context, key string, offset int64, p []byte) (int, error)
	Head(ctx context.Context, key string) (Info, error)
	// List calls fn for each key with prefix and greater than after, in byte
	// order, through all pages, until fn returns false.
	List(ctx context.Context, prefix, after string, fn func(Info) bool) error
	// Delete removes keys in batches. A missing key is success. The map holds
	// the error of each key that could not be removed; err is for the whole call.
	Delete(ctx context.Context, keys []string) (failed map[string]error, err error)
	// String names the store without secrets.
	String() string
}
