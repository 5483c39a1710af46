package ingest

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/metadata"
	"thermocline/wal/batch"
)

// testBatch builds a batch with one record for each value.
func testBatch(codec batch.Codec, values ...string) []byte {
	b := batch.NewBuilder(batch.BuilderOptions{Codec: codec})
	now := time.Now().UnixMilli()
	for _, v := range values {
		b.Add(now, []byte("key"), []byte(v))
	}
	return b.Build()
}

// produceRequest writes one batch to one partition, by name or id as the version wants.
func produceRequest(version int16, row *metadata.Topic, p int32, acks int16, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, acks, 5000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = row.Name, row.ID
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = p, records
	t.Partitions = append(t.Partitions, rp)
	req.Topics = append(req.Topics, t)
	return req
}

// fetchRequest reads partitions of a topic from given offsets.
func fetchRequest(version int16, row *metadata.Topic, offsets ...int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = version, 0, 1, 10<<20, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = row.Name, row.ID
	for p, o := range offsets {
		fp := kmsg.NewFetchRequestTopicPartition()
		fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes, fp.CurrentLeaderEpoch = int32(p), o, 1<<20, -1
		t.Partitions = append(t.Partitions, fp)
	}
	req.Topics = append(req.Topics, t)
	return req
}

func topicOf(t testing.TB, s *testServer, name string) *metadata.Topic {
	t.Helper()
	row, ok := s.cluster.TopicByName(name)
	if !ok {
		t.Fatalf("no topic %s", name)
	}
	return row
}

// sampleRequest is a request of each key that must succeed, at any version.
func sampleRequest(s *testServer, key, version int16, row *metadata.Topic) kmsg.Request {
	name := fmt.Sprintf("made-by-v%d", version)
	switch key {
	case 0:
		return produceRequest(version, row, 0, -1, testBatch(batch.None, "v"))
	case 1:
		return fetchRequest(version, row, 0)
	case 2:
		req := kmsg.NewPtrListOffsetsRequest()
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = row.Name
		for ts := int64(-2); ts <= -1; ts++ {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Timestamp, p.CurrentLeaderEpoch = ts, -1
			rt.Partitions = append(rt.Partitions, p)
		}
		req.Topics = append(req.Topics, rt)
		return req
	case 3:
		req := kmsg.NewPtrMetadataRequest()
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &row.Name
		req.Topics = append(req.Topics, rt)
		return req
	case 18:
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "wire", "1.0"
		return req
	case 19:
		req := kmsg.NewPtrCreateTopicsRequest()
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, 2, 1
		req.Topics = append(req.Topics, rt)
		return req
	case 20:
		req := kmsg.NewPtrDeleteTopicsRequest()
		victim := fmt.Sprintf("made-by-v%d", version+1)
		req.TopicNames = []string{victim}
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.Topic = &victim
		req.Topics = append(req.Topics, rt)
		return req
	case 21:
		req := kmsg.NewPtrDeleteRecordsRequest()
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rt.Topic = row.Name
		rp := kmsg.NewDeleteRecordsRequestTopicPartition()
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		return req
	case 22:
		return kmsg.NewPtrInitProducerIDRequest()
	case 23:
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		rt.Topic = row.Name
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rp.CurrentLeaderEpoch, rp.LeaderEpoch = -1, fakeTerm
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		return req
	case 32:
		req := kmsg.NewPtrDescribeConfigsRequest()
		rr := kmsg.NewDescribeConfigsRequestResource()
		rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, row.Name
		req.Resources = append(req.Resources, rr)
		req.IncludeSynonyms, req.IncludeDocumentation = true, true
		return req
	case 33:
		req := kmsg.NewPtrAlterConfigsRequest()
		rr := kmsg.NewAlterConfigsRequestResource()
		rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, row.Name
		rc := kmsg.NewAlterConfigsRequestResourceConfig()
		v := "200000"
		rc.Name, rc.Value = "retention.ms", &v
		rr.Configs = append(rr.Configs, rc)
		req.Resources = append(req.Resources, rr)
		return req
	case 35:
		return kmsg.NewPtrDescribeLogDirsRequest()
	case 37:
		req := kmsg.NewPtrCreatePartitionsRequest()
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = row.Name, int32(len(row.Shards)+1)
		req.Topics = append(req.Topics, rt)
		return req
	case 44:
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		rr := kmsg.NewIncrementalAlterConfigsRequestResource()
		rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, row.Name
		rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		v := "100000"
		rc.Name, rc.Value = "retention.ms", &v
		rr.Configs = append(rr.Configs, rc)
		req.Resources = append(req.Resources, rr)
		return req
	case 60:
		req := kmsg.NewPtrDescribeClusterRequest()
		return req
	}
	if req := sampleAdmin(key, row); req != nil {
		return req
	}
	req := sampleGroupRequest(s.cluster.coordinators, key, version, row)
	if req == nil {
		s.t.Fatalf("no sample request for key %d", key)
	}
	return req
}

// TestEveryAdvertisedVersion sends a request of each key and version that
// ApiVersions advertises, and demands an answer without an error code.
func TestEveryAdvertisedVersion(t *testing.T) {
	s := startServer(t, newFakeCluster(2), nil)
	create(t, s, "versions", 2, nil)
	w := dial(t, s.addr)
	avr := kmsg.NewPtrApiVersionsRequest()
	advertised := ask[*kmsg.ApiVersionsResponse](w, avr)
	keys := advertised.ApiKeys
	for _, a := range registrations() {
		if a.hidden {
			keys = append(keys, kmsg.ApiVersionsResponseApiKey{ApiKey: a.key, MinVersion: a.min, MaxVersion: a.max})
		}
	}
	if len(keys) != len(registrations()) {
		t.Errorf("expected %d keys, found %d", len(registrations()), len(keys))
	}
	for _, k := range keys {
		for v := k.MinVersion; v <= k.MaxVersion; v++ {
			if k.ApiKey == 0 && v < 3 {
				continue // refused: TestOldProduceIsRefused
			}
			req := sampleRequest(s, k.ApiKey, v, topicOf(t, s, "versions"))
			req.SetVersion(v)
			resp := ask[kmsg.Response](w, req)
			if code := firstError(resp); code != sampleErrors[k.ApiKey] {
				t.Errorf("%s v%d: expected code %d, found %v", kmsg.NameForKey(k.ApiKey), v, sampleErrors[k.ApiKey], kerr.ErrorForCode(code))
			}
		}
	}
}

// firstError digs the first error code out of an answer. A fetch must bring records.
func firstError(resp kmsg.Response) int16 {
	if r, ok := resp.(*kmsg.FetchResponse); ok && len(r.Topics[0].Partitions[0].RecordBatches) == 0 {
		return max(r.Topics[0].Partitions[0].ErrorCode, kerr.UnknownServerError.Code)
	}
	return anyError(reflect.ValueOf(resp))
}

// TestFilePerKey: each registered key has its file, each such file a registration.
func TestFilePerKey(t *testing.T) {
	files, err := filepath.Glob("[0-9][0-9]_*.go")
	if err != nil {
		t.Fatal(err)
	}
	pattern := regexp.MustCompile(`^(\d\d)_[a-z_]+\.go$`)
	have := map[int16]bool{}
	for _, f := range files {
		m := pattern.FindStringSubmatch(f)
		if m == nil {
			t.Errorf("file %s is not named NN_name.go", f)
			continue
		}
		key, _ := strconv.Atoi(m[1])
		have[int16(key)] = true
	}
	for _, a := range registrations() {
		if !have[a.key] {
			t.Errorf("%s (key %d) has no file of its own", a.name, a.key)
		}
		if !strings.EqualFold(a.name, kmsg.NameForKey(a.key)) && a.key != 45 { // whose name in kmsg is another one
			t.Errorf("key %d is named %q, kmsg says %q", a.key, a.name, kmsg.NameForKey(a.key))
		}
		if most := kmsg.RequestForKey(a.key).MaxVersion(); a.max > most {
			t.Errorf("%s: version %d is beyond what kmsg knows (%d)", a.name, a.max, most)
		}
		delete(have, a.key)
	}
	for key := range have {
		t.Errorf("key %d has a file and no registration", key)
	}
	if _, err := os.Stat("limits.go"); err != nil {
		t.Error(err)
	}
}

func TestApiVersionsOfAnUnknownVersion(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	w := dial(t, s.addr)
	// Version 99 with a body of a layout that nobody knows.
	w.write([]byte{0, 0, 0, 14, 0, 18, 0, 99, 0, 0, 0, 5, 0, 1, 'x', 0, 1, 2})
	b := w.frame()
	// correlation 5, error 35, one entry {18, 0, 4}: the layout of v0.
	want := []byte{0, 0, 0, 5, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4}
	if string(b) != string(want) {
		t.Fatalf("expected % x, found % x", want, b)
	}
	// The connection goes on.
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 4, "a", "b"
	if resp := ask[*kmsg.ApiVersionsResponse](w, req); resp.ErrorCode != 0 || len(resp.FinalizedFeatures) != 1 || len(resp.SupportedFeatures) != 1 {
		t.Errorf("unexpected answer %+v", resp)
	}
	for _, name := range []string{"", "-a", "a b", "a-"} {
		req.ClientSoftwareName = name
		if resp := ask[*kmsg.ApiVersionsResponse](w, req); resp.ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("software name %q: error %d", name, resp.ErrorCode)
		}
	}
}

func TestMetadataTraps(t *testing.T) {
	cluster := newFakeCluster(1)
	s := startServer(t, cluster, nil)
	create(t, s, "known", 1, nil)
	row := topicOf(t, s, "known")
	w := dial(t, s.addr)
	ask := func(version int16, topics []kmsg.MetadataRequestTopic, allow bool) *kmsg.MetadataResponse {
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.Topics, req.AllowAutoTopicCreation = version, topics, allow
		return ask[*kmsg.MetadataResponse](w, req)
	}
	named := func(name string) []kmsg.MetadataRequestTopic {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &name
		return []kmsg.MetadataRequestTopic{rt}
	}
	if n := len(ask(0, []kmsg.MetadataRequestTopic{}, false).Topics); n != 1 {
		t.Errorf("v0, empty list: expected all topics, found %d", n)
	}
	if n := len(ask(1, []kmsg.MetadataRequestTopic{}, false).Topics); n != 0 {
		t.Errorf("v1, empty list: expected none, found %d", n)
	}
	if n := len(ask(1, nil, false).Topics); n != 1 {
		t.Errorf("v1, null: expected all topics, found %d", n)
	}
	if c := ask(13, named("unknown"), false).Topics[0].ErrorCode; c != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("unknown topic: error %d", c)
	}
	if c := ask(1, named("by-old-client"), false).Topics[0].ErrorCode; c != 0 && c != kerr.LeaderNotAvailable.Code {
		t.Errorf("v1 creates on use: error %d", c)
	}
	topicOf(t, s, "by-old-client")
	if c := ask(1, named("bad name"), true).Topics[0].ErrorCode; c != kerr.InvalidTopicException.Code {
		t.Errorf("bad name: error %d", c)
	}
	if c := ask(9, named("__consumer_offsets"), true).Topics[0].ErrorCode; c != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("reserved name: error %d", c)
	}
	byID := func(id metadata.TopicID) kmsg.MetadataResponseTopic {
		rt := kmsg.NewMetadataRequestTopic()
		rt.TopicID = id
		return ask(12, []kmsg.MetadataRequestTopic{rt}, false).Topics[0]
	}
	if mt := byID(row.ID); mt.ErrorCode != 0 || *mt.Topic != "known" {
		t.Errorf("by id: %+v", mt)
	}
	if mt := byID(metadata.TopicID{9}); mt.ErrorCode != kerr.UnknownTopicID.Code {
		t.Errorf("by unknown id: error %d", mt.ErrorCode)
	}
	if n := len(ask(9, append(named("known"), named("known")...), false).Topics); n != 1 {
		t.Errorf("a topic named twice: %d answers", n)
	}
	cluster.mu.Lock()
	delete(cluster.leaders, 1)
	cluster.mu.Unlock()
	if p := ask(9, named("known"), false).Topics[0].Partitions[0]; p.ErrorCode != kerr.LeaderNotAvailable.Code || p.Leader != -1 {
		t.Errorf("without a leader: %+v", p)
	}
}

func TestManualAssignment(t *testing.T) {
	s := startServer(t, newFakeCluster(2, "a", "b"), func(c *Config) { c.ShardReplicas = 2 })
	w := dial(t, s.addr)
	create := func(name string, count int32, replicas ...[]int32) int16 {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Version = 5
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, count, -1
		for p, r := range replicas {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = int32(p), r
			rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
		}
		req.Topics = append(req.Topics, rt)
		return ask[*kmsg.CreateTopicsResponse](w, req).Topics[0].ErrorCode
	}
	if c := create("equal", -1, []int32{2, 1}, []int32{1, 2}); c != 0 || len(topicOf(t, s, "equal").Shards) != 2 {
		t.Errorf("the replicas of a shard: error %d", c)
	}
	if c := create("other", -1, []int32{1, 3}); c != kerr.InvalidReplicaAssignment.Code {
		t.Errorf("other replicas: error %d", c)
	}
	if c := create("both", 2, []int32{1, 2}); c != kerr.InvalidRequest.Code {
		t.Errorf("count beside an assignment: error %d", c)
	}
}

// TestATopicDeletedByNameAndByID: two names for one topic are one topic named
// twice, which nothing is done about, as in Kafka.
func TestATopicDeletedByNameAndByID(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "twice", 1, nil)
	row := topicOf(t, s, "twice")
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis = 6, 5000
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &row.Name}, {TopicID: row.ID}}
	resp := ask[*kmsg.DeleteTopicsResponse](dial(t, s.addr), req)
	if len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != kerr.InvalidRequest.Code || resp.Topics[0].TopicID != row.ID {
		t.Errorf("expected one INVALID_REQUEST with the topic's id, found %+v", resp.Topics)
	}
	topicOf(t, s, "twice")
}
