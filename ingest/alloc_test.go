//go:build !race

// The race detector makes pools forget at random: what is measured here would
// mean nothing under it.

package ingest

import (
	"context"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

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

// measured builds a server whose replica discards payloads, and a request of
// about 1 MiB in batches of four partitions.
func measured(t testing.TB) (*wire, []byte) {
	cluster := newFakeCluster(1)
	s := startServer(t, cluster, nil)
	cluster.replicas[1].discard = true
	row, err := cluster.CreateTopic(context.Background(), NewTopic{Name: "measured", Partitions: 4, ReplicationFactor: 1})
	if err != nil {
		t.Fatal(err)
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
	return dial(t, s.addr), kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
}

// TestProduceAllocations: from frame to ack, 1 MiB requests allocate at most
// 5 % of their bytes, kmsg's decode included (the client of this test writes
// prebuilt bytes). The state's own rows are part of it.
func TestProduceAllocations(t *testing.T) {
	w, request := measured(t)
	w.nc.SetDeadline(time.Now().Add(time.Minute))
	produceLoop(t, w.nc, request, 20) // pools warm
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const n = 100
	produceLoop(t, w.nc, request, n)
	runtime.ReadMemStats(&after)
	per := float64(after.TotalAlloc-before.TotalAlloc) / n
	if share := per / float64(len(request)); share > 0.05 {
		t.Errorf("a request of %d bytes allocates %.0f bytes, %.1f %%", len(request), per, share*100)
	}
}

func BenchmarkProduce1MiB(b *testing.B) {
	w, request := measured(b)
	w.nc.SetDeadline(time.Now().Add(10 * time.Minute))
	b.SetBytes(int64(len(request)))
	b.ReportAllocs()
	for b.Loop() {
		produceLoop(b, w.nc, request, 1)
	}
}
