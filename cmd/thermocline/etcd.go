package main

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"thermocline/localstack/etcd"
)

// etcdCommand runs a lone etcd member: for tests and trials in which etcd must
// be a process of its own. Production uses the one embedded in the brokers, or
// an etcd of the operator's.
func etcdCommand() *cobra.Command {
	var dir, client, peer string
	cmd := &cobra.Command{
		Use:   "etcd",
		Short: "Run a single etcd member by itself, for trials",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := newLogger(cmd.ErrOrStderr(), "warn", "text")
			s, err := etcd.Start(cmd.Context(), etcd.Config{DataDir: dir, ClientAddr: hostOf(client), PeerAddr: hostOf(peer), Logger: log})
			if err != nil {
				return err
			}
			if err := s.WaitReady(cmd.Context()); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "etcd serves on http://%s\n", s.Endpoint())
			select {
			case <-cmd.Context().Done():
				return s.Close()
			case err := <-s.Err():
				return err
			}
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "./data/etcd", "data directory")
	cmd.Flags().StringVar(&client, "client", "http://127.0.0.1:2379", "where clients connect")
	cmd.Flags().StringVar(&peer, "peer", "http://127.0.0.1:2380", "where other members would connect")
	return cmd
}

// hostOf takes http://host:port or host:port.
func hostOf(s string) string {
	if u, err := url.Parse(s); err == nil && u.Host != "" {
		return u.Host
	}
	return s
}
