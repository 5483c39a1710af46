package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"thermocline/wal"
)

// inspectCommand looks into everything that a cluster writes, without a lock
// and without changing anything.
func inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Look into log files, snapshots, segments, manifests and partitions",
		Long: `Look into everything that a cluster writes: on a broker's disk, in the bucket,
and through the Kafka protocol. Checksums are verified. Nothing is changed, and
no lock is taken. Damage is printed with file, offset, and what was expected and
found; the exit code is then 1.

Credentials for --store come from the environment, as a broker's do.`,
	}
	cmd.PersistentFlags().Bool("json", false, "print JSON instead of a table")
	cmd.AddCommand(inspectWAL(), inspectSegment(), inspectManifest(), inspectSnapshot(), inspectPartition())
	return cmd
}

// finding is one damaged place.
type finding struct {
	File string `json:"file"`
	// Offset is -1 where the problem names the place itself, or has none.
	Offset  int64  `json:"offset"`
	Problem string `json:"problem"`
}

// findings collects damage, so that one broken place does not hide the rest.
type findings []finding

func (f *findings) add(file string, offset int64, problem string) {
	*f = append(*f, finding{file, offset, problem})
}

// addError adds what an error says about file, with its place if it knows it.
func (f *findings) addError(file string, err error) {
	var c *wal.CorruptionError
	if errors.As(err, &c) {
		f.add(c.File, c.Offset, fmt.Sprintf("expected %s, found %s", c.Expected, c.Found))
		return
	}
	f.add(file, -1, err.Error())
}

// err is what the command ends with.
func (f findings) err() error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("%d damaged %s found", len(f), plural(len(f), "place", "places"))
}

// print lists the damage below a table.
func (f findings) print(out io.Writer) {
	for _, d := range f {
		if d.Offset >= 0 {
			fmt.Fprintf(out, "DAMAGE  %s at offset %d: %s\n", d.File, d.Offset, d.Problem)
		} else {
			fmt.Fprintf(out, "DAMAGE  %s: %s\n", d.File, d.Problem)
		}
	}
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// report prints v as JSON, or what table prints and the damage below it.
func report(cmd *cobra.Command, v any, damage findings, table func(io.Writer) error) error {
	out := cmd.OutOrStdout()
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		if err := printJSON(out, v); err != nil {
			return err
		}
		return damage.err()
	}
	if err := table(out); err != nil {
		return err
	}
	damage.print(out)
	return damage.err()
}

func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// field prints one line of a description.
func field(out io.Writer, name string, value any) {
	fmt.Fprintf(out, "%-12s  %v\n", name, value)
}

// timeText shows a timestamp of records; -1 is none.
func timeText(unixMilli int64) string {
	if unixMilli < 0 {
		return "-"
	}
	return time.UnixMilli(unixMilli).UTC().Format("2006-01-02T15:04:05.000Z")
}

func joinUints(list []uint64) string {
	parts := make([]string, len(list))
	for i, n := range list {
		parts[i] = fmt.Sprintf("%016x", n)
	}
	return strings.Join(parts, ",")
}
