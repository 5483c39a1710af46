package ingest

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeGroups v0-6. A group that is not known is Dead without an error up
// to v5, and GROUP_ID_NOT_FOUND from v6 on (KIP-1043).
func describeGroupsAPI() api {
	h, n := serve(kmsg.NewPtrDescribeGroupsRequest, (*Server).handleDescribeGroups)
	return api{key: 15, name: "DescribeGroups", max: 6, handle: h, newRequest: n}
}

// groupOperations are Kafka's operations on a group: read, delete, describe,
// and its configs.
const groupOperations int32 = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11

func (s *Server) handleDescribeGroups(r *request, req *kmsg.DescribeGroupsRequest) {
	groups := uniqueGroups(req.Groups)
	if len(groups) > maxGroupsPerRequest {
		r.finishAbort(tooMany("groups", len(groups), maxGroupsPerRequest))
		return
	}
	resp := kmsg.NewPtrDescribeGroupsResponse()
	resp.Groups = make([]kmsg.DescribeGroupsResponseGroup, len(groups))
	s.gatherGroups(r, resp, groups, func(i int) kmsg.Request {
		one := kmsg.NewPtrDescribeGroupsRequest()
		one.Groups, one.IncludeAuthorizedOperations = groups[i:i+1], req.IncludeAuthorizedOperations
		return one
	}, func(i int, from kmsg.Response, k *kerr.Error) {
		to := &resp.Groups[i]
		if k != nil {
			*to = kmsg.NewDescribeGroupsResponseGroup()
			to.Group, to.ErrorCode = groups[i], k.Code
			return
		}
		*to = from.(*kmsg.DescribeGroupsResponse).Groups[0]
		if req.IncludeAuthorizedOperations && to.ErrorCode == 0 {
			to.AuthorizedOperations = groupOperations
		}
	})
}
