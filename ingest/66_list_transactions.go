package ingest

import (
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListTransactions v0-2. There are no transactions yet. v1 adds a filter by
// duration, v2 one by a pattern of transactional ids (KIP-1152).
func listTransactionsAPI() api {
	h, n := serve(kmsg.NewPtrListTransactionsRequest, (*Server).handleListTransactions)
	return api{key: 66, name: "ListTransactions", max: 2, handle: h, newRequest: n}
}

// transactionStates are Kafka's names of the states of a transaction.
var transactionStates = []string{
	"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
}

func (s *Server) handleListTransactions(r *request, req *kmsg.ListTransactionsRequest) {
	resp := kmsg.NewPtrListTransactionsResponse()
	resp.Version = r.version
	if p := req.TransactionalIDPattern; p != nil {
		if _, err := regexp.Compile(*p); err != nil {
			resp.ErrorCode = kerr.InvalidRegularExpression.Code
			r.finish(resp)
			return
		}
	}
	for _, state := range req.StateFilters {
		if !slices.Contains(transactionStates, state) {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, state)
		}
	}
	r.finish(resp)
}
