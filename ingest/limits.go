package ingest

import "time"

// Every bound of this package, in one place, with its reason. Settings of
// Config that bound something have their defaults in config.go.
const (
	// maxSmallFrame bounds a request that carries no records. A fetch of
	// 100,000 partitions takes 3.3 MB.
	maxSmallFrame = 8 << 20
	// decodeFactor is charged to the byte budget for each byte of a request
	// without records: decoding makes Go values of several times its size.
	decodeFactor = 16
	// minFrame is the smallest request: key, version, correlation id, null client id.
	minFrame = 10
	// maxTags bounds the tagged fields of a request header and of each entry
	// of a produce request. No client sends more than two.
	maxTags = 64
	// maxClientID bounds what a client may name itself; it appears in logs.
	maxClientID = 1 << 10

	// maxPipelined is how many requests of one connection may be unanswered.
	// Clients send 5 (Java) to about 100; further ones wait in the socket.
	maxPipelined = 128
	// maxGathered is how many answers leave with one system call at most.
	maxGathered = 32
	// maxAsync is how many requests of one connection may wait on goroutines
	// of their own (long polls, metadata writes).
	maxAsync = 16
	// maxHeldAnswer is how many bytes of finished answers a connection may
	// hold before the next request is begun: a client that does not read
	// costs this much, and one answer more.
	maxHeldAnswer = 4 << 20

	// maxProduceTopics and maxProducePartitions bound what one produce request
	// may list: each entry costs memory beyond its bytes.
	maxProduceTopics     = 20_000
	maxProducePartitions = 50_000
	// maxGroupsPerRequest bounds what describes, deletes or looks up many
	// groups at once: each becomes a call of its own.
	maxGroupsPerRequest = 10_000
	// maxCreateTopics bounds one CreateTopics request, and with
	// maxPartitionsPerTopic the size of a topic row (etcd takes 1.5 MiB).
	maxCreateTopics       = 10_000
	maxPartitionsPerTopic = 100_000
	// maxDescribed bounds the resources of one DescribeConfigs request: each
	// answer takes 4 to 12 KiB.
	maxDescribed = 10_000
	// commandBytes is what a command without records counts in a shard's queue.
	commandBytes = 256
	// maxAutoCreate bounds the topics that one Metadata request may create.
	maxAutoCreate = 100
	// maxConfigValue bounds one topic config value.
	maxConfigValue = 32 << 10

	// maxFetchSessionPartitions bounds one session's memory.
	maxFetchSessionPartitions = 200_000
	// maxSessionPartitions bounds the memory of all sessions, about 250 bytes
	// each, below partition.MaxSubscriptions.
	maxSessionPartitions = 500_000
	// maxColdPerFetch is how many partitions of one request are read from the
	// store at the same time.
	maxColdPerFetch = 8
	// maxColdReads bounds the cold reads of all fetches, lingering ones
	// included: a fetch that has timed out keeps its download.
	maxColdReads = 256
	// coldGrace is how long a fetch that could be answered waits for a cold
	// read under way: what is cached comes within it.
	coldGrace = 10 * time.Millisecond
	// tailAttempts bounds how often a look-up starts again because segments
	// were committed in between.
	tailAttempts = 4
	// maxFetchWait caps max_wait_ms: a long poll holds a goroutine.
	maxFetchWait = 5 * time.Minute

	// creationWait is how long a request waits for a partition that has its
	// row but is not in its shard's state yet.
	creationWait = time.Second
	// fetchCreationWait is the same for a fetch, whose other partitions should
	// not wait long.
	fetchCreationWait = 200 * time.Millisecond
	// creationPoll is the pause between two looks at that state.
	creationPoll = 5 * time.Millisecond
	// metadataWait bounds a metadata write on behalf of a client that gives no timeout.
	metadataWait = 15 * time.Second
	// autoCreateWait bounds creation of a topic on first use.
	autoCreateWait = 5 * time.Second
	// readIndexWait bounds a confirmation of leadership.
	readIndexWait = 5 * time.Second
	// coldWait bounds one look-up in the store on behalf of a request
	// without a deadline of its own.
	coldWait = 30 * time.Second
	// queueWait is how long a produce request waits for room in its shard's
	// queue before it is refused; its connection is not read meanwhile, which
	// is the back-pressure. queuePoll is the pause between two tries.
	queueWait = 5 * time.Second
	queuePoll = time.Millisecond
	// maxEffective bounds the cache of parsed topic configs.
	maxEffective = 20_000
	// maxProduceWait caps a produce request's timeout_ms.
	maxProduceWait = 5 * time.Minute

	// frameWait and frameRate bound how long a begun frame may take to arrive,
	// since it holds byte budget: key and version frameWait from the first byte
	// on, the rest frameWait and its size at frameRate. A client that stalls in
	// a frame is closed then (Kafka waits for connections.max.idle.ms, ten
	// minutes); a size that no request has closes the connection at once.
	frameWait = 30 * time.Second
	frameRate = 256 << 10 // bytes per second
	// writeWait and writeRate bound how long an answer may take to leave.
	writeWait = 30 * time.Second
	writeRate = 256 << 10 // bytes per second

	// connBuffer is the reader's buffer: headers and small requests. Large
	// bodies go past it.
	connBuffer = 8 << 10
	// logLinesPerSecond bounds the lines that clients can cause.
	logLinesPerSecond = 20
	// acceptPause is the pause after a failed accept (no file descriptors left).
	acceptPause = 50 * time.Millisecond
	// alterAttempts bounds how often a config change is tried against a row
	// that others change at the same time; viewPoll is the pause between looks
	// at the cached view while it catches up.
	alterAttempts = 5
	viewPoll      = 5 * time.Millisecond
)
