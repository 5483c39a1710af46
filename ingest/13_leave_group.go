package ingest

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// LeaveGroup v0-5. v3 takes many members, also static ones by instance id: an
// administrator removes them that way (KIP-345).
func leaveGroupAPI() api {
	h, n := serve(kmsg.NewPtrLeaveGroupRequest, (*Server).handleLeaveGroup)
	return api{key: 13, name: "LeaveGroup", max: 5, handle: h, newRequest: n}
}

func (s *Server) handleLeaveGroup(r *request, req *kmsg.LeaveGroupRequest) {
	s.callOneGroup(r, req.Group, req, func(k *kerr.Error) kmsg.Response {
		resp := kmsg.NewPtrLeaveGroupResponse()
		resp.ErrorCode = k.Code
		return resp
	})
}
