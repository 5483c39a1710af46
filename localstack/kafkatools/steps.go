//go:build kafkatools

package kafkatools

// step is one call of a tool. {b} is the bootstrap list, {dir} a folder of the
// test's.
type step struct {
	tool string // the script's name
	args string
	// stdin and file are given to the tool; file is {dir}/in.json.
	stdin, file string
	// want are expressions that must each match what is printed.
	want []string
	// refused: the tool is to end with an error.
	refused bool
}

// classes are what Kafka's scripts start.
var classes = map[string]string{
	"kafka-topics":              "org.apache.kafka.tools.TopicCommand",
	"kafka-configs":             "kafka.admin.ConfigCommand",
	"kafka-consumer-groups":     "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
	"kafka-groups":              "org.apache.kafka.tools.GroupsCommand",
	"kafka-get-offsets":         "org.apache.kafka.tools.GetOffsetShell",
	"kafka-log-dirs":            "org.apache.kafka.tools.LogDirsCommand",
	"kafka-producer-perf-test":  "org.apache.kafka.tools.ProducerPerformance",
	"kafka-consumer-perf-test":  "org.apache.kafka.tools.ConsumerPerformance",
	"kafka-e2e-latency":         "org.apache.kafka.tools.EndToEndLatency",
	"kafka-console-producer":    "org.apache.kafka.tools.ConsoleProducer",
	"kafka-console-consumer":    "org.apache.kafka.tools.consumer.ConsoleConsumer",
	"kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
	"kafka-delete-records":      "org.apache.kafka.tools.DeleteRecordsCommand",
	"kafka-leader-election":     "org.apache.kafka.tools.LeaderElectionCommand",
	"kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
	"kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
	"kafka-cluster":             "org.apache.kafka.tools.ClusterTool",
	"kafka-transactions":        "org.apache.kafka.tools.TransactionsCommand",
	"kafka-client-metrics":      "org.apache.kafka.tools.ClientMetricsCommand",
	"kafka-acls":                "org.apache.kafka.tools.AclCommand",
}

const (
	server = "--bootstrap-server {b} "
	group  = server + "--group readers "
)

// steps are in order: later ones use what earlier ones made.
var steps = []step{
	{tool: "kafka-broker-api-versions", args: server, want: []string{`id: 1 .*`, `Produce\(0\): .*to 13|Produce\(0\): 3 to`, `ConsumerGroupHeartbeat\(68\)`}},
	{tool: "kafka-cluster", args: "cluster-id --bootstrap-server {b}", want: []string{`Cluster ID: \S+`}},
	{tool: "kafka-cluster", args: "list-endpoints --bootstrap-server {b}", want: []string{`(?m)^1 .*127\.0\.0\.1`, `(?m)^3 .*127\.0\.0\.1`}},

	{tool: "kafka-topics", args: server + "--create --topic events --partitions 3 --replication-factor 3 --config retention.ms=3600000", want: []string{`Created topic events`}},
	{tool: "kafka-topics", args: server + "--create --topic events --partitions 3", want: []string{`already exists`}, refused: true},
	{tool: "kafka-topics", args: server + "--create --if-not-exists --topic events --partitions 3"},
	{tool: "kafka-topics", args: server + "--create --topic bad!name --partitions 1", want: []string{`(?i)invalid`}, refused: true},
	{tool: "kafka-topics", args: server + "--create --topic plenty --partitions 1 --replication-factor 7", want: []string{`(?i)replication factor`}, refused: true},
	{tool: "kafka-topics", args: server + "--alter --topic events --partitions 6"},
	{tool: "kafka-topics", args: server + "--alter --topic events --partitions 2", want: []string{`(?i)partitions`}, refused: true},
	{tool: "kafka-topics", args: server + "--list", want: []string{`(?m)^events$`}},
	{tool: "kafka-topics", args: server + "--describe --topic events", want: []string{`PartitionCount: 6`, `ReplicationFactor: 3`, `retention\.ms=3600000`, `Partition: 5\s+Leader: [123]\s+Replicas: [123],[123],[123]\s+Isr: [123],[123],[123]`}},
	{tool: "kafka-topics", args: server + "--describe --under-replicated-partitions"},
	{tool: "kafka-topics", args: server + "--describe --topic none", want: []string{`does not exist`}, refused: true},

	{tool: "kafka-configs", args: server + "--describe --topic events --all", want: []string{`retention\.ms=3600000 .*DYNAMIC_TOPIC_CONFIG`, `cleanup\.policy=delete`}},
	{tool: "kafka-configs", args: server + "--alter --topic events --add-config retention.bytes=1073741824,max.message.bytes=500000", want: []string{`Completed updating config for topic events`}},
	{tool: "kafka-configs", args: server + "--alter --topic events --add-config no.such=1", want: []string{`(?i)unknown`}, refused: true},
	{tool: "kafka-configs", args: server + "--alter --topic events --delete-config max.message.bytes", want: []string{`Completed updating`}},
	{tool: "kafka-configs", args: server + "--describe --topic events", want: []string{`retention\.bytes=1073741824`}},
	{tool: "kafka-configs", args: server + "--describe --broker 1 --all", want: []string{`auto\.create\.topics\.enable=`}},
	{tool: "kafka-configs", args: server + "--alter --entity-type brokers --entity-default --add-config message.max.bytes=2000000", want: []string{`Completed updating default config for brokers`}},
	{tool: "kafka-configs", args: server + "--describe --entity-type brokers --entity-default", want: []string{`message\.max\.bytes=2000000`}},
	{tool: "kafka-configs", args: server + "--alter --entity-type brokers --entity-default --delete-config message.max.bytes", want: []string{`Completed updating`}},
	{tool: "kafka-configs", args: server + "--alter --group readers --add-config consumer.session.timeout.ms=50000", want: []string{`Completed updating config for group readers`}},
	{tool: "kafka-configs", args: server + "--describe --group readers", want: []string{`consumer\.session\.timeout\.ms=50000`}},
	{tool: "kafka-configs", args: server + "--alter --group readers --delete-config consumer.session.timeout.ms", want: []string{`Completed updating`}},

	{tool: "kafka-console-producer", args: server + "--topic events --reader-property parse.key=true --reader-property key.separator=:", stdin: "a:one\nb:two\nc:three\na:four\n"},
	{tool: "kafka-producer-perf-test", args: "--topic events --num-records 20000 --record-size 200 --throughput -1 --bootstrap-server {b} --producer-props acks=all", want: []string{`20000 records sent, .* 99\.9th`}},
	{tool: "kafka-producer-perf-test", args: "--topic events --num-records 5000 --record-size 200 --throughput -1 --bootstrap-server {b} --producer-props acks=all compression.type=zstd enable.idempotence=false", want: []string{`5000 records sent`}},
	{tool: "kafka-verifiable-producer", args: "--topic events --max-messages 1000 --bootstrap-server {b} --acks -1", want: []string{`"sent":1000,"acked":1000`}},
	{tool: "kafka-get-offsets", args: server + "--topic events", want: []string{`(?m)^events:0:\d+$`, `(?m)^events:5:\d+$`}},
	{tool: "kafka-get-offsets", args: server + "--topic events --time earliest", want: []string{`(?m)^events:0:0$`}},
	{tool: "kafka-get-offsets", args: server + "--topic events --time max-timestamp", want: []string{`(?m)^events:5:\d+$`}},
	{tool: "kafka-get-offsets", args: server + "--topic events --time earliest-local", want: []string{`(?m)^events:5:\d+$`}},
	{tool: "kafka-get-offsets", args: server + "--topic events --time latest-tiered"}, // nothing is tiered yet
	{tool: "kafka-console-consumer", args: server + "--topic events --from-beginning --max-messages 26004 --timeout-ms 60000", want: []string{`Processed a total of 26004 messages`}},
	{tool: "kafka-consumer-perf-test", args: server + "--topic events --num-records 26004 --timeout 60000", want: []string{`, 26004, `}},
	{tool: "kafka-e2e-latency", args: server + "--topic events --num-records 200 --producer-acks all --record-size 100", want: []string{`Avg latency: `, `99\.9th`}},

	{tool: "kafka-console-consumer", args: server + "--topic events --group readers --from-beginning --max-messages 1000 --timeout-ms 60000", want: []string{`Processed a total of 1000 messages`}},
	{tool: "kafka-console-consumer", args: server + "--topic events --group next --from-beginning --max-messages 1000 --timeout-ms 60000 --command-property group.protocol=consumer", want: []string{`Processed a total of 1000 messages`}},
	{tool: "kafka-consumer-groups", args: server + "--list", want: []string{`(?m)^readers$`, `(?m)^next$`}},
	{tool: "kafka-consumer-groups", args: server + "--list --state", want: []string{`readers\s+Empty`}},
	{tool: "kafka-consumer-groups", args: group + "--describe", want: []string{`readers\s+events\s+0\s+\d+\s+\d+\s+\d+`}},
	{tool: "kafka-consumer-groups", args: group + "--describe --state", want: []string{`readers\s+127\.0\.0\.1:\d+ +\([123]\).*Empty\s+0`}},
	{tool: "kafka-consumer-groups", args: group + "--describe --members", want: []string{`has no active members`}},
	{tool: "kafka-consumer-groups", args: server + "--describe --group nobody", want: []string{`(?i)does not exist|not found`}},
	{tool: "kafka-consumer-groups", args: group + "--reset-offsets --topic events --to-earliest --dry-run", want: []string{`readers\s+events\s+0\s+0`}},
	{tool: "kafka-consumer-groups", args: group + "--reset-offsets --topic events:0 --to-offset 7 --execute", want: []string{`readers\s+events\s+0\s+7`}},
	{tool: "kafka-consumer-groups", args: group + "--reset-offsets --all-topics --by-duration PT1H --execute", want: []string{`readers\s+events\s+\d\s+0`}},
	{tool: "kafka-consumer-groups", args: group + "--delete-offsets --topic events", want: []string{`(?i)successful`}},
	{tool: "kafka-consumer-groups", args: group + "--delete", want: []string{`(?i)deletion of requested consumer groups \('readers'\) was successful`}},
	{tool: "kafka-groups", args: server + "--list", want: []string{`next\s+Consumer`}},

	{tool: "kafka-log-dirs", args: server + "--describe --topic-list events", want: []string{`"partition":"events-0"`, `"broker":3`}},
	{tool: "kafka-delete-records", args: server + "--offset-json-file {dir}/in.json", file: `{"partitions":[{"topic":"events","partition":0,"offset":3}],"version":1}`, want: []string{`events-0\s+low_watermark: 3`}},
	{tool: "kafka-leader-election", args: server + "--election-type PREFERRED --all-topic-partitions"},
	{tool: "kafka-reassign-partitions", args: server + "--list", want: []string{`No partition reassignments found`}},
	{tool: "kafka-transactions", args: server + "list", want: []string{`TransactionalId\s+Coordinator`}},
	{tool: "kafka-transactions", args: server + "describe-producers --topic events --partition 0", want: []string{`ProducerId\s+ProducerEpoch`}},
	{tool: "kafka-client-metrics", args: server + "--list"},
	{tool: "kafka-acls", args: server + "--list", want: []string{`(?i)no authorizer|security.*disabled`}, refused: true},
	{tool: "kafka-topics", args: server + "--delete --topic events"},
	{tool: "kafka-topics", args: server + "--delete --topic events", want: []string{`does not exist`}, refused: true},
}
