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
// v3 brings the client's name, checked as Kafka does, and features; v4 allows
// features with a minimum of 0, so that only it lists what is supported.
// group.version tells clients that groups of KIP-848 are served;
// transaction.version is missing, so that clients stay on transactions v1.
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
	s.features(resp)
	r.finish(resp)
}

// consumerGroupKey is ConsumerGroupHeartbeat: where it is served, groups of
// KIP-848 are.
const consumerGroupKey = 68

// features fills in what is served beyond the versions of requests.
func (s *Server) features(resp *kmsg.ApiVersionsResponse) {
	if resp.Version < 3 || s.apis[consumerGroupKey] == nil {
		return
	}
	const name, level = "group.version", 1
	if resp.Version >= 4 {
		resp.SupportedFeatures = append(resp.SupportedFeatures, kmsg.ApiVersionsResponseSupportedFeature{Name: name, MaxVersion: level})
	}
	resp.FinalizedFeatures = append(resp.FinalizedFeatures, kmsg.ApiVersionsResponseFinalizedFeature{Name: name, MaxVersionLevel: level, MinVersionLevel: level})
	resp.FinalizedFeaturesEpoch = featuresEpoch
}

// featuresEpoch orders versions of the finalized features; they never change.
const featuresEpoch = 1
