//go:build differential

package differential

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// note remembers what a side gave a member, and the members Kafka has.
func (r *run) note(s *Side, n uint64, req kmsg.Request, resp kmsg.Response) {
	switch resp := resp.(type) {
	case *kmsg.JoinGroupResponse:
		r.unseat(s, resp.ErrorCode, req.(*kmsg.JoinGroupRequest).MemberID)
		if resp.MemberID == "" || resp.ErrorCode != 0 && resp.ErrorCode != 79 {
			return
		}
		m := GroupMember{req.(*kmsg.JoinGroupRequest).Group, s.call(resp.MemberID, n), true}
		s.seats[m] = seat{id: resp.MemberID, generation: resp.Generation}
		r.has(s, m)
	case *kmsg.ConsumerGroupHeartbeatResponse:
		r.unseat(s, resp.ErrorCode, req.(*kmsg.ConsumerGroupHeartbeatRequest).MemberID)
		if resp.MemberID == nil || resp.ErrorCode != 0 {
			return
		}
		asked := req.(*kmsg.ConsumerGroupHeartbeatRequest)
		name := *resp.MemberID
		if asked.MemberID != name {
			name = s.call(name, n)
		} else if known, ok := s.memberNames[name]; ok {
			name = known
		}
		m := GroupMember{asked.Group, name, false}
		at := s.seats[m]
		at.id, at.generation = *resp.MemberID, resp.MemberEpoch
		if resp.Assignment != nil {
			at.owned = nil
			for _, t := range resp.Assignment.Topics {
				at.owned = append(at.owned, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
			}
		}
		s.seats[m] = at
		r.has(s, m)
		if resp.MemberEpoch < 0 && s == r.kafka {
			r.gone = append(r.gone, m)
		}
	case *kmsg.LeaveGroupResponse:
		if resp.ErrorCode == 0 {
			r.unseat(s, unknownMember, req.(*kmsg.LeaveGroupRequest).MemberID)
		}
		for _, m := range resp.Members {
			if m.ErrorCode == 0 {
				r.unseat(s, unknownMember, m.MemberID)
			}
		}
	}
}

const unknownMember, fencedInstance = 25, 82

// unseat forgets a member that Kafka does not know any more.
func (r *run) unseat(s *Side, code int16, id string) {
	if s != r.kafka || id == "" || code != unknownMember && code != fencedInstance {
		return
	}
	for m, at := range s.seats {
		if at.id == id {
			r.gone = append(r.gone, m)
		}
	}
}

// has takes Kafka's word for who is a member. A classic member takes the place
// of the one before.
func (r *run) has(s *Side, m GroupMember) {
	if s != r.kafka || slices.Contains(r.world.Members, m) {
		return
	}
	r.come = append(r.come, m)
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
	r.come, r.gone = nil, nil
}
