package shard

import (
	"math/bits"
	"sync"
)

const (
	bufferClassMinBits = 12 // 4 KiB: a single small produce
	bufferClassMaxBits = 20 // 1 MiB: a full payload; larger ones are rare and stay plain
	bufferClasses      = bufferClassMaxBits - bufferClassMinBits + 1
)

// Buffers lends payload buffers by size class (powers of two from 4 KiB to
// 1 MiB). A 1 MiB allocation is zeroed at 5 GB/s and is garbage later, so what
// comes back is kept, up to a bound per class. One Buffers serves all shards
// of a broker and its transport; all methods are safe for concurrent use.
type Buffers struct {
	keepBytes int
	poison    bool
	classes   [bufferClasses]bufferClass
}

type bufferClass struct {
	mu   sync.Mutex
	free [][]byte
}

// NewBuffers keeps at most keepBytes of idle buffers per size class. With
// poison, returned buffers are overwritten, so that a use after return shows.
func NewBuffers(keepBytes int, poison bool) *Buffers {
	return &Buffers{keepBytes: keepBytes, poison: poison}
}

func bufferClassOf(n int) int {
	if n <= 1<<bufferClassMinBits {
		return 0
	}
	return bits.Len(uint(n-1)) - bufferClassMinBits
}

// Get returns a buffer of length n with undefined contents.
func (p *Buffers) Get(n int) []byte {
	k := bufferClassOf(n)
	if k >= bufferClasses {
		return make([]byte, n)
	}
	c := &p.classes[k]
	c.mu.Lock()
	if l := len(c.free); l > 0 {
		b := c.free[l-1]
		c.free[l-1] = nil
		c.free = c.free[:l-1]
		c.mu.Unlock()
		return b[:n]
	}
	c.mu.Unlock()
	return make([]byte, n, 1<<(k+bufferClassMinBits))
}

// Put takes a buffer back; nobody may hold it any more.
func (p *Buffers) Put(b []byte) {
	b = b[:cap(b)]
	if p.poison {
		for i := range b {
			b[i] = 0xDB
		}
	}
	k := bufferClassOf(len(b))
	if k >= bufferClasses || len(b) != 1<<(k+bufferClassMinBits) {
		return
	}
	c := &p.classes[k]
	c.mu.Lock()
	if (len(c.free)+1)*len(b) <= p.keepBytes {
		c.free = append(c.free, b)
	}
	c.mu.Unlock()
}
