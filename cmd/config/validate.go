package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Smallest and largest values that make sense; each error names them.
const (
	walFiles        = 8 // the log needs that many files: reserves, and room to recycle
	minWALBytes     = walFiles * minWALFileBytes
	minWALFileBytes = 1 << 20
	minSegmentBytes = 64 << 10
	maxSegmentBytes = 1 << 30
)

// Validate checks each setting and the rules between them. It returns every
// problem, each with what to write instead.
func (c *Config) Validate() []error {
	var p problems
	if c.NodeID < 0 {
		p.add("node.id is missing: give each broker a number of its own, such as 1")
	}
	if _, _, err := c.Listener(); err != nil {
		p.add("listeners: %v", err)
	}
	if c.AdvertisedListeners != "" {
		if _, _, err := parseListener(c.AdvertisedListeners); err != nil {
			p.add("advertised.listeners: %v", err)
		}
	}
	for _, a := range []struct{ key, value string }{{"peer.listener", c.PeerListener}, {"http.listener", c.HTTPListener}, {"peer.advertised", c.PeerAdvertised}} {
		if a.value == "" && a.key != "peer.listener" {
			continue
		}
		if _, _, err := net.SplitHostPort(a.value); err != nil {
			p.add("%s: write host:port, not %q", a.key, a.value)
		}
	}
	if c.DataDir == "" {
		p.add("data.dir is empty: name a directory on a local disk")
	}
	c.validateCluster(&p)
	c.validateSizes(&p)
	c.validateWords(&p)
	return p
}

type problems []error

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

func (c *Config) validateCluster(p *problems) {
	switch c.ShardReplicas {
	case 1, 3, 5:
	default:
		p.add("shard.replicas is %d: write 3 (or 5; 1 keeps no second copy)", c.ShardReplicas)
	}
	if c.ClusterBrokers < 1 {
		p.add("cluster.brokers is %d: write how many brokers the cluster starts with, such as 3", c.ClusterBrokers)
	}
	if c.ShardReplicas > c.ClusterBrokers {
		p.add("shard.replicas is %d with cluster.brokers %d: each replica needs a broker of its own; raise cluster.brokers or write shard.replicas: 1", c.ShardReplicas, c.ClusterBrokers)
	}
	if c.ShardsPerBroker < 1 || c.ShardsPerBroker > 64 {
		p.add("shards.per.broker is %d: write a number from 1 to 64", c.ShardsPerBroker)
	}
	if c.ReplicationFactor > c.ShardReplicas {
		p.add("default.replication.factor is %d, above shard.replicas %d: write at most that", c.ReplicationFactor, c.ShardReplicas)
	}
	if len(c.EtcdEndpoints) == 0 && c.EtcdInitialCluster == "" {
		p.add("no etcd: write etcd.endpoints for one of your own, or etcd.initial.cluster (%d=http://thishost:2380,…) to embed it", max(c.NodeID, 1))
	}
	if c.EtcdInitialCluster != "" && len(c.EtcdEndpoints) == 0 {
		if _, err := c.InitialCluster(); err != nil {
			p.add("etcd.initial.cluster: %v", err)
		}
	}
	if c.StoreURL == "" {
		p.add("store.url is missing: write s3://bucket/prefix?region=…, minio://host:port/bucket/prefix or file:///directory")
	} else if u, err := url.Parse(c.StoreURL); err != nil || u.Scheme == "" {
		p.add("store.url: write s3://…, minio://… or file:///…, not %q", redact(c.StoreURL))
	}
}

// redact drops user info from a URL that could not be read, so that a secret
// is never echoed.
func redact(u string) string {
	if i := strings.LastIndexByte(u, '@'); i >= 0 {
		return "…" + u[i:]
	}
	return u
}

func (c *Config) validateSizes(p *problems) {
	if c.WALFileBytes != 0 && c.WALFileBytes < minWALFileBytes {
		p.add("wal.file.bytes is %v: write at least %v", c.WALFileBytes, Bytes(minWALFileBytes))
	}
	if least := max(Bytes(minWALBytes), walFiles*c.WALFileBytes); c.WALMaxBytes != 0 && c.WALMaxBytes < least {
		p.add("wal.max.bytes is %v: write at least %v (eight files of wal.file.bytes), or 0 for a tenth of the volume", c.WALMaxBytes, least)
	}
	if c.SegmentBytes < minSegmentBytes || c.SegmentBytes > maxSegmentBytes {
		p.add("tiering.segment.bytes is %v: write a size from %v to %v", c.SegmentBytes, Bytes(minSegmentBytes), Bytes(maxSegmentBytes))
	}
	if c.SegmentMaxAge < 100*time.Millisecond {
		p.add("tiering.segment.ms is %v: write at least 100ms", c.SegmentMaxAge)
	}
	if c.MessageMaxBytes < 1<<10 || c.MessageMaxBytes > c.RequestMaxBytes {
		p.add("message.max.bytes is %v: write a size from 1KiB to socket.request.max.bytes (%v)", c.MessageMaxBytes, c.RequestMaxBytes)
	}
	if c.QueuedMaxBytes < c.RequestMaxBytes {
		p.add("queued.max.request.bytes is %v, below socket.request.max.bytes %v: one request must fit", c.QueuedMaxBytes, c.RequestMaxBytes)
	}
	if c.RequestMaxBytes > 1<<30 {
		p.add("socket.request.max.bytes is %v: write at most 1GiB", c.RequestMaxBytes)
	}
	if c.ColdConns < 1 || c.ColdConns > 1024 {
		p.add("cold.connections is %d: write a number from 1 to 1024", c.ColdConns)
	}
	if c.NumPartitions < 1 || c.NumPartitions > 10000 {
		p.add("num.partitions is %d: write a number from 1 to 10000", c.NumPartitions)
	}
	if c.MaxConnections < 1 {
		p.add("max.connections is %d: write at least 1", c.MaxConnections)
	}
}

func (c *Config) validateWords(p *problems) {
	switch c.AckPolicy {
	case "quorum":
	case "insync":
		p.add("ack.policy: insync is not built yet: write quorum")
	default:
		p.add("ack.policy is %q: write quorum", c.AckPolicy)
	}
	switch c.LogLevel {
	case "debug", "info", "warn", "error":
	default:
		p.add("log.level is %q: write debug, info, warn or error", c.LogLevel)
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		p.add("log.format is %q: write text or json", c.LogFormat)
	}
}

// Listener is the Kafka listener's host and port.
func (c *Config) Listener() (string, int32, error) { return parseListener(c.Listeners) }

// parseListener reads NAME://host:port. Only PLAINTEXT exists so far.
func parseListener(s string) (string, int32, error) {
	if strings.Contains(s, ",") {
		return "", 0, fmt.Errorf("one listener only so far, not %q", s)
	}
	name, addr, ok := strings.Cut(s, "://")
	if !ok {
		return "", 0, fmt.Errorf("write PLAINTEXT://host:port, not %q", s)
	}
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("write PLAINTEXT://host:port, not %q", s)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		err = fmt.Errorf("the port of %q is not a number from 0 to 65535", s)
	}
	switch plaintext := name == "PLAINTEXT"; {
	case !plaintext && err != nil:
		return "", 0, fmt.Errorf("only PLAINTEXT is built so far, not %s; and %w", name, err)
	case !plaintext:
		return "", 0, fmt.Errorf("only PLAINTEXT is built so far, not %s", name)
	case err != nil:
		return "", 0, err
	}
	return host, int32(port), nil
}

// Member is one member of the embedded etcd.
type Member struct {
	Node    int32
	PeerURL string
}

// InitialCluster reads etcd.initial.cluster.
func (c *Config) InitialCluster() ([]Member, error) {
	var members []Member
	for part := range strings.SplitSeq(c.EtcdInitialCluster, ",") {
		id, peer, ok := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.ParseInt(id, 10, 32)
		if !ok || err != nil || n < 0 {
			return nil, fmt.Errorf("write node.id=http://host:2380 for each member, not %q", part)
		}
		if u, err := url.Parse(peer); err != nil || u.Host == "" {
			return nil, fmt.Errorf("member %d: write a URL such as http://host:2380, not %q", n, peer)
		}
		for _, m := range members {
			if m.Node == int32(n) {
				return nil, fmt.Errorf("member %d is named twice", n)
			}
		}
		members = append(members, Member{Node: int32(n), PeerURL: peer})
	}
	if len(members) == 0 {
		return nil, errors.New("name at least one member")
	}
	return members, nil
}

// Advertised is the host and port that clients are told.
func (c *Config) Advertised(hostname string) (string, int32) {
	if c.AdvertisedListeners != "" {
		host, port, _ := parseListener(c.AdvertisedListeners)
		return host, port
	}
	host, port, _ := c.Listener()
	return orHostname(host, hostname), port
}

// PeerAddr is the host:port that other brokers are told.
func (c *Config) PeerAddr(hostname string) string {
	if c.PeerAdvertised != "" {
		return c.PeerAdvertised
	}
	host, port, _ := net.SplitHostPort(c.PeerListener)
	return net.JoinHostPort(orHostname(host, hostname), port)
}

func orHostname(host, hostname string) string {
	switch host {
	case "", "0.0.0.0", "::":
		return hostname
	}
	return host
}
