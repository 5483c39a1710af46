package ingest

import (
	"context"
	"math/bits"
	"sync"

	"golang.org/x/sync/semaphore"
)

// budget is a count of bytes shared by all connections, first come first served.
type budget struct {
	sem   *semaphore.Weighted
	total int64
}

func newBudget(total int64) *budget {
	return &budget{sem: semaphore.NewWeighted(total), total: total}
}

// take waits for n bytes (at most the whole budget) and returns how many to give back.
func (b *budget) take(ctx context.Context, n int64) (int64, error) {
	n = min(max(n, 0), b.total)
	if b.sem.TryAcquire(n) { // the common case, without the context's cost
		return n, nil
	}
	if err := b.sem.Acquire(ctx, n); err != nil {
		return 0, err
	}
	return n, nil
}

func (b *budget) give(n int64) {
	if n > 0 {
		b.sem.Release(n)
	}
}

// buffers pools byte slices by size class: four classes per power of two, so
// that at most a fifth of a buffer is unused.
type buffers struct {
	classes [classCount]sync.Pool
}

const (
	smallestClass = 9  // 512 bytes
	largestClass  = 31 // larger than any frame
	classCount    = (largestClass - smallestClass + 1) * 4
)

// classOf returns the class whose size is the least that holds n bytes.
func classOf(n int) (class, size int) {
	if n <= 1<<smallestClass {
		return 0, 1 << smallestClass
	}
	power := bits.Len(uint(n-1)) - 1 // 2^power < n <= 2^(power+1)
	quarter := 1 << (power - 2)
	steps := (n - 1<<power + quarter - 1) / quarter // 1..4
	return (power-smallestClass)*4 + steps, 1<<power + steps*quarter
}

// get returns a buffer of length n with undefined contents.
func (p *buffers) get(n int) *[]byte {
	class, size := classOf(n)
	if class >= classCount {
		b := make([]byte, n)
		return &b
	}
	if b, ok := p.classes[class].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, size)
	return &b
}

// put takes a buffer back; nobody may hold a slice of it any more. A buffer
// that has grown goes to the class that its capacity fills.
func (p *buffers) put(b *[]byte) {
	class, size := classOf(cap(*b))
	if size > cap(*b) {
		class--
	}
	if class >= 0 && class < classCount {
		p.classes[class].Put(b)
	}
}
