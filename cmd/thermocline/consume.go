package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

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
	isolation  string
	quiet      bool

	group       string
	protocol    string
	commitEvery time.Duration
}

func consumeCommand() *cobra.Command {
	c := &cluster{}
	var o consumeOptions
	cmd := &cobra.Command{
		Use:   "consume TOPIC…",
		Short: "Read records from the start, the end, an offset or a time, or as a member of a group",
		Long: `Read a topic's records: from the start, the end, an offset or a time.

With --group, read topics as a member of a consumer group: the members share the
partitions, and each goes on where the group has committed to. --from then says
where to begin in partitions that the group has never read: earliest or latest.
Offsets are committed after the records have been written to the output, every
--commit-every, when a partition is handed to another member, and at the end, so
that after a crash some records may come twice and none is left out. Ctrl-C
leaves the group, and the others take over at once. What this member is assigned
is told on standard error.

With --until-end it ends at the end of the log as it was at the start; a member
of a group ends when it has read that far every partition it is assigned.`,
		Example: `  thermocline consume flights --until-end
  thermocline consume flights --from 2001-01-10 --count 5 --format json
  thermocline consume flights --from offset:1000 --partition 3
  thermocline consume flights --from end
  thermocline consume flights trains --group audit
  thermocline consume flights --group audit --until-end --isolation read-committed
  thermocline consume flights --group audit --group-protocol consumer --from latest`,
		Args: namesOf("topic", "flights"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd, c, args)
		},
	}
	c.addFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "start", "start (earliest), end (latest), offset:N, -N (the last N of each partition), or a time: 2001-01-10, RFC 3339, milliseconds, or 2h (ago)")
	f.Int32SliceVar(&o.partitions, "partition", nil, "only these partitions")
	f.Int64VarP(&o.count, "count", "n", 0, "stop after this many records (0: no limit)")
	f.BoolVarP(&o.untilEnd, "until-end", "e", false, "stop at the end of the log as it was at the start")
	f.StringVarP(&o.format, "format", "f", "value", `value, key-value, json, or a pattern of %t topic %p partition %o offset %k key %v value %T milliseconds %h headers \n \t`)
	f.StringVar(&o.isolation, "isolation", readUncommitted, "read-uncommitted, or read-committed to leave out records of aborted and open transactions")
	f.StringVarP(&o.group, "group", "g", "", "read as a member of this consumer group")
	f.StringVar(&o.protocol, "group-protocol", "classic", "classic (members divide the partitions, cooperative-sticky) or consumer (the cluster does, KIP-848)")
	f.DurationVar(&o.commitEvery, "commit-every", 5*time.Second, "with --group: how often offsets are committed (0: after every write)")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no progress, no summary")
	return cmd
}

// The words of --isolation; Kafka's underscores are understood too.
const (
	readUncommitted = "read-uncommitted"
	readCommitted   = "read-committed"
)

// check reports what is wrong with the flags, before anything is asked.
func (o *consumeOptions) check(cmd *cobra.Command, topics []string) error {
	o.isolation = strings.ReplaceAll(o.isolation, "_", "-")
	switch {
	case o.count < 0:
		return errors.New("--count is 0 or more")
	case o.isolation != readUncommitted && o.isolation != readCommitted:
		return fmt.Errorf("--isolation is read-uncommitted or read-committed, not %q", o.isolation)
	case slices.Contains(topics, ""):
		return errors.New("a topic's name is empty: name what to read, as in thermocline consume flights")
	case o.group == "" && cmd.Flags().Changed("group"):
		return errors.New("--group is empty: name the group, or leave it out to read without one")
	case o.group != "":
		return o.checkGroup()
	case len(topics) > 1:
		return fmt.Errorf("one topic, not %d: several are read with --group", len(topics))
	case cmd.Flags().Changed("commit-every") || cmd.Flags().Changed("group-protocol"):
		return errors.New("--commit-every and --group-protocol need --group: without one, nothing is committed")
	}
	return nil
}

func (o *consumeOptions) run(cmd *cobra.Command, c *cluster, topics []string) (err error) {
	if err := o.check(cmd, topics); err != nil {
		return err
	}
	sink, err := newRecordSink(cmd.OutOrStdout(), o.format, o.count)
	if err != nil {
		return err
	}
	if !o.quiet {
		defer func() {
			if err == nil || sink.n > 0 { // before an error that came first, "read 0 records" is noise
				fmt.Fprintln(cmd.ErrOrStderr(), sink.summary())
			}
		}()
	}
	adm, err := c.admin(cmd.Context())
	if err != nil {
		return err
	}
	defer adm.Close()
	if o.group != "" {
		return readerWentAway(o.runGroup(cmd, c, adm, topics, sink))
	}
	plan, err := o.plan(cmd.Context(), adm, topics[0])
	if err != nil {
		return err
	}
	if plan.note != "" && !o.quiet {
		fmt.Fprintln(cmd.ErrOrStderr(), plan.note)
	}
	if plan.done() {
		return nil
	}
	opts := append(o.clientOptions(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topics[0]: plan.starts()}))
	cl, err := c.client(cmd.Context(), opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	watch, err := newTopicWatch(cmd.Context(), adm, topics)
	if err != nil {
		return err
	}
	return readerWentAway(o.loop(cmd.Context(), cl, plan, sink, func(err error) error {
		if err != nil {
			return watch.explain(cmd.Context(), adm, err)
		}
		return watch.look(cmd.Context(), adm, time.Now())
	}))
}

// clientOptions are those of both ways to read. Control records are asked for
// because they count towards the end.
func (o *consumeOptions) clientOptions() []kgo.Opt {
	opts := []kgo.Opt{kgo.FetchMaxWait(500 * time.Millisecond), kgo.KeepControlRecords()}
	if o.isolation == readCommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return opts
}

// ends asks where the topics end for this reader: with read-committed, before
// the first open transaction, since more is not served.
func (o *consumeOptions) ends(ctx context.Context, adm *kadm.Client, topics ...string) (kadm.ListedOffsets, error) {
	return listOffsets(ctx, func() (kadm.ListedOffsets, error) {
		if o.isolation == readCommitted {
			return adm.ListCommittedOffsets(ctx, topics...)
		}
		return adm.ListEndOffsets(ctx, topics...)
	})
}

// span is what is to be read of one partition: [start, end), end -1 for open.
// What lies before skip is not shown, where that is beyond the end of the log:
// a broker gives nothing from there on.
type span struct{ start, end, skip int64 }

type consumePlan struct {
	spans   map[int32]*span
	bounded bool
	left    int // bounded spans not yet finished
	note    string
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
		return nil, fmt.Errorf("topic %s: %w", shown(topic), refused(err, ""))
	}
	ends, err := o.ends(ctx, adm, topic)
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", shown(topic), refused(err, ""))
	}
	from, err := o.resolveFrom(ctx, adm, topic, starts, ends)
	if err != nil {
		return nil, err
	}
	p := &consumePlan{spans: map[int32]*span{}, bounded: o.untilEnd}
	beyond := 0
	for id, e := range ends[topic] {
		if !o.wants(id) {
			continue
		}
		s := &span{start: max(from[id], starts[topic][id].Offset), end: -1}
		if s.start > e.Offset {
			beyond++
			s.start, s.skip = e.Offset, s.start
		}
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
	if beyond > 0 {
		p.note = fmt.Sprintf("%s lies beyond the end of %d of %d %s of %s: nothing is there yet",
			o.from, beyond, len(p.spans), plural(len(p.spans), "partition", "partitions"), shown(topic))
	}
	return p, nil
}

// listOffsets asks again while leaders are changing: a broker that has just
// died is still named as leader for a moment.
func listOffsets(ctx context.Context, ask func() (kadm.ListedOffsets, error)) (kadm.ListedOffsets, error) {
	ctx, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	return listOffsetsUntil(ctx, func(context.Context) (kadm.ListedOffsets, error) { return ask() })
}

// listOffsetsUntil is listOffsets until ctx ends; then the error is the last
// that said more than that time is over.
func listOffsetsUntil(ctx context.Context, ask func(context.Context) (kadm.ListedOffsets, error)) (kadm.ListedOffsets, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		offsets, err := ask(ctx)
		if err == nil {
			err = offsets.Error()
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		switch {
		case err == nil:
			return offsets, nil
		case ctx.Err() != nil:
			return nil, last
		case !leaderMoving(err):
			return offsets, err
		}
		select {
		case <-ctx.Done():
			return nil, last
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
	case isEarliest(o.from):
		return set(func(id int32) int64 { return starts[topic][id].Offset }), nil
	case isLatest(o.from):
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

func isEarliest(from string) bool { return from == "start" || from == "earliest" }
func isLatest(from string) bool   { return from == "end" || from == "latest" }

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

// loop reads what is planned. After every poll it has the topic looked at, and
// an error of reading explained.
func (o *consumeOptions) loop(ctx context.Context, cl *kgo.Client, plan *consumePlan, sink *recordSink, look func(error) error) error {
	for !plan.done() {
		fetches := pollFor(ctx, cl, topicLook)
		if ctx.Err() != nil {
			return sink.flush()
		}
		for _, e := range fetches.Errors() {
			if !errors.Is(e.Err, context.DeadlineExceeded) { // the poll's own time
				return look(fmt.Errorf("reading %s/%d: %w", e.Topic, e.Partition, refused(e.Err, "")))
			}
		}
		if err := look(nil); err != nil {
			return errors.Join(sink.flush(), err)
		}
		for it := fetches.RecordIter(); !it.Done() && !sink.full(); {
			r := it.Next()
			if !plan.take(r) || r.Attrs.IsControl() {
				continue // control records count towards the end, and are not shown
			}
			if err := sink.put(r); err != nil {
				return err
			}
		}
		if err := sink.flush(); err != nil || sink.full() {
			return err
		}
	}
	return nil
}

func pollFor(ctx context.Context, cl *kgo.Client, d time.Duration) kgo.Fetches {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return cl.PollFetches(ctx)
}

// take says whether a record belongs to the plan, and notes a span's end.
func (p *consumePlan) take(r *kgo.Record) bool {
	s := p.spans[r.Partition]
	if s.end < 0 {
		return r.Offset >= s.skip
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
