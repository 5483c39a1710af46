package ingest

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeUserScramCredentials v0. There is no authentication yet, and so
// there are no credentials: nobody is listed, and who is asked for by name is
// not found.
func describeUserScramCredentialsAPI() api {
	h, n := serve(kmsg.NewPtrDescribeUserSCRAMCredentialsRequest, (*Server).handleDescribeUserScramCredentials)
	return api{key: 50, name: "DescribeUserScramCredentials", handle: h, newRequest: n}
}

func (s *Server) handleDescribeUserScramCredentials(r *request, req *kmsg.DescribeUserSCRAMCredentialsRequest) {
	resp := kmsg.NewPtrDescribeUserSCRAMCredentialsResponse()
	resp.Version, resp.ErrorMessage = r.version, new(string)
	twice := duplicates(req.Users, func(u *kmsg.DescribeUserSCRAMCredentialsRequestUser) string { return u.Name })
	told := map[string]bool{}
	for _, u := range req.Users {
		if told[u.Name] {
			continue
		}
		told[u.Name] = true
		err := refuse(kerr.ResourceNotFound, "user "+u.Name+" has no credentials")
		if twice[u.Name] {
			err = refuse(kerr.DuplicateResource, "the request names user "+u.Name+" twice")
		}
		res := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
		res.User, res.ErrorCode, res.ErrorMessage = u.Name, code(err), message(err)
		resp.Results = append(resp.Results, res)
	}
	r.finish(resp)
}
