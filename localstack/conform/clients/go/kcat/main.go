// Command kcat is the conformance driver of kcat, and through it of the
// librdkafka that it is linked with. Topics are created and deleted with
// kadm: kcat has no admin side.
package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"thermocline/localstack/conform/clients/go/driver"
)

func main() { driver.Main(connect) }

type client struct {
	noAdmin
	bootstrap string
	version   string
	adm       *kadm.Client
}

func connect(bootstrap []string) (driver.Client, error) {
	if _, err := exec.LookPath("kcat"); err != nil {
		return nil, fmt.Errorf("kcat is missing: install it (Debian: apt-get install kcat): %w", err)
	}
	out, err := exec.Command("kcat", "-V").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("kcat -V: %w\n%s", err, out)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...))
	if err != nil {
		return nil, err
	}
	m := regexp.MustCompile(`Version (\S+).*librdkafka (\S+)`).FindStringSubmatch(string(out))
	if m == nil {
		return nil, fmt.Errorf("kcat -V does not name its version and librdkafka's:\n%s", out)
	}
	return &client{bootstrap: strings.Join(bootstrap, ","), adm: kadm.NewClient(cl), version: "kcat " + m[1] + ", librdkafka " + m[2]}, nil
}

func (c *client) Version() string { return c.version }

// NullHeaders: -H can give an empty value only, none would be the next option.
func (c *client) NullHeaders() bool { return false }

// NoEmptyKeys: with -Z every empty key or value is a null, without it none.
func (c *client) NoEmptyKeys() string { return "kcat sends either nulls or empty keys" }

// DroppedOnLeave: told to end, kcat drops the record that it has just polled,
// and commits it all the same.
func (c *client) DroppedOnLeave() (int, string) {
	return 1, "a record that kcat had polled when it was told to end is committed and not printed"
}

func (c *client) Producer(o driver.ProducerOptions) (driver.Producer, error) {
	args := []string{"-b", c.bootstrap, "-P", "-z", o.Codec}
	if o.Idempotent {
		args = append(args, "-X", "enable.idempotence=true")
	}
	if o.MaxBytes > 0 {
		args = append(args, "-X", fmt.Sprintf("message.max.bytes=%d", o.MaxBytes))
	}
	return producer{args}, nil
}

func (c *client) Reader(ctx context.Context, topic string, partitions []int32, from int64) (driver.Consumer, error) {
	r := &reader{bootstrap: c.bootstrap, topic: topic}
	for _, p := range partitions {
		if err := r.start(p, from); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (c *client) Member(_ context.Context, group, topic string) (driver.Consumer, error) {
	r := &reader{bootstrap: c.bootstrap, topic: topic}
	return r, r.run(-1, "-G", group, "-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=300",
		"-X", "session.timeout.ms=6000", "-X", "auto.commit.interval.ms=200", topic)
}
