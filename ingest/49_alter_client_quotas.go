package ingest

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterClientQuotas v0-1.
//
// Quotas are not built: setting one is refused, so that nobody relies on it;
// removing one finds none, which succeeds as in Kafka.
func alterClientQuotasAPI() api {
	h, n := serve(kmsg.NewPtrAlterClientQuotasRequest, (*Server).handleAlterClientQuotas)
	return api{key: 49, name: "AlterClientQuotas", max: 1, handle: h, newRequest: n}
}

func (s *Server) handleAlterClientQuotas(r *request, req *kmsg.AlterClientQuotasRequest) {
	resp := kmsg.NewPtrAlterClientQuotasResponse()
	resp.Version = r.version
	for i := range req.Entries {
		e := &req.Entries[i]
		err := checkQuotaEntry(e)
		re := kmsg.NewAlterClientQuotasResponseEntry()
		re.ErrorCode, re.ErrorMessage = code(err), message(err)
		for _, x := range e.Entity {
			ent := kmsg.NewAlterClientQuotasResponseEntryEntity()
			ent.Type, ent.Name = x.Type, x.Name
			re.Entity = append(re.Entity, ent)
		}
		resp.Entries = append(resp.Entries, re)
	}
	r.finish(resp)
}

// quotaKeys are Kafka's kinds of quotas, by the entity they are for.
var (
	clientQuotas = []string{"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"}
	ipQuotas     = []string{"connection_creation_rate"}
)

func checkQuotaEntry(e *kmsg.AlterClientQuotasRequestEntry) error {
	known := clientQuotas
	for _, x := range e.Entity {
		switch x.Type {
		case quotaUser, quotaClient:
		case quotaIP:
			known = ipQuotas
		default:
			return refuse(kerr.InvalidRequest, fmt.Sprintf("entity type is %q: write user, client-id or ip", x.Type))
		}
	}
	if len(e.Entity) == 0 {
		return refuse(kerr.InvalidRequest, "an entry needs an entity")
	}
	for _, op := range e.Ops {
		if !slices.Contains(known, op.Key) {
			return refuse(kerr.InvalidRequest, fmt.Sprintf("quota is %q: write one of %v", op.Key, known))
		}
	}
	if slices.ContainsFunc(e.Ops, func(op kmsg.AlterClientQuotasRequestEntryOp) bool { return !op.Remove }) {
		return refuse(kerr.InvalidRequest, "quotas are not built: none can be set")
	}
	return nil
}
