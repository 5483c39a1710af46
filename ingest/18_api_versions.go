package ingest

import (
	"regexp"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const apiVersionsKey = 18

// ApiVersions v0-4.
//
// The answer derives from the registrations. A version that we do not know is
// answered in the layout of v0 with UNSUPPORTED_VERSION and our own range
// (KIP-511), after which clients ask again. The answer's header is always v0.
// v3 brings the client's name, checked as Kafka does; v4 allows features with
// a minimum of 0, of which we have none: FinalizedFeatures is empty, so that
// clients stay on transactions v1.
func apiVersionsAPI() api {
	h, n := serve(kmsg.NewPtrApiVersionsRequest, (*Server).handleApiVersions)
	return api{key: apiVersionsKey, name: "ApiVersions", max: 4, handle: h, newRequest: n}
}

var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

func (s *Server) handleApiVersions(r *request, req *kmsg.ApiVersionsRequest) {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = r.version
	if r.version > r.api.max || r.version < 0 {
		resp.Version = 0
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: apiVersionsKey, MinVersion: r.api.min, MaxVersion: r.api.max}}
		r.finish(resp)
		return
	}
	if r.version >= 3 && (!softwareName.MatchString(req.ClientSoftwareName) || !softwareName.MatchString(req.ClientSoftwareVersion)) {
		resp.ErrorCode = kerr.InvalidRequest.Code
		r.finish(resp)
		return
	}
	for _, a := range s.apis {
		if a != nil && !a.hidden {
			resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: a.key, MinVersion: a.min, MaxVersion: a.max})
		}
	}
	r.finish(resp)
}
