package tiering

import (
	"fmt"
	"io"
	"os"
	"sync"
)

const (
	// chunkLen is the unit of memory spools: large enough that few batches
	// cross a border, small enough to be pooled.
	chunkLen = 1 << 20
	// DefaultMemory holds two segments of the default size being built; more
	// shards sealing at the same time use files.
	DefaultMemory = 160 << 20
)

// Memory bounds what all sealers of a broker hold in memory for objects that
// they build.
type Memory struct {
	mu   sync.Mutex
	used int64
	max  int64
	pool sync.Pool // *[chunkLen]byte; the collector empties it when idle
}

// NewMemory returns a bound of max bytes.
func NewMemory(max int64) *Memory {
	return &Memory{max: max, pool: sync.Pool{New: func() any { return new([chunkLen]byte) }}}
}

func (m *Memory) reserve(n int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+n > m.max {
		return false
	}
	m.used += n
	return true
}

func (m *Memory) free(n int64) { m.mu.Lock(); m.used -= n; m.mu.Unlock() }

// Used returns the bytes that are reserved.
func (m *Memory) Used() int64 { m.mu.Lock(); defer m.mu.Unlock(); return m.used }

// spool holds an object while it is built and uploaded: in memory while that
// lasts, else in a file without a name. It is an object.Body. WriteAt is for
// one goroutine, ReadAt for any number after the last WriteAt.
type spool struct {
	memory *Memory
	chunks []*[chunkLen]byte
	file   *os.File
	size   int64
}

// newSpool reserves memory for about n bytes, or makes a file in dir.
func newSpool(memory *Memory, dir string, n int64) (*spool, error) {
	s := &spool{memory: memory}
	if memory.reserve(chunks(n) * chunkLen) {
		for range chunks(n) {
			s.chunks = append(s.chunks, memory.pool.Get().(*[chunkLen]byte))
		}
		return s, nil
	}
	return s, s.toFile(dir)
}

func chunks(n int64) int64 { return (n + chunkLen - 1) / chunkLen }

// toFile makes the file and removes its name at once, so that no crash leaves it behind.
func (s *spool) toFile(dir string) error {
	f, err := os.CreateTemp(dir, "segment-*.tmp")
	if err != nil {
		return fmt.Errorf("tiering: spool: %w", err)
	}
	s.file = f
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return fmt.Errorf("tiering: spool: %w", err)
	}
	return nil
}

// Size is the object.Body's.
func (s *spool) Size() int64 { return s.size }

// WriteAt implements io.WriterAt.
func (s *spool) WriteAt(p []byte, at int64) (int, error) {
	if s.file != nil {
		n, err := s.file.WriteAt(p, at)
		s.size = max(s.size, at+int64(n))
		return n, err
	}
	end := at + int64(len(p))
	for int64(len(s.chunks))*chunkLen < end {
		// An estimate that was a little low: a chunk more does no harm.
		if !s.memory.reserve(chunkLen) {
			s.memory.mu.Lock()
			s.memory.used += chunkLen
			s.memory.mu.Unlock()
		}
		s.chunks = append(s.chunks, s.memory.pool.Get().(*[chunkLen]byte))
	}
	n := len(p)
	for len(p) > 0 {
		k := copy(s.chunks[at/chunkLen][at%chunkLen:], p)
		p, at = p[k:], at+int64(k)
	}
	s.size = max(s.size, end)
	return n, nil
}

// ReadAt implements io.ReaderAt.
func (s *spool) ReadAt(p []byte, at int64) (int, error) {
	if s.file != nil {
		return s.file.ReadAt(p, at)
	}
	if at >= s.size {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && at < s.size {
		from := at % chunkLen
		k := copy(p[n:], s.chunks[at/chunkLen][from:min(chunkLen, from+s.size-at)])
		n, at = n+k, at+int64(k)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// close gives memory and file back.
func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close() // it has no name: nothing is left
		return
	}
	s.memory.free(int64(len(s.chunks)) * chunkLen)
	for _, c := range s.chunks {
		s.memory.pool.Put(c)
	}
	s.chunks = nil
}

// appender writes front to back. Bytes in [from, skip) are in the spool already:
// writing them again only moves on.
type appender struct {
	s   *spool
	pos int64
	// [from, skip) is there already.
	from, skip int64
}

// Write implements io.Writer.
func (a *appender) Write(p []byte) (int, error) {
	if a.pos >= a.from && a.pos < a.skip {
		a.pos += int64(len(p))
		return len(p), nil
	}
	n, err := a.s.WriteAt(p, a.pos)
	a.pos += int64(n)
	return n, err
}
