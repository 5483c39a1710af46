package ingest

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/group"
	"thermocline/metadata"
)

// Coordinators runs the coordinators of the slots that this broker leads.
type Coordinators interface {
	// Submit hands a call to the coordinator of the group's slot, without
	// blocking. Nil: Reply will be called exactly once. Else the reason why
	// not, and Reply is never called: kerr.NotCoordinator,
	// kerr.CoordinatorLoadInProgress or kerr.CoordinatorNotAvailable.
	Submit(groupID string, c group.Call) *kerr.Error
	// Slots lists the slots whose coordinators work here, in order.
	Slots() []uint32
	// SubmitSlot is Submit for a slot: ListGroups asks all of them.
	SubmitSlot(slot uint32, c group.Call) *kerr.Error
}

// callGroup hands req to the group's coordinator; answer gets its response, or
// the reason why there is none, on any goroutine and exactly once. The
// request's frame is held until then, so that what waits stays within the
// byte budget.
func (s *Server) callGroup(r *request, groupID string, req kmsg.Request, answer func(kmsg.Response, *kerr.Error)) {
	req.SetVersion(r.version)
	c := r.groupCall(req, func(resp kmsg.Response) { answer(resp, nil) })
	if k := s.coordinators.Submit(groupID, c); k != nil {
		r.frame.release()
		answer(nil, k)
	}
}

// groupCall holds the frame until reply is called.
func (r *request) groupCall(req kmsg.Request, reply func(kmsg.Response)) group.Call {
	r.frame.hold()
	return group.Call{
		Request: req, ClientID: r.clientID, ClientHost: "/" + hostOf(r.conn.remote),
		Reply: func(resp kmsg.Response) {
			r.frame.release()
			reply(resp)
		},
	}
}

// callOneGroup is callGroup for requests that are answered by the
// coordinator's own response. fail makes the answer that carries an error.
func (s *Server) callOneGroup(r *request, groupID string, req kmsg.Request, fail func(k *kerr.Error) kmsg.Response) {
	stop := r.abortWithConnection()
	s.callGroup(r, groupID, req, func(resp kmsg.Response, k *kerr.Error) {
		stop()
		if k != nil {
			resp = fail(k)
		}
		r.finishGroup(resp)
	})
}

// abortWithConnection gives a request up when its connection ends: a member
// may wait in a join for minutes, and its client may be gone.
func (r *request) abortWithConnection() (stop func() bool) {
	return context.AfterFunc(r.conn.ctx, func() { r.finishAbort(r.conn.ctx.Err()) })
}

// finishGroup answers; the connection's writer encodes, not the coordinator.
func (r *request) finishGroup(resp kmsg.Response) {
	resp.SetVersion(r.version)
	r.finishLazy(func() kmsg.Response { return resp })
}

// gatherGroups calls one group after the other and joins the answers in resp:
// each group's is taken to its own place, so that they keep the request's
// order. It returns at once.
func (s *Server) gatherGroups(r *request, resp kmsg.Response, groups []string, ask func(i int) kmsg.Request, take func(i int, resp kmsg.Response, k *kerr.Error)) {
	stop := r.abortWithConnection()
	left := newCountdown(len(groups), func() {
		stop()
		r.finishGroup(resp)
	})
	for i, g := range groups {
		s.callGroup(r, g, ask(i), func(resp kmsg.Response, k *kerr.Error) {
			take(i, resp, k)
			left.one()
		})
	}
}

// uniqueGroups returns the groups without repetitions, in order.
func uniqueGroups(groups []string) []string {
	seen := make(map[string]bool, len(groups))
	return slices.DeleteFunc(slices.Clone(groups), func(g string) bool {
		if seen[g] {
			return true
		}
		seen[g] = true
		return false
	})
}

// topicName resolves a topic that a group request names by id.
func (s *Server) topicName(id [16]byte) (string, bool) {
	row, ok := s.cluster.TopicByID(metadata.TopicID(id))
	if !ok {
		return "", false
	}
	return row.Name, true
}

// topicExists tells whether there is a topic of that name.
func (s *Server) topicExists(name string) bool {
	_, ok := s.cluster.TopicByName(name)
	return ok
}

// tooMany is why a connection is closed that asks for more than a limit.
func tooMany(what string, found, limit int) error {
	return fmt.Errorf("%s: expected at most %d, found %d", what, limit, found)
}

// hostOf is the host of a host:port address, or all of it.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
