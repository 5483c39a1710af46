package metadata

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// What a Store and the operations on top of it answer. Compare with errors.Is.
var (
	// ErrFenced: a guard did not hold, somebody else has written. Nothing was
	// written. It is a normal outcome: read again, or step down.
	ErrFenced = errors.New("metadata: fenced, a guard was lost")
	// ErrUnavailable: the store cannot be reached or has no quorum, or did not
	// answer in time. After a Commit the fate of the transaction is unknown.
	ErrUnavailable = errors.New("metadata: store unavailable")
	// ErrNotFound: there is no such row.
	ErrNotFound = errors.New("metadata: not found")
	// ErrExists: there is such a row already.
	ErrExists = errors.New("metadata: exists already")
	// ErrCompacted: a watch asked for changes that the store has forgotten.
	ErrCompacted = errors.New("metadata: revision is compacted")
	// ErrLeaseLost: a write named a lease that the store does not know (any more).
	ErrLeaseLost = errors.New("metadata: lease is gone")
	// ErrTooLarge: a transaction or a row beyond the limits below.
	ErrTooLarge = errors.New("metadata: too large")
	// ErrNewerVersion: a row was written by a newer version than this binary knows.
	ErrNewerVersion = errors.New("metadata: row of a newer version")
	// ErrCorrupt: a row cannot be decoded.
	ErrCorrupt = errors.New("metadata: row cannot be decoded")
	// ErrClosed: the store, view or registration was closed.
	ErrClosed = errors.New("metadata: closed")
)

const (
	// TxnOpsMax bounds guards and writes of one transaction, each: etcd's default limit.
	TxnOpsMax = 128
	// RowBytesMax bounds one row: etcd takes requests up to 1.5 MiB, and its
	// client sends up to 2 MiB.
	RowBytesMax = 1 << 20
	// TxnBytesMax bounds what one transaction writes, below the same limit.
	TxnBytesMax = 5 << 18
)

// LeaseID names a lease; 0 is none.
type LeaseID int64

// Row is one key with its value. The value is not to be changed.
type Row struct {
	Key   string
	Value []byte
	// Modified is the revision of the last write: what a Guard compares.
	Modified int64
	// Lease is the lease that the row dies with.
	Lease LeaseID
}

// Guard is a condition of a transaction: the row's last write was at Revision.
type Guard struct {
	Key string
	// Revision 0: the row does not exist.
	Revision int64
}

// Write is one change of a transaction.
type Write struct {
	Key   string
	Value []byte
	// Delete removes the row (it may be absent).
	Delete bool
	// Lease binds the row's life to a lease.
	Lease LeaseID
}

// Txn is a set of writes that happen together, if all guards hold. A key is
// written at most once.
type Txn struct {
	Guards []Guard
	Writes []Write
}

// Check tells whether the transaction respects the limits: every Store calls it.
func (t *Txn) Check() error {
	if len(t.Guards) > TxnOpsMax || len(t.Writes) > TxnOpsMax {
		return fmt.Errorf("transaction: expected at most %d operations, found %d guards and %d writes: %w",
			TxnOpsMax, len(t.Guards), len(t.Writes), ErrTooLarge)
	}
	seen := make(map[string]struct{}, len(t.Writes))
	total := 0
	for i := range t.Writes {
		w := &t.Writes[i]
		if len(w.Value) > RowBytesMax {
			return fmt.Errorf("row %s: expected at most %d bytes, found %d: %w", w.Key, RowBytesMax, len(w.Value), ErrTooLarge)
		}
		if _, twice := seen[w.Key]; twice {
			return fmt.Errorf("metadata: transaction writes %s twice", w.Key)
		}
		seen[w.Key] = struct{}{}
		total += len(w.Value)
	}
	if total > TxnBytesMax {
		return fmt.Errorf("transaction: expected at most %d bytes, found %d: %w", TxnBytesMax, total, ErrTooLarge)
	}
	return nil
}

// Listing is the content below a prefix at one revision, in key order.
type Listing struct {
	Rows     []Row
	Revision int64
}

// Change is one row's new content, or its end.
type Change struct {
	Row     Row // of a deleted row: key and revision only
	Deleted bool
}

// Changes is what a watch delivers: all changes of one or more revisions,
// never a part of a revision, in order.
type Changes struct {
	// Revision is the last one contained.
	Revision int64
	Changes  []Change
	// Err ends the watch: ErrCompacted, ErrUnavailable or ErrClosed.
	Err error
}

// Lease is a lease that its store keeps alive in the background. During an
// outage of the store it is neither lost nor renewed: the store decides.
type Lease struct {
	// ID is what a Write names.
	ID LeaseID
	// Lost is closed once the store has said that the lease is gone.
	Lost <-chan struct{}
	// Release ends the lease and with it its rows. It may be called again.
	Release func(ctx context.Context) error
}

// Store is a small key-value store with guarded transactions, watches and
// leases. Every call is bounded by a timeout of the store's own besides ctx,
// and may be made from any goroutine. Reads are linearizable.
type Store interface {
	// Get returns a row, or ErrNotFound.
	Get(ctx context.Context, key string) (Row, error)
	// List returns every row whose key begins with prefix.
	List(ctx context.Context, prefix string) (Listing, error)
	// Commit writes if all guards hold, else answers ErrFenced. It returns the
	// revision of the writes.
	Commit(ctx context.Context, t Txn) (int64, error)
	// Watch delivers the changes below prefix after a revision until ctx ends
	// (then the channel is closed) or the watch fails (then the last Changes
	// has Err, and the channel is closed). The receiver must keep receiving.
	Watch(ctx context.Context, prefix string, after int64) <-chan Changes
	// Lease creates a lease and keeps it alive until it is released, or the
	// store is closed.
	Lease(ctx context.Context, ttl time.Duration) (*Lease, error)
	// Close ends watches and the renewal of leases; leases are left to lapse.
	Close() error
}
