package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"thermocline/tiering/object"
)

// Config is what an adapter builds a Store from.
type Config struct {
	Client Client
	// Prefix is put before every key, with a slash between; empty for none.
	Prefix string
	// Verify makes the store itself compare a body with the caller's checksum
	// before it is sent, for stores that are not told the checksum.
	Verify    bool
	Transport *http.Transport // closed by Close; may be nil
	Options   object.Options
}

// Store implements object.Store over a Client.
type Store struct {
	c      Client
	prefix string
	verify bool
	o      object.Options
	conns  chan struct{} // one token per request in flight
	http   *http.Transport
}

// New returns a Store.
func New(c Config) *Store {
	o := c.Options.WithDefaults()
	prefix := c.Prefix
	if prefix != "" {
		prefix = strings.Trim(prefix, "/") + "/"
	}
	return &Store{c: c.Client, prefix: prefix, verify: c.Verify, o: o, conns: make(chan struct{}, o.MaxConns), http: c.Transport}
}

// Close closes idle connections.
func (s *Store) Close() error {
	if s.http != nil {
		s.http.CloseIdleConnections()
	}
	return nil
}

// String implements object.Store.
func (s *Store) String() string { return s.c.String() }

var errStalled = errors.New("no progress within the timeout")

// once sends one request under the limit of connections and the watchdog:
// touch must be called when bytes have moved.
func (s *Store) once(ctx context.Context, op, key string, fn func(ctx context.Context, touch func()) error) error {
	select {
	case s.conns <- struct{}{}:
	case <-ctx.Done():
		return object.Ended(ctx, op, key)
	}
	defer func() { <-s.conns }()
	attempt, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(s.o.Timeout, func() { cancel(errStalled) })
	defer watchdog.Stop()
	if err := fn(attempt, func() { watchdog.Reset(s.o.Timeout) }); err != nil {
		return classify(ctx, attempt, op, key, err)
	}
	return nil
}

// retry sends a request until it succeeds, fails for good, or has been sent
// Attempts times. n counts from 0.
func (s *Store) retry(ctx context.Context, op, key string, fn func(ctx context.Context, touch func(), n int) error) error {
	for n := 0; ; n++ {
		if err := object.Ended(ctx, op, key); err != nil {
			return err
		}
		err := s.once(ctx, op, key, func(ctx context.Context, touch func()) error { return fn(ctx, touch, n) })
		if err == nil || !object.Retryable(err) || n+1 >= s.o.Attempts {
			return err
		}
		if werr := s.backOff(ctx, n); werr != nil {
			return object.NewError(op, key, object.ErrUnavailable, errors.Join(werr, err))
		}
	}
}

// backOff waits before attempt n+2, between half of its time and the whole.
func (s *Store) backOff(ctx context.Context, n int) error {
	d := s.o.BackoffMax
	if n < 16 && s.o.Backoff<<n < d {
		d = s.o.Backoff << n
	}
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// progressShare: a read that broke off counts as an attempt unless an eighth
// of the whole came with it, so that a read ends after 8 × Attempts requests.
const progressShare = 8

// GetRange implements object.Store.
func (s *Store) GetRange(ctx context.Context, key string, offset int64, p []byte) (int, error) {
	if err := object.CheckKey(key); err != nil {
		return 0, object.NewError("get", key, object.ErrRefused, err)
	}
	if offset < 0 {
		return 0, object.NewError("get", key, object.ErrRefused, fmt.Errorf("offset %d", offset))
	}
	if len(p) == 0 {
		return 0, object.Ended(ctx, "get", key)
	}
	r := &read{s: s, key: key, offset: offset, p: p}
	for fails := 0; ; {
		if err := object.Ended(ctx, "get", key); err != nil {
			return r.got, err
		}
		before := r.got
		err := s.once(ctx, "get", key, r.attempt)
		if err == nil {
			return r.got, nil
		}
		if !object.Retryable(err) {
			return r.got, err
		}
		if (r.got-before)*progressShare >= len(p) {
			continue // it goes on at once: the store is well, a connection was not
		}
		if fails++; fails >= s.o.Attempts {
			return r.got, err
		}
		if werr := s.backOff(ctx, fails-1); werr != nil {
			return r.got, object.NewError("get", key, object.ErrUnavailable, errors.Join(werr, err))
		}
	}
}

// read is one GetRange under way.
type read struct {
	s      *Store
	key    string
	offset int64
	p      []byte
	got    int    // bytes of p that have come
	etag   string // of the version that they are from
}

func (r *read) attempt(ctx context.Context, touch func()) error {
	from := r.offset + int64(r.got)
	resp, err := r.s.c.Get(ctx, r.s.prefix+r.key, from, int64(len(r.p)-r.got), r.etag)
	if err != nil {
		var f *Failure
		if errors.As(err, &f) && r.etag != "" && errors.Is(f.kind(), object.ErrExists) {
			// Overwritten while it was read: from the start, with the new one.
			r.got, r.etag = 0, ""
			return object.NewError("get", r.key, object.ErrUnavailable, text("the object was replaced during the read"))
		}
		return err
	}
	defer resp.Body.Close()
	first, total, err := parseRange(resp)
	if err != nil || first != from {
		return object.NewError("get", r.key, object.ErrRefused, fmt.Errorf("asked for bytes from %d on, got the range %q: %w", from, resp.Range, err))
	}
	r.etag = resp.ETag
	want := int(min(int64(len(r.p)), total-r.offset))
	if want <= 0 {
		return object.NewError("get", r.key, object.ErrRange, fmt.Errorf("offset %d of %d bytes", r.offset, total))
	}
	for r.got < want {
		n, err := resp.Body.Read(r.p[r.got:want])
		r.got += n
		touch()
		if err != nil && r.got < want {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// parseRange reads "bytes first-last/total".
func parseRange(r *Response) (first, total int64, err error) {
	if r.Range == "" { // the whole object: right only if it was asked for from 0 on
		return 0, r.Length, nil
	}
	span, all, ok := strings.Cut(strings.TrimPrefix(r.Range, "bytes "), "/")
	from, _, ok2 := strings.Cut(span, "-")
	if !ok || !ok2 {
		return 0, 0, errors.New("malformed Content-Range")
	}
	first, err = strconv.ParseInt(from, 10, 64)
	if err != nil {
		return 0, 0, err
	}
	total, err = strconv.ParseInt(all, 10, 64)
	return first, total, err
}

// Head implements object.Store.
func (s *Store) Head(ctx context.Context, key string) (object.Info, error) {
	if err := object.CheckKey(key); err != nil {
		return object.Info{}, object.NewError("head", key, object.ErrRefused, err)
	}
	var info object.Info
	err := s.retry(ctx, "head", key, func(ctx context.Context, _ func(), _ int) (err error) {
		info, err = s.c.Head(ctx, s.prefix+key)
		return err
	})
	info.Key = key
	return info, err
}

// List implements object.Store.
func (s *Store) List(ctx context.Context, prefix, after string, fn func(object.Info) bool) error {
	return s.ListInPages(ctx, prefix, after, object.BatchKeysMax, fn)
}

// ListInPages implements object.Probe.
func (s *Store) ListInPages(ctx context.Context, prefix, after string, pageKeys int, fn func(object.Info) bool) error {
	last := after
	for {
		var page []object.Info
		err := s.retry(ctx, "list", prefix, func(ctx context.Context, _ func(), _ int) (err error) {
			from := ""
			if last != "" {
				from = s.prefix + last
			}
			page, err = s.c.ListPage(ctx, s.prefix+prefix, from, pageKeys)
			return err
		})
		if err != nil {
			return err
		}
		for _, info := range page {
			key, ok := strings.CutPrefix(info.Key, s.prefix)
			if !ok || !strings.HasPrefix(key, prefix) || key <= last {
				return object.NewError("list", prefix, object.ErrRefused, fmt.Errorf("the store lists %q after %q: not in byte order, or not what was asked for", info.Key, last))
			}
			info.Key, last = key, key
			if !fn(info) {
				return nil
			}
		}
		if len(page) < pageKeys {
			return nil
		}
	}
}

// Delete implements object.Store.
func (s *Store) Delete(ctx context.Context, keys []string) (map[string]error, error) {
	failed := map[string]error{}
	full := make([]string, 0, len(keys))
	seen := make(map[string]bool, len(keys))
	for _, key := range keys {
		if err := object.CheckKey(key); err != nil {
			failed[key] = object.NewError("delete", key, object.ErrRefused, err)
		} else if !seen[key] { // some stores refuse a key that is named twice
			seen[key] = true
			full = append(full, s.prefix+key)
		}
	}
	for len(full) > 0 {
		batch := full[:min(len(full), object.BatchKeysMax)]
		if err := s.deleteBatch(ctx, batch, failed); err != nil {
			for _, key := range full { // this batch's and those that were not tried
				failed[strings.TrimPrefix(key, s.prefix)] = err
			}
			return failed, err
		}
		full = full[len(batch):]
	}
	return failed, object.Ended(ctx, "delete", "")
}

// deleteBatch removes one batch; keys that failed in a way that may pass are
// sent again with the next attempt.
func (s *Store) deleteBatch(ctx context.Context, batch []string, failed map[string]error) error {
	first := strings.TrimPrefix(batch[0], s.prefix)
	var again []string
	err := s.retry(ctx, "delete", first, func(actx context.Context, _ func(), n int) error {
		errs, err := s.c.DeleteBatch(actx, batch)
		if err != nil {
			return err
		}
		again = nil
		for full, err := range errs {
			key := strings.TrimPrefix(full, s.prefix)
			kerr := classify(ctx, actx, "delete", key, err)
			switch {
			case errors.Is(kerr, object.ErrNotFound):
			case object.Retryable(kerr) && n+1 < s.o.Attempts:
				again = append(again, full)
			default:
				failed[key] = kerr
			}
		}
		if batch = again; len(again) > 0 {
			return object.NewError("delete", first, object.ErrUnavailable, fmt.Errorf("%d keys of a batch failed for now", len(again)))
		}
		return nil
	})
	if err != nil && len(again) > 0 { // the context ended between two attempts
		for _, full := range again {
			failed[strings.TrimPrefix(full, s.prefix)] = err
		}
		return object.Ended(ctx, "delete", first)
	}
	return err
}
