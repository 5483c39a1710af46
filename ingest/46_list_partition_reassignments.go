package ingest

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListPartitionReassignments v0. There never are any: shards are moved, not
// partitions.
func listPartitionReassignmentsAPI() api {
	h, n := serve(kmsg.NewPtrListPartitionReassignmentsRequest, (*Server).handleListPartitionReassignments)
	return api{key: 46, name: "ListPartitionReassignments", handle: h, newRequest: n}
}

func (s *Server) handleListPartitionReassignments(r *request, _ *kmsg.ListPartitionReassignmentsRequest) {
	resp := kmsg.NewPtrListPartitionReassignmentsResponse()
	resp.Version = r.version
	r.finish(resp)
}
