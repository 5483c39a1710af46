// Package metadata is what the brokers of a cluster agree on outside of their
// shards: who is there, which topics exist, which shard owns which partition,
// and who should lead it. It holds the types, a small guarded key-value store
// interface (Store) and, on top of it, the typed rows, the registration of
// brokers and a watched, cached view (View).
//
// Nothing on the path of a produce or a fetch waits for a Store: readers use a
// View, which keeps answering from its last content while the store is away.
//
// # Keys
//
// Keys are relative; the etcd store puts them below a prefix of its own
// (/thermocline/ by default). Numbers are ten decimal digits, so that key
// order is number order.
//
//	cluster              the cluster's id and fixed facts   JSON, never rewritten
//	brokers/NNNNNNNNNN   a broker's registration            JSON, outlives the broker's lease
//	live/NNNNNNNNNN      "that registration is alive"       JSON, bound to the broker's lease
//	coordinators         the shard of each coordinator slot JSON, never rewritten
//	store                the id in the marker (cluster.json) JSON, never rewritten: written once
//	                     of the cluster's object store      the marker is in the store
//	controller           who is controller                  JSON, bound to that broker's lease
//	topics/KEY           one topic                          binary, see below
//	deleted/HEX          a deleted topic (by id) whose      binary, the topic row's format
//	                     shards have not all let go of it
//	shards/NNNNNNNNNN    one shard's replicas and home      JSON
//	hints/NNNNNNNNNN     who leads the shard, by its word   JSON
//	snapshots/NNNNNNNNNN the shard's newest snapshot        JSON
//	configs/KIND/NAME    what was set at run time on a      JSON: kind, name, config (an
//	                     broker (NAME: its id, or default), object of strings)
//	                     or on a group (its id, URL-escaped)
//
// KEY is the topic's name with every '.' replaced by '_'. Two names that
// differ only in that collide in Kafka's metric names and are refused there
// too; here the one key makes it one guard. The row holds the real name.
//
// A registration is two rows, because the address of a broker is still needed
// while its lease has lapsed: replicas go on talking to each other while etcd
// is away, and after it came back.
//
// A topic's absence is never taken as its deletion: a shard drops partitions
// only when a row below deleted/ names it. So an empty or rolled back etcd
// deletes nothing.
//
// # JSON rows
//
// An object whose member "v" is the version of that kind of row: 1, and 2 for
// a shard's row while a change of replicas is planned (member "replacing").
//
// # The topic row
//
//	offset size
//	0      1     version, 1
//	1      16    topic id
//	17     8     created, Unix milliseconds, big endian
//	25     2     replication factor as asked, big endian
//	27     ...   name: uvarint length, bytes
//	       ...   uvarint number of partitions, then for each run of partitions
//	             with one shard: uvarint shard id, uvarint run length
//	       ...   uvarint number of config entries, then for each, in key order:
//	             uvarint length, key, uvarint length, value
//
// Nothing may follow. There is no checksum: etcd has its own.
//
// # Changing a format
//
// Add a version, keep decoding the old ones, and write the new one only once
// every broker of the cluster can read it. A binary refuses a row of a newer
// version with ErrNewerVersion and the row's key; a running View keeps the
// last content of that row that it understood, and says so in its Health.
package metadata
