package remote

import (
	"context"
	"errors"
	"fmt"

	"thermocline/tiering/object"
)

// Failure is an answer of the store that is not success.
type Failure struct {
	Status int    // HTTP status; 0 if unknown
	Code   string // S3's error code; empty when there was no body
	Err    error
}

// Error implements error.
func (f *Failure) Error() string {
	return fmt.Sprintf("%s (HTTP %d): %v", f.Code, f.Status, f.Err)
}

// Unwrap returns the library's error.
func (f *Failure) Unwrap() error { return f.Err }

// codes that say more than their status, or come without the usual one.
var codes = map[string]error{
	"NoSuchKey":                   object.ErrNotFound,
	"NotFound":                    object.ErrNotFound,
	"NoSuchUpload":                object.ErrNotFound,
	"NoSuchBucket":                object.ErrNoBucket,
	"InvalidRange":                object.ErrRange,
	"PreconditionFailed":          object.ErrExists,
	"BadDigest":                   object.ErrCorrupt,
	"InvalidDigest":               object.ErrCorrupt,
	"XAmzContentChecksumMismatch": object.ErrCorrupt,
	"XAmzContentSHA256Mismatch":   object.ErrCorrupt,
	"AccessDenied":                object.ErrDenied,
	"InvalidAccessKeyId":          object.ErrDenied,
	"SignatureDoesNotMatch":       object.ErrDenied,
	"XAdminUserNotFound":          object.ErrDenied, // versitygw's, as a 404
	"ExpiredToken":                object.ErrDenied,
	"InvalidToken":                object.ErrDenied,
	"RequestTimeTooSkewed":        object.ErrDenied,
	// Another create of the same key is under way: AWS says to send again.
	"ConditionalRequestConflict": object.ErrUnavailable,
	"OperationAborted":           object.ErrUnavailable,
	"SlowDown":                   object.ErrUnavailable,
	"SlowDownRead":               object.ErrUnavailable,
	"SlowDownWrite":              object.ErrUnavailable,
	"RequestTimeout":             object.ErrUnavailable,
	"RequestTimedOut":            object.ErrUnavailable,
	"InternalError":              object.ErrUnavailable,
	"ServiceUnavailable":         object.ErrUnavailable,
	"ServerNotInitialized":       object.ErrUnavailable,
	"IncompleteBody":             object.ErrUnavailable,
	"Throttling":                 object.ErrUnavailable,
	"NotImplemented":             object.ErrRefused,
}

// kind maps an answer to the sentinel that callers know.
func (f *Failure) kind() error {
	if k := codes[f.Code]; k != nil {
		return k
	}
	switch f.Status {
	case 404:
		return object.ErrNotFound
	case 412:
		return object.ErrExists
	case 416:
		return object.ErrRange
	case 401, 403:
		return object.ErrDenied
	case 408, 425, 429:
		return object.ErrUnavailable
	case 501, 505:
		return object.ErrRefused
	}
	if f.Status >= 400 && f.Status < 500 || f.Status >= 300 && f.Status < 400 {
		return object.ErrRefused
	}
	return object.ErrUnavailable
}

// hints say what to do about codes that users meet.
var hints = map[string]string{
	"RequestTimeTooSkewed":         "this machine's clock differs from the store's",
	"InvalidAccessKeyId":           "the store does not know the access key",
	"XAdminUserNotFound":           "the store does not know the access key",
	"SignatureDoesNotMatch":        "the secret key is wrong, or a proxy changes the request",
	"PermanentRedirect":            "the bucket is in another region: name it with region=",
	"AuthorizationHeaderMalformed": "the bucket is in another region: name it with region=",
}

// text is an error by its words only: what a library wraps (its own attempt's
// cancelled context, above all) must not be taken for the caller's.
type text string

func (t text) Error() string { return string(t) }

// classify makes an object.Error of whatever an attempt returned. ctx is the
// caller's, attempt the one that the watchdog may have ended.
func classify(ctx, attempt context.Context, op, key string, err error) *object.Error {
	var done *object.Error
	if errors.As(err, &done) {
		return done
	}
	if ctx.Err() != nil {
		return object.NewError(op, key, object.ErrUnavailable, context.Cause(ctx))
	}
	var f *Failure
	if errors.As(err, &f) {
		said := f.Error()
		if h := hints[f.Code]; h != "" {
			said = h + ": " + said
		}
		return object.NewError(op, key, f.kind(), text(said))
	}
	if attempt.Err() != nil {
		return object.NewError(op, key, object.ErrUnavailable, text(context.Cause(attempt).Error()))
	}
	return object.NewError(op, key, object.ErrUnavailable, text(err.Error()))
}
