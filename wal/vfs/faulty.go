package vfs

import (
	"errors"
	"io"
	"path"
	"sync"
)

// Kind is a kind of operation that Faulty can make fail.
type Kind uint8

// The kinds of operation, one for each method of FS and File that does
// something (Lock, Space, Size and Close always pass).
const (
	OpCreate Kind = iota
	OpOpen
	OpRemove
	OpRename
	OpList
	OpMkdir
	OpSyncDir
	OpRead
	OpWrite
	OpSync
	OpTruncate
)

var kindNames = [...]string{"create", "open", "remove", "rename", "list", "mkdir", "syncdir", "read", "write", "sync", "truncate"}

// String names the kind.
func (k Kind) String() string { return kindNames[k] }

// Changes tells whether the kind changes anything on the disk.
func (k Kind) Changes() bool {
	return k != OpOpen && k != OpList && k != OpRead
}

// Op is one operation about to be done.
type Op struct {
	// N counts all operations from 1.
	N    int
	Kind Kind
	// Name is the file's or directory's; of a rename the old name.
	Name string
	Off  int64
	Len  int
}

// Fault is an error for Faulty's predicate to return when an operation should
// do more than fail without effect.
type Fault struct {
	// Err is what the caller gets; nil lets the operation succeed as far as the
	// caller can see.
	Err error
	// Done performs the operation first: a write or sync that works and still
	// reports Err.
	Done bool
	// Short performs the first Short bytes of a write, or reads that many.
	Short int
	// Flip inverts bit Flip.Bit of the byte at file offset Flip.Off, when a read
	// covers it.
	Flip *Flip
}

// Flip names one bit of a file.
type Flip struct {
	Off int64
	Bit uint8
}

// Error is Err's.
func (f *Fault) Error() string {
	if f.Err == nil {
		return "vfs: fault without an error"
	}
	return f.Err.Error()
}

// Unwrap returns Err.
func (f *Fault) Unwrap() error { return f.Err }

// Faulty passes operations on to another file system and makes chosen ones
// fail. Its predicate sees each operation before it is done and returns nil to
// let it pass, a *Fault, or any other error, which the caller gets without the
// operation having had an effect.
type Faulty struct {
	fs FS

	mu    sync.Mutex
	n     int
	judge func(Op) error
}

// NewFaulty wraps fs. A nil predicate lets everything pass.
func NewFaulty(fs FS, judge func(Op) error) *Faulty {
	return &Faulty{fs: fs, judge: judge}
}

// SetJudge replaces the predicate.
func (f *Faulty) SetJudge(judge func(Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.judge = judge
}

// Ops returns how many operations there were.
func (f *Faulty) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// FailNth returns a predicate that gives err to the n-th operation (from 1)
// among those for which match is true, and to no other.
func FailNth(n int, err error, match func(Op) bool) func(Op) error {
	seen := 0
	return func(op Op) error {
		if match != nil && !match(op) {
			return nil
		}
		if seen++; seen == n {
			return err
		}
		return nil
	}
}

// OfKind matches operations of the kinds on files whose base name matches the
// pattern (path.Match; empty matches all).
func OfKind(pattern string, kinds ...Kind) func(Op) bool {
	return func(op Op) bool {
		ok := false
		for _, k := range kinds {
			ok = ok || k == op.Kind
		}
		if !ok || pattern == "" {
			return ok
		}
		match, err := path.Match(pattern, path.Base(op.Name))
		return match && err == nil
	}
}

// ask gives the operation its number and asks the predicate: what is to become
// of it, or nil.
func (f *Faulty) ask(op Op) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	op.N = f.n
	if f.judge == nil {
		return nil
	}
	// The lock is held: a predicate may count without a lock of its own.
	err := f.judge(op)
	if err == nil {
		return nil
	}
	var fault *Fault
	if errors.As(err, &fault) {
		return fault
	}
	return &Fault{Err: err}
}

// do asks about one operation and performs it or not. run gets the number of
// bytes to write at most (-1: all).
func (f *Faulty) do(op Op, run func(limit int) error) error {
	fault := f.ask(op)
	switch {
	case fault == nil:
		return run(-1)
	case fault.Done || fault.Err == nil && fault.Short == 0:
		if err := run(-1); err != nil {
			return err
		}
	case fault.Short > 0:
		if err := run(fault.Short); err != nil {
			return err
		}
	}
	return fault.Err
}

// Create implements FS.
func (f *Faulty) Create(name string) (File, error) {
	return f.open(OpCreate, name, f.fs.Create)
}

// Open implements FS.
func (f *Faulty) Open(name string) (File, error) {
	return f.open(OpOpen, name, f.fs.Open)
}

func (f *Faulty) open(kind Kind, name string, open func(string) (File, error)) (File, error) {
	var file File
	err := f.do(Op{Kind: kind, Name: name}, func(int) error {
		inner, err := open(name)
		if err == nil {
			file = &faultyFile{f: f, name: name, File: inner}
		}
		return err
	})
	if err != nil {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
		return nil, err
	}
	return file, nil
}

// Remove implements FS.
func (f *Faulty) Remove(name string) error {
	return f.do(Op{Kind: OpRemove, Name: name}, func(int) error { return f.fs.Remove(name) })
}

// Rename implements FS.
func (f *Faulty) Rename(oldName, newName string) error {
	return f.do(Op{Kind: OpRename, Name: oldName}, func(int) error { return f.fs.Rename(oldName, newName) })
}

// List implements FS.
func (f *Faulty) List(dir string) (names []string, err error) {
	err = f.do(Op{Kind: OpList, Name: dir}, func(int) error {
		names, err = f.fs.List(dir)
		return err
	})
	return names, err
}

// MkdirAll implements FS.
func (f *Faulty) MkdirAll(dir string) error {
	return f.do(Op{Kind: OpMkdir, Name: dir}, func(int) error { return f.fs.MkdirAll(dir) })
}

// SyncDir implements FS.
func (f *Faulty) SyncDir(dir string) error {
	return f.do(Op{Kind: OpSyncDir, Name: dir}, func(int) error { return f.fs.SyncDir(dir) })
}

// Lock implements FS.
func (f *Faulty) Lock(name string) (io.Closer, error) { return f.fs.Lock(name) }

// Space implements FS.
func (f *Faulty) Space(dir string) (total, free uint64, err error) { return f.fs.Space(dir) }

// faultyFile is a file of a Faulty; Size and Close pass.
type faultyFile struct {
	f    *Faulty
	name string
	File
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	fault := f.f.ask(Op{Kind: OpRead, Name: f.name, Off: off, Len: len(p)})
	if fault == nil {
		return f.File.ReadAt(p, off)
	}
	if fault.Err != nil && !fault.Done && fault.Short == 0 {
		return 0, fault.Err
	}
	if fault.Short > 0 {
		p = p[:min(len(p), fault.Short)]
	}
	n, err := f.File.ReadAt(p, off)
	if flip := fault.Flip; flip != nil && flip.Off >= off && flip.Off < off+int64(n) {
		p[flip.Off-off] ^= 1 << flip.Bit
	}
	if fault.Err != nil {
		err = fault.Err
	}
	return n, err
}

func (f *faultyFile) WriteAtv(bufs [][]byte, off int64) (n int, err error) {
	total := 0
	for _, b := range bufs {
		total += len(b)
	}
	err = f.f.do(Op{Kind: OpWrite, Name: f.name, Off: off, Len: total}, func(limit int) error {
		var err error
		n, err = f.File.WriteAtv(cut(bufs, limit), off)
		return err
	})
	return n, err
}

// cut returns the first limit bytes of bufs; all of them when limit is negative.
func cut(bufs [][]byte, limit int) [][]byte {
	if limit < 0 {
		return bufs
	}
	var out [][]byte
	for _, b := range bufs {
		b = b[:min(len(b), limit)]
		limit -= len(b)
		out = append(out, b)
	}
	return out
}

func (f *faultyFile) Sync() error {
	return f.f.do(Op{Kind: OpSync, Name: f.name}, func(int) error { return f.File.Sync() })
}

func (f *faultyFile) Truncate(size int64) error {
	return f.f.do(Op{Kind: OpTruncate, Name: f.name, Off: size}, func(int) error { return f.File.Truncate(size) })
}
