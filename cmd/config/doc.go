// Package config holds every setting of a broker: one struct, one line of
// documentation, one default and one unit each, rules across settings, and
// errors that say what to write instead.
//
// Settings are written in YAML with the names that Kafka gives them where
// Kafka has them, flat and dotted:
//
//	node.id: 1
//	listeners: PLAINTEXT://0.0.0.0:9092
//	store.url: minio://minio.local:9000/thermocline
//
// The environment overrides the file (THERMOCLINE_NODE_ID for node.id) and
// flags override both (--node.id).
package config
