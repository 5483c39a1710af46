//go:build outside

package outside_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"thermocline/localstack/faults"
	"thermocline/localstack/faults/history"
	"thermocline/localstack/processes"
	"thermocline/wal/batch"
)

const (
	partitions = int32(12)
	syncDelay  = 2 * time.Second
)

// inject attaches strace to a process that runs and returns what detaches it.
func inject(t *testing.T, ctx context.Context, pid int, what string) (detach func()) {
	t.Helper()
	cmd := exec.Command("strace", "-f", "-qq", "-p", strconv.Itoa(pid), "-e", "trace=fdatasync", "-e", "inject=fdatasync:"+what, "-o", filepath.Join(t.TempDir(), "strace"))
	var said strings.Builder
	cmd.Stderr = &said
	must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	detach = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it detaches; it may have ended with its process
		<-ended
	})
	t.Cleanup(detach)
	err := faults.Until(ctx, "strace is attached to every thread", func() error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("strace ended: %v: %s (it needs the permission to trace: CAP_SYS_PTRACE)", err, said.String())
		default:
		}
		return traced(pid)
	})
	must(t, err)
	return detach
}

// traced is nil when every thread of a process has a tracer.
func traced(pid int) error {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(tasks) == 0 {
		return fmt.Errorf("process %d has no threads: %w", pid, err)
	}
	for _, path := range tasks {
		raw, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // that thread has ended
		}
		if err != nil {
			return err
		}
		if strings.Contains(string(raw), "TracerPid:\t0\n") {
			return fmt.Errorf("%s: not traced", path)
		}
	}
	return nil
}

// acks sends one record to every partition at the same time and returns how
// long each acknowledgement took.
func acks(ctx context.Context, cl *kgo.Client, topic string) ([]time.Duration, error) {
	took := make([]time.Duration, partitions)
	errs := make([]error, partitions)
	var wg sync.WaitGroup
	for p := range partitions {
		wg.Go(func() {
			b := batch.NewBuilder(batch.BuilderOptions{}).Add(time.Now().UnixMilli(), nil, []byte("x")).Build()
			start := time.Now()
			_, errs[p] = faults.Produce(ctx, cl, topic, p, b)
			took[p] = time.Since(start)
		})
	}
	wg.Wait()
	return took, errors.Join(errs...)
}

// TestDelayedSyncs: with the syncs of two of three brokers late by 2 s no
// majority has a record on disk earlier, so no acknowledgement comes earlier.
// kill -9 cannot show this: the page cache survives it.
func TestDelayedSyncs(t *testing.T) {
	c, ctx := cluster(t)
	must(t, faults.CreateTopic(ctx, c, "late", partitions, nil))
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.MetadataMinAge(20*time.Millisecond))
	must(t, err)
	defer cl.Close()
	undisturbed, err := acks(ctx, cl, "late")
	must(t, err)
	if fastest(undisturbed) >= syncDelay {
		t.Fatalf("acknowledgements take %v without a delay: this machine shows nothing", undisturbed)
	}
	for _, pair := range [][2]int{{0, 1}, {1, 2}} {
		var detach []func()
		for _, i := range pair {
			detach = append(detach, inject(t, ctx, c.Brokers[i].PID(), fmt.Sprintf("delay_exit=%d", syncDelay.Microseconds())))
		}
		late, err := acks(ctx, cl, "late")
		for _, f := range detach {
			f()
		}
		// An error is no acknowledgement; on a slow machine some time out.
		t.Logf("brokers %d and %d late: %v, %v", pair[0]+1, pair[1]+1, late, err)
		if fastest(late) < syncDelay {
			t.Errorf("an acknowledgement came after %v, before the sync of a majority", fastest(late))
		}
		must(t, faults.Until(ctx, "acknowledgements resume", func() error {
			again, err := acks(ctx, cl, "late")
			if err == nil && fastest(again) >= syncDelay {
				err = fmt.Errorf("they take %v", again)
			}
			return err
		}))
	}
}

func fastest(took []time.Duration) time.Duration {
	least := took[0]
	for _, d := range took {
		least = min(least, d)
	}
	return least
}

// TestFailedSync: a log whose sync fails is out of service, says so, and is
// never acknowledged from again; the others go on.
func TestFailedSync(t *testing.T) {
	c, ctx := cluster(t)
	must(t, faults.CreateTopic(ctx, c, "failed", partitions, nil))
	r := history.NewRecorder()
	run, err := history.Start(r, history.Load{Bootstrap: c.Bootstrap(), Topic: "failed", Partitions: partitions, Producers: 2, ValueBytes: 200, Rate: 1000, Skip: history.NoSkip})
	must(t, err)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = run.Stop(ended) // after a failure nobody waits for the answers
	})
	leaders, err := faults.Leaders(ctx, c, "failed", nil)
	must(t, err)
	victim := faults.Busiest(leaders)
	must(t, more(ctx, r, 20))
	detach := inject(t, ctx, c.Brokers[victim].PID(), "error=EIO")
	must(t, faults.Until(ctx, "the broker says that its log is out of service", func() error { return outOfService(c, victim) }))
	must(t, more(ctx, r, 50))
	leaders, err = faults.Leaders(ctx, c, "failed", func(_ int32, b int) bool { return b != victim })
	must(t, err)
	t.Logf("broker %d's log failed; leaders now: %v; longest pause %v", victim+1, leaders, history.Longest(r.Ops()))
	must(t, faults.Until(ctx, "the broker serves no fetch any more", func() error { return servesNothing(ctx, c, victim, "failed") }))
	detach()
	// The disk works again, the log stays out of service: what the kernel has
	// thrown away at the failed sync is gone.
	must(t, more(ctx, r, 50))
	must(t, outOfService(c, victim))
	must(t, c.Brokers[victim].Stop())
	must(t, faults.Restart(ctx, c, victim))
	must(t, more(ctx, r, 50))
	must(t, run.Stop(ctx))
	ops := r.Ops()
	all := make([]int32, partitions)
	for p := range all {
		all[p] = int32(p)
	}
	logs, err := history.Read(ctx, c.Bootstrap(), "failed", all, ops)
	must(t, err)
	must(t, history.Check(ops, logs))
	t.Logf("%d calls, %d acknowledged, errors %v", len(ops), r.Acked(), r.Errors())
}

// servesNothing asks a broker for each partition, as a consumer that has known
// it as the leader does.
func servesNothing(ctx context.Context, c *processes.Cluster, broker int, topic string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()[broker]), kgo.MaxVersions(kversion.V0_11_0()))
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MinBytes = 1<<20, 1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	for p := range partitions {
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition, part.PartitionMaxBytes = p, 1<<16
		t.Partitions = append(t.Partitions, part)
	}
	req.Topics = append(req.Topics, t)
	resp, err := cl.SeedBrokers()[0].RetriableRequest(ctx, req)
	if err != nil {
		return err
	}
	for _, p := range resp.(*kmsg.FetchResponse).Topics[0].Partitions {
		if p.ErrorCode != kerr.NotLeaderForPartition.Code {
			return fmt.Errorf("partition %d: expected NOT_LEADER_OR_FOLLOWER, found %v, high watermark %d", p.Partition, kerr.ErrorForCode(p.ErrorCode), p.HighWatermark)
		}
	}
	return nil
}

// outOfService checks that both pages say why.
func outOfService(c *processes.Cluster, i int) error {
	code, body, err := faults.Get(c.HTTP(i) + "/readyz")
	if err != nil {
		return err
	}
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "log out of service") || !strings.Contains(body, "input/output error") {
		return fmt.Errorf("/readyz: %d %s", code, strings.TrimSpace(body))
	}
	s, err := faults.Status(c, i)
	if err == nil && !strings.Contains(s.Log.Error, "input/output error") {
		err = fmt.Errorf("/status: the log's error is %q", s.Log.Error)
	}
	return err
}

// more waits for acknowledgements in every partition.
func more(ctx context.Context, r *history.Recorder, n int64) error {
	before := make([]int64, partitions)
	for p := range partitions {
		before[p] = r.AckedIn(p)
	}
	return faults.Until(ctx, "records are acknowledged in every partition", func() error {
		for p := range partitions {
			if got := r.AckedIn(p) - before[p]; got < n {
				return fmt.Errorf("partition %d: %d more, expected %d", p, got, n)
			}
		}
		return nil
	})
}
