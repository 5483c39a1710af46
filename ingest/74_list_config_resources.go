package ingest

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/metadata"
)

// ListConfigResources v0-1 (KIP-1142).
//
// v0 lists the subscriptions to client metrics; v1 adds the types to list,
// none standing for all.
func listConfigResourcesAPI() api {
	h, n := serve(kmsg.NewPtrListConfigResourcesRequest, (*Server).handleListConfigResources)
	return api{key: 74, name: "ListConfigResources", max: 1, handle: h, newRequest: n}
}

// listedTypes are the kinds of resources that have configs, in the order of
// an answer.
var listedTypes = []kmsg.ConfigResourceType{
	kmsg.ConfigResourceTypeGroupConfig, kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeBrokerLogger,
	kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeTopic,
}

func (s *Server) handleListConfigResources(r *request, req *kmsg.ListConfigResourcesRequest) {
	resp := kmsg.NewPtrListConfigResourcesResponse()
	resp.Version = r.version
	var asked []kmsg.ConfigResourceType
	for _, t := range req.ResourceTypes {
		asked = append(asked, kmsg.ConfigResourceType(t))
	}
	if r.version == 0 {
		asked = []kmsg.ConfigResourceType{kmsg.ConfigResourceTypeClientMetrics}
	}
	for _, t := range asked {
		if !slices.Contains(listedTypes, t) {
			resp.ErrorCode = kerr.UnsupportedVersion.Code
			r.finish(resp)
			return
		}
	}
	for _, t := range listedTypes {
		if len(asked) > 0 && !slices.Contains(asked, t) {
			continue
		}
		for _, name := range s.configResources(t) {
			cr := kmsg.NewListConfigResourcesResponseConfigResource()
			cr.Name, cr.Type = name, int8(t)
			resp.ConfigResources = append(resp.ConfigResources, cr)
		}
	}
	r.finish(resp)
}

// configResources names the resources of a kind.
func (s *Server) configResources(kind kmsg.ConfigResourceType) []string {
	var names []string
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		for _, t := range s.sortedTopics() {
			names = append(names, t.Name)
		}
	case kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger:
		for _, b := range s.cluster.Brokers() {
			names = append(names, strconv.Itoa(int(b.ID)))
		}
	case kmsg.ConfigResourceTypeGroupConfig:
		return s.dynamicNames(metadata.GroupConfig)
	case kmsg.ConfigResourceTypeClientMetrics:
		return s.dynamicNames(metadata.ClientMetricsConfig)
	}
	return names
}

func (s *Server) dynamicNames(kind metadata.ConfigKind) []string {
	var names []string
	for _, d := range s.cluster.DynamicConfigs(kind) {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	return names
}
