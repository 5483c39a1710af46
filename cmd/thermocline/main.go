// Command thermocline is the whole of Thermocline in one binary: the broker,
// the local stack, and the tools that speak to any Kafka-protocol cluster.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
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
  thermocline inspect …                 look into every file and object written`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(topicCommand(), produceCommand(), consumeCommand(), configCommand(), brokerCommand(), etcdCommand(), s3Command(), devCommand(), inspectCommand(), benchCommand(), bareNodeCommand(), groupCommand())
	return cmd
}
