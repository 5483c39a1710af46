package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// groupScope is which partitions of a group a command is about.
type groupScope struct {
	topics    []string
	allTopics bool
	parsed    []topicScope
}

// topicScope is one --topic: a topic, and some of its partitions or all.
type topicScope struct {
	topic      string
	partitions []int32 // empty: all
}

func (s *groupScope) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&s.topics, "topic", "t", nil, "a topic, or some of its partitions (flights:0,1); may be repeated")
	cmd.Flags().BoolVar(&s.allTopics, "all-topics", false, "every topic that the group has committed offsets of")
}

func (s *groupScope) check() error {
	switch {
	case s.allTopics && len(s.topics) > 0:
		return errors.New("give --topic or --all-topics, not both")
	case !s.allTopics && len(s.topics) == 0:
		return errors.New("name topics: --topic flights, --topic flights:0,1, or --all-topics for all that the group has read")
	}
	s.parsed = nil
	for _, t := range s.topics {
		p, err := parseTopicScope(t)
		if err != nil {
			return err
		}
		s.parsed = append(s.parsed, p)
	}
	return nil
}

// parseTopicScope reads T or T:0,1. A topic's name has no colon.
func parseTopicScope(text string) (topicScope, error) {
	name, list, some := strings.Cut(text, ":")
	s := topicScope{topic: name}
	if name == "" || some && list == "" {
		return s, fmt.Errorf("write --topic flights or --topic flights:0,1, not %q", text)
	}
	for part := range strings.SplitSeq(list, ",") {
		if !some {
			break
		}
		n, err := strconv.ParseInt(strings.TrimSpace(part), 10, 32)
		if err != nil || n < 0 {
			return s, fmt.Errorf("--topic %s: %q is not a partition: write numbers, such as %s:0,1", text, part, name)
		}
		s.partitions = append(s.partitions, int32(n))
	}
	return s, nil
}

// names are the topics of --topic.
func (s *groupScope) names() []string {
	var out []string
	for _, t := range s.parsed {
		if !slices.Contains(out, t.topic) {
			out = append(out, t.topic)
		}
	}
	return out
}

// holds tells whether a partition is meant.
func (s *groupScope) holds(topic string, partition int32) bool {
	return s.allTopics || slices.ContainsFunc(s.parsed, func(t topicScope) bool {
		return t.topic == topic && (len(t.partitions) == 0 || slices.Contains(t.partitions, partition))
	})
}

// ofCommitted are the partitions meant of which the group has offsets.
func (s *groupScope) ofCommitted(g *groupState) kadm.TopicsSet {
	set := kadm.TopicsSet{}
	for _, o := range g.Offsets {
		if o.Committed != nil && s.holds(o.Topic, o.Partition) {
			set.Add(o.Topic, o.Partition)
		}
	}
	return set
}

// without names what was asked for by name and is not in a set.
func (s *groupScope) without(set kadm.TopicsSet) []string {
	var missing []string
	for _, t := range s.parsed {
		if len(t.partitions) == 0 && len(set[t.topic]) == 0 {
			missing = append(missing, shown(t.topic))
		}
		for _, p := range t.partitions {
			if !set.Lookup(t.topic, p) {
				missing = append(missing, fmt.Sprintf("%s/%d", shown(t.topic), p))
			}
		}
	}
	return missing
}

// ofTopics are the partitions meant, by the topics' own lists.
func (s *groupScope) ofTopics(topics kadm.TopicDetails) (kadm.TopicsSet, error) {
	set := kadm.TopicsSet{}
	var errs []error
	for _, t := range s.parsed {
		d, ok := topics[t.topic]
		if !ok || d.Err != nil {
			errs = append(errs, fmt.Errorf("topic %s: %w", shown(t.topic), orUnknown(d.Err)))
			continue
		}
		for _, p := range t.partitions {
			if _, ok := d.Partitions[p]; !ok {
				errs = append(errs, fmt.Errorf("topic %s has %d partitions, none is number %d", t.topic, len(d.Partitions), p))
			}
		}
		for p := range d.Partitions {
			if s.holds(t.topic, p) {
				set.Add(t.topic, p)
			}
		}
	}
	return set, errors.Join(errs...)
}
