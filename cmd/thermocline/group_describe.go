package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func groupDescribe(o *groupOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "describe GROUP…",
		Short: "Show members, what each is assigned, the coordinator and the offsets",
		Long: `Show a group: its state, its coordinator, its members and what each is assigned,
and how far every partition has been read. COMMITTED is where a consumer would go
on, END where the next record will be written, LAG what lies between them.`,
		Example: "  thermocline group describe audit\n  thermocline group describe audit --output json",
		Args:    namesOf("group", "audit"),
		RunE: o.run(func(cmd *cobra.Command, adm *kadm.Client, args []string) error {
			groups, failed := loadGroups(cmd.Context(), adm, args)
			err := o.print(cmd, groups, func(w io.Writer) error {
				for i, g := range groups {
					if i > 0 {
						fmt.Fprintln(w)
					}
					if err := g.describe(w); err != nil {
						return err
					}
				}
				return nil
			})
			return errors.Join(failed, err)
		}),
	}
}

// loadGroups loads each; what cannot be loaded is in the error.
func loadGroups(ctx context.Context, adm *kadm.Client, names []string) ([]*groupState, error) {
	groups := []*groupState{}
	var errs []error
	until := time.Now().Add(coordinatorWithin)
	for _, n := range names {
		g, err := loadGroup(ctx, adm, n, until)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		groups = append(groups, g)
	}
	return groups, errors.Join(errs...)
}

func (g *groupState) describe(out io.Writer) error {
	field(out, "group", shown(g.Group))
	field(out, "type", g.Type)
	field(out, "state", g.State)
	field(out, "protocol", orDash(g.Protocol))
	field(out, "assignor", orDash(g.Assignor))
	if g.Epoch >= 0 {
		field(out, "epoch", g.Epoch)
	}
	field(out, "coordinator", fmt.Sprintf("broker %d (%s)", g.Coordinator, g.CoordinatorAddr))
	field(out, "members", len(g.Members))
	if len(g.Members) > 0 {
		fmt.Fprintln(out)
		w := table(out, "MEMBER", "CLIENT", "HOST", "TOPICS", "ASSIGNED")
		for _, m := range g.Members {
			id := shown(m.ID)
			if m.Instance != "" {
				id = shown(m.Instance) + " (" + shown(m.ID) + ")"
			}
			assigned := partitionText(m.Assigned)
			if m.Target != nil {
				assigned += " → " + partitionText(m.Target)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", id, shown(m.Client), strings.TrimPrefix(m.Host, "/"), orDash(strings.Join(m.Topics, ",")), assigned)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if len(g.Offsets) == 0 {
		fmt.Fprintln(out, "\nno offsets are committed")
		return nil
	}
	fmt.Fprintln(out)
	return g.offsetTable(out)
}

// partitionText writes flights[0 1 2] trains[0].
func partitionText(set map[string][]int32) string {
	var parts []string
	for _, t := range slices.Sorted(maps.Keys(set)) {
		parts = append(parts, fmt.Sprintf("%s%v", t, set[t]))
	}
	return orDash(strings.Join(parts, " "))
}

func (g *groupState) offsetTable(out io.Writer) error {
	w := table(out, "TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "NOTE")
	for _, o := range g.Offsets {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", o.Topic, o.Partition,
			numberOrDash(o.Committed), numberOrDash(o.End), numberOrDash(o.Lag), orDash(o.Member), o.Problem)
	}
	fmt.Fprintf(w, "total\t%d\t\t\t%d\t\t%s\n", len(g.Offsets), g.Lag, g.uncommittedText())
	return w.Flush()
}

// lagSummary is one group of `group lag` without names.
type lagSummary struct {
	Group      string `json:"group"`
	State      string `json:"state"`
	Members    int    `json:"members"`
	Partitions int    `json:"partitions"`
	Lag        int64  `json:"lag"`
	// Uncommitted counts partitions of the same topics without a committed
	// offset, which Lag leaves out; UncommittedRecords is what is in them.
	Uncommitted        int   `json:"uncommitted_partitions"`
	UncommittedRecords int64 `json:"uncommitted_records"`
}

func groupLag(o *groupOptions) *cobra.Command {
	var watch time.Duration
	cmd := &cobra.Command{
		Use:   "lag [GROUP…]",
		Short: "Show how far groups are behind, for each partition and in total",
		Long: `Show how many records lie between what a group has committed and the end of each
partition, and the total. Without a name: the total of every group. A partition
without a committed offset has no lag, since where its reader begins is the
reader's own setting; such partitions are counted beside it.

--watch 5s repeats it every five seconds until Ctrl-C; with --output json each look is one line.`,
		Example: `  thermocline group lag
  thermocline group lag audit
  thermocline group lag audit --watch 2s
  thermocline group lag --watch 10s --output json | jq '.[] | select(.lag > 1000)'`,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("watch") && watch < 100*time.Millisecond {
				return fmt.Errorf("--watch is a time between looks of 100ms or more, not %v", watch)
			}
			return nil
		},
		RunE: o.run(func(cmd *cobra.Command, adm *kadm.Client, args []string) error {
			if watch == 0 {
				return o.lagOnce(cmd, adm, args)
			}
			return o.lagAgain(cmd, adm, args, watch)
		}),
	}
	cmd.Flags().DurationVarP(&watch, "watch", "w", 0, "look again after this time, such as 5s, until Ctrl-C")
	return cmd
}

// lagAgain looks again and again. A look that fails is said and not the end:
// brokers come back.
func (o *groupOptions) lagAgain(cmd *cobra.Command, adm *kadm.Client, args []string, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if o.output == "table" {
			if isTerminal(cmd.OutOrStdout()) {
				fmt.Fprint(cmd.OutOrStdout(), "\033[H\033[2J")
			}
			fmt.Fprintln(cmd.OutOrStdout(), time.Now().Format(time.RFC3339))
		}
		if err := o.lagOnce(cmd, adm, args); err != nil && cmd.Context().Err() == nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "thermocline: %v\n", err)
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}

func (o *groupOptions) lagOnce(cmd *cobra.Command, adm *kadm.Client, names []string) error {
	if len(names) == 0 {
		return o.lagOfAll(cmd, adm)
	}
	groups, failed := loadGroups(cmd.Context(), adm, names)
	err := o.print(cmd, groups, func(w io.Writer) error {
		for i, g := range groups {
			if i > 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprintf(w, "%s: %s, %d %s, %s\n", shown(g.Group), g.State, len(g.Members), plural(len(g.Members), "member", "members"), g.lagText())
			if err := g.offsetTable(w); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(failed, err)
}

func (o *groupOptions) lagOfAll(cmd *cobra.Command, adm *kadm.Client) error {
	listed, failed := listGroups(cmd.Context(), adm, cmd.ErrOrStderr(), coordinatorWithin)
	var names []string
	for _, l := range listed.Sorted() {
		if l.GroupType == "" || l.GroupType == "classic" || l.GroupType == "consumer" {
			names = append(names, l.Group)
		}
	}
	groups, some := loadGroups(cmd.Context(), adm, names)
	sums := []lagSummary{}
	for _, g := range groups {
		sums = append(sums, lagSummary{g.Group, g.State, len(g.Members), len(g.Offsets), g.Lag, g.Uncommitted, g.UncommittedRecords})
	}
	err := o.print(cmd, sums, func(out io.Writer) error {
		w := table(out, "GROUP", "STATE", "MEMBERS", "PARTITIONS", "LAG", "NOTE")
		for i, s := range sums {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\n", shown(s.Group), s.State, s.Members, s.Partitions, s.Lag, groups[i].uncommittedText())
		}
		return w.Flush()
	})
	return errors.Join(failed, some, err)
}
