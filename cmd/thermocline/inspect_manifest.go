package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"thermocline/tiering/format"
	"thermocline/tiering/object"
	"thermocline/wal"
)

func inspectManifest() *cobra.Command {
	var b bucket
	var verify bool
	cmd := &cobra.Command{
		Use:   "manifest [DIR]",
		Short: "Show what is in the store: by a broker's newest snapshots, by the bucket itself, or both",
		Long: `Show each shard's segments, directory runs and fence object.

With DIR (a broker's data directory) the rows come from the newest snapshot of
each of its shards, as of that snapshot's index. With --store they come from the
bucket: every object of ours is listed and every segment's footer is read, since
objects describe themselves. With both, each row of the snapshots is looked up
in the bucket: an object that is missing or differs is damage.`,
		Example: `  thermocline inspect manifest ./data/broker1
  thermocline inspect manifest --store 's3://events/prod?region=eu-west-1' --verify`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m := &manifestReport{Damage: findings{}, verify: verify}
			if verify {
				m.Verified = &verifiedObjects{}
			}
			var err error
			switch {
			case verify && b.url == "":
				err = errors.New("--verify reads the objects: name their bucket with --store")
			case len(args) == 1:
				err = m.fromDisk(cmd.Context(), args[0], &b)
			case b.url != "":
				err = m.fromBucket(cmd.Context(), &b)
			default:
				err = errors.New("name a broker's data directory, or a bucket with --store, or both")
			}
			if err != nil {
				return err
			}
			return report(cmd, m, m.Damage, m.table)
		},
	}
	b.addFlags(cmd)
	cmd.Flags().BoolVar(&verify, "verify", false, "read every object whole and verify all of its checksums (with --store)")
	return cmd
}

// manifestReport is what is in the store.
type manifestReport struct {
	Source string          `json:"source"`
	Shards []shardManifest `json:"shards"`
	Damage findings        `json:"damage"`

	// Verified is what --verify has read whole and found intact.
	Verified *verifiedObjects `json:"verified,omitempty"`

	verify bool
	// selfTold: the rows are what the objects say about themselves, which is
	// not all that a shard's manifest knows of them.
	selfTold bool
	mu       sync.Mutex // guards Damage and Verified while objects are read
}

// verifiedObjects counts objects of which every checksum held.
type verifiedObjects struct {
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
}

// shardManifest is one shard's part.
type shardManifest struct {
	Shard       uint32              `json:"shard"`
	AsOf        uint64              `json:"as_of_index,omitempty"`
	TieredIndex uint64              `json:"tiered_index"`
	Segments    []format.SegmentRow `json:"segments"`
	Runs        []format.RunRow     `json:"runs"`
	Fences      []format.FenceRow   `json:"fences"`
	Bytes       int64               `json:"segment_bytes"`
	Records     uint64              `json:"records"`
}

func (m *manifestReport) damage(file string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.Damage.addError(file, err)
}

// fromDisk reads the newest snapshot of each shard, and compares its rows with
// the bucket if one is named.
func (m *manifestReport) fromDisk(ctx context.Context, arg string, b *bucket) error {
	dir, err := logDirectory(arg)
	if err != nil {
		return err
	}
	m.Source = dir
	names, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	newest := map[wal.ShardID]snapshotReport{}
	for _, e := range names {
		if !strings.HasSuffix(e.Name(), wal.SnapshotSuffix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		s, err := readSnapshot(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a running broker has replaced it since the listing
		}
		if err != nil {
			m.damage(path, err)
			continue
		}
		if old, ok := newest[s.Shard]; !ok || s.Index > old.Index {
			newest[s.Shard] = s
		}
	}
	for _, s := range newest {
		sm := shardManifest{Shard: uint32(s.Shard), AsOf: s.Index, TieredIndex: s.manifest.TieredIndex, Segments: s.manifest.Segments, Runs: s.manifest.Runs}
		if s.manifest.Fence.Key != "" {
			sm.Fences = []format.FenceRow{s.manifest.Fence}
		}
		m.Shards = append(m.Shards, sm)
	}
	m.sum()
	if b.url == "" {
		return nil
	}
	return m.compare(ctx, b)
}

func (m *manifestReport) sum() {
	slices.SortFunc(m.Shards, func(a, b shardManifest) int { return cmp.Compare(a.Shard, b.Shard) })
	for i := range m.Shards {
		for _, r := range m.Shards[i].Segments {
			m.Shards[i].Bytes += r.Size
			m.Shards[i].Records += r.Records
		}
	}
}

// compare looks every row's object up.
func (m *manifestReport) compare(ctx context.Context, b *bucket) error {
	s, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer object.Close(s)
	cluster, err := b.find(ctx, s)
	if err != nil {
		return err
	}
	m.Source += " and " + s.String()
	type row struct {
		key  string
		size int64
		crc  uint32
	}
	var rows []row
	for _, sm := range m.Shards {
		for _, r := range sm.Segments {
			rows = append(rows, row{r.Key, r.Size, r.CRC32C})
		}
		for _, r := range sm.Runs {
			rows = append(rows, row{r.Key, r.Size, r.CRC32C})
		}
		for _, r := range sm.Fences {
			rows = append(rows, row{r.Key, r.Size, r.CRC32C})
		}
	}
	return atOnce(rows, func(r row) error {
		key := format.ObjectKey(cluster, r.key)
		info, err := s.Head(ctx, key)
		switch {
		case errors.Is(err, object.ErrNotFound):
			m.damage(key, fmt.Errorf("the manifest names it, the bucket does not have it: %w", err))
			return nil
		case err != nil:
			return err
		case info.Size != r.size:
			m.damage(key, fmt.Errorf("expected %d bytes, found %d", r.size, info.Size))
		case info.HasCRC && info.CRC32C != r.crc:
			m.damage(key, fmt.Errorf("expected crc %08x, found %08x", r.crc, info.CRC32C))
		}
		if !m.verify {
			return nil
		}
		_, err = m.describe(ctx, s, key)
		return err
	})
}

// atOnce calls do for every element, some at the same time, and returns the
// first error.
func atOnce[T any](list []T, do func(T) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	slots := make(chan struct{}, inspectConns)
	for _, e := range list {
		slots <- struct{}{}
		mu.Lock()
		stop := first != nil
		mu.Unlock()
		if stop {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := do(e); err != nil {
				mu.Lock()
				first = cmp.Or(first, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return first
}

// fromBucket lists every object of the cluster and reads what each says about itself.
func (m *manifestReport) fromBucket(ctx context.Context, b *bucket) error {
	s, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer object.Close(s)
	cluster, err := b.find(ctx, s)
	if err != nil {
		return err
	}
	m.Source, m.selfTold = s.String(), true
	shards := map[uint32]*shardManifest{}
	for _, kind := range []format.Kind{format.KindSegment, format.KindRun, format.KindFence} {
		var infos []object.Info
		if err := s.List(ctx, format.Prefix(cluster, kind), "", func(i object.Info) bool { infos = append(infos, i); return true }); err != nil {
			return err
		}
		err := atOnce(infos, func(i object.Info) error { return m.selfDescribed(ctx, s, cluster, i, shards) })
		if err != nil {
			return err
		}
	}
	for _, sm := range shards {
		slices.SortFunc(sm.Segments, func(a, b format.SegmentRow) int { return cmp.Compare(a.FirstIndex, b.FirstIndex) })
		slices.SortFunc(sm.Runs, func(a, b format.RunRow) int { return cmp.Compare(a.ID, b.ID) })
		for _, r := range sm.Segments {
			sm.TieredIndex = max(sm.TieredIndex, r.LastIndex)
		}
		m.gaps(sm)
		m.Shards = append(m.Shards, *sm)
	}
	m.sum()
	return nil
}

// gaps: a shard's segments follow each other without a gap. They may overlap:
// what an earlier leader uploaded and did not commit is an orphan.
func (m *manifestReport) gaps(sm *shardManifest) {
	for i := 1; i < len(sm.Segments); i++ {
		end := slices.MaxFunc(sm.Segments[:i], func(a, b format.SegmentRow) int { return cmp.Compare(a.LastIndex, b.LastIndex) }).LastIndex
		if next := sm.Segments[i].FirstIndex; next > end+1 {
			m.damage(sm.Segments[i].Key, fmt.Errorf("shard %d: expected a segment from index %d on, found the next one at %d", sm.Shard, end+1, next))
		}
	}
}

// storeReader reads an object at positions, a GET for each read.
type storeReader struct {
	ctx   context.Context
	store object.Store
	key   string
}

// ReadAt implements io.ReaderAt.
func (r storeReader) ReadAt(p []byte, at int64) (int, error) {
	n, err := r.store.GetRange(r.ctx, r.key, at, p)
	if err == nil && n < len(p) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// describe downloads an object and verifies all of it. Damage is noted; an
// error is what kept it from being read.
func (m *manifestReport) describe(ctx context.Context, s object.Store, key string) (*format.Description, error) {
	tmp, err := os.CreateTemp("", "thermocline-inspect-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	info, err := s.Head(ctx, key)
	if err != nil {
		return nil, err
	}
	if err = download(ctx, s, key, info, tmp); err == nil {
		var d *format.Description
		if d, err = format.Describe(tmp, info.Size); err == nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.Verified.Objects++
			m.Verified.Bytes += info.Size
			return d, nil
		}
	}
	if !damaged(err) {
		return nil, err
	}
	m.damage(key, err)
	return nil, nil
}

// selfDescribed adds one object by its name and, for a segment, its footer.
func (m *manifestReport) selfDescribed(ctx context.Context, s object.Store, cluster string, i object.Info, shards map[uint32]*shardManifest) error {
	key := strings.TrimPrefix(i.Key, cluster+"/")
	name, err := format.ParseName(key)
	if err != nil {
		return nil // not ours
	}
	row := format.SegmentRow{Key: key, Size: i.Size, FirstIndex: name.Number}
	if m.verify {
		d, err := m.describe(ctx, s, i.Key)
		if d == nil {
			return err
		}
		crc, err := strconv.ParseUint(d.CRC32C, 16, 32)
		if err != nil {
			return fmt.Errorf("%s: reading its checksum %q: %w", key, d.CRC32C, err)
		}
		row.CRC32C = uint32(crc)
	}
	if name.Kind == format.KindSegment {
		seg, err := format.OpenSegment(storeReader{ctx, s, i.Key}, i.Size)
		if err != nil && !damaged(err) {
			return err
		}
		if err != nil {
			m.damage(i.Key, err)
			return nil
		}
		row.FirstIndex, row.LastIndex, row.FooterLen = seg.Info.FirstIndex, seg.Info.LastIndex, seg.FooterLen
		row.MaxTimestamp, row.Batches, row.Records = seg.MaxTimestamp, seg.Batches, seg.Records
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	sm := shards[name.Shard]
	if sm == nil {
		sm = &shardManifest{Shard: name.Shard}
		shards[name.Shard] = sm
	}
	switch name.Kind {
	case format.KindSegment:
		sm.Segments = append(sm.Segments, row)
	case format.KindRun:
		sm.Runs = append(sm.Runs, format.RunRow{ID: uint32(name.Number), Key: key, Size: i.Size})
	case format.KindFence:
		sm.Fences = append(sm.Fences, format.FenceRow{Key: key, Size: i.Size})
	}
	return nil
}

func (m *manifestReport) table(out io.Writer) error {
	field(out, "source", m.Source)
	for _, sm := range m.Shards {
		fmt.Fprintf(out, "\nshard %d: %d segments, %d bytes, %d records, tiered up to index %d", sm.Shard, len(sm.Segments), sm.Bytes, sm.Records, sm.TieredIndex)
		if sm.AsOf > 0 {
			fmt.Fprintf(out, " (as of index %d)", sm.AsOf)
		}
		fmt.Fprintln(out)
		if len(sm.Segments) > 0 {
			if err := segmentRows(out, sm.Segments, m.selfTold, m.selfTold && !m.verify); err != nil {
				return err
			}
		}
		for _, r := range sm.Runs {
			if m.selfTold {
				fmt.Fprintf(out, "run %d  %d bytes  %s\n", r.ID, r.Size, r.Key)
				continue
			}
			fmt.Fprintf(out, "run %d  level %d  segments %d-%d  pages %d  %d bytes  %s\n", r.ID, r.Level, r.First, r.Last, r.Pages, r.Size, r.Key)
		}
		for _, r := range sm.Fences {
			if m.selfTold {
				fmt.Fprintf(out, "fences  %d bytes  %s\n", r.Size, r.Key)
				continue
			}
			fmt.Fprintf(out, "fences  blocks %d  %d bytes  %s\n", len(r.Blocks), r.Size, r.Key)
		}
	}
	if len(m.Shards) == 0 {
		fmt.Fprintln(out, "nothing is in the store")
	}
	if m.Verified != nil {
		fmt.Fprintf(out, "\nverified %d %s, %d bytes\n", m.Verified.Objects, plural(m.Verified.Objects, "object", "objects"), m.Verified.Bytes)
	}
	return nil
}
