package tiering

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"thermocline/tiering/format"
	"thermocline/tiering/object"
)

// Orphan is an object that nothing refers to and nothing ever will.
type Orphan struct {
	Name  format.Name
	Key   string // in the store
	Bytes int64
	Age   time.Duration
}

// OrphanOptions say what is referred to.
type OrphanOptions struct {
	Cluster string
	// Manifests holds every shard's current one, as of when the listing begins
	// or later; objects of other shards are left alone.
	Manifests []*format.Manifest
	// Terms holds each shard's highest term of which an entry has applied.
	Terms map[uint32]uint64
	// GivenUp holds names that their uploader has given up.
	GivenUp []format.Name
	// Grace spares objects younger than this at Now by the store's clock; 0
	// spares none.
	Grace time.Duration
	Now   time.Time
}

// ListOrphans lists the segments, runs and fence objects of a cluster that are
// orphans: not referred to, and either given up by their uploader or of a term
// lower than one whose entry has applied, so that no commit of them can still
// be under way. It only compares; deleting is another matter. Names that are
// not ours are ignored; junk counts them.
func ListOrphans(ctx context.Context, store object.Store, o OrphanOptions, fn func(Orphan) bool) (junk int, err error) {
	refs, err := references(ctx, store, &o)
	if err != nil {
		return 0, err
	}
	gone := map[format.Name]bool{}
	for _, n := range o.GivenUp {
		gone[n] = true
	}
	for _, kind := range []format.Kind{format.KindSegment, format.KindRun, format.KindFence} {
		more := true
		err := store.List(ctx, format.Prefix(o.Cluster, kind), "", func(i object.Info) bool {
			name, perr := format.ParseName(strings.TrimPrefix(i.Key, o.Cluster+"/"))
			if perr != nil {
				junk++
				return true
			}
			age := o.Now.Sub(time.UnixMilli(i.ModifiedUnixMilli))
			if refs[name] || o.Grace > 0 && age < o.Grace || !gone[name] && name.Term >= o.Terms[name.Shard] {
				return true
			}
			more = fn(Orphan{Name: name, Key: i.Key, Bytes: i.Size, Age: age})
			return more
		})
		if err != nil {
			return junk, fmt.Errorf("tiering: list %s: %w", kind, err)
		}
		if !more {
			break
		}
	}
	return junk, nil
}

// references collects every name that a manifest, or a run that it names,
// refers to: 32 bytes each.
func references(ctx context.Context, store object.Store, o *OrphanOptions) (map[format.Name]bool, error) {
	refs := map[format.Name]bool{}
	var bad error
	add := func(key string) {
		n, err := format.ParseName(key)
		if err != nil && key != "" {
			bad = errors.Join(bad, err)
		}
		refs[n] = true
	}
	for _, m := range o.Manifests {
		for i := range m.Segments {
			add(m.Segments[i].Key)
		}
		add(m.Fence.Key)
		for i := range m.Runs {
			add(m.Runs[i].Key)
			err := EachSegment(ctx, store, o.Cluster, &m.Runs[i], func(r *format.SegmentRow) error { add(r.Key); return nil })
			if err != nil {
				return nil, fmt.Errorf("tiering: references of shard %d: %w", m.Shard, err)
			}
		}
	}
	return refs, bad
}
