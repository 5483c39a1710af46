package brokerconfig

import (
	"errors"
	"testing"
	"time"

	"thermocline/ingest/topicconfig"
)

func TestTheTableIsSound(t *testing.T) {
	if len(All()) != len(byName) {
		t.Errorf("%d rows, %d names: one is named twice", len(All()), len(byName))
	}
	for _, d := range All() {
		if d.Doc == "" {
			t.Errorf("%s has no documentation", d.Name)
		}
		if d.Handling != topicconfig.Honoured && d.Why == "" {
			t.Errorf("%s: no reason given", d.Name)
		}
		if err := d.Check(d.Default); err != nil && !d.Null && d.Default != "" {
			t.Errorf("%s: its own default is refused: %v", d.Name, err)
		}
	}
	for name, list := range coarser {
		for _, c := range list {
			if _, ok := Lookup(c.name); !ok {
				t.Errorf("%s, coarser form of %s, is not in the table", c.name, name)
			}
		}
	}
}

func TestLayers(t *testing.T) {
	v := NewValues(
		map[string]string{"message.max.bytes": "1"},
		map[string]string{"message.max.bytes": "2", "log.retention.bytes": "20"},
		map[string]string{"message.max.bytes": "3", "log.retention.bytes": "30", "group.max.size": "5"},
	)
	if n := v.Int("message.max.bytes"); n != 1 {
		t.Errorf("message.max.bytes: expected the broker's own, found %d", n)
	}
	if n := v.Int("log.retention.bytes"); n != 20 {
		t.Errorf("log.retention.bytes: expected the cluster's, found %d", n)
	}
	if n := v.Int("group.max.size"); n != 5 {
		t.Errorf("group.max.size: expected the file's, found %d", n)
	}
	if d := v.Millis("group.min.session.timeout.ms"); d != 6*time.Second {
		t.Errorf("group.min.session.timeout.ms: found %v", d)
	}
	chain := v.Chain("message.max.bytes")
	if len(chain) != 4 || chain[0].Source != FromBroker || chain[3].Value != "1048588" {
		t.Errorf("synonyms: %+v", chain)
	}
	if _, ok := v.Get("log.retention.ms"); ok {
		t.Error("log.retention.ms is null unless it is set")
	}
}

func TestTopicDefaults(t *testing.T) {
	retention, _ := topicconfig.Lookup("retention.ms")
	for _, tc := range []struct {
		file, cluster map[string]string
		want          string
	}{
		{nil, nil, "604800000"},
		{map[string]string{"log.retention.hours": "2"}, nil, "7200000"},
		{map[string]string{"log.retention.hours": "2", "log.retention.minutes": "3"}, nil, "180000"},
		{map[string]string{"log.retention.hours": "-1"}, nil, "-1"},
		{map[string]string{"log.retention.hours": "2", "log.retention.ms": "4"}, nil, "4"},
		{map[string]string{"log.retention.ms": "4"}, map[string]string{"log.retention.ms": "5"}, "5"},
	} {
		if got := NewValues(nil, tc.cluster, tc.file).TopicDefault(retention); got != tc.want {
			t.Errorf("file %v, cluster %v: expected %s, found %s", tc.file, tc.cluster, tc.want, got)
		}
	}
	all := NewValues(nil, map[string]string{"log.cleanup.policy": "compact"}, nil).TopicConfig(map[string]string{"retention.ms": "1"})
	if all["cleanup.policy"] != "compact" || all["retention.ms"] != "1" || all["max.message.bytes"] != "1048588" {
		t.Errorf("found %v", all)
	}
}

func TestCheckDynamic(t *testing.T) {
	if err := CheckDynamic(map[string]string{"log.retention.ms": "1", "my.own": "x"}); err != nil {
		t.Error(err)
	}
	if err := CheckDynamic(map[string]string{"num.partitions": "3"}); !errors.Is(err, ErrNotDynamic) {
		t.Errorf("num.partitions: expected ErrNotDynamic, found %v", err)
	}
	if err := CheckDynamic(map[string]string{"log.retention.ms": "soon"}); !errors.Is(err, topicconfig.ErrInvalid) {
		t.Errorf("log.retention.ms=soon: expected ErrInvalid, found %v", err)
	}
}

func TestGroupConfigs(t *testing.T) {
	v := NewValues(nil, nil, map[string]string{"group.consumer.session.timeout.ms": "50000"})
	if n := v.GroupInt(nil, "consumer.session.timeout.ms"); n != 50000 {
		t.Errorf("inherited: found %d", n)
	}
	for name, tc := range map[string]struct {
		config map[string]string
		want   int64
	}{
		"none of its own":  {nil, 50_000},
		"within":           {map[string]string{"consumer.session.timeout.ms": "46000"}, 46_000},
		"below the bounds": {map[string]string{"consumer.session.timeout.ms": "1000"}, 45_000},
		"above the bounds": {map[string]string{"consumer.session.timeout.ms": "90000"}, 60_000},
	} {
		if n := v.GroupInForce(tc.config, "consumer.session.timeout.ms"); n != tc.want {
			t.Errorf("%s: expected %d in force, found %d", name, tc.want, n)
		}
	}
	if n := v.GroupInt(map[string]string{"consumer.session.timeout.ms": "46000"}, "consumer.session.timeout.ms"); n != 46000 {
		t.Errorf("own: found %d", n)
	}
	for _, tc := range []struct {
		config map[string]string
		ok     bool
	}{
		{nil, true},
		{map[string]string{"consumer.session.timeout.ms": "60000"}, true},
		{map[string]string{"consumer.session.timeout.ms": "60001"}, false},
		{map[string]string{"consumer.heartbeat.interval.ms": "1"}, false},
		{map[string]string{"consumer.heartbeat.interval.ms": "x"}, false},
		{map[string]string{"nope": "1"}, false},
	} {
		if err := CheckGroup(tc.config, v); (err == nil) != tc.ok {
			t.Errorf("%v: %v", tc.config, err)
		}
	}
	if err := CheckClientMetrics(map[string]string{"interval.ms": "99"}); err == nil {
		t.Error("interval.ms=99: expected an error")
	}
	if err := CheckClientMetrics(map[string]string{"interval.ms": "100", "metrics": "a,b"}); err != nil {
		t.Error(err)
	}
}
