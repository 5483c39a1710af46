package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// respond sets what every answer has in common.
func respond(req kmsg.Request, resp kmsg.Response) kmsg.Response {
	resp.SetVersion(req.GetVersion())
	if j, ok := resp.(*kmsg.JoinGroupResponse); ok && j.ErrorCode != 0 && j.Version >= 7 {
		j.Protocol = nil // may be null from v7 on, and is in Kafka's refusals
	}
	return resp
}

// ErrorResponse answers a request that a Coordinator takes (see Call) with one
// error for all that it names, each in its place.
func ErrorResponse(req kmsg.Request, err *kerr.Error) kmsg.Response {
	return respond(req, errorResponse(req, err))
}

func errorResponse(req kmsg.Request, err *kerr.Error) kmsg.Response {
	switch r := req.(type) {
	case *kmsg.JoinGroupRequest:
		return joinError(r.MemberID, err)
	case *kmsg.SyncGroupRequest:
		resp := kmsg.NewPtrSyncGroupResponse()
		resp.ErrorCode = err.Code
		return resp
	case *kmsg.HeartbeatRequest:
		resp := kmsg.NewPtrHeartbeatResponse()
		resp.ErrorCode = err.Code
		return resp
	case *kmsg.LeaveGroupRequest:
		resp := kmsg.NewPtrLeaveGroupResponse()
		resp.ErrorCode = err.Code
		return resp
	case *kmsg.OffsetCommitRequest:
		return commitError(r, err)
	case *kmsg.OffsetFetchRequest:
		return fetchError(r, err)
	case *kmsg.OffsetDeleteRequest:
		resp := kmsg.NewPtrOffsetDeleteResponse()
		resp.ErrorCode = err.Code
		return resp
	case *kmsg.ListGroupsRequest:
		resp := kmsg.NewPtrListGroupsResponse()
		resp.ErrorCode = err.Code
		return resp
	case *kmsg.ConsumerGroupHeartbeatRequest:
		resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
		resp.ErrorCode = err.Code
		return resp
	}
	return perGroupError(req, err)
}

// perGroupError answers the requests that list groups.
func perGroupError(req kmsg.Request, err *kerr.Error) kmsg.Response {
	switch r := req.(type) {
	case *kmsg.DescribeGroupsRequest:
		resp := kmsg.NewPtrDescribeGroupsResponse()
		for _, name := range r.Groups {
			g := kmsg.NewDescribeGroupsResponseGroup()
			g.Group, g.ErrorCode = name, err.Code
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	case *kmsg.DeleteGroupsRequest:
		resp := kmsg.NewPtrDeleteGroupsResponse()
		for _, name := range r.Groups {
			g := kmsg.NewDeleteGroupsResponseGroup()
			g.Group, g.ErrorCode = name, err.Code
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	case *kmsg.ConsumerGroupDescribeRequest:
		resp := kmsg.NewPtrConsumerGroupDescribeResponse()
		for _, name := range r.Groups {
			g := kmsg.NewConsumerGroupDescribeResponseGroup()
			g.Group, g.ErrorCode = name, err.Code
			resp.Groups = append(resp.Groups, g)
		}
		return resp
	}
	return req.ResponseKind()
}

// joinError is an answer that refuses a member.
func joinError(member string, err *kerr.Error) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.ErrorCode, resp.MemberID, resp.Generation = err.Code, member, -1
	resp.Protocol = new(string)
	return resp
}

// commitError gives every partition of a commit the same error.
func commitError(r *kmsg.OffsetCommitRequest, err *kerr.Error) kmsg.Response {
	resp := kmsg.NewPtrOffsetCommitResponse()
	for _, t := range r.Topics {
		out := kmsg.NewOffsetCommitResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			part := kmsg.NewOffsetCommitResponseTopicPartition()
			part.Partition, part.ErrorCode = p.Partition, err.Code
			out.Partitions = append(out.Partitions, part)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// fetchError refuses the groups of a fetch. Versions that name one group
// elsewhere are the caller's to fill from Groups.
func fetchError(r *kmsg.OffsetFetchRequest, err *kerr.Error) kmsg.Response {
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.ErrorCode = err.Code
	for _, g := range r.Groups {
		out := kmsg.NewOffsetFetchResponseGroup()
		out.Group, out.ErrorCode = g.Group, err.Code
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}
