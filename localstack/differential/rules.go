package differential

import (
	"regexp"
	"strings"
)

func whole(pattern string) *regexp.Regexp { return regexp.MustCompile("^(?:" + pattern + ")$") }

// topicConfig matches a config in an answer about topics.
func topicConfig(name, field string) *regexp.Regexp {
	return whole(`(Resources|Topics)\[[^\]]*\]\.Configs\[(` + name + `)\]` + field)
}

// sharing: how the members of a group share topics, and so who must give up
// what before it comes to the next epoch, is the assignor's choice. Kafka's
// goes by the order of its hash tables, of ids that it draws itself. What all
// members' targets are together is compared (flatten.go).
const sharing = "which member gets a partition that several subscribe is chance in Kafka, and so is who must give it up first"

// oneBeginsTheOther: neither is empty, and the longer begins with the shorter.
func oneBeginsTheOther(kafka, thermocline string) bool {
	return kafka != "" && thermocline != "" && (strings.HasPrefix(kafka, thermocline+", ") || strings.HasPrefix(thermocline, kafka+", "))
}

// rules are the differences that may be, each with its reason.
var rules = []Rule{
	{Path: whole(`Groups\[.*\]\.ErrorCode`), Keys: []int16{9}, Kafka: whole("-1"), Thermocline: whole("25"), Why: "Kafka fails inside on an epoch without a member id"},
	{Path: whole(`.*ErrorCode`), Keys: []int16{8, 12, 14}, Kafka: whole("82"), Thermocline: whole("25"), Why: "a static member that has forgotten its id is told to join again, not fenced for good"},
	{Path: whole(`MemberEpoch|Generation|(Member)?Assignment.*`), Keys: []int16{11, 14, 68}, Group: whole(`.*-shared`), Why: sharing},
	{Path: whole(`ErrorCode`), Keys: []int16{12, 14}, Group: whole(`.*-shared`), Kafka: whole("0|27"), Thermocline: whole("0|27"), Why: sharing},
	{Path: whole(`Groups\[[^\]]*-shared\]\.Members\[.*\]\.MemberAssignment.*`), Keys: []int16{15}, Why: sharing},
	{Path: whole(`Groups\[[^\]]*-shared\]\.Members\[.*\]\.(MemberEpoch|Assignment\..*|TargetAssignment\..*)`), Keys: []int16{69}, Why: sharing},
	{Path: whole(`Groups\[[^\]]*-shared\]\.(Group)?State`), Keys: []int16{16, 69}, Kafka: whole("Stable|Reconciling"), Thermocline: whole("Stable|Reconciling"), Why: sharing},
	{Path: whole(`ErrorCode`), Keys: []int16{68}, Kafka: whole("-1"), Thermocline: whole("69"), Why: "Kafka fails inside when a group cannot be upgraded, for an assignment that cannot be read"},
	{Path: whole(`Coordinators\[.*\]\.(NodeID|Host|Port)|NodeID|Host|Port`), Keys: []int16{10}, Why: "where the brokers are"},
	{Path: whole(`ConfigResources\[__.*\]`), Keys: []int16{74}, Why: "Kafka's internal topics: what they hold lives in shard state"},
	{Path: whole(`.*\.ErrorCode`), Keys: []int16{0}, Kafka: whole(`[1-9][0-9]*`), Thermocline: whole("21"), Why: "acks that make no sense are found before anything else"},
	{Path: whole(`.*\.ErrorCode`), Keys: []int16{0}, Kafka: whole("2"), Thermocline: whole("3|100"), Why: "of a topic that is not there and a batch that cannot be, we tell the first"},
	{Path: whole(`.*\.ErrorCode`), Keys: []int16{33, 44}, Kafka: whole("40"), Thermocline: whole("3|17|42"), Why: "of a resource that is not there and a config that cannot be, we tell the first"},
	{Path: whole(`.*\.ErrorCode`), Keys: []int16{44}, Kafka: whole("-1"), Thermocline: whole("42"), Why: "Kafka fails inside on an unknown operation on a group"},
	{Path: whole(`(.*\.)?ErrorCode`), Keys: []int16{10}, Kafka: whole("15"), Thermocline: whole("0"), Why: "Kafka makes the topic of its coordinators when one is asked for first"},
	{Path: whole(`.*\.ErrorCode`), Keys: []int16{65}, Kafka: whole("14|15|16"), Thermocline: whole("105"), Why: "Kafka's coordinator is elsewhere, or is being made"},
	{Path: whole(`Topics\[.*\]`), Keys: []int16{3}, Kafka: whole(regexp.QuoteMeta(absent)), Thermocline: whole("is there"), Why: "Kafka answers for ids only when names stand beside them"},
	{Path: whole(`.*\.ErrorCode`), Keys: []int16{1}, Kafka: whole("0"), Thermocline: whole("76"), Why: "zstd is refused to clients that do not know it; Kafka 4 sends it all the same"},
	{Path: whole(`.*\.RecordBatches`), Keys: []int16{1}, Kafka: whole(".*codec 4.*"), Thermocline: whole(""), Why: "zstd is refused to clients that do not know it; Kafka 4 sends it all the same"},
	{Path: whole(`.*\.RecordBatches`), Keys: []int16{1}, Both: oneBeginsTheOther, Why: "an answer may end where a segment does, or what is in the object store: the client asks for the rest"},
	{Path: whole(`Topics\[__.*\]`), Thermocline: whole(regexp.QuoteMeta(absent)), Why: "Kafka's internal topics: what they hold lives in shard state"},
	{Path: whole(`Topics\[.*\]\.TopicID`), Keys: []int16{19}, Kafka: whole("an id"), Thermocline: whole("none"), Why: "a request that only validates draws no id"},
	{Path: whole(`.*ErrorMessage`), Why: "texts are our own"},
	{Path: whole(`.*\.Documentation`), Why: "texts are our own"},
	{Path: whole(`ClusterID|Brokers\[1\]\.(Host|Port|Rack)|ControllerID`), Why: "where the brokers are, and what the cluster is called"},
	{Path: whole(`.*LeaderEpoch`), Why: "a leader epoch is a Raft term here: it begins at another number"},
	{Path: whole(`.*\.(LogAppendTime|Timestamp|LastTimestamp|MaxTimestamp)`), Why: "times of the two runs"},
	{Path: whole(`.*Producer(ID|Epoch)`), Keys: []int16{22}, Why: "producer ids come in blocks of each broker's own"},
	{Path: whole(`ApiKeys.*`), Keys: []int16{18}, Kafka: whole(`is there|[0-9]+`), Thermocline: whole(regexp.QuoteMeta(absent)), Why: "keys of what is not built, or of brokers among themselves"},
	{Path: whole(`(Supported|Finalized)Features.*`), Keys: []int16{18}, Why: "features of Kafka's own metadata and formats"},
	{Path: topicConfig(`remote\.storage\.enable`, `.*`), Why: "every topic is tiered"},
	{Path: topicConfig(`message\.downconversion\.enable|message\.format\.version|message\.timestamp\.difference\.max\.ms|thermocline\.roll`, `.*`), Kafka: whole(regexp.QuoteMeta(absent)), Why: "configs of older Kafkas, and one of our own"},
	{Path: topicConfig(`.*`, `\.(Source|IsDefault|ConfigSynonyms.*)`), Why: "the two brokers' files say different things"},
	{Path: topicConfig(`.*`, ``), Keys: []int16{19}, Why: "configs are listed by both"},
}
