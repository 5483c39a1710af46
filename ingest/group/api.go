package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Call is one request for one group. Requests that name several groups are
// split by the caller, one Call for each, and their answers joined.
type Call struct {
	// Request is one of: JoinGroup, SyncGroup, Heartbeat, LeaveGroup,
	// OffsetCommit, OffsetFetch (exactly one group in Groups, also for versions
	// that name it elsewhere), OffsetDelete, DescribeGroups (exactly one
	// group), DeleteGroups (exactly one), ListGroups, ConsumerGroupHeartbeat,
	// ConsumerGroupDescribe (exactly one). Its version decides what the answer
	// may say; topics that were named by id come with Topic and TopicID both set.
	Request kmsg.Request
	// ClientID and ClientHost ("/10.0.0.1", as Kafka shows it) describe the caller.
	ClientID, ClientHost string
	// Reply is called exactly once, from within some later call of the
	// Coordinator, and must not block or call back. The response's version is
	// set to the request's.
	Reply func(kmsg.Response)
}

// Record is one change of the slot's replicated map.
type Record struct {
	Key string
	// Value nil deletes the key.
	Value []byte
}

// Write is a list of records that change the map as one; of two with the same
// key the later holds.
type Write struct {
	// Number counts the writes of this Coordinator, from 1.
	Number  uint64
	Records []Record
}

// Topics is an immutable view of the cluster's topics.
type Topics interface {
	// Topic finds a topic by name.
	Topic(name string) (Topic, bool)
	// TopicByID finds a topic by id.
	TopicByID(id [16]byte) (Topic, bool)
	// Names lists all topics, in no particular order; for regular expressions.
	Names() []string
	// Deleted tells whether the cluster deleted the topic of this id. A topic
	// that is merely missing from the view loses no offsets.
	Deleted(id [16]byte) bool
}

// Topic is what a group needs to know of a topic.
type Topic struct {
	Name       string
	ID         [16]byte
	Partitions int32
	// Racks[i] lists the racks of partition i's replicas; nil when brokers have none.
	Racks [][]string
}

// Options are a Coordinator's limits and defaults: Kafka's settings, under
// Kafka's names. Times are in milliseconds.
type Options struct {
	// NewID returns an unused id for a member that brings none. Random in
	// brokers, counted in tests.
	NewID func() string

	MinSessionTimeout     int64 // group.min.session.timeout.ms
	MaxSessionTimeout     int64 // group.max.session.timeout.ms
	InitialRebalanceDelay int64 // group.initial.rebalance.delay.ms
	MaxSize               int   // group.max.size: members of a classic group

	OffsetsRetention     int64 // offsets.retention.minutes, in ms
	RetentionCheck       int64 // offsets.retention.check.interval.ms
	OffsetMetadataMax    int   // offset.metadata.max.bytes
	MaxGroupBytes        int   // bytes of one group's metadata record
	MaxOffsetsPerRequest int   // partitions of one OffsetCommit

	Consumer          GroupSettings // of groups that have none of their own
	ConsumerMaxSize   int           // group.consumer.max.size
	ConsumerAssignors []string      // group.consumer.assignors, the first is the default
	// ConsumerMigration is group.consumer.migration.policy: disabled, upgrade,
	// downgrade or bidirectional.
	ConsumerMigration string

	// Groups has, by name, the groups that have settings of their own, with all
	// of their settings. The map never changes.
	Groups map[string]GroupSettings
}

// GroupSettings are the settings of consumer groups (KIP-848) that a single
// group may have of its own (Kafka's configs of the resource type GROUP). Times
// are in milliseconds. A change holds from a member's next heartbeat on.
type GroupSettings struct {
	SessionTimeout    int64 // consumer.session.timeout.ms
	HeartbeatInterval int64 // consumer.heartbeat.interval.ms
	// AssignmentInterval is consumer.assignment.interval.ms: the least time
	// between two computations of a group's target. A thousand members that join
	// at once cost some targets instead of a thousand (KIP-1263).
	AssignmentInterval int64
}

// of returns a group's settings: its own, or those of all.
func (o *Options) of(group string) GroupSettings {
	if own, ok := o.Groups[group]; ok {
		return own
	}
	return o.Consumer
}

// DefaultOptions returns Kafka's defaults, but for MaxSize and ConsumerMaxSize:
// 10,000, since everything here is bounded.
func DefaultOptions() Options {
	return Options{
		MinSessionTimeout: 6_000, MaxSessionTimeout: 1_800_000, InitialRebalanceDelay: 3_000, MaxSize: 10_000,
		OffsetsRetention: 7 * 24 * 3_600_000, RetentionCheck: 600_000, OffsetMetadataMax: 4096,
		MaxGroupBytes: 4 << 20, MaxOffsetsPerRequest: 100_000,
		Consumer: GroupSettings{SessionTimeout: 45_000, HeartbeatInterval: 5_000, AssignmentInterval: 1_000}, ConsumerMaxSize: 10_000,
		ConsumerAssignors: []string{"uniform", "range"}, ConsumerMigration: "bidirectional",
	}
}
