package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"thermocline/localstack/bench"
)

func benchCommand() *cobra.Command {
	var o bench.Options
	var settings []string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure three local brokers beside the machine's own limits",
		Long: `Start three broker processes on this machine, load them, and print a table with
the machine's own limits beside: syncs, loopback, and three bare processes that
only copy, sync and acknowledge, and what each row must reach and aims at. With --peer kafka the same loads run against
three Apache Kafka brokers too (needs Java 17 and Maven).

Everything stays on loopback. Machines are noisy: compare columns of one run.`,
		Args: cobra.NoArgs,
	}
	cache, _ := os.UserCacheDir()
	f := cmd.Flags()
	f.StringVar(&o.Dir, "dir", os.TempDir(), "where the brokers keep their data: on the disk to be measured")
	f.StringVar(&o.BucketDir, "bucket", "", "where the bucket lies (default: in memory)")
	f.StringVar(&o.Peer, "peer", "", "kafka: measure Apache Kafka "+bench.KafkaVersion+" beside")
	f.StringVar(&o.KafkaLibs, "kafka-libs", filepath.Join(cache, "thermocline"), "where Apache Kafka's jars are kept")
	f.DurationVar(&o.Duration, "duration", 0, "of each load (default 20s, with --quick 5s)")
	f.BoolVar(&o.Quick, "quick", false, "a few minutes: short loads, and less of what takes long")
	f.StringArrayVar(&o.Only, "only", nil, "only rows whose name contains this; may be repeated")
	f.StringArrayVar(&settings, "set", nil, "broker setting key=value; may be repeated")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		set, err := parseConfigs("--set", settings)
		if err != nil {
			return err
		}
		o.Settings = map[string]string{}
		for k, v := range set {
			o.Settings[k] = *v
		}
		if o.Binary, err = os.Executable(); err != nil {
			return err
		}
		o.Out = cmd.OutOrStdout()
		return bench.Run(cmd.Context(), o)
	}
	return cmd
}

// bareNodeCommand is one process of the bench's floor.
func bareNodeCommand() *cobra.Command {
	var listen, dir string
	var followers []string
	cmd := &cobra.Command{
		Use:    "bare-node",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.FloorNode(cmd.Context(), listen, dir, followers)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "address")
	cmd.Flags().StringVar(&dir, "dir", ".", "directory of its file")
	cmd.Flags().StringArrayVar(&followers, "follower", nil, "address of a follower; makes this node the leader")
	return cmd
}
