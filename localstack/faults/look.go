package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"thermocline/cmd/broker"
	"thermocline/localstack/processes"
)

// pollEvery is the pause between two looks at a condition.
const pollEvery = 50 * time.Millisecond

// Until looks at a condition until it holds; the error is its last one when
// ctx ends first.
func Until(ctx context.Context, what string, cond func() error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("faults: waiting until %s: %w (%w)", what, err, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// client is for looks: a broker that hangs must not hang them.
var client = &http.Client{Timeout: 5 * time.Second}

// Get fetches a page of a broker's HTTP side.
func Get(url string) (code int, body string, err error) {
	resp, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return resp.StatusCode, string(raw), err
}

// Ready waits until broker i says that it is, or has ended.
func Ready(ctx context.Context, c *processes.Cluster, i int) error {
	p := c.Brokers[i]
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.Done():
			cancel(fmt.Errorf("%s has ended (see %s)", p.Name, p.LogFile))
		case <-ctx.Done():
		}
	}()
	return Until(ctx, fmt.Sprintf("broker %d is ready", i+1), func() error {
		code, body, err := Get(c.HTTP(i) + "/readyz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("/readyz: %d %s", code, strings.TrimSpace(body))
		}
		return err
	})
}

// ReadyAll waits until every broker is ready.
func ReadyAll(ctx context.Context, c *processes.Cluster) error {
	for i := range c.Brokers {
		if err := Ready(ctx, c, i); err != nil {
			return err
		}
	}
	return nil
}

// Status is what broker i says of itself.
func Status(c *processes.Cluster, i int) (broker.Status, error) {
	var s broker.Status
	_, body, err := Get(c.HTTP(i) + "/status")
	if err == nil {
		err = json.Unmarshal([]byte(body), &s)
	}
	return s, err
}

// Admin connects an admin client; close what it returns.
func Admin(c *processes.Cluster) (*kadm.Client, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.MetadataMinAge(20*time.Millisecond), kgo.DialTimeout(2*time.Second))
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(cl), nil
}

// CreateTopic creates a topic and waits until every partition has a leader.
func CreateTopic(ctx context.Context, c *processes.Cluster, topic string, partitions int32, config map[string]string) error {
	adm, err := Admin(c)
	if err != nil {
		return err
	}
	defer adm.Close()
	set := map[string]*string{}
	for k, v := range config {
		set[k] = &v
	}
	err = Until(ctx, "topic "+topic+" is created", func() error {
		r, err := adm.CreateTopic(ctx, partitions, -1, set, topic)
		if err == nil {
			err = r.Err
		}
		if err == kerr.TopicAlreadyExists {
			return nil // an earlier attempt whose answer was lost
		}
		return err
	})
	if err != nil {
		return err
	}
	_, err = Leaders(ctx, c, topic, nil)
	return err
}

// Leaders waits until every partition has a leader that ok accepts (nil: any
// running one) and returns the brokers' positions in c.Brokers.
func Leaders(ctx context.Context, c *processes.Cluster, topic string, ok func(partition int32, broker int) bool) (map[int32]int, error) {
	adm, err := Admin(c)
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	var out map[int32]int
	err = Until(ctx, "every partition of "+topic+" has its leader", func() error {
		ask, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		topics, err := adm.ListTopics(ask, topic)
		if err != nil {
			return err
		}
		t := topics[topic]
		if t.Err != nil {
			return t.Err
		}
		out = map[int32]int{}
		for p, d := range t.Partitions {
			i := int(d.Leader) - 1
			if i < 0 || d.Err != nil || ok != nil && !ok(p, i) {
				return fmt.Errorf("partition %d: leader %d, %v", p, d.Leader, d.Err)
			}
			out[p] = i
		}
		return nil
	})
	return out, err
}

// Busiest is the broker that leads most partitions.
func Busiest(leaders map[int32]int) int {
	count := map[int]int{}
	best := -1
	for _, b := range leaders {
		count[b]++
	}
	for b, n := range count {
		if best < 0 || n > count[best] || n == count[best] && b < best {
			best = b
		}
	}
	return best
}

// Restart starts broker i again and waits until it is ready.
func Restart(ctx context.Context, c *processes.Cluster, i int) error {
	if err := c.RestartBroker(i); err != nil {
		return err
	}
	return Ready(ctx, c, i)
}
