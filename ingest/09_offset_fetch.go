package ingest

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetFetch v1-10.
//
// v8 asks for many groups (KIP-709), v9 with member and epoch (KIP-848), v10
// names topics by id. A group or an offset that is not known is offset -1
// without an error. Versions before 8 become a request of one group here.
func offsetFetchAPI() api {
	h, n := serve(kmsg.NewPtrOffsetFetchRequest, (*Server).handleOffsetFetch)
	return api{key: 9, name: "OffsetFetch", min: 1, max: 10, handle: h, newRequest: n}
}

func (s *Server) handleOffsetFetch(r *request, req *kmsg.OffsetFetchRequest) {
	groups := req.Groups
	if r.version < 8 {
		groups = []kmsg.OffsetFetchRequestGroup{oldFetchGroup(req)}
	}
	if len(groups) > maxGroupsPerRequest {
		r.finishAbort(tooMany("groups", len(groups), maxGroupsPerRequest))
		return
	}
	answers := make([]kmsg.OffsetFetchResponseGroup, len(groups))
	stop := r.abortWithConnection()
	left := newCountdown(len(groups), func() {
		stop()
		r.finishGroup(offsetsAnswer(r.version, answers))
	})
	for i := range groups {
		s.fetchOffsets(r, &groups[i], req.RequireStable, func(g kmsg.OffsetFetchResponseGroup) {
			answers[i] = g
			left.one()
		})
	}
}

// oldFetchGroup is the one group of a request before v8. Null topics ask for
// all from v2 on; v1 has no null.
func oldFetchGroup(req *kmsg.OffsetFetchRequest) kmsg.OffsetFetchRequestGroup {
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = req.Group
	if req.Topics != nil || req.Version < 2 {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for i := range req.Topics {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.Partitions = req.Topics[i].Topic, req.Topics[i].Partitions
		g.Topics = append(g.Topics, t)
	}
	return g
}

// fetchOffsets asks one group's coordinator. Topics whose id is not known are
// answered beside what the coordinator says.
func (s *Server) fetchOffsets(r *request, g *kmsg.OffsetFetchRequestGroup, stable bool, answer func(kmsg.OffsetFetchResponseGroup)) {
	asked, unknown := s.nameFetched(g, r.version)
	one := kmsg.NewPtrOffsetFetchRequest()
	one.Group, one.RequireStable = g.Group, stable
	one.Groups = []kmsg.OffsetFetchRequestGroup{asked}
	s.callGroup(r, g.Group, one, func(from kmsg.Response, k *kerr.Error) {
		out := kmsg.NewOffsetFetchResponseGroup()
		out.Group = g.Group
		if k != nil {
			out.ErrorCode = k.Code
			if r.version < 2 { // no field for the group's error: each partition says it
				out.Topics = fetchErrors(asked.Topics, k)
			}
			answer(out)
			return
		}
		out = from.(*kmsg.OffsetFetchResponse).Groups[0]
		if r.version >= 10 {
			out.Topics = s.identifyFetched(out.Topics)
		}
		if out.ErrorCode == 0 { // or it stands for all
			out.Topics = append(out.Topics, unknown...)
		}
		answer(out)
	})
}

// nameFetched fills in the names of topics that are named by id.
func (s *Server) nameFetched(g *kmsg.OffsetFetchRequestGroup, version int16) (asked kmsg.OffsetFetchRequestGroup, unknown []kmsg.OffsetFetchResponseGroupTopic) {
	asked = *g
	if version < 10 || g.Topics == nil {
		return asked, nil
	}
	asked.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	for _, t := range g.Topics {
		name, ok := s.topicName(t.TopicID)
		if !ok {
			unknown = append(unknown, fetchErrors([]kmsg.OffsetFetchRequestGroupTopic{t}, kerr.UnknownTopicID)...)
			continue
		}
		t.Topic = name
		asked.Topics = append(asked.Topics, t)
	}
	return asked, unknown
}

// identifyFetched fills in the ids of named topics; one that has been deleted
// has none, and is left out.
func (s *Server) identifyFetched(topics []kmsg.OffsetFetchResponseGroupTopic) []kmsg.OffsetFetchResponseGroupTopic {
	out := topics[:0]
	for _, t := range topics {
		row, ok := s.cluster.TopicByName(t.Topic)
		if !ok {
			continue
		}
		t.TopicID = row.ID
		out = append(out, t)
	}
	return out
}

func fetchErrors(topics []kmsg.OffsetFetchRequestGroupTopic, k *kerr.Error) []kmsg.OffsetFetchResponseGroupTopic {
	var out []kmsg.OffsetFetchResponseGroupTopic
	for _, t := range topics {
		to := kmsg.NewOffsetFetchResponseGroupTopic()
		to.Topic, to.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			tp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			tp.Partition, tp.Offset, tp.Metadata, tp.ErrorCode = p, -1, new(string), k.Code
			to.Partitions = append(to.Partitions, tp)
		}
		out = append(out, to)
	}
	return out
}

// offsetsAnswer joins the groups' answers in the version's layout.
func offsetsAnswer(version int16, groups []kmsg.OffsetFetchResponseGroup) kmsg.Response {
	resp := kmsg.NewPtrOffsetFetchResponse()
	if version >= 8 {
		resp.Groups = groups
		return resp
	}
	resp.ErrorCode = groups[0].ErrorCode
	for _, t := range groups[0].Topics {
		to := kmsg.NewOffsetFetchResponseTopic()
		to.Topic = t.Topic
		for _, p := range t.Partitions {
			to.Partitions = append(to.Partitions, kmsg.OffsetFetchResponseTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode,
			})
		}
		resp.Topics = append(resp.Topics, to)
	}
	return resp
}
