// Command thermocline is the whole of Thermocline in one binary: the broker,
// the local stack, and the tools that speak to any Kafka-protocol cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "thermocline: %v\n", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "thermocline",
		Short: "A distributed log that speaks the Kafka protocol and keeps its data in object storage",
		Long: `Thermocline is a durable message queue and event stream. Kafka clients use it
unchanged. Records are fsynced by a quorum of brokers before they are
acknowledged, and roll to S3-compatible storage, from where they can be read
for as long as retention says.

  thermocline dev                       try it: everything in one process
  thermocline broker --config b.yaml    run one broker of a cluster
  thermocline topic create flights      work with topics, on any Kafka cluster
  thermocline produce flights < file    publish lines
  thermocline consume flights           read them
  thermocline group lag                 how far consumer groups are behind
  thermocline inspect …                 look into every file and object written`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(topicCommand(), produceCommand(), consumeCommand(), configCommand(), brokerCommand(), etcdCommand(), s3Command(), devCommand(), inspectCommand(), benchCommand(), bareNodeCommand(), groupCommand())
	cmd.SetFlagErrorFunc(plainFlagError)
	refuseUnknown(cmd)
	return cmd
}

// refuseUnknown makes every command that only holds others say what it does
// not know. The library prints the help instead, and succeeds.
func refuseUnknown(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		refuseUnknown(c)
	}
	if !cmd.HasSubCommands() || cmd.Runnable() {
		return
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		hint := ""
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = fmt.Sprintf(" (did you mean %s?)", strings.Join(near, " or "))
		}
		return fmt.Errorf("unknown command %q for %q%s: see %s --help", args[0], cmd.CommandPath(), hint, cmd.CommandPath())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}
