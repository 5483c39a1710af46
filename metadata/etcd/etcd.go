// Package etcd is the metadata.Store that brokers use: etcd through its v3
// client, over the network or inside the process that runs the server. It is
// the only package that imports the client.
package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"thermocline/metadata"
)

const (
	// DefaultPrefix is where all keys lie when nothing else is asked for.
	DefaultPrefix = "/thermocline/"
	// defaultCallTimeout bounds one call: etcd answers in milliseconds, and an
	// election of its own takes less than two seconds.
	defaultCallTimeout = 3 * time.Second
	defaultDialTimeout = 2 * time.Second
	// keepAliveTime is how long a silent connection is trusted. A server with
	// default settings refuses clients that ask more often than every 5 s.
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
	// redialMin and redialMax bound the pause between dials of an etcd that is away.
	redialMin = 50 * time.Millisecond
	redialMax = time.Second
	// listPage bounds the rows of one answer, so that a large cluster does not
	// need one answer of tens of megabytes.
	listPage = 2000
	// renewals is how many times a lease is renewed within its TTL.
	renewals = 3
)

// Config says where etcd is.
type Config struct {
	// Endpoints are host:port or URLs.
	Endpoints []string
	// TLS is nil for plain connections.
	TLS *tls.Config
	// Username and Password are empty when etcd asks for none.
	Username, Password string
	// Prefix of all keys; empty is DefaultPrefix. Clusters that share an etcd
	// need one each.
	Prefix string
	// CallTimeout bounds each call; 0 is three seconds.
	CallTimeout time.Duration
}

// Store is a metadata.Store in etcd. Each lease owns one goroutine, and each
// watch one; Close, or the end of the watch's context, stops them.
type Store struct {
	client  *clientv3.Client
	owned   bool // the client was made here
	prefix  string
	timeout time.Duration

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	mu   sync.Mutex // guards closed against new goroutines
	wg   sync.WaitGroup
	done bool
}

var _ metadata.Store = (*Store)(nil)

// Open connects to an etcd cluster. It does not wait for an answer: an etcd
// that is away shows as metadata.ErrUnavailable in the calls.
func Open(c Config) (*Store, error) {
	if len(c.Endpoints) == 0 {
		return nil, errors.New("etcd store: expected at least one endpoint, found none")
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            c.Endpoints,
		TLS:                  c.TLS,
		Username:             c.Username,
		Password:             c.Password,
		DialTimeout:          defaultDialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		// Left alone, gRPC would wait up to two minutes before it dials again
		// after a long outage.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: redialMin, Multiplier: 1.6, Jitter: 0.2, MaxDelay: redialMax},
			MinConnectTimeout: defaultDialTimeout,
		})},
		// Every error is returned; the client's own log adds nothing.
		Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, fmt.Errorf("etcd store: endpoints %s: %w", strings.Join(c.Endpoints, ","), err)
	}
	s := New(client, c)
	s.owned = true
	return s, nil
}

// New makes a store from a client that stays the caller's: such as the one
// inside the process of an embedded server. Of c, only Prefix and CallTimeout
// count. Close the store before the client.
func New(client *clientv3.Client, c Config) *Store {
	s := &Store{client: client, prefix: c.Prefix, timeout: c.CallTimeout}
	if s.prefix == "" {
		s.prefix = DefaultPrefix
	}
	if !strings.HasSuffix(s.prefix, "/") {
		s.prefix += "/"
	}
	if s.timeout == 0 {
		s.timeout = defaultCallTimeout
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Close implements metadata.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	s.done = true
	s.mu.Unlock()
	s.stop()
	s.wg.Wait()
	if !s.owned {
		return nil
	}
	if err := s.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("etcd store: close: %w", err)
	}
	return nil
}

// spawn starts a goroutine that Close waits for, unless Close has begun.
func (s *Store) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return false
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		f()
	}()
	return true
}

// call bounds one call by the caller's context, the store's life and the timeout.
func (s *Store) call(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	detach := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { detach(); cancel() }
}

// fail translates an error of the client. parent is the caller's context.
func (s *Store) fail(parent context.Context, what string, err error) error {
	switch {
	case s.ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, metadata.ErrClosed)
	case parent.Err() != nil:
		return fmt.Errorf("%s: %w", what, parent.Err())
	case errors.Is(err, rpctypes.ErrCompacted):
		return fmt.Errorf("%s: %w", what, metadata.ErrCompacted)
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return fmt.Errorf("%s: %w", what, metadata.ErrLeaseLost)
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("%s: %w: %w", what, metadata.ErrTooLarge, err)
	}
	return fmt.Errorf("%s: %w: %w", what, metadata.ErrUnavailable, err)
}

// Get implements metadata.Store.
func (s *Store) Get(parent context.Context, key string) (metadata.Row, error) {
	ctx, cancel := s.call(parent)
	defer cancel()
	resp, err := s.client.Get(ctx, s.prefix+key)
	if err != nil {
		return metadata.Row{}, s.fail(parent, "etcd: get "+key, err)
	}
	if len(resp.Kvs) == 0 {
		return metadata.Row{}, fmt.Errorf("etcd: row %s: %w", key, metadata.ErrNotFound)
	}
	kv := resp.Kvs[0]
	return metadata.Row{Key: key, Value: kv.Value, Modified: kv.ModRevision, Lease: metadata.LeaseID(kv.Lease)}, nil
}

// List implements metadata.Store: pages, all at the revision of the first.
func (s *Store) List(parent context.Context, prefix string) (metadata.Listing, error) {
	var l metadata.Listing
	from := s.prefix + prefix
	end := clientv3.GetPrefixRangeEnd(from)
	for {
		opts := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(listPage)}
		if l.Revision != 0 {
			opts = append(opts, clientv3.WithRev(l.Revision))
		}
		ctx, cancel := s.call(parent)
		resp, err := s.client.Get(ctx, from, opts...)
		cancel()
		if err != nil {
			return metadata.Listing{}, s.fail(parent, "etcd: list "+prefix, err)
		}
		if l.Revision == 0 {
			l.Revision = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			l.Rows = append(l.Rows, metadata.Row{
				Key: string(kv.Key[len(s.prefix):]), Value: kv.Value,
				Modified: kv.ModRevision, Lease: metadata.LeaseID(kv.Lease),
			})
		}
		if !resp.More || len(resp.Kvs) == 0 {
			return l, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// Commit implements metadata.Store.
func (s *Store) Commit(parent context.Context, t metadata.Txn) (int64, error) {
	if err := t.Check(); err != nil {
		return 0, err
	}
	guards := make([]clientv3.Cmp, 0, len(t.Guards))
	for _, g := range t.Guards {
		// The revision of a row that does not exist is 0.
		guards = append(guards, clientv3.Compare(clientv3.ModRevision(s.prefix+g.Key), "=", g.Revision))
	}
	writes := make([]clientv3.Op, 0, len(t.Writes))
	for i := range t.Writes {
		w := &t.Writes[i]
		switch {
		case w.Delete:
			writes = append(writes, clientv3.OpDelete(s.prefix+w.Key))
		case w.Lease != 0:
			writes = append(writes, clientv3.OpPut(s.prefix+w.Key, string(w.Value), clientv3.WithLease(clientv3.LeaseID(w.Lease))))
		default:
			writes = append(writes, clientv3.OpPut(s.prefix+w.Key, string(w.Value)))
		}
	}
	ctx, cancel := s.call(parent)
	defer cancel()
	resp, err := s.client.Txn(ctx).If(guards...).Then(writes...).Commit()
	if err != nil {
		return 0, s.fail(parent, "etcd: commit", err)
	}
	if !resp.Succeeded {
		return 0, fmt.Errorf("etcd: commit with %d guards: %w", len(guards), metadata.ErrFenced)
	}
	return resp.Header.Revision, nil
}

// Watch implements metadata.Store.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) <-chan metadata.Changes {
	out := make(chan metadata.Changes)
	if !s.spawn(func() { s.watch(ctx, prefix, after, out) }) {
		close(out)
	}
	return out
}

func (s *Store) watch(parent context.Context, prefix string, after int64, out chan<- metadata.Changes) {
	defer close(out)
	// A member that has lost its leader would be silent for ever: it must say so.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(parent))
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	in := s.client.Watch(ctx, s.prefix+prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1))
	for resp := range in {
		c := metadata.Changes{Revision: resp.Header.Revision}
		if err := resp.Err(); err != nil {
			c.Err = s.fail(parent, "etcd: watch "+prefix, err)
		}
		for _, ev := range resp.Events {
			ch := metadata.Change{
				Row:     metadata.Row{Key: string(ev.Kv.Key[len(s.prefix):]), Modified: ev.Kv.ModRevision},
				Deleted: ev.Type == clientv3.EventTypeDelete,
			}
			if !ch.Deleted {
				ch.Row.Value, ch.Row.Lease = ev.Kv.Value, metadata.LeaseID(ev.Kv.Lease)
			}
			// The header may be ahead of what this answer contains.
			c.Revision = ch.Row.Modified
			c.Changes = append(c.Changes, ch)
		}
		if c.Err == nil && len(c.Changes) == 0 {
			continue
		}
		select {
		case out <- c:
		case <-ctx.Done():
			return
		}
		if c.Err != nil {
			return
		}
	}
	if ctx.Err() == nil {
		select {
		case out <- metadata.Changes{Err: fmt.Errorf("etcd: watch %s ended: %w", prefix, metadata.ErrUnavailable)}:
		case <-ctx.Done():
		}
	}
}
