package tiering

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"thermocline/tiering/format"
	"thermocline/tiering/object"
)

func randomUint64() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: the runtime ends the process instead
	return binary.LittleEndian.Uint64(b[:])
}

// upload puts an object under a name of its own and verifies it, for ever with
// backoff, until ctx ends. It returns the key below the cluster's prefix.
func (s *Sealer) upload(ctx context.Context, name format.Name, body object.Body, crc uint32) (string, error) {
	for attempt := 0; ; attempt++ {
		name.Random = s.o.Random()
		key := name.Key()
		err := s.attempt(ctx, key, body, crc)
		if err == nil {
			return key, nil
		}
		// Whatever the answer was, the object may be there, now or later.
		s.giveUp(name)
		if ctx.Err() != nil {
			return "", fmt.Errorf("tiering: upload of %s: %w", key, context.Cause(ctx))
		}
		s.failed("upload", err, attempt)
		if !s.wait(ctx, attempt) {
			return "", fmt.Errorf("tiering: upload of %s: %w", key, context.Cause(ctx))
		}
	}
}

// attempt is one PUT and the check of it. The check is repeated for a while,
// since it is cheaper than another upload.
func (s *Sealer) attempt(ctx context.Context, key string, body object.Body, crc uint32) error {
	s.count.attempts.Add(1)
	full := format.ObjectKey(s.o.Cluster, key)
	err := s.bounded(ctx, func(ctx context.Context) error {
		paced := &pacedBody{Body: body, ctx: ctx, s: s}
		return s.o.Store.Put(ctx, full, paced, object.PutOptions{IfAbsent: true, CRC32C: crc})
	})
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		err = s.bounded(ctx, func(ctx context.Context) error { return verify(ctx, s.o.Store, full, body, crc) })
		if err == nil || !errors.Is(err, object.ErrUnavailable) || n == verifyAttempts {
			return err
		}
		s.failed("verify", err, n)
		if !s.wait(ctx, n) {
			return err
		}
	}
}

func (s *Sealer) bounded(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.AttemptTimeout)
	defer cancel()
	return fn(ctx)
}

// Verify asks the store what it has under key, and reads it back where the store
// cannot tell the checksum. It returns nil when that is body, with checksum crc.
func Verify(ctx context.Context, store object.Store, key string, body object.Body, crc uint32) error {
	return verify(ctx, store, key, body, crc)
}

func verify(ctx context.Context, store object.Store, key string, body object.Body, crc uint32) error {
	info, err := store.Head(ctx, key)
	if err != nil {
		return err
	}
	if info.Size != body.Size() {
		return fmt.Errorf("verify %s: expected %d bytes, found %d: %w", key, body.Size(), info.Size, object.ErrCorrupt)
	}
	if info.HasCRC {
		if info.CRC32C != crc {
			return fmt.Errorf("verify %s: expected crc %08x, found %08x: %w", key, crc, info.CRC32C, object.ErrCorrupt)
		}
		return nil
	}
	buf := make([]byte, min(info.Size, 4<<20))
	var found uint32
	for at := int64(0); at < info.Size; {
		p := buf[:min(int64(len(buf)), info.Size-at)]
		n, err := store.GetRange(ctx, key, at, p)
		if err != nil {
			return err
		}
		if n < len(p) {
			return fmt.Errorf("verify %s: expected %d bytes at %d, found %d: %w", key, len(p), at, n, object.ErrCorrupt)
		}
		found = format.UpdateChecksum(found, p)
		at += int64(n)
	}
	if found != crc {
		return fmt.Errorf("verify %s: expected crc %08x, read back %08x: %w", key, crc, found, object.ErrCorrupt)
	}
	return nil
}

// wait sleeps for a backoff with jitter; false when ctx has ended.
func (s *Sealer) wait(ctx context.Context, attempt int) bool {
	d := s.o.BackoffMax
	if attempt < 16 {
		d = min(d, s.o.BackoffMin<<attempt)
	}
	d = d/2 + time.Duration(mathrand.Int64N(int64(d/2)+1))
	return sleep(ctx, d)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// failed counts a failure and logs it: the first ones of a streak, then one in
// sixteen, so that a long outage does not fill the log.
func (s *Sealer) failed(what string, err error, attempt int) {
	s.count.failures.Add(1)
	if s.blockedSince.Load() == 0 {
		s.blockedSince.Store(s.o.Now().UnixNano())
	}
	if attempt < 3 || attempt%16 == 0 {
		s.o.Logger.Warn("tiering: "+what+" failed, trying again", "shard", s.o.Shard, "attempt", attempt+1, "error", err)
	}
}

// giveUp remembers a name that will never be committed.
func (s *Sealer) giveUp(n format.Name) {
	s.count.orphans.Add(1)
	s.remember(n)
}

// superseded remembers the name of an object that a commit has replaced:
// nothing refers to it any more, and nothing will.
func (s *Sealer) superseded(key string) {
	if name, err := format.ParseName(key); err == nil {
		s.remember(name)
	}
}

func (s *Sealer) remember(n format.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.givenUp) == givenUpMax {
		s.givenUp = s.givenUp[1:]
	}
	s.givenUp = append(s.givenUp, n)
}

// GivenUp lists uploads that this sealer will never commit, and objects that
// its commits have replaced: orphans before a higher term comes, if they are in
// the store at all.
func (s *Sealer) GivenUp() []format.Name {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]format.Name(nil), s.givenUp...)
}

const (
	// verifyAttempts bounds the checks of one upload before it is repeated.
	verifyAttempts = 6
	// paceFloor is the slowest upload: a trickle of data is not worth a
	// connection held for minutes.
	paceFloor = 8 << 20
	// paceBurst is what may pass at once: a part of an upload.
	paceBurst = 1 << 20
	// paceMemory is how long the measured rate looks back.
	paceMemory = 5 * time.Second
)

// pace spreads an upload, so that it is no burst on a shared disk or network.
// The rate follows what comes in; an urgent seal is not held back.
type pace struct {
	mu     sync.Mutex
	factor float64
	urgent bool
	rate   float64 // bytes/s of ingest, smoothed
	total  int64   // bytes ever seen pending or tiered
	seen   time.Time
	next   time.Time // when the next byte may go
}

// observe tells how many bytes have come in all.
func (p *pace) observe(now time.Time, total int64, urgent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.urgent = urgent
	if !p.seen.IsZero() {
		d := now.Sub(p.seen)
		if d <= 0 {
			return
		}
		w := min(1, float64(d)/float64(paceMemory))
		p.rate += w * (float64(max(0, total-p.total))/d.Seconds() - p.rate)
	}
	p.total, p.seen = total, now
}

// delay takes n bytes and returns how long to wait before they go.
func (p *pace) delay(now time.Time, n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.factor < 0 || p.urgent {
		p.next = time.Time{}
		return 0
	}
	rate := max(p.factor*p.rate, paceFloor)
	if earliest := now.Add(-time.Duration(float64(paceBurst) / rate * float64(time.Second))); p.next.Before(earliest) {
		p.next = earliest
	}
	d := p.next.Sub(now)
	p.next = p.next.Add(time.Duration(float64(n) / rate * float64(time.Second)))
	return d
}

// pacedBody holds back the first reading of each byte; reading again, as a
// repeated request does, costs nothing.
type pacedBody struct {
	object.Body
	ctx  context.Context
	s    *Sealer
	mu   sync.Mutex
	sent int64
	seen time.Time
}

// ReadAt implements io.ReaderAt.
func (b *pacedBody) ReadAt(p []byte, at int64) (int, error) {
	now := b.s.o.Now()
	b.mu.Lock()
	look := now.Sub(b.seen) >= b.s.o.Tick
	if look {
		b.seen = now
	}
	fresh := max(0, min(at+int64(len(p)), b.Size())-max(at, b.sent))
	b.sent = max(b.sent, min(at+int64(len(p)), b.Size()))
	b.mu.Unlock()
	if look {
		b.s.observe(now) // an upload takes longer than a tick, and may become urgent
	}
	if fresh > 0 {
		if d := b.s.pace.delay(now, int(fresh)); d > 0 && !sleep(b.ctx, d) {
			return 0, fmt.Errorf("tiering: upload: %w", context.Cause(b.ctx))
		}
	}
	n, err := b.Body.ReadAt(p, at)
	if errors.Is(err, io.EOF) && n == len(p) {
		err = nil
	}
	return n, err
}
