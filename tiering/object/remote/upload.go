package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"thermocline/tiering/object"
)

// paceBytes is how much of a body goes at once: small against a disk's or a
// link's queue, large against the cost of asking the pacer.
const paceBytes = 256 << 10

// abortWithin bounds the clean-up after a failed upload; what it leaves is
// found by AbortUploads.
const abortWithin = 10 * time.Second

// section is what a request reads: n bytes of a body from base on, each piece
// paced, each read a sign of life for the watchdog.
//
// net/http may still be reading a request's body when it has returned an error
// for it: mu and closed keep such a read away from a body that is the caller's
// again.
type section struct {
	ctx  context.Context
	base int64
	n    int64
	pace func(context.Context, int) error
	// touch is told that bytes move.
	touch func()

	mu     sync.Mutex
	closed bool
	body   io.ReaderAt
	pos    int64
	paced  int64 // bytes that the pacer has let through; never given back, also when read again
	err    error // of the body itself: not the store's fault
}

var errClosed = errors.New("read of a body after its request has ended")

// Read implements io.Reader.
func (r *section) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, errClosed
	}
	left := r.n - r.pos
	if left <= 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), left, paceBytes)]
	if end := r.pos + int64(len(p)); r.pace != nil && end > r.paced {
		r.touch() // the wait is ours, not the store's
		more := min(paceBytes, r.n-r.paced)
		if err := r.pace(r.ctx, int(more)); err != nil {
			return 0, err
		}
		r.paced += more
	}
	n, err := r.body.ReadAt(p, r.base+r.pos)
	if n < len(p) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		r.err = err
		return n, err
	}
	r.pos += int64(n)
	r.touch()
	return n, nil
}

// Seek implements io.Seeker.
func (r *section) Seek(offset int64, whence int) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += r.pos
	case io.SeekEnd:
		offset += r.n
	}
	if offset < 0 {
		return 0, errors.New("seek before the start")
	}
	r.pos = offset
	return offset, nil
}

// send runs one attempt at sending a section, and tells the body's own
// failure from the store's.
func (s *Store) send(ctx context.Context, touch func(), op, key string, body object.Body, base, n int64, crc uint32, fn func(Part) error) error {
	ctx, cancel := context.WithCancel(ctx)
	r := &section{ctx: ctx, body: body, base: base, n: n, pace: s.o.Pace, touch: touch}
	err := fn(Part{ReadSeeker: r, Size: n, CRC32C: crc})
	cancel() // wakes a read that the pacer holds
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.err != nil {
		return object.NewError(op, key, object.ErrCorrupt, fmt.Errorf("reading the body: %w", r.err))
	}
	return err
}

// Put implements object.Store.
func (s *Store) Put(ctx context.Context, key string, body object.Body, o object.PutOptions) error {
	if err := object.CheckKey(key); err != nil {
		return object.NewError("put", key, object.ErrRefused, err)
	}
	if body.Size() > s.o.PartBytes {
		return s.putInParts(ctx, key, body, o, s.o.PartBytes)
	}
	if s.verify {
		if err := verify(key, body, o.CRC32C); err != nil {
			return err
		}
	}
	return s.retry(ctx, "put", key, func(actx context.Context, touch func(), n int) error {
		err := s.send(actx, touch, "put", key, body, 0, body.Size(), o.CRC32C, func(p Part) error {
			return s.c.Put(actx, s.prefix+key, p, o.IfAbsent)
		})
		if err != nil && n > 0 && o.IfAbsent {
			return s.settle(ctx, actx, key, body.Size(), o.CRC32C, err)
		}
		return err
	})
}

func verify(key string, body object.Body, want uint32) error {
	crc, err := object.Checksum(body)
	if err == nil && crc != want {
		err = fmt.Errorf("expected CRC32C %08x, found %08x", want, crc)
	}
	if err != nil {
		return object.NewError("put", key, object.ErrCorrupt, err)
	}
	return nil
}

// settle decides what it means that a create, or the completion of an upload,
// finds the key taken or the upload gone, after an earlier attempt whose
// outcome is unknown: success, if the object there is ours.
func (s *Store) settle(ctx, actx context.Context, key string, size int64, crc uint32, err error) error {
	answer := classify(ctx, actx, "put", key, err)
	if !errors.Is(answer, object.ErrExists) && !errors.Is(answer, object.ErrNotFound) {
		return answer
	}
	info, herr := s.c.Head(actx, s.prefix+key)
	if herr != nil {
		if there := classify(ctx, actx, "put", key, herr); !errors.Is(there, object.ErrNotFound) {
			return there
		}
		return answer
	}
	if info.Size != size {
		return answer
	}
	if !info.HasCRC { // the store keeps none: look at the bytes
		if info.CRC32C, herr = s.checksumOf(actx, key, size); herr != nil {
			return herr
		}
	}
	if info.CRC32C != crc {
		return answer
	}
	return nil
}

// checksumOf reads a whole object, with one request: the connection that it
// runs on is the caller's.
func (s *Store) checksumOf(ctx context.Context, key string, size int64) (uint32, error) {
	if size == 0 {
		return 0, nil
	}
	resp, err := s.c.Get(ctx, s.prefix+key, 0, size, "")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	crc, buf := uint32(0), make([]byte, min(size, paceBytes))
	for left := size; left > 0; {
		n, err := io.ReadFull(resp.Body, buf[:min(left, int64(len(buf)))])
		if err != nil {
			return 0, err
		}
		crc, left = object.UpdateCRC32C(crc, buf[:n]), left-int64(n)
	}
	return crc, nil
}

// PutInParts implements object.Probe.
func (s *Store) PutInParts(ctx context.Context, key string, body object.Body, o object.PutOptions) error {
	if err := object.CheckKey(key); err != nil {
		return object.NewError("put", key, object.ErrRefused, err)
	}
	return s.putInParts(ctx, key, body, o, object.PartBytesMin)
}

func (s *Store) putInParts(ctx context.Context, key string, body object.Body, o object.PutOptions, partBytes int64) error {
	if o.IfAbsent { // spares the upload; its completion decides
		if _, err := s.Head(ctx, key); err == nil {
			return object.NewError("put", key, object.ErrExists, nil)
		} else if !errors.Is(err, object.ErrNotFound) {
			return err
		}
	}
	// Round up to whole MiB so that a huge body stays within PartsMax parts.
	if least := (body.Size() + object.PartsMax - 1) / object.PartsMax; partBytes < least {
		partBytes = (least + 1<<20 - 1) &^ (1<<20 - 1)
	}
	var id string
	err := s.retry(ctx, "put", key, func(ctx context.Context, _ func(), _ int) (err error) {
		id, err = s.c.CreateUpload(ctx, s.prefix+key)
		return err
	})
	if err != nil {
		return err
	}
	parts, crc, err := s.sendParts(ctx, key, id, body, partBytes)
	if err == nil && crc != o.CRC32C {
		err = object.NewError("put", key, object.ErrCorrupt, fmt.Errorf("expected CRC32C %08x, found %08x", o.CRC32C, crc))
	}
	if err == nil {
		err = s.retry(ctx, "put", key, func(actx context.Context, _ func(), n int) error {
			err := s.c.CompleteUpload(actx, s.prefix+key, id, parts, crc, o.IfAbsent)
			if err != nil && n > 0 {
				return s.settle(ctx, actx, key, body.Size(), crc, err)
			}
			return err
		})
	}
	if err != nil {
		s.abort(ctx, key, id)
	}
	return err
}

// abort is the best effort; the error that led to it is the one to report.
func (s *Store) abort(ctx context.Context, key, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
	defer cancel()
	_ = s.once(ctx, "abort", key, func(ctx context.Context, _ func()) error {
		return s.c.AbortUpload(ctx, s.prefix+key, id)
	})
}

// sendParts uploads all parts, PartsInFlight at a time, and returns them in
// order with the checksum of the whole. It returns after the last of them.
func (s *Store) sendParts(ctx context.Context, key, id string, body object.Body, partBytes int64) ([]Uploaded, uint32, error) {
	count := int(max(1, (body.Size()+partBytes-1)/partBytes))
	parts := make([]Uploaded, count)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		next int
		fail error
	)
	for range min(count, s.o.PartsInFlight) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= count || ctx.Err() != nil {
					return
				}
				part, err := s.sendPart(ctx, key, id, body, i, partBytes)
				if err != nil {
					mu.Lock()
					if fail == nil {
						fail = err
					}
					mu.Unlock()
					cancel(err)
					return
				}
				parts[i] = part
			}
		})
	}
	wg.Wait()
	if fail == nil {
		fail = object.Ended(ctx, "put", key)
	}
	crc := uint32(0)
	for i, p := range parts {
		crc = object.CombineCRC32C(crc, p.CRC32C, min(partBytes, body.Size()-int64(i)*partBytes))
	}
	return parts, crc, fail
}

func (s *Store) sendPart(ctx context.Context, key, id string, body object.Body, i int, partBytes int64) (Uploaded, error) {
	base := int64(i) * partBytes
	n := min(partBytes, body.Size()-base)
	crc, err := object.ChecksumRange(body, base, n)
	if err != nil {
		return Uploaded{}, object.NewError("put", key, object.ErrCorrupt, fmt.Errorf("reading the body: %w", err))
	}
	var part Uploaded
	err = s.retry(ctx, "put", key, func(ctx context.Context, touch func(), _ int) error {
		return s.send(ctx, touch, "put", key, body, base, n, crc, func(p Part) (err error) {
			part, err = s.c.UploadPart(ctx, s.prefix+key, id, i+1, p)
			return err
		})
	})
	return part, err
}

// AbortUploads implements object.Uploads: it aborts this prefix's multipart
// uploads that were begun longer ago than age, and returns how many.
func (s *Store) AbortUploads(ctx context.Context, age time.Duration) (int, error) {
	var uploads []Upload
	err := s.retry(ctx, "list uploads", "", func(ctx context.Context, _ func(), _ int) (err error) {
		uploads, err = s.c.ListUploads(ctx, s.prefix)
		return err
	})
	if err != nil {
		return 0, err
	}
	aborted := 0
	var errs []error
	for _, u := range uploads {
		if !strings.HasPrefix(u.Key, s.prefix) || time.Since(u.Begun) < age {
			continue
		}
		err := s.retry(ctx, "abort", strings.TrimPrefix(u.Key, s.prefix), func(ctx context.Context, _ func(), _ int) error {
			return s.c.AbortUpload(ctx, u.Key, u.ID)
		})
		if err != nil && !errors.Is(err, object.ErrNotFound) {
			errs = append(errs, err)
			continue
		}
		aborted++
	}
	return aborted, errors.Join(errs...)
}
