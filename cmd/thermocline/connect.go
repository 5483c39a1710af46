package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// dialTimeout is how long a tool waits for the first broker to answer before
// it says which addresses it tried.
const dialTimeout = 10 * time.Second

// cluster is how the tools find a cluster: any Kafka-protocol one.
type cluster struct{ bootstrap string }

func (c *cluster) addFlag(cmd *cobra.Command) {
	def := "127.0.0.1:9092"
	if v := os.Getenv("THERMOCLINE_BOOTSTRAP_SERVER"); v != "" {
		def = v
	}
	cmd.PersistentFlags().StringVarP(&c.bootstrap, "bootstrap-server", "b", def,
		"brokers to connect to first, host:port,… (or $THERMOCLINE_BOOTSTRAP_SERVER)")
}

// seeds are the brokers to connect to first.
func (c *cluster) seeds() []string {
	seeds := strings.Split(c.bootstrap, ",")
	for i, s := range seeds {
		if s = strings.TrimSpace(s); !strings.Contains(s, ":") {
			s += ":9092"
		}
		seeds[i] = s
	}
	return seeds
}

// open makes a client without asking whether a broker answers.
func (c *cluster) open(opts ...kgo.Opt) (*kgo.Client, error) {
	opts = append([]kgo.Opt{kgo.SeedBrokers(c.seeds()...), kgo.ClientID("thermocline-cli"), kgo.RetryTimeout(30 * time.Second)}, opts...)
	return kgo.NewClient(opts...)
}

// client connects and proves that a broker answers.
func (c *cluster) client(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	cl, err := c.open(opts...)
	if err != nil {
		return nil, err
	}
	ping, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := cl.Ping(ping); err != nil {
		cl.Close()
		return nil, fmt.Errorf("no broker answers at %s within %v (is the cluster running? name it with -b host:port): %w",
			strings.Join(c.seeds(), ", "), dialTimeout, err)
	}
	return cl, nil
}

// run makes a command of what needs an administrative connection.
func (c *cluster) run(do func(*cobra.Command, *kadm.Client, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		adm, err := c.admin(cmd.Context())
		if err != nil {
			return err
		}
		defer adm.Close()
		return do(cmd, adm, args)
	}
}

func (c *cluster) admin(ctx context.Context) (*kadm.Client, error) {
	cl, err := c.client(ctx)
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(cl), nil
}
