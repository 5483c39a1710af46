package ingest

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteGroups v0-2. Only a group without members goes (NON_EMPTY_GROUP).
func deleteGroupsAPI() api {
	h, n := serve(kmsg.NewPtrDeleteGroupsRequest, (*Server).handleDeleteGroups)
	return api{key: 42, name: "DeleteGroups", max: 2, handle: h, newRequest: n}
}

func (s *Server) handleDeleteGroups(r *request, req *kmsg.DeleteGroupsRequest) {
	groups := uniqueGroups(req.Groups)
	if len(groups) > maxGroupsPerRequest {
		r.finishAbort(tooMany("groups", len(groups), maxGroupsPerRequest))
		return
	}
	resp := kmsg.NewPtrDeleteGroupsResponse()
	resp.Groups = make([]kmsg.DeleteGroupsResponseGroup, len(groups))
	s.gatherGroups(r, resp, groups, func(i int) kmsg.Request {
		one := kmsg.NewPtrDeleteGroupsRequest()
		one.Groups = groups[i : i+1]
		return one
	}, func(i int, from kmsg.Response, k *kerr.Error) {
		if k == nil {
			resp.Groups[i] = from.(*kmsg.DeleteGroupsResponse).Groups[0]
			return
		}
		resp.Groups[i] = kmsg.NewDeleteGroupsResponseGroup()
		resp.Groups[i].Group, resp.Groups[i].ErrorCode = groups[i], k.Code
	})
}
