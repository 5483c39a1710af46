package metadata

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// rewrite writes golden files that are absent. It never replaces one: a format
// that changes gets a new version.
var rewrite = flag.Bool("rewrite", false, "write missing golden files")

func sampleTopic() *Topic {
	return &Topic{
		Name: "orders.eu", ID: TopicID{0xde, 0xad, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		Shards: []ShardID{1, 1, 1, 300, 2}, Created: time.UnixMilli(1_700_000_000_123), ReplicationFactor: 3,
		Config: map[string]string{"retention.ms": "1000", "cleanup.policy": "delete"},
	}
}

// samples are one row of each kind, with what it decodes to.
func samples() map[string]struct {
	row    Row
	decode func(Row) (any, error)
	want   any
} {
	type sample = struct {
		row    Row
		decode func(Row) (any, error)
		want   any
	}
	topic := sampleTopic()
	cluster := ClusterInfo{ID: "AbCdEfGhIjKlMnOpQrStUw", Created: time.UnixMilli(1_700_000_000_123)}
	broker := &Broker{ID: 3, Replica: 0xfedcba9876543210, Rack: "r1", KafkaHost: "h", KafkaPort: 9092, PeerAddr: "h:9095", Epoch: 4, Version: "v1"}
	shard := &Shard{ID: 7, Replicas: []Replica{{ID: 0xfedcba9876543210, Broker: 3}, {ID: 2, Broker: 1}}, Home: 3, Incarnation: 2}
	planned := &Shard{ID: 7, Replicas: shard.Replicas, Home: 3, Replacing: &Replacement{
		Old: Replica{ID: 2, Broker: 1}, New: Replica{ID: 0xfedcba9876543211, Broker: 1},
	}}
	hint := LeaderHint{Shard: 7, Broker: 3, Term: 1 << 60}
	snapshot := SnapshotPointer{Shard: 7, Object: "snap/7/9", Index: 1 << 60, Term: 5}
	config := &DynamicConfig{Kind: GroupConfig, Name: "a/b", Config: map[string]string{"k": "v", "a": "b"}}
	return map[string]sample{
		"topic":        {Row{Key: topicKey(topic.Name), Value: encodeTopic(topic)}, func(r Row) (any, error) { return decodeTopic(r) }, topic},
		"cluster":      {Row{Key: keyCluster, Value: encodeCluster(cluster)}, func(r Row) (any, error) { return decodeCluster(r) }, cluster},
		"broker":       {Row{Key: brokerKey(3), Value: encodeBroker(broker)}, func(r Row) (any, error) { return decodeBroker(r) }, broker},
		"live":         {Row{Key: liveKey(3), Value: encodeLive(9, 4)}, func(r Row) (any, error) { return decodeLive(r) }, live{broker: 3, replica: 9, epoch: 4}},
		"coordinators": {Row{Key: keyCoordinators, Value: encodeCoordinators([]ShardID{1, 300, 2})}, func(r Row) (any, error) { return decodeCoordinators(r) }, []ShardID{1, 300, 2}},
		"store":        {Row{Key: keyStore, Value: encodeStoreMark("QwErTy")}, func(r Row) (any, error) { return decodeStoreMark(r) }, "QwErTy"},
		"controller":   {Row{Key: keyController, Value: encodeController(3)}, func(r Row) (any, error) { return decodeController(r) }, BrokerID(3)},
		"shard":        {Row{Key: shardKey(7), Value: encodeShard(shard)}, func(r Row) (any, error) { return decodeShard(r) }, shard},
		"shard.v2":     {Row{Key: shardKey(7), Value: encodeShard(planned)}, func(r Row) (any, error) { return decodeShard(r) }, planned},
		"hint":         {Row{Key: hintKey(7), Value: encodeHint(hint)}, func(r Row) (any, error) { return decodeHint(r) }, hint},
		"snapshot":     {Row{Key: snapshotKey(7), Value: encodeSnapshot(snapshot)}, func(r Row) (any, error) { return decodeSnapshot(r) }, snapshot},
		"config":       {Row{Key: configKey(GroupConfig, "a/b"), Value: encodeConfig(config)}, func(r Row) (any, error) { return decodeConfig(r) }, config},
	}
}

// Golden rows of each version decode for ever, and today's encoding is the one
// of the newest golden row.
func TestGoldenRows(t *testing.T) {
	for kind, s := range samples() {
		t.Run(kind, func(t *testing.T) {
			got := fmt.Sprintf("%s\n%s\n", s.row.Key, hex.EncodeToString(s.row.Value))
			file := filepath.Join("testdata", "rows", strings.TrimSuffix(kind, ".v2")+".v1")
			if strings.HasSuffix(kind, ".v2") {
				file = filepath.Join("testdata", "rows", kind)
			}
			golden, err := os.ReadFile(file)
			if errors.Is(err, os.ErrNotExist) && *rewrite {
				golden = []byte(got)
				err = os.WriteFile(file, golden, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got != string(golden) {
				t.Fatalf("encoding: expected\n%sfound\n%s", golden, got)
			}
			key, text, _ := strings.Cut(strings.TrimSpace(string(golden)), "\n")
			value, err := hex.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			if decoded, err := s.decode(Row{Key: key, Value: value}); err != nil || !reflect.DeepEqual(decoded, s.want) {
				t.Fatalf("decoding: expected %+v, found %+v, %v", s.want, decoded, err)
			}
		})
	}
}

// A row of a newer version is refused by name; damage is reported as such.
func TestRowsAreChecked(t *testing.T) {
	for kind, s := range samples() {
		t.Run(kind, func(t *testing.T) {
			newer := bytes.Clone(s.row.Value)
			if newer[0] == topicVersion {
				newer[0]++
			} else {
				newer = bytes.Replace(newer, []byte(`"v":1`), []byte(`"v":9`), 1)
				newer = bytes.Replace(newer, []byte(`"v":2`), []byte(`"v":9`), 1)
			}
			_, err := s.decode(Row{Key: s.row.Key, Value: newer})
			if !errors.Is(err, ErrNewerVersion) || !strings.Contains(err.Error(), s.row.Key) || !strings.Contains(err.Error(), "version ") {
				t.Fatalf("newer version: expected ErrNewerVersion naming the row, found %v", err)
			}
			for n := range s.row.Value {
				if _, err := s.decode(Row{Key: s.row.Key, Value: s.row.Value[:n]}); !errors.Is(err, ErrCorrupt) {
					t.Fatalf("cut to %d of %d bytes: expected ErrCorrupt, found %v", n, len(s.row.Value), err)
				}
			}
			if _, err := s.decode(Row{Key: s.row.Key, Value: append(bytes.Clone(s.row.Value), '1')}); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("a byte too many: expected ErrCorrupt, found %v", err)
			}
		})
	}
	for _, key := range []string{"shards/x", "shards/-1", "shards/99999999999", "shards/0000000000"} {
		if _, err := decodeShard(Row{Key: key, Value: encodeShard(&Shard{Replicas: []Replica{{1, 1}}})}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("key %s: expected ErrCorrupt, found %v", key, err)
		}
	}
	if _, err := decodeHint(Row{Key: "hints/1", Value: []byte(`{"v":0}`)}); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("version 0: expected ErrCorrupt, found %v", err)
	}
	if _, err := decodeCluster(Row{Key: keyCluster, Value: []byte(`{"v":1}`)}); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("cluster without id: expected ErrCorrupt, found %v", err)
	}
}

// The largest topic fits a row, also when no two neighbours share a shard; one
// shard costs next to nothing.
func TestTopicRowSize(t *testing.T) {
	topic := sampleTopic()
	topic.Shards = make([]ShardID, PartitionsMax)
	for i := range topic.Shards {
		topic.Shards[i] = ShardID(1<<32 - 1 - i%2)
	}
	b := encodeTopic(topic)
	if len(b) > RowBytesMax {
		t.Fatalf("worst row: expected at most %d bytes, found %d", RowBytesMax, len(b))
	}
	if got, err := decodeTopic(Row{Value: b}); err != nil || !reflect.DeepEqual(got, topic) {
		t.Fatalf("worst row does not decode to itself: %v", err)
	}
	for i := range topic.Shards {
		topic.Shards[i] = 3
	}
	if n := len(encodeTopic(topic)); n > 200 {
		t.Fatalf("one shard: expected at most 200 bytes, found %d", n)
	}
}

func FuzzDecodeTopic(f *testing.F) {
	f.Add(encodeTopic(sampleTopic()))
	f.Add(encodeTopic(&Topic{Name: "t", Shards: []ShardID{1}}))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		topic, err := decodeTopic(Row{Key: "topics/t", Value: b})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerVersion) {
				t.Fatalf("unexpected kind of error: %v", err)
			}
			return
		}
		// A row has more than one encoding (runs may be split), but decoding
		// what we encode is the identity.
		again, err := decodeTopic(Row{Key: "topics/t", Value: encodeTopic(topic)})
		if err != nil || !reflect.DeepEqual(again, topic) {
			t.Fatalf("expected %+v, found %+v, %v", topic, again, err)
		}
	})
}

func TestIDs(t *testing.T) {
	// The first draw's text form begins with a dash, so the second one counts.
	dash := append([]byte{0xf8}, make([]byte, 15)...)
	plain := bytes.Repeat([]byte{0xff}, 16)
	plain[0] = 1
	id, err := NewTopicID(bytes.NewReader(append(dash, plain...)))
	if want := "01ffffffffff4fffbfffffffffffffff"; err != nil || id.String() != want {
		t.Fatalf("topic id: expected %s, found %s, %v", want, id, err)
	}
	if _, err := NewTopicID(bytes.NewReader(nil)); err == nil {
		t.Fatal("empty source: expected an error")
	}
	if c, err := NewClusterID(bytes.NewReader(plain)); err != nil || len(c) != 22 {
		t.Fatalf("cluster id: expected 22 characters, found %q, %v", c, err)
	}
	if r, err := NewReplicaID(bytes.NewReader(append(make([]byte, 8), 1, 2, 0, 0, 0, 0, 0, 0))); err != nil || r != 0x201 || r.String() != "r201" {
		t.Fatalf("replica id: expected r201, found %s, %v", r, err)
	}
	if _, err := NewReplicaID(bytes.NewReader(make([]byte, 1024))); err == nil {
		t.Fatal("a source of zeros: expected an error")
	}
}
