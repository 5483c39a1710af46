package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"thermocline/ingest/partition"
	"thermocline/tiering/format"
	"thermocline/wal"
	"thermocline/wal/shard"
	"thermocline/wal/vfs"
)

func inspectSnapshot() *cobra.Command {
	var b bucket
	cmd := &cobra.Command{
		Use:   "snapshot FILE|KEY",
		Short: "Read a shard's snapshot: a file of a broker's wal directory, or a key with --store",
		Long: `Read a snapshot of a shard's state, verify it to its end, and restore the state
as a broker would: topics, partitions with their offsets, and the manifest.`,
		Example: "  thermocline inspect snapshot ./data/broker1/wal/*.snap",
		Args:    nameOf("file", "SNAPSHOT-FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := args[0]
			if b.url != "" {
				f, err := b.fetch(cmd.Context(), path)
				if err != nil {
					return err
				}
				defer f.Close()
				path = f.File.Name()
			}
			s, err := readSnapshot(path)
			s.File = args[0]
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
				return err
			}
			if err != nil {
				s.Damage.addError(args[0], err)
			}
			return report(cmd, s, s.Damage, s.table)
		},
	}
	b.addFlags(cmd)
	return cmd
}

// snapshotReport is a snapshot in words. State is nil when only the file was verified.
type snapshotReport struct {
	File       string      `json:"file"`
	Shard      wal.ShardID `json:"shard"`
	Index      uint64      `json:"index"`
	Term       uint64      `json:"term"`
	HW         uint64      `json:"high_watermark_index"`
	Voters     []uint64    `json:"voters"`
	Learners   []uint64    `json:"learners,omitempty"`
	StateBytes int64       `json:"state_bytes"`
	State      *stateWords `json:"state,omitempty"`
	Damage     findings    `json:"damage,omitempty"`

	manifest *format.Manifest
}

// stateWords is a shard's state in words.
type stateWords struct {
	TieredIndex uint64           `json:"tiered_index"`
	Segments    int              `json:"segments"`
	Runs        int              `json:"runs"`
	Topics      int              `json:"topics"`
	Partitions  []partitionWords `json:"partitions"`
}

// partitionWords is one partition of a state in words.
type partitionWords struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Ref       uint32 `json:"ref"`
	LogStart  int64  `json:"log_start"`
	TieredEnd int64  `json:"tiered_end"`
	LogEnd    int64  `json:"log_end"`
	Epoch     int32  `json:"leader_epoch"`
	Hot       int64  `json:"hot_bytes"`
	Cold      int64  `json:"cold_bytes"`
	Producers int    `json:"producers"`
}

func snapshotMeta(name string, meta shard.SnapshotMeta, n int64) snapshotReport {
	return snapshotReport{
		File: name, Shard: meta.Shard, Index: meta.Index, Term: meta.Term, HW: meta.HW,
		Voters: meta.ConfState.GetVoters(), Learners: meta.ConfState.GetLearners(), StateBytes: n,
	}
}

// counter counts what is read.
type counter struct {
	r io.Reader
	n int64
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// readSnapshot verifies a snapshot file and restores its state. What it knows
// is returned with an error too.
func readSnapshot(path string) (snapshotReport, error) {
	if _, err := os.Stat(path); err != nil {
		return snapshotReport{}, err
	}
	meta, r, err := shard.OpenSnapshot(vfs.OS(filepath.Dir(path)), ".", filepath.Base(path))
	if err != nil {
		return snapshotReport{}, err
	}
	defer r.Close()
	set := partition.NewSet(partition.Options{Shard: uint32(meta.Shard)})
	state := &counter{r: r}
	err = set.Restore(state)
	if err == nil {
		_, err = io.Copy(io.Discard, state) // the closing chunk is verified here
	}
	s := snapshotMeta(path, meta, state.n)
	if err != nil {
		return s, err
	}
	s.manifest = set.Manifest()
	s.State = wordsOf(set)
	return s, nil
}

func wordsOf(set *partition.Set) *stateWords {
	m := set.Manifest()
	w := &stateWords{TieredIndex: m.TieredIndex, Segments: len(m.Segments), Runs: len(m.Runs), Topics: len(set.Topics())}
	for _, k := range set.Keys() {
		v, ok := set.View(k)
		if !ok {
			continue
		}
		w.Partitions = append(w.Partitions, partitionWords{
			Topic: v.Topic, Partition: k.Partition, Ref: uint32(v.Ref), LogStart: v.LogStart, TieredEnd: v.TieredEnd,
			LogEnd: v.LogEnd, Epoch: v.Epoch, Hot: v.HotBytes, Cold: v.ColdBytes, Producers: len(set.Producers(k)),
		})
	}
	slices.SortFunc(w.Partitions, func(a, b partitionWords) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return w
}

func (s *snapshotReport) table(out io.Writer) error {
	field(out, "snapshot", s.File)
	field(out, "shard", s.Shard)
	field(out, "index", s.Index)
	field(out, "term", s.Term)
	field(out, "HW index", s.HW)
	field(out, "voters", joinUints(s.Voters))
	if len(s.Learners) > 0 {
		field(out, "learners", joinUints(s.Learners))
	}
	field(out, "state bytes", s.StateBytes)
	if s.State == nil {
		return nil
	}
	field(out, "tiered index", s.State.TieredIndex)
	field(out, "segments", s.State.Segments)
	field(out, "runs", s.State.Runs)
	field(out, "topics", s.State.Topics)
	fmt.Fprintln(out)
	t := table(out, "PARTITION", "REF", "LOG START", "TIERED END", "LOG END", "EPOCH", "HOT BYTES", "COLD BYTES", "PRODUCERS")
	for _, p := range s.State.Partitions {
		fmt.Fprintf(t, "%s/%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", p.Topic, p.Partition, p.Ref, p.LogStart, p.TieredEnd, p.LogEnd, p.Epoch, p.Hot, p.Cold, p.Producers)
	}
	return t.Flush()
}
