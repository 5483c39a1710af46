package metadata

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// jsonVersion is the version of every kind of JSON row that this binary writes,
// but for a shard's row with a planned change, which is of shardVersion.
const (
	jsonVersion  = 1
	shardVersion = 2
)

// The JSON rows, as doc.go lists them. Their numbers are in the key.
type (
	clusterRow struct {
		V       int    `json:"v"`
		ID      string `json:"id"`
		Created int64  `json:"created_unix_milli"`
	}
	brokerRow struct {
		V         int    `json:"v"`
		Replica   uint64 `json:"replica,string"`
		Rack      string `json:"rack,omitempty"`
		KafkaHost string `json:"kafka_host"`
		KafkaPort int32  `json:"kafka_port"`
		PeerAddr  string `json:"peer_addr"`
		Epoch     int64  `json:"epoch"`
		Version   string `json:"version,omitempty"`
	}
	liveRow struct {
		V       int    `json:"v"`
		Replica uint64 `json:"replica,string"`
		Epoch   int64  `json:"epoch"`
	}
	controllerRow struct {
		V      int   `json:"v"`
		Broker int32 `json:"broker"`
	}
	replicaRow struct {
		ID     uint64 `json:"id,string"`
		Broker int32  `json:"broker"`
	}
	shardRow struct {
		V           int          `json:"v"`
		Replicas    []replicaRow `json:"replicas"`
		Home        int32        `json:"home"`
		Incarnation uint32       `json:"incarnation"`
		// Since version 2.
		Replacing *replacingRow `json:"replacing,omitempty"`
	}
	replacingRow struct {
		Old replicaRow `json:"old"`
		New replicaRow `json:"new"`
	}
	hintRow struct {
		V      int    `json:"v"`
		Broker int32  `json:"broker"`
		Term   uint64 `json:"term"`
	}
	snapshotRow struct {
		V      int    `json:"v"`
		Object string `json:"object"`
		Index  uint64 `json:"index"`
		Term   uint64 `json:"term"`
	}
)

// encodeJSON encodes a row; none of the row types can fail to marshal, but a
// string that is not UTF-8 would be changed, which callers exclude.
func encodeJSON(row any) []byte {
	b, err := json.Marshal(row)
	if err != nil {
		panic(fmt.Sprintf("metadata: encoding %T: %v", row, err)) // programmer error: a row type that JSON cannot hold
	}
	return b
}

// decodeJSON decodes a row into dst after looking at its version alone: what a
// newer version means is not for this binary to guess.
func decodeJSON(r Row, dst any) error { return decodeJSONTo(r, jsonVersion, dst) }

// decodeJSONTo is decodeJSON for a kind of row whose newest version is known.
func decodeJSONTo(r Row, known int, dst any) error {
	var v struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(r.Value, &v); err != nil {
		return fmt.Errorf("row %s: %v: %w", r.Key, err, ErrCorrupt)
	}
	if v.V > known {
		return newerVersion(r.Key, v.V, known)
	}
	if v.V < 1 {
		return fmt.Errorf("row %s: expected a version from 1 to %d, found %d: %w", r.Key, known, v.V, ErrCorrupt)
	}
	if err := json.Unmarshal(r.Value, dst); err != nil {
		return fmt.Errorf("row %s: %v: %w", r.Key, err, ErrCorrupt)
	}
	return nil
}

func newerVersion(key string, found, known int) error {
	return fmt.Errorf("row %s: version %d, this binary knows versions up to %d; upgrade it: %w", key, found, known, ErrNewerVersion)
}

func encodeCluster(c ClusterInfo) []byte {
	return encodeJSON(clusterRow{V: jsonVersion, ID: c.ID, Created: c.Created.UnixMilli()})
}

func decodeCluster(r Row) (ClusterInfo, error) {
	var row clusterRow
	if err := decodeJSON(r, &row); err != nil {
		return ClusterInfo{}, err
	}
	if row.ID == "" {
		return ClusterInfo{}, fmt.Errorf("row %s: cluster id is empty: %w", r.Key, ErrCorrupt)
	}
	return ClusterInfo{ID: row.ID, Created: time.UnixMilli(row.Created)}, nil
}

func encodeBroker(b *Broker) []byte {
	return encodeJSON(brokerRow{
		V: jsonVersion, Replica: uint64(b.Replica), Rack: b.Rack, KafkaHost: b.KafkaHost, KafkaPort: b.KafkaPort,
		PeerAddr: b.PeerAddr, Epoch: b.Epoch, Version: b.Version,
	})
}

func decodeBroker(r Row) (*Broker, error) {
	id, err := keyNumber(r.Key, prefixBrokers, 31)
	if err != nil {
		return nil, err
	}
	var row brokerRow
	if err := decodeJSON(r, &row); err != nil {
		return nil, err
	}
	return &Broker{
		ID: BrokerID(id), Replica: ReplicaID(row.Replica), Rack: row.Rack, KafkaHost: row.KafkaHost,
		KafkaPort: row.KafkaPort, PeerAddr: row.PeerAddr, Epoch: row.Epoch, Version: row.Version,
	}, nil
}

// live is a decoded live row.
type live struct {
	broker  BrokerID
	replica ReplicaID
	epoch   int64
}

func encodeLive(replica ReplicaID, epoch int64) []byte {
	return encodeJSON(liveRow{V: jsonVersion, Replica: uint64(replica), Epoch: epoch})
}

func decodeLive(r Row) (live, error) {
	id, err := keyNumber(r.Key, prefixLive, 31)
	if err != nil {
		return live{}, err
	}
	var row liveRow
	if err := decodeJSON(r, &row); err != nil {
		return live{}, err
	}
	return live{broker: BrokerID(id), replica: ReplicaID(row.Replica), epoch: row.Epoch}, nil
}

func encodeController(b BrokerID) []byte {
	return encodeJSON(controllerRow{V: jsonVersion, Broker: int32(b)})
}

func decodeController(r Row) (BrokerID, error) {
	var row controllerRow
	if err := decodeJSON(r, &row); err != nil {
		return NoBroker, err
	}
	return BrokerID(row.Broker), nil
}

func encodeShard(s *Shard) []byte {
	row := shardRow{V: jsonVersion, Home: int32(s.Home), Incarnation: s.Incarnation}
	for _, r := range s.Replicas {
		row.Replicas = append(row.Replicas, replicaRow{ID: uint64(r.ID), Broker: int32(r.Broker)})
	}
	if p := s.Replacing; p != nil {
		row.V = shardVersion
		row.Replacing = &replacingRow{
			Old: replicaRow{ID: uint64(p.Old.ID), Broker: int32(p.Old.Broker)},
			New: replicaRow{ID: uint64(p.New.ID), Broker: int32(p.New.Broker)},
		}
	}
	return encodeJSON(row)
}

func decodeShard(r Row) (*Shard, error) {
	id, err := keyNumber(r.Key, prefixShards, 32)
	if err != nil {
		return nil, err
	}
	var row shardRow
	if err := decodeJSONTo(r, shardVersion, &row); err != nil {
		return nil, err
	}
	if id == 0 || len(row.Replicas) == 0 {
		return nil, fmt.Errorf("row %s: expected a shard from 1 with replicas, found %d with %d: %w", r.Key, id, len(row.Replicas), ErrCorrupt)
	}
	s := &Shard{ID: ShardID(id), Home: BrokerID(row.Home), Incarnation: row.Incarnation, Revision: r.Modified}
	for _, m := range row.Replicas {
		s.Replicas = append(s.Replicas, m.replica())
	}
	if p := row.Replacing; p != nil {
		s.Replacing = &Replacement{Old: p.Old.replica(), New: p.New.replica()}
		if s.Replacing.New.ID == 0 || !slices.Contains(s.Replicas, s.Replacing.Old) {
			return nil, fmt.Errorf("row %s: expected a planned change of one of %v, found %v: %w", r.Key, s.Replicas, *s.Replacing, ErrCorrupt)
		}
	}
	return s, nil
}

func (m replicaRow) replica() Replica {
	return Replica{ID: ReplicaID(m.ID), Broker: BrokerID(m.Broker)}
}

func encodeHint(h LeaderHint) []byte {
	return encodeJSON(hintRow{V: jsonVersion, Broker: int32(h.Broker), Term: h.Term})
}

func decodeHint(r Row) (LeaderHint, error) {
	id, err := keyNumber(r.Key, prefixHints, 32)
	if err != nil {
		return LeaderHint{}, err
	}
	var row hintRow
	if err := decodeJSON(r, &row); err != nil {
		return LeaderHint{}, err
	}
	return LeaderHint{Shard: ShardID(id), Broker: BrokerID(row.Broker), Term: row.Term}, nil
}

func encodeSnapshot(p SnapshotPointer) []byte {
	return encodeJSON(snapshotRow{V: jsonVersion, Object: p.Object, Index: p.Index, Term: p.Term})
}

func decodeSnapshot(r Row) (SnapshotPointer, error) {
	id, err := keyNumber(r.Key, prefixSnapshots, 32)
	if err != nil {
		return SnapshotPointer{}, err
	}
	var row snapshotRow
	if err := decodeJSON(r, &row); err != nil {
		return SnapshotPointer{}, err
	}
	return SnapshotPointer{Shard: ShardID(id), Object: row.Object, Index: row.Index, Term: row.Term}, nil
}

// kindOf returns the prefix, or the whole key, that tells what a row holds.
func kindOf(key string) string {
	if i := strings.IndexByte(key, '/'); i >= 0 {
		return key[:i+1]
	}
	return key
}
