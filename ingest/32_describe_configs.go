package ingest

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeConfigs v1-4.
//
// Topics, groups and client metrics from the tables of their configs; brokers
// from the settings in force, of which those that may change at run time are
// not read-only. A broker answers for itself only, as Kafka does; the name ""
// asks for what was set at run time for all brokers. v1 adds synonyms, v3 types
// and documentation. A config that is stored or refused says so, with the
// reason, in its documentation.
func describeConfigsAPI() api {
	h, n := serve(kmsg.NewPtrDescribeConfigsRequest, (*Server).handleDescribeConfigs)
	return api{key: 32, name: "DescribeConfigs", min: 1, max: 4, handle: h, newRequest: n}
}

func (s *Server) handleDescribeConfigs(r *request, req *kmsg.DescribeConfigsRequest) {
	resp := kmsg.NewPtrDescribeConfigsResponse()
	resp.Version = r.version
	d := configDescriber{srv: s, values: s.settings(), synonyms: req.IncludeSynonyms, docs: req.IncludeDocumentation}
	for i := range req.Resources {
		res := &req.Resources[i]
		dr := kmsg.NewDescribeConfigsResponseResource()
		dr.ResourceType, dr.ResourceName = res.ResourceType, res.ResourceName
		err := refuse(kerr.InvalidRequest, fmt.Sprintf("the request names more than %d resources", maxDescribed))
		if i < maxDescribed {
			dr.Configs, err = d.resource(res)
		}
		dr.ErrorCode, dr.ErrorMessage = code(err), message(err)
		if err == nil {
			dr.ErrorMessage = new(string) // Kafka's answers have an empty one, not null
		}
		resp.Resources = append(resp.Resources, dr)
	}
	r.finish(resp)
}
