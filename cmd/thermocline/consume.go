package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// leaderTimeout is how long a tool waits for partitions to have leaders.
const leaderTimeout = 30 * time.Second

type consumeOptions struct {
	from       string
	to         string
	partitions []int32
	count      int64
	untilEnd   bool
	format     string
	committed  bool
	quiet      bool
}

func consumeCommand() *cobra.Command {
	c := &cluster{}
	var o consumeOptions
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Read records from the start, the end, an offset or a time",
		Example: `  thermocline consume flights --until-end
  thermocline consume flights --from 2001-01-10 --count 5 --format json
  thermocline consume flights --from offset:1000 --partition 3
  thermocline consume flights --from end`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd, c, args[0])
		},
	}
	c.addFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "start", "start, end, offset:N, -N (the last N of each partition), or a time: 2001-01-10, RFC 3339, milliseconds, or 2h (ago)")
	f.Int32SliceVar(&o.partitions, "partition", nil, "only these partitions")
	f.Int64VarP(&o.count, "count", "n", 0, "stop after this many records (0: no limit)")
	f.BoolVarP(&o.untilEnd, "until-end", "e", false, "stop at the end of the log as it was at the start")
	f.StringVarP(&o.format, "format", "f", "value", `value, key-value, json, or a pattern of %t topic %p partition %o offset %k key %v value %T milliseconds %h headers \n \t`)
	f.BoolVar(&o.committed, "read-committed", false, "leave out records of aborted and open transactions")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no progress, no summary")
	return cmd
}

func (o *consumeOptions) run(cmd *cobra.Command, c *cluster, topic string) error {
	if o.count < 0 {
		return errors.New("--count is 0 or more")
	}
	write, err := recordWriter(o.format)
	if err != nil {
		return err
	}
	adm, err := c.admin(cmd.Context())
	if err != nil {
		return err
	}
	defer adm.Close()
	plan, err := o.plan(cmd.Context(), adm, topic)
	if err != nil {
		return err
	}
	if plan.done() {
		return nil
	}
	opts := []kgo.Opt{kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: plan.starts()}), kgo.FetchMaxWait(500 * time.Millisecond), kgo.KeepControlRecords()}
	if o.committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	cl, err := c.client(cmd.Context(), opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	return o.loop(cmd, cl, plan, write)
}

// span is what is to be read of one partition: [start, end), end -1 for open.
type span struct{ start, end int64 }

type consumePlan struct {
	spans   map[int32]*span
	bounded bool
	left    int // bounded spans not yet finished
}

func (p *consumePlan) done() bool { return p.bounded && p.left == 0 }

func (p *consumePlan) starts() map[int32]kgo.Offset {
	out := map[int32]kgo.Offset{}
	for id, s := range p.spans {
		if s.end < 0 || s.start < s.end {
			out[id] = kgo.NewOffset().At(s.start)
		}
	}
	return out
}

// plan resolves --from and --until-end to offsets, so that what is read does
// not depend on when the fetches happen.
func (o *consumeOptions) plan(ctx context.Context, adm *kadm.Client, topic string) (*consumePlan, error) {
	starts, err := listOffsets(ctx, func() (kadm.ListedOffsets, error) { return adm.ListStartOffsets(ctx, topic) })
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", topic, err)
	}
	ends, err := listOffsets(ctx, func() (kadm.ListedOffsets, error) { return adm.ListEndOffsets(ctx, topic) })
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", topic, err)
	}
	from, err := o.resolveFrom(ctx, adm, topic, starts, ends)
	if err != nil {
		return nil, err
	}
	p := &consumePlan{spans: map[int32]*span{}, bounded: o.untilEnd}
	for id, e := range ends[topic] {
		if !o.wants(id) {
			continue
		}
		s := &span{start: max(from[id], starts[topic][id].Offset), end: -1}
		if o.untilEnd {
			s.end = e.Offset
			if s.start < s.end {
				p.left++
			}
		}
		p.spans[id] = s
	}
	if len(p.spans) == 0 {
		return nil, fmt.Errorf("topic %s has no such partition: it has %d", topic, len(ends[topic]))
	}
	return p, nil
}

// listOffsets asks again while leaders are changing: a broker that has just
// died is still named as leader for a moment.
func listOffsets(ctx context.Context, ask func() (kadm.ListedOffsets, error)) (kadm.ListedOffsets, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		offsets, err := ask()
		if err == nil {
			err = offsets.Error()
		}
		if err == nil || !leaderMoving(err) {
			return offsets, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

// leaderMoving tells whether an error may be over once a new leader is known.
func leaderMoving(err error) bool {
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return false
	}
	var network net.Error
	var shards *kadm.ShardErrors
	return kerr.IsRetriable(err) || errors.As(err, &network) || errors.As(err, &shards) || errors.Is(err, io.EOF)
}

func (o *consumeOptions) wants(id int32) bool {
	for _, p := range o.partitions {
		if p == id {
			return true
		}
	}
	return len(o.partitions) == 0
}

func (o *consumeOptions) resolveFrom(ctx context.Context, adm *kadm.Client, topic string, starts, ends kadm.ListedOffsets) (map[int32]int64, error) {
	out := map[int32]int64{}
	set := func(at func(int32) int64) map[int32]int64 {
		for id := range ends[topic] {
			out[id] = at(id)
		}
		return out
	}
	switch rest, isOffset := strings.CutPrefix(o.from, "offset:"); {
	case o.from == "start":
		return set(func(id int32) int64 { return starts[topic][id].Offset }), nil
	case o.from == "end":
		return set(func(id int32) int64 { return ends[topic][id].Offset }), nil
	case isOffset:
		n, err := strconv.ParseInt(rest, 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("--from offset:N needs a number, not %q", rest)
		}
		return set(func(int32) int64 { return n }), nil
	case strings.HasPrefix(o.from, "-"):
		n, err := strconv.ParseInt(o.from[1:], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("--from -N needs a number, not %q", o.from)
		}
		return set(func(id int32) int64 { return ends[topic][id].Offset - n }), nil
	}
	at, err := fromTime(o.from, time.Now())
	if err != nil {
		return nil, err
	}
	found, err := listOffsets(ctx, func() (kadm.ListedOffsets, error) { return adm.ListOffsetsAfterMilli(ctx, at.UnixMilli(), topic) })
	if err != nil {
		return nil, fmt.Errorf("looking up %s: %w", at.Format(time.RFC3339), err)
	}
	return set(func(id int32) int64 { return found[topic][id].Offset }), nil
}

func fromTime(s string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(-d), nil
	}
	t, err := parseTime(s, "")
	if err != nil {
		return t, fmt.Errorf("--from is start, end, offset:N, -N, a duration such as 2h, or a time: %w", err)
	}
	return t, nil
}

func (o *consumeOptions) loop(cmd *cobra.Command, cl *kgo.Client, plan *consumePlan, write func(*bufio.Writer, *kgo.Record) error) error {
	out := bufio.NewWriterSize(cmd.OutOrStdout(), 256<<10)
	defer out.Flush()
	var n, bytes int64
	start := time.Now()
	if !o.quiet {
		defer func() {
			secs := max(time.Since(start).Seconds(), 1e-9)
			fmt.Fprintf(cmd.ErrOrStderr(), "read %d records, %.1f MB, %.1f MB/s\n", n, float64(bytes)/1e6, float64(bytes)/1e6/secs)
		}()
	}
	for !plan.done() {
		fetches := cl.PollFetches(cmd.Context())
		if err := cmd.Context().Err(); err != nil {
			return out.Flush()
		}
		for _, e := range fetches.Errors() {
			return fmt.Errorf("reading %s/%d: %w", e.Topic, e.Partition, e.Err)
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if !plan.take(r) || r.Attrs.IsControl() {
				continue // control records count towards the end, and are not shown
			}
			if err := write(out, r); err != nil {
				return err
			}
			n++
			bytes += int64(len(r.Key) + len(r.Value))
			if o.count > 0 && n == o.count {
				return out.Flush()
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return out.Flush()
}

// take says whether a record belongs to the plan, and notes a span's end.
func (p *consumePlan) take(r *kgo.Record) bool {
	s := p.spans[r.Partition]
	if s.end < 0 {
		return true
	}
	if s.start >= s.end {
		return false
	}
	s.start = r.Offset + 1
	if s.start >= s.end {
		p.left--
	}
	return r.Offset < s.end
}

// recordWriter turns --format into a function that writes one record.
func recordWriter(format string) (func(*bufio.Writer, *kgo.Record) error, error) {
	switch format {
	case "value":
		format = `%v\n`
	case "key-value":
		format = `%k\t%v\n`
	case "json":
		return writeJSON, nil
	}
	if !strings.Contains(format, "%") {
		return nil, fmt.Errorf("--format is value, key-value, json or a pattern with %%v and the like, not %q", format)
	}
	return patternWriter(format)
}

func patternWriter(pattern string) (func(*bufio.Writer, *kgo.Record) error, error) {
	var steps []func(*bufio.Writer, *kgo.Record)
	literal := func(s string) {
		steps = append(steps, func(w *bufio.Writer, _ *kgo.Record) { w.WriteString(s) })
	}
	fields := map[byte]func(*bufio.Writer, *kgo.Record){
		't': func(w *bufio.Writer, r *kgo.Record) { w.WriteString(r.Topic) },
		'p': func(w *bufio.Writer, r *kgo.Record) { fmt.Fprint(w, r.Partition) },
		'o': func(w *bufio.Writer, r *kgo.Record) { fmt.Fprint(w, r.Offset) },
		'k': func(w *bufio.Writer, r *kgo.Record) { w.Write(r.Key) },
		'v': func(w *bufio.Writer, r *kgo.Record) { w.Write(r.Value) },
		'T': func(w *bufio.Writer, r *kgo.Record) { fmt.Fprint(w, r.Timestamp.UnixMilli()) },
		'h': writeHeaders,
		'%': func(w *bufio.Writer, _ *kgo.Record) { w.WriteByte('%') },
	}
	for i := 0; i < len(pattern); i++ {
		switch {
		case pattern[i] == '%' && i+1 < len(pattern):
			i++
			step, ok := fields[pattern[i]]
			if !ok {
				return nil, fmt.Errorf("--format: %%%c is not one of %%t %%p %%o %%k %%v %%T %%h %%%%", pattern[i])
			}
			steps = append(steps, step)
		case pattern[i] == '\\' && i+1 < len(pattern):
			i++
			literal(map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '0': "\x00", '\\': "\\"}[pattern[i]])
		default:
			literal(pattern[i : i+1])
		}
	}
	return func(w *bufio.Writer, r *kgo.Record) error {
		for _, s := range steps {
			s(w, r)
		}
		return nil // a bufio.Writer keeps its first error for Flush
	}, nil
}

func writeHeaders(w *bufio.Writer, r *kgo.Record) {
	for i, h := range r.Headers {
		if i > 0 {
			w.WriteByte(',')
		}
		fmt.Fprintf(w, "%s=%s", h.Key, h.Value)
	}
}

// jsonRecord is one line of --format json. Text that is not UTF-8 is given in
// base64 instead, under the name with _base64.
type jsonRecord struct {
	Topic     string            `json:"topic"`
	Partition int32             `json:"partition"`
	Offset    int64             `json:"offset"`
	Timestamp string            `json:"timestamp"`
	Key       *string           `json:"key"`
	KeyBase   []byte            `json:"key_base64,omitempty"`
	Value     *string           `json:"value"`
	ValueBase []byte            `json:"value_base64,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
}

func writeJSON(w *bufio.Writer, r *kgo.Record) error {
	j := jsonRecord{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UTC().Format("2006-01-02T15:04:05.000Z")}
	j.Key, j.KeyBase = jsonText(r.Key)
	j.Value, j.ValueBase = jsonText(r.Value)
	if len(r.Headers) > 0 {
		j.Headers = map[string]string{}
		for _, h := range r.Headers {
			j.Headers[h.Key] = string(h.Value)
		}
	}
	enc := json.NewEncoder(io.Writer(w))
	enc.SetEscapeHTML(false)
	return enc.Encode(j)
}

func jsonText(b []byte) (*string, []byte) {
	if b == nil {
		return nil, nil
	}
	if !utf8.Valid(b) {
		return nil, b
	}
	s := string(b)
	return &s, nil
}
