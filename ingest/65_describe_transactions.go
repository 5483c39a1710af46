package ingest

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeTransactions v0. There are no transactions yet.
func describeTransactionsAPI() api {
	h, n := serve(kmsg.NewPtrDescribeTransactionsRequest, (*Server).handleDescribeTransactions)
	return api{key: 65, name: "DescribeTransactions", handle: h, newRequest: n}
}

func (s *Server) handleDescribeTransactions(r *request, req *kmsg.DescribeTransactionsRequest) {
	resp := kmsg.NewPtrDescribeTransactionsResponse()
	resp.Version = r.version
	for _, id := range req.TransactionalIDs {
		st := kmsg.NewDescribeTransactionsResponseTransactionState()
		st.TransactionalID, st.ErrorCode = id, kerr.TransactionalIDNotFound.Code
		if id == "" {
			st.ErrorCode = kerr.InvalidRequest.Code
		}
		resp.TransactionStates = append(resp.TransactionStates, st)
	}
	r.finish(resp)
}
