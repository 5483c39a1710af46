// Package wal is a broker's write-ahead log: one sequential, fsynced log that
// all its shard replicas share.
package wal
