package ingest

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ConsumerGroupDescribe v0-1 (KIP-848): members with their current and target
// assignments. A classic group is GROUP_ID_NOT_FOUND here, as in Kafka.
func consumerGroupDescribeAPI() api {
	h, n := serve(kmsg.NewPtrConsumerGroupDescribeRequest, (*Server).handleConsumerGroupDescribe)
	return api{key: 69, name: "ConsumerGroupDescribe", max: 1, handle: h, newRequest: n}
}

func (s *Server) handleConsumerGroupDescribe(r *request, req *kmsg.ConsumerGroupDescribeRequest) {
	groups := uniqueGroups(req.Groups)
	if len(groups) > maxGroupsPerRequest {
		r.finishAbort(tooMany("groups", len(groups), maxGroupsPerRequest))
		return
	}
	resp := kmsg.NewPtrConsumerGroupDescribeResponse()
	resp.Groups = make([]kmsg.ConsumerGroupDescribeResponseGroup, len(groups))
	s.gatherGroups(r, resp, groups, func(i int) kmsg.Request {
		one := kmsg.NewPtrConsumerGroupDescribeRequest()
		one.Groups, one.IncludeAuthorizedOperations = groups[i:i+1], req.IncludeAuthorizedOperations
		return one
	}, func(i int, from kmsg.Response, k *kerr.Error) {
		to := &resp.Groups[i]
		if k != nil {
			*to = kmsg.NewConsumerGroupDescribeResponseGroup()
			to.Group, to.ErrorCode = groups[i], k.Code
			return
		}
		*to = from.(*kmsg.ConsumerGroupDescribeResponse).Groups[0]
		if req.IncludeAuthorizedOperations && to.ErrorCode == 0 {
			to.AuthorizedOperations = groupOperations
		}
	})
}
