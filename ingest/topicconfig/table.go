package topicconfig

import "math"

const (
	anyLong = math.MaxInt64
	anyInt  = math.MaxInt32
)

// Reasons that several rows share.
const (
	whySegments  = "segments are sealed per shard, not per partition: tiering.segment.bytes and tiering.segment.ms of the brokers"
	whyCompact   = "compaction is not built yet: a compacted topic is never shortened"
	whyRetention = "retention is not built yet: nothing is deleted but by DeleteRecords and topic deletion"
	whySynced    = "every ack waits for an fsync anyway"
	whyIndex     = "offset and time indexes have a fixed layout in the segment"
	whyLocal     = "the local log is trimmed as soon as its data is in the object store"
	whyThrottle  = "replication is per shard and paced by the log itself"
)

// table is ordered by name.
var table = []Def{
	{Name: "cleanup.policy", Type: List, Default: "delete", Broker: "log.cleanup.policy", Handling: Stored, Why: whyRetention + "; " + whyCompact, Values: []string{"compact", "delete"},
		Doc: "How old records leave: delete, compact, or both."},
	{Name: "compression.gzip.level", Type: Int, Default: "-1", Broker: "compression.gzip.level", Handling: Honoured, Min: -1, Max: 9,
		Doc: "Level used when compression.type is gzip and a batch has to be compressed again."},
	{Name: "compression.lz4.level", Type: Int, Default: "9", Broker: "compression.lz4.level", Handling: Honoured, Min: 1, Max: 17,
		Doc: "Level used when compression.type is lz4 and a batch has to be compressed again."},
	{Name: "compression.type", Type: String, Default: "producer", Broker: "compression.type", Handling: Honoured, Values: []string{"uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"},
		Doc: "Codec of stored batches; producer keeps what the producer chose."},
	{Name: "compression.zstd.level", Type: Int, Default: "3", Broker: "compression.zstd.level", Handling: Honoured, Min: -131072, Max: 22,
		Doc: "Level used when compression.type is zstd and a batch has to be compressed again."},
	{Name: "delete.retention.ms", Type: Long, Default: "86400000", Broker: "log.cleaner.delete.retention.ms", Handling: Stored, Why: whyCompact, Max: anyLong,
		Doc: "How long tombstones of a compacted topic are kept."},
	{Name: "file.delete.delay.ms", Type: Long, Default: "60000", Broker: "log.segment.delete.delay.ms", Handling: Stored, Why: "objects are deleted after a grace of the brokers' own", Max: anyLong,
		Doc: "Time before a deleted file is removed."},
	{Name: "flush.messages", Type: Long, Default: "9223372036854775807", Broker: "log.flush.interval.messages", Handling: Stored, Why: whySynced, Min: 1, Max: anyLong,
		Doc: "Number of messages between two fsyncs."},
	{Name: "flush.ms", Type: Long, Default: "9223372036854775807", Broker: "log.flush.interval.ms", Handling: Stored, Why: whySynced, Max: anyLong,
		Doc: "Time between two fsyncs."},
	{Name: "follower.replication.throttled.replicas", Type: List, Default: "", Handling: Stored, Why: whyThrottle,
		Doc: "Replicas whose replication is throttled on the follower's side."},
	{Name: "index.interval.bytes", Type: Int, Default: "4096", Broker: "log.index.interval.bytes", Handling: Stored, Why: whyIndex, Max: anyInt,
		Doc: "Bytes between two index entries."},
	{Name: "leader.replication.throttled.replicas", Type: List, Default: "", Handling: Stored, Why: whyThrottle,
		Doc: "Replicas whose replication is throttled on the leader's side."},
	{Name: "local.retention.bytes", Type: Long, Default: "-2", Broker: "log.local.retention.bytes", Handling: Stored, Why: whyLocal, Min: -2, Max: anyLong,
		Doc: "Bytes kept locally of what is in the object store."},
	{Name: "local.retention.ms", Type: Long, Default: "-2", Broker: "log.local.retention.ms", Handling: Stored, Why: whyLocal, Min: -2, Max: anyLong,
		Doc: "Time that records are kept locally once they are in the object store."},
	{Name: "max.compaction.lag.ms", Type: Long, Default: "9223372036854775807", Broker: "log.cleaner.max.compaction.lag.ms", Handling: Stored, Why: whyCompact, Min: 1, Max: anyLong,
		Doc: "Longest time that a record stays uncompacted."},
	{Name: "max.message.bytes", Type: Int, Default: "1048588", Broker: "message.max.bytes", Handling: Honoured, Max: anyInt,
		Doc: "Largest record batch accepted."},
	{Name: "message.downconversion.enable", Type: Bool, Default: "false", Broker: "log.message.downconversion.enable", Handling: Stored, Why: "message formats before v2 are neither stored nor served",
		Doc: "Whether batches are converted for old consumers."},
	{Name: "message.format.version", Type: String, Default: "3.0-IV1", Broker: "log.message.format.version", Handling: Stored, Why: "the format is always v2",
		Doc: "Old setting of the message format."},
	{Name: "message.timestamp.after.max.ms", Type: Long, Default: "3600000", Broker: "log.message.timestamp.after.max.ms", Handling: Honoured, Max: anyLong,
		Doc: "How far a record's timestamp may lie after the broker's time."},
	{Name: "message.timestamp.before.max.ms", Type: Long, Default: "9223372036854775807", Broker: "log.message.timestamp.before.max.ms", Handling: Honoured, Max: anyLong,
		Doc: "How far a record's timestamp may lie before the broker's time."},
	{Name: "message.timestamp.difference.max.ms", Type: Long, Default: "9223372036854775807", Handling: Stored, Why: "replaced by message.timestamp.before.max.ms and message.timestamp.after.max.ms", Max: anyLong,
		Doc: "Old setting of the allowed timestamp difference."},
	{Name: "message.timestamp.type", Type: String, Default: "CreateTime", Broker: "log.message.timestamp.type", Handling: Honoured, Values: []string{"CreateTime", "LogAppendTime"},
		Doc: "Whether records keep the producer's timestamp or get the broker's."},
	{Name: "min.cleanable.dirty.ratio", Type: Double, Default: "0.5", Broker: "log.cleaner.min.cleanable.ratio", Handling: Stored, Why: whyCompact, Max: 1,
		Doc: "Share of uncompacted data from which compaction begins."},
	{Name: "min.compaction.lag.ms", Type: Long, Default: "0", Broker: "log.cleaner.min.compaction.lag.ms", Handling: Stored, Why: whyCompact, Max: anyLong,
		Doc: "Shortest time that a record stays uncompacted."},
	{Name: "min.insync.replicas", Type: Int, Default: "1", Broker: "min.insync.replicas", Handling: Honoured, Min: 1, Max: anyInt,
		Doc: "Replicas that must have a record before acks=all is answered. The ack policy's majority always holds."},
	{Name: "preallocate", Type: Bool, Default: "false", Broker: "log.preallocate", Handling: Stored, Why: "log files are recycled, never preallocated per topic",
		Doc: "Whether files are preallocated."},
	{Name: "remote.log.copy.disable", Type: Bool, Default: "false", Handling: Refused, Why: "sealed data always goes to the object store",
		Doc: "Whether copying to the object store is off."},
	{Name: "remote.log.delete.on.disable", Type: Bool, Default: "false", Handling: Stored, Why: "tiering cannot be disabled",
		Doc: "Whether disabling tiering deletes what is in the object store."},
	{Name: "remote.storage.enable", Type: Bool, Default: "true", Handling: Stored, Why: "every topic is tiered",
		Doc: "Whether the topic is tiered to the object store."},
	{Name: "retention.bytes", Type: Long, Default: "-1", Broker: "log.retention.bytes", Handling: Stored, Why: whyRetention, Min: -1, Max: anyLong,
		Doc: "Bytes of a partition from which its oldest data is deleted."},
	{Name: "retention.ms", Type: Long, Default: "604800000", Broker: "log.retention.ms", Handling: Stored, Why: whyRetention, Min: -1, Max: anyLong,
		Doc: "Age from which data is deleted."},
	{Name: "segment.bytes", Type: Int, Default: "1073741824", Broker: "log.segment.bytes", Handling: Stored, Why: whySegments, Min: 14, Max: anyInt,
		Doc: "Size of a partition's segment files."},
	{Name: "segment.index.bytes", Type: Int, Default: "10485760", Broker: "log.index.size.max.bytes", Handling: Stored, Why: whyIndex, Min: 4, Max: anyInt,
		Doc: "Size of index files."},
	{Name: "segment.jitter.ms", Type: Long, Default: "0", Broker: "log.roll.jitter.ms", Handling: Stored, Why: whySegments, Max: anyLong,
		Doc: "Jitter of segment.ms."},
	{Name: "segment.ms", Type: Long, Default: "604800000", Broker: "log.roll.ms", Handling: Stored, Why: whySegments, Min: 1, Max: anyLong,
		Doc: "Age at which a segment file is rolled."},
	{Name: "thermocline.roll", Type: Long, Default: "0", Handling: Honoured, Max: anyLong,
		Doc: "A change of this number makes the brokers seal, upload and trim the topic at once (thermocline topic roll). Not one of Kafka's."},
	{Name: "unclean.leader.election.enable", Type: Bool, Default: "false", Broker: "unclean.leader.election.enable", Handling: Refused, Why: "leaders are elected by Raft, never uncleanly",
		Doc: "Whether a replica that misses acked records may become leader."},
}
