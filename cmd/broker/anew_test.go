package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"thermocline/metadata"
)

// restart starts a closed broker of startBrokers again on its directory.
func restart(t *testing.T, b *Broker) (*Broker, error) {
	t.Helper()
	return Start(t.Context(), Options{Config: b.cfg, Metadata: b.store, Uploads: b.uploads, Cold: b.cold, Logger: slog.New(slog.DiscardHandler)})
}

// TestDamagedSnapshotAndLostLog: a broker that finds a snapshot damaged ends,
// and takes part as another replica when it is started again; so does one whose
// log is gone while its identity is not.
func TestDamagedSnapshotAndLostLog(t *testing.T) {
	brokers := startBrokers(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers[0].KafkaAddr()), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	old := brokers[2].replica
	wal := filepath.Join(brokers[2].cfg.DataDir, walDir)
	if err := brokers[2].Close(); err != nil {
		t.Fatal(err)
	}
	snaps, err := filepath.Glob(filepath.Join(wal, "shard-*.snap"))
	if err != nil || len(snaps) == 0 {
		t.Fatalf("snapshots %v, %v", snaps, err)
	}
	raw, err := os.ReadFile(snaps[0])
	if err == nil {
		raw[len(raw)/2] ^= 1
		err = os.WriteFile(snaps[0], raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if brokers[2], err = restart(t, brokers[2]); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-brokers[2].Failed():
		if !strings.Contains(err.Error(), "another replica") {
			t.Fatalf("ended with %v", err)
		}
	case <-ctx.Done():
		t.Fatal("a broker with a damaged snapshot goes on")
	}
	again := func() {
		t.Helper()
		if err := brokers[2].Close(); err != nil {
			t.Fatal(err)
		}
		if brokers[2], err = restart(t, brokers[2]); err != nil {
			t.Fatal(err)
		}
		until(t, brokers[2].Ready)
		if brokers[2].replica == old {
			t.Fatalf("replica %s goes on without what it had", old)
		}
		old = brokers[2].replica
		until(t, func() error {
			for _, row := range brokers[0].view.Cluster().Shards {
				if r, ok := row.On(3); !ok || r.ID != old || row.Replacing != nil {
					return fmt.Errorf("shard %d: %v, plan %v", row.ID, row.Replicas, row.Replacing)
				}
			}
			return nil
		})
	}
	again()
	if _, err := os.Stat(filepath.Join(brokers[2].cfg.DataDir, damagedDir, damagedMark)); err != nil {
		t.Errorf("what was damaged is not put aside: %v", err)
	}
	// An ordinary restart is the same replica.
	if err := brokers[2].Close(); err != nil {
		t.Fatal(err)
	}
	if brokers[2], err = restart(t, brokers[2]); err != nil || brokers[2].replica != old {
		t.Fatalf("restarted as %s (%v), expected %s", brokers[2].replica, err, old)
	}
	until(t, brokers[2].Ready)
	closed := brokers[2]
	if err := errors.Join(closed.Close(), os.RemoveAll(wal)); err != nil {
		t.Fatal(err)
	}
	if brokers[2], err = restart(t, closed); err != nil {
		t.Fatal(err)
	}
	if brokers[2].replica == old {
		t.Fatalf("replica %s goes on without its log", old)
	}
	until(t, brokers[2].Ready)
}

// TestDamageOfManyIsForTheOperator: nothing is put aside while the others are
// not a majority.
func TestDamageOfManyIsForTheOperator(t *testing.T) {
	three := &metadata.Shard{ID: 1, Replicas: []metadata.Replica{{ID: 11, Broker: 1}, {ID: 12, Broker: 2}, {ID: 13, Broker: 3}}}
	for _, c := range []struct {
		alive   []int // brokers with the replica that the row names
		strange bool  // broker 2 is another replica by now
		ok      bool
	}{
		{[]int{1, 2}, false, true}, {[]int{1}, false, false}, {nil, false, false}, {[]int{1, 2}, true, false},
	} {
		var brokers []*metadata.Broker
		for _, id := range c.alive {
			b := &metadata.Broker{ID: metadata.BrokerID(id), Replica: metadata.ReplicaID(10 + id), Alive: true}
			if c.strange && id == 2 {
				b.Replica = 99
			}
			brokers = append(brokers, b)
		}
		err := othersSuffice(metadata.NewCluster(metadata.ClusterInfo{}, brokers, []*metadata.Shard{three}, nil), 3, 13)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
