package vfs

import (
	"io"
	"io/fs"
	"syscall"
)

// memFile is one open handle on an inode of a Mem.
type memFile struct {
	m      *Mem
	ino    *inode
	name   string
	closed bool
}

func (f *memFile) pathError(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return 0, f.pathError("read", fs.ErrClosed)
	}
	if off < 0 {
		return 0, f.pathError("read", syscall.EINVAL)
	}
	if off >= f.ino.size {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	want := len(p)
	if int64(want) > f.ino.size-off {
		p = p[:f.ino.size-off]
	}
	f.ino.read(p, off)
	if len(p) < want {
		return len(p), io.EOF
	}
	return len(p), nil
}

// read fills p from off; all of it lies below the size.
func (ino *inode) read(p []byte, off int64) {
	for len(p) > 0 {
		i, in := int(off/BlockSize), int(off%BlockSize)
		n := min(len(p), BlockSize-in)
		if i < len(ino.blocks) && ino.blocks[i] != nil {
			copy(p[:n], ino.blocks[i].cur[in:])
		} else {
			clear(p[:n])
		}
		p, off = p[n:], off+int64(n)
	}
}

func (f *memFile) WriteAtv(bufs [][]byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return 0, f.pathError("write", fs.ErrClosed)
	}
	if off < 0 {
		return 0, f.pathError("write", syscall.EINVAL)
	}
	written := 0
	for _, p := range bufs {
		for len(p) > 0 {
			i, in := int(off/BlockSize), int(off%BlockSize)
			b := f.m.dirtyBlock(f.ino, i)
			if b == nil {
				return written, f.pathError("write", syscall.ENOSPC)
			}
			n := copy(b.cur[in:], p)
			p, off, written = p[n:], off+int64(n), written+n
			f.ino.size = max(f.ino.size, off)
		}
	}
	return written, nil
}

// dirtyBlock returns block i for writing, with its synced content kept, or nil
// when the volume is full.
func (m *Mem) dirtyBlock(ino *inode, i int) *memBlock {
	for len(ino.blocks) <= i {
		ino.blocks = append(ino.blocks, nil)
	}
	b := ino.blocks[i]
	if b == nil {
		if m.used+BlockSize > m.capacity {
			return nil
		}
		m.used += BlockSize
		b = &memBlock{cur: m.block(nil), dirty: true}
		ino.blocks[i] = b
		ino.dirty = append(ino.dirty, i)
		return b
	}
	if !b.dirty {
		b.old, b.dirty = m.block(b.cur), true
		ino.dirty = append(ino.dirty, i)
	}
	return b
}

// block returns a block with from's content, or zeroes.
func (m *Mem) block(from []byte) []byte {
	var b []byte
	if n := len(m.spare); n > 0 {
		b, m.spare = m.spare[n-1], m.spare[:n-1]
	} else {
		b = make([]byte, BlockSize)
	}
	if from == nil {
		clear(b)
	} else {
		copy(b, from)
	}
	return b
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return f.pathError("sync", fs.ErrClosed)
	}
	for _, i := range f.ino.dirty {
		b := f.ino.blocks[i]
		if b.old != nil && len(f.m.spare) < maxSpare {
			f.m.spare = append(f.m.spare, b.old)
		}
		b.old, b.dirty = nil, false
	}
	f.ino.dirty = f.ino.dirty[:0]
	f.ino.durableSize = f.ino.size
	return nil
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return f.pathError("truncate", fs.ErrClosed)
	}
	if size < 0 {
		return f.pathError("truncate", syscall.EINVAL)
	}
	f.m.truncate(f.ino, size)
	return nil
}

// truncate sets the size. Bytes cut off read as zeroes afterwards; like every
// change they are kept as old content until the next sync.
func (m *Mem) truncate(ino *inode, size int64) {
	for i := int(size / BlockSize); i < len(ino.blocks); i++ {
		if ino.blocks[i] == nil {
			continue
		}
		in := max(0, size-int64(i)*BlockSize)
		clear(m.dirtyBlock(ino, i).cur[in:])
	}
	ino.size = size
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return 0, f.pathError("stat", fs.ErrClosed)
	}
	return f.ino.size, nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed {
		return f.pathError("close", fs.ErrClosed)
	}
	f.closed = true
	return nil
}
