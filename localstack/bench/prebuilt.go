package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/wal/batch"
)

// Prebuilt load: produce requests whose batches were built before, so that the
// rate is the brokers' own and not the client's.

const (
	prebuiltBatchBytes = 16 << 10
	prebuiltInFlight   = 32 // requests under way on each connection
	produceVersion     = 9
)

// ProducePrebuilt sends 100-byte records (or recordBytes) in batches of up to
// 16 KiB to every partition's leader, one connection per broker, and counts
// records acknowledged.
func ProducePrebuilt(ctx context.Context, seeds []string, topic string, recordBytes int, d time.Duration, pids []int) (Produced, error) {
	records, b := prebuiltBatch(recordBytes)
	before, err := CPUSeconds(pids...)
	if err != nil {
		return Produced{}, err
	}
	start := time.Now()
	var total Produced
	for left := d; left > 0; left = d - time.Since(start) {
		err := prebuiltOnce(ctx, seeds, topic, b, left, records, &total)
		if errors.Is(err, errMoved) && ctx.Err() == nil {
			continue // what was under way is not counted
		}
		if err != nil {
			return Produced{}, err
		}
	}
	total.Took, total.Bytes = time.Since(start), total.Records*int64(recordBytes)
	after, err := CPUSeconds(pids...)
	total.CPU = after - before
	return total, err
}

// errMoved: a partition is led elsewhere now.
var errMoved = errors.New("bench: a partition's leader has changed")

// prebuiltOnce sends until d is over or a leader changes, and adds up what was
// acknowledged.
func prebuiltOnce(ctx context.Context, seeds []string, topic string, b []byte, d time.Duration, records int, total *Produced) error {
	leaders, addrs, err := partitionLeaders(ctx, seeds, topic)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		acked  int64
		delays Delays
		err    error
	}
	outcomes := make(chan outcome, len(leaders))
	for broker, partitions := range leaders {
		go func() {
			frame := prebuiltFrame(topic, partitions, b)
			n, delays, err := pumpFrames(ctx, addrs[broker], frame, d)
			outcomes <- outcome{n * int64(len(partitions)), delays, err}
		}()
	}
	var failed error
	for range leaders {
		o := <-outcomes
		if o.err != nil && failed == nil {
			failed = o.err
			cancel()
		}
		total.Records += o.acked * int64(records)
		total.Delays = append(total.Delays, o.delays...)
	}
	return failed
}

func partitionLeaders(ctx context.Context, seeds []string, topic string) (map[int32][]int32, map[int32]string, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return nil, nil, err
	}
	defer cl.Close()
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, nil, err
	}
	leaders, addrs := map[int32][]int32{}, map[int32]string{}
	for _, b := range resp.Brokers {
		addrs[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	for _, p := range resp.Topics[0].Partitions {
		if p.ErrorCode == kerr.LeaderNotAvailable.Code {
			return nil, nil, errMoved
		}
		if p.ErrorCode != 0 {
			return nil, nil, fmt.Errorf("bench: partition %d of %s: error %d", p.Partition, topic, p.ErrorCode)
		}
		leaders[p.Leader] = append(leaders[p.Leader], p.Partition)
	}
	return leaders, addrs, nil
}

// prebuiltBatch fills one batch with as many records as fit.
func prebuiltBatch(recordBytes int) (records int, b []byte) {
	builder := batch.NewBuilder(batch.BuilderOptions{})
	now, value := time.Now().UnixMilli(), make([]byte, recordBytes)
	for builder.Size()+recordBytes+16 <= prebuiltBatchBytes {
		builder.Add(now, nil, value)
		records++
	}
	return records, builder.Build()
}

// prebuiltFrame is one whole produce request, length first.
func prebuiltFrame(topic string, partitions []int32, b []byte) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(produceVersion)
	req.Acks, req.TimeoutMillis = -1, 30_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	for _, p := range partitions {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = p, b
		t.Partitions = append(t.Partitions, rp)
	}
	req.Topics = append(req.Topics, t)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, req, 0)
}

// pumpFrames keeps the connection full of the frame and counts good answers.
func pumpFrames(ctx context.Context, addr string, frame []byte, d time.Duration) (int64, Delays, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close()
	sent := make(chan time.Time, prebuiltInFlight)
	type result struct {
		n      int64
		delays Delays
		err    error
	}
	done := make(chan result, 1)
	go func() {
		n, delays, err := readAnswers(conn, sent)
		done <- result{n, delays, err}
	}()
	start := time.Now()
	var werr error
	for time.Since(start) < d && ctx.Err() == nil && werr == nil {
		select {
		case sent <- time.Now():
			_, werr = conn.Write(frame)
		case r := <-done:
			return r.n, r.delays, r.err
		}
	}
	close(sent)
	r := <-done
	if r.err == nil {
		r.err = werr
	}
	return r.n, r.delays, r.err
}

func readAnswers(conn net.Conn, sent <-chan time.Time) (n int64, delays Delays, err error) {
	r := bufio.NewReaderSize(conn, 64<<10)
	var body []byte
	for t := range sent {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return n, delays, fmt.Errorf("bench: reading an answer: %w", err)
		}
		size := int(binary.BigEndian.Uint32(head[:]))
		if size > 1<<20 || size < 5 {
			return n, delays, fmt.Errorf("bench: an answer of %d bytes", size)
		}
		if cap(body) < size {
			body = make([]byte, size)
		}
		body = body[:size]
		if _, err := io.ReadFull(r, body); err != nil {
			return n, delays, err
		}
		resp := kmsg.NewPtrProduceResponse()
		resp.SetVersion(produceVersion)
		if err := resp.ReadFrom(body[5:]); err != nil { // correlation id, then an empty tag buffer
			return n, delays, err
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == kerr.NotLeaderForPartition.Code {
					return n, delays, errMoved
				}
				if p.ErrorCode != 0 {
					return n, delays, fmt.Errorf("bench: produce to partition %d: error %d", p.Partition, p.ErrorCode)
				}
			}
		}
		n++
		delays = append(delays, time.Since(t))
	}
	return n, delays, nil
}
