package broker

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"thermocline/ingest"
	"thermocline/ingest/brokerconfig"
	"thermocline/ingest/coordinator"
	"thermocline/ingest/group"
	"thermocline/metadata"
	"thermocline/wal/shard"
)

var _ ingest.Coordinators = (*coordinator.Runtime)(nil)

// Subscribe tells of changes of leadership, for coordinator.Replica.
func (o *owned) Subscribe(fn func(shard.Leadership)) (cancel func()) { return o.runner.Subscribe(fn) }

// startCoordinators makes the runtime of group coordinators; the shards bring
// their slots to it (coordinate).
func (b *Broker) startCoordinators() {
	settings := groupSettings{view: b.view, file: b.cfg.Broker(), self: strconv.Itoa(int(b.cfg.NodeID))}
	b.coordinators = coordinator.New(coordinator.Options{
		Settings:        settings.now,
		SettingsVersion: b.view.ConfigVersion,
		Topics:          func() group.Topics { return newTopicsView(b.view) },
		Logger:          b.log,
	})
	b.work.Go(b.followForCoordinators)
}

// coordinate runs the coordinators of a shard's slots until ctx ends.
func (b *Broker) coordinate(ctx context.Context, o *owned) {
	b.coordinators.Add(o.id, o)
	<-ctx.Done()
	b.coordinators.Remove(o.id)
}

// groupMembersMax bounds what group.max.size and group.consumer.max.size may
// ask for: everything here is bounded.
const groupMembersMax = 10_000

// groupSettings makes the limits and defaults of groups, with what single groups
// have of their own, from the broker's file and the dynamic configs.
type groupSettings struct {
	view *metadata.View
	file *brokerconfig.Values
	self string // this broker's id, as dynamic configs name it

	// made is what all slots share while no dynamic config changes.
	made atomic.Pointer[groupOptions]
}

// groupOptions are what was made of the dynamic configs of a version.
type groupOptions struct {
	version int64
	o       group.Options
}

// now returns the settings in force.
func (s *groupSettings) now() group.Options {
	version := s.view.ConfigVersion()
	if made := s.made.Load(); made != nil && made.version == version {
		return made.o
	}
	v := s.file.With(s.view.Config(metadata.BrokerConfig, s.self).Config, s.view.Config(metadata.BrokerConfig, "").Config)
	o := optionsOfGroups(v)
	o.Groups = map[string]group.GroupSettings{}
	for _, own := range s.view.Configs(metadata.GroupConfig) {
		o.Groups[own.Name] = settingsOfGroup(v, own.Config)
	}
	s.made.Store(&groupOptions{version, o})
	return o
}

// settingsOfGroup are the settings of a group with this config, or of those
// that have none.
func settingsOfGroup(v *brokerconfig.Values, own map[string]string) group.GroupSettings {
	return group.GroupSettings{
		SessionTimeout:     v.GroupInForce(own, "consumer.session.timeout.ms"),
		HeartbeatInterval:  v.GroupInForce(own, "consumer.heartbeat.interval.ms"),
		AssignmentInterval: v.GroupInForce(own, "consumer.assignment.interval.ms"),
	}
}

// optionsOfGroups are the limits and defaults of groups.
func optionsOfGroups(v *brokerconfig.Values) group.Options {
	o := group.DefaultOptions()
	o.NewID = newMemberID
	o.MinSessionTimeout = v.Int("group.min.session.timeout.ms")
	o.MaxSessionTimeout = v.Int("group.max.session.timeout.ms")
	o.InitialRebalanceDelay = v.Int("group.initial.rebalance.delay.ms")
	o.MaxSize = int(min(v.Int("group.max.size"), groupMembersMax))
	o.OffsetsRetention = v.Int("offsets.retention.minutes") * time.Minute.Milliseconds()
	o.RetentionCheck = v.Int("offsets.retention.check.interval.ms")
	o.OffsetMetadataMax = int(v.Int("offset.metadata.max.bytes"))
	o.Consumer = settingsOfGroup(v, nil)
	o.ConsumerMaxSize = int(min(v.Int("group.consumer.max.size"), groupMembersMax))
	o.ConsumerAssignors = v.List("group.consumer.assignors")
	o.ConsumerMigration = v.String("group.consumer.migration.policy")
	return o
}

// newMemberID makes a random UUID (RFC 9562, version 4), as Kafka gives to
// members of groups.
func newMemberID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// followForCoordinators tells the coordinators of what concerns them: where
// slots are, the topics, and the racks of shards.
func (b *Broker) followForCoordinators() {
	changes := b.view.Subscribe()
	defer changes.Close()
	var racks map[metadata.ShardID][]string
	for {
		d := changes.Take()
		changed := d.All || d.Deleted || len(d.Topics) > 0
		if d.Cluster {
			b.coordinators.Place(b.view.CoordinatorSlots())
			now := shardRacks(b.view.Cluster())
			changed = changed || !maps.EqualFunc(racks, now, slices.Equal)
			racks = now
		}
		if changed {
			b.coordinators.TopicsChanged()
		}
		select {
		case <-b.ctx.Done():
			return
		case <-changes.C:
		}
	}
}

// shardRacks lists the racks of each shard's replicas, in order; nil when no
// broker names one.
func shardRacks(c *metadata.Cluster) map[metadata.ShardID][]string {
	var out map[metadata.ShardID][]string
	for _, s := range c.Shards {
		var racks []string
		for _, r := range s.Replicas {
			if b := c.Broker(r.Broker); b != nil && b.Rack != "" {
				racks = append(racks, b.Rack)
			}
		}
		if len(racks) == 0 {
			continue
		}
		slices.Sort(racks)
		if out == nil {
			out = map[metadata.ShardID][]string{}
		}
		out[s.ID] = slices.Compact(racks)
	}
	return out
}

// topicsView is the cluster's topics at one moment, as groups see them.
type topicsView struct {
	byName  []*metadata.Topic // in order of names
	byID    func() map[metadata.TopicID]*metadata.Topic
	racks   map[metadata.ShardID][]string
	deleted func(metadata.TopicID) bool
}

func newTopicsView(v *metadata.View) *topicsView {
	t := &topicsView{byName: v.Topics(), racks: shardRacks(v.Cluster()), deleted: v.WasDeleted}
	t.byID = sync.OnceValue(func() map[metadata.TopicID]*metadata.Topic {
		m := make(map[metadata.TopicID]*metadata.Topic, len(t.byName))
		for _, row := range t.byName {
			m[row.ID] = row
		}
		return m
	})
	return t
}

// Topic implements group.Topics.
func (t *topicsView) Topic(name string) (group.Topic, bool) {
	i, ok := slices.BinarySearchFunc(t.byName, name, func(row *metadata.Topic, name string) int { return strings.Compare(row.Name, name) })
	if !ok {
		return group.Topic{}, false
	}
	return t.topic(t.byName[i]), true
}

// TopicByID implements group.Topics.
func (t *topicsView) TopicByID(id [16]byte) (group.Topic, bool) {
	row := t.byID()[id]
	if row == nil {
		return group.Topic{}, false
	}
	return t.topic(row), true
}

// Names implements group.Topics.
func (t *topicsView) Names() []string {
	names := make([]string, len(t.byName))
	for i, row := range t.byName {
		names[i] = row.Name
	}
	return names
}

// Deleted implements group.Topics: a topic counts as deleted only if a row has
// said so. That it may be known sooner than the topic is missing does no harm.
func (t *topicsView) Deleted(id [16]byte) bool { return t.deleted(id) }

func (t *topicsView) topic(row *metadata.Topic) group.Topic {
	out := group.Topic{Name: row.Name, ID: row.ID, Partitions: int32(len(row.Shards))}
	if t.racks != nil {
		out.Racks = make([][]string, len(row.Shards))
		for i, s := range row.Shards {
			out.Racks[i] = t.racks[s]
		}
	}
	return out
}
