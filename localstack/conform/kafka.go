package conform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/localstack/bench"
)

// Kafka is an Apache Kafka broker: what a driver cannot do with it is the
// driver's fault. One node is enough for that, and a small machine carries no
// more; where a driver asks for a broker to be stopped, this one comes back
// before the answer.
type Kafka struct {
	libs, dir string
	ports     []int // client ports, then controller ports
	nodes     []*exec.Cmd
}

const kafkaNodes = 1

// kafkaClusterID is any fixed base64 UUID.
const kafkaClusterID = "dGhlcm1vY2xpbmUtYmVuYw"

// StartKafka fetches Apache Kafka into cache, once, and starts it below dir.
func StartKafka(ctx context.Context, cache, dir string) (*Kafka, error) {
	libs, err := bench.KafkaJars(ctx, cache)
	if err != nil {
		return nil, err
	}
	k := &Kafka{libs: libs, dir: dir, nodes: make([]*exec.Cmd, kafkaNodes)}
	if err := k.choosePorts(); err != nil {
		return nil, err
	}
	for i := range kafkaNodes {
		if err := k.prepare(ctx, i); err != nil {
			return nil, errors.Join(err, k.Close())
		}
		if err := k.launch(i); err != nil {
			return nil, errors.Join(err, k.Close())
		}
	}
	if err := k.waitReady(ctx); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (k *Kafka) choosePorts() error {
	for range 2 * kafkaNodes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		k.ports = append(k.ports, l.Addr().(*net.TCPAddr).Port)
	}
	return nil
}

func (k *Kafka) home(i int) string { return filepath.Join(k.dir, fmt.Sprintf("kafka%d", i+1)) }

func (k *Kafka) classpath() string { return filepath.Join(k.libs, "*") }

// prepare writes the settings and formats the storage. Failures are noticed
// after 3 s, not 9, since every client waits for that.
func (k *Kafka) prepare(ctx context.Context, i int) error {
	var voters []string
	for n := range kafkaNodes {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", n+1, k.ports[kafkaNodes+n]))
	}
	settings := []string{
		"process.roles=broker,controller",
		fmt.Sprintf("node.id=%d", i+1),
		"controller.quorum.voters=" + strings.Join(voters, ","),
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", k.ports[i], k.ports[kafkaNodes+i]),
		fmt.Sprintf("advertised.listeners=PLAINTEXT://127.0.0.1:%d", k.ports[i]),
		"controller.listener.names=CONTROLLER",
		"log.dirs=" + filepath.Join(k.home(i), "logs"),
		fmt.Sprintf("default.replication.factor=%d", kafkaNodes), "min.insync.replicas=1",
		"broker.session.timeout.ms=3000", "broker.heartbeat.interval.ms=500",
		fmt.Sprintf("offsets.topic.replication.factor=%d", kafkaNodes), "offsets.topic.num.partitions=6",
		fmt.Sprintf("transaction.state.log.replication.factor=%d", kafkaNodes), "transaction.state.log.min.isr=1",
		"group.initial.rebalance.delay.ms=0",
		"group.consumer.min.heartbeat.interval.ms=500", "group.consumer.heartbeat.interval.ms=1000",
	}
	if err := os.MkdirAll(k.home(i), 0o755); err != nil {
		return err
	}
	path := filepath.Join(k.home(i), "server.properties")
	if err := os.WriteFile(path, []byte(strings.Join(settings, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "java", "-cp", k.classpath(), "kafka.tools.StorageTool", "format", "-t", kafkaClusterID, "-c", path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("formatting Kafka's storage: %w\n%s", err, out)
	}
	return nil
}

func (k *Kafka) launch(i int) error {
	log, err := os.OpenFile(filepath.Join(k.home(i), "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	node := exec.Command("java", "-Xmx512m", "-Xms512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", k.classpath(),
		"kafka.Kafka", filepath.Join(k.home(i), "server.properties"))
	node.Stdout, node.Stderr = log, log
	node.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := node.Start(); err != nil {
		return err
	}
	k.nodes[i] = node
	return nil
}

// Bootstrap lists the brokers' addresses.
func (k *Kafka) Bootstrap() []string {
	var out []string
	for _, p := range k.ports[:kafkaNodes] {
		out = append(out, fmt.Sprintf("127.0.0.1:%d", p))
	}
	return out
}

// Stop ends a broker, at once or in good order, and starts it again.
func (k *Kafka) Stop(ctx context.Context, node int32, kill bool) error {
	p := k.nodes[node-1]
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	if err := p.Process.Signal(signal); err != nil {
		return err
	}
	_ = p.Wait() // ended by a signal
	k.nodes[node-1] = nil
	if err := k.launch(int(node) - 1); err != nil {
		return err
	}
	return k.waitReady(ctx)
}

// Start has nothing left to do.
func (k *Kafka) Start(context.Context, int32) error { return nil }

func (k *Kafka) waitReady(ctx context.Context) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Bootstrap()...))
	if err != nil {
		return err
	}
	defer cl.Close()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{}
		if resp, err := req.RequestWith(ctx, cl); err == nil && len(resp.Brokers) == kafkaNodes {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kafka is not ready (see %s): %w", k.dir, ctx.Err())
		case <-tick.C:
		}
	}
}

// Close ends the brokers.
func (k *Kafka) Close() error {
	for i, n := range k.nodes {
		if n != nil {
			_ = n.Process.Kill() // it may have ended
			_ = n.Wait()
			k.nodes[i] = nil
		}
	}
	return nil
}
