// Package etcd runs an etcd server inside a broker's process: alone for a
// local stack, or as one of the first three brokers of a small installation.
// It keeps its data directory to itself, compacts its history, and writes to
// the broker's own log. Brokers reach it without a socket (Client), others
// through its endpoint.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

const (
	// membersMax: three members survive the loss of one; more only slow the
	// writes of what is a small installation.
	membersMax = 3
	// A lone member elects itself: short ticks make it ready in well under
	// 0.2 s. Members on three machines must tell a slow disk from a dead peer.
	tickAlone, electionAlone   = 10 * time.Millisecond, 100 * time.Millisecond
	tickShared, electionShared = 20 * time.Millisecond, 200 * time.Millisecond
	// defaultQuota bounds the database: rows are per topic, shard and broker,
	// so even large clusters need tens of megabytes.
	defaultQuota = 1 << 30
	// defaultHistory is how long old revisions are kept for watches to resume
	// from; etcd itself would keep them for ever.
	defaultHistory = 10 * time.Minute
	// handOver bounds the hand-over of etcd's leadership when a member closes; it
	// takes an election, or does not come about because the others are away too.
	handOver = time.Second
	// dialProbe bounds the look at each peer in Missing.
	dialProbe = 300 * time.Millisecond
)

// ErrLocked: another process uses the data directory.
var ErrLocked = errors.New("etcd: data directory is in use")

// Config says which member to run.
type Config struct {
	// Name of this member; empty is "etcd1".
	Name string
	// DataDir is created if need be; only one process may use it.
	DataDir string
	// ClientAddr is host:port for clients outside of this process; empty: none.
	// The host is an address of this machine; port 0 picks one.
	ClientAddr string
	// PeerAddr is host:port for the other members; empty: a lone member on loopback.
	PeerAddr string
	// InitialCluster maps each member's name to its host:port for members,
	// this one included; empty: a lone member. It counts at the first start.
	InitialCluster map[string]string
	// Token keeps clusters apart at their first start; empty is "thermocline".
	Token string
	// Tick and Election; 0 chooses by the number of members. Raise both when
	// members are far apart.
	Tick, Election time.Duration
	// QuotaBytes bounds the database; 0 is 1 GiB.
	QuotaBytes int64
	// History is how long old revisions are kept; 0 is ten minutes.
	History time.Duration
	Logger  *slog.Logger
}

// Server is a running member. It owns the goroutines of etcd; Close ends them.
type Server struct {
	c      Config
	etcd   *embed.Etcd
	client *clientv3.Client
	lock   *os.File

	closing sync.Once
	closed  chan struct{}
}

// Start starts a member. It returns as soon as the member takes part, which
// is before it serves: a member of three waits for a second one. Ready tells.
// ctx bounds the start itself, not the member's life.
func Start(ctx context.Context, c Config) (*Server, error) {
	if err := c.normalize(); err != nil {
		return nil, err
	}
	ec, err := c.embed()
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(c.DataDir)
	if err != nil {
		return nil, err
	}
	members, existing, err := c.rejoin(ctx)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if existing {
		ec.InitialCluster, ec.ClusterState = members, embed.ClusterStateFlagExisting
	}
	type started struct {
		e   *embed.Etcd
		err error
	}
	// etcd has no context: a start that outlives ctx is closed when it ends.
	result := make(chan started, 1)
	go func() {
		e, err := embed.StartEtcd(ec)
		result <- started{e, err}
	}()
	select {
	case r := <-result:
		if r.err != nil {
			return nil, errors.Join(fmt.Errorf("etcd: start member %s in %s: %w", c.Name, c.DataDir, r.err), lock.Close())
		}
		s := &Server{c: c, etcd: r.e, lock: lock, closed: make(chan struct{})}
		s.client = v3client.New(r.e.Server)
		return s, nil
	case <-ctx.Done():
		go func() {
			defer func() { _ = lock.Close() }() // nobody is left to tell
			if r := <-result; r.err == nil {
				r.e.Close()
			}
		}()
		return nil, fmt.Errorf("etcd: start member %s: %w", c.Name, ctx.Err())
	}
}

// normalize fills the defaults in and checks what etcd would not explain.
func (c *Config) normalize() error {
	if c.Name == "" {
		c.Name = "etcd1"
	}
	if c.PeerAddr == "" {
		c.PeerAddr = "127.0.0.1:0"
	}
	if len(c.InitialCluster) == 0 {
		c.InitialCluster = map[string]string{c.Name: c.PeerAddr}
	}
	if c.Token == "" {
		c.Token = "thermocline"
	}
	if c.Tick == 0 {
		c.Tick = tickAlone
		if len(c.InitialCluster) > 1 {
			c.Tick = tickShared
		}
	}
	if c.Election == 0 {
		c.Election = electionAlone
		if len(c.InitialCluster) > 1 {
			c.Election = electionShared
		}
	}
	if c.QuotaBytes == 0 {
		c.QuotaBytes = defaultQuota
	}
	if c.History == 0 {
		c.History = defaultHistory
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch n := len(c.InitialCluster); {
	case c.DataDir == "":
		return errors.New("etcd: data directory is empty")
	case n > membersMax:
		return fmt.Errorf("etcd: expected at most %d embedded members, found %d: run etcd by itself and name its endpoints", membersMax, n)
	case c.InitialCluster[c.Name] == "":
		return fmt.Errorf("etcd: member %s is not in the initial cluster %v", c.Name, c.InitialCluster)
	}
	return nil
}

// embed translates to etcd's own configuration.
func (c *Config) embed() (*embed.Config, error) {
	ec := embed.NewConfig()
	ec.Name, ec.Dir = c.Name, c.DataDir
	ec.InitialClusterToken = c.Token
	ec.TickMs, ec.ElectionMs = uint(c.Tick.Milliseconds()), uint(c.Election.Milliseconds())
	ec.QuotaBackendBytes = c.QuotaBytes
	ec.AutoCompactionMode, ec.AutoCompactionRetention = "periodic", c.History.String()
	ec.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newZap(c.Logger))
	ec.EnableGRPCGateway, ec.EnablePprof = false, false
	var err error
	if ec.ListenPeerUrls, err = urls(c.PeerAddr); err != nil {
		return nil, err
	}
	if ec.AdvertisePeerUrls, err = urls(c.InitialCluster[c.Name]); err != nil {
		return nil, err
	}
	ec.ListenClientUrls, ec.AdvertiseClientUrls = nil, nil
	if c.ClientAddr != "" {
		if ec.ListenClientUrls, err = urls(c.ClientAddr); err != nil {
			return nil, err
		}
		ec.AdvertiseClientUrls = ec.ListenClientUrls
	}
	members := make([]string, 0, len(c.InitialCluster))
	for name, addr := range c.InitialCluster {
		members = append(members, name+"=http://"+addr)
	}
	slices.Sort(members)
	ec.InitialCluster = strings.Join(members, ",")
	return ec, nil
}

func urls(addr string) ([]url.URL, error) {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, fmt.Errorf("etcd: expected host:port, found %q: %w", addr, err)
	}
	return []url.URL{{Scheme: "http", Host: addr}}, nil
}

// lockDir takes the data directory for this process. etcd has a lock of its
// own in there, but waits for it for ever, without a word.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("etcd: data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "thermocline.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("etcd: data directory: %w", err)
	}
	if err := flock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w (%w)", dir, ErrLocked, err), f.Close())
	}
	return f, nil
}

// Ready is closed once the member serves: it knows a leader.
func (s *Server) Ready() <-chan struct{} { return s.etcd.Server.ReadyNotify() }

// WaitReady returns once the member serves, or says why it does not.
func (s *Server) WaitReady(ctx context.Context) error {
	select {
	case <-s.Ready():
		return nil
	case err := <-s.Err():
		return fmt.Errorf("etcd: member %s: %w", s.c.Name, err)
	case <-s.closed:
		return fmt.Errorf("etcd: member %s was closed", s.c.Name)
	case <-ctx.Done():
		return fmt.Errorf("etcd: member %s waits for %s: %w", s.c.Name, strings.Join(s.Peers(), ", "), ctx.Err())
	}
}

// Err delivers what ends the member while it runs, such as a listener that
// failed. It is closed after Close.
func (s *Server) Err() <-chan error { return s.etcd.Err() }

// Peers names the other members of the initial cluster as name=host:port.
func (s *Server) Peers() []string {
	var peers []string
	for name, addr := range s.c.InitialCluster {
		if name != s.c.Name {
			peers = append(peers, name+"="+addr)
		}
	}
	slices.Sort(peers)
	return peers
}

// Missing names the peers that do not take connections at the moment: what a
// lone first member waits for.
func (s *Server) Missing(ctx context.Context) []string {
	d := net.Dialer{Timeout: dialProbe}
	var missing []string
	for _, peer := range s.Peers() {
		_, addr, _ := strings.Cut(peer, "=")
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			missing = append(missing, peer)
			continue
		}
		_ = conn.Close() // it was only a look
	}
	return missing
}

// Client reaches the member without a socket. It belongs to the server: close
// what uses it first.
func (s *Server) Client() *clientv3.Client { return s.client }

// Endpoint is host:port for clients outside of this process; empty if there is none.
func (s *Server) Endpoint() string {
	if len(s.etcd.Clients) == 0 {
		return ""
	}
	return s.etcd.Clients[0].Addr().String()
}

// Close stops the member: it hands leadership over, ends what clients have
// open (which takes up to five seconds if others watch through this member),
// and frees the data directory.
func (s *Server) Close() error {
	var err error
	s.closing.Do(func() {
		// The in-process client must not wait for answers of a stopped server.
		if cerr := s.client.Close(); cerr != nil && !errors.Is(cerr, context.Canceled) {
			err = fmt.Errorf("etcd: close the client of member %s: %w", s.c.Name, cerr)
		}
		select {
		case <-s.etcd.Server.ReadyNotify():
			s.handOver()
		default:
			// The library's Close waits for listeners that begin only once the
			// member is ready, which a lone member of three may never be.
		}
		s.etcd.Server.HardStop()
		s.etcd.Close()
		close(s.closed)
		err = errors.Join(err, s.lock.Close())
	})
	return err
}

// handOver gives etcd's leadership to another member, if this one has it. The
// library's own Close would wait more than five seconds for one that is away.
func (s *Server) handOver() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.etcd.Server.TryTransferLeadershipOnShutdown(); err != nil {
			s.c.Logger.Debug("etcd: the leadership stays until the others elect", "member", s.c.Name, "error", err)
		}
	}()
	bound := time.NewTimer(handOver)
	defer bound.Stop()
	select {
	case <-done:
	case <-bound.C:
		s.etcd.Server.HardStop() // which ends the waiting
		<-done
	}
}
