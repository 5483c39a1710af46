package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"thermocline/cmd/broker"
	"thermocline/cmd/config"
	"thermocline/localstack/etcd"
	"thermocline/localstack/s3"
	etcdstore "thermocline/metadata/etcd"
	"thermocline/wal/vfs"
)

// devOptions shape the local stack. Ports follow from the first of each kind.
type devOptions struct {
	dir       string
	brokers   int
	fresh     bool
	kafkaPort int
	httpAddr  string
	s3Addr    string
	verbose   bool
	settings  []string
}

func devCommand() *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run the whole local stack in this process: etcd, an S3 store and three brokers",
		Long: `Run the whole local stack in this process: etcd, an S3 store that keeps its data
on disk, and three brokers. Everything listens on loopback. Ctrl-C stops it; the
next start on the same directory finds everything as it was, also after a crash.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "data-dir", "./data", "where everything is kept")
	f.IntVar(&o.brokers, "brokers", 3, "number of brokers: 1, or 3 and more")
	f.BoolVar(&o.fresh, "fresh", false, "remove what an earlier run left in the data directory first")
	f.IntVar(&o.kafkaPort, "port", 9092, "Kafka port of the first broker; the others follow")
	f.StringVar(&o.httpAddr, "http", "127.0.0.1:9644", "metrics, health and profiles of all brokers")
	f.StringVar(&o.s3Addr, "s3", "127.0.0.1:9645", "the S3 store")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show the brokers' logs")
	f.StringArrayVar(&o.settings, "set", nil, "broker setting key=value; may be repeated")
	return cmd
}

// devMark is the file by which --fresh knows a directory of dev's.
const devMark = "thermocline-dev"

func (o *devOptions) run(ctx context.Context, out, errOut io.Writer) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	// The S3 server's library changes the process's working directory.
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	lock, err := o.takeDirectory()
	if err != nil {
		return err
	}
	defer closing(&err, lock.Close)
	if err := o.portsFree(); err != nil {
		return err
	}
	level := "warn"
	if o.verbose {
		level = "info"
	}
	var least slog.LevelVar
	least.Set(slog.LevelDebug)
	log := slog.New(floor{newLogger(errOut, level, "text").Handler(), &least})
	stack := &devStack{o: o, log: log}
	defer closing(&err, stack.close)
	start := time.Now()
	if err := stack.start(ctx); err != nil {
		return err
	}
	stack.welcome(out, time.Since(start))
	select {
	case <-ctx.Done():
		fmt.Fprintln(out, "\nstopping")
		if !o.verbose {
			least.Set(slog.LevelError) // that brokers miss each other is no news now
		}
		return nil
	case err := <-stack.failed:
		return err
	}
}

// check reports what is wrong with the flags, before anything is touched.
func (o *devOptions) check() error {
	if o.brokers != 1 && o.brokers < 3 || o.brokers > maxDevBrokers {
		return fmt.Errorf("--brokers is 1, or 3 to %d, not %d: a majority of two is both of them, so that two brokers serve less often than one", maxDevBrokers, o.brokers)
	}
	if o.kafkaPort < 1 || o.kafkaPort+o.brokers-1 > 65535 {
		return fmt.Errorf("--port is the first of %d ports from 1 to 65535, not %d", o.brokers, o.kafkaPort)
	}
	for _, a := range []struct{ flag, addr string }{{"--http", o.httpAddr}, {"--s3", o.s3Addr}} {
		if _, _, err := net.SplitHostPort(a.addr); err != nil {
			return fmt.Errorf("%s is host:port, not %q", a.flag, a.addr)
		}
	}
	_, err := o.config(0, "memory:flags", "127.0.0.1:0")
	return err
}

// maxDevBrokers bounds what one process is asked to be.
const maxDevBrokers = 9

// taken says which flag to use when something else has a port.
func taken(flag, what string, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) && !strings.Contains(err.Error(), "address already in use") {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w: is another local stack running? Stop it, or give this one ports of its own with --port, --http and --s3 (here it is %s)", what, err, flag)
}

// portsFree tries the ports before anything is started, so that a stack whose
// ports are taken does not begin to start.
func (o *devOptions) portsFree() error {
	if err := tryListen(o.s3Addr); err != nil {
		return taken("--s3", "the S3 store", err)
	}
	if err := tryListen(o.httpAddr); err != nil {
		return taken("--http", "the HTTP listener", err)
	}
	for i := range o.brokers {
		if err := tryListen(fmt.Sprintf("127.0.0.1:%d", o.kafkaPort+i)); err != nil {
			return taken("--port", fmt.Sprintf("Kafka port of broker %d", i+1), err)
		}
	}
	return nil
}

func tryListen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// takeDirectory makes, empties (--fresh) and locks the data directory. A
// directory with other things in it is never emptied.
func (o *devOptions) takeDirectory() (io.Closer, error) {
	mark := filepath.Join(o.dir, devMark)
	entries, err := os.ReadDir(o.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	_, markErr := os.Stat(mark)
	if len(entries) > 0 && markErr != nil {
		return nil, fmt.Errorf("%s holds files that are not of a local stack: name an empty or new directory with --data-dir", o.dir)
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(mark, []byte("This directory belongs to `thermocline dev`.\n"), 0o644); err != nil {
		return nil, err
	}
	lock, err := lockWithin(o.dir, lockPatience)
	if err != nil {
		return nil, fmt.Errorf("%s is in use by another local stack: stop that one, or name another --data-dir (%w)", o.dir, err)
	}
	if o.fresh {
		for _, e := range entries {
			if e.Name() != devMark && e.Name() != "lock" {
				if err := os.RemoveAll(filepath.Join(o.dir, e.Name())); err != nil {
					return nil, errors.Join(err, lock.Close())
				}
			}
		}
	}
	return lock, nil
}

// lockPatience is how long dev waits for the lock of a stack that was just
// killed: its process may take a moment to end.
const lockPatience = 2 * time.Second

func lockWithin(dir string, within time.Duration) (io.Closer, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(within); ; <-tick.C {
		lock, err := vfs.OS(dir).Lock("lock")
		if err == nil || !time.Now().Before(deadline) {
			return lock, err
		}
	}
}

// devStack is what dev runs, in the order of its start.
type devStack struct {
	o       *devOptions
	log     *slog.Logger
	etcd    *etcd.Server
	store   *etcdstore.Store
	s3      *s3.Server
	secret  string
	objects []*broker.Stores
	brokers []*broker.Broker
	admin   *broker.Admin
	failed  chan error
}

func (s *devStack) start(ctx context.Context) error {
	var err error
	s.failed = make(chan error, 1)
	if s.etcd, err = etcd.Start(ctx, etcd.Config{DataDir: filepath.Join(s.o.dir, "etcd"), Logger: onlyErrors(s.log)}); err != nil {
		return err
	}
	if err = s.etcd.WaitReady(ctx); err != nil {
		return err
	}
	s.store = etcdstore.New(s.etcd.Client(), etcdstore.Config{})
	if s.secret, err = devSecret(filepath.Join(s.o.dir, "s3-secret")); err != nil {
		return err
	}
	if s.s3, err = s3.Start(ctx, s3.Config{Dir: filepath.Join(s.o.dir, "s3"), Addr: s.o.s3Addr, AccessKey: "thermocline", SecretKey: s.secret}); err != nil {
		return taken("--s3", "the S3 store", err)
	}
	s.admin, err = broker.StartAdmin(s.o.httpAddr, s.ready, s.status)
	if err != nil {
		return taken("--http", "the HTTP listener", err)
	}
	for i := range s.o.brokers {
		if err := s.startBroker(ctx, i); err != nil {
			return err
		}
	}
	return s.waitReady(ctx)
}

func (s *devStack) startBroker(ctx context.Context, i int) error {
	peer, err := freeLoopback()
	if err != nil {
		return err
	}
	c, err := s.o.config(i, fmt.Sprintf("minio://thermocline:%s@%s", s.secret, s.bucketURL()), peer)
	if err != nil {
		return err
	}
	objects, err := broker.OpenStores(ctx, c, s.log)
	if err != nil {
		return err
	}
	s.objects = append(s.objects, objects)
	b, err := broker.Start(ctx, broker.Options{Config: c, Metadata: s.store, Uploads: objects.Uploads, Cold: objects.Cold, Logger: s.log})
	if err != nil {
		return err
	}
	s.brokers = append(s.brokers, b)
	go func() { // ends with the process: Failed is never closed
		if err := <-b.Failed(); err != nil {
			select {
			case s.failed <- err:
			default:
			}
		}
	}()
	return s.admin.Export(b)
}

// bucketURL is where the brokers' objects are, without scheme and credentials.
func (s *devStack) bucketURL() string {
	return fmt.Sprintf("%s/%s/cluster", s.s3.Addr(), s.s3.Bucket())
}

// config is what the broker of number i runs with.
func (o *devOptions) config(i int, store, peer string) (config.Config, error) {
	set := map[string]string{
		"node.id":          fmt.Sprint(i + 1),
		"listeners":        fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", o.kafkaPort+i),
		"peer.listener":    peer,
		"data.dir":         filepath.Join(o.dir, fmt.Sprintf("broker%d", i+1)),
		"cluster.brokers":  fmt.Sprint(o.brokers),
		"shard.replicas":   fmt.Sprint(min(3, o.brokers)),
		"etcd.endpoints":   "in-process",
		"store.url":        store,
		"wal.max.bytes":    "512MiB",
		"tail.cache.bytes": "64MiB",
		"cold.cache.bytes": "64MiB",
	}
	extra, err := parseConfigs("--set", o.settings)
	if err != nil {
		return config.Config{}, err
	}
	for k, v := range extra {
		set[k] = *v
	}
	return config.Load("", func(string) (string, bool) { return "", false }, set)
}

func freeLoopback() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// devSecret is drawn once for each data directory and readable by its owner
// only, so that other users of the machine cannot read the bucket.
func devSecret(path string) (string, error) {
	if raw, err := os.ReadFile(path); err == nil && len(raw) > 0 {
		return strings.TrimSpace(string(raw)), nil
	}
	secret := rand.Text()
	return secret, os.WriteFile(path, []byte(secret+"\n"), 0o600)
}

func (s *devStack) ready() error {
	if len(s.brokers) < s.o.brokers {
		return errors.New("starting")
	}
	for _, b := range s.brokers {
		if err := b.Ready(); err != nil {
			return err
		}
	}
	return nil
}

func (s *devStack) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.ready()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the brokers did not become ready: %w", err)
		case <-tick.C:
		}
	}
}

func (s *devStack) status() any {
	var all []broker.Status
	for _, b := range s.brokers {
		all = append(all, b.Status())
	}
	return all
}

func (s *devStack) welcome(out io.Writer, took time.Duration) {
	var addrs []string
	for _, b := range s.brokers {
		addrs = append(addrs, b.KafkaAddr())
	}
	fmt.Fprintf(out, `Thermocline is ready (%[1]v).

  Kafka     %[2]s
  store     minio://%[3]s (access key thermocline, secret in %[4]s)
  metrics   http://%[5]s/metrics, /readyz, /status, /debug/pprof
  data      %[6]s

Try:
  thermocline topic create hello --partitions 3
  seq 1000 | thermocline produce hello
  thermocline consume hello --until-end
  thermocline topic roll hello --wait
  export MINIO_ACCESS_KEY=thermocline MINIO_SECRET_KEY=$(cat %[4]s)
  thermocline inspect manifest --store minio://%[3]s

Ctrl-C stops it; the data stays.
`, took.Round(time.Millisecond), strings.Join(addrs, ","), s.bucketURL(), filepath.Join(s.o.dir, "s3-secret"), s.admin.Addr(), s.o.dir)
}

// close stops everything in the reverse order of the start. Brokers go
// together, since the last one has nobody to hand its leadership to.
func (s *devStack) close() error {
	var errs []error
	results := make(chan error, len(s.brokers))
	for _, b := range s.brokers {
		go func() { results <- b.Close() }()
	}
	for range s.brokers {
		errs = append(errs, <-results)
	}
	for _, o := range s.objects {
		errs = append(errs, o.Close())
	}
	if s.admin != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		errs = append(errs, s.admin.Close(ctx))
	}
	if s.s3 != nil {
		errs = append(errs, s.s3.Close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.etcd != nil {
		errs = append(errs, s.etcd.Close())
	}
	return errors.Join(errs...)
}
