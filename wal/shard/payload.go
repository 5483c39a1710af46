package shard

import (
	"fmt"
	"sync"

	"thermocline/wal"
)

// payloadTable owns the payloads of one shard replica by reference count, and
// is its tail cache. A payload is resident from the moment it has an index
// until it is evicted, overwritten or trimmed; beside that, each WAL append,
// each peer's send and each reader holds a reference, and the buffer goes back
// to the pool with the last one.
//
// Invariants: a resident payload that is not written and applied is never
// evicted, so what cannot be read back from the log is always in memory;
// (index, term) names the same bytes on every replica, by Raft's log matching.
//
// The shard's goroutine adds, marks and evicts; readers and senders look up
// and release from anywhere.
type payloadTable struct {
	bufs *Buffers
	// read fetches an evicted payload from the log into a pooled buffer.
	read func(index, term uint64) ([]byte, error)

	mu      sync.Mutex
	byIndex map[uint64]*payload
	// low and high bound the resident indexes (empty when low > high).
	low, high uint64
	resident  int // bytes
	budget    int
	pinned    int // bytes held by peers' sends

	hits, misses uint64
}

type payload struct {
	index, term uint64
	buf         []byte
	refs        int
	resident    bool
	written     bool
	applied     bool
	addedTick   uint64
}

func newPayloadTable(bufs *Buffers, budget int, read func(index, term uint64) ([]byte, error)) *payloadTable {
	return &payloadTable{bufs: bufs, budget: budget, read: read, byIndex: map[uint64]*payload{}, low: 1}
}

// add makes buf resident under (index, term) and returns it with one more
// reference, the WAL append's. A payload that stood at index before is dropped.
func (t *payloadTable) add(index, term uint64, buf []byte, tick uint64) *payload {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropLocked(index)
	p := &payload{index: index, term: term, buf: buf, refs: 2, resident: true, addedTick: tick}
	t.byIndex[index] = p
	if len(t.byIndex) == 1 {
		t.low, t.high = index, index
	}
	t.low, t.high = min(t.low, index), max(t.high, index)
	t.resident += len(buf)
	return p
}

// addLoaded is add for a payload that was read back from the log.
func (t *payloadTable) addLoaded(index, term uint64, buf []byte, tick uint64) {
	p := t.add(index, term, buf, tick)
	t.mu.Lock()
	p.written = true
	t.releaseLocked(p)
	t.mu.Unlock()
}

func (t *payloadTable) get(index, term uint64) *payload {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.byIndex[index]; p != nil && p.term == term {
		p.refs++
		t.hits++
		return p
	}
	t.misses++
	return nil
}

func (t *payloadTable) release(p *payload) {
	t.mu.Lock()
	t.releaseLocked(p)
	t.mu.Unlock()
}

func (t *payloadTable) releaseLocked(p *payload) {
	p.refs--
	if p.refs == 0 {
		t.bufs.Put(p.buf)
		p.buf = nil
	}
}

func (t *payloadTable) dropLocked(index uint64) {
	p := t.byIndex[index]
	if p == nil {
		return
	}
	delete(t.byIndex, index)
	p.resident = false
	t.resident -= len(p.buf)
	t.releaseLocked(p)
}

// written marks the append's payload as readable from the log and gives the
// append's reference back.
func (t *payloadTable) written(p *payload) {
	t.mu.Lock()
	p.written = true
	t.releaseLocked(p)
	t.mu.Unlock()
}

// applied marks every index up to and including the one given.
func (t *payloadTable) applied(index uint64) {
	t.mu.Lock()
	if p := t.byIndex[index]; p != nil {
		p.applied = true
	}
	t.mu.Unlock()
}

// truncate drops everything from index on: another leader's suffix follows.
func (t *payloadTable) truncate(from uint64) {
	t.mu.Lock()
	for i := max(from, t.low); i <= t.high; i++ {
		t.dropLocked(i)
	}
	if from > 0 {
		t.high = min(t.high, from-1)
	}
	t.mu.Unlock()
}

// trim drops everything up to and including index.
func (t *payloadTable) trim(to uint64) {
	t.mu.Lock()
	for ; t.low <= to && t.low <= t.high; t.low++ {
		t.dropLocked(t.low)
	}
	t.mu.Unlock()
}

// evict frees the oldest payloads that are written and applied: as many as the
// budget demands, and those added at or before tick ageOut.
func (t *payloadTable) evict(ageOut uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ; t.low <= t.high; t.low++ {
		p := t.byIndex[t.low]
		if p == nil {
			continue
		}
		if !p.written || !p.applied || (t.resident <= t.budget && p.addedTick > ageOut) {
			return
		}
		t.dropLocked(t.low)
	}
}

// heldPayload is a payload held by a send or a reader: resident when it was
// taken, or to be read from the log when it is needed.
type heldPayload struct {
	t           *payloadTable
	index, term uint64
	n           int
	p           *payload
	loaded      []byte
	sends       bool
}

// send takes a payload for one peer. While peers pin fewer than pinBytes the
// reference is strong; beyond that a slow peer's payloads are read back from
// the log, unless they cannot be read there yet.
func (t *payloadTable) send(index, term uint64, n, pinBytes int) *heldPayload {
	h := &heldPayload{t: t, index: index, term: term, n: n}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.byIndex[index]
	if p == nil || p.term != term || (p.written && t.pinned+n > pinBytes) {
		return h
	}
	p.refs++
	t.pinned += n
	h.p, h.sends = p, true
	return h
}

// view takes a payload for a reader.
func (t *payloadTable) view(index, term uint64) (*heldPayload, error) {
	h := &heldPayload{t: t, index: index, term: term, p: t.get(index, term)}
	if h.p == nil {
		b, err := t.read(index, term)
		if err != nil {
			return nil, fmt.Errorf("shard: payload of index %d term %d: %w", index, term, err)
		}
		h.loaded = b
	}
	return h, nil
}

// Len implements transport.Payload.
func (h *heldPayload) Len() int { return h.n }

// Load implements transport.Payload.
func (h *heldPayload) Load() ([]byte, error) {
	if h.p != nil {
		return h.p.buf, nil
	}
	if h.loaded == nil {
		b, err := h.t.read(h.index, h.term)
		if err != nil {
			return nil, fmt.Errorf("shard: payload of index %d term %d: %w", h.index, h.term, err)
		}
		if len(b) != h.n {
			h.t.bufs.Put(b)
			return nil, fmt.Errorf("shard: payload of index %d term %d: expected %d bytes, found %d: %w", h.index, h.term, h.n, len(b), ErrPayload)
		}
		h.loaded = b
	}
	return h.loaded, nil
}

// Bytes implements PayloadView.
func (h *heldPayload) Bytes() []byte {
	if h.p != nil {
		return h.p.buf
	}
	return h.loaded
}

// Release implements transport.Payload and PayloadView.
func (h *heldPayload) Release() {
	if h.loaded != nil {
		h.t.bufs.Put(h.loaded)
		h.loaded = nil
	}
	if h.p == nil {
		return
	}
	h.t.mu.Lock()
	if h.sends {
		h.t.pinned -= h.n
	}
	h.t.releaseLocked(h.p)
	h.t.mu.Unlock()
	h.p = nil
}

// logReader reads payloads of shard id from log into bufs' buffers.
func logReader(log Log, id wal.ShardID, bufs *Buffers) func(index, term uint64) ([]byte, error) {
	return func(index, term uint64) ([]byte, error) {
		return log.ReadPayload(id, index, term, bufs.Get)
	}
}
