package members

import (
	"sync"
	"time"
)

// Interval is one member's ownership of one partition, by its own account:
// from the call that gave it the partition to the end of the call that took it.
type Interval struct {
	Member     string
	Partition  int32
	Start, End time.Duration // End is 0 while it lasts
	// Paused: the member stopped answering at some time during it, so that the
	// group may rightly have given the partition to another one.
	Paused bool
}

// Read is a run of records that a member read in an interval.
type Read struct {
	Interval    int
	First, Last int64
	At          time.Duration
}

// Commit is one partition's commit: Offset is the next one to read.
type Commit struct {
	Interval     int
	Offset       int64
	Call, Return time.Duration
	// Accepted: the coordinator said so. A commit without an answer may have
	// taken effect too: then Known is false.
	Accepted, Known bool
}

// Recorder collects what members see.
type Recorder struct {
	start time.Time

	mu        sync.Mutex
	intervals []Interval
	reads     []Read
	commits   []Commit
	read      int64
}

// NewRecorder begins a history.
func NewRecorder() *Recorder { return &Recorder{start: time.Now()} }

func (r *Recorder) now() time.Duration { return time.Since(r.start) }

// own begins an interval.
func (r *Recorder) own(member string, partition int32, paused bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.intervals = append(r.intervals, Interval{Member: member, Partition: partition, Start: r.now(), Paused: paused})
	return len(r.intervals) - 1
}

// release ends an interval.
func (r *Recorder) release(interval int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.intervals[interval].End = r.now()
}

// pause marks intervals as those of a member that no longer answers.
func (r *Recorder) pause(intervals []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range intervals {
		r.intervals[i].Paused = true
	}
}

func (r *Recorder) addRead(interval int, first, last int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads = append(r.reads, Read{Interval: interval, First: first, Last: last, At: r.now()})
	r.read += last - first + 1
}

// call records that a commit is about to be sent.
func (r *Recorder) call(interval int, offset int64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commits = append(r.commits, Commit{Interval: interval, Offset: offset, Call: r.now()})
	return len(r.commits) - 1
}

func (r *Recorder) answered(commit int, accepted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.commits[commit]
	c.Return, c.Accepted, c.Known = r.now(), accepted, true
}

// Total is how many records were read, repetitions included.
func (r *Recorder) Total() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read
}

// History is a copy of everything recorded so far.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return History{
		Intervals: append([]Interval(nil), r.intervals...),
		Reads:     append([]Read(nil), r.reads...),
		Commits:   append([]Commit(nil), r.commits...),
	}
}

// History is what the members of one group saw of one topic.
type History struct {
	Intervals []Interval
	Reads     []Read
	Commits   []Commit
}
