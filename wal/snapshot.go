package wal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"strings"

	"thermocline/wal/vfs"
)

// SnapshotSuffix ends the name of every snapshot file in the log's directory.
const SnapshotSuffix = ".snap"

const (
	tempSuffix        = ".tmp"
	snapshotVersion   = 1
	snapshotHeaderLen = 16
	chunkHeaderLen    = 8
	// snapshotChunk bounds what is held in memory while a snapshot is written or
	// read, and what one checksum covers.
	snapshotChunk = 256 << 10
)

var snapshotMagic = [8]byte{'t', 'h', 'e', 'r', 'm', 's', 'n', 'p'}

// WriteSnapshot makes a snapshot file durable under name in dir: what write
// writes goes into a temporary file with a checksum for each chunk, is synced,
// gets its name, and the directory is synced. A name must be new and end with
// SnapshotSuffix. On an error nothing is left under the name.
func WriteSnapshot(fs vfs.FS, dir, name string, write func(io.Writer) error) error {
	if !strings.HasSuffix(name, SnapshotSuffix) || path.Base(name) != name || len(name) > maxFileName {
		return fmt.Errorf("wal: snapshot name: expected a base name that ends with %s, found %q", SnapshotSuffix, name)
	}
	temp := path.Join(dir, name+tempSuffix)
	f, err := fs.Create(temp)
	if err != nil {
		return fmt.Errorf("wal: snapshot: %w", err)
	}
	w := &snapshotWriter{f: f, buf: make([]byte, chunkHeaderLen, chunkHeaderLen+snapshotChunk)}
	if err = w.header(); err == nil {
		err = write(w)
	}
	if err == nil {
		err = w.finish()
	}
	if err = withClose(err, f); err == nil {
		err = fs.Rename(temp, path.Join(dir, name))
	} else {
		err = errors.Join(err, fs.Remove(temp))
	}
	if err == nil {
		err = fs.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("wal: snapshot %s: %w", name, err)
	}
	return nil
}

// RemoveSnapshot removes a snapshot file that no pointer names any more.
func RemoveSnapshot(fs vfs.FS, dir, name string) error {
	if !strings.HasSuffix(name, SnapshotSuffix) || path.Base(name) != name {
		return fmt.Errorf("wal: snapshot name: expected a base name that ends with %s, found %q", SnapshotSuffix, name)
	}
	return fs.Remove(path.Join(dir, name))
}

// snapshotWriter collects chunks.
type snapshotWriter struct {
	f      vfs.File
	buf    []byte // a chunk header's room, then the chunk
	off    int64
	length uint64
	err    error
}

func (w *snapshotWriter) header() error {
	var h [snapshotHeaderLen]byte
	copy(h[:], snapshotMagic[:])
	h[8] = snapshotVersion
	le.PutUint32(h[12:], crc32.Checksum(h[:12], castagnoli))
	return w.put(h[:])
}

func (w *snapshotWriter) put(b []byte) error {
	n, err := w.f.WriteAtv([][]byte{b}, w.off)
	w.off += int64(n)
	return err
}

// Write implements io.Writer.
func (w *snapshotWriter) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 && w.err == nil {
		n := min(len(p), cap(w.buf)-len(w.buf))
		w.buf, p = append(w.buf, p[:n]...), p[n:]
		if len(w.buf) == cap(w.buf) {
			w.err = w.chunk()
		}
	}
	if w.err != nil {
		return total - len(p), w.err
	}
	return total, nil
}

// chunk writes what is collected; an empty chunk ends the file.
func (w *snapshotWriter) chunk() error {
	data := w.buf[chunkHeaderLen:]
	w.length += uint64(len(data))
	le.PutUint32(w.buf, uint32(len(data)))
	le.PutUint32(w.buf[4:], chunkChecksum(data, w.length))
	err := w.put(w.buf)
	w.buf = w.buf[:chunkHeaderLen]
	return err
}

// chunkChecksum covers the data and the length of the snapshot up to its end, so
// that no chunk can go missing or change places.
func chunkChecksum(data []byte, length uint64) uint32 {
	var b [8]byte
	le.PutUint64(b[:], length)
	return crc32.Update(crc32.Checksum(b[:], castagnoli), castagnoli, data)
}

func (w *snapshotWriter) finish() error {
	if w.err == nil && len(w.buf) > chunkHeaderLen {
		w.err = w.chunk()
	}
	if w.err == nil {
		w.err = w.chunk()
	}
	if w.err != nil {
		return w.err
	}
	return w.f.Sync()
}

// OpenSnapshot opens a snapshot file for reading. Each chunk is checked before
// any of it is handed out, and io.EOF comes only after the closing chunk: what
// was read without an error is what was written. Damage is a *CorruptionError.
func OpenSnapshot(fs vfs.FS, dir, name string) (io.ReadCloser, error) {
	full := path.Join(dir, name)
	f, err := fs.Open(full)
	if err != nil {
		return nil, fmt.Errorf("wal: snapshot: %w", err)
	}
	r := &snapshotReader{f: f, name: full}
	var h [snapshotHeaderLen]byte
	if err = r.read(h[:]); err == nil {
		switch {
		case [8]byte(h[:8]) != snapshotMagic || le.Uint32(h[12:]) != crc32.Checksum(h[:12], castagnoli):
			err = r.corrupt("a snapshot header", fmt.Sprintf("%x", h))
		case h[8] != snapshotVersion:
			err = fmt.Errorf("wal: snapshot %s: expected version %d, found %d: %w", name, snapshotVersion, h[8], ErrVersion)
		}
	}
	if err != nil {
		return nil, withClose(err, f)
	}
	return r, nil
}

// snapshotReader hands out checked chunks.
type snapshotReader struct {
	f      vfs.File
	name   string
	off    int64
	buf    []byte // the chunk's room
	rest   []byte // of the chunk that is being read
	length uint64
	err    error
}

func (r *snapshotReader) corrupt(expected, found string) error {
	return &CorruptionError{File: r.name, Offset: r.off, Expected: expected, Found: found}
}

// read fills b from the file.
func (r *snapshotReader) read(b []byte) error {
	n, err := r.f.ReadAt(b, r.off)
	if n < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			return r.corrupt(fmt.Sprintf("%d bytes", len(b)), fmt.Sprint(n))
		}
		return fmt.Errorf("wal: snapshot %s: read at %d: %w", r.name, r.off, err)
	}
	r.off += int64(n)
	return nil
}

// Read implements io.Reader.
func (r *snapshotReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(r.rest) == 0 && r.err == nil {
		r.err = r.chunk()
	}
	if r.err != nil {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// chunk reads and checks the next chunk; io.EOF is the closing one.
func (r *snapshotReader) chunk() error {
	var h [chunkHeaderLen]byte
	if err := r.read(h[:]); err != nil {
		return err
	}
	n := le.Uint32(h[:])
	if n > snapshotChunk {
		return r.corrupt(fmt.Sprintf("a chunk of at most %d bytes", snapshotChunk), fmt.Sprint(n))
	}
	if r.buf == nil {
		r.buf = make([]byte, snapshotChunk)
	}
	data := r.buf[:n]
	if n > 0 {
		if err := r.read(data); err != nil {
			return err
		}
	}
	r.length += uint64(n)
	if want, got := chunkChecksum(data, r.length), le.Uint32(h[4:]); want != got {
		return r.corrupt(fmt.Sprintf("chunk checksum %08x", want), fmt.Sprintf("%08x", got))
	}
	if n == 0 {
		return io.EOF
	}
	r.rest = data
	return nil
}

// Close implements io.Closer.
func (r *snapshotReader) Close() error { return r.f.Close() }
