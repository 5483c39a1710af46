// Package broker composes one broker from its parts: the log, the shards, the
// transport, tiering, the cold reader, metadata and the Kafka server. Nothing
// here decides anything that a part could decide; it starts them in order,
// connects them, and stops them in the reverse order.
package broker
