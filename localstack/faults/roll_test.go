package faults_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"thermocline/localstack/faults"
	"thermocline/localstack/faults/storeproxy"
)

// TestRollOutlivesItsLeader: a roll that was asked for is carried out by the
// next leader when the one that had begun it is killed.
func TestRollOutlivesItsLeader(t *testing.T) {
	t.Parallel()
	c, ctx, p, _ := proxied(t, map[string]string{"tiering.segment.ms": "1h"})
	const topic = "rolled"
	must(t, faults.CreateTopic(ctx, c, topic, 6, nil))
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(t, err)
	defer cl.Close()
	for i := range 60 {
		must(t, cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: int32(i % 6), Value: fmt.Appendf(nil, "record %d", i)}).FirstErr())
	}
	leaders, err := faults.Leaders(ctx, c, topic, nil)
	must(t, err)
	p.Set(storeproxy.Hang)
	rolled := make(chan error, 1)
	go func() {
		_, err := faults.CLI(ctx, binary, "topic", "roll", topic, "--wait", "--timeout", "2m", "-b", strings.Join(c.Bootstrap(), ","))
		rolled <- err
	}()
	must(t, faults.Until(ctx, "uploads hang", func() error { return atLeast(p.Hits(storeproxy.Hang), 1) }))
	must(t, c.Brokers[faults.Busiest(leaders)].Kill())
	p.Set(storeproxy.Pass)
	must(t, <-rolled)
}
