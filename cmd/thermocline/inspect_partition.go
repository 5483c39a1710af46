package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func inspectPartition() *cobra.Command {
	c := &cluster{}
	cmd := &cobra.Command{
		Use:   "partition TOPIC/N",
		Short: "Show where a partition's records are: in the brokers, in the store",
		Long: `Show a partition's log start, tiered end, high watermark, last stable offset and
log end, its leader and replicas, and the bytes that brokers and the object store
hold of it. Everything is asked for through the Kafka protocol; what another
cluster than Thermocline cannot tell is shown as "-".`,
		Example: "  thermocline inspect partition flights/0 -b 127.0.0.1:9092",
		Args:    nameOf("partition", "flights/0"),
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, n, err := splitPartition(args[0])
			if err != nil {
				return err
			}
			cl, err := c.client(cmd.Context())
			if err != nil {
				return err
			}
			defer cl.Close()
			r := &partitionReport{Topic: topic, Partition: n}
			if err := r.ask(cmd.Context(), cl); err != nil {
				return err
			}
			return report(cmd, r, nil, r.table)
		},
	}
	c.addFlag(cmd)
	return cmd
}

func splitPartition(arg string) (string, int32, error) {
	i := strings.LastIndexByte(arg, '/')
	if i <= 0 {
		return "", 0, fmt.Errorf("write TOPIC/N, for example flights/0, not %q", arg)
	}
	n, err := strconv.ParseInt(arg[i+1:], 10, 32)
	if err != nil || n < 0 {
		return "", 0, fmt.Errorf("write TOPIC/N with a partition number, not %q", arg)
	}
	return arg[:i], int32(n), nil
}

// partitionReport is a partition as its cluster tells of it. A nil number is
// one that the cluster does not tell.
type partitionReport struct {
	Topic       string           `json:"topic"`
	TopicID     string           `json:"topic_id"`
	Partition   int32            `json:"partition"`
	Leader      int32            `json:"leader"`
	LeaderEpoch int32            `json:"leader_epoch"`
	Replicas    []int32          `json:"replicas"`
	ISR         []int32          `json:"isr"`
	LogStart    *int64           `json:"log_start"`
	TieredEnd   *int64           `json:"tiered_end"`
	HW          *int64           `json:"high_watermark"`
	LSO         *int64           `json:"last_stable_offset"`
	LogEnd      *int64           `json:"log_end"`
	Hot         *int64           `json:"hot_bytes"`
	Cold        *int64           `json:"cold_bytes"`
	HotAt       map[string]int64 `json:"hot_bytes_by_broker"`
	Notes       []string         `json:"notes,omitempty"`
}

// inspectTimeout bounds each question.
const inspectTimeout = 15 * time.Second

// ask collects everything; only a partition that is not there is an error.
func (r *partitionReport) ask(ctx context.Context, cl *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	adm := kadm.NewClient(cl)
	topics, err := adm.ListTopics(ctx, r.Topic)
	if err != nil {
		return err
	}
	t, ok := topics[r.Topic]
	if !ok || t.Err != nil {
		return fmt.Errorf("topic %s: %w", r.Topic, orUnknown(t.Err))
	}
	p, ok := t.Partitions[r.Partition]
	if !ok {
		return fmt.Errorf("topic %s has %d partitions, none is number %d", r.Topic, len(t.Partitions), r.Partition)
	}
	r.TopicID, r.Leader, r.LeaderEpoch, r.Replicas, r.ISR = t.ID.String(), p.Leader, p.LeaderEpoch, p.Replicas, p.ISR
	r.offsets(ctx, cl)
	r.LogEnd = r.noting("log end", func() (int64, error) { return r.logEnd(ctx, cl) })
	r.bytes(ctx, adm)
	return nil
}

// noting turns an answer that did not come into a note.
func (r *partitionReport) noting(what string, ask func() (int64, error)) *int64 {
	v, err := ask()
	if err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("%s: %v", what, err))
		return nil
	}
	return &v
}

var errUntold = errors.New("this cluster does not tell")

// ListOffsets' timestamps with a meaning of their own.
const (
	latestOffset   = -1
	earliestOffset = -2
	latestTiered   = -5
)

func (r *partitionReport) offsets(ctx context.Context, cl *kgo.Client) {
	list := func(isolation int8, timestamp int64) func() (int64, error) {
		return func() (int64, error) { return r.listOffset(ctx, cl, isolation, timestamp) }
	}
	r.LogStart = r.noting("log start", list(0, earliestOffset))
	r.HW = r.noting("high watermark", list(0, latestOffset))
	r.LSO = r.noting("last stable offset", list(1, latestOffset))
	r.TieredEnd = r.noting("tiered end", func() (int64, error) {
		last, err := r.listOffset(ctx, cl, 0, latestTiered)
		if err != nil {
			return 0, err
		}
		if last >= 0 {
			return last + 1, nil
		}
		// Nothing is in the store: its end is where the brokers' own data begins.
		return r.listOffset(ctx, cl, 0, earliestLocal)
	})
}

func (r *partitionReport) listOffset(ctx context.Context, cl *kgo.Client, isolation int8, timestamp int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = r.Topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = r.Partition, timestamp
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errUntold
	}
	p := resp.Topics[0].Partitions[0]
	switch err := kerr.ErrorForCode(p.ErrorCode); {
	case errors.Is(err, kerr.UnsupportedVersion), errors.Is(err, kerr.InvalidRequest):
		return 0, errUntold
	default:
		return p.Offset, err
	}
}

// logEnd asks where the current leader epoch ends on its leader.
func (r *partitionReport) logEnd(ctx context.Context, cl *kgo.Client) (int64, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = r.Topic
	rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = r.Partition, -1, r.LeaderEpoch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errUntold
	}
	p := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return 0, err
	}
	if p.EndOffset < 0 {
		return 0, errUntold
	}
	return p.EndOffset, nil
}

// bytes asks every broker for its directories. A directory that is a URL is
// the object store, which only the partition's leader tells of.
func (r *partitionReport) bytes(ctx context.Context, adm *kadm.Client) {
	var set kadm.TopicsSet
	set.Add(r.Topic, r.Partition)
	all, err := adm.DescribeAllLogDirs(ctx, set)
	if err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("log directories: %v", err))
	}
	r.HotAt = map[string]int64{}
	for broker, dirs := range all {
		for name, dir := range dirs {
			p, ok := dir.Topics.Lookup(r.Topic, r.Partition)
			if dir.Err != nil || !ok {
				continue
			}
			size := p.Size
			if strings.Contains(name, ":") && !strings.HasPrefix(name, "/") {
				r.Cold = &size
				continue
			}
			r.HotAt[strconv.Itoa(int(broker))] += size
			if broker == r.Leader {
				r.Hot = &size
			}
		}
	}
}

func (r *partitionReport) table(out io.Writer) error {
	fmt.Fprintf(out, "%s/%d  id %s\n", r.Topic, r.Partition, r.TopicID)
	field(out, "leader", fmt.Sprintf("%d (epoch %d)", r.Leader, r.LeaderEpoch))
	field(out, "replicas", joinInts(r.Replicas))
	field(out, "in sync", joinInts(r.ISR))
	for _, n := range []struct {
		name  string
		value *int64
	}{
		{"log start", r.LogStart}, {"tiered end", r.TieredEnd}, {"HW", r.HW}, {"LSO", r.LSO}, {"log end", r.LogEnd},
		{"hot bytes", r.Hot}, {"cold bytes", r.Cold},
	} {
		if n.value == nil {
			field(out, n.name, "-")
		} else {
			field(out, n.name, *n.value)
		}
	}
	for _, id := range r.Replicas {
		if size, ok := r.HotAt[strconv.Itoa(int(id))]; ok && id != r.Leader {
			field(out, fmt.Sprintf("on broker %d", id), size)
		}
	}
	for _, n := range r.Notes {
		field(out, "note", n)
	}
	return nil
}
