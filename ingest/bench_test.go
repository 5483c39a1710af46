package ingest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/wal/batch"
)

// BenchmarkProduceSmall: pipelined requests of one small batch each.
func BenchmarkProduceSmall(b *testing.B) {
	cluster := newFakeCluster(1)
	s := startServer(b, cluster, nil)
	cluster.replicas[1].discard = true
	row, err := cluster.CreateTopic(context.Background(), NewTopic{Name: "small", Partitions: 1, ReplicationFactor: 1})
	if err != nil {
		b.Fatal(err)
	}
	w := dial(b, s.addr)
	w.nc.SetDeadline(time.Now().Add(10 * time.Minute))
	const depth = 64
	one := kmsg.NewRequestFormatter().AppendRequest(nil, produceRequest(9, row, 0, -1, testBatch(batch.None, "0123456789")), 1)
	var all []byte
	for range depth {
		all = append(all, one...)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.write(all)
		for range depth {
			w.frame()
		}
	}
	b.ReportMetric(float64(b.N*depth)/b.Elapsed().Seconds(), "requests/s")
}

// BenchmarkFetchHot reads 1 MiB of batches of 16 KiB from the tail.
func BenchmarkFetchHot(b *testing.B) {
	cluster := newFakeCluster(1)
	s := startServer(b, cluster, nil)
	row, err := cluster.CreateTopic(context.Background(), NewTopic{Name: "hot", Partitions: 1, ReplicationFactor: 1})
	if err != nil {
		b.Fatal(err)
	}
	big := make([]byte, 16<<10)
	for range 64 {
		fill(b, s, row, 0, string(big))
	}
	w := dial(b, s.addr)
	w.nc.SetDeadline(time.Now().Add(10 * time.Minute))
	req := fetchRequest(16, row, 0)
	req.Topics[0].Partitions[0].PartitionMaxBytes = 1 << 20
	raw := kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
	buf := make([]byte, 2<<20)
	total := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		w.write(raw)
		total += readAnswer(b, w.nc, buf)
	}
	b.SetBytes(total / int64(b.N))
}

// readAnswer reads one answer into buf.
func readAnswer(b *testing.B, nc net.Conn, buf []byte) int64 {
	n := 0
	for n < 4 || n < 4+int(uint32(buf[0])<<24|uint32(buf[1])<<16|uint32(buf[2])<<8|uint32(buf[3])) {
		got, err := nc.Read(buf[n:])
		if err != nil {
			b.Fatal(err)
		}
		n += got
	}
	return int64(n)
}
