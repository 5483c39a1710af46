package metadata

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
)

// idAttempts bounds how often a reserved id is drawn again; a source that
// yields nothing else is broken.
const idAttempts = 64

// NewTopicID draws a version 4 UUID. Kafka keeps the first two values for
// itself, and avoids ids whose text form begins with a dash, since command
// lines take it for an option.
func NewTopicID(random io.Reader) (TopicID, error) {
	for range idAttempts {
		var id TopicID
		if _, err := io.ReadFull(random, id[:]); err != nil {
			return TopicID{}, fmt.Errorf("metadata: draw a topic id: %w", err)
		}
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
		if base64.RawURLEncoding.EncodeToString(id[:])[0] != '-' {
			return id, nil
		}
	}
	return TopicID{}, fmt.Errorf("metadata: draw a topic id: %d reserved ones in a row", idAttempts)
}

// NewClusterID draws a cluster id in Kafka's form: a UUID in base64.
func NewClusterID(random io.Reader) (string, error) {
	id, err := NewTopicID(random)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(id[:]), nil
}

// NewReplicaID draws the id of a new data directory. It is never 0, which
// Raft and transport take for "nobody".
func NewReplicaID(random io.Reader) (ReplicaID, error) {
	for range idAttempts {
		var b [8]byte
		if _, err := io.ReadFull(random, b[:]); err != nil {
			return 0, fmt.Errorf("metadata: draw a replica id: %w", err)
		}
		if id := binary.LittleEndian.Uint64(b[:]); id != 0 {
			return ReplicaID(id), nil
		}
	}
	return 0, fmt.Errorf("metadata: draw a replica id: %d times 0", idAttempts)
}
