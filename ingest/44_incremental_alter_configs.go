package ingest

import (
	"context"
	"fmt"
	"maps"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// IncrementalAlterConfigs v0-1.
//
// Set, delete, append and subtract, on topics, brokers (this one, or all of
// them by the name ""), groups, client metrics and log levels. Broker settings
// that are read-only in Kafka are refused as Kafka does.
func incrementalAlterConfigsAPI() api {
	h, n := serve(kmsg.NewPtrIncrementalAlterConfigsRequest, (*Server).handleIncrementalAlterConfigs)
	return api{key: 44, name: "IncrementalAlterConfigs", max: 1, handle: h, newRequest: n}
}

type (
	alterResource = kmsg.IncrementalAlterConfigsRequestResource
	alterOp       = kmsg.IncrementalAlterConfigsRequestResourceConfig
)

func (s *Server) handleIncrementalAlterConfigs(r *request, req *kmsg.IncrementalAlterConfigsRequest) {
	r.conn.goAsync(r, func() {
		ctx, cancel := context.WithTimeout(r.conn.ctx, metadataWait)
		defer cancel()
		resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
		resp.Version = r.version
		twice := duplicates(req.Resources, func(a *alterResource) string { return fmt.Sprint(a.ResourceType, a.ResourceName) })
		for i := range req.Resources {
			res := &req.Resources[i]
			err := refuse(kerr.InvalidRequest, "the request names the resource twice")
			if !twice[fmt.Sprint(res.ResourceType, res.ResourceName)] {
				err = s.changeConfigs(ctx, res, req.ValidateOnly)
			}
			ar := kmsg.NewIncrementalAlterConfigsResponseResource()
			ar.ResourceType, ar.ResourceName = res.ResourceType, res.ResourceName
			ar.ErrorCode, ar.ErrorMessage = code(err), message(err)
			resp.Resources = append(resp.Resources, ar)
		}
		r.finish(resp)
	})
}

func (s *Server) changeConfigs(ctx context.Context, res *alterResource, validateOnly bool) error {
	for name := range duplicates(res.Configs, func(c *alterOp) string { return c.Name }) {
		return refuse(kerr.InvalidRequest, fmt.Sprintf("the request names %s twice", name))
	}
	if err := checkOps(res.Configs); err != nil {
		return err
	}
	if res.ResourceType == kmsg.ConfigResourceTypeBrokerLogger {
		return s.alterLogLevels(res, validateOnly)
	}
	t, err := s.alterTarget(res.ResourceType, res.ResourceName)
	if err != nil {
		return err
	}
	return s.alter(ctx, t, validateOnly, func(now map[string]string) (map[string]string, error) { return t.altered(now, res.Configs) })
}

// checkOps refuses what no kind of resource can do.
func checkOps(ops []alterOp) error {
	for _, op := range ops {
		switch op.Op {
		case kmsg.IncrementalAlterConfigOpDelete:
		case kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
			if op.Value == nil {
				return refuse(kerr.InvalidRequest, fmt.Sprintf("value of %s is null", op.Name))
			}
		default:
			return refuse(kerr.InvalidRequest, fmt.Sprintf("operation %d on %s is not known", op.Op, op.Name))
		}
	}
	return nil
}

// altered applies the operations to a copy of config.
func (t *alterTarget) altered(config map[string]string, ops []alterOp) (map[string]string, error) {
	out := maps.Clone(config)
	if out == nil {
		out = map[string]string{}
	}
	for _, op := range ops {
		switch op.Op {
		case kmsg.IncrementalAlterConfigOpDelete:
			delete(out, op.Name)
		case kmsg.IncrementalAlterConfigOpSet:
			out[op.Name] = *op.Value
		default:
			d, ok := t.lookup(op.Name)
			if !ok || !isList(d) {
				return nil, refuse(kerr.InvalidConfig, fmt.Sprintf("%s is no list: it can be set and deleted only", op.Name))
			}
			current, ok := out[op.Name]
			if !ok {
				current = t.inherited(d)
			}
			out[op.Name] = changeList(current, *op.Value, op.Op == kmsg.IncrementalAlterConfigOpAppend)
		}
	}
	return out, nil
}
