package batch

import "math"

// minRecord is the smallest record: a length and six one-byte fields.
const minRecord = 7

// fields is what the gate looks at in a record.
type fields struct {
	timestampDelta int64
	offsetDelta    int32
	nullKey        bool
}

// flaw names what is wrong with a record; "" is a sound one. A string and not
// an error, so that the hot path has nothing to allocate.
type flaw string

const (
	flawLength    flaw = "length does not match its content"
	flawVarint    flaw = "malformed variable-length number"
	flawEnds      flaw = "ends before its content does"
	flawKeyLen    flaw = "negative key length"
	flawValueLen  flaw = "negative value length"
	flawHeaders   flaw = "invalid number of headers"
	flawHeaderKey flaw = "null header key"
	flawAttr      flaw = "unknown attributes"
)

// scanRecord reads a whole record's body (what follows its length).
func scanRecord(p []byte, f *fields) flaw {
	if len(p) < minRecord-1 {
		return flawLength
	}
	if p[0] != 0 {
		return flawAttr
	}
	i := 1
	if u, n := varintShort(p, i); n != 0 {
		f.timestampDelta, i = int64(u>>1)^-int64(u&1), i+n
	} else if f.timestampDelta, n = varint64(p[i:]); n > 0 {
		i += n
	} else {
		return flawVarint
	}
	if u, n := varintShort(p, i); n != 0 {
		f.offsetDelta, i = int32(u>>1)^-int32(u&1), i+n
	} else if f.offsetDelta, n = varint32(p[i:]); n > 0 {
		i += n
	} else {
		return flawVarint
	}
	key, i, bad := skipBytes(p, i)
	if bad != "" {
		return keyFlaw(bad)
	}
	f.nullKey = key < 0
	if _, i, bad = skipBytes(p, i); bad != "" {
		return bad
	}
	if i == len(p)-1 && p[i] == 0 {
		return "" // no headers: nearly every record
	}
	count, n := varint32(p[i:])
	if n <= 0 {
		return flawVarint
	}
	i += n
	if count < 0 || count > MaxHeaders {
		return flawHeaders
	}
	for range count {
		if key, i, bad = skipBytes(p, i); bad != "" {
			return bad
		}
		if key < 0 {
			return flawHeaderKey
		}
		if _, i, bad = skipBytes(p, i); bad != "" {
			return bad
		}
	}
	if i != len(p) {
		return flawLength
	}
	return ""
}

// skipBytes reads a length at p[i] and steps over so many bytes; -1 is null.
func skipBytes(p []byte, i int) (length int32, next int, bad flaw) {
	if u, n := varintShort(p, i); n != 0 {
		length, i = int32(u>>1)^-int32(u&1), i+n
	} else if length, n = varint32(p[i:]); n > 0 {
		i += n
	} else {
		return 0, i, flawVarint
	}
	if length > 0 {
		if int(length) > len(p)-i {
			return 0, i, flawEnds
		}
		return length, i + int(length), ""
	}
	if length < -1 {
		return 0, i, flawValueLen
	}
	return length, i, ""
}

func keyFlaw(f flaw) flaw {
	if f == flawValueLen {
		return flawKeyLen
	}
	return f
}

// longRecord reads the body of a record that is longer than the window,
// holding none of it. left is what its length leaves.
type longRecord struct {
	w    *window
	left int
}

func (l *longRecord) scan(f *fields) flaw {
	if l.left < minRecord-1 {
		return flawLength
	}
	if !l.w.need(1) || l.w.have() == 0 {
		return flawEnds
	}
	if l.w.buf[l.w.r] != 0 {
		return flawAttr
	}
	l.w.r++
	l.left--
	var bad flaw
	if f.timestampDelta, bad = l.varint64(); bad != "" {
		return bad
	}
	if f.offsetDelta, bad = l.varint32(); bad != "" {
		return bad
	}
	key, bad := l.skipBytes()
	if bad != "" {
		return keyFlaw(bad)
	}
	f.nullKey = key < 0
	if _, bad = l.skipBytes(); bad != "" {
		return bad
	}
	count, bad := l.varint32()
	if bad != "" {
		return bad
	}
	if count < 0 || count > MaxHeaders {
		return flawHeaders
	}
	for range count {
		if key, bad = l.skipBytes(); bad != "" {
			return bad
		}
		if key < 0 {
			return flawHeaderKey
		}
		if _, bad = l.skipBytes(); bad != "" {
			return bad
		}
	}
	if l.left != 0 {
		return flawLength
	}
	return ""
}

// head is the next bytes for a number: within the record, and within the window.
func (l *longRecord) head(n int) []byte {
	if !l.w.need(min(n, l.left)) {
		return nil
	}
	return l.w.buf[l.w.r : l.w.r+min(n, l.left, l.w.have())]
}

func (l *longRecord) took(n int) flaw {
	if n <= 0 {
		return flawVarint
	}
	l.w.r += n
	l.left -= n
	return ""
}

func (l *longRecord) varint64() (int64, flaw) {
	v, n := varint64(l.head(maxVarint64))
	return v, l.took(n)
}

func (l *longRecord) varint32() (int32, flaw) {
	v, n := varint32(l.head(maxVarint32))
	return v, l.took(n)
}

func (l *longRecord) skipBytes() (int32, flaw) {
	n, bad := l.varint32()
	switch {
	case bad != "":
		return 0, bad
	case n < -1:
		return 0, flawValueLen
	case n <= 0:
		return n, ""
	case int(n) > l.left || !l.w.skip(int(n)):
		return 0, flawEnds
	}
	l.left -= int(n)
	return n, ""
}

// addTimestamp adds a record's delta to the batch's first timestamp; ok is
// false on overflow and for what is no time at all (below -1, which means none).
func addTimestamp(first, delta int64) (ts int64, ok bool) {
	if delta > 0 && first > math.MaxInt64-delta || delta < 0 && first < math.MinInt64-delta {
		return 0, false
	}
	ts = first + delta
	return ts, ts >= -1
}
