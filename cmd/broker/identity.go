package broker

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"thermocline/metadata"
)

// identityVersion is the version of the identity file's format; a newer one is refused.
const identityVersion = 1

// identity is what makes a data directory one particular replica's: a file
// written when the directory is made and never changed.
type identity struct {
	Version int `json:"version"`
	// Replica is the replica id in hexadecimal.
	Replica   string `json:"replica"`
	NodeID    int32  `json:"node_id"`
	ClusterID string `json:"cluster_id,omitempty"`
}

const identityFile = "identity.json"

// loadIdentity reads the directory's identity, or draws a new one for an empty
// directory. A directory of another broker is refused: two brokers must not
// take turns at being one replica.
func loadIdentity(dir string, node metadata.BrokerID) (metadata.ReplicaID, *identity, error) {
	path := filepath.Join(dir, identityFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newIdentity(path, node)
	}
	if err != nil {
		return 0, nil, err
	}
	var id identity
	if err := json.Unmarshal(raw, &id); err != nil {
		return 0, nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	if id.Version != identityVersion {
		return 0, nil, fmt.Errorf("%s has version %d, this binary knows %d", path, id.Version, identityVersion)
	}
	if id.NodeID != int32(node) {
		return 0, nil, fmt.Errorf("%s belongs to node.id %d, not %d: use that number, or another data.dir", dir, id.NodeID, node)
	}
	var replica uint64
	if _, err := fmt.Sscanf(id.Replica, "%x", &replica); err != nil || replica == 0 {
		return 0, nil, fmt.Errorf("%s is damaged: replica id %q", path, id.Replica)
	}
	return metadata.ReplicaID(replica), &id, nil
}

func newIdentity(path string, node metadata.BrokerID) (metadata.ReplicaID, *identity, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, nil, err
	}
	// Raft reserves the largest ids for its own threads, and 0 for nobody.
	replica := binary.LittleEndian.Uint64(b[:])>>1 | 1
	id := &identity{Version: identityVersion, Replica: fmt.Sprintf("%016x", replica), NodeID: int32(node)}
	return metadata.ReplicaID(replica), id, id.write(path)
}

// join binds the directory to a cluster, or refuses to serve another one.
func (id *identity) join(dir, clusterID string) error {
	if id.ClusterID == clusterID {
		return nil
	}
	if id.ClusterID != "" {
		return fmt.Errorf("%s belongs to cluster %s, the metadata store is of cluster %s: point the broker at its own cluster, or give it an empty data.dir", dir, id.ClusterID, clusterID)
	}
	id.ClusterID = clusterID
	return id.write(filepath.Join(dir, identityFile))
}

// write replaces the file durably.
func (id *identity) write(path string) error {
	raw, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	_, err = tmp.Write(append(raw, '\n'))
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
