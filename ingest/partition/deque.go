package partition

// deque is a queue in a ring that grows. Elements have positions that never
// change: the first one ever pushed has 0.
type deque[T any] struct {
	ring  []T // length is a power of two
	first uint64
	n     int
}

const dequeMin = 16

func (d *deque[T]) len() int { return d.n }

// at returns the i-th element from the front.
func (d *deque[T]) at(i int) *T {
	return &d.ring[(d.first+uint64(i))&uint64(len(d.ring)-1)]
}

// pos returns the element at a position; it must still be in the queue.
func (d *deque[T]) pos(p uint64) *T { return d.at(int(p - d.first)) }

func (d *deque[T]) push(v T) uint64 {
	if d.n == len(d.ring) {
		d.resize(max(dequeMin, 2*len(d.ring)))
	}
	d.n++
	*d.at(d.n - 1) = v
	return d.first + uint64(d.n-1)
}

func (d *deque[T]) pop() {
	var zero T
	*d.at(0) = zero // lets go of what it points to
	d.first++
	d.n--
	// A burst's memory is given back, once little of it is used.
	if len(d.ring) > 1024 && d.n < len(d.ring)/8 {
		d.resize(len(d.ring) / 2)
	}
}

func (d *deque[T]) resize(size int) {
	ring := make([]T, size)
	for i := 0; i < d.n; i++ {
		ring[(d.first+uint64(i))&uint64(size-1)] = *d.at(i)
	}
	d.ring = ring
}

// clear forgets all elements; positions go on.
func (d *deque[T]) clear() {
	d.first += uint64(d.n)
	d.n = 0
	clear(d.ring)
}
