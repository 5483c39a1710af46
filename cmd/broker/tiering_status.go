package broker

import (
	"encoding/json"
	"net/http"

	"thermocline/metadata"
	"thermocline/tiering"
	"thermocline/tiering/format"
)

// TieringStatus is what /tiering shows: of each shard that this broker leads,
// all that a listing of orphans needs (tiering.OrphanOptions).
type TieringStatus struct {
	Cluster string          `json:"cluster"`
	Shards  []ShardManifest `json:"shards"`
}

// ShardManifest is one led shard's view of the store.
type ShardManifest struct {
	Shard uint32 `json:"shard"`
	// Term is the highest of which an entry has applied.
	Term     uint64           `json:"term"`
	Manifest *format.Manifest `json:"manifest"`
	// GivenUp are names that this broker has given up in this term.
	GivenUp []format.Name `json:"given_up,omitempty"`
	Stats   tiering.Stats `json:"stats"`
	// Snapshot is the shard's newest snapshot in the bucket.
	Snapshot *metadata.SnapshotPointer `json:"snapshot,omitempty"`
}

// Tiering describes the store as the shards led here see it.
func (b *Broker) Tiering() TieringStatus {
	s := TieringStatus{Cluster: b.view.Cluster().Info.ID}
	for _, o := range b.shards.all() {
		if !o.runner.Leadership().Ready {
			continue
		}
		m := ShardManifest{Shard: uint32(o.id), Term: o.set.Status().Term}
		// The names before the manifest: what is committed in between counts as
		// referred to.
		if sealer, ok := b.tier.sealer(o.id); ok {
			m.GivenUp, m.Stats = sealer.GivenUp(), sealer.Stats()
		}
		m.Manifest = o.set.Manifest()
		if p, ok := b.view.SnapshotPointer(o.id); ok {
			m.Snapshot = &p
		}
		s.Shards = append(s.Shards, m)
	}
	return s
}

// Options are those of a listing of orphans among the shards led here.
func (s *TieringStatus) Options() tiering.OrphanOptions {
	o := tiering.OrphanOptions{Cluster: s.Cluster, Terms: map[uint32]uint64{}}
	for _, m := range s.Shards {
		o.Manifests = append(o.Manifests, m.Manifest)
		o.Terms[m.Shard] = m.Term
		o.GivenUp = append(o.GivenUp, m.GivenUp...)
	}
	return o
}

// Page serves what value returns, as JSON.
func (a *Admin) Page(path string, value func() any) {
	a.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(value()) // the client went away
	})
}
