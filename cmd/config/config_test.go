package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func noEnv(string) (string, bool) { return "", false }

func valid() map[string]string {
	return map[string]string{
		"node.id":              "1",
		"store.url":            "file:///tmp/store",
		"etcd.initial.cluster": "1=http://127.0.0.1:2380",
	}
}

func TestDefaultsWithTheRequiredSettingsAreValid(t *testing.T) {
	c, err := Load("", noEnv, valid())
	if err != nil {
		t.Fatal(err)
	}
	if c.SegmentBytes != 64<<20 || c.SegmentMaxAge != 30*time.Second || c.ShardReplicas != 3 {
		t.Fatalf("defaults: got %v %v %d", c.SegmentBytes, c.SegmentMaxAge, c.ShardReplicas)
	}
}

func TestEverySettingIsDocumentedAndNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Settings() {
		if s.Key == "" || s.Doc == "" {
			t.Errorf("setting %+v lacks a key or a line of documentation", s)
		}
		if seen[s.Key] {
			t.Errorf("%s is named twice", s.Key)
		}
		seen[s.Key] = true
	}
}

func TestFileEnvironmentAndFlagsOverrideInThatOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broker.yaml")
	text := "node:\n  id: 1\nstore.url: file:///a\nnum.partitions: 2\nshards.per.broker: 2\netcd.endpoints: [http://a:2379, http://b:2379]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(k string) (string, bool) {
		v, ok := map[string]string{"THERMOCLINE_NUM_PARTITIONS": "3", "THERMOCLINE_SHARDS_PER_BROKER": "3"}[k]
		return v, ok
	}
	c, err := Load(path, env, map[string]string{"shards.per.broker": "4"})
	if err != nil {
		t.Fatal(err)
	}
	if c.NodeID != 1 || c.NumPartitions != 3 || c.ShardsPerBroker != 4 || len(c.EtcdEndpoints) != 2 {
		t.Fatalf("got node %d, partitions %d, shards %d, etcd %q", c.NodeID, c.NumPartitions, c.ShardsPerBroker, c.EtcdEndpoints)
	}
}

func TestProblemsSayWhatToWriteInstead(t *testing.T) {
	for _, tc := range []struct{ key, value, want string }{
		{"node.idd", "1", "did you mean node.id?"},
		{"completely.wrong", "1", "config show"},
		{"wal.max.bytes", "lots", "64MiB"},
		{"wal.max.bytes", "1MiB", "at least"},
		{"auto.create.topics.enable", "maybe", "true or false"},
		{"tiering.segment.ms", "soon", "30s"},
		{"tiering.segment.ms", "5", "at least 100ms"},
		{"listeners", "SSL://0.0.0.0:1", "only PLAINTEXT"},
		{"listeners", "SSL://0.0.0.0:abc", "only PLAINTEXT is built so far, not SSL; and the port of"},
		{"listeners", "PLAINTEXT://0.0.0.0:abc", "not a number from 0 to 65535"},
		{"listeners", "0.0.0.0:9092", "PLAINTEXT://host:port"},
		{"shard.replicas", "2", "write 3"},
		{"shard.replicas", "5", "raise cluster.brokers"},
		{"etcd.initial.cluster", "one=http://x:1", "node.id=http://host:2380"},
		{"etcd.initial.cluster", "1=http://x:1,1=http://y:1", "twice"},
		{"store.url", "", "store.url is missing"},
		{"ack.policy", "insync", "not built yet"},
		{"queued.max.request.bytes", "1MiB", "one request must fit"},
		{"log.level", "chatty", "debug, info"},
	} {
		settings := valid()
		settings[tc.key] = tc.value
		_, err := Load("", noEnv, settings)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s=%q: want an error with %q, got %v", tc.key, tc.value, tc.want, err)
		}
	}
}

func TestSecretsAreNotEchoed(t *testing.T) {
	settings := valid()
	settings["store.url"] = "minio://key:secret@host:9000/bucket"
	c, err := Load("", noEnv, settings)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := c.Show(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "secret@") {
		t.Fatal("config show prints the secret of store.url")
	}
	settings["store.url"] = "key:secret@host/bucket"
	if _, err := Load("", noEnv, settings); err != nil && strings.Contains(err.Error(), "secret@") {
		t.Fatalf("the error prints the secret: %v", err)
	}
}

func TestShowCanBeReadBack(t *testing.T) {
	c, err := Load("", noEnv, valid())
	if err != nil {
		t.Fatal(err)
	}
	c.WALMaxBytes = 1 << 30
	var out bytes.Buffer
	if err := c.Show(&out); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "shown.yaml")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	back, err := Load(path, noEnv, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Settings() {
		if c.Get(s.Key) != back.Get(s.Key) {
			t.Errorf("%s: shown %q, read back %q", s.Key, c.Get(s.Key), back.Get(s.Key))
		}
	}
}

func TestKafkasSettings(t *testing.T) {
	settings := valid()
	settings["log.retention.ms"] = "36h"
	settings["log.retention.bytes"] = "1GiB"
	settings["group.min.session.timeout.ms"] = "100"
	settings["message.max.bytes"] = "2MiB"
	c, err := Load("", noEnv, settings)
	if err != nil {
		t.Fatal(err)
	}
	v := c.Broker()
	for name, want := range map[string]string{
		"log.retention.ms": "129600000", "log.retention.bytes": "1073741824", "group.min.session.timeout.ms": "100",
		"message.max.bytes": "2097152", "group.max.session.timeout.ms": "1800000", "node.id": "1", "auto.create.topics.enable": "true",
	} {
		if got := v.String(name); got != want {
			t.Errorf("%s: expected %s, found %s", name, want, got)
		}
	}
	for key, value := range map[string]string{"log.retention.ms": "soon", "group.consumer.assignors": "best", "broker.id": "1", "log.cleanup.policy": "never"} {
		settings := valid()
		settings[key] = value
		if _, err := Load("", noEnv, settings); err == nil {
			t.Errorf("%s=%s: expected an error", key, value)
		}
	}
}

func TestMistakesAreAllReportedAtOnceAndOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broker.yaml")
	text := "node.idd: 1\nshards.per.broker: many\nlog.level: chatty\nmessage.max.bytes: 1e9\nlog.retention.ms: soon\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path, noEnv, map[string]string{"store.url": "nowhere", "max.connections": "x"})
	if err == nil {
		t.Fatal("expected an error")
	}
	lines := strings.Split(err.Error(), "\n")
	wanted := []string{"did you mean node.id?", "shards.per.broker", "log.retention.ms", "--max.connections", "message.max.bytes is 1000000000:", "no etcd", "store.url: write", "log.level is"}
	for _, want := range wanted {
		if n := strings.Count(err.Error(), want); n != 1 {
			t.Errorf("expected %q once, found it %d times", want, n)
		}
	}
	if len(lines) != len(wanted) {
		t.Errorf("expected %d problems, found %d:\n%v", len(wanted), len(lines), err)
	}
}
