package ingest

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteAcls v1-3. There is no authorizer: SECURITY_DISABLED, as Kafka without one.
func deleteACLsAPI() api {
	h, n := serve(kmsg.NewPtrDeleteACLsRequest, (*Server).handleDeleteACLs)
	return api{key: 31, name: "DeleteAcls", min: 1, max: 3, handle: h, newRequest: n}
}

func (s *Server) handleDeleteACLs(r *request, req *kmsg.DeleteACLsRequest) {
	resp := kmsg.NewPtrDeleteACLsResponse()
	resp.Version = r.version
	for range req.Filters {
		res := kmsg.NewDeleteACLsResponseResult()
		res.ErrorCode, res.ErrorMessage = code(errNoAuthorizer), message(errNoAuthorizer)
		resp.Results = append(resp.Results, res)
	}
	r.finish(resp)
}
