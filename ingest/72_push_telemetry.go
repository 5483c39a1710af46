package ingest

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// PushTelemetry v0 (KIP-714). Not advertised. No metric is wanted: what comes
// under the subscription to nothing is let go, anything else is refused.
func pushTelemetryAPI() api {
	h, n := serve(kmsg.NewPtrPushTelemetryRequest, (*Server).handlePushTelemetry)
	return api{key: 72, name: "PushTelemetry", hidden: true, handle: h, newRequest: n}
}

func (s *Server) handlePushTelemetry(r *request, req *kmsg.PushTelemetryRequest) {
	resp := kmsg.NewPtrPushTelemetryResponse()
	resp.Version = r.version
	switch {
	case req.ClientInstanceID == [16]byte{}:
		resp.ErrorCode = kerr.InvalidRequest.Code
	case req.SubscriptionID != noTelemetry:
		resp.ErrorCode = kerr.UnknownSubscriptionID.Code
	}
	r.finish(resp)
}
