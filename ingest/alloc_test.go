//go:build !race

// The race detector makes pools forget at random: what is measured here would
// mean nothing under it.

package ingest

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/partition"
	"thermocline/wal/batch"
)

// produceLoop sends a prebuilt request n times over one connection and reads the answers.
func produceLoop(t testing.TB, nc net.Conn, request []byte, n int) {
	answer := make([]byte, 256)
	for range n {
		if _, err := nc.Write(request); err != nil {
			t.Fatal(err)
		}
		got, err := nc.Read(answer)
		if err != nil || got < 40 || got == len(answer) {
			t.Fatalf("answer of %d bytes: %v", got, err)
		}
	}
}

// Requests of the allocation test: those that warm the pools, then rounds of
// which the best counts. A follower may lag by what a round sends, and pools grow
// until they have met that. The log's file, written ahead, holds all of them: a
// file system in memory would allocate for more.
const (
	warmRequests  = 20
	roundRequests = 8
	rounds        = 4
	measuredFile  = (warmRequests + rounds*roundRequests + 8) << 20
)

// measured builds a server whose shard has n replicas with everything that a
// broker's have, and a request of about 1 MiB in batches of four partitions.
func measured(t testing.TB, n int) (*realReplicas, *wire, []byte) {
	cluster := newFakeCluster(1)
	replicas := startReplicas(t, n, measuredFile)
	s := startServer(t, cluster, nil)
	s.Server.replicas = replicas // before the first connection
	row, err := cluster.CreateTopic(context.Background(), NewTopic{Name: "measured", Partitions: 4, ReplicationFactor: 1})
	if err != nil {
		t.Fatal(err)
	}
	for p := range row.Shards {
		replicas.command(&partition.CreatePartition{Key: partition.Key{Topic: row.ID, Partition: int32(p)}, Name: row.Name})
	}
	values := make([]string, 255)
	for i := range values {
		values[i] = strings.Repeat("x", 1000)
	}
	req := produceRequest(9, row, 0, -1, testBatch(batch.None, values...))
	for p := int32(1); p < 4; p++ {
		rp := req.Topics[0].Partitions[0]
		rp.Partition = p
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, rp)
	}
	return replicas, dial(t, s.addr), kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
}

// TestProduceAllocations: from frame to ack, 1 MiB requests allocate at most
// 5 % of their bytes, on all replicas together: kmsg's decode, the state's rows,
// Raft, the logs and the frames between replicas are part of it (the client of
// this test writes prebuilt bytes).
func TestProduceAllocations(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d replicas", n), func(t *testing.T) {
			replicas, w, request := measured(t, n)
			w.nc.SetDeadline(time.Now().Add(time.Minute))
			produceLoop(t, w.nc, request, warmRequests)
			replicas.filled(2) // the next file is no part of what is measured
			best := 1.0
			for i := 0; i < rounds && best > 0.05; i++ {
				replicas.level()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				produceLoop(t, w.nc, request, roundRequests)
				replicas.level()
				runtime.ReadMemStats(&after)
				per := float64(after.TotalAlloc-before.TotalAlloc) / roundRequests
				best = min(best, per/float64(len(request)))
				t.Logf("a request of %d bytes allocates %.0f bytes in %d pieces", len(request), per, (after.Mallocs-before.Mallocs)/roundRequests)
			}
			if best > 0.05 {
				t.Errorf("a request of %d bytes allocates %.1f %% of its bytes: expected at most 5 %%", len(request), best*100)
			}
		})
	}
}
