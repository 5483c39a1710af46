package batch

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// windowBytes is how much of a decompressed stream is held at a time: larger
// than most records, small enough for one per busy connection.
const windowBytes = 32 << 10

// errBomb stops a stream that gives more than its limit.
var errBomb = errors.New("decompresses to more than the limit")

// window shows a records section piece by piece: buf[r:w] is what is there now.
// For uncompressed records that is everything, and dec is nil. Otherwise more
// comes from dec by fill, and bytes before r are given up.
//
// It belongs to one goroutine and one walk. open and close bracket its use.
type window struct {
	buf   []byte
	r, w  int
	dec   decoder
	codec Codec
	store *[]byte // pooled memory behind buf, nil when uncompressed
	total int     // bytes seen so far, of all
	limit int     // bound for total
	eof   bool
	err   error // what the stream broke with; sticky
}

var windowPool = sync.Pool{New: func() any {
	b := make([]byte, windowBytes)
	return &b
}}

// open points the window at a batch's records.
func (w *window) open(b Batch, limit int) error {
	c := b.Codec()
	rec := b.Records()
	if c == None {
		if len(rec) > limit {
			return fmt.Errorf("batch records: expected at most %d bytes, found %d: %w", limit, len(rec), ErrTooLarge)
		}
		*w = window{buf: rec, w: len(rec), total: len(rec), limit: limit, eof: true}
		return nil
	}
	d, err := openDecoder(c, rec, limit)
	if err != nil {
		return err
	}
	store := windowPool.Get().(*[]byte)
	*w = window{buf: *store, store: store, dec: d, codec: c, limit: limit}
	return nil
}

func (w *window) close() {
	if w.dec == nil {
		return
	}
	closeDecoder(w.codec, w.dec, w.err == nil)
	windowPool.Put(w.store)
	*w = window{}
}

// have tells how many bytes are there without reading on.
func (w *window) have() int { return w.w - w.r }

// need makes at least n bytes available, or as many as there are until the
// end; n is at most len(buf). It returns false when the stream broke.
func (w *window) need(n int) bool {
	for w.w-w.r < n && !w.eof && w.err == nil {
		w.fill()
	}
	return w.err == nil
}

// fill reads once into the free space, after moving what is left to the front.
func (w *window) fill() {
	if w.r > 0 {
		w.w = copy(w.buf, w.buf[w.r:w.w])
		w.r = 0
	}
	// A reader that gives neither bytes nor an error is broken; the count
	// keeps it from holding us.
	for range 16 {
		n, err := w.dec.Read(w.buf[w.w:])
		w.w += n
		w.total += n
		switch {
		case w.total > w.limit || errors.Is(err, errBomb):
			w.err = fmt.Errorf("batch records: expected at most %d bytes: %w: %w", w.limit, errBomb, ErrTooLarge)
			return
		case err == io.EOF:
			w.eof = true
			if left := w.dec.unread(); left != 0 {
				w.err = fmt.Errorf("batch %s stream: %d bytes after its end: %w", w.codec, left, ErrCorrupt)
			}
			return
		case err != nil:
			w.err = decodeError(w.codec, err)
			return
		case n > 0:
			return
		}
	}
	w.err = decodeError(w.codec, io.ErrNoProgress)
}

// grow doubles the window up to n bytes, for readers that want a record whole.
// Memory follows bytes that are really there, never a length that is claimed.
func (w *window) grow(n int) {
	if w.dec == nil || n <= len(w.buf) {
		return
	}
	bigger := make([]byte, min(n, 2*len(w.buf)))
	w.w = copy(bigger, w.buf[w.r:w.w])
	w.r = 0
	w.buf = bigger // the pooled one stays in store
}

// whole makes the next n bytes available at once. It returns false when the
// stream breaks or ends before.
func (w *window) whole(n int) bool {
	for w.have() < n {
		if w.eof || w.err != nil {
			return false
		}
		if w.have() == len(w.buf) {
			w.grow(n)
		}
		w.fill()
	}
	return w.err == nil
}

// skip passes over n bytes without holding them.
func (w *window) skip(n int) bool {
	for {
		if h := w.have(); h >= n {
			w.r += n
			return true
		}
		n -= w.have()
		w.r = w.w
		if w.eof || w.err != nil {
			return false
		}
		w.fill()
	}
}

// atEnd tells whether nothing is left.
func (w *window) atEnd() bool {
	return w.need(1) && w.have() == 0
}
