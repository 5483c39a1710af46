package faults_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"thermocline/localstack/faults"
	"thermocline/localstack/faults/history"
	"thermocline/localstack/processes"
)

// TestEmptiedDataDirectory: a broker that comes back without its data is
// another replica and says so. It must not vote in its old one's place: then
// two brokers that lost their disks one after the other could lose records
// that were acknowledged.
func TestEmptiedDataDirectory(t *testing.T) {
	t.Parallel()
	c, ctx := cluster(t, smallSegments, func(o *processes.Options) { o.OwnEtcd = true })
	must(t, faults.CreateTopic(ctx, c, "emptied", partitions, nil))
	r := history.NewRecorder()
	run := load(t, c, r, history.Load{Topic: "emptied", Partitions: partitions, Producers: 2, ValueBytes: 200, Rate: 1000, Skip: history.NoSkip})
	must(t, progress(ctx, r, partitions, 50))
	old, err := faults.Status(c, 2)
	must(t, err)
	must(t, c.Brokers[2].Kill())
	must(t, os.RemoveAll(c.DataDir(2)))
	must(t, c.RestartBroker(2))
	must(t, faults.Until(ctx, "the emptied broker says what it is", func() error {
		code, body, err := faults.Get(c.HTTP(2) + "/readyz")
		if err != nil {
			return err
		}
		if code != http.StatusServiceUnavailable || !strings.Contains(body, "no shard is placed here") {
			return fmt.Errorf("/readyz: %d %s", code, strings.TrimSpace(body))
		}
		s, err := faults.Status(c, 2)
		if err == nil && (s.Replica == old.Replica || len(s.Shards) != 0) {
			t.Fatalf("the emptied broker is replica %s with %d shards; the lost one was %s", s.Replica, len(s.Shards), old.Replica)
		}
		return err
	}))
	must(t, progress(ctx, r, partitions, 50))
	must(t, run.Stop(ctx))
	alive(t, c)
	ops := r.Ops()
	leaders, err := faults.Leaders(ctx, c, "emptied", func(_ int32, b int) bool { return b != 2 })
	must(t, err)
	logs, err := history.Read(ctx, c.Bootstrap(), "emptied", all(partitions), ops)
	must(t, err)
	t.Logf("%d acknowledged, leaders %v", r.Acked(), leaders)
	must(t, history.Check(ops, logs))
}
