package broker

import (
	"strconv"
	"sync/atomic"

	"thermocline/index"
	"thermocline/ingest"
	"thermocline/metadata"
	"thermocline/tiering"
	"thermocline/tiering/object"
	"thermocline/wal"
	"thermocline/wal/shard"
	"thermocline/wal/transport"
)

// metrics is every metric that a broker exports. metrics.md is made from it;
// TestMetricsAreDocumentedAndExported keeps the two and /metrics together.
var metrics = slicesOf(clientMetrics, apiMetrics, walMetrics, shardMetrics, replicationMetrics, stateMetrics, coordinatorMetrics, tieringMetrics, coldMetrics, storeMetrics, peerMetrics, metadataMetrics)

func slicesOf(lists ...[]metric) []metric {
	var out []metric
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// one makes the reader of a metric with a single point for each broker.
func one(get func(s *figures) float64) func(*figures, emitter) {
	return func(s *figures, emit emitter) { emit(get(s)) }
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func ofIngest(get func(*ingest.Stats) int64) func(*figures, emitter) {
	return one(func(s *figures) float64 { return float64(get(&s.ingest)) })
}

var clientMetrics = []metric{
	{name: "thermocline.broker.ready", kind: gauge, about: "1 while every shard that should be here runs and has a leader", read: one(func(s *figures) float64 { return truth(s.ready) })},
	{name: "thermocline.connections.active", unit: "{connection}", kind: gauge, about: "Client connections that are open", read: ofIngest(func(i *ingest.Stats) int64 { return i.Connections })},
	{name: "thermocline.connections.accepted", unit: "{connection}", about: "Client connections accepted", read: ofIngest(func(i *ingest.Stats) int64 { return i.Accepted })},
	{name: "thermocline.connections.rejected", unit: "{connection}", about: "Client connections turned away by a limit", read: ofIngest(func(i *ingest.Stats) int64 { return i.Rejected })},
	{name: "thermocline.connections.failed", unit: "{connection}", about: "Client connections closed for what came over them", read: ofIngest(func(i *ingest.Stats) int64 { return i.ClosedOnError })},
	{name: "thermocline.produce.records", unit: "{record}", about: "Records that passed the gate", read: ofIngest(func(i *ingest.Stats) int64 { return i.RecordsIn })},
	{name: "thermocline.produce.batches", unit: "{batch}", about: "Record batches that passed the gate", read: ofIngest(func(i *ingest.Stats) int64 { return i.BatchesIn })},
	{name: "thermocline.produce.bytes", unit: "By", about: "Bytes of record batches that passed the gate", read: ofIngest(func(i *ingest.Stats) int64 { return i.RecordBytesIn })},
	{name: "thermocline.fetch.bytes", unit: "By", attrs: []string{"source"}, about: "Bytes of record batches sent to consumers, from the brokers' own log (hot) and from the store (cold)", read: func(s *figures, emit emitter) {
		emit(float64(s.ingest.HotBytesOut), "hot")
		emit(float64(s.ingest.ColdBytesOut), "cold")
	}},
	{name: "thermocline.fetch.sessions", unit: "{session}", kind: gauge, about: "Fetch sessions that are open", read: ofIngest(func(i *ingest.Stats) int64 { return i.FetchSessions })},
}

// ofAPI reads a figure of each API key that was used: the cardinality is that
// of the keys that the broker serves.
func ofAPI(get func(*ingest.KeyStats) int64) func(*figures, emitter) {
	return func(s *figures, emit emitter) {
		for i := range s.ingest.Keys {
			if k := &s.ingest.Keys[i]; k.Requests > 0 {
				emit(float64(get(k)), k.Name)
			}
		}
	}
}

var byAPI = []string{"api"}

var apiMetrics = []metric{
	{name: "thermocline.requests", unit: "{request}", attrs: byAPI, about: "Requests answered", read: ofAPI(func(k *ingest.KeyStats) int64 { return k.Requests })},
	{name: "thermocline.requests.failed", unit: "{request}", attrs: byAPI, about: "Requests answered with an error in any part", read: ofAPI(func(k *ingest.KeyStats) int64 { return k.Errors })},
	{name: "thermocline.requests.received", unit: "By", attrs: byAPI, about: "Bytes of requests", read: ofAPI(func(k *ingest.KeyStats) int64 { return k.BytesIn })},
	{name: "thermocline.requests.sent", unit: "By", attrs: byAPI, about: "Bytes of answers", read: ofAPI(func(k *ingest.KeyStats) int64 { return k.BytesOut })},
	{name: "thermocline.requests.duration", unit: "s", kind: histogram, attrs: byAPI, about: "From the last byte of a request to the last byte of its answer; long polls and waits for acknowledgements included", buckets: requestDurations},
}

func requestDurations(s *figures, emit func(durations, ...string)) {
	for i := range s.ingest.Keys {
		k := &s.ingest.Keys[i]
		if k.Requests == 0 {
			continue
		}
		h := durations{sum: float64(k.LatencyMicros) / 1e6}
		// Pairs of buckets are joined: factors of four are enough here.
		for j := 0; j < ingest.LatencyBuckets; j += 2 {
			h.counts = append(h.counts, uint64(k.Latency[j]+k.Latency[j+1]))
			if j+2 < ingest.LatencyBuckets {
				h.bounds = append(h.bounds, float64(int64(1)<<(j+1))/1e6)
			}
		}
		emit(h, k.Name)
	}
}

func ofWAL(get func(*wal.Stats) int64) func(*figures, emitter) {
	return one(func(s *figures) float64 { return float64(get(&s.wal)) })
}

func ofUsage(get func(*wal.Usage) int64) func(*figures, emitter) {
	return one(func(s *figures) float64 { return float64(get(&s.usage)) })
}

var walMetrics = []metric{
	{name: "thermocline.wal.fsync.duration", unit: "s", kind: histogram, about: "Time of one fdatasync of the log", buckets: func(s *figures, emit func(durations, ...string)) {
		h := durations{sum: s.wal.SyncTime.Seconds()}
		for _, b := range wal.SyncBuckets {
			h.bounds = append(h.bounds, b.Seconds())
		}
		for _, n := range s.wal.SyncCounts {
			h.counts = append(h.counts, uint64(n))
		}
		emit(h)
	}},
	{name: "thermocline.wal.groups", unit: "{group}", about: "Group commits: one write and one fdatasync each", read: ofWAL(func(w *wal.Stats) int64 { return w.Groups })},
	{name: "thermocline.wal.appends", unit: "{append}", about: "Appends of shards in group commits", read: ofWAL(func(w *wal.Stats) int64 { return w.Appends })},
	{name: "thermocline.wal.written", unit: "By", about: "Bytes written, with padding", read: ofWAL(func(w *wal.Stats) int64 { return w.Bytes })},
	{name: "thermocline.wal.rewritten", unit: "By", about: "Live bytes written again so that their file could be recycled", read: ofWAL(func(w *wal.Stats) int64 { return w.Rewritten })},
	{name: "thermocline.wal.files.begun", unit: "{file}", about: "Log files begun", read: ofWAL(func(w *wal.Stats) int64 { return w.Files })},
	{name: "thermocline.wal.files.recycled", unit: "{file}", about: "Log files begun that were recycled ones", read: ofWAL(func(w *wal.Stats) int64 { return w.Recycled })},
	{name: "thermocline.wal.queue.appends", unit: "{append}", kind: gauge, about: "Appends that wait for the log", read: ofWAL(func(w *wal.Stats) int64 { return w.QueueLen })},
	{name: "thermocline.wal.queue.size", unit: "By", kind: gauge, about: "Bytes of appends that wait for the log", read: ofWAL(func(w *wal.Stats) int64 { return w.QueueBytes })},
	{name: "thermocline.wal.used", unit: "By", kind: gauge, about: "Bytes that the log still needs; intake is throttled from 75 % of the limit", read: ofUsage(func(u *wal.Usage) int64 { return u.Used })},
	{name: "thermocline.wal.limit", unit: "By", kind: gauge, about: "What the used bytes may come to: wal.max.bytes without its reserves", read: ofUsage(func(u *wal.Usage) int64 { return u.Max })},
	{name: "thermocline.wal.disk", unit: "By", kind: gauge, about: "Bytes of all log files on the disk", read: ofUsage(func(u *wal.Usage) int64 { return u.Disk })},
	{name: "thermocline.wal.failed", kind: gauge, about: "1 once the log is out of service after a failed write or fdatasync", read: one(func(s *figures) float64 { return truth(s.failed) })},
}

func ofShard(get func(*shardFigures) float64) func(*figures, emitter) {
	return func(s *figures, emit emitter) {
		for i := range s.shards {
			emit(get(&s.shards[i]), s.shards[i].id)
		}
	}
}

func ofStatus(get func(*shard.Status) uint64) func(*figures, emitter) {
	return ofShard(func(f *shardFigures) float64 { return float64(get(&f.status)) })
}

// behind is a difference that does not go below zero.
func behind(a, b uint64) uint64 { return a - min(a, b) }

var byShard = []string{"shard"}

var shardMetrics = []metric{
	{name: "thermocline.shard.leader", kind: gauge, attrs: byShard, about: "1 on the broker that leads the shard and takes requests", read: ofShard(func(f *shardFigures) float64 { return truth(f.status.Ready) })},
	{name: "thermocline.shard.leader.changes", unit: "{change}", attrs: byShard, about: "Changes of leader that this replica has seen", read: ofShard(func(f *shardFigures) float64 { return float64(f.changes) })},
	{name: "thermocline.shard.failed", kind: gauge, attrs: byShard, about: "1 while the replica is out of service", read: ofShard(func(f *shardFigures) float64 { return truth(f.status.Failed != "") })},
	{name: "thermocline.shard.term", kind: gauge, attrs: byShard, about: "Raft term", read: ofStatus(func(s *shard.Status) uint64 { return s.Term })},
	{name: "thermocline.shard.commit", unit: "{entry}", kind: gauge, attrs: byShard, about: "Committed Raft index", read: ofStatus(func(s *shard.Status) uint64 { return s.Commit })},
	{name: "thermocline.shard.apply.lag", unit: "{entry}", kind: gauge, attrs: byShard, about: "Entries committed and not applied", read: ofStatus(func(s *shard.Status) uint64 { return behind(s.Commit, s.Applied) })},
	{name: "thermocline.shard.hw", unit: "{entry}", kind: gauge, attrs: byShard, about: "High watermark as a Raft index", read: ofStatus(func(s *shard.Status) uint64 { return s.HW })},
	{name: "thermocline.shard.log.entries", unit: "{entry}", kind: gauge, attrs: byShard, about: "Entries of the untrimmed log", read: ofStatus(func(s *shard.Status) uint64 { return behind(s.LastIndex+1, s.FirstIndex) })},
	{name: "thermocline.shard.log.size", unit: "By", kind: gauge, attrs: byShard, about: "Payload bytes of the untrimmed log", read: ofStatus(func(s *shard.Status) uint64 { return uint64(s.LogBytes) })},
	{name: "thermocline.shard.uncommitted", unit: "By", kind: gauge, attrs: byShard, about: "Payload bytes proposed and not committed", read: ofStatus(func(s *shard.Status) uint64 { return uint64(s.UncommittedBytes) })},
	{name: "thermocline.shard.cache.size", unit: "By", kind: gauge, attrs: byShard, about: "Payload bytes in the tail cache", read: ofStatus(func(s *shard.Status) uint64 { return uint64(s.CacheBytes) })},
	{name: "thermocline.shard.cache.hits", unit: "{read}", attrs: byShard, about: "Payloads read from the tail cache", read: ofStatus(func(s *shard.Status) uint64 { return s.CacheHits })},
	{name: "thermocline.shard.cache.misses", unit: "{read}", attrs: byShard, about: "Payloads read from the log's files", read: ofStatus(func(s *shard.Status) uint64 { return s.CacheMiss })},
	{name: "thermocline.shard.replica.lag", unit: "{entry}", kind: gauge, attrs: []string{"shard", "peer"}, about: "Entries that a replica on another broker lacks, as the leader knows", read: replicaLag},
}

func replicaLag(s *figures, emit emitter) {
	for i := range s.shards {
		f := &s.shards[i]
		for _, p := range f.status.Peers {
			if p.Replica != f.status.Replica {
				emit(float64(behind(f.status.LastIndex, p.Match)), f.id, s.brokerOf(uint64(p.Replica)))
			}
		}
	}
}

// brokerOf names the broker that has a replica; "unknown" if none is registered with it.
func (s *figures) brokerOf(replica uint64) string {
	for _, b := range s.b.view.Cluster().Brokers {
		if b.Replica == metadata.ReplicaID(replica) {
			return strconv.Itoa(int(b.ID))
		}
	}
	return "unknown"
}

func ofStats(get func(*shard.Stats) *atomic.Uint64) func(*figures, emitter) {
	return one(func(s *figures) float64 { return float64(get(s.stats).Load()) })
}

var replicationMetrics = []metric{
	{name: "thermocline.raft.proposed", unit: "{entry}", about: "Entries proposed", read: ofStats(func(s *shard.Stats) *atomic.Uint64 { return &s.Proposed })},
	{name: "thermocline.raft.proposed.size", unit: "By", about: "Payload bytes proposed", read: ofStats(func(s *shard.Stats) *atomic.Uint64 { return &s.ProposedBytes })},
	{name: "thermocline.raft.applied", unit: "{entry}", about: "Entries applied", read: ofStats(func(s *shard.Stats) *atomic.Uint64 { return &s.Applied })},
	{name: "thermocline.raft.dropped", unit: "{entry}", about: "Proposals that Raft dropped", read: ofStats(func(s *shard.Stats) *atomic.Uint64 { return &s.Dropped })},
	{name: "thermocline.raft.refused", unit: "{entry}", about: "Entries that apply refused for their proposer's term", read: ofStats(func(s *shard.Stats) *atomic.Uint64 { return &s.Refused })},
	{name: "thermocline.raft.messages.bad", unit: "{message}", about: "Messages whose payloads did not match their descriptors", read: ofStats(func(s *shard.Stats) *atomic.Uint64 { return &s.BadMessages })},
	{name: "thermocline.raft.reads", unit: "{round}", about: "Rounds that confirmed leadership for reads", read: ofStats(func(s *shard.Stats) *atomic.Uint64 { return &s.ReadRounds })},
	{name: "thermocline.raft.snapshots", unit: "{snapshot}", about: "Snapshot files written", read: ofStats(func(s *shard.Stats) *atomic.Uint64 { return &s.Snapshots })},
	{name: "thermocline.raft.snapshots.failed", unit: "{snapshot}", about: "Snapshot files that could not be written", read: ofStats(func(s *shard.Stats) *atomic.Uint64 { return &s.SnapshotErrors })},
	{name: "thermocline.raft.streams.sent", unit: "{stream}", about: "Snapshot streams sent", read: ofStats(func(s *shard.Stats) *atomic.Uint64 { return &s.StreamsSent })},
	{name: "thermocline.raft.streams.received", unit: "{stream}", about: "Snapshot streams received", read: ofStats(func(s *shard.Stats) *atomic.Uint64 { return &s.StreamsReceived })},
	{name: "thermocline.raft.appends.refused", unit: "{append}", about: "Entries from a leader that the log had no room for; Raft sends them again", read: ofStats(func(s *shard.Stats) *atomic.Uint64 { return &s.LogRefused })},
	{name: "thermocline.replicas.promoted", unit: "{replica}", about: "New replicas that had caught up and were proposed as voters here", read: ofStats(func(s *shard.Stats) *atomic.Uint64 { return &s.Promotions })},
	{name: "thermocline.replicas.replaced", unit: "{replica}", about: "Replicas that were replaced, counted by the leader that finished it", read: ofStats(func(s *shard.Stats) *atomic.Uint64 { return &s.Replacements })},
	{name: "thermocline.intake.refused", unit: "{proposal}", attrs: []string{"reason"}, about: "Proposals not taken: a shard's queue was full, the log was filling (throttled), or it was full", read: func(s *figures, emit emitter) {
		emit(float64(s.stats.QueueFull.Load()), "queue_full")
		emit(float64(s.stats.Throttled.Load()), "throttled")
		emit(float64(s.stats.LogFull.Load()), "log_full")
	}},
}

var stateMetrics = []metric{
	{name: "thermocline.partitions", unit: "{partition}", kind: gauge, attrs: byShard, about: "Partitions of the shard", read: ofShard(func(f *shardFigures) float64 { return float64(f.set.Partitions) })},
	{name: "thermocline.partitions.hot", unit: "{partition}", kind: gauge, attrs: byShard, about: "Partitions with records that are not in the store", read: ofShard(func(f *shardFigures) float64 { return float64(f.set.Hot) })},
	{name: "thermocline.tail.size", unit: "By", kind: gauge, attrs: byShard, about: "Bytes of records that are not in the store", read: ofShard(func(f *shardFigures) float64 { return float64(f.counts.TailBytes) })},
	{name: "thermocline.tail.batches", unit: "{batch}", kind: gauge, attrs: byShard, about: "Record batches that are not in the store", read: ofShard(func(f *shardFigures) float64 { return float64(f.counts.TailRows) })},
	{name: "thermocline.producers", unit: "{producer}", kind: gauge, attrs: byShard, about: "Producers remembered, summed over partitions", read: ofShard(func(f *shardFigures) float64 { return float64(f.counts.Producers) })},
	{name: "thermocline.produce.duplicates", unit: "{batch}", attrs: byShard, about: "Batches that a producer sent again and that were answered from its state", read: ofShard(func(f *shardFigures) float64 { return float64(f.counts.Duplicates) })},
	{name: "thermocline.produce.refused", unit: "{batch}", attrs: byShard, about: "Commands that the state machine refused", read: ofShard(func(f *shardFigures) float64 { return float64(f.counts.Refused) })},
}

// ofSealer reads a figure of each shard that is led here.
func ofSealer(get func(*tiering.Stats) float64) func(*figures, emitter) {
	return func(s *figures, emit emitter) {
		for i := range s.shards {
			if st := s.shards[i].sealer; st != nil {
				emit(get(st), s.shards[i].id)
			}
		}
	}
}

func ofArchive(get func(*archiver) *atomic.Int64) func(*figures, emitter) {
	return one(func(s *figures) float64 { return float64(get(s.b.archiver).Load()) })
}

var tieringMetrics = []metric{
	{name: "thermocline.tiering.segments", unit: "{segment}", attrs: byShard, about: "Segments committed in this term", read: ofSealer(func(t *tiering.Stats) float64 { return float64(t.Segments) })},
	{name: "thermocline.tiering.bytes", unit: "By", attrs: byShard, about: "Bytes of segments committed in this term", read: ofSealer(func(t *tiering.Stats) float64 { return float64(t.Bytes) })},
	{name: "thermocline.tiering.runs", unit: "{run}", attrs: byShard, about: "Directory runs committed in this term", read: ofSealer(func(t *tiering.Stats) float64 { return float64(t.Runs) })},
	{name: "thermocline.tiering.attempts", unit: "{upload}", attrs: byShard, about: "Uploads tried in this term", read: ofSealer(func(t *tiering.Stats) float64 { return float64(t.Attempts) })},
	{name: "thermocline.tiering.failures", unit: "{operation}", attrs: byShard, about: "Operations of tiering that had to be repeated in this term", read: ofSealer(func(t *tiering.Stats) float64 { return float64(t.Failures) })},
	{name: "thermocline.tiering.orphans", unit: "{upload}", attrs: byShard, about: "Uploads given up in this term", read: ofSealer(func(t *tiering.Stats) float64 { return float64(t.Orphans) })},
	{name: "thermocline.tiering.pending", unit: "By", kind: gauge, attrs: byShard, about: "Acknowledged bytes that wait to be tiered", read: ofSealer(func(t *tiering.Stats) float64 { return float64(t.PendingBytes) })},
	{name: "thermocline.tiering.pending.age", unit: "s", kind: gauge, attrs: byShard, about: "How long the oldest of them has waited", read: ofSealer(func(t *tiering.Stats) float64 { return t.PendingAge.Seconds() })},
	{name: "thermocline.tiering.blocked", unit: "s", kind: gauge, attrs: byShard, about: "How long the current seal has been failing; 0 while all is well", read: ofSealer(func(t *tiering.Stats) float64 { return t.Blocked.Seconds() })},
	{name: "thermocline.tiering.memory", unit: "By", kind: gauge, about: "Memory reserved for objects being built", read: one(func(s *figures) float64 { return float64(s.b.tier.memory.Used()) })},
	{name: "thermocline.manifest.segments", unit: "{segment}", kind: gauge, attrs: byShard, about: "Segment rows in the shard's state", read: ofShard(func(f *shardFigures) float64 { return float64(f.segs) })},
	{name: "thermocline.manifest.runs", unit: "{run}", kind: gauge, attrs: byShard, about: "Directory runs in the shard's state", read: ofShard(func(f *shardFigures) float64 { return float64(f.runs) })},
	{name: "thermocline.archive.snapshots", unit: "{snapshot}", about: "Shard snapshots stored in the bucket", read: ofArchive(func(a *archiver) *atomic.Int64 { return &a.stored })},
	{name: "thermocline.archive.snapshots.size", unit: "By", about: "Bytes of shard snapshots stored in the bucket", read: ofArchive(func(a *archiver) *atomic.Int64 { return &a.bytes })},
	{name: "thermocline.archive.failed", unit: "{attempt}", about: "Attempts at storing a shard's snapshot, or at aborting uploads, that failed", read: ofArchive(func(a *archiver) *atomic.Int64 { return &a.failures })},
	{name: "thermocline.archive.removed", unit: "{object}", about: "Replaced snapshot objects removed from the bucket", read: ofArchive(func(a *archiver) *atomic.Int64 { return &a.removed })},
	{name: "thermocline.archive.uploads.aborted", unit: "{upload}", about: "Multipart uploads that were left half done and aborted", read: ofArchive(func(a *archiver) *atomic.Int64 { return &a.abortedUploads })},
}

func ofIndex(get func(*index.Stats) int64) func(*figures, emitter) {
	return one(func(s *figures) float64 { return float64(get(&s.index)) })
}

var coldMetrics = []metric{
	{name: "thermocline.cold.reads", unit: "{read}", about: "Reads of data in the store", read: ofIndex(func(i *index.Stats) int64 { return i.Reads })},
	{name: "thermocline.cold.delivered", unit: "By", about: "Bytes that reads have returned; compare with thermocline.cold.fetched", read: ofIndex(func(i *index.Stats) int64 { return i.Delivered })},
	{name: "thermocline.cold.fetched", unit: "By", about: "Bytes that GETs have brought", read: ofIndex(func(i *index.Stats) int64 { return i.GetBytes })},
	{name: "thermocline.cold.gets", unit: "{get}", about: "GETs that succeeded", read: ofIndex(func(i *index.Stats) int64 { return i.Gets })},
	{name: "thermocline.cold.failures", unit: "{get}", about: "GETs that failed", read: ofIndex(func(i *index.Stats) int64 { return i.Failures })},
	{name: "thermocline.cold.cache.reads", unit: "{read}", attrs: []string{"result"}, about: "Pieces of data that reads found in the cache (hit), for which they waited for another's GET (shared), or made one (miss)", read: func(s *figures, emit emitter) {
		emit(float64(s.index.Hits), "hit")
		emit(float64(s.index.Shared), "shared")
		emit(float64(s.index.Misses), "miss")
	}},
	{name: "thermocline.cold.index.reads", unit: "{read}", attrs: []string{"result"}, about: "Directories, fences, pages and partition indexes found in memory (hit) or fetched (miss)", read: func(s *figures, emit emitter) {
		emit(float64(s.index.IndexHits), "hit")
		emit(float64(s.index.IndexMisses), "miss")
	}},
	{name: "thermocline.cold.ahead", unit: "By", about: "Bytes fetched ahead of a sequential reader", read: ofIndex(func(i *index.Stats) int64 { return i.Ahead })},
	{name: "thermocline.cold.ahead.unused", unit: "By", about: "Bytes fetched ahead and dropped unread", read: ofIndex(func(i *index.Stats) int64 { return i.AheadUnused })},
	{name: "thermocline.cold.cache.size", unit: "By", kind: gauge, attrs: []string{"cache"}, about: "Bytes held by the caches of data, index blocks and directories", read: func(s *figures, emit emitter) {
		emit(float64(s.index.DataBytes), "data")
		emit(float64(s.index.BlockBytes), "blocks")
		emit(float64(s.index.DirectoryBytes), "directories")
	}},
	{name: "thermocline.cold.streams", unit: "{stream}", kind: gauge, about: "Sequential readers that are known", read: ofIndex(func(i *index.Stats) int64 { return i.Streams })},
}

func ofStore(get func(object.OpStats) float64) func(*figures, emitter) {
	return func(s *figures, emit emitter) {
		for _, st := range s.stores {
			for _, op := range object.Ops {
				emit(get(st.stats[op]), st.use, op.String())
			}
		}
	}
}

var byStore = []string{"use", "operation"}

var storeMetrics = []metric{
	{name: "thermocline.store.operations", unit: "{operation}", attrs: byStore, about: "Operations on the object store, by its two clients (uploads, cold)", read: ofStore(func(o object.OpStats) float64 { return float64(o.Calls) })},
	{name: "thermocline.store.failures", unit: "{operation}", attrs: byStore, about: "Operations that failed", read: ofStore(func(o object.OpStats) float64 { return float64(o.Failures) })},
	{name: "thermocline.store.transferred", unit: "By", attrs: byStore, about: "Bytes of bodies (put, get)", read: func(s *figures, emit emitter) {
		for _, st := range s.stores {
			for _, op := range []object.Op{object.OpPut, object.OpGet} {
				emit(float64(st.stats[op].Bytes), st.use, op.String())
			}
		}
	}},
	{name: "thermocline.store.time", unit: "s", attrs: byStore, about: "Time spent in operations, summed", read: ofStore(func(o object.OpStats) float64 { return float64(o.Nanos) / 1e9 })},
}

func ofPeer(get func(*transport.PeerStats) float64) func(*figures, emitter) {
	return func(s *figures, emit emitter) {
		for i := range s.peers.Peers {
			emit(get(&s.peers.Peers[i]), s.brokerOf(s.peers.Peers[i].Replica))
		}
	}
}

var byPeer = []string{"peer"}

var peerMetrics = []metric{
	{name: "thermocline.peer.sent", unit: "By", attrs: byPeer, about: "Bytes sent to another broker", read: ofPeer(func(p *transport.PeerStats) float64 { return float64(p.BytesOut) })},
	{name: "thermocline.peer.received", unit: "By", attrs: byPeer, about: "Bytes received from another broker", read: ofPeer(func(p *transport.PeerStats) float64 { return float64(p.BytesIn) })},
	{name: "thermocline.peer.frames.sent", unit: "{frame}", attrs: byPeer, about: "Frames sent to another broker", read: ofPeer(func(p *transport.PeerStats) float64 { return float64(p.FramesOut) })},
	{name: "thermocline.peer.frames.received", unit: "{frame}", attrs: byPeer, about: "Frames received from another broker", read: ofPeer(func(p *transport.PeerStats) float64 { return float64(p.FramesIn) })},
	{name: "thermocline.peer.drops", unit: "{message}", attrs: byPeer, about: "Messages that were not sent", read: ofPeer(func(p *transport.PeerStats) float64 { return float64(p.Drops) })},
	{name: "thermocline.peer.connects", unit: "{connection}", attrs: byPeer, about: "Connections made to another broker", read: ofPeer(func(p *transport.PeerStats) float64 { return float64(p.Connects) })},
	{name: "thermocline.peer.connects.failed", unit: "{connection}", attrs: byPeer, about: "Connections that could not be made", read: ofPeer(func(p *transport.PeerStats) float64 { return float64(p.ConnectFailures) })},
	{name: "thermocline.peer.queued", unit: "By", kind: gauge, attrs: byPeer, about: "Bytes that wait to be sent", read: ofPeer(func(p *transport.PeerStats) float64 { return float64(p.QueuedBytes) })},
	{name: "thermocline.peers.refused", unit: "{connection}", about: "Connections turned away in the handshake", read: one(func(s *figures) float64 { return float64(s.peers.Refused) })},
	{name: "thermocline.peers.frames.bad", unit: "{connection}", about: "Connections closed for what came over them", read: one(func(s *figures) float64 { return float64(s.peers.BadFrames) })},
	{name: "thermocline.peers.streams.failed", unit: "{stream}", about: "Snapshot streams, in either direction, that did not end well", read: one(func(s *figures) float64 {
		return float64(s.peers.SnapshotSendFailures + s.peers.SnapshotReceiveFailures)
	})},
}

var metadataMetrics = []metric{
	{name: "thermocline.metadata.healthy", kind: gauge, about: "1 while the metadata store answers and its changes arrive", read: one(func(s *figures) float64 { return truth(s.health.Healthy) })},
	{name: "thermocline.metadata.contact.age", unit: "s", kind: gauge, about: "Since the last sign of life of the metadata store", read: one(func(s *figures) float64 { return max(s.now.Sub(s.health.LastContact).Seconds(), 0) })},
	{name: "thermocline.metadata.revision", kind: gauge, about: "Revision of the metadata that this broker has", read: one(func(s *figures) float64 { return float64(s.health.Revision) })},
	{name: "thermocline.metadata.rows.refused", unit: "{row}", kind: gauge, about: "Rows that this binary cannot read", read: one(func(s *figures) float64 { return float64(len(s.health.Refused)) })},
	{name: "thermocline.metadata.topics", unit: "{topic}", kind: gauge, about: "Topics", read: one(func(s *figures) float64 { return float64(len(s.b.view.Topics())) })},
	{name: "thermocline.metadata.brokers", unit: "{broker}", kind: gauge, attrs: []string{"state"}, about: "Registered brokers whose lease holds (alive) or has lapsed (gone)", read: func(s *figures, emit emitter) {
		alive, gone := 0, 0
		for _, b := range s.b.view.Cluster().Brokers {
			if b.Alive {
				alive++
			} else {
				gone++
			}
		}
		emit(float64(alive), "alive")
		emit(float64(gone), "gone")
	}},
	{name: "thermocline.metadata.controller", kind: gauge, about: "1 on the broker that is controller", read: one(func(s *figures) float64 { return truth(s.b.view.Cluster().Controller == s.b.id) })},
}
