package group

import (
	"maps"
	"slices"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// committed is one committed offset.
type committed struct {
	offset      int64
	leaderEpoch int32 // -1: not told
	at          int64 // when it was committed
	expires     int64 // when it expires by the client's wish (versions 2 to 4); -1: none
	topicID     [16]byte
	metadata    string
}

// retentionMax bounds what a client may ask for, in ms: a hundred years.
const retentionMax = 100 * 366 * 24 * 3_600_000

// commitCheck tells whether a member may commit one partition; a nil one: it may.
type commitCheck func(topic string, id [16]byte, partition int32) *kerr.Error

// offsetCommit handles OffsetCommit.
//
//	v2-4: retention time   v6: leader epoch   v7: instance id
//	v9: KIP-848's members   v10: topic ids
func (c *Coordinator) offsetCommit(now int64, call *Call, r *kmsg.OffsetCommitRequest) {
	if err := checkLength(r.Group); err != nil {
		c.fail(call, err)
		return
	}
	n := 0
	for _, t := range r.Topics {
		n += len(t.Partitions)
	}
	if n > c.o.MaxOffsetsPerRequest {
		c.fail(call, kerr.InvalidRequest)
		return
	}
	check, err := c.checkCommit(now, r)
	if err != nil {
		c.fail(call, err)
		return
	}
	c.commit(now, call, r, check)
}

// commit takes the offsets that may be committed.
func (c *Coordinator) commit(now int64, call *Call, r *kmsg.OffsetCommitRequest, check commitCheck) {
	known := c.group(r.Group) != nil
	g := c.ensure(now, r.Group)
	o := committed{at: now, expires: -1}
	if r.Version >= 2 && r.Version <= 4 && r.RetentionTimeMillis >= 0 {
		o.expires = now + min(r.RetentionTimeMillis, retentionMax)
	}
	resp := kmsg.NewPtrOffsetCommitResponse()
	var records []Record
	for _, t := range r.Topics {
		out := kmsg.NewOffsetCommitResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		id := c.topicID(t.Topic, t.TopicID)
		for _, p := range t.Partitions {
			part := kmsg.NewOffsetCommitResponseTopicPartition()
			part.Partition = p.Partition
			o.offset, o.leaderEpoch, o.topicID, o.metadata = p.Offset, p.LeaderEpoch, id, ""
			if r.Version < 6 {
				o.leaderEpoch = -1
			}
			if p.Metadata != nil {
				o.metadata = *p.Metadata
			}
			if err := c.checkOffset(t.Topic, p.Partition, o, check); err != nil {
				part.ErrorCode = err.Code
			} else {
				c.setOffset(g, t.Topic, p.Partition, o)
				records = append(records, Record{Key: offsetKey(g.name, t.Topic, p.Partition), Value: offsetValue(o)})
			}
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	c.write(records...)
	c.reply(call, resp)
	if !known {
		c.forget(g) // nothing was taken
	}
}

// topicID is a topic's id, if the request or the cluster tells it: with it the
// offset goes when the topic does.
func (c *Coordinator) topicID(name string, id [16]byte) [16]byte {
	if id == ([16]byte{}) {
		if t, ok := c.topics.Topic(name); ok {
			return t.ID
		}
	}
	return id
}

// checkOffset tells whether one offset can be committed.
func (c *Coordinator) checkOffset(topic string, partition int32, o committed, check commitCheck) *kerr.Error {
	switch {
	case topic == "" || len(topic) > topicNameMax:
		return kerr.InvalidTopicException
	case partition < 0:
		return kerr.UnknownTopicOrPartition
	case tooLong(o.metadata, c.o.OffsetMetadataMax):
		return kerr.OffsetMetadataTooLarge
	case check != nil:
		return check(topic, o.topicID, partition)
	}
	return nil
}

// tooLong counts as Kafka does, in UTF-16.
func tooLong(s string, most int) bool {
	if len(s) <= most {
		return false
	}
	n := 0
	for _, r := range s {
		n += max(1, utf16.RuneLen(r))
	}
	return n > most
}

// checkCommit tells whether who commits may: a member in its generation, or
// anybody while the group has no members.
func (c *Coordinator) checkCommit(now int64, r *kmsg.OffsetCommitRequest) (commitCheck, *kerr.Error) {
	g := c.group(r.Group)
	switch {
	case g == nil && r.Generation < 0:
		return nil, nil
	case g == nil && r.Version >= 9:
		return nil, kerr.GroupIDNotFound
	case g == nil:
		return nil, kerr.IllegalGeneration
	case g.consumer != nil:
		return g.consumer.checkCommit(r.MemberID, r.InstanceID, r.Generation, r.Version)
	case g.classic == nil:
		return nil, checkSimpleCommit(r)
	}
	cg := g.classic
	if r.Generation < 0 && cg.state == stateEmpty {
		return nil, nil
	}
	if r.Generation < 0 && r.MemberID == "" && r.InstanceID == nil {
		return nil, kerr.UnknownMemberID
	}
	m, err := cg.check(r.MemberID, r.InstanceID)
	switch {
	case err != nil:
		return nil, err
	case r.Generation != cg.generation && !c.bugs.CommitAnyGeneration:
		return nil, kerr.IllegalGeneration
	case cg.state == stateCompleting:
		// It knows the generation, so it waits for its assignment.
		return nil, kerr.RebalanceInProgress
	}
	c.touch(now, g, m)
	return nil, nil
}

// checkSimpleCommit is for a group that never had members.
func checkSimpleCommit(r *kmsg.OffsetCommitRequest) *kerr.Error {
	if r.Generation < 0 {
		return nil
	}
	return kerr.UnknownMemberID
}

// setOffset changes an offset, and counts it to its topic.
func (c *Coordinator) setOffset(g *groupState, topic string, partition int32, o committed) {
	if g.offsets == nil {
		g.offsets = make(map[string]map[int32]committed)
	}
	parts := g.offsets[topic]
	if parts == nil {
		parts = make(map[int32]committed)
		g.offsets[topic] = parts
	}
	if old, ok := parts[partition]; ok {
		c.count(g, old.topicID, -1)
	}
	parts[partition] = o
	c.count(g, o.topicID, 1)
}

// unsetOffset deletes an offset, and returns the record that says so.
func (c *Coordinator) unsetOffset(g *groupState, topic string, partition int32) Record {
	parts := g.offsets[topic]
	c.count(g, parts[partition].topicID, -1)
	delete(parts, partition)
	if len(parts) == 0 {
		delete(g.offsets, topic)
	}
	return Record{Key: offsetKey(g.name, topic, partition)}
}

// count counts a group's offsets of a topic.
func (c *Coordinator) count(g *groupState, id [16]byte, by int) {
	if id == ([16]byte{}) {
		return
	}
	groups := c.byTopic[id]
	if groups == nil {
		groups = make(map[*groupState]int)
		c.byTopic[id] = groups
	}
	if groups[g] += by; groups[g] == 0 {
		delete(groups, g)
	}
	if len(groups) == 0 {
		delete(c.byTopic, id)
	}
}

func (c *Coordinator) loadOffset(g *groupState, k recordKey, value []byte) error {
	topic, partition, err := k.offset()
	if err != nil {
		return err
	}
	o, err := parseOffset(value)
	if err != nil {
		return err
	}
	c.setOffset(g, topic, partition, o)
	return nil
}

// offsetFetch handles OffsetFetch of one group, which is in Groups whatever
// the version. Nil topics ask for all. No offset is no error: it is -1.
//
//	v9: KIP-848's members   v10: topic ids
//
// RequireStable asks to wait for offsets of open transactions; there are none.
func (c *Coordinator) offsetFetch(call *Call, r *kmsg.OffsetFetchRequest) {
	resp := kmsg.NewPtrOffsetFetchResponse()
	for i := range r.Groups {
		resp.Groups = append(resp.Groups, c.fetchGroup(&r.Groups[i], r.Version))
	}
	c.reply(call, resp)
}

func (c *Coordinator) fetchGroup(r *kmsg.OffsetFetchRequestGroup, version int16) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = r.Group
	g := c.group(r.Group)
	if g != nil && g.consumer != nil {
		if err := g.consumer.checkFetch(r.MemberID, r.MemberEpoch); err != nil {
			out.ErrorCode = err.Code
			return out
		}
	}
	if r.Topics != nil {
		for _, t := range r.Topics {
			topic := kmsg.NewOffsetFetchResponseGroupTopic()
			topic.Topic, topic.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				topic.Partitions = append(topic.Partitions, c.fetched(g, t.Topic, p))
			}
			out.Topics = append(out.Topics, topic)
		}
		return out
	}
	if g == nil {
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(g.offsets)) {
		topic := kmsg.NewOffsetFetchResponseGroupTopic()
		topic.Topic = name
		if t, ok := c.topics.Topic(name); ok {
			topic.TopicID = t.ID
		} else if version >= 10 {
			continue // nothing to name it by
		}
		for _, p := range slices.Sorted(maps.Keys(g.offsets[name])) {
			topic.Partitions = append(topic.Partitions, c.fetched(g, name, p))
		}
		out.Topics = append(out.Topics, topic)
	}
	return out
}

// fetched is one partition's committed offset.
func (c *Coordinator) fetched(g *groupState, topic string, partition int32) kmsg.OffsetFetchResponseGroupTopicPartition {
	out := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	out.Partition, out.Offset, out.LeaderEpoch = partition, -1, -1
	metadata := ""
	if g != nil {
		if o, ok := g.offsets[topic][partition]; ok && !c.isDeleted(o.topicID) && !c.replaced(topic, o) {
			out.Offset, out.LeaderEpoch, metadata = o.offset, o.leaderEpoch, o.metadata
		}
	}
	out.Metadata = &metadata
	return out
}

// isDeleted tells whether a topic is known to be deleted.
func (c *Coordinator) isDeleted(id [16]byte) bool {
	return id != [16]byte{} && c.topics.Deleted(id)
}

// offsetDelete handles OffsetDelete.
func (c *Coordinator) offsetDelete(call *Call, r *kmsg.OffsetDeleteRequest) {
	if err := checkName(r.Group); err != nil {
		c.fail(call, err)
		return
	}
	g := c.group(r.Group)
	if g == nil {
		c.fail(call, kerr.GroupIDNotFound)
		return
	}
	if cg := g.classic; cg != nil && cg.state != stateEmpty && cg.protocolType != consumerProtocolType {
		// Whether it uses the topics is not known.
		c.fail(call, kerr.NonEmptyGroup)
		return
	}
	resp := kmsg.NewPtrOffsetDeleteResponse()
	var records []Record
	for _, t := range r.Topics {
		out := kmsg.NewOffsetDeleteResponseTopic()
		out.Topic = t.Topic
		subscribed := g.isSubscribed(t.Topic)
		for _, p := range t.Partitions {
			part := kmsg.NewOffsetDeleteResponseTopicPartition()
			part.Partition = p.Partition
			if subscribed {
				part.ErrorCode = kerr.GroupSubscribedToTopic.Code
			} else if _, ok := g.offsets[t.Topic][p.Partition]; ok {
				records = append(records, c.unsetOffset(g, t.Topic, p.Partition))
			}
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if !c.bugs.NoTombstones {
		c.write(records...)
	}
	c.reply(call, resp)
	c.linger(g)
}

// isSubscribed tells whether members of the group use a topic.
func (g *groupState) isSubscribed(topic string) bool {
	switch {
	case g.consumer != nil:
		return g.consumer.isSubscribed(topic)
	case g.classic != nil:
		return g.classic.isSubscribed(topic)
	}
	return false
}
