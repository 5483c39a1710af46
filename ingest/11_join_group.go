package ingest

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// JoinGroup v0-9.
//
// Answered when the generation begins: until then the request keeps its place
// in its connection's answers. v4 demands a member id (KIP-394), v5 has static
// members (KIP-345), v9 tells the leader that no assignment is wanted.
func joinGroupAPI() api {
	h, n := serve(kmsg.NewPtrJoinGroupRequest, (*Server).handleJoinGroup)
	return api{key: 11, name: "JoinGroup", max: 9, handle: h, newRequest: n}
}

func (s *Server) handleJoinGroup(r *request, req *kmsg.JoinGroupRequest) {
	for i := range req.Protocols { // bytes of the frame, which the coordinator keeps
		req.Protocols[i].Metadata = slices.Clone(req.Protocols[i].Metadata)
	}
	s.callOneGroup(r, req.Group, req, func(k *kerr.Error) kmsg.Response {
		resp := kmsg.NewPtrJoinGroupResponse()
		resp.ErrorCode, resp.Generation, resp.MemberID = k.Code, -1, req.MemberID
		if r.version < 7 {
			resp.Protocol = new(string) // nullable from v7 on only
		}
		return resp
	})
}
