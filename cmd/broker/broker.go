package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"thermocline/cmd/config"
	"thermocline/ingest"
	"thermocline/ingest/coordinator"
	"thermocline/metadata"
	"thermocline/metadata/controller"
	"thermocline/tiering/object"
	"thermocline/wal"
	"thermocline/wal/shard"
	"thermocline/wal/transport"
	"thermocline/wal/vfs"
)

const (
	// walDir is the log's directory below data.dir.
	walDir = "wal"
	// idleBufferBytes bounds the idle payload buffers kept per size class.
	idleBufferBytes = 64 << 20
	// closeTimeout bounds each part's clean stop.
	closeTimeout = 10 * time.Second
	// deregisterWithin bounds giving the registration back: an etcd that is there
	// answers in milliseconds, one that is away must not hold up the stop.
	deregisterWithin = 2 * time.Second
)

// Options are what a broker is made from.
type Options struct {
	Config config.Config
	// Metadata is the store that the broker and its cluster share. It stays
	// the caller's: close it after the broker.
	Metadata metadata.Store
	// Uploads and Cold are the object store, opened twice, so that reading old
	// data never waits behind uploads. They stay the caller's too.
	Uploads, Cold object.Store
	Logger        *slog.Logger
}

// Broker is one running broker.
type Broker struct {
	cfg     config.Config
	id      metadata.BrokerID
	replica metadata.ReplicaID
	log     *slog.Logger
	store   metadata.Store
	view    *metadata.View

	fs         vfs.FS
	writer     *wal.Writer
	recovered  map[wal.ShardID]*wal.RecoveredShard
	buffers    *shard.Buffers
	shardStats *shard.Stats
	shards     *shards
	peers      *transport.Transport
	uploads    object.Store
	cold       object.Store
	// storeChecked is closed once the store is known to be the cluster's.
	storeChecked chan struct{}
	tier         *tier
	replacer     *replacer
	archiver     *archiver
	// coordinators run the groups of the slots that are led here.
	coordinators *coordinator.Runtime

	registration *metadata.Registration
	office       *controller.Controller
	server       *ingest.Server
	kafka        net.Listener

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	work   sync.WaitGroup
	failed chan error
}

// Start starts a broker and returns once it takes part: its log is recovered,
// it is registered, and it accepts clients. On an error everything that was
// started is stopped again.
func Start(ctx context.Context, o Options) (*Broker, error) {
	b := &Broker{
		cfg: o.Config, id: metadata.BrokerID(o.Config.NodeID), log: o.Logger.With("broker", o.Config.NodeID),
		store: o.Metadata, uploads: o.Uploads, cold: o.Cold,
		shards: &shards{byID: map[metadata.ShardID]*owned{}}, shardStats: &shard.Stats{},
		buffers: shard.NewBuffers(idleBufferBytes, false),
		failed:  make(chan error, 1),
	}
	b.replacer = &replacer{b: b, finished: func() { b.shardStats.Replacements.Add(1) }}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	if err := b.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("broker %d: %w", o.Config.NodeID, err), b.Close())
	}
	return b, nil
}

func (b *Broker) start(ctx context.Context, o Options) error {
	damage := b.openLog()
	if damage != nil && !damaged(damage) {
		return damage
	}
	clusterID, err := b.joinCluster(ctx)
	if err != nil {
		return errors.Join(damage, err)
	}
	if err := b.checkStore(ctx, clusterID); err != nil {
		return errors.Join(damage, err)
	}
	if err := b.judgeLog(damage); err != nil {
		return err
	}
	peerAddr, err := b.startPeers(clusterID)
	if err != nil {
		return err
	}
	if err := b.listenKafka(); err != nil {
		return err
	}
	if err := b.startTier(clusterID, o.Cold); err != nil {
		return err
	}
	b.archiver = b.newArchiver(clusterID)
	if err := b.register(ctx, peerAddr); err != nil {
		return err
	}
	b.startCoordinators()
	b.work.Go(func() { b.follow(b.ctx) })
	b.work.Go(func() { b.replacer.run(b.ctx) })
	if err := b.startOffice(); err != nil {
		return err
	}
	b.work.Go(func() {
		if b.mayStore(b.ctx) {
			b.archiver.run(b.ctx)
		}
	})
	b.work.Go(b.watchParts)
	return b.serveKafka()
}

// openLog takes the data directory and recovers the write-ahead log.
func (b *Broker) openLog() error {
	if err := os.MkdirAll(b.cfg.DataDir, 0o755); err != nil {
		return err
	}
	b.fs = vfs.OS(b.cfg.DataDir)
	if err := b.fs.MkdirAll(walDir); err != nil {
		return err
	}
	budget, err := walBudget(b.fs, int64(b.cfg.WALMaxBytes))
	if err != nil {
		return err
	}
	log, recovered, err := wal.Open(b.fs, walDir, wal.Options{FileBytes: int64(b.cfg.WALFileBytes), MaxBytes: budget, FillPerSecond: wal.DefaultFillPerSecond, Logger: b.log})
	if err != nil {
		return fmt.Errorf("opening the log in %s: %w", filepath.Join(b.cfg.DataDir, walDir), err)
	}
	b.recovered = recovered
	b.writer = wal.NewWriter(log)
	return nil
}

// Bounds of the default budget of the log.
const (
	walBudgetMin = 1 << 30
	walBudgetMax = 32 << 30
)

// walBudget is what was set, or a tenth of the volume within 1 and 32 GiB.
func walBudget(fs vfs.FS, set int64) (int64, error) {
	if set > 0 {
		return set, nil
	}
	total, _, err := fs.Space(".")
	if err != nil {
		return 0, fmt.Errorf("asking for the volume's size (set wal.max.bytes to do without): %w", err)
	}
	return min(max(int64(total/10), walBudgetMin), walBudgetMax), nil
}

// joinCluster reads or founds the cluster, and binds the data directory to it.
func (b *Broker) joinCluster(ctx context.Context) (string, error) {
	replica, id, err := loadIdentity(b.cfg.DataDir, b.id)
	if err != nil {
		return "", err
	}
	b.replica = replica
	var info metadata.ClusterInfo
	err = untilAnswered(ctx, b.log, func(ctx context.Context) (err error) {
		info, err = metadata.EnsureCluster(ctx, b.store, metadata.ClusterInfo{ID: newClusterID(), Created: time.Now()})
		return err
	})
	if err != nil {
		return "", err
	}
	if err := id.join(b.cfg.DataDir, info.ID); err != nil {
		return "", err
	}
	err = untilAnswered(ctx, b.log, func(ctx context.Context) (err error) {
		b.view, err = metadata.OpenView(ctx, b.store, metadata.ViewOptions{Logger: b.log})
		return err
	})
	return info.ID, err
}

// newClusterID proposes an id in the form that Kafka's tools expect: 22
// characters of URL-safe base64.
func newClusterID() string { return rand.Text()[:22] }

func (b *Broker) startPeers(clusterID string) (string, error) {
	l, err := net.Listen("tcp", b.cfg.PeerListener)
	if err != nil {
		return "", fmt.Errorf("peer.listener: %w", err)
	}
	b.peers, err = transport.New(transport.Options{
		ClusterID: clusterID, Replica: uint64(b.replica), Listener: l, Resolve: b.resolve,
		Handler: b.shards, Buffers: b.buffers, Logger: b.log,
	})
	if err != nil {
		l.Close()
		return "", err
	}
	return b.cfg.PeerAddr(hostname()), nil
}

// send hands a message to the transport; the shard's goroutine calls it.
func (b *Broker) send(m *transport.Message) { b.peers.Send(m) }

// resolve finds the peer address of the broker that has a replica.
func (b *Broker) resolve(replica uint64) (string, bool) {
	for _, r := range b.view.Cluster().Brokers {
		if uint64(r.Replica) == replica {
			return r.PeerAddr, true
		}
	}
	return "", false
}

func hostname() string {
	h, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return h
}

func (b *Broker) listenKafka() error {
	host, port, err := b.cfg.Listener()
	if err != nil {
		return err
	}
	b.kafka, err = net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(port)))
	if err != nil {
		return fmt.Errorf("listeners: %w", err)
	}
	return nil
}

func (b *Broker) register(ctx context.Context, peerAddr string) error {
	host, port := b.cfg.Advertised(hostname())
	if port == 0 {
		port = int32(b.kafka.Addr().(*net.TCPAddr).Port)
	}
	var err error
	b.registration, err = metadata.Register(ctx, b.store, metadata.RegisterOptions{
		Broker: metadata.Broker{
			ID: b.id, Replica: b.replica, Rack: b.cfg.Rack, KafkaHost: host, KafkaPort: port, PeerAddr: peerAddr, Version: Version,
		},
		Logger: b.log,
	})
	return err
}

// Version is what brokers register with.
const Version = "0.1.0"

func (b *Broker) startOffice() error {
	var err error
	b.office, err = controller.New(controller.Config{
		Store: b.store, View: b.view, Registration: b.registration,
		InitialBrokers: b.cfg.ClusterBrokers, ShardsPerBroker: b.cfg.ShardsPerBroker, ShardReplicas: b.cfg.ShardReplicas,
		Logger: b.log,
	})
	if err != nil {
		return err
	}
	b.work.Go(func() { b.office.Run(b.ctx) })
	b.work.Go(b.bringLeadersHome)
	return nil
}

// balanceEvery is the pause between looks at where shards are led.
const balanceEvery = 2 * time.Second

// bringLeadersHome hands over the shards that this broker leads and another
// one is the home of, once that one has been there for a while.
func (b *Broker) bringLeadersHome() {
	balancer := controller.NewBalancer()
	tick := time.NewTicker(balanceEvery)
	defer tick.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case now := <-tick.C:
			for _, m := range balancer.Next(b.view.Cluster(), now) {
				b.handOver(m)
			}
		}
	}
}

func (b *Broker) handOver(m controller.Move) {
	o, ok := b.shards.get(m.Shard)
	if !ok || m.From != b.id || !o.runner.Leadership().Ready {
		return
	}
	if row := b.view.Cluster().Shard(m.Shard); row != nil {
		if r, ok := row.On(m.To); ok {
			o.runner.TransferLeader(shard.ReplicaID(r.ID))
		}
	}
}

// watchParts ends the broker when a part has failed for good. A log out of
// service does not: the other brokers go on, and the state says why.
func (b *Broker) watchParts() {
	select {
	case <-b.ctx.Done():
	case <-b.registration.Done():
		if err := b.registration.Err(); err != nil {
			b.fail(fmt.Errorf("registration ended: %w", err))
		}
	case <-b.writer.Failed():
		b.log.Error("the log is out of service: this broker replicates and leads nothing until it is restarted; the other brokers go on",
			"error", b.writer.Err())
		for _, o := range b.shards.all() { // also those that have nothing to append
			o.runner.Fail(b.writer.Err())
		}
	}
}

func (b *Broker) fail(err error) {
	select {
	case b.failed <- err:
	default:
	}
}

// Failed delivers what ended the broker from inside.
func (b *Broker) Failed() <-chan error { return b.failed }

// KafkaAddr is where clients connect.
func (b *Broker) KafkaAddr() string { return b.kafka.Addr().String() }

// Ready tells whether every shard that should be here runs and has a leader.
func (b *Broker) Ready() error {
	if err := b.writer.Err(); err != nil {
		return fmt.Errorf("broker %d: %w", b.id, err)
	}
	if err := b.outside(); err != nil {
		return err
	}
	rows := b.view.Cluster().Replicas(b.replica)
	if len(rows) == 0 {
		return fmt.Errorf("broker %d: no shard is placed here yet; %d of %d brokers are registered", b.id, len(b.view.Cluster().Brokers), b.cfg.ClusterBrokers)
	}
	for _, row := range rows {
		o, ok := b.shards.get(row.ID)
		if !ok {
			return fmt.Errorf("broker %d: shard %d is not running", b.id, row.ID)
		}
		if err := o.runner.Failed(); err != nil {
			return fmt.Errorf("broker %d: shard %d is out of service: %w", b.id, row.ID, err)
		}
		if err := b.joining(row); err != nil {
			return err
		}
		if o.runner.Leadership().Leader == 0 {
			return fmt.Errorf("broker %d: shard %d has no leader", b.id, row.ID)
		}
	}
	return nil
}

// Close stops the broker in the reverse order of its start: clients first,
// then leadership is handed over, then the log is closed.
func (b *Broker) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var errs []error
	if b.registration != nil {
		errs = append(errs, b.deregister(ctx))
	}
	errs = append(errs, b.closeShards(ctx))
	if b.server != nil {
		errs = append(errs, b.server.Close(ctx))
	} else if b.kafka != nil {
		errs = append(errs, b.kafka.Close())
	}
	b.cancel()
	b.work.Wait()
	if b.peers != nil {
		errs = append(errs, b.peers.Close())
	}
	if b.tier != nil {
		b.tier.close()
	}
	if b.writer != nil {
		errs = append(errs, b.writer.Close())
	}
	if b.view != nil {
		b.view.Close()
	}
	return errors.Join(errs...)
}

// deregister gives the lease back, so that clients and brokers know at once. That
// the metadata store is away is no reason not to stop in good order: nobody renews
// the lease any more, and it runs out by itself.
func (b *Broker) deregister(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, deregisterWithin)
	defer cancel()
	err := b.registration.Close(within)
	if errors.Is(err, metadata.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		b.log.Warn("the metadata store does not answer: this broker stops all the same, and counts as alive until its lease runs out by itself",
			"lease", metadata.DefaultLeaseTTL, "error", err)
		return nil
	}
	return err
}

func (b *Broker) closeShards(ctx context.Context) error {
	var wg sync.WaitGroup
	list := b.shards.all()
	errs := make([]error, len(list))
	for i, o := range list {
		wg.Go(func() { errs[i] = o.close(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
