package metadata

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	topicVersion   = 1
	topicFixedSize = 27

	// PartitionsMax bounds one topic: its row must stay below RowBytesMax also
	// when every partition starts a new run (at most 6 bytes each).
	PartitionsMax = 100_000
	// topicConfigMax bounds the entries of a row's config.
	topicConfigMax = 1 << 10
)

// encodeTopic encodes a topic row or a deleted row; doc.go draws it.
func encodeTopic(t *Topic) []byte {
	b := make([]byte, topicFixedSize, topicFixedSize+len(t.Name)+2*len(t.Shards)+64)
	b[0] = topicVersion
	copy(b[1:17], t.ID[:])
	binary.BigEndian.PutUint64(b[17:25], uint64(t.Created.UnixMilli()))
	binary.BigEndian.PutUint16(b[25:27], uint16(t.ReplicationFactor))
	b = appendString(b, t.Name)
	b = binary.AppendUvarint(b, uint64(len(t.Shards)))
	for i := 0; i < len(t.Shards); {
		run := i + 1
		for run < len(t.Shards) && t.Shards[run] == t.Shards[i] {
			run++
		}
		b = binary.AppendUvarint(b, uint64(t.Shards[i]))
		b = binary.AppendUvarint(b, uint64(run-i))
		i = run
	}
	keys := make([]string, 0, len(t.Config))
	for k := range t.Config {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, k := range keys {
		b = appendString(b, k)
		b = appendString(b, t.Config[k])
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeTopic decodes a topic row or a deleted row.
func decodeTopic(r Row) (*Topic, error) {
	b := r.Value
	if len(b) > 0 && b[0] > topicVersion {
		return nil, newerVersion(r.Key, int(b[0]), topicVersion)
	}
	if len(b) < topicFixedSize || b[0] == 0 {
		return nil, fmt.Errorf("row %s: expected version %d and at least %d bytes, found %d bytes: %w",
			r.Key, topicVersion, topicFixedSize, len(b), ErrCorrupt)
	}
	t := &Topic{Revision: r.Modified}
	copy(t.ID[:], b[1:17])
	t.Created = time.UnixMilli(int64(binary.BigEndian.Uint64(b[17:25])))
	t.ReplicationFactor = int16(binary.BigEndian.Uint16(b[25:27]))
	d := rowDecoder{key: r.Key, b: b[topicFixedSize:]}
	t.Name = d.string("name")
	t.Shards = d.shards()
	t.Config = d.config()
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes follow the config", len(d.b))
	}
	if d.err != nil {
		return nil, d.err
	}
	return t, nil
}

// rowDecoder keeps the first error; after it every method returns zero values.
type rowDecoder struct {
	key string
	b   []byte
	err error
}

func (d *rowDecoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("row %s: %s: %w", d.key, fmt.Sprintf(format, args...), ErrCorrupt)
	}
	d.b = nil
}

// uvarint reads a number of at most limit.
func (d *rowDecoder) uvarint(what string, limit uint64) uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > limit {
		d.fail("%s: expected a number up to %d", what, limit)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *rowDecoder) string(what string) string {
	n := d.uvarint(what, RowBytesMax)
	if d.err == nil && n > uint64(len(d.b)) {
		d.fail("%s: expected %d bytes, found %d", what, n, len(d.b))
	}
	if d.err != nil {
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

func (d *rowDecoder) shards() []ShardID {
	n := d.uvarint("partitions", PartitionsMax)
	shards := make([]ShardID, 0, n)
	for uint64(len(shards)) < n && d.err == nil {
		id := d.uvarint("shard", math.MaxUint32)
		run := d.uvarint("run", n-uint64(len(shards)))
		if d.err == nil && (id == 0 || run == 0) {
			d.fail("expected a shard from 1 and a run from 1, found shard %d, run %d", id, run)
		}
		for range run {
			shards = append(shards, ShardID(id))
		}
	}
	return shards
}

func (d *rowDecoder) config() map[string]string {
	n := d.uvarint("config", topicConfigMax)
	if n == 0 {
		return nil
	}
	config := make(map[string]string, n)
	for range n {
		k := d.string("config key")
		v := d.string("config value")
		if d.err != nil {
			return nil
		}
		config[k] = v
	}
	return config
}
