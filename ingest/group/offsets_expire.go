package group

import (
	"hash/fnv"
	"maps"
	"slices"
	"strings"
)

func retentionKey(g *groupState) timerKey { return timerKey{kind: timerRetention, group: g.name} }

// scheduleRetention looks for expired offsets of a group from time to time.
// Groups take turns, by their names.
func (c *Coordinator) scheduleRetention(now int64, g *groupState) {
	h := fnv.New32a()
	h.Write([]byte(g.name)) // never fails
	every := max(c.o.RetentionCheck, 1)
	c.timer(retentionKey(g), now+1+int64(h.Sum32())%every, func(now int64) { c.retain(now, g) })
}

// retain deletes a group's expired offsets; a group without members that has
// no offsets left goes as well.
func (c *Coordinator) retain(now int64, g *groupState) {
	c.timer(retentionKey(g), now+max(c.o.RetentionCheck, 1), func(now int64) { c.retain(now, g) })
	delete(c.bare, g)
	var records []Record
	for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
		if g.isSubscribed(topic) {
			continue
		}
		for _, p := range slices.Sorted(maps.Keys(g.offsets[topic])) {
			if o := g.offsets[topic][p]; c.replaced(topic, o) || c.expired(now, g, o) {
				records = append(records, c.unsetOffset(g, topic, p))
			}
		}
	}
	for chunk := range slices.Chunk(records, writeRecordsMax) {
		c.write(chunk...)
	}
	if len(g.offsets) > 0 {
		return
	}
	switch {
	case g.consumer != nil && g.consumer.isEmpty():
		c.dropConsumer(g)
	case g.classic != nil && g.classic.state == stateEmpty && len(g.classic.pending) == 0:
		c.dropClassic(g)
	}
	c.forget(g)
}

// replaced: the topic was deleted, and another one has its name.
func (c *Coordinator) replaced(topic string, o committed) bool {
	t, ok := c.topics.Topic(topic)
	return ok && o.topicID != [16]byte{} && t.ID != o.topicID
}

// expired tells whether an offset's time is over (KIP-211): counted from when
// the group became empty; for simple groups, and for topics that no member of
// a stable group subscribes, from the commit.
func (c *Coordinator) expired(now int64, g *groupState, o committed) bool {
	base := o.at
	if cg := g.classic; cg != nil && cg.protocolType != "" {
		switch {
		case cg.state == stateEmpty:
			base = cg.since
		case cg.state != stateStable || cg.subscribed == nil || cg.protocolType != consumerProtocolType:
			return false
		}
	}
	if o.expires >= 0 {
		return now >= o.expires
	}
	return now-base >= c.o.OffsetsRetention
}

// dropDeleted deletes the offsets of topics that were deleted.
func (c *Coordinator) dropDeleted() {
	var gone [][16]byte
	for id := range c.byTopic {
		if c.isDeleted(id) {
			gone = append(gone, id)
		}
	}
	slices.SortFunc(gone, func(a, b [16]byte) int { return slices.Compare(a[:], b[:]) })
	for _, id := range gone {
		groups := slices.SortedFunc(maps.Keys(c.byTopic[id]), func(a, b *groupState) int { return strings.Compare(a.name, b.name) })
		for _, g := range groups {
			c.dropTopic(g, id)
		}
	}
}

// dropTopic deletes a group's offsets of one topic.
func (c *Coordinator) dropTopic(g *groupState, id [16]byte) {
	var records []Record
	for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
		for _, p := range slices.Sorted(maps.Keys(g.offsets[topic])) {
			if g.offsets[topic][p].topicID == id {
				records = append(records, c.unsetOffset(g, topic, p))
			}
		}
	}
	for chunk := range slices.Chunk(records, writeRecordsMax) {
		c.write(chunk...)
	}
	c.linger(g)
}
