package format

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind tells what an object holds.
type Kind uint8

// The kinds of objects below a cluster's prefix.
const (
	KindSegment Kind = iota + 1
	KindRun
	KindFence
	KindSnapshot
)

var kindFolders = [...]string{KindSegment: "segments", KindRun: "runs", KindFence: "fences", KindSnapshot: "snapshots"}
var kindSuffixes = [...]string{KindSegment: ".seg", KindRun: ".run", KindFence: ".fen", KindSnapshot: ".snp"}

// String names the kind as its folder is named.
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindFolders) {
		return "kind " + strconv.Itoa(int(k))
	}
	return kindFolders[k]
}

// Name is what an object's key says. Two uploads never share one.
type Name struct {
	Kind  Kind
	Shard uint32
	// Term is the uploader's Raft term.
	Term uint64
	// Number is the first Raft index of a segment, the id of a run (also in
	// the name of the fence object committed with it), a snapshot's index.
	Number uint64
	Random uint64
}

// Key is the object's key below the cluster's prefix, as rows keep it.
func (n Name) Key() string {
	b := make([]byte, 0, 80)
	b = append(b, kindFolders[n.Kind]...)
	b = append(b, '/')
	b = strconv.AppendUint(b, uint64(n.Shard), 10)
	b = append(b, '/')
	b = appendHex16(b, n.Term)
	b = append(b, '-')
	b = appendHex16(b, n.Number)
	b = append(b, '-')
	b = appendHex16(b, n.Random)
	return string(append(b, kindSuffixes[n.Kind]...))
}

func appendHex16(b []byte, v uint64) []byte {
	const digits = "0123456789abcdef"
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, digits[v>>shift&15])
	}
	return b
}

// ObjectKey is the whole key in the store of a row's key.
func ObjectKey(cluster, key string) string { return cluster + "/" + key }

// Prefix is the listing prefix of a cluster's objects of one kind.
func Prefix(cluster string, k Kind) string { return cluster + "/" + kindFolders[k] + "/" }

// ParseName reads a key below the cluster's prefix. It accepts exactly what Key
// writes, so that nothing else in the bucket is ever taken for ours.
func ParseName(key string) (Name, error) {
	parts := strings.Split(key, "/")
	if len(parts) != 3 {
		return Name{}, fmt.Errorf("object name %q: expected 3 parts, found %d: %w", key, len(parts), ErrName)
	}
	var n Name
	for k := KindSegment; int(k) < len(kindFolders); k++ {
		if parts[0] == kindFolders[k] {
			n.Kind = k
		}
	}
	if n.Kind == 0 {
		return Name{}, fmt.Errorf("object name %q: unknown folder: %w", key, ErrName)
	}
	shard, err := strconv.ParseUint(parts[1], 10, 32)
	if err != nil {
		return Name{}, fmt.Errorf("object name %q: shard: %w", key, ErrName)
	}
	n.Shard = uint32(shard)
	rest, ok := strings.CutSuffix(parts[2], kindSuffixes[n.Kind])
	if !ok || len(rest) != 3*16+2 {
		return Name{}, fmt.Errorf("object name %q: expected <term>-<number>-<random>%s: %w", key, kindSuffixes[n.Kind], ErrName)
	}
	for i, field := range []*uint64{&n.Term, &n.Number, &n.Random} {
		if *field, err = strconv.ParseUint(rest[17*i:17*i+16], 16, 64); err != nil {
			return Name{}, fmt.Errorf("object name %q: %w", key, ErrName)
		}
	}
	if n.Key() != key {
		return Name{}, fmt.Errorf("object name %q: expected %q: %w", key, n.Key(), ErrName)
	}
	return n, nil
}
