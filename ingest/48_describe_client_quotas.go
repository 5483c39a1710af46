package ingest

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeClientQuotas v0-1. There are no quotas yet: a valid filter finds none.
func describeClientQuotasAPI() api {
	h, n := serve(kmsg.NewPtrDescribeClientQuotasRequest, (*Server).handleDescribeClientQuotas)
	return api{key: 48, name: "DescribeClientQuotas", max: 1, handle: h, newRequest: n}
}

func (s *Server) handleDescribeClientQuotas(r *request, req *kmsg.DescribeClientQuotasRequest) {
	resp := kmsg.NewPtrDescribeClientQuotasResponse()
	resp.Version = r.version
	err := checkQuotaFilter(req.Components)
	resp.ErrorCode, resp.ErrorMessage = code(err), message(err)
	if err == nil {
		resp.ErrorMessage, resp.Entries = new(string), []kmsg.DescribeClientQuotasResponseEntry{}
	}
	r.finish(resp)
}

// Kinds of entities that a quota may be for.
const (
	quotaUser   = "user"
	quotaClient = "client-id"
	quotaIP     = "ip"
)

func checkQuotaFilter(components []kmsg.DescribeClientQuotasRequestComponent) error {
	seen := map[string]bool{}
	for _, c := range components {
		switch {
		case c.EntityType == "":
			return refuse(kerr.InvalidRequest, "a component's entity type is empty")
		case seen[c.EntityType]:
			return refuse(kerr.InvalidRequest, fmt.Sprintf("the filter names %s twice", c.EntityType))
		case c.EntityType != quotaUser && c.EntityType != quotaClient && c.EntityType != quotaIP:
			return refuse(kerr.UnsupportedVersion, fmt.Sprintf("entity type is %q: write user, client-id or ip", c.EntityType))
		}
		seen[c.EntityType] = true
		switch c.MatchType {
		case kmsg.QuotasMatchTypeExact:
			if c.Match == nil {
				return refuse(kerr.InvalidRequest, "an exact match needs a name")
			}
		case kmsg.QuotasMatchTypeDefault, kmsg.QuotasMatchTypeAny:
			if c.Match != nil {
				return refuse(kerr.InvalidRequest, "a name goes with an exact match only")
			}
		default:
			return refuse(kerr.InvalidRequest, fmt.Sprintf("match type %d is not known", c.MatchType))
		}
	}
	if seen[quotaIP] && len(seen) > 1 {
		return refuse(kerr.InvalidRequest, "ip stands alone, without user and client-id")
	}
	return nil
}
