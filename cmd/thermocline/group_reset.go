package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// resetRule says where offsets are to go. Exactly one is set.
type resetRule struct {
	earliest, latest bool
	timestamp        string
	duration         string
	offset, shift    int64

	kind resetKind
	at   time.Time // of --to-timestamp and --by-duration
}

type resetKind int

const (
	toEarliest resetKind = iota + 1
	toLatest
	toTime
	toOffset
	byShift
)

// resetRow is one partition, before and after.
type resetRow struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Before    *int64 `json:"before"`
	After     int64  `json:"after"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Note      string `json:"note,omitempty"`

	timed int64 // the first record at or after the time asked for
}

// resetReport is what --output json gives.
type resetReport struct {
	Group      string     `json:"group"`
	DryRun     bool       `json:"dry_run"`
	Partitions []resetRow `json:"partitions"`
}

func groupReset(o *groupOptions) *cobra.Command {
	var s groupScope
	var r resetRule
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "reset-offsets GROUP",
		Short: "Move a group's committed offsets: to the start, the end, a time, an offset, or by a number",
		Long: `Move a group's committed offsets, so that its consumers read again what they
have read, or skip what they have not. Name topics (--topic flights, or some
partitions with --topic flights:0,1) or take all that the group has read
(--all-topics), and say where to:

  --to-earliest          the first record that there is
  --to-latest            after the last one
  --to-timestamp TIME    the first record at or after a time: 2026-11-29,
                         2026-11-29T08:00:00Z (RFC 3339), or milliseconds since 1970
  --by-duration D        the same, that long ago: 36h, 90m, 7d, or ISO 8601: P1DT12H
  --to-offset N          this offset
  --shift-by N           N records on from where it is; -N: back

What lies outside of the log is taken to its nearest end. Without --dry-run the
offsets are set at once. A group that has members is refused: they would commit
over it. A group that does not exist yet is made, so that its first consumer
begins where you say.`,
		Example: `  thermocline group reset-offsets audit --topic flights --to-earliest --dry-run
  thermocline group reset-offsets audit --topic flights:0,1 --to-offset 1000
  thermocline group reset-offsets audit --all-topics --to-timestamp 2026-11-29T08:00:00Z
  thermocline group reset-offsets audit --all-topics --by-duration P1DT12H
  thermocline group reset-offsets audit --all-topics --shift-by -100 --output json`,
		Args: nameOf("group", "audit"),
	}
	f := cmd.Flags()
	s.addFlags(cmd)
	f.BoolVar(&r.earliest, "to-earliest", false, "to the first record that there is")
	f.BoolVar(&r.latest, "to-latest", false, "after the last record")
	f.StringVar(&r.timestamp, "to-timestamp", "", "to the first record at or after this time")
	f.StringVar(&r.duration, "by-duration", "", "to the first record of the last 36h, 7d, P1DT12H")
	f.Int64Var(&r.offset, "to-offset", 0, "to this offset")
	f.Int64Var(&r.shift, "shift-by", 0, "by this many records from where it is; negative: back")
	f.BoolVar(&dryRun, "dry-run", false, "only show what would be before and after")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := r.parse(cmd.Flags().Changed, time.Now()); err != nil {
			return err
		}
		return s.check()
	}
	cmd.RunE = o.run(func(cmd *cobra.Command, adm *kadm.Client, args []string) error {
		rows, err := planReset(cmd.Context(), adm, args[0], &s, &r, dryRun)
		if err != nil {
			return err
		}
		if !dryRun {
			if err := commitReset(cmd.Context(), adm, args[0], rows); err != nil {
				return err
			}
		}
		return o.print(cmd, resetReport{args[0], dryRun, rows}, func(w io.Writer) error { return printReset(w, args[0], dryRun, rows) })
	})
	return cmd
}

// resetFlags are the ways to say where to, of which one is needed.
var resetFlags = []struct {
	name string
	kind resetKind
}{
	{"to-earliest", toEarliest}, {"to-latest", toLatest}, {"to-timestamp", toTime},
	{"by-duration", toTime}, {"to-offset", toOffset}, {"shift-by", byShift},
}

// parse finds which rule was given and reads it. now is what --by-duration
// counts back from.
func (r *resetRule) parse(given func(flag string) bool, now time.Time) error {
	var names, known []string
	for _, f := range resetFlags {
		known = append(known, "--"+f.name)
		if given(f.name) {
			names, r.kind = append(names, "--"+f.name), f.kind
		}
	}
	if len(names) != 1 {
		return fmt.Errorf("say once where to: one of %s (given: %s)", strings.Join(known, ", "), cmp.Or(strings.Join(names, ", "), "none"))
	}
	switch {
	case given("to-earliest") && !r.earliest, given("to-latest") && !r.latest:
		return fmt.Errorf("%s=false says nothing: leave it out", names[0])
	case given("to-offset") && r.offset < 0:
		return fmt.Errorf("--to-offset is 0 or more, not %d (to go back from where it is: --shift-by %d)", r.offset, r.offset)
	case given("to-timestamp"):
		at, err := parseTime(r.timestamp, "")
		if err != nil {
			return fmt.Errorf("--to-timestamp: %w", err)
		}
		if at.Before(time.UnixMilli(0)) {
			return fmt.Errorf("--to-timestamp is in 1970 or later, not %q (to go back by a length of time: --by-duration 36h)", r.timestamp)
		}
		r.at = at
	case given("by-duration"):
		d, err := parseSpan(r.duration)
		if err != nil {
			return fmt.Errorf("--by-duration: %w", err)
		}
		r.at = now.Add(-d)
	}
	return nil
}

// planReset works out the offsets before and after. It refuses a group with
// members, unless only a look is wanted.
func planReset(ctx context.Context, adm *kadm.Client, group string, s *groupScope, r *resetRule, dryRun bool) ([]resetRow, error) {
	g, err := loadGroup(ctx, adm, group, time.Now().Add(coordinatorWithin))
	if errors.Is(err, kerr.GroupIDNotFound) && !s.allTopics {
		g, err = &groupState{Group: group}, nil // comes into being by the commit
	}
	if err != nil {
		return nil, err
	}
	if len(g.Members) > 0 && !dryRun {
		return nil, membersRefusal(g)
	}
	chosen := s.ofCommitted(g)
	if !s.allTopics {
		topics, err := adm.ListTopics(ctx, s.names()...)
		if err != nil {
			return nil, err
		}
		if chosen, err = s.ofTopics(topics); err != nil {
			return nil, err
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("group %s has no committed offsets: name topics with --topic", shown(group))
	}
	rows, err := measureRows(ctx, adm, g, chosen, r)
	if err != nil {
		return nil, err
	}
	return rows, moveRows(rows, r)
}

// membersRefusal says who is in the way.
func membersRefusal(g *groupState) error {
	var who []string
	for _, m := range g.Members {
		if len(who) == 5 {
			who = append(who, fmt.Sprintf("and %d more", len(g.Members)-5))
			break
		}
		who = append(who, fmt.Sprintf("%s on %s", cmp.Or(m.Instance, m.Client, m.ID), strings.TrimPrefix(m.Host, "/")))
	}
	return fmt.Errorf("group %s has %d %s (%s), which would commit over what is set: stop them, or wait until their session has expired, then run this again (--dry-run shows what it would do)",
		shown(g.Group), len(g.Members), plural(len(g.Members), "member", "members"), strings.Join(who, ", "))
}

// measureRows asks where each chosen partition begins and ends, and where the
// time asked for is.
func measureRows(ctx context.Context, adm *kadm.Client, g *groupState, chosen kadm.TopicsSet, r *resetRule) ([]resetRow, error) {
	starts, ends, err := logBounds(ctx, adm, chosen.Topics())
	if err != nil {
		return nil, err
	}
	timed := ends
	if r.kind == toTime {
		if timed, err = adm.ListOffsetsAfterMilli(ctx, r.at.UnixMilli(), chosen.Topics()...); err != nil {
			return nil, fmt.Errorf("looking up %s: %w", r.at.Format(time.RFC3339), err)
		}
	}
	var rows []resetRow
	var errs []error
	for _, t := range chosen.Sorted() {
		for _, p := range t.Partitions {
			row := resetRow{Topic: t.Topic, Partition: p}
			var problem string
			if row.Start, row.End, problem = bounds(t.Topic, p, starts, ends); problem == "" {
				_, row.timed, problem = bounds(t.Topic, p, starts, timed)
			}
			if problem != "" {
				errs = append(errs, fmt.Errorf("%s/%d: %s", t.Topic, p, problem))
				continue
			}
			if i := slices.IndexFunc(g.Offsets, func(o groupOffset) bool { return o.Topic == t.Topic && o.Partition == p }); i >= 0 {
				row.Before = g.Offsets[i].Committed
			}
			rows = append(rows, row)
		}
	}
	return rows, errors.Join(errs...)
}

// moveRows sets After of each row by the rule.
func moveRows(rows []resetRow, r *resetRule) error {
	var errs []error
	for i := range rows {
		row := &rows[i]
		switch r.kind {
		case toEarliest:
			row.After = row.Start
		case toLatest:
			row.After = row.End
		case toTime:
			row.After = row.timed
		case toOffset:
			row.After = r.offset
		case byShift:
			if row.Before == nil {
				errs = append(errs, fmt.Errorf("%s/%d has no committed offset to shift from: name partitions that have one, or use --to-offset", row.Topic, row.Partition))
				continue
			}
			row.After = shifted(*row.Before, r.shift)
		}
		switch {
		case row.After < row.Start:
			row.After, row.Note = row.Start, fmt.Sprintf("%d is before the log's start", row.After)
		case row.After > row.End:
			row.After, row.Note = row.End, fmt.Sprintf("%d is after the log's end", row.After)
		}
	}
	return errors.Join(errs...)
}

// shifted adds without passing the ends of the numbers.
func shifted(at, by int64) int64 {
	if sum := at + by; by < 0 || sum >= at {
		return sum
	}
	return 1<<63 - 1
}

func commitReset(ctx context.Context, adm *kadm.Client, group string, rows []resetRow) error {
	offsets := kadm.Offsets{}
	for _, r := range rows {
		offsets.AddOffset(r.Topic, r.Partition, r.After, -1)
	}
	answers, err := adm.CommitOffsets(ctx, group, offsets)
	if err != nil {
		return fmt.Errorf("group %s: %w", shown(group), refused(err, ""))
	}
	var errs []error
	for _, r := range rows {
		if a, ok := answers.Lookup(r.Topic, r.Partition); !ok || a.Err != nil {
			errs = append(errs, fmt.Errorf("group %s, %s/%d was not set: %w", shown(group), r.Topic, r.Partition, orUnknown(a.Err)))
		}
	}
	return errors.Join(errs...)
}

func printReset(out io.Writer, group string, dryRun bool, rows []resetRow) error {
	w := table(out, "TOPIC", "PARTITION", "BEFORE", "AFTER", "CHANGE", "LAG", "NOTE")
	for _, r := range rows {
		change := "-"
		if r.Before != nil {
			change = fmt.Sprintf("%+d", r.After-*r.Before)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\t%d\t%s\n", r.Topic, r.Partition, numberOrDash(r.Before), r.After, change, r.End-r.After, r.Note)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	verdict := fmt.Sprintf("group %s: %d %s set", shown(group), len(rows), plural(len(rows), "offset", "offsets"))
	if dryRun {
		verdict = "nothing was changed: run it without --dry-run to set these"
	}
	_, err := fmt.Fprintln(out, verdict)
	return err
}
