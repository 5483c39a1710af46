package ingest

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeAcls v1-3. There is no authorizer: SECURITY_DISABLED, as Kafka without one.
func describeACLsAPI() api {
	h, n := serve(kmsg.NewPtrDescribeACLsRequest, (*Server).handleDescribeACLs)
	return api{key: 29, name: "DescribeAcls", min: 1, max: 3, handle: h, newRequest: n}
}

// errNoAuthorizer is the answer to everything about ACLs.
var errNoAuthorizer = refuse(kerr.SecurityDisabled, "there is no authorizer: everybody may do everything")

func (s *Server) handleDescribeACLs(r *request, _ *kmsg.DescribeACLsRequest) {
	resp := kmsg.NewPtrDescribeACLsResponse()
	resp.Version, resp.ErrorCode, resp.ErrorMessage = r.version, code(errNoAuthorizer), message(errNoAuthorizer)
	r.finish(resp)
}
