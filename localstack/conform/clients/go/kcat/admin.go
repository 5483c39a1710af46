package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"thermocline/localstack/conform/clients/go/driver"
)

const none = driver.NotApplicable("kcat has no such command")

// noAdmin is what kcat has no command for.
type noAdmin struct{}

func (noAdmin) AddPartitions(context.Context, string, int32) error { return none }
func (noAdmin) TopicConfig(context.Context, string) (map[string]string, error) {
	return nil, none
}
func (noAdmin) SetTopicConfig(context.Context, string, string, string) error { return none }
func (noAdmin) Groups(context.Context) ([]string, error)                     { return nil, none }
func (noAdmin) Group(context.Context, string) (string, int, error)           { return "", 0, none }
func (noAdmin) Committed(context.Context, string, string, int32) (int64, error) {
	return 0, none
}
func (noAdmin) SetCommitted(context.Context, string, string, int32, int64) error { return none }
func (noAdmin) DeleteGroup(context.Context, string) error                        { return none }
func (noAdmin) DeleteRecords(context.Context, string, int32, int64) error        { return none }

func (c *client) CreateTopic(ctx context.Context, topic string, partitions int32, config map[string]string) error {
	set := map[string]*string{}
	for k, v := range config {
		set[k] = &v
	}
	r, err := c.adm.CreateTopic(ctx, partitions, -1, set, topic)
	return errors.Join(err, r.Err)
}

func (c *client) DeleteTopic(ctx context.Context, topic string) error {
	r, err := c.adm.DeleteTopic(ctx, topic)
	return errors.Join(err, r.Err)
}

// run starts kcat and returns what it prints; stderr goes into the error.
func (c *client) kcat(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "kcat", append([]string{"-b", c.bootstrap}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("kcat %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return out, err
}

type listing struct {
	Topics []struct {
		Topic      string
		Error      string
		Partitions []struct{ Partition int32 }
	}
}

func (c *client) list(ctx context.Context, args ...string) (listing, error) {
	var l listing
	out, err := c.kcat(ctx, append([]string{"-L", "-J"}, args...)...)
	if err == nil {
		err = json.Unmarshal(out, &l)
	}
	return l, err
}

func (c *client) Topics(ctx context.Context) ([]string, error) {
	l, err := c.list(ctx)
	var out []string
	for _, t := range l.Topics {
		out = append(out, t.Topic)
	}
	return out, err
}

func (c *client) Partitions(ctx context.Context, topic string) (int, error) {
	l, err := c.list(ctx, "-t", topic)
	if err != nil {
		return 0, err
	}
	if len(l.Topics) != 1 || l.Topics[0].Error != "" {
		return 0, fmt.Errorf("kcat lists %v for %s", l.Topics, topic)
	}
	return len(l.Topics[0].Partitions), nil
}

func (c *client) Offset(ctx context.Context, topic string, partition int32, at int64) (int64, error) {
	out, err := c.kcat(ctx, "-Q", "-t", fmt.Sprintf("%s:%d:%d", topic, partition, at))
	if err != nil {
		return 0, err
	}
	// "topic [0] offset 10"
	fields := strings.Fields(string(out))
	if len(fields) != 4 {
		return 0, fmt.Errorf("kcat -Q says %q", out)
	}
	return strconv.ParseInt(fields[3], 10, 64)
}
