package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/group/assign"
)

// consumerDescribe handles ConsumerGroupDescribe of one group.
func (c *Coordinator) consumerDescribe(now int64, call *Call, r *kmsg.ConsumerGroupDescribeRequest) {
	resp := kmsg.NewPtrConsumerGroupDescribeResponse()
	for _, name := range r.Groups {
		resp.Groups = append(resp.Groups, c.describeConsumer(name))
	}
	c.reply(call, resp)
}

func (c *Coordinator) describeConsumer(name string) kmsg.ConsumerGroupDescribeResponseGroup {
	out := kmsg.NewConsumerGroupDescribeResponseGroup()
	out.Group = name
	if err := checkName(name); err != nil {
		out.ErrorCode = err.Code
		return out
	}
	g := c.group(name)
	if g == nil || g.consumer == nil {
		text := "Group " + name + " not found."
		if g != nil {
			text = "Group " + name + " is not a consumer group."
		}
		out.ErrorCode, out.ErrorMessage = kerr.GroupIDNotFound.Code, &text
		return out
	}
	cg := g.consumer
	out.State, out.Epoch, out.AssignmentEpoch = cg.stateName(), cg.epoch, cg.targetEpoch
	out.AssignorName = c.assignorName(cg)
	for _, id := range cg.ids() {
		out.Members = append(out.Members, c.describeMember(cg, cg.members[id]))
	}
	return out
}

func (c *Coordinator) describeMember(cg *consumerGroup, m *consumerMember) kmsg.ConsumerGroupDescribeResponseGroupMember {
	out := kmsg.NewConsumerGroupDescribeResponseGroupMember()
	out.MemberID, out.MemberEpoch = m.id, m.epoch
	out.ClientID, out.ClientHost = m.clientID, m.clientHost
	if m.instance != "" {
		s := m.instance
		out.InstanceID = &s
	}
	if m.rack != "" {
		s := m.rack
		out.RackID = &s
	}
	out.SubscribedTopics = m.sub.names
	regex := m.sub.regexText()
	out.SubscribedTopicRegex = &regex
	out.MemberType = 1
	if m.classic != nil {
		out.MemberType = 0
	}
	// What it has includes what it is to give up, as in Kafka since 4.3.
	for _, h := range union(m.assigned, m.revoking) {
		c.describePartition(&out.Assignment, h.partition)
	}
	for _, p := range cg.target[m.id] {
		for _, i := range p.Indexes {
			c.describePartition(&out.TargetAssignment, partition{p.Topic, i})
		}
	}
	return out
}

// describePartition adds a partition, if its topic still exists. They come sorted.
func (c *Coordinator) describePartition(a *kmsg.Assignment, p partition) {
	if n := len(a.TopicPartitions); n > 0 && assign.TopicID(a.TopicPartitions[n-1].TopicID) == p.topic {
		a.TopicPartitions[n-1].Partitions = append(a.TopicPartitions[n-1].Partitions, p.index)
		return
	}
	t, ok := c.topics.TopicByID(p.topic)
	if !ok {
		return
	}
	tp := kmsg.NewAssignmentTopicPartition()
	tp.TopicID, tp.Topic, tp.Partitions = t.ID, t.Name, []int32{p.index}
	a.TopicPartitions = append(a.TopicPartitions, tp)
}

// checkCommit tells whether a member may commit, and which partitions (nil: all).
// epoch and memberID are -1 and empty for clients that are no members.
//
// A member that has come to another epoch since may commit what it has had
// since the epoch it names (KIP-1251): its commit was under way.
func (g *consumerGroup) checkCommit(memberID string, instance *string, epoch int32, version int16) (commitCheck, *kerr.Error) {
	if epoch < 0 && len(g.members) == 0 {
		return nil, nil
	}
	m := g.members[memberID]
	switch {
	case m == nil:
		return nil, kerr.UnknownMemberID
	case m.classic == nil && version < 9:
		return nil, kerr.UnsupportedVersion
	case epoch == m.epoch || g.bugs.CommitAnyEpoch:
		return nil, nil
	}
	stale := kerr.StaleMemberEpoch
	if m.classic != nil {
		stale = kerr.IllegalGeneration
	}
	if epoch > m.epoch || epoch < 0 {
		return nil, stale
	}
	return func(topic string, id [16]byte, index int32) *kerr.Error {
		p := partition{id, index}
		h, ok := find(m.assigned, p)
		if !ok {
			h, ok = find(m.revoking, p)
		}
		if !ok || epoch < h.epoch {
			return stale
		}
		return nil
	}, nil
}

// checkFetch tells whether a member may fetch offsets (version 9 and above
// name one; nil and below 0: none is named).
func (g *consumerGroup) checkFetch(memberID *string, epoch int32) *kerr.Error {
	if memberID == nil && epoch < 0 {
		return nil
	}
	var m *consumerMember
	if memberID != nil {
		m = g.members[*memberID]
	}
	switch {
	case m == nil:
		return kerr.UnknownMemberID
	case epoch == m.epoch:
		return nil
	case m.classic != nil:
		return kerr.IllegalGeneration
	}
	return kerr.StaleMemberEpoch
}
