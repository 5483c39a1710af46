package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// groupOptions are what every group command knows.
type groupOptions struct {
	cluster
	output string
}

func groupCommand() *cobra.Command {
	o := &groupOptions{}
	cmd := &cobra.Command{
		Use:   "group",
		Short: "List, describe, reset and delete consumer groups",
		Long: `List, describe, reset and delete consumer groups, of any Kafka cluster.

Consumers that name the same group share a topic's partitions, and the cluster
remembers for the group how far each partition has been read: its committed
offsets. A group comes into being when a consumer joins it or its offsets are
set, and is kept while it is empty, so that the next consumer goes on where the
last one stopped. Its lag is what is in the partitions and not yet committed.

Offsets are changed and deleted only while the group is empty: a running member
would go on from where it is and commit over what was set.`,
		Example: `  thermocline consume flights --group audit        read as a member of the group
  thermocline group list --state stable,empty      which groups there are
  thermocline group describe audit                 who reads what, and how far it is
  thermocline group lag                            how far every group is behind
  thermocline group lag audit --watch 5s           the same for one group, again and again
  thermocline group reset-offsets audit --topic flights --to-earliest --dry-run
  thermocline group reset-offsets audit --all-topics --by-duration 36h
  thermocline group delete audit billing`,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if o.output != "table" && o.output != "json" {
				return fmt.Errorf("--output is table or json, not %q", o.output)
			}
			return nil
		},
	}
	o.addFlag(cmd)
	cmd.PersistentFlags().StringVarP(&o.output, "output", "o", "table", "table or json")
	cmd.AddCommand(groupList(o), groupDescribe(o), groupLag(o), groupReset(o), groupDelete(o), groupDeleteOffsets(o))
	return cmd
}

// print writes v as JSON, or as table does.
func (o *groupOptions) print(cmd *cobra.Command, v any, table func(io.Writer) error) error {
	if o.output == "json" {
		return printJSON(cmd.OutOrStdout(), v)
	}
	return table(cmd.OutOrStdout())
}

// listedGroup is one line of the list.
type listedGroup struct {
	Group       string `json:"group"`
	Type        string `json:"type"`
	State       string `json:"state"`
	Protocol    string `json:"protocol"`
	Coordinator int32  `json:"coordinator"`
}

// The words of Kafka for a group's state and type.
var (
	groupStates = []string{"Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "NotReady", "Dead"}
	groupTypes  = []string{"classic", "consumer", "share", "streams"}
)

func groupList(o *groupOptions) *cobra.Command {
	var states, types []string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List groups with type, state and protocol",
		Long: `List groups. Type is classic (members divide the partitions among themselves) or
consumer (the cluster divides them, KIP-848); other Kafka clusters have share and
streams groups too. Protocol is "consumer" for ordinary consumers, "connect" for
Kafka Connect, and empty for offsets that were set without any member.`,
		Example: `  thermocline group list
  thermocline group list --state empty --type classic
  thermocline group list --output json`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if err := knownWords("--state", states, groupStates); err != nil {
				return err
			}
			return knownWords("--type", types, groupTypes)
		},
		RunE: o.run(func(cmd *cobra.Command, adm *kadm.Client, _ []string) error {
			listed, failed := listGroups(cmd.Context(), adm, cmd.ErrOrStderr(), coordinatorWithin)
			out := []listedGroup{}
			for _, g := range listed.Sorted() {
				l := listedGroup{g.Group, g.GroupType, g.State, g.ProtocolType, g.Coordinator}
				if l.Type == "" {
					l.Type = "classic" // a broker that does not say knows no other
				}
				if wanted(states, l.State) && wanted(types, l.Type) {
					out = append(out, l)
				}
			}
			err := o.print(cmd, out, func(w io.Writer) error { return printList(w, out) })
			return errors.Join(failed, err)
		}),
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only groups in these states: "+strings.Join(groupStates, ", "))
	cmd.Flags().StringSliceVar(&types, "type", nil, "only groups of these types: "+strings.Join(groupTypes, ", "))
	return cmd
}

func printList(out io.Writer, groups []listedGroup) error {
	w := table(out, "GROUP", "TYPE", "STATE", "PROTOCOL", "COORDINATOR")
	for _, g := range groups {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\n", shown(g.Group), g.Type, orDash(g.State), orDash(g.Protocol), g.Coordinator)
	}
	return w.Flush()
}

func knownWords(flag string, given, known []string) error {
	for _, g := range given {
		if !wanted(known, g) {
			return fmt.Errorf("%s is one of %s, not %q", flag, strings.Join(known, ", "), g)
		}
	}
	return nil
}

// wanted tells whether a filter lets a word pass; none lets all.
func wanted(filter []string, word string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, word) })
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func numberOrDash(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

func groupDelete(o *groupOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "delete GROUP…",
		Short: "Delete groups and their committed offsets",
		Long: `Delete groups and their committed offsets. A group with members is not deleted:
stop them first. Topics and their records are not touched.`,
		Example: "  thermocline group delete audit billing",
		Args:    namesOf("group", "audit"),
		RunE: o.run(func(cmd *cobra.Command, adm *kadm.Client, args []string) error {
			until := time.Now().Add(coordinatorWithin)
			return each("group", args, func(name string) error {
				if err := patiently(cmd.Context(), until, func() error { return deleteGroup(cmd.Context(), adm, name) }); err != nil {
					return err
				}
				return o.print(cmd, map[string]string{"deleted": name}, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "deleted %s\n", shown(name))
					return err
				})
			})
		}),
	}
}

func deleteGroup(ctx context.Context, adm *kadm.Client, name string) error {
	a, err := adm.DeleteGroup(ctx, name)
	switch {
	case errors.Is(a.Err, kerr.GroupIDNotFound) || errors.Is(err, kerr.GroupIDNotFound):
		return refused(kerr.GroupIDNotFound, "") // the brokers' own words name it again
	case a.Err != nil:
		return refused(a.Err, a.ErrMessage)
	case err != nil:
		return refused(err, "")
	}
	return nil
}

func groupDeleteOffsets(o *groupOptions) *cobra.Command {
	var s groupScope
	cmd := &cobra.Command{
		Use:   "delete-offsets GROUP",
		Short: "Forget a group's committed offsets of some topics",
		Long: `Forget a group's committed offsets of some topics or partitions: its consumers
begin there as if they had never read them. Members may run as long as none of
them reads these topics.`,
		Example: `  thermocline group delete-offsets audit --topic flights
  thermocline group delete-offsets audit --topic flights:0,1 --topic trains`,
		Args:    nameOf("group", "audit"),
		PreRunE: func(*cobra.Command, []string) error { return s.check() },
		RunE: o.run(func(cmd *cobra.Command, adm *kadm.Client, args []string) error {
			g, err := loadGroup(cmd.Context(), adm, args[0], time.Now().Add(coordinatorWithin))
			if err != nil {
				return err
			}
			chosen := s.ofCommitted(g)
			if missing := s.without(chosen); len(missing) > 0 {
				return fmt.Errorf("group %s has no committed offset of %s: nothing was deleted (see thermocline group describe %s)",
					shown(g.Group), strings.Join(missing, ", "), shown(g.Group))
			}
			if len(chosen) == 0 {
				return fmt.Errorf("group %s has no committed offsets: there is nothing to delete", shown(g.Group))
			}
			var answers kadm.DeleteOffsetsResponses
			err = patiently(cmd.Context(), time.Now().Add(coordinatorWithin), func() (err error) {
				answers, err = adm.DeleteOffsets(cmd.Context(), g.Group, chosen)
				return err
			})
			if err != nil {
				return fmt.Errorf("group %s: %w", shown(g.Group), refused(err, ""))
			}
			return o.reportDeleted(cmd, g.Group, chosen, answers)
		}),
	}
	s.addFlags(cmd)
	return cmd
}

func (o *groupOptions) reportDeleted(cmd *cobra.Command, group string, chosen kadm.TopicsSet, answers kadm.DeleteOffsetsResponses) error {
	var names []string
	for _, t := range chosen.Sorted() {
		for _, p := range t.Partitions {
			names = append(names, fmt.Sprintf("%s/%d", t.Topic, p))
		}
	}
	deleted := []string{}
	err := each("partition", names, func(name string) error {
		topic, number, _ := strings.Cut(name, "/")
		p, _ := strconv.ParseInt(number, 10, 32) // written just above
		if err, _ := answers.Lookup(topic, int32(p)); err != nil {
			return refused(err, "")
		}
		deleted = append(deleted, name)
		return nil
	})
	printed := o.print(cmd, map[string]any{"group": group, "deleted": deleted}, func(w io.Writer) error {
		for _, d := range deleted {
			fmt.Fprintf(w, "%s: forgot %s\n", shown(group), d)
		}
		return nil
	})
	if err == nil {
		err = printed
	}
	return err
}
