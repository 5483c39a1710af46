package ingest

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SyncGroup v0-5. The leader brings the assignments, everybody waits for its
// own. v5 checks protocol type and name (KIP-559).
func syncGroupAPI() api {
	h, n := serve(kmsg.NewPtrSyncGroupRequest, (*Server).handleSyncGroup)
	return api{key: 14, name: "SyncGroup", max: 5, handle: h, newRequest: n}
}

func (s *Server) handleSyncGroup(r *request, req *kmsg.SyncGroupRequest) {
	for i := range req.GroupAssignment {
		req.GroupAssignment[i].MemberAssignment = slices.Clone(req.GroupAssignment[i].MemberAssignment)
	}
	s.callOneGroup(r, req.Group, req, func(k *kerr.Error) kmsg.Response {
		resp := kmsg.NewPtrSyncGroupResponse()
		resp.ErrorCode = k.Code
		return resp
	})
}
