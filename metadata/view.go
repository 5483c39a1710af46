package metadata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// defaultProbeEvery is how often a view asks the store for a sign of life.
	defaultProbeEvery = time.Second
	// relistPauseMin and relistPauseMax bound the pause between attempts to
	// list again while the store is away.
	relistPauseMin = 50 * time.Millisecond
	relistPauseMax = time.Second
)

// ViewOptions tune a View; the zero value is right for brokers.
type ViewOptions struct {
	// ProbeEvery is the pause between signs of life; 0 is one second.
	ProbeEvery time.Duration
	// LapseGrace is how long the store must have been healthy before a lapsed
	// lease counts; 0 is DefaultLeaseTTL: time for everybody to register again.
	LapseGrace time.Duration
	// Now is the clock; nil is time.Now.
	Now    func() time.Time
	Logger *slog.Logger
}

// View is a watched copy of the store's content. It answers from memory, also
// while the store is away; Health says how old the answer may be.
//
// What it hands out (Topics, Clusters, slices) never changes and may be kept.
// The cluster part is replaced as a whole, which costs O(brokers + shards) for
// each change of it; topics are maps under a mutex with short critical
// sections, so that a change of one costs O(1) whatever their number.
//
// It owns two goroutines: one follows the watch, one probes. Close stops both.
type View struct {
	store Store
	o     ViewOptions

	cluster atomic.Pointer[Cluster]

	mu       sync.RWMutex
	revision int64
	rows     smallRows
	topics   map[string]*Topic // by name
	byKey    map[string]*Topic // by the row's key
	byID     map[TopicID]*Topic
	sorted   []*Topic // all topics by name; nil when it must be built again
	load     map[ShardID]int
	total    int // partitions
	deleted  map[string]*Topic
	gone     goneTopics
	pointers map[ShardID]SnapshotPointer
	configs  map[string]*DynamicConfig // by the row's key
	// configVersion counts changes of configs.
	configVersion atomic.Int64
	refused       map[string]error
	subs          map[*Subscription]struct{}
	advanced      chan struct{} // closed and replaced at each change
	health        health

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// OpenView lists the store and starts to follow it. It tries again while the
// store is away, until ctx ends. A row that this binary cannot read is an error.
func OpenView(ctx context.Context, s Store, o ViewOptions) (*View, error) {
	if o.ProbeEvery == 0 {
		o.ProbeEvery = defaultProbeEvery
	}
	if o.LapseGrace == 0 {
		o.LapseGrace = DefaultLeaseTTL
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	v := &View{
		store: s, o: o, rows: newSmallRows(),
		topics: map[string]*Topic{}, byKey: map[string]*Topic{}, byID: map[TopicID]*Topic{},
		load: map[ShardID]int{}, deleted: map[string]*Topic{}, pointers: map[ShardID]SnapshotPointer{},
		configs: map[string]*DynamicConfig{},
		refused: map[string]error{}, subs: map[*Subscription]struct{}{}, advanced: make(chan struct{}),
	}
	listing, err := v.list(ctx)
	if err != nil {
		return nil, err
	}
	// The listing is the first sign of life.
	now := o.Now()
	v.health = health{answering: true, watching: true, lastAnswer: now, since: now}
	v.applyListing(listing)
	if err := v.firstRefused(); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.Background())
	v.stop = stop
	v.wg.Add(2)
	go func() { defer v.wg.Done(); v.follow(run) }()
	go func() { defer v.wg.Done(); v.probeLoop(run) }()
	return v, nil
}

func (v *View) firstRefused() error {
	keys := slices.Sorted(maps.Keys(v.refused))
	if len(keys) == 0 {
		return nil
	}
	return v.refused[keys[0]]
}

// Close stops following. The view keeps answering with its last content.
func (v *View) Close() {
	v.stop()
	v.wg.Wait()
}

// Cluster is everything but the topics, at one revision. It takes no lock.
func (v *View) Cluster() *Cluster { return v.cluster.Load() }

// Revision is the store's revision that the view has reached.
func (v *View) Revision() int64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.revision
}

// Topic returns a topic by name, or nil.
func (v *View) Topic(name string) *Topic {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.topics[name]
}

// TopicByID returns a topic by id, or nil.
func (v *View) TopicByID(id TopicID) *Topic {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.byID[id]
}

// Topics returns all topics in order of their names. The slice is shared: it
// is not to be changed.
func (v *View) Topics() []*Topic {
	v.mu.RLock()
	sorted := v.sorted
	v.mu.RUnlock()
	if sorted != nil {
		return sorted
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sorted == nil {
		v.sorted = make([]*Topic, 0, len(v.topics))
		for _, t := range v.topics {
			v.sorted = append(v.sorted, t)
		}
		slices.SortFunc(v.sorted, func(a, b *Topic) int { return cmp.Compare(a.Name, b.Name) })
	}
	return v.sorted
}

// Collision returns the topic whose name differs from name only in '.' and '_', or nil.
func (v *View) Collision(name string) *Topic {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if t := v.byKey[topicKey(name)]; t != nil && collides(t.Name, name) {
		return t
	}
	return nil
}

// Loads counts the partitions of each shard, and all of them.
func (v *View) Loads() (perShard map[ShardID]int, total int) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return maps.Clone(v.load), v.total
}

// Deleted lists the deleted topics that shards still have to let go of:
// Shards holds the shards that have not said so yet, not partitions.
func (v *View) Deleted() []*Topic {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := make([]*Topic, 0, len(v.deleted))
	for _, key := range slices.Sorted(maps.Keys(v.deleted)) {
		out = append(out, v.deleted[key])
	}
	return out
}

// SnapshotPointer returns the newest snapshot of a shard, if there is one.
func (v *View) SnapshotPointer(id ShardID) (SnapshotPointer, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	p, ok := v.pointers[id]
	return p, ok
}

// Wait returns once the view has reached a revision, such as that of an own write.
func (v *View) Wait(ctx context.Context, revision int64) error {
	return v.WaitFor(ctx, func() bool { return v.Revision() >= revision })
}

// WaitFor returns once ok does, which is asked after each change of the view.
func (v *View) WaitFor(ctx context.Context, ok func() bool) error {
	for {
		v.mu.RLock()
		advanced := v.advanced
		v.mu.RUnlock()
		if ok() {
			return nil
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return fmt.Errorf("metadata view at revision %d: %w", v.Revision(), ctx.Err())
		}
	}
}

// follow watches, and lists again whenever a watch has ended.
func (v *View) follow(ctx context.Context) {
	for ctx.Err() == nil {
		v.setWatching(true)
		err := v.watch(ctx)
		v.setWatching(false)
		if ctx.Err() != nil {
			return
		}
		if !errors.Is(err, ErrCompacted) {
			v.o.Logger.Warn("metadata watch ended, listing again", "error", err)
		}
		listing, err := v.list(ctx)
		if err != nil {
			return // closed: ours or the store
		}
		v.applyListing(listing)
	}
}

// watch applies changes until the watch ends; it returns why.
func (v *View) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for c := range v.store.Watch(ctx, "", v.Revision()) {
		if c.Err != nil {
			return c.Err
		}
		v.applyChanges(c)
	}
	return ErrClosed
}

// list reads everything; it tries again until ctx ends or the store is closed.
func (v *View) list(ctx context.Context) (Listing, error) {
	pause := relistPauseMin
	for {
		l, err := v.store.List(ctx, "")
		if err == nil {
			return l, nil
		}
		if ctx.Err() != nil || errors.Is(err, ErrClosed) {
			return Listing{}, fmt.Errorf("metadata view: %w", err)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
		pause = min(2*pause, relistPauseMax)
	}
}
