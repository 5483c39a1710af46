package ingest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"thermocline/ingest/partition"
	"thermocline/ingest/topicconfig"
	"thermocline/metadata"
	"thermocline/wal/shard"
)

// target is a partition as a request finds it: its row, and this broker's
// replica of its shard.
type target struct {
	row     *metadata.Topic
	key     partition.Key
	shard   metadata.ShardID
	replica Replica
}

// topic finds a row by name, or by id when name is empty and ids are in use.
func (s *Server) topic(name string, id metadata.TopicID, byID bool) (*metadata.Topic, error) {
	if byID {
		if row, ok := s.cluster.TopicByID(id); ok {
			return row, nil
		}
		return nil, kerr.UnknownTopicID
	}
	if row, ok := s.cluster.TopicByName(name); ok {
		return row, nil
	}
	return nil, kerr.UnknownTopicOrPartition
}

// locate finds this broker's replica of a partition. NOT_LEADER_OR_FOLLOWER
// when it has none.
func (s *Server) locate(row *metadata.Topic, p int32) (target, error) {
	if p < 0 || int(p) >= len(row.Shards) {
		return target{}, kerr.UnknownTopicOrPartition
	}
	t := target{row: row, key: partition.Key{Topic: row.ID, Partition: p}, shard: row.Shards[p]}
	replica, ok := s.replicas.Replica(t.shard)
	if !ok {
		return t, kerr.NotLeaderForPartition
	}
	t.replica = replica
	return t, nil
}

// leads returns NOT_LEADER_OR_FOLLOWER unless the replica leads and may take
// requests. Of a replica that is out of service it says why: when no other broker
// takes over, that is what the client's log has to show.
func (t *target) leads() error {
	if t.replica.Leadership().Ready {
		return nil
	}
	if err := t.outOfService(); err != nil {
		return err
	}
	return kerr.NotLeaderForPartition
}

// outOfService is why the replica takes nothing any more, or nil.
func (t *target) outOfService() error {
	if err := t.replica.Intake(shard.ClassSystem); errors.Is(err, shard.ErrStopped) {
		return err
	}
	return nil
}

// viewOf returns the partition's view. A partition that has its row but is not
// in its shard's state yet was created just now: it is waited for until the
// patience is used up.
func (s *Server) viewOf(ctx context.Context, t *target, p *patience) (partition.View, error) {
	for {
		v, ok := t.replica.State().View(t.key)
		if ok {
			return v, nil
		}
		if !p.pause(ctx, creationPoll) {
			return v, kerr.UnknownTopicOrPartition
		}
		if _, ok := s.cluster.TopicByID(t.row.ID); !ok {
			return v, kerr.UnknownTopicOrPartition // deleted meanwhile
		}
	}
}

// patience is how long one request may wait in all for what should come soon.
type patience struct {
	most time.Duration
	end  time.Time
}

// pause waits for d and returns true, or returns false when patience or ctx has ended.
func (p *patience) pause(ctx context.Context, d time.Duration) bool {
	now := time.Now()
	if p.end.IsZero() {
		p.end = now.Add(p.most)
	}
	if !now.Before(p.end) {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// leaderHint is who leads a shard, for KIP-951; ok is false while that is
// unknown, or said to be this broker although it does not: it has just refused.
func (s *Server) leaderHint(place *placement, id metadata.ShardID) (leader, epoch int32, ok bool) {
	at := place.of(id)
	if at.leader < 0 || metadata.BrokerID(at.leader) == s.cluster.Self() && !s.leadsShard(id) {
		return -1, -1, false
	}
	return at.leader, at.epoch, true
}

func (s *Server) leadsShard(id metadata.ShardID) bool {
	r, ok := s.replicas.Replica(id)
	return ok && r.Leadership().Ready
}

// broker finds a live broker.
func (s *Server) broker(id int32) (metadata.Broker, bool) {
	for _, b := range s.cluster.Brokers() {
		if int32(b.ID) == id {
			return b, true
		}
	}
	return metadata.Broker{}, false
}

// effectiveCache keeps parsed topic configs.
type effectiveCache struct {
	mu sync.RWMutex
	m  map[metadata.TopicID]effectiveEntry
}

type effectiveEntry struct {
	revision int64
	settings *settingsEntry
	value    topicconfig.Effective
}

// effective returns the values that a topic's config comes to.
func (s *Server) effective(row *metadata.Topic) topicconfig.Effective {
	c, now := &s.effectives, s.settingsEntry()
	c.mu.RLock()
	e, ok := c.m[row.ID]
	c.mu.RUnlock()
	if ok && e.revision == row.Revision && e.settings == now {
		return e.value
	}
	e = effectiveEntry{revision: row.Revision, settings: now, value: topicconfig.Of(now.values.TopicConfig(row.Config), s.cfg.MessageMaxBytes)}
	c.mu.Lock()
	if c.m == nil || len(c.m) >= maxEffective {
		c.m = map[metadata.TopicID]effectiveEntry{}
	}
	c.m[row.ID] = e
	c.mu.Unlock()
	return e.value
}
