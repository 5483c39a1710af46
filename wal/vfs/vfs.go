package vfs

import (
	"errors"
	"io"
)

// ErrExist and ErrNotExist are what every FS wraps when a name is taken or
// missing; test with errors.Is. They equal io/fs's sentinels.
var (
	ErrInjected = errors.New("vfs: injected fault")
)

// FS is the seam between the log and a disk: the operating system's files
// (OS), a memory file system that can lose what was not synced (Mem), and a
// wrapper that makes chosen operations fail (Faulty). Names are slash-separated.
type FS interface {
	// Create makes name, or truncates it, and opens it for reading and writing.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	Remove(name string) error
	// Rename replaces newName if it exists. It is durable after SyncDir.
	Rename(oldName, newName string) error
	// List returns the base names in dir, sorted.
	List(dir string) ([]string, error)
	MkdirAll(dir string) error
	// SyncDir makes creations, renames and removals in dir durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on name, or fails at once when another
	// process holds it. Closing releases it.
	Lock(name string) (io.Closer, error)
	// Space returns the bytes of the volume that holds dir: all, and free.
	Space(dir string) (total, free uint64, err error)
}

// File is one open file. ReadAt may run beside any other method; the rest
// belong to one owner.
type File interface {
	io.ReaderAt
	io.Closer
	// WriteAtv writes bufs one after the other at off: one system call for up
	// to 1,024 pieces. The file keeps nothing of bufs after it returns.
	WriteAtv(bufs [][]byte, off int64) (int, error)
	// Sync makes the file's contents, and what is needed to read them back,
	// durable (fdatasync).
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
}
