package ingest

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster v0-2.
//
// v1 adds the endpoint type: 1 is brokers; controllers (2) have no endpoint of
// their own here. v2 can include fenced brokers: a broker without a live
// registration is not known at all.
func describeClusterAPI() api {
	h, n := serve(kmsg.NewPtrDescribeClusterRequest, (*Server).handleDescribeCluster)
	return api{key: 60, name: "DescribeCluster", max: 2, handle: h, newRequest: n}
}

const (
	endpointBrokers     = 1
	endpointControllers = 2
)

func (s *Server) handleDescribeCluster(r *request, req *kmsg.DescribeClusterRequest) {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.Version = r.version
	if r.version >= 1 && req.EndpointType != endpointBrokers {
		err := refuse(kerr.UnsupportedEndpointType, fmt.Sprintf("endpoint type %d is not known", req.EndpointType))
		if req.EndpointType == endpointControllers {
			err = refuse(kerr.MismatchedEndpointType, "this is an endpoint of a broker: controllers have none of their own")
		}
		resp.ErrorCode, resp.ErrorMessage = code(err), message(err)
		r.finish(resp)
		return
	}
	resp.EndpointType = endpointBrokers
	resp.ClusterID, resp.ControllerID = s.cluster.ClusterID(), s.controller()
	for _, b := range s.cluster.Brokers() {
		resp.Brokers = append(resp.Brokers, kmsg.DescribeClusterResponseBroker{
			NodeID: int32(b.ID), Host: b.KafkaHost, Port: b.KafkaPort, Rack: rackOf(b),
		})
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	r.finish(resp)
}
