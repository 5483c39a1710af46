//go:build differential

package differential

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// note remembers what a side gave a member, and the members Kafka has.
func (r *run) note(s *Side, n uint64, req kmsg.Request, resp kmsg.Response) {
	switch resp := resp.(type) {
	case *kmsg.JoinGroupResponse:
		r.noteJoin(s, n, req.(*kmsg.JoinGroupRequest), resp)
	case *kmsg.ConsumerGroupHeartbeatResponse:
		r.noteHeartbeat(s, n, req.(*kmsg.ConsumerGroupHeartbeatRequest), resp)
	case *kmsg.OffsetCommitResponse:
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == 0 && s == r.kafka {
					r.groups[req.(*kmsg.OffsetCommitRequest).Group] = true
				}
			}
		}
	case *kmsg.DeleteRecordsResponse:
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == 0 && s == r.kafka {
					r.trimmed = append(r.trimmed, Partition{t.Topic, p.Partition})
				}
			}
		}
	case *kmsg.DeleteGroupsResponse:
		for _, g := range resp.Groups {
			if g.ErrorCode == 0 && s == r.kafka {
				r.groups[g.Group] = false
			}
		}
	case *kmsg.LeaveGroupResponse:
		asked := req.(*kmsg.LeaveGroupRequest)
		if resp.ErrorCode == 0 {
			r.unseat(s, asked.Group, unknownMember, asked.MemberID)
		}
		for _, m := range resp.Members {
			if m.ErrorCode == 0 {
				r.unseat(s, asked.Group, unknownMember, m.MemberID)
			}
		}
	}
}

func (r *run) noteJoin(s *Side, n uint64, req *kmsg.JoinGroupRequest, resp *kmsg.JoinGroupResponse) {
	r.refused(s, req.Group, resp.ErrorCode, req.MemberID, req.InstanceID)
	if resp.MemberID == "" || resp.ErrorCode != 0 && resp.ErrorCode != memberIDRequired {
		return
	}
	m := GroupMember{req.Group, s.call(resp.MemberID, n), true}
	s.seats[m] = seat{id: resp.MemberID, generation: resp.Generation}
	r.has(s, m, req.InstanceID)
	if resp.ErrorCode == 0 && s == r.kafka {
		var says kmsg.ConsumerMemberMetadata
		if err := says.ReadFrom(req.Protocols[0].Metadata); err != nil {
			r.t.Fatalf("reading the subscription that was sent: %v", err)
		}
		r.subscribed[m] = says.Topics
	}
}

func (r *run) noteHeartbeat(s *Side, n uint64, req *kmsg.ConsumerGroupHeartbeatRequest, resp *kmsg.ConsumerGroupHeartbeatResponse) {
	r.refused(s, req.Group, resp.ErrorCode, req.MemberID, req.InstanceID)
	if resp.MemberID == nil || resp.ErrorCode != 0 {
		return
	}
	name := *resp.MemberID
	if req.MemberID != name {
		name = s.call(name, n)
	} else if known, ok := s.memberNames[name]; ok {
		name = known
	}
	m := GroupMember{req.Group, name, false}
	at := s.seats[m]
	at.id, at.generation = *resp.MemberID, resp.MemberEpoch
	if resp.Assignment != nil {
		at.owned = nil
		for _, t := range resp.Assignment.Topics {
			at.owned = append(at.owned, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
		}
	}
	s.seats[m] = at
	if s != r.kafka {
		return
	}
	switch {
	case resp.MemberEpoch == -1:
		r.unseat(s, req.Group, unknownMember, at.id)
		return
	case resp.MemberEpoch < 0: // away, it keeps what it has
		r.gone = append(r.gone, m)
		return
	}
	r.has(s, m, req.InstanceID)
	if req.SubscribedTopicNames != nil {
		r.subscribed[m] = req.SubscribedTopicNames
	}
}

const unknownMember, memberIDRequired, fencedInstance = 25, 79, 82

// refused forgets a member that is said to be unknown. If an instance id was
// named, it may be that alone.
func (r *run) refused(s *Side, group string, code int16, id string, instance *string) {
	if instance == nil || code != unknownMember {
		r.unseat(s, group, code, id)
	}
}

// unseat forgets a member that Kafka does not know any more.
func (r *run) unseat(s *Side, group string, code int16, id string) {
	if s != r.kafka || id == "" || code != unknownMember && code != fencedInstance {
		return
	}
	for m, at := range s.seats {
		if at.id == id && m.Group == group {
			r.gone = append(r.gone, m)
			if code == unknownMember {
				r.subscribed[m] = nil
			}
		}
	}
}

// has takes Kafka's word for who is a member. A classic member takes the place
// of the one before, and so does a static one.
func (r *run) has(s *Side, m GroupMember, instance *string) {
	if s != r.kafka {
		return
	}
	r.groups[m.Group] = true
	if instance != nil {
		r.instances[Instance{m.Group, *instance}] = m.Name
	}
	if !slices.Contains(r.world.Members, m) {
		r.come = append(r.come, m)
	}
}

// settle brings the world up to date when both sides have answered: both must
// see the same world during one step.
func (r *run) settle() {
	for _, m := range r.come {
		if m.Classic {
			r.world.Members = slices.DeleteFunc(r.world.Members, func(o GroupMember) bool { return o.Classic && o.Group == m.Group })
		}
		r.world.Members = append(r.world.Members, m)
	}
	r.world.Members = slices.DeleteFunc(r.world.Members, func(m GroupMember) bool { return slices.Contains(r.gone, m) })
	for i, name := range r.instances {
		if old := r.world.Instances[i]; old != "" && old != name {
			maps.DeleteFunc(r.world.Subscriptions, func(m GroupMember, _ []string) bool { return m.Group == i.Group && m.Name == old })
		}
	}
	maps.Copy(r.world.Instances, r.instances)
	maps.Copy(r.world.Groups, r.groups)
	for _, p := range r.trimmed {
		r.world.Trimmed[p] = true
	}
	for m, topics := range r.subscribed {
		// It is one member, whatever protocol it spoke before.
		delete(r.world.Subscriptions, GroupMember{m.Group, m.Name, !m.Classic})
		r.world.Subscriptions[m] = topics
		if topics == nil {
			delete(r.world.Subscriptions, m)
		}
	}
	r.come, r.gone, r.trimmed = nil, nil, nil
	clear(r.instances)
	clear(r.subscribed)
	clear(r.groups)
}
