package history

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// Outcome is what a producer knows of a record's fate.
type Outcome uint8

// The outcomes of a call.
const (
	// Unknown: it may be in the log or not.
	Unknown Outcome = iota
	// Acked: it is in the log, at the offset that was told.
	Acked
	// Refused: it is not in the log and never will be.
	Refused
)

// String names the outcome.
func (o Outcome) String() string { return [...]string{"unknown", "acked", "refused"}[o] }

// ID names a record: its producer and its number there, from 0.
type ID struct {
	Producer, Seq int32
}

// String is how values begin.
func (id ID) String() string { return fmt.Sprintf("p%d-%d", id.Producer, id.Seq) }

// Op is one record's call.
type Op struct {
	ID
	Partition int32
	Outcome   Outcome
	// Offset is valid for Acked.
	Offset int64
	// Call and Return are since the recorder's start. Return is valid unless
	// the outcome is Unknown: such a call may take effect later.
	Call, Return time.Duration
}

// Entry is one record of a log as a reader found it.
type Entry struct {
	Offset int64
	ID
}

// maxOps bounds a history: 48 bytes each.
const maxOps = 4_000_000

// Recorder collects calls from several producers.
type Recorder struct {
	start time.Time

	mu      sync.Mutex
	ops     []Op
	acked   map[int32]int64 // by partition
	total   int64
	pending int64
	errs    map[string]int
}

// NewRecorder begins a history.
func NewRecorder() *Recorder {
	return &Recorder{start: time.Now(), acked: map[int32]int64{}, errs: map[string]int{}}
}

// Now is the time since the start.
func (r *Recorder) Now() time.Duration { return time.Since(r.start) }

// Call records that a record is about to be sent; the result names it in
// Return. It refuses when the history is full.
func (r *Recorder) Call(id ID, partition int32) (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ops) == maxOps {
		return 0, false
	}
	r.ops = append(r.ops, Op{ID: id, Partition: partition, Call: time.Since(r.start)})
	r.pending++
	return len(r.ops) - 1, true
}

// Return records a call's end.
func (r *Recorder) Return(op int, o Outcome, offset int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.ops[op]
	p.Outcome, p.Offset, p.Return = o, offset, time.Since(r.start)
	r.pending--
	if o == Acked {
		r.acked[p.Partition]++
		r.total++
	}
	if err != nil {
		r.errs[err.Error()]++
	}
}

// Acked is how many records were acknowledged so far.
func (r *Recorder) Acked() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}

// AckedIn is how many were acknowledged in one partition.
func (r *Recorder) AckedIn(partition int32) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked[partition]
}

// Errors counts what calls ended with, by text.
func (r *Recorder) Errors() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]int, len(r.errs))
	for k, v := range r.errs {
		out[k] = v
	}
	return out
}

// Ops is the history so far. Calls without a return are Unknown.
func (r *Recorder) Ops() []Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Op(nil), r.ops...)
}

// Value makes a record's value: its name and padding up to size.
func Value(id ID, size int) []byte {
	v := make([]byte, 0, max(size, 32))
	v = append(v, id.String()...)
	v = append(v, ' ')
	for n := uint64(id.Seq)*0x9e3779b97f4a7c15 + uint64(id.Producer); len(v) < size; n = n*6364136223846793005 + 1442695040888963407 {
		// Not all zeros: a log that loses or mixes blocks must show.
		v = strconv.AppendUint(v, n>>32, 36)
	}
	return v[:max(size, bytes.IndexByte(v, ' ')+1)]
}

// Parse reads the name of a record and verifies its whole value.
func Parse(v []byte) (ID, error) {
	var id ID
	name, _, ok := bytes.Cut(v, []byte{' '})
	if _, err := fmt.Sscanf(string(name), "p%d-%d", &id.Producer, &id.Seq); !ok || err != nil {
		return id, fmt.Errorf("history: a value that no producer sent: %.40q", v)
	}
	if !bytes.Equal(v, Value(id, len(v))) {
		return id, fmt.Errorf("history: the value of %s is damaged", id)
	}
	return id, nil
}
