package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"
	"syscall"
)

// BlockSize is the unit in which Mem loses what was not synced.
const BlockSize = 4096

// sectorSize is the unit in which a torn block mixes old and new content.
const sectorSize = 512

// Mem is a file system in memory that can be crashed. Everything it does is a
// function of the calls made and the seeds given. Directories are durable as
// soon as they are made. One mutex guards all of it: it serves tests and the
// simulator, where calls do not compete.
type Mem struct {
	mu       sync.Mutex
	seed     uint64
	dirs     map[string]*memDir
	locks    map[string]bool
	capacity int64
	used     int64
	spare    [][]byte // blocks to use again, at most maxSpare
}

// maxSpare bounds the blocks kept for reuse: 4 MiB.
const maxSpare = 1024

// defaultCapacity is what Space reports until SetCapacity: 1 TiB.
const defaultCapacity = 1 << 40

// memDir is one directory: what its names are now, what they are for certain
// after a power cut, and the changes between the two.
type memDir struct {
	cur, durable map[string]*inode
	pending      []dirOp
}

// dirOp is one change that is not durable yet. A rename is one op with both
// names, since it is atomic.
type dirOp struct {
	remove string
	set    string
	ino    *inode
}

// inode is a file's contents, without a name.
type inode struct {
	size, durableSize int64
	blocks            []*memBlock // nil is a hole
	dirty             []int       // indices of unsynced blocks
}

// memBlock is one block: its content now and, while it is dirty, its content
// at the last sync (nil: zeroes).
type memBlock struct {
	cur, old []byte
	dirty    bool
}

// NewMem returns an empty file system. seed is mixed into every Crash.
func NewMem(seed uint64) *Mem {
	return &Mem{
		seed:     seed,
		dirs:     map[string]*memDir{".": newMemDir()},
		locks:    map[string]bool{},
		capacity: defaultCapacity,
	}
}

func newMemDir() *memDir {
	return &memDir{cur: map[string]*inode{}, durable: map[string]*inode{}}
}

// SetCapacity sets the volume's size; writes that need more get ENOSPC.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

func (m *Mem) dir(op, name string) (*memDir, error) {
	d := m.dirs[name]
	if d == nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return d, nil
}

// entry finds the directory and base name of a file name.
func (m *Mem) entry(op, name string) (*memDir, string, error) {
	name = path.Clean(name)
	d, err := m.dir(op, path.Dir(name))
	return d, path.Base(name), err
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.entry("create", name)
	if err != nil {
		return nil, err
	}
	if _, isDir := m.dirs[path.Clean(name)]; isDir {
		return nil, &fs.PathError{Op: "create", Path: name, Err: syscall.EISDIR}
	}
	ino := d.cur[base]
	if ino == nil {
		ino = &inode{}
		d.cur[base] = ino
		d.pending = append(d.pending, dirOp{set: base, ino: ino})
	} else {
		m.truncate(ino, 0)
	}
	return &memFile{m: m, ino: ino, name: name}, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.entry("open", name)
	if err != nil {
		return nil, err
	}
	ino := d.cur[base]
	if ino == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memFile{m: m, ino: ino, name: name}, nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.entry("remove", name)
	if err != nil {
		return err
	}
	ino := d.cur[base]
	if ino == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	delete(d.cur, base)
	d.pending = append(d.pending, dirOp{remove: base})
	m.release(ino)
	return nil
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, oldBase, err := m.entry("rename", oldName)
	if err != nil {
		return err
	}
	to, newBase, err := m.entry("rename", newName)
	if err != nil {
		return err
	}
	ino := from.cur[oldBase]
	if ino == nil {
		return &fs.PathError{Op: "rename", Path: oldName, Err: fs.ErrNotExist}
	}
	if from == to && oldBase == newBase {
		return nil
	}
	if replaced := to.cur[newBase]; replaced != nil {
		m.release(replaced)
	}
	delete(from.cur, oldBase)
	to.cur[newBase] = ino
	if from == to {
		to.pending = append(to.pending, dirOp{remove: oldBase, set: newBase, ino: ino})
		return nil
	}
	from.pending = append(from.pending, dirOp{remove: oldBase})
	to.pending = append(to.pending, dirOp{set: newBase, ino: ino})
	return nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir = path.Clean(dir)
	d, err := m.dir("list", dir)
	if err != nil {
		return nil, err
	}
	names := slices.Collect(maps.Keys(d.cur))
	for sub := range m.dirs {
		if sub != "." && path.Dir(sub) == dir {
			names = append(names, path.Base(sub))
		}
	}
	slices.Sort(names)
	return names, nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for dir = path.Clean(dir); m.dirs[dir] == nil; dir = path.Dir(dir) {
		if parent := m.dirs[path.Dir(dir)]; parent != nil && parent.cur[path.Base(dir)] != nil {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
		m.dirs[dir] = newMemDir()
	}
	return nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.dir("syncdir", path.Clean(dir))
	if err != nil {
		return err
	}
	if len(d.pending) > 0 {
		d.durable = maps.Clone(d.cur)
		d.pending = d.pending[:0]
	}
	return nil
}

// Lock implements FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = path.Clean(name)
	if m.locks[name] {
		return nil, fmt.Errorf("vfs: lock %s: held: %w", name, syscall.EWOULDBLOCK)
	}
	m.locks[name] = true
	return &memLock{m: m, name: name}, nil
}

type memLock struct {
	m    *Mem
	name string
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if !l.m.locks[l.name] {
		return fs.ErrClosed
	}
	delete(l.m.locks, l.name)
	return nil
}

// Space implements FS.
func (m *Mem) Space(string) (total, free uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return uint64(m.capacity), uint64(max(0, m.capacity-m.used)), nil
}

// release gives back the space of a file whose last name went. Open handles
// keep its contents.
func (m *Mem) release(ino *inode) {
	for _, b := range ino.blocks {
		if b != nil {
			m.used -= BlockSize
		}
	}
}
