package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"thermocline/cmd/broker"
	"thermocline/cmd/config"
	"thermocline/localstack/etcd"
	"thermocline/metadata"
	etcdstore "thermocline/metadata/etcd"
	"thermocline/tiering/object"
	"thermocline/tiering/object/storeurl"
)

// waitingEvery is how often a first broker says which peers it waits for.
const waitingEvery = 5 * time.Second

func brokerCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run one broker",
		Long: `Run one broker of a cluster. Settings come from a YAML file, the environment
(THERMOCLINE_NODE_ID for node.id) and flags, each winning over the one before;
'thermocline config show' lists them all with their meanings.

A broker stops cleanly on SIGTERM and SIGINT: it hands its leadership over first.`,
		Example: `  thermocline broker --config broker.yaml
  thermocline broker --node.id=1 --data.dir=/var/lib/thermocline \
      --etcd.endpoints=http://etcd1:2379 --store.url='s3://events/prod?region=eu-west-1'`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (YAML)")
	overrides := settingFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := config.Load(file, os.LookupEnv, overrides())
		if err != nil {
			return err
		}
		return runBroker(cmd.Context(), c, newLogger(cmd.ErrOrStderr(), c.LogLevel, c.LogFormat))
	}
	return cmd
}

func runBroker(ctx context.Context, c config.Config, log *slog.Logger) (err error) {
	tuneMemory(c)
	var running atomic.Pointer[broker.Broker]
	admin, err := broker.StartAdmin(c.HTTPListener, func() error {
		if b := running.Load(); b != nil {
			return b.Ready()
		}
		return errors.New("starting")
	}, func() any {
		if b := running.Load(); b != nil {
			return b.Status()
		}
		return broker.Status{Broker: c.NodeID, Ready: "starting"}
	})
	if err != nil {
		return fmt.Errorf("http.listener: %w", err)
	}
	defer closing(&err, func() error { return admin.Close(context.Background()) })
	if err := checkStore(ctx, c.StoreURL); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // when everything is closed, but for what openParts gives up
	p, err := openParts(ctx, cancel, c, log)
	defer closing(&err, p.close)
	if err != nil {
		return err
	}
	store, objects := p.metadata, p.objects
	b, err := broker.Start(ctx, broker.Options{Config: c, Metadata: store, Uploads: objects.Uploads, Cold: objects.Cold, Logger: log})
	if err != nil {
		return err
	}
	defer closing(&err, func() error {
		if err := b.Close(); err != nil {
			return fmt.Errorf("this broker did not stop in good order; nothing acknowledged is lost, its next start recovers from the log: %w", err)
		}
		return nil
	})
	running.Store(b)
	if err := admin.Export(b); err != nil {
		return err
	}
	admin.Page("/tiering", func() any { return b.Tiering() })
	log.Info("broker started", "kafka", b.KafkaAddr(), "http", admin.Addr(), "store", objects.Uploads.String())
	select {
	case <-ctx.Done():
		log.Info("stopping")
		return nil
	case err := <-b.Failed():
		return err
	}
}

// parts are what a broker works with beside its data directory.
type parts struct {
	metadata metadata.Store
	objects  *broker.Stores
	closers  []func() error
}

// openParts opens the object store, whose check takes a dozen requests, while etcd
// is opened, which may have to elect. What is wrong with one ends the start at
// once, by giveUp, whatever the other still waits for. Close the parts also after
// an error.
func openParts(ctx context.Context, giveUp func(), c config.Config, log *slog.Logger) (*parts, error) {
	var p parts
	checked := make(chan error, 1)
	go func() {
		var err error
		if p.objects, err = broker.OpenStores(ctx, c, log); err != nil {
			giveUp()
		}
		checked <- err
	}()
	store, closeStore, err := openMetadata(ctx, c, log)
	if err != nil {
		giveUp()
	} else {
		p.metadata = store
		p.closers = append(p.closers, closeStore)
	}
	wrong := <-checked
	if wrong == nil {
		p.closers = append(p.closers, p.objects.Close)
	}
	if err == nil || errors.Is(err, context.Canceled) && wrong != nil {
		err = wrong // the cause, where one was given up for the other
	}
	return &p, err
}

// close closes the parts, in the reverse order of their use.
func (p *parts) close() error {
	var errs []error
	for _, close := range slices.Backward(p.closers) {
		errs = append(errs, close())
	}
	return errors.Join(errs...)
}

// checkStore finds a wrong URL and missing credentials before etcd, which may
// have to wait for other machines, is begun. It sends no request.
func checkStore(ctx context.Context, url string) error {
	s, err := storeurl.Open(ctx, url, object.Options{})
	if err != nil {
		return fmt.Errorf("store.url: %w", err)
	}
	return object.Close(s)
}

// closing joins the error of a deferred close to the function's own.
func closing(err *error, close func() error) {
	*err = errors.Join(*err, close())
}

func tuneMemory(c config.Config) {
	if c.GCPercent > 0 {
		debug.SetGCPercent(c.GCPercent)
	}
	if c.MemoryLimit > 0 {
		debug.SetMemoryLimit(int64(c.MemoryLimit))
	}
}

// openMetadata connects to the operator's etcd, or runs this broker's member
// of the embedded one.
func openMetadata(ctx context.Context, c config.Config, log *slog.Logger) (metadata.Store, func() error, error) {
	if len(c.EtcdEndpoints) > 0 {
		s, err := etcdstore.Open(etcdstore.Config{Endpoints: c.EtcdEndpoints})
		if err != nil {
			return nil, nil, fmt.Errorf("etcd.endpoints: %w", err)
		}
		return s, s.Close, nil
	}
	server, err := startMember(ctx, c, log)
	if err != nil {
		return nil, nil, err
	}
	s := etcdstore.New(server.Client(), etcdstore.Config{})
	return s, func() error { return errors.Join(s.Close(), server.Close()) }, nil
}

func startMember(ctx context.Context, c config.Config, log *slog.Logger) (*etcd.Server, error) {
	members, err := c.InitialCluster()
	if err != nil {
		return nil, err
	}
	peers := map[string]string{}
	mine := ""
	for _, m := range members {
		name := fmt.Sprintf("etcd%d", m.Node)
		peers[name] = hostOf(m.PeerURL)
		if m.Node == c.NodeID {
			mine = name
		}
	}
	if mine == "" {
		return nil, fmt.Errorf("node.id %d is not in etcd.initial.cluster (%s): add it, or write etcd.endpoints with those members' client URLs", c.NodeID, c.EtcdInitialCluster)
	}
	server, err := etcd.Start(ctx, etcd.Config{
		Name: mine, DataDir: filepath.Join(c.DataDir, "etcd"), ClientAddr: hostOf(c.EtcdClientURL),
		PeerAddr: hostOf(c.EtcdPeerURL), InitialCluster: peers, Logger: calmed(ctx, log),
	})
	if err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	for {
		wait, cancel := context.WithTimeout(ctx, waitingEvery)
		err := server.WaitReady(wait)
		cancel()
		if err == nil {
			return server, nil
		}
		if ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), server.Close())
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return nil, errors.Join(err, server.Close())
		}
		sayWhoIsMissing(log, server.Missing(ctx))
	}
}

// sayWhoIsMissing tells what a member waits for, given whom it cannot reach.
func sayWhoIsMissing(log *slog.Logger, missing []string) {
	if len(missing) == 0 {
		log.Info("waiting for the etcd members to elect a leader: all of them can be reached")
		return
	}
	log.Info("waiting for a majority of the etcd members", "missing", strings.Join(missing, ", "))
}
