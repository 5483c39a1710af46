package ingest

import (
	"cmp"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListGroups v0-5. Each broker lists the groups that it coordinates; clients
// ask all brokers. Filters by state from v4 on (KIP-518), by type from v5 on
// (KIP-848).
func listGroupsAPI() api {
	h, n := serve(kmsg.NewPtrListGroupsRequest, (*Server).handleListGroups)
	return api{key: 16, name: "ListGroups", max: 5, handle: h, newRequest: n}
}

func (s *Server) handleListGroups(r *request, req *kmsg.ListGroupsRequest) {
	resp := kmsg.NewPtrListGroupsResponse()
	var mu sync.Mutex // the slots answer from goroutines of their own
	slots := s.coordinators.Slots()
	stop := r.abortWithConnection()
	left := newCountdown(len(slots), func() {
		stop()
		slices.SortFunc(resp.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return cmp.Compare(a.Group, b.Group) })
		r.finishGroup(resp)
	})
	for _, slot := range slots {
		one := *req
		c := r.groupCall(&one, func(from kmsg.Response) {
			mu.Lock()
			l := from.(*kmsg.ListGroupsResponse)
			resp.Groups = append(resp.Groups, l.Groups...)
			resp.ErrorCode = max(resp.ErrorCode, l.ErrorCode)
			mu.Unlock()
			left.one()
		})
		k := s.coordinators.SubmitSlot(slot, c)
		if k == nil {
			continue
		}
		r.frame.release()
		// A slot that has just moved away is another broker's to list.
		if k.Code != kerr.NotCoordinator.Code {
			mu.Lock()
			resp.ErrorCode = k.Code
			mu.Unlock()
		}
		left.one()
	}
}
