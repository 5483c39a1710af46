// Package processes runs a cluster of real processes on this machine for
// tests, benchmarks and the demo: brokers, an object store and, if asked, an
// etcd of its own, all on loopback, each ended by the id that started it.
package processes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Options shape a cluster.
type Options struct {
	// Binary is the thermocline executable.
	Binary string
	// Dir holds data directories and logs.
	Dir string
	// StoreDir holds the bucket (default: below Dir).
	StoreDir string
	// Brokers is how many to start (default 3).
	Brokers int
	// OwnEtcd runs etcd as a process of its own instead of inside the brokers.
	OwnEtcd bool
	// Settings are broker settings for all brokers, by name.
	Settings map[string]string
	// Of are settings of single brokers, by name, from the first broker on: what
	// they have beyond Settings or instead.
	Of []map[string]string
	// StoreURL replaces the local S3 process by a store elsewhere.
	StoreURL string
	// Env is added to every process's environment.
	Env []string
}

// Credentials of the local S3 process.
const (
	accessKey = "thermocline"
	secretKey = "thermocline-local"
	bucket    = "thermocline"
)

// Cluster is a running cluster.
type Cluster struct {
	options Options
	Brokers []*Process
	Store   *Process
	Etcd    *Process
	kafka   []int
	http    []int
	peers   []int
	etcd    []int // client port, peer port per member
	s3      int
}

// Start starts everything and returns once every broker answers and has
// registered, or ctx ends; then it stops what it started.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Brokers == 0 {
		o.Brokers = 3
	}
	if u := o.Settings["store.url"]; u != "" {
		o.StoreURL = u
	}
	if o.StoreDir == "" {
		o.StoreDir = filepath.Join(o.Dir, "bucket")
	}
	c := &Cluster{options: o}
	if err := c.choosePorts(); err != nil {
		return nil, err
	}
	if err := c.startAll(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) startAll(ctx context.Context) error {
	if c.options.StoreURL == "" {
		if err := c.startStore(ctx); err != nil {
			return err
		}
	}
	if c.options.OwnEtcd {
		if err := c.startEtcd(ctx); err != nil {
			return err
		}
	}
	for i := range c.options.Brokers {
		p, err := c.newBroker(i)
		if err != nil {
			return err
		}
		c.Brokers = append(c.Brokers, p)
	}
	return c.WaitReady(ctx)
}

// Ports are drawn below those that the kernel gives to outgoing connections,
// so that nobody else's connection can sit on one while a broker restarts.
const portMin, portMax = 10_000, 30_000

// choosePorts picks free ports; they stay the same over restarts.
func (c *Cluster) choosePorts() error {
	n := c.options.Brokers*5 + 3
	var ports []int
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	for tries := 0; len(ports) < n; tries++ {
		port := portMin + rand.IntN(portMax-portMin)
		l, err := net.Listen("tcp", local(port))
		if err != nil {
			if tries > 100*n {
				return fmt.Errorf("processes: no free port: %w", err)
			}
			continue
		}
		listeners = append(listeners, l)
		ports = append(ports, port)
	}
	b := c.options.Brokers
	c.kafka, c.http, c.peers = ports[:b], ports[b:2*b], ports[2*b:3*b]
	c.etcd, c.s3 = ports[3*b:5*b+2], ports[5*b+2]
	return nil
}

func (c *Cluster) startStore(ctx context.Context) error {
	p, err := start("s3", c.options.Binary, c.options.Dir, c.options.Env,
		"s3", "--dir", c.options.StoreDir, "--listen", local(c.s3), "--access-key", accessKey, "--secret-key", secretKey, "--bucket", bucket)
	if err != nil {
		return err
	}
	c.Store = p
	return waitTCP(ctx, p, local(c.s3))
}

// RestartStore starts the store process again after Kill.
func (c *Cluster) RestartStore(ctx context.Context) error { return c.startStore(ctx) }

func (c *Cluster) startEtcd(ctx context.Context) error {
	port := c.etcd[len(c.etcd)-2]
	p, err := start("etcd", c.options.Binary, c.options.Dir, c.options.Env,
		"etcd", "--dir", filepath.Join(c.options.Dir, "etcd"), "--client", "http://"+local(port), "--peer", "http://"+local(c.etcd[len(c.etcd)-1]))
	if err != nil {
		return err
	}
	c.Etcd = p
	return waitTCP(ctx, p, local(port))
}

// RestartEtcd starts the etcd process again after Kill.
func (c *Cluster) RestartEtcd(ctx context.Context) error { return c.startEtcd(ctx) }

func (c *Cluster) newBroker(i int) (*Process, error) {
	args := []string{"broker"}
	for k, v := range c.settings(i) {
		args = append(args, "--"+k+"="+v)
	}
	env := append([]string{"AWS_ACCESS_KEY_ID=" + accessKey, "AWS_SECRET_ACCESS_KEY=" + secretKey}, c.options.Env...)
	return start(fmt.Sprintf("broker%d", i+1), c.options.Binary, c.options.Dir, env, args...)
}

func (c *Cluster) settings(i int) map[string]string {
	s := map[string]string{
		"node.id":         strconv.Itoa(i + 1),
		"listeners":       "PLAINTEXT://" + local(c.kafka[i]),
		"peer.listener":   local(c.peers[i]),
		"http.listener":   local(c.http[i]),
		"data.dir":        c.DataDir(i),
		"cluster.brokers": strconv.Itoa(c.options.Brokers),
		"store.url":       c.storeURL(),
		"shard.replicas":  strconv.Itoa(min(3, c.options.Brokers)),
		"wal.max.bytes":   "512MiB",
	}
	if c.options.OwnEtcd {
		s["etcd.endpoints"] = "http://" + local(c.etcd[len(c.etcd)-2])
	} else {
		var members []string
		for m := range c.options.Brokers {
			members = append(members, fmt.Sprintf("%d=http://%s", m+1, local(c.etcd[2*m+1])))
		}
		s["etcd.initial.cluster"] = strings.Join(members, ",")
		s["etcd.listen.client"] = "http://" + local(c.etcd[2*i])
		s["etcd.listen.peer"] = "http://" + local(c.etcd[2*i+1])
	}
	maps.Copy(s, c.options.Settings)
	if i < len(c.options.Of) {
		maps.Copy(s, c.options.Of[i])
	}
	return s
}

func (c *Cluster) storeURL() string {
	if c.options.StoreURL != "" {
		return c.options.StoreURL
	}
	return fmt.Sprintf("s3://%s/cluster?region=us-east-1&endpoint=http://%s", bucket, local(c.s3))
}

// StoreEndpoint is the local S3 process's address.
func (c *Cluster) StoreEndpoint() string { return local(c.s3) }

// DataDir is broker i's data directory.
func (c *Cluster) DataDir(i int) string {
	return filepath.Join(c.options.Dir, fmt.Sprintf("broker%d", i+1), "data")
}

// Bootstrap lists the Kafka addresses of all brokers.
func (c *Cluster) Bootstrap() []string {
	out := make([]string, len(c.kafka))
	for i, p := range c.kafka {
		out[i] = local(p)
	}
	return out
}

// HTTP is broker i's HTTP address.
func (c *Cluster) HTTP(i int) string { return "http://" + local(c.http[i]) }

// RestartBroker starts broker i again on its data directory after Kill.
func (c *Cluster) RestartBroker(i int) error {
	p, err := c.newBroker(i)
	if err != nil {
		return err
	}
	c.Brokers[i] = p
	return nil
}

// WaitReady waits until every broker is registered with every other one.
func (c *Cluster) WaitReady(ctx context.Context) error {
	for i := range c.Brokers {
		if err := c.waitBroker(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) waitBroker(ctx context.Context, i int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(local(c.kafka[i])), kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer cl.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{}
		resp, err := req.RequestWith(ctx, cl)
		if err == nil && len(resp.Brokers) == len(c.Brokers) {
			return nil
		}
		if err := c.ended(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes: %s is not ready (see %s): %w", c.Brokers[i].Name, c.Brokers[i].LogFile, ctx.Err())
		case <-tick.C:
		}
	}
}

// ended tells which broker is not running; it is never ready without.
func (c *Cluster) ended() error {
	for _, b := range c.Brokers {
		select {
		case <-b.Done():
			return fmt.Errorf("processes: %s ended early: %w", b.Name, b.failure())
		default:
		}
	}
	return nil
}

// Close ends every process: gracefully, then, after a while, for good.
func (c *Cluster) Close() error {
	var errs []error
	for _, p := range c.Brokers {
		p.terminate()
	}
	for _, p := range c.Brokers {
		errs = append(errs, p.Stop())
	}
	for _, p := range []*Process{c.Etcd, c.Store} {
		if p != nil {
			errs = append(errs, p.Stop())
		}
	}
	return errors.Join(errs...)
}

func local(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }
