package differential

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

	"thermocline/localstack/bench"
)

// Kafka is one Apache Kafka broker, its own controller.
type Kafka struct {
	Addr string
	// Logs is the folder that its log is in.
	Logs string
	cmd  *exec.Cmd
	done chan struct{}
}

// kafkaClusterID is any fixed base64 UUID.
const kafkaClusterID = "dGhlcm1vY2xpbmUtYmVuYw"

// groupSettings are the same on both sides: no join waits for others, no target
// for its time; no member of a consumer group, whose time-out the broker sets,
// times out, and no look for expired offsets drops the groups without any.
var groupSettings = map[string]string{
	"group.initial.rebalance.delay.ms":      "0",
	"group.consumer.assignment.interval.ms": "0",
	"group.consumer.session.timeout.ms":     "1800000",
	"offsets.retention.check.interval.ms":   "86400000",
	"group.consumer.max.session.timeout.ms": "1800000",
}

// StartKafka fetches Apache Kafka into cache, once, and starts it below dir.
func StartKafka(ctx context.Context, cache, dir string) (*Kafka, error) {
	libs, err := bench.KafkaJars(ctx, cache)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	settings := []string{
		"process.roles=broker,controller", "node.id=1", "controller.listener.names=CONTROLLER",
		fmt.Sprintf("controller.quorum.voters=1@127.0.0.1:%d", ports[1]),
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", ports[0], ports[1]),
		fmt.Sprintf("advertised.listeners=PLAINTEXT://127.0.0.1:%d", ports[0]),
		"log.dirs=" + filepath.Join(dir, "logs"), "offsets.topic.replication.factor=1",
		// Nothing is deleted by age, nor compacted, while it runs: here nothing is at all.
		"log.initial.task.delay.ms=86400000", "log.retention.check.interval.ms=86400000", "log.cleaner.backoff.ms=86400000",
		"group.consumer.assignor.offload.enable=false", // a heartbeat's answer has the target that it made, as ours
	}
	for name, value := range groupSettings {
		settings = append(settings, name+"="+value)
	}
	props := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(props, []byte(strings.Join(settings, "\n")+"\n"), 0o644); err != nil {
		return nil, err
	}
	classpath := filepath.Join(libs, "*")
	if out, err := exec.CommandContext(ctx, "java", "-cp", classpath, "kafka.tools.StorageTool", "format", "-t", kafkaClusterID, "-c", props).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("formatting Kafka's storage: %w\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "kafka.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	k := &Kafka{Addr: fmt.Sprintf("127.0.0.1:%d", ports[0]), Logs: dir, done: make(chan struct{})}
	k.cmd = exec.Command("java", "-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath, "kafka.Kafka", props)
	k.cmd.Stdout, k.cmd.Stderr = log, log
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := k.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = k.cmd.Wait(); close(k.done) }()
	if err := k.waitReady(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%w; its log is %s", err, log.Name()), k.Close())
	}
	return k, nil
}

func (k *Kafka) waitReady(ctx context.Context) error {
	side := NewSide("Kafka", k.Addr)
	defer side.Close()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := side.Learn(ctx); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-k.done:
			return errors.New("differential: Kafka has ended")
		case <-ctx.Done():
			return fmt.Errorf("differential: waiting for Kafka: %w", ctx.Err())
		}
	}
}

// Close ends the broker.
func (k *Kafka) Close() error {
	err := k.cmd.Process.Kill()
	<-k.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
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
