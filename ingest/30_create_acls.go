package ingest

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateAcls v1-3. There is no authorizer: SECURITY_DISABLED, as Kafka without one.
func createACLsAPI() api {
	h, n := serve(kmsg.NewPtrCreateACLsRequest, (*Server).handleCreateACLs)
	return api{key: 30, name: "CreateAcls", min: 1, max: 3, handle: h, newRequest: n}
}

func (s *Server) handleCreateACLs(r *request, req *kmsg.CreateACLsRequest) {
	resp := kmsg.NewPtrCreateACLsResponse()
	resp.Version = r.version
	for range req.Creations {
		res := kmsg.NewCreateACLsResponseResult()
		res.ErrorCode, res.ErrorMessage = code(errNoAuthorizer), message(errNoAuthorizer)
		resp.Results = append(resp.Results, res)
	}
	r.finish(resp)
}
