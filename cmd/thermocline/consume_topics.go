package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// topicLook is the time between two looks at whether the topics that are read
// are still the same. A client waits for a topic that is deleted, without a
// word, as for one whose leader is being chosen.
const topicLook = 2 * time.Second

// topicWatch notices that a topic was deleted, or deleted and created again: a
// new topic of the name has another id (KIP-516).
type topicWatch struct {
	ids  map[string]kadm.TopicID
	next time.Time
	// gone are those that the last look did not find. One look may be answered
	// by a broker that has not heard of the topic yet.
	gone []string
}

func newTopicWatch(ctx context.Context, adm *kadm.Client, topics []string) (*topicWatch, error) {
	found, err := adm.ListTopics(ctx, topics...)
	if err != nil {
		return nil, err
	}
	w := &topicWatch{ids: map[string]kadm.TopicID{}, next: time.Now().Add(topicLook)}
	var errs []error
	for _, t := range topics {
		d, ok := found[t]
		if !ok || d.Err == kerr.UnknownTopicOrPartition {
			errs = append(errs, fmt.Errorf("topic %s: %w", shown(t), orUnknown(d.Err)))
		}
		w.ids[t] = d.ID
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return w, nil
}

// look asks if it is time to, and says in its error what happened. What cannot
// be asked now is asked the next time.
func (w *topicWatch) look(ctx context.Context, adm *kadm.Client, now time.Time) error {
	if now.Before(w.next) {
		return nil
	}
	w.next = now.Add(topicLook)
	ctx, cancel := context.WithTimeout(ctx, topicLook)
	defer cancel()
	found, err := adm.ListTopics(ctx, w.names()...)
	if err != nil {
		return nil
	}
	return w.judge(found)
}

func (w *topicWatch) names() []string {
	var out []string
	for t := range w.ids {
		out = append(out, t)
	}
	slices.Sort(out)
	return out
}

// judge compares what a look found with the beginning.
func (w *topicWatch) judge(found kadm.TopicDetails) error {
	var gone []string
	for _, t := range w.names() {
		d, ok := found[t]
		switch missing := !ok || d.Err == kerr.UnknownTopicOrPartition || d.Err == kerr.UnknownTopicID; {
		case missing && slices.Contains(w.gone, t):
			return fmt.Errorf("topic %s was deleted while it was being read", shown(t))
		case missing:
			gone = append(gone, t)
		case d.Err == nil && d.ID != w.ids[t] && w.ids[t] != kadm.TopicID{}:
			return fmt.Errorf("topic %s was deleted and created again: start again to read the new one", shown(t))
		}
	}
	w.gone = gone
	return nil
}

// explain replaces the error of reading a topic that is not there any more. It
// looks twice, some time apart, so that one that is created again at once is
// told from one that is gone.
func (w *topicWatch) explain(ctx context.Context, adm *kadm.Client, err error) error {
	for wait := time.Duration(0); wait <= topicLook; wait += topicLook { // now, and once more
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
		w.next = time.Time{}
		if gone := w.look(ctx, adm, time.Now()); gone != nil {
			return gone
		}
		if len(w.gone) == 0 {
			return err
		}
	}
	return err
}
