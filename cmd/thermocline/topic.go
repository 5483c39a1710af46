package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// rollConfig is the topic config whose change asks the shards' leaders to
// seal, upload and trim at once.
const rollConfig = "thermocline.roll"

func topicCommand() *cobra.Command {
	c := &cluster{}
	cmd := &cobra.Command{
		Use:   "topic",
		Short: "Create, list, describe, alter, roll and delete topics",
	}
	c.addFlag(cmd)
	cmd.AddCommand(topicCreate(c), topicList(c), topicDescribe(c), topicAlter(c), topicDelete(c), topicRoll(c))
	return cmd
}

func topicCreate(c *cluster) *cobra.Command {
	var partitions int32
	var factor int16
	var configs []string
	var ifNotExists bool
	var set map[string]*string
	cmd := &cobra.Command{
		Use:     "create TOPIC…",
		Short:   "Create topics",
		Example: "  thermocline topic create flights --partitions 12 --config retention.ms=-1",
		Args:    namesOf("topic", "flights"),
		PreRunE: func(*cobra.Command, []string) (err error) {
			set, err = parseConfigs("--config", configs)
			return err
		},
		RunE: c.run(func(cmd *cobra.Command, adm *kadm.Client, args []string) error {
			answers, err := adm.CreateTopics(cmd.Context(), partitions, factor, set, args...)
			if err != nil {
				return err
			}
			return each("topic", args, func(name string) error {
				a := answers[name]
				if errors.Is(a.Err, kerr.TopicAlreadyExists) && ifNotExists {
					fmt.Fprintf(cmd.OutOrStdout(), "%s exists already\n", name)
					return nil
				}
				if a.Err != nil {
					return refused(a.Err, a.ErrMessage)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "created %s\n", name)
				return warnOfIdleConfigs(cmd, adm, name, set)
			})
		}),
	}
	cmd.Flags().Int32VarP(&partitions, "partitions", "p", -1, "number of partitions (-1: the brokers' num.partitions)")
	cmd.Flags().Int16VarP(&factor, "replication-factor", "r", -1, "replication factor (-1: the brokers' default)")
	cmd.Flags().StringArrayVarP(&configs, "config", "c", nil, "topic config key=value; may be repeated")
	cmd.Flags().BoolVar(&ifNotExists, "if-not-exists", false, "succeed if the topic exists already")
	return cmd
}

func topicList(c *cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List topics with their partitions",
		Args:  cobra.NoArgs,
		RunE: c.run(func(cmd *cobra.Command, adm *kadm.Client, _ []string) error {
			topics, err := adm.ListTopics(cmd.Context())
			if err != nil {
				return err
			}
			w := table(cmd.OutOrStdout(), "TOPIC", "PARTITIONS", "REPLICAS", "ID")
			for _, t := range topics.Sorted() {
				fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", t.Topic, len(t.Partitions), t.Partitions.NumReplicas(), t.ID)
			}
			return w.Flush()
		}),
	}
}

func topicDescribe(c *cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "describe TOPIC…",
		Short: "Show partitions, leaders, offsets and set configs",
		Args:  namesOf("topic", "flights"),
		RunE: c.run(func(cmd *cobra.Command, adm *kadm.Client, args []string) error {
			topics, err := adm.ListTopics(cmd.Context(), args...)
			if err != nil {
				return err
			}
			starts, _ := adm.ListStartOffsets(cmd.Context(), args...)
			ends, _ := adm.ListEndOffsets(cmd.Context(), args...)
			configs, _ := adm.DescribeTopicConfigs(cmd.Context(), args...)
			return each("topic", args, func(name string) error {
				t, ok := topics[name]
				if !ok || t.Err != nil {
					return orUnknown(t.Err)
				}
				return describeTopic(cmd.OutOrStdout(), t, starts, ends, configs)
			})
		}),
	}
}

func describeTopic(out io.Writer, t kadm.TopicDetail, starts, ends kadm.ListedOffsets, configs kadm.ResourceConfigs) error {
	fmt.Fprintf(out, "%s  id %s  %d partitions\n", t.Topic, t.ID, len(t.Partitions))
	for _, rc := range configs {
		if rc.Name != t.Topic {
			continue
		}
		for _, kv := range rc.Configs {
			if kv.Source.String() == "DYNAMIC_TOPIC_CONFIG" && kv.Value != nil {
				fmt.Fprintf(out, "  %s=%s\n", kv.Key, *kv.Value)
			}
		}
	}
	w := table(out, "PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END")
	for _, p := range t.Partitions.Sorted() {
		fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%s\t%s\t%s\n", p.Partition, p.Leader, p.LeaderEpoch,
			joinInts(p.Replicas), joinInts(p.ISR), listed(starts, t.Topic, p.Partition), listed(ends, t.Topic, p.Partition))
	}
	return w.Flush()
}

func topicAlter(c *cluster) *cobra.Command {
	var partitions int
	var configs, deletes []string
	var set map[string]*string
	cmd := &cobra.Command{
		Use:     "alter TOPIC",
		Short:   "Change configs or add partitions",
		Example: "  thermocline topic alter flights --config retention.ms=86400000 --partitions 24",
		Args:    nameOf("topic", "flights"),
		PreRunE: func(*cobra.Command, []string) (err error) {
			if len(configs) == 0 && len(deletes) == 0 && partitions == 0 {
				return errors.New("nothing to change: give --config, --delete-config or --partitions")
			}
			set, err = parseConfigs("--config", configs)
			return err
		},
		RunE: c.run(func(cmd *cobra.Command, adm *kadm.Client, args []string) error {
			if err := alterConfigs(cmd.Context(), adm, args[0], set, deletes); err != nil {
				return err
			}
			if partitions > 0 {
				answers, err := adm.UpdatePartitions(cmd.Context(), partitions, args[0])
				if err != nil {
					return err
				}
				if a := answers[args[0]]; a.Err != nil {
					return fmt.Errorf("topic %s: %w", shown(args[0]), refused(a.Err, a.ErrMessage))
				}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "altered %s\n", args[0])
			return warnOfIdleConfigs(cmd, adm, args[0], set)
		}),
	}
	cmd.Flags().IntVarP(&partitions, "partitions", "p", 0, "new total number of partitions (only upwards)")
	cmd.Flags().StringArrayVarP(&configs, "config", "c", nil, "set key=value; may be repeated")
	cmd.Flags().StringArrayVar(&deletes, "delete-config", nil, "return a config to its default; may be repeated")
	return cmd
}

func alterConfigs(ctx context.Context, adm *kadm.Client, topic string, set map[string]*string, deletes []string) error {
	var changes []kadm.AlterConfig
	for k, v := range set {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: v})
	}
	for _, k := range deletes {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: k})
	}
	if len(changes) == 0 {
		return nil
	}
	answers, err := adm.AlterTopicConfigs(ctx, changes, topic)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if a.Err != nil {
			return fmt.Errorf("topic %s: %w", shown(topic), refused(a.Err, a.ErrMessage))
		}
	}
	return nil
}

func topicDelete(c *cluster) *cobra.Command {
	return &cobra.Command{
		Use:   "delete TOPIC…",
		Short: "Delete topics and their data",
		Args:  namesOf("topic", "flights"),
		RunE: c.run(func(cmd *cobra.Command, adm *kadm.Client, args []string) error {
			answers, err := adm.DeleteTopics(cmd.Context(), args...)
			if err != nil {
				return err
			}
			return each("topic", args, func(name string) error {
				if a := answers[name]; a.Err != nil {
					return refused(a.Err, a.ErrMessage)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "deleted %s\n", name)
				return nil
			})
		}),
	}
}

func topicRoll(c *cluster) *cobra.Command {
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "roll TOPIC",
		Short: "Seal what the brokers hold of a topic, upload it and trim it now",
		Long: `Seal what the brokers hold of a topic, upload it to the object store and trim
it from the brokers now, instead of after tiering.segment.bytes or
tiering.segment.ms. Other topics in the same shards go along.`,
		Args: nameOf("topic", "flights"),
		RunE: c.run(func(cmd *cobra.Command, adm *kadm.Client, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			ends, err := askForRoll(ctx, adm, args[0])
			if err != nil {
				return err
			}
			if !wait {
				fmt.Fprintf(cmd.OutOrStdout(), "asked for a roll of %s\n", args[0])
				return nil
			}
			if err := waitTiered(ctx, adm, args[0], ends); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "rolled %s: all %d partitions are in the store\n", args[0], len(ends[args[0]]))
			return nil
		}),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return once everything is in the store and trimmed")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait, also for partitions whose leader is changing")
	return cmd
}

// askForRoll returns where the topic's partitions ended before it asked. It asks
// again until ctx ends while leaders and the controller are changing: a broker
// that has just died is still named for a moment.
func askForRoll(ctx context.Context, adm *kadm.Client, topic string) (kadm.ListedOffsets, error) {
	ends, err := listOffsetsUntil(ctx, func(ctx context.Context) (kadm.ListedOffsets, error) { return adm.ListEndOffsets(ctx, topic) })
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", shown(topic), refused(err, ""))
	}
	until, _ := ctx.Deadline()
	now := strconv.FormatInt(time.Now().UnixMilli(), 10)
	err = patiently(ctx, until, func() error {
		return alterConfigs(ctx, adm, topic, map[string]*string{rollConfig: &now}, nil)
	})
	if err != nil {
		return nil, fmt.Errorf("asking for a roll (a Thermocline cluster is needed): %w", err)
	}
	return ends, nil
}

// waitTiered polls until every offset below ends is served from the store: the
// earliest local offset (KIP-405's -4) has reached it.
func waitTiered(ctx context.Context, adm *kadm.Client, topic string, ends kadm.ListedOffsets) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	last := int32(-1) // the partition that was behind when the brokers last answered
	for {
		behind := int32(-1)
		local, err := adm.ListOffsetsAfterMilli(ctx, earliestLocal, topic)
		if err == nil {
			err = local.Error()
		}
		if err == nil {
			ends.Each(func(e kadm.ListedOffset) {
				if l, ok := local.Lookup(topic, e.Partition); !ok || l.Offset < e.Offset {
					behind = e.Partition
				}
			})
			if behind < 0 {
				return nil
			}
			last = behind
		}
		select {
		case <-ctx.Done():
			if last < 0 {
				return fmt.Errorf("waiting for %s to be in the store: %w", topic, err)
			}
			return fmt.Errorf("partition %s/%d is not in the store yet: is the store reachable? (see /metrics and the brokers' logs)", topic, last)
		case <-tick.C:
		}
	}
}

// earliestLocal is ListOffsets' special timestamp for the first offset that
// the brokers hold themselves (KIP-405).
const earliestLocal = -4

// parseConfigs reads what was given with a flag, key=value each.
func parseConfigs(flag string, list []string) (map[string]*string, error) {
	set := make(map[string]*string, len(list))
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("write %s key=value, not %q", flag, kv)
		}
		set[k] = &v
	}
	return set, nil
}

// each runs do for each name and joins the errors under their names.
func each(kind string, names []string, do func(string) error) error {
	var errs []error
	for _, n := range names {
		if err := do(n); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", kind, shown(n), err))
		}
	}
	return errors.Join(errs...)
}

func table(out io.Writer, columns ...string) *tabwriter.Writer {
	w := tabwriter.NewWriter(out, 2, 4, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(columns, "\t"))
	return w
}

func joinInts(list []int32) string {
	parts := make([]string, len(list))
	for i, n := range list {
		parts[i] = strconv.Itoa(int(n))
	}
	return strings.Join(parts, ",")
}

func listed(l kadm.ListedOffsets, topic string, partition int32) string {
	o, ok := l.Lookup(topic, partition)
	if !ok || o.Err != nil {
		return "?"
	}
	return strconv.FormatInt(o.Offset, 10)
}
