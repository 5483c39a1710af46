package metadata

import (
	"fmt"
	"strconv"
	"strings"
)

// Keys and prefixes; doc.go lists them.
const (
	keyCluster      = "cluster"
	keyController   = "controller"
	keyCoordinators = "coordinators"
	keyStore        = "store"
	prefixBrokers   = "brokers/"
	prefixLive      = "live/"
	prefixTopics    = "topics/"
	prefixDeleted   = "deleted/"
	prefixShards    = "shards/"
	prefixHints     = "hints/"
	prefixSnapshots = "snapshots/"
	prefixConfigs   = "configs/"
)

func brokerKey(b BrokerID) string     { return fmt.Sprintf("%s%010d", prefixBrokers, b) }
func liveKey(b BrokerID) string       { return fmt.Sprintf("%s%010d", prefixLive, b) }
func shardKey(s ShardID) string       { return fmt.Sprintf("%s%010d", prefixShards, s) }
func hintKey(s ShardID) string        { return fmt.Sprintf("%s%010d", prefixHints, s) }
func snapshotKey(s ShardID) string    { return fmt.Sprintf("%s%010d", prefixSnapshots, s) }
func deletedKey(id TopicID) string    { return prefixDeleted + id.String() }
func topicKey(name string) string     { return prefixTopics + topicKeyName(name) }
func topicKeyName(name string) string { return strings.ReplaceAll(name, ".", "_") }

// keyNumber parses the number of a key below prefix.
func keyNumber(key, prefix string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(key, prefix), 10, bits)
	if err != nil {
		return 0, fmt.Errorf("key %q: expected %s and ten digits: %w", key, prefix, ErrCorrupt)
	}
	return n, nil
}
