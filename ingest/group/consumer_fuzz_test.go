package group

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzLoadConsumer loads records of any content. What is taken must be stored
// the same again, and a Coordinator that has taken it must work.
func FuzzLoadConsumer(f *testing.F) {
	for seed := range uint64(8) {
		w := newWorld(rand.New(rand.NewPCG(seed, 848)), Bugs{})
		for i := range 150 {
			w.chaosMigration(i, true)
		}
		w.write(len(w.flying))
		f.Add(pack(w.stored))
		for k, v := range w.stored {
			f.Add(pack(map[string][]byte{k: v[:len(v)-1]}))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWorld(rand.New(rand.NewPCG(1, 1)), Bugs{})
		w.c = New(w.o, w.topics)
		taken := map[string][]byte{}
		for _, rec := range unpack(data) {
			if _, twice := taken[rec.Key]; twice || w.c.Load(rec.Key, rec.Value) != nil {
				return
			}
			taken[rec.Key] = rec.Value
		}
		for k, v := range taken {
			parsed, _ := parseKey(k)
			if again, ok := w.storedAgain(parsed); ok && string(again) != string(v) {
				t.Fatalf("record %x was\n%x, and would be stored as\n%x", k, v, again)
			}
		}
		w.c.Loaded(w.now)
		w.c.Writes()
		w.written()
		for _, name := range w.c.names() {
			if g := w.c.group(name); g != nil && g.consumer != nil {
				w.poke(t, name, g.consumer)
			}
		}
	})
}

// written says that all writes are.
func (w *world) written() {
	w.flying = append(w.flying, w.c.Writes()...)
	w.write(len(w.flying))
}

// storedAgain is the value that a consumer group's record has now.
func (w *world) storedAgain(k recordKey) ([]byte, bool) {
	g := w.c.group(k.group)
	if k.kind < kindConsumerFirst || g == nil || g.consumer == nil {
		return nil, false
	}
	if k.kind == kindConsumerGroup {
		return g.consumer.groupRecord(k.group).Value, true
	}
	m := g.consumer.members[k.rest]
	switch k.kind {
	case kindConsumerMember:
		return m.profileRecord(k.group).Value, true
	case kindConsumerTarget:
		return targetRecord(k.group, k.rest, g.consumer.target[k.rest]).Value, true
	}
	return m.standingRecord(k.group).Value, true
}

// poke sends a group all kinds of calls, and demands that each partition still
// has one owner.
func (w *world) poke(t *testing.T, name string, g *consumerGroup) {
	for _, id := range g.ids() {
		m := g.members[id]
		if m == nil {
			continue
		}
		hb := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		hb.Group, hb.MemberID, hb.MemberEpoch, hb.Topics = name, id, max(0, m.epoch), []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		w.c.Handle(w.now, Call{Request: hb, Reply: func(kmsg.Response) {}})
		beat := kmsg.NewPtrHeartbeatRequest()
		beat.Group, beat.MemberID, beat.Generation = name, id, m.epoch
		w.c.Handle(w.now, Call{Request: beat, Reply: func(kmsg.Response) {}})
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Group, sync.MemberID, sync.Generation = name, id, m.epoch
		w.c.Handle(w.now, Call{Request: sync, Reply: func(kmsg.Response) {}})
	}
	join := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	join.Group, join.MemberID, join.RebalanceTimeoutMillis = name, "new", 1000
	join.SubscribedTopicNames, join.Topics = []string{"a", "b"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	w.c.Handle(w.now, Call{Request: join, Reply: func(kmsg.Response) {}})
	describe := kmsg.NewPtrConsumerGroupDescribeRequest()
	describe.Groups = []string{name}
	w.c.Handle(w.now, Call{Request: describe, Reply: func(kmsg.Response) {}})
	w.c.SetTopics(w.now, w.topics.with("a", 9))
	w.written()
	if now := w.c.group(name); now != nil && now.consumer != nil {
		if err := now.consumer.disjoint(); err != nil {
			t.Fatal(err)
		}
	}
	w.c.Tick(w.now + 1<<40)
	w.written()
}

// disjoint checks that each partition is held by one member at most, and that
// the table of owners says so.
func (g *consumerGroup) disjoint() error {
	seen := make(map[partition]string)
	for _, id := range g.ids() {
		m := g.members[id]
		for _, h := range slices.Concat(m.assigned, m.revoking) {
			if o, ok := seen[h.partition]; ok {
				return fmt.Errorf("partition %d of %x is %s's and %s's", h.index, h.topic[:2], o, id)
			}
			seen[h.partition] = id
			if g.owner[h.partition] != m {
				return fmt.Errorf("partition %d of %x is %s's, and the table of owners says otherwise", h.index, h.topic[:2], id)
			}
		}
	}
	if len(seen) != len(g.owner) {
		return fmt.Errorf("%d partitions are held, the table of owners has %d", len(seen), len(g.owner))
	}
	return nil
}
