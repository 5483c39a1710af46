package config

import "time"

// Config is every setting of one broker. The field's tags are the setting's
// name, default, unit and meaning; Load fills it and Validate checks it.
type Config struct {
	NodeID              int32  `key:"node.id" default:"" doc:"This broker's number, unique in the cluster: 0 or more. Required."`
	Listeners           string `key:"listeners" default:"PLAINTEXT://0.0.0.0:9092" doc:"Where Kafka clients connect."`
	AdvertisedListeners string `key:"advertised.listeners" default:"" doc:"What clients are told to connect to. Empty: the listener, with this machine's host name in place of 0.0.0.0."`
	Rack                string `key:"broker.rack" default:"" doc:"The broker's rack or zone; consumers with the same client.rack read from it."`
	DataDir             string `key:"data.dir" default:"./data" doc:"Directory of the write-ahead log, snapshots and the embedded etcd. On a local disk that honours fsync."`

	PeerListener   string `key:"peer.listener" default:"0.0.0.0:9095" doc:"Where the other brokers connect for replication."`
	PeerAdvertised string `key:"peer.advertised" default:"" doc:"host:port the other brokers use. Empty: the peer listener, with this machine's host name in place of 0.0.0.0."`
	HTTPListener   string `key:"http.listener" default:"127.0.0.1:9644" doc:"Metrics (/metrics), health (/healthz, /readyz) and profiles (/debug/pprof). Has no password: open it to trusted networks only."`

	ClusterBrokers  int    `key:"cluster.brokers" default:"3" doc:"How many brokers must be there before shards are placed the first time: 1, 3 or more."`
	ShardsPerBroker int    `key:"shards.per.broker" default:"2" doc:"Shards created for each broker. More shards use more cores, fewer make larger writes."`
	ShardReplicas   int    `key:"shard.replicas" default:"3" doc:"Replicas of each shard: 1, 3 or 5, at most cluster.brokers."`
	AckPolicy       string `key:"ack.policy" default:"quorum" doc:"When acks=all is answered. quorum: fsynced on a majority of replicas."`

	EtcdEndpoints      []string `key:"etcd.endpoints" default:"" doc:"An etcd cluster of your own, comma-separated (http://e1:2379,…). Empty: etcd is embedded in the brokers of etcd.initial.cluster."`
	EtcdInitialCluster string   `key:"etcd.initial.cluster" default:"" doc:"Embedded etcd: node.id=peer URL of each of the first brokers, comma-separated (1=http://b1:2380,2=http://b2:2380,3=http://b3:2380)."`
	EtcdClientURL      string   `key:"etcd.listen.client" default:"http://0.0.0.0:2379" doc:"Embedded etcd: where its clients connect."`
	EtcdPeerURL        string   `key:"etcd.listen.peer" default:"http://0.0.0.0:2380" doc:"Embedded etcd: where its peers connect."`

	StoreURL string `key:"store.url" default:"" doc:"Where segments live: s3://bucket/prefix?region=…&endpoint=…, minio://host:port/bucket/prefix, or file:///directory (one machine only). Required. Credentials come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY; MINIO_ACCESS_KEY, MINIO_SECRET_KEY)."`

	WALMaxBytes  Bytes `key:"wal.max.bytes" default:"0" doc:"Budget of the write-ahead log. 0: a tenth of the volume, within 1 GiB and 32 GiB. Size it as ingest rate × the store outage to be survived."`
	WALFileBytes Bytes `key:"wal.file.bytes" default:"0" doc:"Size of one log file. Files are recycled. 0: 64 MiB, or less where the budget is small."`

	SegmentBytes  Bytes         `key:"tiering.segment.bytes" default:"64MiB" doc:"A shard's log is sealed into a segment at this size …"`
	SegmentMaxAge time.Duration `key:"tiering.segment.ms" default:"30s" doc:"… or when its oldest record has waited this long."`

	TailCacheBytes Bytes `key:"tail.cache.bytes" default:"256MiB" doc:"Memory for the newest records of all shards; older hot records are read from the log's files."`
	ColdCacheBytes Bytes `key:"cold.cache.bytes" default:"256MiB" doc:"Memory for blocks read from the store. Only cold reads use it."`
	ColdReadAhead  Bytes `key:"cold.read.ahead.max.bytes" default:"32MiB" doc:"Largest read-ahead of one sequential cold reader."`
	ColdConns      int   `key:"cold.connections" default:"32" doc:"Connections to the store for cold reads. Uploads have their own."`

	NumPartitions     int   `key:"num.partitions" default:"1" doc:"Partitions of a topic created without a number."`
	AutoCreate        bool  `key:"auto.create.topics.enable" default:"true" doc:"Create a topic when a client asks for its metadata and allows it."`
	ReplicationFactor int   `key:"default.replication.factor" default:"0" doc:"Replication factor shown for topics created without one. 0: shard.replicas."`
	MessageMaxBytes   Bytes `key:"message.max.bytes" default:"1048588" doc:"Largest record batch accepted (topics override it with max.message.bytes)."`
	RequestMaxBytes   Bytes `key:"socket.request.max.bytes" default:"100MiB" doc:"Largest request frame accepted."`
	QueuedMaxBytes    Bytes `key:"queued.max.request.bytes" default:"512MiB" doc:"Memory for requests of all connections that are being worked on."`
	MaxConnections    int   `key:"max.connections" default:"10000" doc:"Client connections accepted."`

	GCPercent   int    `key:"gc.percent" default:"0" doc:"Go's GOGC. 0: leave it as the environment says."`
	MemoryLimit Bytes  `key:"memory.limit.bytes" default:"0" doc:"Soft limit of the process's memory (GOMEMLIMIT). 0: none."`
	LogLevel    string `key:"log.level" default:"info" doc:"debug, info, warn or error."`
	LogFormat   string `key:"log.format" default:"text" doc:"text or json."`

	// Kafka holds the settings of Kafka's that have no field here and were given
	// a value: defaults of topics, groups and transactions, by Kafka's names.
	// It is replaced, never changed.
	Kafka map[string]string
}

// Bytes is a size. It is written as a number of bytes or with a unit: 64MiB, 1GB.
type Bytes int64
