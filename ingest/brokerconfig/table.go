package brokerconfig

import (
	"math"

	"thermocline/ingest/topicconfig"
)

const (
	anyInt  = math.MaxInt32
	anyLong = math.MaxInt64
)

// nullDefaults are the settings that Kafka leaves null: a coarser one decides.
var nullDefaults = []string{"log.flush.interval.ms", "log.retention.ms", "log.roll.jitter.ms", "log.roll.ms"}

// coarser lists, by a setting in milliseconds, those in larger units that hold
// where it is not set.
var coarser = map[string][]struct {
	name   string
	millis int64
}{
	"log.retention.ms":      {{"log.retention.minutes", 60_000}, {"log.retention.hours", 3_600_000}},
	"log.roll.ms":           {{"log.roll.hours", 3_600_000}},
	"log.roll.jitter.ms":    {{"log.roll.jitter.hours", 3_600_000}},
	"log.flush.interval.ms": {{"log.flush.scheduler.interval.ms", 1}},
}

func number(name string, t topicconfig.Type, def string, from, to float64, doc string) Def {
	return Def{Def: topicconfig.Def{Name: name, Type: t, Default: def, Handling: topicconfig.Honoured, Min: from, Max: to, Doc: doc}}
}

func integer(name, def string, from float64, doc string) Def {
	return number(name, topicconfig.Int, def, from, anyInt, doc)
}

func long(name, def string, from float64, doc string) Def {
	return number(name, topicconfig.Long, def, from, anyLong, doc)
}

func truth(name, def, doc string) Def {
	return Def{Def: topicconfig.Def{Name: name, Type: topicconfig.Bool, Default: def, Handling: topicconfig.Honoured, Doc: doc}}
}

func text(name, def, doc string, values ...string) Def {
	return Def{Def: topicconfig.Def{Name: name, Type: topicconfig.String, Default: def, Handling: topicconfig.Honoured, Doc: doc, Values: values}}
}

func list(name, def, doc string, values ...string) Def {
	return Def{Def: topicconfig.Def{Name: name, Type: topicconfig.List, Default: def, Handling: topicconfig.Honoured, Doc: doc, Values: values}}
}

// Own describes a setting that Kafka does not have; it is read-only.
func Own(name, def, doc string) Def { return text(name, def, doc) }

func dynamic(d Def) Def { d.Update = Dynamic; return d }

func null(d Def) Def { d.Null = true; return d }

func stored(d Def, why string) Def { d.Handling, d.Why = topicconfig.Stored, why; return d }

// only: no other value than the default is accepted.
func only(d Def, why string) Def { d.Handling, d.Why = topicconfig.Refused, why; return d }

const (
	whyRolls   = "segments are sealed per shard, not per partition: tiering.segment.bytes and tiering.segment.ms of the brokers"
	whyKept    = "retention is not built yet"
	whyInside  = "internal topics live in shard state, without partitions of their own"
	whyThreads = "goroutines are as many as there is work"
)

// rows are the settings of brokers but for those that topics inherit: names,
// kinds, defaults and what may be changed at run time as in Kafka 4.3.
var rows = []Def{
	integer("broker.id", "-1", -1, "The broker's number; the same as node.id."),
	integer("node.id", "-1", -1, "The broker's number, unique in the cluster."),
	null(text("broker.rack", "", "The broker's rack or zone.")),
	list("process.roles", "broker,controller", "What the process does: every broker may become controller."),
	list("listeners", "PLAINTEXT://:9092", "Where Kafka clients connect."),
	null(list("advertised.listeners", "", "What clients are told to connect to.")),
	list("log.dirs", "", "The broker's data directory."),
	null(text("authorizer.class.name", "", "There is no authorizer: everybody may do everything.")),

	truth("auto.create.topics.enable", "true", "Create a topic when a client asks for its metadata and allows it."),
	truth("delete.topic.enable", "true", "Whether topics may be deleted."),
	integer("num.partitions", "1", 1, "Partitions of a topic created without a number."),
	integer("default.replication.factor", "1", 1, "Replication factor of topics created without one."),
	only(truth("auto.leader.rebalance.enable", "true", "Leadership returns to each shard's home."), "shards always return home"),
	only(truth("controlled.shutdown.enable", "true", "A broker that stops hands leadership over first."), "a stop is always controlled"),

	integer("socket.request.max.bytes", "104857600", 1, "Largest request accepted."),
	long("queued.max.request.bytes", "-1", -1, "Memory for requests of all connections that are being worked on."),
	integer("fetch.max.bytes", "57671680", 1024, "Most bytes that one fetch is answered with."),
	integer("max.incremental.fetch.session.cache.slots", "1000", 0, "Fetch sessions remembered."),
	integer("max.request.partition.size.limit", "2000", 1, "Most partitions in one answer to DescribeTopicPartitions."),
	dynamic(integer("max.connections", "2147483647", 0, "Client connections accepted.")),
	dynamic(integer("max.connections.per.ip", "2147483647", 0, "Client connections accepted from one address.")),
	long("connections.max.idle.ms", "600000", 1000, "Idle connections are closed after this time."),
	dynamic(stored(integer("num.io.threads", "8", 1, "Threads that work on requests."), whyThreads)),
	dynamic(stored(integer("num.network.threads", "3", 1, "Threads that read from and write to sockets."), whyThreads)),
	dynamic(stored(integer("background.threads", "10", 1, "Threads of background work."), whyThreads)),

	null(integer("log.retention.minutes", "-1", -1, "Default of the topic config retention.ms, in minutes, where log.retention.ms is not set.")),
	integer("log.retention.hours", "168", -1, "Default of the topic config retention.ms, in hours, where neither milliseconds nor minutes are set."),
	stored(integer("log.roll.hours", "168", 1, "Default of the topic config segment.ms, in hours."), whyRolls),
	stored(integer("log.roll.jitter.hours", "0", 0, "Default of the topic config segment.jitter.ms, in hours."), whyRolls),
	stored(long("log.flush.scheduler.interval.ms", "9223372036854775807", 1, "Default of the topic config flush.ms."), "every ack waits for an fsync anyway"),
	stored(long("log.retention.check.interval.ms", "300000", 1, "How often the brokers look for data whose retention has ended."), whyKept),
	long("replica.lag.time.max.ms", "30000", 1, "How long a replica may lag and stay in the in-sync set."),
	null(text("replica.selector.class", "", "A consumer with a client.rack always reads from the replica in its rack.")),
	dynamic(integer("producer.id.expiration.ms", "86400000", 1, "How long an idle producer's state is kept.")),

	integer("group.initial.rebalance.delay.ms", "3000", 0, "How long an empty classic group waits for more members before its first rebalance."),
	integer("group.min.session.timeout.ms", "6000", 0, "Shortest session timeout that a member of a classic group may ask for."),
	integer("group.max.session.timeout.ms", "1800000", 0, "Longest session timeout that a member of a classic group may ask for."),
	integer("group.max.size", "2147483647", 1, "Members of a classic group. Above 10,000 it means 10,000."),
	integer("offsets.retention.minutes", "10080", 1, "How long offsets of a group without members are kept."),
	long("offsets.retention.check.interval.ms", "600000", 1, "How often the brokers look for offsets whose retention has ended."),
	integer("offset.metadata.max.bytes", "4096", 0, "Largest metadata string of a committed offset."),
	stored(integer("offsets.topic.num.partitions", "50", 1, "Partitions of __consumer_offsets."), whyInside),
	stored(integer("offsets.topic.replication.factor", "3", 1, "Replicas of __consumer_offsets."), whyInside),
	list("group.coordinator.rebalance.protocols", "classic,consumer,streams", "Group protocols served.", "classic", "consumer", "share", "streams"),
	integer("group.consumer.session.timeout.ms", "45000", 1, "Session timeout of members of consumer groups."),
	integer("group.consumer.min.session.timeout.ms", "45000", 1, "Shortest session timeout that a consumer group may be given."),
	integer("group.consumer.max.session.timeout.ms", "60000", 1, "Longest session timeout that a consumer group may be given."),
	integer("group.consumer.heartbeat.interval.ms", "5000", 1, "Heartbeat interval of members of consumer groups."),
	integer("group.consumer.min.heartbeat.interval.ms", "5000", 1, "Shortest heartbeat interval that a consumer group may be given."),
	integer("group.consumer.max.heartbeat.interval.ms", "15000", 1, "Longest heartbeat interval that a consumer group may be given."),
	dynamic(integer("group.consumer.assignment.interval.ms", "1000", 0, "Least time between two assignments of a consumer group's partitions.")),
	integer("group.consumer.min.assignment.interval.ms", "0", 0, "Shortest assignment interval that a consumer group may be given."),
	integer("group.consumer.max.assignment.interval.ms", "15000", 0, "Longest assignment interval that a consumer group may be given."),
	integer("group.consumer.max.size", "2147483647", 1, "Members of a consumer group. Above 10,000 it means 10,000."),
	list("group.consumer.assignors", "uniform,range", "Assignors of consumer groups, the default first.", "uniform", "range"),
	text("group.consumer.migration.policy", "bidirectional", "Whether groups may change between the classic and the consumer protocol while members are there.",
		"disabled", "upgrade", "downgrade", "bidirectional"),

	integer("transaction.max.timeout.ms", "900000", 1, "Longest transaction timeout that a producer may ask for."),
	integer("transactional.id.expiration.ms", "604800000", 1, "How long an idle transactional id is kept."),
	stored(integer("transaction.state.log.num.partitions", "50", 1, "Partitions of __transaction_state."), whyInside),
	stored(integer("transaction.state.log.replication.factor", "3", 1, "Replicas of __transaction_state."), whyInside),
	stored(integer("transaction.state.log.min.isr", "2", 1, "In-sync replicas that __transaction_state needs."), whyInside),
	dynamic(truth("transaction.partition.verification.enable", "true", "Whether a transactional write is checked against its coordinator.")),
	only(truth("transaction.two.phase.commit.enable", "false", "Whether transactions may stay open without a timeout."), "two-phase commit is not built"),
}
