package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"thermocline/localstack/conform/clients/go/driver"
)

// member is one member of a group. Sarama calls it for each session.
type member struct {
	queue
	group sarama.ConsumerGroup
	stop  context.CancelFunc
	done  chan struct{}

	mu      sync.Mutex
	session sarama.ConsumerGroupSession
	taken   map[int32]int64 // partition → next offset, of the session
	topic   string
	last    error
}

func (c *client) Member(ctx context.Context, group, topic string) (driver.Consumer, error) {
	cfg := config()
	cfg.Consumer.Offsets.AutoCommit.Enable = false
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	cfg.Consumer.Group.Session.Timeout = 10 * time.Second
	cfg.Consumer.Group.Rebalance.Retry.Max = 20
	cfg.Consumer.Group.Rebalance.Retry.Backoff = 200 * time.Millisecond
	cg, err := sarama.NewConsumerGroup(c.bootstrap, group, cfg)
	if err != nil {
		return nil, err
	}
	m := &member{queue: make(queue, 1000), group: cg, done: make(chan struct{}), topic: topic}
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			if err := cg.Consume(ctx, []string{topic}, m); err != nil {
				m.mu.Lock()
				m.last = err
				m.mu.Unlock()
			}
		}
	}()
	return m, nil
}

// Setup begins a session.
func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.session, m.taken = s, map[int32]int64{}
	return nil
}

// Cleanup ends it.
func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.session = nil
	return nil
}

// ConsumeClaim hands one partition's records to Poll.
func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case msg, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			select {
			case m.queue <- record(msg):
			case <-s.Context().Done():
				return nil
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

func (m *member) Poll(ctx context.Context, wait time.Duration) ([]driver.Record, error) {
	got, _ := m.queue.Poll(ctx, wait)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range got {
		if m.taken != nil {
			m.taken[r.Partition] = r.Offset + 1
		}
	}
	err := m.last
	m.last = nil
	return got, err
}

func (m *member) Commit(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session == nil {
		return errors.New("no session: a rebalance is under way")
	}
	for p, next := range m.taken {
		m.session.MarkOffset(m.topic, p, next, "")
	}
	m.session.Commit()
	return nil
}

func (m *member) Seek(context.Context, string, int32, int64) error { return errGroup }
func (m *member) Pause(string, int32) error                        { return errGroup }
func (m *member) Resume(string, int32) error                       { return errGroup }

var errGroup = errors.New("partitions of a group's member are not sought or paused here")

func (m *member) Close() error {
	m.stop()
	<-m.done
	return m.group.Close()
}
