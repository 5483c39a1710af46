package ingest

import (
	"crypto/rand"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// GetTelemetrySubscriptions v0 (KIP-714).
//
// Not advertised, since there is no receiver of clients' metrics, as in a Kafka
// without a plugin for it. Who asks all the same is told that no metric is
// wanted.
func getTelemetrySubscriptionsAPI() api {
	h, n := serve(kmsg.NewPtrGetTelemetrySubscriptionsRequest, (*Server).handleGetTelemetrySubscriptions)
	return api{key: 71, name: "GetTelemetrySubscriptions", hidden: true, handle: h, newRequest: n}
}

const (
	// noTelemetry numbers the subscription to nothing.
	noTelemetry = 1
	// telemetryInterval is Kafka's default, in milliseconds.
	telemetryInterval = 300_000
	// telemetryBytes is Kafka's telemetry.max.bytes.
	telemetryBytes = 1 << 20
)

func (s *Server) handleGetTelemetrySubscriptions(r *request, req *kmsg.GetTelemetrySubscriptionsRequest) {
	resp := kmsg.NewPtrGetTelemetrySubscriptionsResponse()
	resp.Version, resp.ClientInstanceID = r.version, req.ClientInstanceID
	if resp.ClientInstanceID == [16]byte{} {
		rand.Read(resp.ClientInstanceID[:])
		resp.ClientInstanceID[6] = resp.ClientInstanceID[6]&0x0f | 0x40 // a random UUID
		resp.ClientInstanceID[8] = resp.ClientInstanceID[8]&0x3f | 0x80
	}
	resp.SubscriptionID, resp.PushIntervalMillis, resp.TelemetryMaxBytes = noTelemetry, telemetryInterval, telemetryBytes
	resp.AcceptedCompressionTypes, resp.DeltaTemporality = []int8{4, 3, 1, 2}, true
	r.finish(resp)
}
