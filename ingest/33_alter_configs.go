package ingest

import (
	"context"
	"fmt"
	"maps"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterConfigs v0-2.
//
// The old way: what a request lists replaces all that was set. Topics, brokers,
// groups and client metrics; log levels can be altered incrementally only.
func alterConfigsAPI() api {
	h, n := serve(kmsg.NewPtrAlterConfigsRequest, (*Server).handleAlterConfigs)
	return api{key: 33, name: "AlterConfigs", max: 2, handle: h, newRequest: n}
}

func (s *Server) handleAlterConfigs(r *request, req *kmsg.AlterConfigsRequest) {
	r.conn.goAsync(r, func() {
		ctx, cancel := context.WithTimeout(r.conn.ctx, metadataWait)
		defer cancel()
		resp := kmsg.NewPtrAlterConfigsResponse()
		resp.Version = r.version
		twice := duplicates(req.Resources, func(a *kmsg.AlterConfigsRequestResource) string { return fmt.Sprint(a.ResourceType, a.ResourceName) })
		for i := range req.Resources {
			res := &req.Resources[i]
			err := refuse(kerr.InvalidRequest, "the request names the resource twice")
			if !twice[fmt.Sprint(res.ResourceType, res.ResourceName)] {
				err = s.replaceConfigs(ctx, res, req.ValidateOnly)
			}
			ar := kmsg.NewAlterConfigsResponseResource()
			ar.ResourceType, ar.ResourceName = res.ResourceType, res.ResourceName
			ar.ErrorCode, ar.ErrorMessage = code(err), message(err)
			resp.Resources = append(resp.Resources, ar)
		}
		r.finish(resp)
	})
}

func (s *Server) replaceConfigs(ctx context.Context, res *kmsg.AlterConfigsRequestResource, validateOnly bool) error {
	config := make(map[string]string, len(res.Configs))
	for _, c := range res.Configs {
		if _, again := config[c.Name]; again {
			return refuse(kerr.InvalidRequest, fmt.Sprintf("the request names %s twice", c.Name))
		}
		if c.Value == nil {
			return refuse(kerr.InvalidRequest, fmt.Sprintf("value of %s is null", c.Name))
		}
		config[c.Name] = *c.Value
	}
	if res.ResourceType == kmsg.ConfigResourceTypeBrokerLogger {
		return refuse(kerr.InvalidRequest, "log levels can be altered incrementally only")
	}
	t, err := s.alterTarget(res.ResourceType, res.ResourceName)
	if err != nil {
		return err
	}
	return s.alter(ctx, t, validateOnly, func(map[string]string) (map[string]string, error) { return maps.Clone(config), nil })
}
