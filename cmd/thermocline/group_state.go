package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// groupState is one group as its coordinator tells it, in one form for groups
// of type classic and of type consumer.
type groupState struct {
	Group string `json:"group"`
	// Type is classic or consumer.
	Type  string `json:"type"`
	State string `json:"state"`
	// Protocol is "consumer", "connect" or empty, as in the list.
	Protocol string `json:"protocol"`
	// Assignor divides the partitions: cooperative-sticky, range, uniform.
	Assignor string `json:"assignor"`
	// Epoch counts a consumer group's changes; -1 for a classic one.
	Epoch           int32  `json:"epoch"`
	Coordinator     int32  `json:"coordinator"`
	CoordinatorAddr string `json:"coordinator_address"`
	// Lag is the sum over the partitions whose lag is known.
	Lag int64 `json:"lag"`
	// Uncommitted counts the partitions of the group's topics of which it has
	// no committed offset; UncommittedRecords is what is in them.
	Uncommitted        int   `json:"uncommitted_partitions"`
	UncommittedRecords int64 `json:"uncommitted_records"`

	Members []groupMember `json:"members"`
	Offsets []groupOffset `json:"offsets"`
}

// groupMember is one member and what it reads.
type groupMember struct {
	ID       string `json:"id"`
	Instance string `json:"instance,omitempty"`
	Client   string `json:"client"`
	Host     string `json:"host"`
	// Topics is what it has subscribed to, Assigned what it has now.
	Topics   []string           `json:"topics"`
	Assigned map[string][]int32 `json:"assigned"`
	// Target is what it is to have, where that differs (type consumer).
	Target map[string][]int32 `json:"target,omitempty"`
}

// name tells the member from the others.
func (m groupMember) name() string { return cmp.Or(m.Instance, m.ID) }

// groupOffset is how far the group has read one partition. A number that is
// not there is nil.
type groupOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed"`
	Start     *int64 `json:"start"`
	End       *int64 `json:"end"`
	// Lag is what is in the log from the committed offset on.
	Lag      *int64 `json:"lag"`
	Member   string `json:"member,omitempty"`
	Metadata string `json:"metadata,omitempty"`
	Problem  string `json:"problem,omitempty"`
}

// loadGroup asks for everything about one group, again until a time if its
// coordinator cannot be asked.
func loadGroup(ctx context.Context, adm *kadm.Client, name string, until time.Time) (*groupState, error) {
	g, err := askGroup(ctx, adm, name, until)
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", shown(name), err)
	}
	var committed kadm.OffsetResponses
	err = patiently(ctx, until, func() (err error) {
		committed, err = adm.FetchOffsets(ctx, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("group %s: asking for its offsets: %w", shown(name), refused(err, ""))
	}
	g.addOffsets(committed)
	var topics []string
	for _, o := range g.Offsets {
		if !slices.Contains(topics, o.Topic) {
			topics = append(topics, o.Topic)
		}
	}
	if len(topics) == 0 {
		return g, nil
	}
	starts, ends, err := logBounds(ctx, adm, topics)
	if err != nil {
		return nil, fmt.Errorf("group %s: asking where its partitions end: %w", shown(name), err)
	}
	g.measure(starts, ends)
	return g, nil
}

// logBounds asks for the first and the next offset of every partition. What
// cannot be told is an error of that partition alone.
func logBounds(ctx context.Context, adm *kadm.Client, topics []string) (starts, ends kadm.ListedOffsets, err error) {
	var partly *kadm.ShardErrors
	starts, err = adm.ListStartOffsets(ctx, topics...)
	if err != nil && !errors.As(err, &partly) {
		return nil, nil, err
	}
	ends, err = adm.ListEndOffsets(ctx, topics...)
	if err != nil && !errors.As(err, &partly) {
		return nil, nil, err
	}
	return starts, ends, nil
}

func fromConsumerGroup(d kadm.DescribedConsumerGroup) *groupState {
	g := &groupState{
		Group: d.Group, Type: "consumer", State: d.State, Protocol: "consumer", Assignor: d.AssignorName, Epoch: d.Epoch,
		Coordinator: d.Coordinator.NodeID, CoordinatorAddr: brokerAddr(d.Coordinator), Members: []groupMember{}, Offsets: []groupOffset{},
	}
	for _, m := range d.Members {
		member := groupMember{ID: m.MemberID, Client: m.ClientID, Host: m.ClientHost, Topics: m.SubscribedTopics, Assigned: sortedSet(m.Assignment)}
		if m.InstanceID != nil {
			member.Instance = *m.InstanceID
		}
		if m.SubscribedTopicRegex != nil && *m.SubscribedTopicRegex != "" {
			member.Topics = append(member.Topics, "/"+*m.SubscribedTopicRegex+"/")
		}
		if target := sortedSet(m.TargetAssignment); !maps.EqualFunc(target, member.Assigned, slices.Equal) {
			member.Target = target
		}
		g.Members = append(g.Members, member)
	}
	return g
}

func fromClassicGroup(d kadm.DescribedGroup) *groupState {
	g := &groupState{
		Group: d.Group, Type: "classic", State: d.State, Protocol: d.ProtocolType, Assignor: d.Protocol, Epoch: -1,
		Coordinator: d.Coordinator.NodeID, CoordinatorAddr: brokerAddr(d.Coordinator), Members: []groupMember{}, Offsets: []groupOffset{},
	}
	for _, m := range d.Members {
		member := groupMember{ID: m.MemberID, Client: m.ClientID, Host: m.ClientHost, Assigned: map[string][]int32{}}
		if m.InstanceID != nil {
			member.Instance = *m.InstanceID
		}
		if join, ok := m.Join.AsConsumer(); ok {
			member.Topics = slices.Sorted(slices.Values(join.Topics))
		}
		if has, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range has.Topics {
				member.Assigned[t.Topic] = slices.Sorted(slices.Values(t.Partitions))
			}
		}
		g.Members = append(g.Members, member)
	}
	return g
}

func brokerAddr(b kadm.BrokerDetail) string { return fmt.Sprintf("%s:%d", b.Host, b.Port) }

func sortedSet(s kadm.TopicsSet) map[string][]int32 {
	out := map[string][]int32{}
	for t, ps := range s {
		out[t] = slices.Sorted(maps.Keys(ps))
	}
	return out
}

// addOffsets lists every partition that has a committed offset or a reader.
func (g *groupState) addOffsets(committed kadm.OffsetResponses) {
	type place struct {
		topic     string
		partition int32
	}
	rows := map[place]*groupOffset{}
	row := func(topic string, partition int32) *groupOffset {
		at := place{topic, partition}
		if rows[at] == nil {
			rows[at] = &groupOffset{Topic: topic, Partition: partition}
		}
		return rows[at]
	}
	committed.Each(func(r kadm.OffsetResponse) {
		if r.Err != nil {
			row(r.Topic, r.Partition).Problem = refused(r.Err, "").Error()
		} else if r.At >= 0 {
			o := row(r.Topic, r.Partition)
			o.Committed, o.Metadata = &r.At, r.Metadata
		}
	})
	for _, m := range g.Members {
		for topic, partitions := range m.Assigned {
			for _, p := range partitions {
				row(topic, p).Member = m.name()
			}
		}
	}
	for _, o := range rows {
		g.Offsets = append(g.Offsets, *o)
	}
	slices.SortFunc(g.Offsets, func(a, b groupOffset) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// measure compares the committed offsets with the logs.
func (g *groupState) measure(starts, ends kadm.ListedOffsets) {
	g.countUncommitted(starts, ends)
	g.Lag = 0
	for i := range g.Offsets {
		o := &g.Offsets[i]
		start, end, problem := bounds(o.Topic, o.Partition, starts, ends)
		if problem != "" {
			o.Problem = cmp.Or(o.Problem, problem)
			continue
		}
		o.Start, o.End = &start, &end
		if o.Committed == nil {
			continue
		}
		lag := max(end-max(*o.Committed, start), 0)
		o.Lag = &lag
		g.Lag += lag
		switch {
		case *o.Committed < start:
			o.Problem = fmt.Sprintf("committed below the log's start: %d records are gone", start-*o.Committed)
		case *o.Committed > end:
			o.Problem = "committed beyond the log's end"
		}
	}
}

// countUncommitted counts what no lag tells of, in the topics of the group's
// offsets. A partition whose committed offset could not be told is not among it.
func (g *groupState) countUncommitted(starts, ends kadm.ListedOffsets) {
	known := map[partitionOf]bool{}
	for _, o := range g.Offsets {
		known[partitionOf{o.Topic, o.Partition}] = o.Committed != nil || o.Problem != ""
	}
	g.Uncommitted, g.UncommittedRecords = 0, 0
	ends.Each(func(e kadm.ListedOffset) {
		start, end, problem := bounds(e.Topic, e.Partition, starts, ends)
		if problem == "" && !known[partitionOf{e.Topic, e.Partition}] {
			g.Uncommitted++
			g.UncommittedRecords += end - start
		}
	})
}

// lagText is the total lag, and what it leaves out.
func (g *groupState) lagText() string {
	if g.Uncommitted == 0 {
		return fmt.Sprintf("lag %d", g.Lag)
	}
	measured := 0
	for _, o := range g.Offsets {
		if o.Lag != nil {
			measured++
		}
	}
	return fmt.Sprintf("lag %d in %d %s; %s", g.Lag, measured, plural(measured, "partition", "partitions"), g.uncommittedText())
}

// uncommittedText is empty when every partition has a committed offset.
func (g *groupState) uncommittedText() string {
	if g.Uncommitted == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s no committed offset (%d %s)", g.Uncommitted, plural(g.Uncommitted, "partition has", "partitions have"),
		g.UncommittedRecords, plural(int(min(g.UncommittedRecords, 2)), "record", "records"))
}

// bounds finds a partition's first and next offset, or says why not.
func bounds(topic string, partition int32, starts, ends kadm.ListedOffsets) (start, end int64, problem string) {
	s, ok := starts.Lookup(topic, partition)
	e, also := ends.Lookup(topic, partition)
	if !ok || !also {
		if missing, ok := ends.Lookup(topic, -1); ok && missing.Err != nil {
			return 0, 0, refused(missing.Err, "").Error()
		}
		return 0, 0, "no broker told the log's end"
	}
	if err := cmp.Or(s.Err, e.Err); err != nil {
		return 0, 0, refused(err, "").Error()
	}
	return s.Offset, e.Offset, ""
}
