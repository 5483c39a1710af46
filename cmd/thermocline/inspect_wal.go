package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"thermocline/wal"
	"thermocline/wal/shard"
	"thermocline/wal/vfs"
)

// walDirName is the log's directory below a broker's data.dir.
const walDirName = "wal"

func inspectWAL() *cobra.Command {
	var records bool
	cmd := &cobra.Command{
		Use:   "wal DIR",
		Short: "Read a broker's write-ahead log: its data directory, or the wal directory in it",
		Long: `Read every file, group and record of a broker's write-ahead log, and every
snapshot file beside it, and verify all checksums.

A torn tail, which holds nothing that was acknowledged, is shown and is no
damage. Beside a running broker the end of the newest file may look torn.`,
		Example: "  thermocline inspect wal ./data/broker1\n  thermocline inspect wal ./data/broker1 --records --json",
		Args:    nameOf("directory", "./data/broker1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := logDirectory(args[0])
			if err != nil {
				return err
			}
			w := newWALReport(dir)
			each := w.take
			if records {
				each = func(r wal.ScanRecord) error {
					w.take(r)
					return showRecord(cmd, r)
				}
			}
			if err := w.read(each); err != nil {
				return err
			}
			return report(cmd, w, w.Damage, w.table)
		},
	}
	cmd.Flags().BoolVar(&records, "records", false, "print each record too (JSON: one line for each)")
	return cmd
}

// logDirectory finds the log in a broker's data directory, or takes a log's
// directory as it is.
func logDirectory(arg string) (string, error) {
	for _, dir := range []string{filepath.Join(arg, walDirName), arg} {
		names, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		for _, e := range names {
			if strings.HasPrefix(e.Name(), "wal-") || strings.HasSuffix(e.Name(), wal.SnapshotSuffix) {
				return dir, nil
			}
		}
	}
	return "", fmt.Errorf("%s holds no write-ahead log: name a broker's data.dir, or the wal directory in it", arg)
}

// walReport is a log in words.
type walReport struct {
	Dir       string           `json:"dir"`
	Files     []walFile        `json:"files"`
	Shards    []*walShard      `json:"shards"`
	Snapshots []snapshotReport `json:"snapshots"`
	TornTail  string           `json:"torn_tail,omitempty"`
	Damage    findings         `json:"damage"`

	shards map[wal.ShardID]*walShard
}

// walFile is one file of a log.
type walFile struct {
	File     string       `json:"file"`
	Use      uint64       `json:"use"`
	Start    wal.Position `json:"start"`
	Bytes    int64        `json:"bytes"`
	Groups   int          `json:"groups"`
	Closing  int          `json:"closing_records"`
	Entries  int          `json:"entries"`
	Payloads int64        `json:"payload_bytes"`
	Synced   wal.Position `json:"synced_end_named"`
}

// walShard is what a log holds of one shard, as far as records tell.
type walShard struct {
	Shard      wal.ShardID          `json:"shard"`
	FirstIndex uint64               `json:"first_index"`
	LastIndex  uint64               `json:"last_index"`
	Entries    int                  `json:"entries"`
	Payloads   int64                `json:"payload_bytes"`
	Copies     int                  `json:"copies"`
	Hard       *wal.HardState       `json:"hard_state,omitempty"`
	Snapshot   *wal.SnapshotPointer `json:"snapshot,omitempty"`
}

func newWALReport(dir string) *walReport {
	return &walReport{Dir: dir, shards: map[wal.ShardID]*walShard{}, Damage: findings{}}
}

// read scans the log and verifies the snapshot files beside it.
func (w *walReport) read(each func(wal.ScanRecord) error) error {
	root := vfs.OS(w.Dir)
	if err := wal.Scan(root, ".", each); err != nil {
		return err
	}
	for _, s := range w.shards {
		w.Shards = append(w.Shards, s)
	}
	slices.SortFunc(w.Shards, func(a, b *walShard) int { return cmp.Compare(a.Shard, b.Shard) })
	names, err := os.ReadDir(w.Dir)
	if err != nil {
		return err
	}
	for _, e := range names {
		if !strings.HasSuffix(e.Name(), wal.SnapshotSuffix) {
			continue
		}
		meta, n, err := shard.VerifySnapshot(root, ".", e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // a running broker has removed it since the listing
		}
		if err != nil {
			w.Damage.addError(filepath.Join(w.Dir, e.Name()), err)
			continue
		}
		w.Snapshots = append(w.Snapshots, snapshotMeta(e.Name(), meta, n))
	}
	return nil
}

// take adds what one record says.
func (w *walReport) take(r wal.ScanRecord) error {
	if r.Kind == wal.ScanFile || len(w.Files) == 0 || w.Files[len(w.Files)-1].File != r.File {
		w.Files = append(w.Files, walFile{File: r.File, Use: r.Use, Start: r.Position, Bytes: r.Length, Synced: r.Synced})
	}
	f := &w.Files[len(w.Files)-1]
	switch r.Kind {
	case wal.ScanGroup:
		f.Groups, f.Synced = f.Groups+1, max(f.Synced, r.Synced)
	case wal.ScanClosing:
		f.Closing, f.Synced = f.Closing+1, max(f.Synced, r.Synced)
	case wal.ScanEntry:
		f.Entries, f.Payloads = f.Entries+1, f.Payloads+int64(r.PayloadLen)
		w.entry(r)
	case wal.ScanHard:
		w.shard(r.Shard).Hard = r.Hard
	case wal.ScanPointer:
		w.shard(r.Shard).Snapshot = r.Snapshot
	case wal.ScanRemove:
		delete(w.shards, r.Shard)
	case wal.ScanDamage:
		if r.Torn {
			w.TornTail = fmt.Sprintf("%s %s", r.File, r.Problem)
		} else {
			w.Damage.add(filepath.Join(w.Dir, r.File), r.Offset, r.Problem)
		}
	}
	return nil
}

func (w *walReport) shard(id wal.ShardID) *walShard {
	s := w.shards[id]
	if s == nil {
		s = &walShard{Shard: id}
		w.shards[id] = s
	}
	return s
}

// entry follows a shard's entries: an index at or below the last one replaces
// what came after it, but for copies, which recycling has written again.
func (w *walReport) entry(r wal.ScanRecord) {
	s := w.shard(r.Shard)
	if r.Copy {
		s.Copies++
		return
	}
	if s.Entries == 0 {
		s.FirstIndex = r.Index
	}
	s.Entries++
	s.Payloads += int64(r.PayloadLen)
	s.FirstIndex, s.LastIndex = min(s.FirstIndex, r.Index), r.Index
}

func (w *walReport) table(out io.Writer) error {
	t := table(out, "FILE", "USE", "START", "BYTES", "GROUPS", "ENTRIES", "PAYLOAD", "SYNCED END NAMED")
	for _, f := range w.Files {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", f.File, f.Use, f.Start, f.Bytes, f.Groups, f.Entries, f.Payloads, f.Synced)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	t = table(out, "SHARD", "ENTRIES", "INDEXES", "PAYLOAD", "TERM", "VOTE", "COMMIT", "SNAPSHOT", "TRIMMED")
	for _, s := range w.Shards {
		var h wal.HardState
		var p wal.SnapshotPointer
		if s.Hard != nil {
			h = *s.Hard
		}
		if s.Snapshot != nil {
			p = *s.Snapshot
		}
		fmt.Fprintf(t, "%d\t%d\t%d-%d\t%d\t%d\t%016x\t%d\t%d\t%d\n", s.Shard, s.Entries, s.FirstIndex, s.LastIndex, s.Payloads, h.Term, h.Vote, h.Commit, p.Index, p.Trimmed)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(w.Snapshots) > 0 {
		fmt.Fprintln(out)
		t = table(out, "SNAPSHOT FILE", "SHARD", "INDEX", "TERM", "STATE BYTES")
		for _, s := range w.Snapshots {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\n", s.File, s.Shard, s.Index, s.Term, s.StateBytes)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if w.TornTail != "" {
		fmt.Fprintf(out, "\ntorn tail (nothing in it was acknowledged): %s\n", w.TornTail)
	}
	return nil
}

// showRecord prints one record of --records.
func showRecord(cmd *cobra.Command, r wal.ScanRecord) error {
	out := cmd.OutOrStdout()
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	line := fmt.Sprintf("%s %9d  %-16s", r.File, r.Offset, r.Kind)
	switch r.Kind {
	case wal.ScanFile:
		line += fmt.Sprintf("  use %d, from position %d", r.Use, r.Position)
	case wal.ScanGroup, wal.ScanClosing:
		line += fmt.Sprintf("  position %d, %d bytes, %d records, synced end %d", r.Position, r.Length, r.Records, r.Synced)
	case wal.ScanEntry:
		line += fmt.Sprintf("  shard %d index %d term %d type %d payload %d%s", r.Shard, r.Index, r.Term, r.Type, r.PayloadLen, recordFlags(r))
	case wal.ScanHard:
		line += fmt.Sprintf("  shard %d %+v", r.Shard, *r.Hard)
	case wal.ScanPointer:
		line += fmt.Sprintf("  shard %d index %d term %d trimmed %d %s%s", r.Shard, r.Snapshot.Index, r.Snapshot.Term, r.Snapshot.Trimmed, r.Snapshot.File, recordFlags(r))
	case wal.ScanDamage:
		line += "  " + r.Problem
	default:
		line += fmt.Sprintf("  shard %d", r.Shard)
	}
	_, err := fmt.Fprintln(out, line)
	return err
}

func recordFlags(r wal.ScanRecord) string {
	s := ""
	if r.Copy {
		s += " copy"
	}
	if r.Staged {
		s += " staged"
	}
	if r.Install {
		s += " install"
	}
	return s
}
