package ingest

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitProducerId v0-5.
//
// Without a transactional id every call gets a fresh producer id with epoch 0;
// a given id and epoch (v3+) are ignored, as Kafka does then. Transactions are
// not built yet: a transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
// which every client treats as fatal and shows at once. (COORDINATOR_NOT_AVAILABLE
// would be truer, but clients retry it for ever without a word.)
func initProducerIDAPI() api {
	h, n := serve(kmsg.NewPtrInitProducerIDRequest, (*Server).handleInitProducerID)
	return api{key: 22, name: "InitProducerId", max: 5, handle: h, newRequest: n}
}

func (s *Server) handleInitProducerID(r *request, req *kmsg.InitProducerIDRequest) {
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.Version = r.version
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil {
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		if *req.TransactionalID == "" {
			resp.ErrorCode = kerr.InvalidRequest.Code
		}
		r.finish(resp)
		return
	}
	r.conn.goAsync(r, func() {
		ctx, cancel := context.WithTimeout(r.conn.ctx, metadataWait)
		defer cancel()
		id, err := s.cluster.AllocateProducerID(ctx)
		if err != nil {
			// Retriable for every client, unlike the codes of metadata errors.
			resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
			r.finish(resp)
			return
		}
		resp.ProducerID, resp.ProducerEpoch = id, 0
		r.finish(resp)
	})
}
