package ingest

import (
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	opSet      = kmsg.IncrementalAlterConfigOpSet
	opDelete   = kmsg.IncrementalAlterConfigOpDelete
	opAppend   = kmsg.IncrementalAlterConfigOpAppend
	opSubtract = kmsg.IncrementalAlterConfigOpSubtract

	ofTopic   = kmsg.ConfigResourceTypeTopic
	ofBroker  = kmsg.ConfigResourceTypeBroker
	ofLogger  = kmsg.ConfigResourceTypeBrokerLogger
	ofGroup   = kmsg.ConfigResourceTypeGroupConfig
	ofMetrics = kmsg.ConfigResourceTypeClientMetrics
)

// change is one operation of an IncrementalAlterConfigs request.
type change struct {
	name  string
	op    kmsg.IncrementalAlterConfigOp
	value any // string or nil
}

func alterIncrementally(w *wire, kind kmsg.ConfigResourceType, name string, validate bool, changes ...change) int16 {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version, req.ValidateOnly = 1, validate
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for _, c := range changes {
		rc := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		rc.Name, rc.Op = c.name, c.op
		if v, ok := c.value.(string); ok {
			rc.Value = &v
		}
		r.Configs = append(r.Configs, rc)
	}
	req.Resources = append(req.Resources, r)
	return ask[*kmsg.IncrementalAlterConfigsResponse](w, req).Resources[0].ErrorCode
}

func describe(w *wire, kind kmsg.ConfigResourceType, name string, only ...string) (map[string]configEntry, int16) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms, req.IncludeDocumentation = 4, true, true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, only
	req.Resources = append(req.Resources, r)
	res := ask[*kmsg.DescribeConfigsResponse](w, req).Resources[0]
	out := map[string]configEntry{}
	for _, c := range res.Configs {
		out[c.Name] = c
	}
	return out, res.ErrorCode
}

// The codes are those of Apache Kafka 4.3.1 for the same requests.
func TestAlterConfigsCodes(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "t", 1, nil)
	w := dial(t, s.addr)
	invalidRequest, invalidConfig := kerr.InvalidRequest.Code, kerr.InvalidConfig.Code
	for _, tc := range []struct {
		kind    kmsg.ConfigResourceType
		name    string
		changes []change
		want    int16
	}{
		{ofBroker, "", []change{{"log.retention.ms", opSet, "3600000"}}, 0},
		{ofBroker, "1", []change{{"log.retention.ms", opSet, "7200000"}}, 0},
		{ofBroker, "1", []change{{"num.partitions", opSet, "3"}}, invalidRequest},
		{ofBroker, "", []change{{"num.partitions", opSet, "3"}}, invalidRequest},
		{ofBroker, "1", []change{{"my.own.thing", opSet, "3"}}, 0},
		{ofBroker, "1", []change{{"log.retention.ms", opSet, "soon"}}, invalidRequest},
		{ofBroker, "1", []change{{"log.retention.ms", opSet, nil}}, invalidRequest},
		{ofBroker, "1", []change{{"log.cleanup.policy", opAppend, "compact"}}, 0},
		{ofBroker, "1", []change{{"log.retention.ms", opAppend, "1"}}, invalidConfig},
		{ofBroker, "2", []change{{"log.retention.ms", opSet, "1"}}, invalidRequest},
		{ofBroker, "x", []change{{"log.retention.ms", opSet, "1"}}, invalidRequest},
		{ofBroker, "1", []change{{"log.retention.ms", 9, "1"}}, invalidRequest},
		{ofBroker, "1", []change{{"log.retention.ms", opSet, "1"}, {"log.retention.ms", opSet, "2"}}, invalidRequest},
		{ofBroker, "1", []change{{"num.partitions", opDelete, nil}}, 0},
		{ofBroker, "1", nil, 0},
		{ofTopic, "nope", []change{{"retention.ms", opSet, "1"}}, kerr.UnknownTopicOrPartition.Code},
		{ofTopic, "", []change{{"retention.ms", opSet, "1"}}, invalidRequest},
		{ofTopic, "bad name", []change{{"retention.ms", opSet, "1"}}, kerr.InvalidTopicException.Code},
		{ofTopic, "t", []change{{"nope", opSet, "1"}}, invalidConfig},
		{ofTopic, "t", []change{{"nope", opDelete, nil}}, 0},
		{ofTopic, "t", []change{{"retention.ms", opSet, "soon"}}, invalidConfig},
		{ofTopic, "t", []change{{"retention.ms", opSet, "-2"}}, invalidConfig},
		{ofTopic, "t", []change{{"retention.ms", opSet, nil}}, invalidRequest},
		{ofTopic, "t", []change{{"cleanup.policy", opAppend, "never"}}, invalidConfig},
		{ofTopic, "t", []change{{"retention.ms", opAppend, "1"}}, invalidConfig},
		{ofGroup, "g", []change{{"consumer.session.timeout.ms", opSet, "50000"}}, 0},
		{ofGroup, "g", []change{{"consumer.session.timeout.ms", opSet, "1"}}, invalidConfig},
		{ofGroup, "g", []change{{"consumer.session.timeout.ms", opSet, "x"}}, invalidConfig},
		{ofGroup, "g", []change{{"nope", opSet, "1"}}, invalidConfig},
		{ofGroup, "", []change{{"consumer.session.timeout.ms", opSet, "50000"}}, invalidRequest},
		{ofMetrics, "m", []change{{"interval.ms", opSet, "50000"}}, 0},
		{ofMetrics, "m", []change{{"interval.ms", opSet, "5"}}, invalidRequest},
		{ofMetrics, "m", []change{{"nope", opSet, "5"}}, invalidRequest},
		{ofLogger, "1", []change{{"root", opSet, "WARN"}}, 0},
		{ofLogger, "1", []change{{"root", opSet, "LOUD"}}, invalidConfig},
		{ofLogger, "1", []change{{"no.such", opSet, "WARN"}}, invalidConfig},
		{ofLogger, "1", []change{{"root", opDelete, nil}}, invalidRequest},
		{ofLogger, "1", []change{{"root", opAppend, "WARN"}}, invalidRequest},
		{ofLogger, "", []change{{"root", opSet, "WARN"}}, invalidRequest},
		{ofLogger, "2", []change{{"root", opSet, "WARN"}}, invalidRequest},
		{99, "x", []change{{"root", opSet, "WARN"}}, invalidRequest},
	} {
		if got := alterIncrementally(w, tc.kind, tc.name, false, tc.changes...); got != tc.want {
			t.Errorf("%v %q %v: expected %d, found %d", tc.kind, tc.name, tc.changes, tc.want, got)
		}
	}
}

// What is set at run time holds at once: for the broker's settings, and for
// the topics that inherit from them.
func TestDynamicBrokerConfigs(t *testing.T) {
	level := new(slog.LevelVar)
	s := startServer(t, newFakeCluster(1), func(c *Config) {
		c.LogLevel = level
		c.Static = map[string]string{"log.retention.hours": "2", "group.max.size": "7"}
	})
	create(t, s, "t", 1, map[string]*string{"max.message.bytes": kadm.StringPtr("2000")})
	w := dial(t, s.addr)
	topic := func(name string) configEntry {
		t.Helper()
		c, _ := describe(w, ofTopic, "t", name)
		return c[name]
	}
	if c := topic("retention.ms"); *c.Value != "7200000" || c.Source != kmsg.ConfigSourceStaticBrokerConfig || c.ConfigSynonyms[0].Name != "log.retention.hours" {
		t.Errorf("from the file: %+v", c)
	}
	alterIncrementally(w, ofBroker, "", false, change{"log.retention.ms", opSet, "5000"}, change{"message.max.bytes", opSet, "1000"})
	if c := topic("retention.ms"); *c.Value != "5000" || c.Source != kmsg.ConfigSourceDynamicDefaultBrokerConfig {
		t.Errorf("from all brokers: %+v", c)
	}
	alterIncrementally(w, ofBroker, "1", true, change{"log.retention.ms", opSet, "1"})
	if c := topic("retention.ms"); *c.Value != "5000" {
		t.Errorf("validate_only has changed it: %+v", c)
	}
	alterIncrementally(w, ofBroker, "1", false, change{"log.retention.ms", opSet, "6000"}, change{"message.max.bytes", opSet, "1500"})
	if c := topic("retention.ms"); *c.Value != "6000" || c.Source != kmsg.ConfigSourceDynamicBrokerConfig || len(c.ConfigSynonyms) != 3 {
		t.Errorf("from this broker: %+v", c)
	}
	if c := topic("max.message.bytes"); *c.Value != "2000" || c.Source != kmsg.ConfigSourceDynamicTopicConfig || len(c.ConfigSynonyms) < 4 {
		t.Errorf("the topic's own: %+v", c)
	}
	create(t, s, "u", 1, nil)
	if e := s.effective(topicOf(t, s, "u")); e.MaxMessageBytes != 1500 {
		t.Errorf("a topic without a limit of its own: found %d", e.MaxMessageBytes)
	}
	if e := s.effective(topicOf(t, s, "t")); e.MaxMessageBytes != 2000 {
		t.Errorf("a topic with a limit of its own: found %d", e.MaxMessageBytes)
	}
	all, _ := describe(w, ofBroker, "")
	if len(all) != 2 || *all["message.max.bytes"].Value != "1000" || all["message.max.bytes"].ReadOnly {
		t.Errorf("all brokers: %+v", all)
	}
	own, _ := describe(w, ofBroker, "1")
	if c := own["num.partitions"]; !c.ReadOnly || *c.Value != "1" || c.ConfigType != kmsg.ConfigTypeInt || c.Documentation == nil {
		t.Errorf("num.partitions: %+v", c)
	}
	if c := own["group.max.size"]; *c.Value != "7" || c.Source != kmsg.ConfigSourceStaticBrokerConfig {
		t.Errorf("group.max.size: %+v", c)
	}
	if c := own["log.roll.ms"]; c.Value != nil {
		t.Errorf("log.roll.ms is null: %+v", c)
	}
	alterIncrementally(w, ofBroker, "1", false, change{"log.retention.ms", opDelete, nil}, change{"message.max.bytes", opDelete, nil})
	alterIncrementally(w, ofBroker, "", false, change{"log.retention.ms", opDelete, nil}, change{"message.max.bytes", opDelete, nil})
	if c := topic("retention.ms"); *c.Value != "7200000" {
		t.Errorf("deleted again: %+v", c)
	}
	alterIncrementally(w, ofLogger, "1", false, change{"root", opSet, "debug"})
	if c, _ := describe(w, ofLogger, "1"); *c["root"].Value != "DEBUG" || level.Level() != slog.LevelDebug {
		t.Errorf("log level: %+v, %v", c, level)
	}
	if n := s.settings().Int("group.max.size"); n != 7 {
		t.Errorf("settings: group.max.size is %d", n)
	}
}

func TestListsAreChanged(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "t", 1, nil)
	w := dial(t, s.addr)
	policy := func() string { c, _ := describe(w, ofTopic, "t", "cleanup.policy"); return *c["cleanup.policy"].Value }
	for _, step := range []struct {
		op    kmsg.IncrementalAlterConfigOp
		value string
		want  string
	}{
		{opAppend, "compact", "delete,compact"}, {opAppend, "compact", "delete,compact"},
		{opSubtract, "compact", "delete"}, {opSubtract, "delete", ""}, {opDelete, "", "delete"},
	} {
		if code := alterIncrementally(w, ofTopic, "t", false, change{"cleanup.policy", step.op, step.value}); code != 0 || policy() != step.want {
			t.Errorf("%v %s: expected %q, found %q (error %d)", step.op, step.value, step.want, policy(), code)
		}
	}
}

func TestAlterConfigsReplaces(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "t", 1, map[string]*string{"retention.ms": kadm.StringPtr("5")})
	w := dial(t, s.addr)
	replace := func(kind kmsg.ConfigResourceType, name string, configs ...change) int16 {
		req := kmsg.NewPtrAlterConfigsRequest()
		req.Version = 2
		r := kmsg.NewAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kind, name
		for _, c := range configs {
			rc := kmsg.NewAlterConfigsRequestResourceConfig()
			rc.Name = c.name
			if v, ok := c.value.(string); ok {
				rc.Value = &v
			}
			r.Configs = append(r.Configs, rc)
		}
		req.Resources = append(req.Resources, r)
		return ask[*kmsg.AlterConfigsResponse](w, req).Resources[0].ErrorCode
	}
	if c := replace(ofTopic, "t", change{name: "cleanup.policy", value: "compact"}); c != 0 {
		t.Errorf("error %d", c)
	}
	if row := topicOf(t, s, "t"); len(row.Config) != 1 || row.Config["cleanup.policy"] != "compact" {
		t.Errorf("found %v", row.Config)
	}
	for _, tc := range []struct {
		kind    kmsg.ConfigResourceType
		name    string
		configs []change
		want    int16
	}{
		{ofTopic, "t", []change{{name: "cleanup.policy"}}, kerr.InvalidRequest.Code},
		{ofTopic, "t", []change{{name: "nope", value: "1"}}, kerr.InvalidConfig.Code},
		{ofTopic, "t", []change{{name: "retention.ms", value: "1"}, {name: "retention.ms", value: "2"}}, kerr.InvalidRequest.Code},
		{ofTopic, "nope", nil, kerr.UnknownTopicOrPartition.Code},
		{ofBroker, "1", []change{{name: "log.retention.ms", value: "5000"}}, 0},
		{ofBroker, "1", []change{{name: "num.partitions", value: "5"}}, kerr.InvalidRequest.Code},
		{ofBroker, "1", nil, 0},
		{ofLogger, "1", []change{{name: "root", value: "WARN"}}, kerr.InvalidRequest.Code},
		{ofTopic, "t", nil, 0},
	} {
		if got := replace(tc.kind, tc.name, tc.configs...); got != tc.want {
			t.Errorf("%v %q %v: expected %d, found %d", tc.kind, tc.name, tc.configs, tc.want, got)
		}
	}
	if row := topicOf(t, s, "t"); len(row.Config) != 0 {
		t.Errorf("emptied: found %v", row.Config)
	}
}

// TestChangesFindTopicsNotHeardOf: a topic that was created through another
// broker just now can be changed and deleted through this one.
func TestChangesFindTopicsNotHeardOf(t *testing.T) {
	c := newFakeCluster(1)
	s := startServer(t, c, nil)
	create(t, s, "t", 1, nil)
	w := dial(t, s.addr)
	c.unheard = "t"
	if got := alterIncrementally(w, ofTopic, "t", false, change{"retention.ms", opSet, "3600000"}); got != 0 {
		t.Errorf("IncrementalAlterConfigs: error %d, expected none", got)
	}
	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.Version = 3
	grow.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 2}}
	if got := ask[*kmsg.CreatePartitionsResponse](w, grow).Topics[0].ErrorCode; got != 0 {
		t.Errorf("CreatePartitions: error %d, expected none", got)
	}
	remove := func() (int16, string) {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Version = 6
		req.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: kmsg.StringPtr("t")}}
		answer := ask[*kmsg.DeleteTopicsResponse](w, req).Topics[0]
		if answer.ErrorMessage == nil {
			return answer.ErrorCode, ""
		}
		return answer.ErrorCode, *answer.ErrorMessage
	}
	if got, text := remove(); got != 0 {
		t.Errorf("DeleteTopics: error %d %q, expected none", got, text)
	}
	if got, text := remove(); got != kerr.UnknownTopicOrPartition.Code || text != kerr.UnknownTopicOrPartition.Description {
		t.Errorf("DeleteTopics of a topic that is gone: error %d %q, expected %v", got, text, kerr.UnknownTopicOrPartition)
	}
}

func TestFractionsAreShownAsKafkaShowsThem(t *testing.T) {
	for v, want := range map[string]string{
		"0": "0.0", "0.5": "0.5", ".5": "0.5", "1": "1.0", "1e0": "1.0", "-1": "-1.0", "0.001": "0.001",
		"0.0001": "1.0E-4", "0.00012": "1.2E-4", "12345678": "1.2345678E7", "10000000": "1.0E7", "x": "x",
	} {
		if got := shownDouble(v); got != want {
			t.Errorf("%s is shown as %s, expected %s", v, got, want)
		}
	}
}
