package ingest

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ConsumerGroupHeartbeat v0-1 (KIP-848): join, stay, change the subscription,
// learn the assignment and leave, in one call. v1 adds regular expressions and
// member ids made by clients (KIP-1082).
func consumerGroupHeartbeatAPI() api {
	h, n := serve(kmsg.NewPtrConsumerGroupHeartbeatRequest, (*Server).handleConsumerGroupHeartbeat)
	return api{key: 68, name: "ConsumerGroupHeartbeat", max: 1, handle: h, newRequest: n}
}

func (s *Server) handleConsumerGroupHeartbeat(r *request, req *kmsg.ConsumerGroupHeartbeatRequest) {
	s.callOneGroup(r, req.Group, req, func(k *kerr.Error) kmsg.Response {
		resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
		resp.ErrorCode = k.Code
		return resp
	})
}
