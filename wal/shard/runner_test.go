package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"thermocline/wal"
	"thermocline/wal/transport"
	"thermocline/wal/vfs"
)

// asyncLog is a memLog behind one goroutine, as the real writer is.
type asyncLog struct {
	mu    sync.Mutex
	mem   *memLog
	queue chan *wal.Append
	done  chan struct{}
}

func newAsyncLog(mem *memLog) *asyncLog {
	l := &asyncLog{mem: mem, queue: make(chan *wal.Append, 1024), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for a := range l.queue {
			l.mu.Lock()
			err := l.mem.write(a)
			l.mu.Unlock()
			a.Done(err)
		}
	}()
	return l
}

func (l *asyncLog) Submit(a *wal.Append) { l.queue <- a }

func (l *asyncLog) ReadPayload(_ wal.ShardID, index, term uint64, get func(int) []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mem.read(index, term, get)
}

func (l *asyncLog) close() {
	close(l.queue)
	<-l.done
}

// runnerNet carries messages between runners, one goroutine per receiver.
type runnerNet struct {
	t       *testing.T
	bufs    *Buffers
	mu      sync.Mutex
	runners map[uint64]*Runner
	links   map[uint64]chan *transport.Message
	wg      sync.WaitGroup
}

func (n *runnerNet) send(m *transport.Message) {
	if m.Snapshot != nil {
		m.Snapshot.Close()
		return
	}
	select {
	case n.links[m.To] <- m:
	default:
		releaseMessage(m)
	}
}

func (n *runnerNet) deliver(to uint64) {
	defer n.wg.Done()
	for m := range n.links[to] {
		in := &transport.Inbound{Shard: m.Shard, From: m.From, To: m.To, HW: m.HW, Raft: proto.CloneOf(m.Raft)}
		for _, p := range m.Payloads {
			var b []byte
			if p != nil {
				if src, err := p.Load(); err == nil {
					b = n.bufs.Get(len(src))
					copy(b, src)
				}
				p.Release()
			}
			in.Payloads = append(in.Payloads, b)
		}
		n.mu.Lock()
		r := n.runners[to]
		n.mu.Unlock()
		if r != nil {
			r.Receive(in)
		}
	}
}

type runnerCluster struct {
	*runnerNet
	logs []*asyncLog
	sms  []*toyMachine
	fss  []*vfs.Mem
}

func newRunnerCluster(t *testing.T) *runnerCluster {
	c := &runnerCluster{runnerNet: &runnerNet{
		t: t, bufs: NewBuffers(1<<20, true), runners: map[uint64]*Runner{}, links: map[uint64]chan *transport.Message{},
	}}
	for i := uint64(1); i <= 3; i++ {
		c.links[i] = make(chan *transport.Message, 4096)
	}
	for i := uint64(1); i <= 3; i++ {
		mem := newMemLog()
		mem.last = 1
		fs := vfs.NewMem(i)
		if err := fs.MkdirAll("d"); err != nil {
			t.Fatal(err)
		}
		c.logs, c.sms, c.fss = append(c.logs, newAsyncLog(mem)), append(c.sms, newToy()), append(c.fss, fs)
		c.start(i, nil)
		c.wg.Add(1)
		go c.deliver(i)
	}
	return c
}

func (c *runnerCluster) start(i uint64, rec *wal.RecoveredShard) *Runner {
	c.t.Helper()
	c.sms[i-1] = newToy()
	r, err := NewRunner(Config{
		Core: Options{Shard: testShard, ID: ReplicaID(i), StateMachine: c.sms[i-1], Buffers: c.bufs, Recovered: rec},
		Log:  c.logs[i-1], FS: c.fss[i-1], Dir: "d", Voters: []ReplicaID{1, 2, 3},
		NewStateMachine: func() StateMachine { return newToy() },
		Send:            c.send, Tick: 5 * time.Millisecond,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	c.runners[i] = r
	c.mu.Unlock()
	return r
}

func (c *runnerCluster) stop() {
	for _, r := range c.runners {
		if err := r.Close(context.Background()); err != nil {
			c.t.Error(err)
		}
	}
	for _, l := range c.links {
		close(l)
	}
	c.wg.Wait()
	for _, l := range c.logs {
		l.close()
	}
}

// ready waits until one of the running replicas leads and is ready.
func (c *runnerCluster) ready() *Runner {
	c.t.Helper()
	found := make(chan *Runner, 16)
	for _, r := range c.runners {
		cancel := r.Subscribe(func(l Leadership) {
			if l.Ready {
				found <- r
			}
		})
		defer cancel()
		if r.Leadership().Ready {
			return r
		}
	}
	select {
	case r := <-found:
		return r
	case <-time.After(time.Minute):
		c.t.Fatal("no leader within a minute")
		return nil
	}
}

func TestRunnerServesAndHandsOver(t *testing.T) {
	c := newRunnerCluster(t)
	defer c.stop()
	l := c.ready()
	const writers, each = 4, 50
	var wg sync.WaitGroup
	errs := make(chan error, writers*each)
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				done := make(chan []Outcome, 1)
				p := &Proposal{
					Commands: []any{put(w*1000 + i)}, Bytes: 32, Acks: AcksAll,
					Done: func(o []Outcome) { done <- o },
				}
				if !l.Propose(p) {
					errs <- fmt.Errorf("refused: %w", l.Intake(ClassClient))
					return
				}
				o := <-done
				errs <- o[0].Err
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	read := make(chan error, 1)
	l.ReadIndex(func(err error) { read <- err })
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	st, err := l.Status(context.Background())
	if err != nil || st.HW != st.Applied || len(st.Peers) != 3 {
		t.Fatalf("status: %+v, %v", st, err)
	}
	id := uint64(l.c.Core.ID)
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	delete(c.runners, id)
	c.mu.Unlock()
	if l.Propose(&Proposal{Commands: []any{put(1)}}) {
		t.Fatal("a closed runner takes proposals")
	}
	now := c.ready()
	c.logs[id-1].mu.Lock()
	rec := c.logs[id-1].mem.recovered()
	c.logs[id-1].mu.Unlock()
	back := c.start(id, rec)
	done := make(chan []Outcome, 1)
	for !now.Propose(&Proposal{Commands: []any{put(99999)}, Acks: AcksAll, Done: func(o []Outcome) { done <- o }}) {
		now = c.ready()
	}
	if o := <-done; o[0].Err != nil || o[0].Result != uint64(writers*each) {
		t.Fatalf("after the hand-over: %+v", o)
	}
	if slices.Contains([]error{ErrStopped}, back.Failed()) {
		t.Fatal(back.Failed())
	}
}

func TestRunnerRefusesWhenFull(t *testing.T) {
	c := newRunnerCluster(t)
	defer c.stop()
	l := c.ready()
	l.post(func() { l.core.SetUsage(fullAt); l.ticked() })
	refused := &Proposal{Commands: []any{put(1)}, Done: func([]Outcome) {}}
	for l.Propose(refused) {
		if _, err := l.Status(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Intake(ClassClient); !errors.Is(err, ErrLogFull) {
		t.Fatalf("expected %v, found %v", ErrLogFull, err)
	}
	done := make(chan []Outcome, 1)
	if !l.Propose(&Proposal{Commands: []any{put(2)}, Class: ClassSystem, Acks: AcksAll, Done: func(o []Outcome) { done <- o }}) {
		t.Fatal("a full log refuses what would free it")
	}
	if o := <-done; o[0].Err != nil {
		t.Fatal(o[0].Err)
	}
}

// TestRunnerPaysBack: a proposal larger than a tick's share is taken whole, and
// the ticks after it pay for it, so that large proposals do not outrun the log.
func TestRunnerPaysBack(t *testing.T) {
	c := newRunnerCluster(t)
	defer c.stop()
	l := c.ready()
	type look struct{ after, next int }
	got := make(chan look, 1)
	l.post(func() {
		l.core.SetUsage(throttleFrom)
		l.ticked()
		share := l.allow
		l.allow -= 3 * share // a proposal of three shares
		after := l.allow
		l.ticked()
		got <- look{after + share, l.allow}
		for range 10 {
			l.ticked()
		}
		if l.allow != share {
			t.Errorf("after ten quiet ticks expected one share of %d, found %d", share, l.allow)
		}
	})
	if g := <-got; g.next != g.after {
		t.Errorf("expected %d after one tick, found %d", g.after, g.next)
	}
	if _, err := l.Status(context.Background()); err != nil {
		t.Fatal(err)
	}
}
