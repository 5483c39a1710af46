package differential

import (
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// World is what the generator knows of both sides: the topics that exist.
type World struct {
	Prefix string // of all topic names of this run
	Topics []Topic
	// Trimmed are the partitions of which records were deleted.
	Trimmed map[Partition]bool
	// Groups are those that Kafka has.
	Groups map[string]bool
	// Members are those of groups, as Kafka has them.
	Members []GroupMember
	// Subscriptions are the topics of each member that Kafka may have, also of
	// those that are away and may come back.
	Subscriptions map[GroupMember][]string
	// Instances has the name of the member that Kafka had last for an instance id.
	Instances map[Instance]string
}

// Topic is a topic that both sides have.
type Topic struct {
	Name       string
	Partitions int32
}

// Partition is one of a topic.
type Partition struct {
	Topic string
	Index int32
}

// maker makes one kind of request.
type maker struct {
	key      int16
	min, max int16
	weight   int
	// changes: the request changes topics; both sides are waited for after it.
	changes bool
	// configures: it changes topics' configs, which Kafka's logs learn of later.
	configures bool
	// reads: asking again is harmless.
	reads bool
	make  func(g *generator) kmsg.Request
}

// Step is one request of the sequence.
type Step struct {
	Changes, Configures, Reads bool
	// Request makes the request for one side; it is the same but for topic ids.
	Request func(s *Side) kmsg.Request
}

// NewStep draws the n-th step of a sequence.
func NewStep(seed, n uint64, w *World) Step {
	total := 0
	for i := range makers {
		total += makers[i].weight
	}
	pick := rand.New(rand.NewPCG(seed, n)).IntN(total)
	m := &makers[0]
	for i := range makers {
		if pick < makers[i].weight {
			m = &makers[i]
			break
		}
		pick -= makers[i].weight
	}
	return Step{Changes: m.changes, Configures: m.configures, Reads: m.reads, Request: func(s *Side) kmsg.Request {
		g := &generator{rng: rand.New(rand.NewPCG(seed, n+1<<40)), world: w, side: s}
		g.version = m.min + int16(g.rng.IntN(int(m.max-m.min)+1))
		req := m.make(g)
		req.SetVersion(g.version)
		return req
	}}
}

// generator makes one request for one side.
type generator struct {
	rng     *rand.Rand
	world   *World
	side    *Side
	version int16
}

func (g *generator) one(of int) bool { return g.rng.IntN(of) == 0 }

func pick[T any](g *generator, from ...T) T { return from[g.rng.IntN(len(from))] }

func ptr[T any](v T) *T { return &v }

// existing is a topic that exists, if there is one.
func (g *generator) existing() Topic {
	if len(g.world.Topics) == 0 {
		return Topic{g.world.Prefix + "none", 1}
	}
	return pick(g, g.world.Topics...)
}

// topic is mostly one that exists.
func (g *generator) topic() Topic {
	switch g.rng.IntN(12) {
	case 0:
		return Topic{g.world.Prefix + "missing", 1}
	case 1:
		return Topic{"bad name!", 1}
	}
	return g.existing()
}

// partition is mostly one that the topic has.
func (g *generator) partition(t Topic) int32 {
	if g.one(12) {
		return pick(g, t.Partitions, -1, 1000)
	}
	return g.rng.Int32N(t.Partitions)
}

// newName is a name for a topic to be made or deleted: few, so that they meet.
func (g *generator) newName() string {
	return g.world.Prefix + pick(g, "a", "b", "c", "d.x", "d_x", "e")
}

// config is a topic config and a value, mostly a valid one.
func (g *generator) config() (name, value string) {
	name = pick(g, "retention.ms", "retention.bytes", "cleanup.policy", "max.message.bytes", "compression.type", "segment.ms",
		"message.timestamp.type", "flush.messages", "min.cleanable.dirty.ratio", "preallocate", "no.such.config")
	switch name {
	case "cleanup.policy":
		value = pick(g, "delete", "compact", "compact,delete", "never")
	case "compression.type":
		value = pick(g, "producer", "gzip", "zstd", "lz4", "snappy", "uncompressed", "rar")
	case "message.timestamp.type":
		value = pick(g, "CreateTime", "LogAppendTime", "Never")
	case "min.cleanable.dirty.ratio":
		value = pick(g, "0.5", "0", "1.5", "x")
	case "preallocate":
		value = pick(g, "true", "false", "maybe")
	case "retention.bytes": // Kafka lets -2 be
		value = pick(g, "1000", "604800000", "-1", "soon")
	case "max.message.bytes": // more than ours may be is fine with Kafka
		value = pick(g, "1000", "1048576", "-1", "soon")
	default:
		value = pick(g, "1000", "604800000", "-1", "-2", "soon")
	}
	return name, value
}

// brokerConfig is a broker setting and a value, mostly one that may be changed.
func (g *generator) brokerConfig() (name, value string) {
	name = pick(g, "log.retention.ms", "log.retention.bytes", "log.cleanup.policy", "log.segment.bytes", "num.partitions", "my.own.setting")
	if name == "log.cleanup.policy" {
		return name, pick(g, "delete", "compact", "never")
	}
	return name, pick(g, "604800000", "1073741824", "soon")
}

// resource is something with configs. Broker settings stay as they are unless
// the request only validates, since each run would meet the last one's.
func (g *generator) resource() (kmsg.ConfigResourceType, string) {
	switch g.rng.IntN(10) {
	case 0:
		return kmsg.ConfigResourceTypeBroker, pick(g, "1", "", "2", "x")
	case 1:
		return kmsg.ConfigResourceTypeGroupConfig, pick(g, "g", "")
	case 2:
		return pick(g, kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceType(99)), "m"
	}
	return kmsg.ConfigResourceTypeTopic, g.topic().Name
}

func (g *generator) configOf(kind kmsg.ConfigResourceType) (name, value string) {
	switch kind {
	case kmsg.ConfigResourceTypeBroker:
		return g.brokerConfig()
	case kmsg.ConfigResourceTypeGroupConfig:
		return pick(g, "consumer.session.timeout.ms", "nope"), pick(g, "50000", "1", "x")
	case kmsg.ConfigResourceTypeClientMetrics:
		return pick(g, "interval.ms", "nope"), pick(g, "50000", "5", "x")
	}
	return g.config()
}
