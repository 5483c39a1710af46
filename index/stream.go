package index

import (
	"container/list"
	"context"
	"sync"
	"time"

	"thermocline/tiering/format"
)

// streams recognises sequential readers: a read that begins where another one
// ended. Nothing is asked of the reader, who may be any consumer of any
// connection.
type streams struct {
	mu  sync.Mutex
	by  map[streamKey]*stream
	lru list.List // of *stream, newest first

	counted  time.Time // when countedN was true
	countedN int64
}

type streamKey struct {
	shard uint32
	ref   format.PartitionRef
	next  int64 // where the next read must begin
}

type stream struct {
	key    streamKey
	window int64 // read-ahead, bytes; 0 before the second sequential read
	used   time.Time
	elem   *list.Element
	busy   bool // a goroutine is looking ahead for it
	again  bool // and must look again
	from   Partition
}

func newStreams() *streams { return &streams{by: map[streamKey]*stream{}} }

func (s *streams) len() int { s.mu.Lock(); defer s.mu.Unlock(); return s.lru.Len() }

// window returns the read-ahead of the stream that is at the request's offset;
// zero when the read is not sequential.
func (s *streams) window(req *ReadRequest) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.by[keyOf(&req.Partition, req.Offset)]; st != nil {
		return max(st.window, firstReadAhead)
	}
	return 0
}

func keyOf(p *Partition, offset int64) streamKey {
	return streamKey{p.Manifest.Shard, p.Ref, offset}
}

// advance moves the request's stream to the end of its answer, or begins one.
// It returns the stream if it shall look ahead and nobody does so for it yet.
func (s *streams) advance(req *ReadRequest, next, windowMax, budget int64) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	old := keyOf(&req.Partition, req.Offset)
	st := s.by[old]
	if st != nil {
		delete(s.by, old)
		s.lru.MoveToFront(st.elem)
		st.window = min(max(2*st.window, firstReadAhead), windowMax)
	} else {
		st = &stream{}
		st.elem = s.lru.PushFront(st)
	}
	st.key, st.used, st.from = keyOf(&req.Partition, next), now, req.Partition
	if other := s.by[st.key]; other != nil {
		s.lru.Remove(other.elem) // two readers at the same place are one
	}
	s.by[st.key] = st
	if s.lru.Len() > streamsMax {
		last := s.lru.Remove(s.lru.Back()).(*stream)
		delete(s.by, last.key)
	}
	if st.window == 0 {
		return nil
	}
	st.window = min(st.window, max(firstReadAhead, budget/s.active(now)))
	if st.busy {
		st.again = true
		return nil
	}
	st.busy = true
	return st
}

// active counts the streams that have been used lately: once per activeEvery,
// since it looks at all of them.
func (s *streams) active(now time.Time) (n int64) {
	if now.Sub(s.counted) < activeEvery {
		return s.countedN
	}
	defer func() { s.counted, s.countedN = now, max(n, 1) }()
	for e := s.lru.Front(); e != nil; e = e.Next() {
		st := e.Value.(*stream)
		if now.Sub(st.used) > streamActive {
			break
		}
		if st.window > 0 {
			n++
		}
	}
	return max(n, 1)
}

// state returns where a stream is and how far it may look.
func (s *streams) state(st *stream) (p Partition, next, window int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.again = false
	return st.from, st.key.next, st.window
}

// before tells whether a stream has not passed an offset yet. If it has, the
// look ahead begins anew from where it is.
func (s *streams) before(st *stream, offset int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.key.next > offset {
		st.again = true
		return false
	}
	return true
}

// rest ends the look ahead; false when there is more to look at.
func (s *streams) rest(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.again {
		return false
	}
	st.busy = false
	return true
}

// lookAhead runs on a goroutine of its own while the stream moves.
func (r *Reader) lookAhead(st *stream) {
	if !r.tasks.TryAcquire(1) {
		r.streams.mu.Lock()
		st.busy = false
		r.streams.mu.Unlock()
		return
	}
	run := func() {
		defer r.tasks.Release(1)
		for {
			p, next, window := r.streams.state(st)
			ctx, cancel := context.WithTimeout(r.life, r.o.LoadTimeout)
			r.fetchAhead(ctx, &p, next, window, func(offset int64) bool { return r.streams.before(st, offset) })
			cancel()
			if r.streams.rest(st) {
				return
			}
		}
	}
	if !r.spawn(run) {
		r.tasks.Release(1)
	}
}

// getBytes is the size of GETs for a window: several at a time, so that the
// connections work in parallel.
func getBytes(window int64) int64 { return min(max(window/4, firstReadAhead), getMax) }

// fetchAhead asks for what a stream will want, in groups of contiguous pieces.
// Errors end it: the reader will meet them itself. wanted tells whether the
// stream has not passed an offset meanwhile.
func (r *Reader) fetchAhead(ctx context.Context, p *Partition, next, window int64, wanted func(offset int64) bool) {
	if next >= p.TieredEnd {
		return
	}
	c, err := r.seek(ctx, p, next, noMinTime)
	if err != nil {
		return
	}
	size := getBytes(window)
	var group []piece
	var bytes, total int64
	flush := func() bool {
		g := group
		group, bytes = nil, 0
		return len(g) == 0 || r.data.prefetch(ctx, g, func() bool { return wanted(g[0].FirstOffset) })
	}
	for n := 0; total < window && n < aheadPieces; n++ {
		x, ok, err := c.next(ctx)
		if err != nil {
			return
		}
		if !ok || x.FirstOffset >= p.TieredEnd {
			break
		}
		total += int64(x.Length)
		if r.data.known(&x) {
			if !flush() {
				return
			}
			continue
		}
		if len(group) > 0 && (!follows(group, &x) || bytes+int64(x.Length) > size) && !flush() {
			return
		}
		group = append(group, x)
		bytes += int64(x.Length)
	}
	flush()
}

// follows tells whether x lies right behind the group.
func follows(group []piece, x *piece) bool {
	last := &group[len(group)-1]
	return last.key == x.key && last.Position+last.Length == x.Position
}
