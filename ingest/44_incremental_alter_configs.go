package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/topicconfig"
	"thermocline/metadata"
)

// IncrementalAlterConfigs v0-1.
//
// Topics: set, delete, append and subtract, checked against the one table of
// topic configs. Broker settings live in the broker's file and cannot be altered.
func incrementalAlterConfigsAPI() api {
	h, n := serve(kmsg.NewPtrIncrementalAlterConfigsRequest, (*Server).handleIncrementalAlterConfigs)
	return api{key: 44, name: "IncrementalAlterConfigs", max: 1, handle: h, newRequest: n}
}

type alterResource = kmsg.IncrementalAlterConfigsRequestResource

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
				err = s.alterResource(ctx, res, req.ValidateOnly)
			}
			ar := kmsg.NewIncrementalAlterConfigsResponseResource()
			ar.ResourceType, ar.ResourceName = res.ResourceType, res.ResourceName
			ar.ErrorCode, ar.ErrorMessage = code(err), message(err)
			resp.Resources = append(resp.Resources, ar)
		}
		r.finish(resp)
	})
}

func (s *Server) alterResource(ctx context.Context, res *alterResource, validateOnly bool) error {
	if res.ResourceType != kmsg.ConfigResourceTypeTopic {
		return refuse(kerr.InvalidRequest, fmt.Sprintf("only topic configs can be altered, not those of resource type %s: broker settings are in the broker's file", res.ResourceType))
	}
	seen := duplicates(res.Configs, func(c *kmsg.IncrementalAlterConfigsRequestResourceConfig) string { return c.Name })
	for name := range seen {
		return refuse(kerr.InvalidRequest, fmt.Sprintf("the request names %s twice", name))
	}
	for range alterAttempts {
		row, ok := s.cluster.TopicByName(res.ResourceName)
		if !ok {
			return kerr.UnknownTopicOrPartition
		}
		config, err := altered(row.Config, res.Configs)
		if err == nil {
			err = topicconfig.Validate(config, s.configLimits())
		}
		if err != nil || validateOnly || maps.Equal(config, row.Config) {
			return err
		}
		err = s.cluster.AlterTopic(ctx, row.ID, row.Revision, config)
		if !errors.Is(err, metadata.ErrFenced) {
			return err
		}
		if !s.awaitRevision(ctx, row) {
			return err
		}
	}
	return metadata.ErrFenced
}

// awaitRevision waits for the cached view to show another version of a row.
func (s *Server) awaitRevision(ctx context.Context, row *metadata.Topic) bool {
	t := time.NewTicker(viewPoll)
	defer t.Stop()
	for {
		if now, ok := s.cluster.TopicByID(row.ID); !ok || now.Revision != row.Revision {
			return true
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return false
		}
	}
}

// altered applies the operations to a copy of config.
func altered(config map[string]string, ops []kmsg.IncrementalAlterConfigsRequestResourceConfig) (map[string]string, error) {
	out := maps.Clone(config)
	if out == nil {
		out = map[string]string{}
	}
	for _, op := range ops {
		d, ok := topicconfig.Lookup(op.Name)
		if !ok {
			return nil, fmt.Errorf("%w: unknown topic config name: %s", topicconfig.ErrInvalid, op.Name)
		}
		if op.Op == kmsg.IncrementalAlterConfigOpDelete {
			delete(out, op.Name)
			continue
		}
		if op.Value == nil || len(*op.Value) > maxConfigValue {
			return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("value of %s is null or longer than %d bytes", op.Name, maxConfigValue))
		}
		switch op.Op {
		case kmsg.IncrementalAlterConfigOpSet:
			out[op.Name] = *op.Value
		case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
			if d.Type != topicconfig.List {
				return nil, refuse(kerr.InvalidConfig, fmt.Sprintf("%s is no list: it can be set and deleted only", op.Name))
			}
			current, ok := out[op.Name]
			if !ok {
				current = d.Default
			}
			out[op.Name] = changeList(current, *op.Value, op.Op == kmsg.IncrementalAlterConfigOpAppend)
		default:
			return nil, refuse(kerr.InvalidRequest, fmt.Sprintf("operation %d on %s is not known", op.Op, op.Name))
		}
	}
	return out, nil
}

// changeList adds members to a list, or removes them.
func changeList(current, change string, add bool) string {
	list := topicconfig.Members(current)
	for _, m := range topicconfig.Members(change) {
		has := slices.Contains(list, m)
		if add && !has {
			list = append(list, m)
		}
		if !add && has {
			list = slices.DeleteFunc(list, func(x string) bool { return x == m })
		}
	}
	return strings.Join(list, ",")
}
