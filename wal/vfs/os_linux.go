package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxPieces is the kernel's limit (UIO_MAXIOV) of pieces in one vectored write.
const maxPieces = 1024

// OS returns the file system below root, which need not exist yet. Names given
// to it are relative to root.
func OS(root string) FS { return osFS{root: root} }

type osFS struct{ root string }

func (o osFS) path(name string) string {
	return filepath.Join(o.root, filepath.FromSlash(name))
}

func (o osFS) Create(name string) (File, error) {
	return openOS(o.path(name), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (o osFS) Open(name string) (File, error) {
	return openOS(o.path(name), os.O_RDWR)
}

func (o osFS) Remove(name string) error { return os.Remove(o.path(name)) }

func (o osFS) Rename(oldName, newName string) error {
	return os.Rename(o.path(oldName), o.path(newName))
}

func (o osFS) List(dir string) ([]string, error) {
	f, err := os.Open(o.path(dir))
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	sort.Strings(names)
	return names, err
}

// MkdirAll makes dir and its parents and syncs the parent of each directory
// that it made, so that the path itself survives a power cut.
func (o osFS) MkdirAll(dir string) error {
	full := o.path(dir)
	var missing []string
	for p := full; ; p = filepath.Dir(p) {
		if _, err := os.Stat(p); err == nil || !errors.Is(err, os.ErrNotExist) || p == filepath.Dir(p) {
			break
		}
		missing = append(missing, p)
	}
	if err := os.MkdirAll(full, 0o755); err != nil {
		return err
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := syncPath(filepath.Dir(missing[i])); err != nil {
			return err
		}
	}
	return nil
}

func (o osFS) SyncDir(dir string) error { return syncPath(o.path(dir)) }

func syncPath(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// Lock opens name, which stays behind when it is released, and takes flock's
// exclusive lock: it goes with the process, also after kill -9.
func (o osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(o.path(name), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		err = fmt.Errorf("vfs: lock %s: held by another process: %w", f.Name(), err)
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (o osFS) Space(dir string) (total, free uint64, err error) {
	var st unix.Statfs_t
	// A directory that does not exist yet lies on the volume of its parent.
	for p := o.path(dir); ; p = filepath.Dir(p) {
		err = unix.Statfs(p, &st)
		if !errors.Is(err, unix.ENOENT) || p == filepath.Dir(p) {
			break
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("vfs: space of %s: %w", dir, err)
	}
	size := uint64(st.Bsize)
	return st.Blocks * size, st.Bavail * size, nil
}

// osFile adds a vectored write to os.File. The request's fields and the bound
// method are kept so that a write allocates nothing; the raw connection holds
// the descriptor open against a Close that runs beside a read or write.
type osFile struct {
	f       *os.File
	raw     syscall.RawConn
	iov     []unix.Iovec // reused; cleared after use so that it keeps no buffer alive
	off     int64
	n       int
	errno   error
	doWrite func(fd uintptr)
	doSync  func(fd uintptr)
}

func openOS(path string, flag int) (File, error) {
	f, err := os.OpenFile(path, flag, 0o644)
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	o := &osFile{f: f, raw: raw}
	o.doWrite, o.doSync = o.pwritev, o.fdatasync
	return o, nil
}

func (o *osFile) ReadAt(p []byte, off int64) (int, error) { return o.f.ReadAt(p, off) }

func (o *osFile) Close() error { return o.f.Close() }

func (o *osFile) Truncate(size int64) error { return o.f.Truncate(size) }

func (o *osFile) Size() (int64, error) {
	st, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (o *osFile) Sync() error {
	o.errno = nil
	if o.raw.Control(o.doSync) != nil {
		return o.closedError("fdatasync")
	}
	return o.pathError("fdatasync")
}

func (o *osFile) fdatasync(fd uintptr) {
	for {
		o.errno = unix.Fdatasync(int(fd))
		if !errors.Is(o.errno, unix.EINTR) {
			return
		}
	}
}

func (o *osFile) WriteAtv(bufs [][]byte, off int64) (int, error) {
	o.iov = o.iov[:0]
	for _, b := range bufs {
		if len(b) > 0 {
			o.iov = append(o.iov, unix.Iovec{Base: unsafe.SliceData(b), Len: uint64(len(b))})
		}
	}
	o.off, o.n, o.errno = off, 0, nil
	err := o.raw.Control(o.doWrite)
	clear(o.iov)
	if err != nil {
		return o.n, o.closedError("pwritev")
	}
	return o.n, o.pathError("pwritev")
}

// pwritev writes all of iov, going on after a short write. It uses the system
// call itself since unix.Pwritev builds a new iovec list for each call.
func (o *osFile) pwritev(fd uintptr) {
	iov := o.iov
	for len(iov) > 0 {
		n, _, errno := unix.Syscall6(unix.SYS_PWRITEV, fd,
			uintptr(unsafe.Pointer(&iov[0])), uintptr(min(len(iov), maxPieces)),
			uintptr(o.off), 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			o.errno = errno
			return
		case n == 0:
			o.errno = io.ErrShortWrite
			return
		}
		o.n += int(n)
		o.off += int64(n)
		iov = advance(iov, uint64(n))
	}
}

// advance drops the first n bytes of iov.
func advance(iov []unix.Iovec, n uint64) []unix.Iovec {
	for len(iov) > 0 && n >= iov[0].Len {
		n -= iov[0].Len
		iov = iov[1:]
	}
	if n > 0 {
		iov[0].Base = (*byte)(unsafe.Add(unsafe.Pointer(iov[0].Base), n))
		iov[0].Len -= n
	}
	return iov
}

// closedError is what Control's only failure means: the file is closed. Its own
// error is internal to the runtime.
func (o *osFile) closedError(op string) error {
	return &os.PathError{Op: op, Path: o.f.Name(), Err: os.ErrClosed}
}

func (o *osFile) pathError(op string) error {
	if o.errno == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: o.f.Name(), Err: o.errno}
}
