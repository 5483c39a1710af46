package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"thermocline/cmd/broker"
	"thermocline/localstack/faults"
	"thermocline/localstack/faults/history"
	"thermocline/localstack/processes"
)

// TestEmptiedDataDirectory: a broker that comes back without its data is
// another replica. It must not vote in its old one's place: then two brokers
// that lost their disks one after the other could lose records that were
// acknowledged. The shards' leaders fill it and put it in the lost one's place,
// by themselves, and then any other broker may go.
func TestEmptiedDataDirectory(t *testing.T) {
	t.Parallel()
	lost(t, true, func(t *testing.T, c *processes.Cluster, i int) {
		must(t, os.RemoveAll(c.DataDir(i)))
	})
}

// TestEmptiedWithEmbeddedEtcd: the broker's member of etcd is lost with it, and
// takes its place anew as well.
func TestEmptiedWithEmbeddedEtcd(t *testing.T) {
	t.Parallel()
	lost(t, false, func(t *testing.T, c *processes.Cluster, i int) {
		must(t, os.RemoveAll(c.DataDir(i)))
	})
}

// TestDamagedLog: a broker whose log is damaged below what it had synced puts
// it aside and takes part as another replica.
func TestDamagedLog(t *testing.T) {
	t.Parallel()
	lost(t, true, func(t *testing.T, c *processes.Cluster, i int) {
		logs, err := filepath.Glob(filepath.Join(c.DataDir(i), "wal", "wal-*"))
		must(t, err)
		if len(logs) == 0 {
			t.Fatal("no log file")
		}
		f, err := os.OpenFile(logs[len(logs)-1], os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		for block := int64(1); block < 8; block++ {
			var b [1]byte
			if _, err := f.ReadAt(b[:], block*4096+40); err != nil {
				t.Fatal(err)
			}
			b[0] ^= 0x10
			if _, err := f.WriteAt(b[:], block*4096+40); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			if aside, err := os.ReadDir(filepath.Join(c.DataDir(i), "wal.damaged")); err != nil || len(aside) == 0 {
				t.Errorf("the damaged log was not put aside: %v", err)
			}
		})
	})
}

// lost kills a broker under load, lets ruin take its data, and demands that it
// is replaced and that the cluster then bears the loss of another one.
func lost(t *testing.T, ownEtcd bool, ruin func(*testing.T, *processes.Cluster, int)) {
	t.Helper()
	const victim, next = 2, 0
	c, ctx := cluster(t, smallSegments, func(o *processes.Options) { o.OwnEtcd = ownEtcd })
	must(t, faults.CreateTopic(ctx, c, "lost", partitions, nil))
	r := history.NewRecorder()
	run := load(t, c, r, history.Load{Topic: "lost", Partitions: partitions, Producers: 2, ValueBytes: 200, Rate: 1000, Skip: history.NoSkip})
	must(t, progress(ctx, r, partitions, 50))
	old, err := faults.Status(c, victim)
	must(t, err)
	must(t, c.Brokers[victim].Kill())
	must(t, progress(ctx, r, partitions, 20))
	ruin(t, c, victim)
	start := time.Now()
	must(t, c.RestartBroker(victim))
	said := ""
	must(t, faults.Until(ctx, "the broker's new replica takes part in every shard", func() error {
		code, body, err := faults.Get(c.HTTP(victim) + "/readyz")
		if err != nil {
			return err
		}
		if strings.Contains(body, "is joining in the place of") || strings.Contains(body, "has yet to plan") {
			said = strings.TrimSpace(body)
		}
		if code != http.StatusOK {
			return fmt.Errorf("/readyz: %d %s", code, strings.TrimSpace(body))
		}
		s, err := faults.Status(c, victim)
		if err == nil && (s.Replica == old.Replica || len(s.Shards) != len(old.Shards)) {
			return fmt.Errorf("replica %s with %d shards; the lost one was %s with %d", s.Replica, len(s.Shards), old.Replica, len(old.Shards))
		}
		return err
	}))
	t.Logf("replaced in %v after its start; meanwhile: %s", time.Since(start).Round(time.Millisecond), said)
	if said == "" {
		t.Error("/readyz told nothing of the replacement")
	}
	must(t, replacedEverywhere(ctx, c, len(old.Shards)))
	must(t, progress(ctx, r, partitions, 20))
	must(t, c.Brokers[next].Kill())
	if err := progress(ctx, r, partitions, 50); err != nil {
		t.Fatalf("with another broker gone: %v", err)
	}
	must(t, faults.Restart(ctx, c, next))
	must(t, run.Stop(ctx))
	verify(t, ctx, c, "lost", partitions, r)
}

// replacedEverywhere waits until no plan is left, and the leaders have counted
// the replacement of each shard's replica.
func replacedEverywhere(ctx context.Context, c *processes.Cluster, n int) error {
	return faults.Until(ctx, "the leaders have counted the replacements", func() error {
		total := 0
		for i := range c.Brokers {
			var s broker.Status
			s, err := faults.Status(c, i)
			if err != nil {
				return err
			}
			for _, sh := range s.Shards {
				if sh.Replacing != nil || len(sh.Voters) != 3 || len(sh.Learners) > 0 {
					return fmt.Errorf("broker %d, shard %d: voters %v, learners %v, plan %+v", i+1, sh.Shard, sh.Voters, sh.Learners, sh.Replacing)
				}
			}
			_, body, err := faults.Get(c.HTTP(i) + "/metrics")
			if err != nil {
				return err
			}
			if m := replacedMetric.FindStringSubmatch(body); m != nil {
				v, err := strconv.ParseFloat(m[1], 64)
				if err != nil {
					return err
				}
				total += int(v)
			}
		}
		if total < n {
			return fmt.Errorf("counted %d, expected %d", total, n)
		}
		return nil
	})
}

var replacedMetric = regexp.MustCompile(`(?m)^thermocline_replicas_replaced_total(?:\{[^}]*\})? (\S+)$`)
