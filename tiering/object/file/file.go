package file

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"thermocline/tiering/object"
)

const (
	uploads = ".uploads"
	// staleAfter: no upload takes a day.
	staleAfter = 24 * time.Hour
	folderMode = 0o755

	magic        = "TCOBJECT"
	version      = 1
	trailerBytes = 32
)

// Store implements object.Store in a directory.
type Store struct {
	dir string

	// sync is fsync of a file or folder; tests replace it to count and to fail.
	sync func(*os.File) error

	mu      sync.Mutex
	durable map[string]bool // folders that are known to be on disk, by path
}

// durableMax bounds Store.durable; beyond it the map starts anew, which costs
// some needless fsyncs.
const durableMax = 10_000

// Open uses dir, which is created if need be.
func Open(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("object directory %q: %w", dir, err)
	}
	s := &Store{dir: dir, sync: (*os.File).Sync, durable: map[string]bool{}}
	if err := os.MkdirAll(filepath.Join(dir, uploads), folderMode); err != nil {
		return nil, fmt.Errorf("object directory: %w", err)
	}
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := s.syncFolder(d); err != nil {
			return nil, fmt.Errorf("object directory: %w", err)
		}
	}
	s.durable[dir] = true
	return s, s.removeStale()
}

func (s *Store) removeStale() error {
	left, err := os.ReadDir(filepath.Join(s.dir, uploads))
	if err != nil {
		return fmt.Errorf("object directory: %w", err)
	}
	for _, e := range left {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > staleAfter {
			if err := os.Remove(filepath.Join(s.dir, uploads, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("object directory: stale upload: %w", err)
			}
		}
	}
	return nil
}

// Put implements object.Store.
func (s *Store) Put(ctx context.Context, key string, body object.Body, o object.PutOptions) error {
	if err := object.CheckKey(key); err != nil {
		return object.NewError("put", key, object.ErrRefused, err)
	}
	name, err := s.path(key)
	if err != nil {
		return object.NewError("put", key, object.ErrRefused, err)
	}
	if o.IfAbsent { // spares the write; the link decides
		if _, err := os.Lstat(name); err == nil {
			return object.NewError("put", key, object.ErrExists, nil)
		}
	}
	f, err := os.CreateTemp(filepath.Join(s.dir, uploads), "put-*")
	if err != nil {
		return object.NewError("put", key, kind(err, object.ErrNoBucket), err)
	}
	defer func() {
		_ = f.Close()           // closed already if all went well
		_ = os.Remove(f.Name()) // gone already after a rename; else removed when stale
	}()
	if err := s.fill(ctx, f, body, o.CRC32C); err != nil {
		var done *object.Error
		if errors.As(err, &done) {
			done.Key = key
			return done
		}
		return object.NewError("put", key, kind(err, object.ErrNoBucket), err)
	}
	if err := s.publish(f.Name(), name, o.IfAbsent); err != nil {
		return object.NewError("put", key, kind(err, object.ErrNoBucket), err)
	}
	return nil
}

// fill writes body and trailer and makes them durable.
func (s *Store) fill(ctx context.Context, f *os.File, body object.Body, want uint32) error {
	crc := uint32(0)
	err := object.EachChunk(body, 0, body.Size(), func(p []byte) error {
		if err := object.Ended(ctx, "put", ""); err != nil {
			return err
		}
		crc = object.UpdateCRC32C(crc, p)
		_, err := f.Write(p)
		return err
	})
	if err != nil {
		return err
	}
	if crc != want {
		return object.NewError("put", "", object.ErrCorrupt, fmt.Errorf("expected CRC32C %08x, found %08x", want, crc))
	}
	t := trailer(body.Size(), crc)
	if _, err := f.Write(t[:]); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := object.Ended(ctx, "put", ""); err != nil {
		return err
	}
	if err := s.sync(f); err != nil {
		return err
	}
	return f.Close()
}

// publish gives the finished upload its name.
func (s *Store) publish(temp, name string, ifAbsent bool) error {
	folder := filepath.Dir(name)
	if err := s.makeFolder(folder); err != nil {
		return err
	}
	give := os.Rename
	if ifAbsent {
		give = os.Link
	}
	if err := give(temp, name); err != nil {
		return err
	}
	return s.syncFolder(folder)
}

// makeFolder creates a folder below the store's and what is missing above it,
// and returns when all of them are durable.
func (s *Store) makeFolder(folder string) error {
	s.mu.Lock()
	known := s.durable[folder]
	s.mu.Unlock()
	if known {
		return nil
	}
	parent := filepath.Dir(folder)
	if err := s.makeFolder(parent); err != nil {
		return err
	}
	if err := os.Mkdir(folder, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// Also when it was there: whoever made it may not have synced it yet.
	if err := s.syncFolder(parent); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.durable) >= durableMax {
		s.durable = map[string]bool{s.dir: true}
	}
	s.durable[folder] = true
	return nil
}

func (s *Store) syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	err = s.sync(f)
	return errors.Join(err, f.Close())
}

// GetRange implements object.Store.
func (s *Store) GetRange(ctx context.Context, key string, offset int64, p []byte) (int, error) {
	f, size, _, err := s.open(ctx, "get", key)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	switch {
	case offset < 0:
		return 0, object.NewError("get", key, object.ErrRefused, fmt.Errorf("offset %d", offset))
	case offset >= size:
		return 0, object.NewError("get", key, object.ErrRange, fmt.Errorf("offset %d of %d bytes", offset, size))
	}
	p = p[:min(int64(len(p)), size-offset)]
	n, err := f.ReadAt(p, offset)
	if n < len(p) {
		return n, object.NewError("get", key, kind(err, object.ErrNotFound), err)
	}
	return n, nil
}

// Head implements object.Store.
func (s *Store) Head(ctx context.Context, key string) (object.Info, error) {
	f, size, crc, err := s.open(ctx, "head", key)
	if err != nil {
		return object.Info{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return object.Info{}, object.NewError("head", key, kind(err, object.ErrNotFound), err)
	}
	return object.Info{Key: key, Size: size, CRC32C: crc, HasCRC: true, ModifiedUnixMilli: info.ModTime().UnixMilli()}, nil
}

// open opens an object's file and checks its trailer.
func (s *Store) open(ctx context.Context, op, key string) (f *os.File, size int64, crc uint32, err error) {
	if err := object.CheckKey(key); err != nil {
		return nil, 0, 0, object.NewError(op, key, object.ErrRefused, err)
	}
	if err := object.Ended(ctx, op, key); err != nil {
		return nil, 0, 0, err
	}
	name, err := s.path(key)
	if err != nil {
		return nil, 0, 0, object.NewError(op, key, object.ErrRefused, err)
	}
	f, err = os.Open(name)
	if err != nil {
		return nil, 0, 0, object.NewError(op, key, kind(err, object.ErrNotFound), err)
	}
	size, crc, err = readTrailer(f)
	if err != nil {
		_ = f.Close() // only read
		return nil, 0, 0, object.NewError(op, key, object.ErrCorrupt, err)
	}
	return f, size, crc, nil
}

// Delete implements object.Store.
func (s *Store) Delete(ctx context.Context, keys []string) (map[string]error, error) {
	failed := map[string]error{}
	folders := map[string][]string{} // to sync, with the keys removed from each
	for i, key := range keys {
		if err := object.Ended(ctx, "delete", key); err != nil {
			for _, key := range keys[i:] {
				failed[key] = err
			}
			return failed, err
		}
		name, err := s.path(key)
		if err = errors.Join(object.CheckKey(key), err); err != nil {
			failed[key] = object.NewError("delete", key, object.ErrRefused, err)
			continue
		}
		err = os.Remove(name)
		switch {
		case err == nil:
			folders[filepath.Dir(name)] = append(folders[filepath.Dir(name)], key)
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		default:
			failed[key] = object.NewError("delete", key, kind(err, object.ErrNotFound), err)
		}
	}
	for folder, removed := range folders {
		if err := s.syncFolder(folder); err != nil {
			for _, key := range removed {
				failed[key] = object.NewError("delete", key, object.ErrUnavailable, err)
			}
		}
	}
	return failed, nil
}

// String implements object.Store.
func (s *Store) String() string { return "file://" + s.dir }

// kind maps an error of the operating system; missing is what "not there" means.
func kind(err error, missing error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return missing
	case errors.Is(err, fs.ErrExist):
		return object.ErrExists
	case errors.Is(err, fs.ErrPermission):
		return object.ErrDenied
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EISDIR):
		return object.ErrRefused
	case errors.Is(err, io.ErrUnexpectedEOF): // the body is shorter than it says
		return object.ErrCorrupt
	}
	return object.ErrUnavailable
}

func trailer(size int64, crc uint32) (t [trailerBytes]byte) {
	copy(t[:], magic)
	binary.LittleEndian.PutUint32(t[8:], version)
	binary.LittleEndian.PutUint32(t[12:], crc)
	binary.LittleEndian.PutUint64(t[16:], uint64(size))
	binary.LittleEndian.PutUint32(t[28:], object.CRC32C(t[:28]))
	return t
}

func readTrailer(f *os.File) (size int64, crc uint32, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	size = info.Size() - trailerBytes
	if size < 0 {
		return 0, 0, fmt.Errorf("file of %d bytes has no room for a trailer", info.Size())
	}
	var t [trailerBytes]byte
	if _, err := f.ReadAt(t[:], size); err != nil {
		return 0, 0, err
	}
	return parseTrailer(t, size)
}

func parseTrailer(t [trailerBytes]byte, size int64) (int64, uint32, error) {
	if string(t[:8]) != magic {
		return 0, 0, fmt.Errorf("trailer: expected %q, found %q", magic, t[:8])
	}
	if v := binary.LittleEndian.Uint32(t[8:]); v != version {
		return 0, 0, fmt.Errorf("trailer: version %d, this program knows %d", v, version)
	}
	if want, found := binary.LittleEndian.Uint32(t[28:]), object.CRC32C(t[:28]); want != found {
		return 0, 0, fmt.Errorf("trailer: expected CRC32C %08x, found %08x", want, found)
	}
	if named := binary.LittleEndian.Uint64(t[16:]); named != uint64(size) {
		return 0, 0, fmt.Errorf("trailer: expected a body of %d bytes, found %d", named, size)
	}
	return size, binary.LittleEndian.Uint32(t[12:]), nil
}
