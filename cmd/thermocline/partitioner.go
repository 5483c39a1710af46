package main

import "github.com/twmb/franz-go/pkg/kgo"

// spreading places records with a key by the key, as every Kafka client does,
// and those without in turn. The client's own choice keeps to one partition
// until a batch is full, which for lines that are typed or few is for good.
type spreading struct{ byKey kgo.Partitioner }

func newSpreading() spreading { return spreading{kgo.StickyKeyPartitioner(nil)} }

// ForTopic implements kgo.Partitioner.
func (s spreading) ForTopic(topic string) kgo.TopicPartitioner {
	return &spreadingTopic{byKey: s.byKey.ForTopic(topic)}
}

// spreadingTopic is called by one goroutine at a time.
type spreadingTopic struct {
	byKey kgo.TopicPartitioner
	next  int
}

// RequiresConsistency implements kgo.TopicPartitioner: a key's partition does
// not depend on which leaders can be reached.
func (s *spreadingTopic) RequiresConsistency(r *kgo.Record) bool { return r.Key != nil }

// Partition implements kgo.TopicPartitioner.
func (s *spreadingTopic) Partition(r *kgo.Record, n int) int {
	if r.Key != nil {
		return s.byKey.Partition(r, n)
	}
	s.next++
	return s.next % n
}
