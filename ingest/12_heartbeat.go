package ingest

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Heartbeat v0-4. Keeps a classic member's session alive, and tells it of a
// rebalance (REBALANCE_IN_PROGRESS).
func heartbeatAPI() api {
	h, n := serve(kmsg.NewPtrHeartbeatRequest, (*Server).handleHeartbeat)
	return api{key: 12, name: "Heartbeat", max: 4, handle: h, newRequest: n}
}

func (s *Server) handleHeartbeat(r *request, req *kmsg.HeartbeatRequest) {
	s.callOneGroup(r, req.Group, req, func(k *kerr.Error) kmsg.Response {
		resp := kmsg.NewPtrHeartbeatResponse()
		resp.ErrorCode = k.Code
		return resp
	})
}
