package members

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Options shape a member.
type Options struct {
	Bootstrap    []string
	Group, Topic string
	// Name is the member's in the history.
	Name string
	// NextGeneration uses the protocol of KIP-848 instead of the classic one.
	NextGeneration bool
	// Session is the classic session time-out (default 45 s, as clients have it).
	Session time.Duration
	// Extra is added to the client's options.
	Extra []kgo.Opt
}

// pollRecords bounds the records of one poll, so that commits are many.
const pollRecords = 500

// Member is one consumer: it polls, writes down what it read, and commits it.
type Member struct {
	o      Options
	r      *Recorder
	cl     *kgo.Client
	gate   *gate
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	owned  map[int32]int // partition -> interval
	paused bool
	errs   map[string]int
}

// Start begins consuming.
func Start(r *Recorder, o Options) (*Member, error) {
	if o.Session == 0 {
		o.Session = 45 * time.Second
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &Member{o: o, r: r, gate: newGate(), cancel: cancel, done: make(chan struct{}), owned: map[int32]int{}, errs: map[string]int{}}
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.Bootstrap...), kgo.ClientID(o.Name), kgo.Dialer(m.gate.dial),
		kgo.ConsumerGroup(o.Group), kgo.ConsumeTopics(o.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.SessionTimeout(o.Session), kgo.HeartbeatInterval(o.Session / 10),
		kgo.OnPartitionsAssigned(m.assigned), kgo.OnPartitionsRevoked(m.released), kgo.OnPartitionsLost(m.released),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.DialTimeout(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	}
	if o.NextGeneration {
		//lint:ignore SA1029 the key is the client's own
		opts = append(opts, kgo.WithContext(context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true))) //nolint:staticcheck // the client looks for this string
	}
	cl, err := kgo.NewClient(append(opts, o.Extra...)...)
	if err != nil {
		cancel()
		return nil, err
	}
	m.cl = cl
	go m.run(ctx)
	return m, nil
}

func (m *Member) assigned(_ context.Context, _ *kgo.Client, given map[string][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range given[m.o.Topic] {
		m.owned[p] = m.r.own(m.o.Name, p, m.paused)
	}
}

func (m *Member) released(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range taken[m.o.Topic] {
		if i, ok := m.owned[p]; ok {
			m.r.release(i)
			delete(m.owned, p)
		}
	}
}

func (m *Member) run(ctx context.Context) {
	defer close(m.done)
	for ctx.Err() == nil {
		fetches := m.cl.PollRecords(ctx, pollRecords)
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.Canceled) && !errors.Is(e.Err, kgo.ErrClientClosed) {
				m.note(fmt.Errorf("poll: %w", e.Err))
			}
		}
		m.take(ctx, fetches)
		m.cl.AllowRebalance()
	}
}

// take writes down what was polled, then commits it. Rebalances wait meanwhile.
func (m *Member) take(ctx context.Context, fetches kgo.Fetches) {
	commits := map[int32]int{} // partition -> commit
	offsets := map[int32]kgo.EpochOffset{}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if len(p.Records) == 0 {
			return
		}
		m.mu.Lock()
		interval, owned := m.owned[p.Partition]
		m.mu.Unlock()
		if !owned {
			m.note(fmt.Errorf("records of partition %d, which was not assigned", p.Partition))
			return
		}
		last := p.Records[len(p.Records)-1]
		m.r.addRead(interval, p.Records[0].Offset, last.Offset)
		commits[p.Partition] = m.r.call(interval, last.Offset+1)
		offsets[p.Partition] = kgo.EpochOffset{Epoch: last.LeaderEpoch, Offset: last.Offset + 1}
	})
	if len(offsets) == 0 {
		return
	}
	m.cl.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{m.o.Topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			if err != nil {
				m.note(fmt.Errorf("commit: %w", err))
				return
			}
			for _, t := range resp.Topics {
				for _, p := range t.Partitions {
					m.r.answered(commits[p.Partition], p.ErrorCode == 0)
					m.note(kerr.ErrorForCode(p.ErrorCode))
				}
			}
		})
}

func (m *Member) note(err error) {
	if err == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.errs[err.Error()]++
}

// Errors counts what went wrong, by text.
func (m *Member) Errors() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.errs)
}

// Owned lists the partitions that the member has at the moment.
func (m *Member) Owned() []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.owned))
}

// Freeze cuts the member off: whatever it sends or waits for stays where it
// is, and its connections stay open. For the group it is a member that hangs.
func (m *Member) Freeze() {
	m.mu.Lock()
	m.paused = true
	m.r.pause(slices.Collect(maps.Values(m.owned)))
	m.mu.Unlock()
	m.gate.shut()
}

// Thaw lets it go on. It stays a member that has paused: what it hears first
// may be old news.
func (m *Member) Thaw() { m.gate.open() }

// Leave ends the member as a client that is closed does.
func (m *Member) Leave() {
	m.cancel()
	<-m.done
	m.cl.CloseAllowingRebalance()
}

// Crash ends it without a word to the group: its connections are cut.
func (m *Member) Crash() {
	m.Freeze()
	m.cancel()
	m.gate.cut()
	<-m.done
	m.cl.CloseAllowingRebalance()
}
