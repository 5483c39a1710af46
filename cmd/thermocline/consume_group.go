package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// pollRecords bounds what is written between two looks at the clock, and
	// so how long a rebalance may wait for this member.
	pollRecords = 10_000
	// pollWait bounds a poll that brings nothing.
	pollWait = 500 * time.Millisecond
	// idleLooks is how often, a second apart, a member without an assignment
	// waits for one before it takes what nobody has committed for read.
	idleLooks = 5
	// unknownPosition is that of a partition that is assigned and whose
	// committed offset is not known yet.
	unknownPosition = -1
)

// partitionOf names a partition of a topic.
type partitionOf struct {
	topic     string
	partition int32
}

func (o *consumeOptions) checkGroup() error {
	switch {
	case !isEarliest(o.from) && !isLatest(o.from):
		return fmt.Errorf("with --group, --from is earliest or latest: where to begin in partitions that the group has not read, not %q (to move the group: thermocline group reset-offsets %s)", o.from, o.group)
	case len(o.partitions) > 0:
		return errors.New("with --group, the group divides the partitions: leave --partition out")
	case o.protocol != "classic" && o.protocol != "consumer":
		return fmt.Errorf("--group-protocol is classic or consumer, not %q", o.protocol)
	case o.commitEvery < 0:
		return errors.New("--commit-every is 0 or more")
	}
	return nil
}

// groupReader is one member of a group. The client calls the assignment
// callbacks on a goroutine of its own; while records that were polled are
// being written it holds them back, so that what is committed is owned.
type groupReader struct {
	o       *consumeOptions
	cluster *cluster
	adm     *kadm.Client
	cl      *kgo.Client
	sink    *recordSink
	notice  func(format string, args ...any)
	topics  *topicWatch

	starts, ends map[partitionOf]int64 // as they were at the start

	mu sync.Mutex
	// position is the next offset to be read, of assigned partitions only.
	position map[partitionOf]int64
	// written is what is in the output and not committed yet.
	written map[partitionOf]kgo.EpochOffset
	leaving bool

	// polled is what was given to the sink since the last flush.
	polled     map[partitionOf]kgo.EpochOffset
	commitDue  time.Time
	askedGroup time.Time
	idleLooks  int // at the group's offsets, without an assignment
}

func (o *consumeOptions) runGroup(cmd *cobra.Command, c *cluster, adm *kadm.Client, topics []string, sink *recordSink) (err error) {
	g := &groupReader{o: o, cluster: c, adm: adm, sink: sink, position: map[partitionOf]int64{}, written: map[partitionOf]kgo.EpochOffset{}, polled: map[partitionOf]kgo.EpochOffset{}}
	g.notice = notices(cmd.ErrOrStderr(), o.quiet)
	if g.topics, err = newTopicWatch(cmd.Context(), adm, topics); err != nil {
		return err
	}
	if err := g.bounds(cmd.Context(), topics); err != nil {
		return err
	}
	opts, err := g.clientOptions(cmd.Context(), topics)
	if err != nil {
		return err
	}
	// The client joins at once, and adm has shown that a broker answers: asking
	// again would only be one more moment in which a member is left behind.
	if g.cl, err = c.open(opts...); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.leave(cmd.Context())) }()
	return g.loop(cmd.Context())
}

// notices writes lines about the group, which no reader of records sees.
func notices(w io.Writer, quiet bool) func(string, ...any) {
	return func(format string, args ...any) {
		if !quiet {
			fmt.Fprintf(w, format+"\n", args...)
		}
	}
}

// bounds remembers where the topics begin and end now.
func (g *groupReader) bounds(ctx context.Context, topics []string) error {
	starts, err := listOffsets(ctx, func() (kadm.ListedOffsets, error) { return g.adm.ListStartOffsets(ctx, topics...) })
	if err == nil {
		var ends kadm.ListedOffsets
		if ends, err = g.o.ends(ctx, g.adm, topics...); err == nil {
			g.starts, g.ends = byPartition(starts), byPartition(ends)
			return nil
		}
	}
	return fmt.Errorf("%s %s: %w", plural(len(topics), "topic", "topics"), shown(strings.Join(topics, ", ")), refused(err, ""))
}

func byPartition(l kadm.ListedOffsets) map[partitionOf]int64 {
	out := map[partitionOf]int64{}
	l.Each(func(o kadm.ListedOffset) { out[partitionOf{o.Topic, o.Partition}] = o.Offset })
	return out
}

func (g *groupReader) clientOptions(ctx context.Context, topics []string) ([]kgo.Opt, error) {
	from := kgo.NewOffset().AtStart()
	if isLatest(g.o.from) {
		from = kgo.NewOffset().AtEnd()
	}
	opts := append(g.o.clientOptions(),
		kgo.ConsumeTopics(topics...), kgo.ConsumerGroup(g.o.group), kgo.ConsumeResetOffset(from),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.AdjustFetchOffsetsFn(g.onPositions), kgo.OnPartitionsAssigned(g.onAssigned),
		kgo.OnPartitionsRevoked(g.onRevoked), kgo.OnPartitionsLost(g.onLost))
	if g.o.protocol == "classic" {
		return append(opts, kgo.Balancers(kgo.CooperativeStickyBalancer())), nil
	}
	// The client would use the classic protocol silently where the brokers do
	// not serve the other one.
	versions, err := g.adm.ApiVersions(ctx)
	if err != nil {
		return nil, err
	}
	for _, v := range versions.Sorted() {
		if newest, ok := v.KeyMaxVersion(int16(kmsg.ConsumerGroupHeartbeat)); v.Err == nil && (!ok || newest < 1) {
			return nil, fmt.Errorf("broker %d does not serve --group-protocol consumer (KIP-848, Apache Kafka 4.0 and later): use classic", v.NodeID)
		}
	}
	return append(opts, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()), nil
}

func (g *groupReader) onAssigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, partitions := range added {
		for _, p := range partitions {
			g.position[partitionOf{topic, p}] = unknownPosition
		}
	}
	if len(added) > 0 {
		g.notice("group %s: assigned %s", shown(g.o.group), partitionText(added))
	}
}

// onPositions learns where reading begins; the client does not tell otherwise.
func (g *groupReader) onPositions(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, partitions := range offsets {
		for p, o := range partitions {
			id := partitionOf{topic, p}
			if now, ok := g.position[id]; ok && now != unknownPosition {
				continue
			}
			at := o.EpochOffset().Offset
			if at < 0 { // the policy decides
				at = g.begin(id)
				if isLatest(g.o.from) { // else the next member would skip what is written until it joins
					g.written[id] = kgo.EpochOffset{Epoch: -1, Offset: at}
				}
			}
			g.position[id] = at
		}
	}
	return offsets, nil
}

// begin is where a partition is read from that the group has not committed.
func (g *groupReader) begin(id partitionOf) int64 {
	if isLatest(g.o.from) {
		return g.ends[id]
	}
	return g.starts[id]
}

// onRevoked commits what is written of partitions that go to another member.
func (g *groupReader) onRevoked(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
	if len(taken) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	if err := g.commit(ctx); err != nil {
		g.notice("group %s: %v", shown(g.o.group), err)
	}
	g.drop("handed over", taken)
}

// onLost: the group went on without this member. What it had not committed is
// read again by whoever has the partitions now.
func (g *groupReader) onLost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	g.drop("lost", lost)
}

func (g *groupReader) drop(how string, partitions map[string][]int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, list := range partitions {
		for _, p := range list {
			delete(g.position, partitionOf{topic, p})
			delete(g.written, partitionOf{topic, p})
		}
	}
	if len(partitions) > 0 && !g.leaving {
		g.notice("group %s: %s %s", shown(g.o.group), how, partitionText(partitions))
	}
}

func (g *groupReader) loop(ctx context.Context) error {
	g.commitDue = time.Now().Add(g.o.commitEvery)
	for ctx.Err() == nil && !g.sink.full() {
		if g.o.untilEnd {
			if done, err := g.finished(ctx); done || err != nil {
				return err
			}
		}
		if err := g.step(ctx); err != nil {
			return err
		}
		if err := g.topics.look(ctx, g.adm, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// step polls once, writes what came, and commits if it is time.
func (g *groupReader) step(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, pollWait)
	defer cancel()
	fetches := g.cl.PollRecords(wait, pollRecords)
	defer g.cl.AllowRebalance()
	for _, e := range fetches.Errors() {
		if err := g.judge(e); err != nil {
			return g.topics.explain(ctx, g.adm, err)
		}
	}
	for it := fetches.RecordIter(); !it.Done() && !g.sink.full(); {
		r := it.Next()
		if !r.Attrs.IsControl() {
			if err := g.sink.put(r); err != nil {
				return err
			}
		}
		g.polled[partitionOf{r.Topic, r.Partition}] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
	}
	if err := g.flush(); err != nil {
		return err
	}
	if now := time.Now(); !now.Before(g.commitDue) {
		g.commitDue = now.Add(g.o.commitEvery)
		if err := g.commit(ctx); err != nil && ctx.Err() == nil {
			g.notice("group %s: %v; it is tried again", shown(g.o.group), err)
		}
	}
	return nil
}

// flush brings what was polled to the output; from then on it may be committed.
func (g *groupReader) flush() error {
	if err := g.sink.flush(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, at := range g.polled {
		if _, mine := g.position[id]; mine {
			g.position[id], g.written[id] = at.Offset, at
		}
		delete(g.polled, id)
	}
	return nil
}

// judge tells errors that end the reading from those that the client gets over.
func (g *groupReader) judge(e kgo.FetchError) error {
	var session *kgo.ErrGroupSession
	var loss *kgo.ErrDataLoss
	switch {
	case errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, context.DeadlineExceeded):
		return nil // the poll's own time
	case errors.As(e.Err, &loss):
		g.notice("group %s: %v", shown(g.o.group), e.Err)
		return nil
	case errors.As(e.Err, &session):
		if fatalToMember(session.Err) {
			return fmt.Errorf("group %s: joining it: %w%s", shown(g.o.group), refused(session.Err, ""), joinHint(session.Err))
		}
		g.notice("group %s: %v; joining again", shown(g.o.group), session.Err)
		return nil
	}
	return fmt.Errorf("reading %s/%d: %w", e.Topic, e.Partition, refused(e.Err, ""))
}

// fatalToMember tells whether joining again is of no use.
func fatalToMember(err error) bool {
	var k *kerr.Error
	if !errors.As(err, &k) {
		return false
	}
	again := []*kerr.Error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.FencedMemberEpoch, kerr.StaleMemberEpoch}
	return !k.Retriable && !slices.Contains(again, k)
}

func joinHint(err error) string {
	switch {
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		return " (its members divide partitions in another way than cooperative-sticky: stop them, or use another group)"
	case errors.Is(err, kerr.GroupIDNotFound):
		return " (the name is taken by a group of another type: see thermocline group list)"
	}
	return ""
}

// commit commits what is written. What is not taken stays for the next time.
func (g *groupReader) commit(ctx context.Context) error {
	g.mu.Lock()
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for id, at := range g.written {
		if offsets[id.topic] == nil {
			offsets[id.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[id.topic][id.partition] = at
	}
	g.mu.Unlock()
	if len(offsets) == 0 {
		return nil
	}
	var failed error
	g.cl.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		failed = err
		if resp == nil || err != nil {
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				failed = errors.Join(failed, kerr.ErrorForCode(p.ErrorCode))
			}
		}
	})
	if failed != nil {
		return fmt.Errorf("a commit was not taken: %w", firstOf(failed))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, partitions := range offsets {
		for p, at := range partitions {
			if id := (partitionOf{topic, p}); g.written[id] == at {
				delete(g.written, id)
			}
		}
	}
	return nil
}

// firstOf takes one of several joined errors: partitions mostly fail alike.
func firstOf(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok && len(many.Unwrap()) > 0 {
		return firstOf(many.Unwrap()[0])
	}
	return refused(err, "")
}

// finished tells whether everything assigned has been read up to the end as it
// was at the start, by a member that has joined. A member that is assigned nothing, since there are more
// members than partitions, ends when the others have committed that far.
func (g *groupReader) finished(ctx context.Context) (bool, error) {
	g.mu.Lock()
	none, done := len(g.position) == 0, true
	for id, at := range g.position {
		done = done && at != unknownPosition && at >= g.ends[id]
	}
	g.mu.Unlock()
	if !none {
		return done, nil
	}
	if _, generation := g.cl.GroupMetadata(); generation <= 0 {
		return false, nil // not a member yet: also who has nothing to read joins
	}
	if time.Since(g.askedGroup) < time.Second {
		return false, nil
	}
	g.askedGroup = time.Now()
	committed, err := g.adm.FetchOffsets(ctx, g.o.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // nobody has joined yet
		if kerr.IsRetriable(err) || ctx.Err() != nil {
			return false, nil
		}
		return false, fmt.Errorf("group %s: asking for its offsets: %w", shown(g.o.group), refused(err, ""))
	}
	g.idleLooks++
	for id, end := range g.ends {
		at := g.begin(id)
		if c, ok := committed.Lookup(id.topic, id.partition); ok && c.Err == nil && c.At >= 0 {
			at = c.At
		} else if g.idleLooks <= idleLooks {
			return false, nil // it may only not have been assigned anything yet
		}
		if at < end {
			return false, nil
		}
	}
	return true, nil
}
