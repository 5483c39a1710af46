package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"thermocline/localstack/s3"
)

// s3Command serves a directory as an S3 bucket on this machine.
func s3Command() *cobra.Command {
	var c s3.Config
	cmd := &cobra.Command{
		Use:   "s3",
		Short: "Serve a directory as an S3 bucket on loopback, for trials",
		Long: `Serve a directory as an S3 bucket, for trials and tests on one machine. What it
acknowledges is fsynced. Production uses MinIO, AWS or another S3.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := s3.Start(cmd.Context(), c)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "bucket %s on %s\n", server.Bucket(), server.Endpoint())
			select {
			case <-cmd.Context().Done():
			case <-server.Done(): // not by our will: Close tells why
			}
			return server.Close()
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Dir, "dir", "./data/s3", "directory of the data")
	f.StringVar(&c.Addr, "listen", "127.0.0.1:9645", "where clients connect")
	f.StringVar(&c.AccessKey, "access-key", "", "access key (default: thermocline)")
	f.StringVar(&c.SecretKey, "secret-key", "", "secret key (default: a random one)")
	f.StringVar(&c.Bucket, "bucket", "thermocline", "bucket to create")
	return cmd
}
