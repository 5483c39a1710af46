package object

import (
	"context"
	"errors"
	"fmt"
)

// Error is what adapters return: the operation, the key, which sentinel it is,
// and what the store or the network said.
type Error struct {
	Op    string
	Key   string
	Kind  error // one of the package's sentinels
	Cause error // may be nil
}

// NewError builds an Error.
func NewError(op, key string, kind, cause error) *Error {
	return &Error{Op: op, Key: key, Kind: kind, Cause: cause}
}

// Error implements error.
func (e *Error) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("%s %q: %v", e.Op, e.Key, e.Kind)
	}
	return fmt.Sprintf("%s %q: %v: %v", e.Op, e.Key, e.Kind, e.Cause)
}

// Unwrap lets errors.Is see both the sentinel and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// Retryable reports whether the same request may succeed later: everything
// that is ErrUnavailable, but not because the caller's own context ended.
func Retryable(err error) bool {
	return errors.Is(err, ErrUnavailable) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// Expected reports whether err is an answer rather than a failure: a missing
// key, a taken one, a range beyond the end.
func Expected(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrExists) || errors.Is(err, ErrRange)
}

// Ended returns an Error for a context that has ended, else nil.
func Ended(ctx context.Context, op, key string) error {
	if ctx.Err() == nil {
		return nil
	}
	return NewError(op, key, ErrUnavailable, context.Cause(ctx))
}
