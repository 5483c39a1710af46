package group

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// bigGroup is a stable group of 1,000 members and 10,000 partitions.
func bigGroup(b *testing.B) *script {
	s := &script{world: newWorld(rand.New(rand.NewPCG(1, 1)), Bugs{})}
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprintf("topic-%03d", i)
		s.topics = s.topics.with(names[i], 100)
	}
	s.setTopics(s.topics.indexed())
	for i := range 1000 {
		s.beatFree(fmt.Sprint("m", i), 0, joins(names...))
		s.pass(10)
	}
	for range 4 {
		for i := range 1000 {
			id := fmt.Sprint("m", i)
			m := s.group().members[id]
			s.beatFree(id, m.epoch, owning(m))
		}
		s.pass(manyInterval)
	}
	if got := s.group().stateName(); got != "Stable" {
		b.Fatal(got)
	}
	return s
}

// owning tells exactly what the member is to have.
func owning(m *consumerMember) func(*heartbeat) {
	return func(r *heartbeat) {
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		for _, h := range m.assigned {
			r.Topics = append(r.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: h.topic, Partitions: []int32{h.index}})
		}
	}
}

func BenchmarkConsumerHeartbeat(b *testing.B) {
	s := bigGroup(b)
	i := 0
	for b.Loop() {
		id := fmt.Sprint("m", i%1000)
		s.beatFree(id, s.group().members[id].epoch)
		i++
	}
}

// BenchmarkConsumerRebalance is a member that leaves, and all others' way to the new
// target.
func BenchmarkConsumerRebalance(b *testing.B) {
	s := bigGroup(b)
	i := 0
	for b.Loop() {
		s.beatFree(fmt.Sprint("m", i), -1)
		i++
		s.pass(manyInterval)
		for range 3 {
			for j := i; j < 1000; j++ {
				id := fmt.Sprint("m", j)
				m := s.group().members[id]
				s.beatFree(id, m.epoch, owning(m))
			}
		}
		if got := s.group().stateName(); got != "Stable" {
			b.Fatal(got)
		}
	}
}
