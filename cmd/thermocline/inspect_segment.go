package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"thermocline/tiering/format"
	"thermocline/tiering/object"
)

func inspectSegment() *cobra.Command {
	var b bucket
	cmd := &cobra.Command{
		Use:   "segment KEY|FILE",
		Short: "Read a segment, run or fence object whole: a file, or a key with --store",
		Long: `Read a segment, directory run or fence object from its first byte to its last,
and verify every checksum in it, those of the record batches included.`,
		Example: `  thermocline inspect segment ./copy.seg
  thermocline inspect segment segments/0/0000…-0000…-….seg --store minio://127.0.0.1:9000/bucket/prefix`,
		Args: nameOf("file", "SEGMENT-FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var r segmentReport
			r.Damage = findings{}
			err := r.read(cmd, &b, args[0])
			if err != nil && !damaged(err) {
				return err
			}
			if err != nil {
				r.Damage.addError(args[0], err)
			}
			return report(cmd, r, r.Damage, r.table)
		},
	}
	b.addFlags(cmd)
	return cmd
}

// damaged tells damage from what keeps inspect from looking.
func damaged(err error) bool {
	return errors.Is(err, format.ErrCorrupt) || errors.Is(err, object.ErrCorrupt) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

type segmentReport struct {
	Object string `json:"object"`
	*format.Description
	Damage findings `json:"damage"`
}

func (r *segmentReport) read(cmd *cobra.Command, b *bucket, arg string) error {
	r.Object = arg
	f, err := b.fetch(cmd.Context(), arg)
	if err != nil {
		return err
	}
	defer f.Close()
	r.Object = f.name
	d, err := format.Describe(f, f.withoutTrailer())
	if err != nil {
		return err
	}
	r.Description = d
	return nil
}

func (r *segmentReport) table(out io.Writer) error {
	field(out, "object", r.Object)
	if r.Description == nil {
		return nil
	}
	field(out, "kind", strings.TrimSuffix(r.Kind, "s"))
	field(out, "bytes", r.Size)
	field(out, "crc32c", r.CRC32C)
	switch {
	case r.Segment != nil:
		return segmentTable(out, r.Segment)
	case r.Run != nil:
		return runTable(out, r.Run)
	case r.Fence != nil:
		field(out, "cluster", r.Fence.Cluster)
		field(out, "shard", r.Fence.Shard)
		field(out, "blocks", r.Fence.Blocks)
		field(out, "fences", r.Fence.Fences)
		field(out, "runs", r.Fence.Runs)
	}
	return nil
}

func segmentTable(out io.Writer, s *format.SegmentDescription) error {
	field(out, "cluster", s.Cluster)
	field(out, "shard", s.Shard)
	field(out, "term", s.Term)
	field(out, "indexes", fmt.Sprintf("%d-%d", s.FirstIndex, s.LastIndex))
	field(out, "data bytes", s.DataBytes)
	field(out, "footer bytes", s.FooterBytes)
	field(out, "batches", s.Batches)
	field(out, "records", s.Records)
	field(out, "extents", s.Extents)
	field(out, "newest", timeText(s.MaxTimestamp))
	fmt.Fprintln(out)
	t := table(out, "PARTITION", "REF", "OFFSETS", "BATCHES", "RECORDS", "POSITION", "BYTES", "NEWEST", "EPOCHS", "PRODUCERS", "ABORTED")
	for _, p := range s.Partitions {
		fmt.Fprintf(t, "%s/%d\t%d\t%d-%d\t%d\t%d\t%d\t%d\t%s\t%s\t%d\t%d\n", p.Topic, p.Partition, p.Ref, p.FirstOffset, p.LastOffset,
			p.Batches, p.Records, p.Position, p.Bytes, timeText(p.MaxTimestamp), epochsText(p.Epochs), len(p.Producers), p.Aborted)
	}
	return t.Flush()
}

func epochsText(list []format.EpochStart) string {
	parts := make([]string, len(list))
	for i, e := range list {
		parts[i] = fmt.Sprintf("%d@%d", e.Epoch, e.FirstOffset)
	}
	return strings.Join(parts, ",")
}

func runTable(out io.Writer, r *format.RunDescription) error {
	field(out, "cluster", r.Cluster)
	field(out, "shard", r.Shard)
	field(out, "run", r.ID)
	field(out, "level", r.Level)
	field(out, "pages", r.Pages)
	field(out, "entries", r.Entries)
	fmt.Fprintln(out)
	return segmentRows(out, r.Segments, false, false)
}

// segmentRows prints rows of segments, as manifests and runs have them.
//
// noID and noCRC: the rows do not know their numbers or checksums.
func segmentRows(out io.Writer, rows []format.SegmentRow, noID, noCRC bool) error {
	t := table(out, "SEGMENT", "INDEXES", "BYTES", "BATCHES", "RECORDS", "NEWEST", "CRC32C", "KEY")
	for _, s := range rows {
		id, crc := fmt.Sprint(s.ID), fmt.Sprintf("%08x", s.CRC32C)
		if noID {
			id = "-"
		}
		if noCRC {
			crc = "-"
		}
		fmt.Fprintf(t, "%s\t%d-%d\t%d\t%d\t%d\t%s\t%s\t%s\n", id, s.FirstIndex, s.LastIndex, s.Size, s.Batches, s.Records, timeText(s.MaxTimestamp), crc, s.Key)
	}
	return t.Flush()
}
