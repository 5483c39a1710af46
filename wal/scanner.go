package wal

import (
	"errors"
	"fmt"
	"io"

	"thermocline/wal/vfs"
)

// readAhead is how much of a file the scanner reads at once: groups are mostly
// smaller, and a disk is at its full speed with it.
const readAhead = 1 << 20

// damage says what does not hold at an offset.
type damage struct {
	off             int64
	expected, found string
	// header: the group's header is good, its records are not.
	header bool
}

// scanner reads the groups of one file in order. It is what recovery, Scan and
// the tests see a file through; it changes nothing.
type scanner struct {
	name  string
	file  vfs.File
	size  int64
	head  fileHeader
	use   uint64   // what the checksums cover: head's, but for a planted bug
	start Position // likewise

	buf []byte
	at  int64 // file offset of buf
}

// openScanner reads the file's header. found is empty when it is good.
func openScanner(file vfs.File, name string) (*scanner, *damage, error) {
	size, err := file.Size()
	if err != nil {
		return nil, nil, err
	}
	s := &scanner{name: name, file: file, size: size}
	b, err := s.window(0, fileHeaderLen)
	if err != nil {
		return nil, nil, err
	}
	if len(b) < fileHeaderLen {
		return s, &damage{expected: "a file header", found: fmt.Sprintf("%d bytes", len(b))}, nil
	}
	h, expected, found := decodeFileHeader(b)
	if found != "" {
		return s, &damage{expected: expected, found: found}, nil
	}
	if use, _ := parseName(name, livePrefix); use != h.use {
		return s, &damage{expected: fmt.Sprintf("use number %d", use), found: fmt.Sprint(h.use)}, nil
	}
	s.head, s.use, s.start = h, h.use, h.start
	return s, nil, nil
}

// window returns n bytes at off, fewer at the end of the file. They are valid
// until the next call.
func (s *scanner) window(off int64, n int) ([]byte, error) {
	if n = int(max(0, min(int64(n), s.size-off))); n == 0 {
		return nil, nil
	}
	if in := off - s.at; in >= 0 && in+int64(n) <= int64(len(s.buf)) {
		return s.buf[in : in+int64(n)], nil
	}
	want := int(min(int64(max(n, readAhead)), s.size-off))
	if cap(s.buf) < want {
		s.buf = make([]byte, want)
	}
	s.buf, s.at = s.buf[:want], off
	got, err := s.file.ReadAt(s.buf, off)
	if got < want {
		s.buf = s.buf[:0]
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("wal: read of %s at %d: expected %d bytes, found %d: %w", s.name, off, want, got, err)
	}
	return s.buf[:n], nil
}

// header reads the group header at off.
func (s *scanner) header(off int64) (groupHeader, *damage, error) {
	if off+groupHeaderLen > s.head.length {
		return groupHeader{}, &damage{off: off, expected: "a group", found: "the end of the file"}, nil
	}
	b, err := s.window(off, groupHeaderLen)
	if err != nil {
		return groupHeader{}, nil, err
	}
	if len(b) < groupHeaderLen {
		return groupHeader{}, &damage{off: off, expected: "a group header", found: fmt.Sprintf("%d bytes", len(b))}, nil
	}
	h, expected, found := decodeGroupHeader(b, s.use, s.start+Position(off))
	if found == "" && off+int64(h.length) > s.head.length {
		expected, found = fmt.Sprintf("a group within %d bytes", s.head.length), fmt.Sprintf("length %d", h.length)
	}
	if found != "" {
		return h, &damage{off: off, expected: expected, found: found}, nil
	}
	return h, nil, nil
}

// group reads the group at off and hands out its records once all of them are
// known to be good. What each gets is valid during the call.
func (s *scanner) group(off int64, each func(r *record, off int64) error) (groupHeader, *damage, error) {
	h, d, err := s.header(off)
	if d != nil || err != nil {
		return h, d, err
	}
	b, err := s.window(off, int(h.length))
	if err != nil {
		return h, nil, err
	}
	if len(b) < int(h.length) {
		return h, &damage{off: off, expected: fmt.Sprintf("%d bytes", h.length), found: fmt.Sprintf("%d", len(b)), header: true}, nil
	}
	if d := s.check(b, off, h); d != nil {
		return h, d, nil
	}
	in := int64(groupHeaderLen)
	for range h.records {
		r, _ := splitRecord(b[in:])
		if err := each(&r, off+in); err != nil {
			return h, nil, err
		}
		in += r.size()
	}
	return h, nil, nil
}

// check sees that the records of the group b are good and fill it.
func (s *scanner) check(b []byte, off int64, h groupHeader) *damage {
	in := int64(groupHeaderLen)
	for range h.records {
		r, _, expected, found := decodeRecord(b[in:], s.use, s.start+Position(off+in))
		if found != "" {
			return &damage{off: off + in, expected: expected, found: found, header: true}
		}
		in += r.size()
	}
	if in != int64(h.length) {
		return &damage{off: off + in, expected: fmt.Sprintf("the group to end at %d", off+int64(h.length)), found: fmt.Sprint(off + in), header: true}
	}
	return nil
}

// findHeader looks for a group header in the blocks behind off: proof that what
// is at off was synced before it.
func (s *scanner) findHeader(off, align int64) (at int64, h groupHeader, ok bool, err error) {
	for at = (off/align + 1) * align; at+groupHeaderLen <= min(s.size, s.head.length); at += align {
		b, err := s.window(at, groupHeaderLen)
		if err != nil {
			return 0, h, false, err
		}
		if le.Uint32(b) != groupMagic {
			continue
		}
		h, _, found := decodeGroupHeader(b, s.use, s.start+Position(at))
		if found == "" {
			return at, h, true, nil
		}
	}
	return 0, h, false, nil
}
