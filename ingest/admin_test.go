package ingest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/metadata"
)

// The pages of DescribeTopicPartitions, written "topic:error:partitions|…" with
// the cursor behind, as Apache Kafka 4.3.1 gives them.
func TestDescribeTopicPartitionsPages(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "b2", 2, nil)
	create(t, s, "a3", 3, nil)
	create(t, s, "probe", 1, nil)
	w := dial(t, s.addr)
	cursor := func(topic string, p int32) *kmsg.DescribeTopicPartitionsRequestCursor {
		c := kmsg.NewDescribeTopicPartitionsRequestCursor()
		c.Topic, c.Partition = topic, p
		return &c
	}
	for _, tc := range []struct {
		topics string
		limit  int32
		cursor *kmsg.DescribeTopicPartitionsRequestCursor
		want   string
	}{
		{"", 2000, nil, "a3:0:012|b2:0:01|probe:0:0"},
		{"b2 a3 b2 nope", 2000, nil, "a3:0:012|b2:0:01|nope:3:"},
		{"b2 bad/name", 2000, nil, "b2:0:01|bad/name:17:"},
		{"b2 __consumer_offsets", 2000, nil, "__consumer_offsets:3:|b2:0:01"},
		{"b2 a3", 2, nil, "a3:0:01 a3 2"},
		{"b2 a3", 3, nil, "a3:0:012 b2 0"},
		{"b2 a3", 0, nil, "a3:0:0 a3 1"},
		{"nope aaa b2 zzz", 1, nil, "aaa:3:|b2:0:0 b2 1"},
		{"b2 a3", 2, cursor("a3", 2), "a3:0:2|b2:0:0 b2 1"},
		{"b2 a3", 2, cursor("a3", 3), "a3:0:|b2:0:01"},
		{"b2 a3", 2, cursor("a3", 9), "a3:0:|b2:0:01"},
		{"b2 a3", 2, cursor("aa", 1), "b2:42:|a3:42:"},
		{"b2 a3", 2, cursor("a3", -1), "b2:42:|a3:42:"},
		{"", 2, cursor("aa", 1), "b2:0:01 probe 0"},
		{"", 2, cursor("zz", 1), ""},
		{"", 2, cursor("b2", 1), "b2:0:1|probe:0:0"},
		{"nope probe a3", 2, cursor("nope", 1), "nope:3:|probe:0:0"},
	} {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit, req.Cursor = tc.limit, tc.cursor
		for name := range strings.FieldsSeq(tc.topics) {
			rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
			rt.Topic = name
			req.Topics = append(req.Topics, rt)
		}
		resp := ask[*kmsg.DescribeTopicPartitionsResponse](w, req)
		var parts []string
		for _, rt := range resp.Topics {
			part := fmt.Sprintf("%s:%d:", *rt.Topic, rt.ErrorCode)
			for _, p := range rt.Partitions {
				part += fmt.Sprint(p.Partition)
			}
			parts = append(parts, part)
		}
		got := strings.Join(parts, "|")
		if c := resp.NextCursor; c != nil {
			got += fmt.Sprintf(" %s %d", c.Topic, c.Partition)
		}
		if got != tc.want {
			t.Errorf("%q limit %d cursor %+v: expected %q, found %q", tc.topics, tc.limit, tc.cursor, tc.want, got)
		}
	}
}

func TestListConfigResources(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "t", 1, nil)
	w := dial(t, s.addr)
	alterIncrementally(w, ofMetrics, "m", false, change{"interval.ms", opSet, "1000"})
	alterIncrementally(w, ofGroup, "g", false, change{"consumer.session.timeout.ms", opSet, "50000"})
	for _, tc := range []struct {
		version int16
		types   []int8
		want    string
		code    int16
	}{
		{0, nil, "[m/16]", 0},
		{1, nil, "[g/32 m/16 1/8 1/4 t/2]", 0},
		{1, []int8{2}, "[t/2]", 0},
		{1, []int8{4, 4}, "[1/4]", 0},
		{1, []int8{2, 99}, "[]", kerr.UnsupportedVersion.Code},
	} {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.Version, req.ResourceTypes = tc.version, tc.types
		resp := ask[*kmsg.ListConfigResourcesResponse](w, req)
		got := []string{}
		for _, r := range resp.ConfigResources {
			got = append(got, fmt.Sprintf("%s/%d", r.Name, r.Type))
		}
		if fmt.Sprint(got) != tc.want || resp.ErrorCode != tc.code {
			t.Errorf("v%d %v: expected %s and %d, found %v and %d", tc.version, tc.types, tc.want, tc.code, got, resp.ErrorCode)
		}
	}
}

func TestReassignments(t *testing.T) {
	s := startServer(t, newFakeCluster(1, "a", "b", "c"), func(c *Config) { c.ShardReplicas = 3 })
	create(t, s, "t", 1, nil)
	w := dial(t, s.addr)
	invalid := kerr.InvalidReplicaAssignment.Code
	for _, tc := range []struct {
		topic    string
		p        int32
		replicas []int32
		want     int16
	}{
		{"t", 0, []int32{1, 2, 3}, 0}, {"t", 0, []int32{3, 1, 2}, 0}, {"t", 0, nil, kerr.NoReassignmentInProgress.Code},
		{"t", 0, []int32{1, 2}, invalid}, {"t", 0, []int32{1, 2, 2}, invalid}, {"t", 0, []int32{1, 2, 4}, invalid}, {"t", 0, []int32{}, invalid},
		{"t", 1, []int32{1, 2, 3}, kerr.UnknownTopicOrPartition.Code}, {"nope", 0, nil, kerr.UnknownTopicOrPartition.Code},
	} {
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		rt.Topic = tc.topic
		rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		rp.Partition, rp.Replicas = tc.p, tc.replicas
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		if got := ask[*kmsg.AlterPartitionAssignmentsResponse](w, req).Topics[0].Partitions[0].ErrorCode; got != tc.want {
			t.Errorf("%s/%d to %v: expected %d, found %d", tc.topic, tc.p, tc.replicas, tc.want, got)
		}
	}
}

func TestElectLeaders(t *testing.T) {
	c := newFakeCluster(2, "a", "b", "c")
	s := startServer(t, c, func(c *Config) { c.ShardReplicas = 3 })
	create(t, s, "t", 2, nil)
	w := dial(t, s.addr)
	elect := func(kind int8, topics ...kmsg.ElectLeadersRequestTopic) string {
		req := kmsg.NewPtrElectLeadersRequest()
		req.Version, req.ElectionType, req.Topics, req.TimeoutMillis = 2, kind, topics, 5000
		resp := ask[*kmsg.ElectLeadersResponse](w, req)
		var got []string
		for _, rt := range resp.Topics {
			for _, p := range rt.Partitions {
				got = append(got, fmt.Sprintf("%s/%d:%d", rt.Topic, p.Partition, p.ErrorCode))
			}
		}
		return strings.Join(got, " ")
	}
	of := func(topic string, partitions ...int32) kmsg.ElectLeadersRequestTopic {
		rt := kmsg.NewElectLeadersRequestTopic()
		rt.Topic, rt.Partitions = topic, partitions
		return rt
	}
	leader := func(id metadata.ShardID, b metadata.BrokerID) { c.TransferLeader(id, b) }
	if got := elect(0, of("t", 0, 9), of("nope", 0)); got != "t/0:84 t/9:3 nope/0:3" {
		t.Errorf("preferred, nothing to do: %s", got)
	}
	if got := elect(0); got != "" {
		t.Errorf("all, nothing to do: %s", got)
	}
	leader(2, 3)
	if got := elect(0); got != "t/1:0" {
		t.Errorf("all, one away from home: %s", got)
	}
	leader(1, 2)
	if got := elect(0, of("t", 0)); got != "t/0:0" {
		t.Errorf("preferred: %s", got)
	}
	if b, _, _ := c.Leader(1); b != 1 {
		t.Errorf("expected broker 1 to lead, found %d", b)
	}
	if got := elect(1, of("t", 0)); got != "t/0:84" {
		t.Errorf("unclean with a leader: %s", got)
	}
	if got := elect(7, of("t", 0)); got != "t/0:42" {
		t.Errorf("unknown type: %s", got)
	}
	leader(1, 2)
	c.mu.Lock()
	c.brokers = slices.DeleteFunc(c.brokers, func(b metadata.Broker) bool { return b.ID == 1 })
	c.mu.Unlock()
	if got := elect(0, of("t", 0)); got != fmt.Sprintf("t/0:%d", kerr.PreferredLeaderNotAvailable.Code) {
		t.Errorf("home not there: %s", got)
	}
}

func TestQuotaFilters(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	w := dial(t, s.addr)
	x := "x"
	for _, tc := range []struct {
		components []kmsg.DescribeClientQuotasRequestComponent
		want       int16
	}{
		{nil, 0},
		{[]kmsg.DescribeClientQuotasRequestComponent{{EntityType: "user", Match: &x}}, 0},
		{[]kmsg.DescribeClientQuotasRequestComponent{{EntityType: "user", MatchType: 2}}, 0},
		{[]kmsg.DescribeClientQuotasRequestComponent{{EntityType: "planet", Match: &x}}, kerr.UnsupportedVersion.Code},
		{[]kmsg.DescribeClientQuotasRequestComponent{{EntityType: "user", Match: &x}, {EntityType: "user", Match: &x}}, kerr.InvalidRequest.Code},
		{[]kmsg.DescribeClientQuotasRequestComponent{{EntityType: "user", MatchType: 1, Match: &x}}, kerr.InvalidRequest.Code},
		{[]kmsg.DescribeClientQuotasRequestComponent{{EntityType: "user"}}, kerr.InvalidRequest.Code},
		{[]kmsg.DescribeClientQuotasRequestComponent{{EntityType: "user", MatchType: 9}}, kerr.InvalidRequest.Code},
		{[]kmsg.DescribeClientQuotasRequestComponent{{Match: &x}}, kerr.InvalidRequest.Code},
		{[]kmsg.DescribeClientQuotasRequestComponent{{EntityType: "user", Match: &x}, {EntityType: "ip", Match: &x}}, kerr.InvalidRequest.Code},
	} {
		req := kmsg.NewPtrDescribeClientQuotasRequest()
		req.Version, req.Components = 1, tc.components
		if resp := ask[*kmsg.DescribeClientQuotasResponse](w, req); resp.ErrorCode != tc.want || (resp.Entries == nil) != (tc.want != 0) {
			t.Errorf("%+v: expected %d, found %d and %v", tc.components, tc.want, resp.ErrorCode, resp.Entries)
		}
	}
}

func TestDescribeProducers(t *testing.T) {
	c := newFakeCluster(1)
	s := startServer(t, c, nil)
	create(t, s, "t", 1, nil)
	w := dial(t, s.addr)
	describe := func(topic string, p int32) kmsg.DescribeProducersResponseTopicPartition {
		req := kmsg.NewPtrDescribeProducersRequest()
		rt := kmsg.NewDescribeProducersRequestTopic()
		rt.Topic, rt.Partitions = topic, []int32{p}
		req.Topics = append(req.Topics, rt)
		return ask[*kmsg.DescribeProducersResponse](w, req).Topics[0].Partitions[0]
	}
	produceIdempotent(t, s, "t")
	if got := describe("t", 0); got.ErrorCode != 0 || len(got.ActiveProducers) != 1 || got.ActiveProducers[0].LastSequence != 0 || got.ActiveProducers[0].CurrentTxnStartOffset != -1 {
		t.Errorf("found %+v", got)
	}
	if got := describe("t", 9).ErrorCode; got != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("no such partition: %d", got)
	}
	if got := describe("bad name", 0).ErrorCode; got != kerr.InvalidTopicException.Code {
		t.Errorf("bad name: %d", got)
	}
	c.replicas[1].mu.Lock()
	c.replicas[1].lead.Ready = false
	c.replicas[1].mu.Unlock()
	if got := describe("t", 0).ErrorCode; got != kerr.NotLeaderForPartition.Code {
		t.Errorf("not the leader: %d", got)
	}
}

// produceIdempotent writes one record with a producer id.
func produceIdempotent(t *testing.T, s *testServer, topic string) {
	t.Helper()
	cl := newClient(t, s)
	if err := cl.ProduceSync(testContext(t), &kgo.Record{Topic: topic, Partition: 0, Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// What is named twice in one request is answered once, and refused.
func TestNamedTwice(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "t", 1, nil)
	w := dial(t, s.addr)
	ct := kmsg.NewPtrCreateTopicsRequest()
	ct.Version = 7
	for _, name := range []string{"u", "u", "u"} {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, 1, 1
		ct.Topics = append(ct.Topics, rt)
	}
	if r := ask[*kmsg.CreateTopicsResponse](w, ct); len(r.Topics) != 1 || r.Topics[0].ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("create: %+v", r.Topics)
	}
	cp := kmsg.NewPtrCreatePartitionsRequest()
	for range 2 {
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = "t", 3
		cp.Topics = append(cp.Topics, rt)
	}
	if r := ask[*kmsg.CreatePartitionsResponse](w, cp); len(r.Topics) != 1 || r.Topics[0].ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("partitions: %+v", r.Topics)
	}
	dt := kmsg.NewPtrDeleteTopicsRequest()
	dt.Version = 6
	name := "t"
	for range 2 {
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.Topic = &name
		dt.Topics = append(dt.Topics, rt)
	}
	dt.Topics = append(dt.Topics, kmsg.NewDeleteTopicsRequestTopic())
	if r := ask[*kmsg.DeleteTopicsResponse](w, dt); len(r.Topics) != 2 || r.Topics[0].ErrorCode != kerr.InvalidRequest.Code || r.Topics[1].ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("delete: %+v", r.Topics)
	}
	topicOf(t, s, "t")
}

// Ids are for Metadata v12 and later, although v10 has a field for them.
func TestMetadataByIDIsForNewVersions(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "t", 1, nil)
	w := dial(t, s.addr)
	for v := int16(10); v <= 13; v++ {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = v
		rt := kmsg.NewMetadataRequestTopic()
		rt.TopicID = topicOf(t, s, "t").ID
		if v < 12 {
			rt.Topic = new(string)
		}
		req.Topics = append(req.Topics, rt)
		want := int16(0)
		if v < 12 {
			want = kerr.InvalidRequest.Code
		}
		if got := ask[*kmsg.MetadataResponse](w, req).Topics[0].ErrorCode; got != want {
			t.Errorf("v%d: expected %d, found %d", v, want, got)
		}
	}
}

// group.version is how the Java client learns of groups of KIP-848.
func TestFeatures(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	w := dial(t, s.addr)
	for v := int16(0); v <= 4; v++ {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = v, "a", "1"
		resp := ask[*kmsg.ApiVersionsResponse](w, req)
		if finalized := len(resp.FinalizedFeatures) == 1 && resp.FinalizedFeatures[0].Name == "group.version" && resp.FinalizedFeaturesEpoch >= 0; finalized != (v >= 3) {
			t.Errorf("v%d: finalized %+v, epoch %d", v, resp.FinalizedFeatures, resp.FinalizedFeaturesEpoch)
		}
		if supported := len(resp.SupportedFeatures) == 1; supported != (v >= 4) {
			t.Errorf("v%d: supported %+v", v, resp.SupportedFeatures)
		}
	}
}
