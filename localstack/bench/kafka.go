package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// KafkaVersion is the Apache Kafka that figures are compared with.
const KafkaVersion = "4.3.1"

// kafkaClusterID is any fixed base64 UUID.
const kafkaClusterID = "dGhlcm1vY2xpbmUtYmVuYw"

const kafkaPOM = `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>kafka</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>` + KafkaVersion + `</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>` + KafkaVersion + `</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>`

// Kafka is a cluster of three Apache Kafka brokers in KRaft mode.
type Kafka struct {
	nodes []*exec.Cmd
	ports []int
}

// KafkaJars fetches Apache Kafka, its brokers and its tools, from Maven Central
// into dir, once, and returns the folder of jars.
func KafkaJars(ctx context.Context, dir string) (string, error) {
	libs := filepath.Join(dir, "kafka-"+KafkaVersion)
	stamp := filepath.Join(libs, "complete")
	if have, err := os.ReadFile(stamp); err == nil && string(have) == kafkaPOM {
		return libs, nil
	}
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("Apache Kafka needs %s: install Java 17 and Maven (Debian: apt-get install openjdk-17-jdk-headless maven)", tool)
		}
	}
	if err := os.MkdirAll(libs, 0o755); err != nil {
		return "", err
	}
	pom := filepath.Join(libs, "pom.xml")
	if err := os.WriteFile(pom, []byte(kafkaPOM), 0o644); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DoutputDirectory="+libs)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetching Apache Kafka %s with Maven: %w\n%s", KafkaVersion, err, out)
	}
	return libs, os.WriteFile(stamp, []byte(kafkaPOM), 0o644)
}

// StartKafka formats and starts three brokers below dir. fsync makes each
// append wait for its sync, as ours do; the default leaves that to the kernel.
func StartKafka(ctx context.Context, libs, dir string, fsync bool) (*Kafka, error) {
	k := &Kafka{}
	ports, err := freePorts(6)
	if err != nil {
		return nil, err
	}
	k.ports = ports[:3]
	for i := range 3 {
		if err := k.startNode(ctx, libs, dir, ports, i, fsync); err != nil {
			return nil, errors.Join(err, k.Close())
		}
	}
	if err := k.waitReady(ctx); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (k *Kafka) startNode(ctx context.Context, libs, dir string, ports []int, i int, fsync bool) error {
	home := filepath.Join(dir, fmt.Sprintf("kafka%d", i+1))
	if err := os.MkdirAll(home, 0o755); err != nil {
		return err
	}
	props := filepath.Join(home, "server.properties")
	if err := os.WriteFile(props, []byte(kafkaProperties(home, ports, i, fsync)), 0o644); err != nil {
		return err
	}
	classpath := filepath.Join(libs, "*")
	format := exec.CommandContext(ctx, "java", "-cp", classpath, "kafka.tools.StorageTool", "format", "-t", kafkaClusterID, "-c", props)
	if out, err := format.CombinedOutput(); err != nil {
		return fmt.Errorf("formatting Kafka's storage: %w\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(home, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	node := exec.Command("java", "-Xmx1g", "-Xms1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath, "kafka.Kafka", props)
	node.Stdout, node.Stderr = log, log
	node.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := node.Start(); err != nil {
		return err
	}
	k.nodes = append(k.nodes, node)
	return nil
}

func kafkaProperties(home string, ports []int, i int, fsync bool) string {
	var voters []string
	for n := range 3 {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", n+1, ports[3+n]))
	}
	lines := []string{
		"process.roles=broker,controller",
		"node.id=" + strconv.Itoa(i+1),
		"controller.quorum.voters=" + strings.Join(voters, ","),
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", ports[i], ports[3+i]),
		fmt.Sprintf("advertised.listeners=PLAINTEXT://127.0.0.1:%d", ports[i]),
		"controller.listener.names=CONTROLLER",
		"log.dirs=" + filepath.Join(home, "logs"),
		"default.replication.factor=3", "min.insync.replicas=2",
		"offsets.topic.replication.factor=3",
		"transaction.state.log.replication.factor=3", "transaction.state.log.min.isr=2",
		"group.initial.rebalance.delay.ms=0",
	}
	if fsync {
		lines = append(lines, "log.flush.interval.messages=1")
	}
	return strings.Join(lines, "\n") + "\n"
}

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
		if resp, err := req.RequestWith(ctx, cl); err == nil && len(resp.Brokers) == 3 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kafka is not ready: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// Bootstrap lists the brokers' addresses.
func (k *Kafka) Bootstrap() []string {
	var out []string
	for _, p := range k.ports {
		out = append(out, "127.0.0.1:"+strconv.Itoa(p))
	}
	return out
}

// PIDs are the brokers' process ids.
func (k *Kafka) PIDs() []int {
	var out []int
	for _, n := range k.nodes {
		out = append(out, n.Process.Pid)
	}
	return out
}

// Close ends the brokers.
func (k *Kafka) Close() error {
	for _, n := range k.nodes {
		_ = n.Process.Kill()
		_ = n.Wait()
	}
	return nil
}

func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
