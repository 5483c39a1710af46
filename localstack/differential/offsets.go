package differential

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func (g *generator) findCoordinator() kmsg.Request {
	req := kmsg.NewPtrFindCoordinatorRequest()
	if g.version >= 1 {
		req.CoordinatorType = pick[int8](g, 0, 0, 0, 0, 1, 2, 9, -1)
	}
	req.CoordinatorKey, req.CoordinatorKeys = g.group(), g.groups()
	return req
}

// someTopics are different ones: Kafka merges what it is told of one topic twice.
func (g *generator) someTopics() []Topic {
	out := []Topic{g.topic()}
	if t := g.topic(); t.Name != out[0].Name && g.one(2) {
		out = append(out, t)
	}
	return out
}

func (g *generator) anyMember(group string) seat {
	_, s := g.member(group, strings.Contains(group, "classic") || strings.Contains(group, "static"))
	return g.wrong(s)
}

func (g *generator) offsetCommit() kmsg.Request {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.RetentionTimeMillis = g.group(), -1
	s := g.anyMember(req.Group)
	req.MemberID, req.Generation, req.InstanceID = s.id, s.generation, g.instance(req.Group, 7)
	for _, t := range g.someTopics() {
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic, rt.TopicID = t.Name, g.side.ID(t.Name)
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch = g.partition(t), pick(g, int64(0), 1, 7, 1<<40, -1, -2), -1
		p.Metadata = pick(g, nil, ptr(""), ptr("note"), ptr(strings.Repeat("x", 4096)), ptr(strings.Repeat("x", 4097)))
		if !g.world.Groups[req.Group] { // Kafka makes the group of a commit that it refuses, and shows it some time
			p.Metadata = nil
		}
		rt.Partitions = append(rt.Partitions, p)
		req.Topics = append(req.Topics, rt)
	}
	return req
}

func (g *generator) offsetFetch() kmsg.Request {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = g.version >= 7 && g.one(3)
	all := g.one(4) && g.version >= 2
	for _, name := range g.groups() {
		rg := kmsg.NewOffsetFetchRequestGroup()
		rg.Group, rg.MemberEpoch = name, -1
		if s := g.anyMember(name); g.version >= 9 && g.one(3) {
			rg.MemberID, rg.MemberEpoch = pick(g, &s.id, &s.id, nil), s.generation
		}
		req.Group = name
		for _, t := range g.someTopics() {
			gt := kmsg.NewOffsetFetchRequestGroupTopic()
			gt.Topic, gt.TopicID, gt.Partitions = t.Name, g.side.ID(t.Name), []int32{g.partition(t)}
			rg.Topics = append(rg.Topics, gt)
			req.Topics = append(req.Topics, kmsg.OffsetFetchRequestTopic{Topic: t.Name, Partitions: gt.Partitions})
		}
		if all {
			rg.Topics, req.Topics = nil, nil
		}
		req.Groups = append(req.Groups, rg)
	}
	return req
}

func (g *generator) offsetDelete() kmsg.Request {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = g.group()
	for _, t := range g.someTopics() {
		rt := kmsg.NewOffsetDeleteRequestTopic()
		rt.Topic = t.Name
		rt.Partitions = append(rt.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: g.partition(t)})
		req.Topics = append(req.Topics, rt)
	}
	return req
}
