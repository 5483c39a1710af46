package format

import (
	"encoding/json"
	"fmt"
)

// MarkerKey is the whole key of the object that says whose a store is: it lies
// beside the clusters' own folders, so that no listing of one of them shows it.
const MarkerKey = "cluster.json"

// MarkerBytesMax bounds a marker.
const MarkerBytesMax = 1024

const markerVersion = 1

// Marker is what the marker object says.
type Marker struct {
	// Cluster is the id of the cluster that uses the store.
	Cluster string
	// ID is the store's own, drawn when the marker was made. The cluster's
	// metadata names it too, so that of two stores with a marker of one cluster
	// it is known which is the one.
	ID string
}

type markerJSON struct {
	V       int    `json:"v"`
	Cluster string `json:"cluster"`
	ID      string `json:"id"`
}

// Encode returns the object's bytes.
func (m Marker) Encode() []byte {
	b, err := json.Marshal(markerJSON{V: markerVersion, Cluster: m.Cluster, ID: m.ID})
	if err != nil {
		panic(fmt.Sprintf("format: encoding a marker: %v", err)) // programmer error: strings and a number encode
	}
	return append(b, '\n')
}

// DecodeMarker reads a marker object's bytes.
func DecodeMarker(b []byte) (Marker, error) {
	var v struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return Marker{}, fmt.Errorf("%s: %v: %w", MarkerKey, err, ErrCorrupt)
	}
	if v.V > markerVersion {
		return Marker{}, fmt.Errorf("%s: version %d, this binary knows versions up to %d; upgrade it: %w", MarkerKey, v.V, markerVersion, ErrVersion)
	}
	var m markerJSON
	if err := json.Unmarshal(b, &m); err != nil {
		return Marker{}, fmt.Errorf("%s: %v: %w", MarkerKey, err, ErrCorrupt)
	}
	if m.V < 1 || m.Cluster == "" || m.ID == "" {
		return Marker{}, fmt.Errorf("%s: expected a version, a cluster and an id, found %q: %w", MarkerKey, b, ErrCorrupt)
	}
	return Marker{Cluster: m.Cluster, ID: m.ID}, nil
}
