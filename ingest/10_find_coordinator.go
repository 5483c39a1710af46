package ingest

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/metadata"
)

// FindCoordinator v0-6.
//
// A key hashes to a coordinator slot; its coordinator is whoever leads the
// slot's shard. v4 takes many keys (KIP-699). Groups, transactional ids and, from
// v6 on, the share partitions of KIP-932 have coordinators by the same rule.
func findCoordinatorAPI() api {
	h, n := serve(kmsg.NewPtrFindCoordinatorRequest, (*Server).handleFindCoordinator)
	return api{key: 10, name: "FindCoordinator", max: 6, handle: h, newRequest: n}
}

// Coordinator types of the protocol.
const (
	coordinatorGroup = 0
	coordinatorTxn   = 1
	coordinatorShare = 2
)

func (s *Server) handleFindCoordinator(r *request, req *kmsg.FindCoordinatorRequest) {
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.Version = r.version
	kind := req.CoordinatorType // 0 in version 0, which has no types
	if r.version < 4 {
		c := s.findCoordinator(req.CoordinatorKey, kind, r.version)
		resp.ErrorCode, resp.ErrorMessage, resp.NodeID, resp.Host, resp.Port = c.ErrorCode, c.ErrorMessage, c.NodeID, c.Host, c.Port
		r.finish(resp)
		return
	}
	if len(req.CoordinatorKeys) > maxGroupsPerRequest {
		r.finishAbort(tooMany("coordinator keys", len(req.CoordinatorKeys), maxGroupsPerRequest))
		return
	}
	for _, key := range req.CoordinatorKeys {
		resp.Coordinators = append(resp.Coordinators, s.findCoordinator(key, kind, r.version))
	}
	r.finish(resp)
}

// isShareKey tells whether a key names a share partition: a group, a topic's
// id in base64 for URLs, and a partition, with colons between; the group may
// have some of its own.
func isShareKey(key string) bool {
	parts := strings.Split(key, ":")
	if len(parts) < 3 {
		return false
	}
	last := len(parts) - 1
	id, idErr := base64.RawURLEncoding.DecodeString(parts[last-1])
	_, partitionErr := strconv.ParseInt(parts[last], 10, 32)
	group := strings.Join(parts[:last-1], ":")
	return strings.TrimSpace(group) != "" && idErr == nil && len(id) == 16 && partitionErr == nil
}

func (s *Server) findCoordinator(key string, kind int8, version int16) kmsg.FindCoordinatorResponseCoordinator {
	c := kmsg.NewFindCoordinatorResponseCoordinator()
	c.Key, c.NodeID, c.Port = key, -1, -1
	fail := func(k *kerr.Error, text string) kmsg.FindCoordinatorResponseCoordinator {
		c.ErrorCode, c.ErrorMessage = k.Code, &text
		return c
	}
	if kind < coordinatorGroup || kind > coordinatorShare || kind == coordinatorShare && version < 6 {
		return fail(kerr.InvalidRequest, "no such coordinator type")
	}
	if kind == coordinatorShare && !isShareKey(key) {
		return fail(kerr.InvalidRequest, "a share coordinator's key is group:topic id:partition")
	}
	slots := s.cluster.CoordinatorSlots()
	if len(slots) == 0 {
		return fail(kerr.CoordinatorNotAvailable, "coordinators are not placed yet")
	}
	id := slots[metadata.CoordinatorSlot(key, len(slots))]
	leader, term, ok := s.cluster.Leader(id)
	if !ok || s.unsure(id, leader, term) {
		return fail(kerr.CoordinatorNotAvailable, "the coordinator's shard has no leader at the moment")
	}
	for _, b := range s.cluster.Brokers() {
		if b.ID == leader {
			c.NodeID, c.Host, c.Port = int32(b.ID), b.KafkaHost, b.KafkaPort
			return c
		}
	}
	return fail(kerr.CoordinatorNotAvailable, "the coordinator's broker is not registered at the moment")
}

// unsure tells that the leader of a term is not to be named: the replica here
// knows of none in that term or a later one, so that what is known of it is from
// before an election, or before all brokers were away; or it is this broker, and
// it does not serve yet. Clients that are sent to a broker that coordinates
// nothing give up sooner (librdkafka's commits after two tries) than those that
// are told to wait.
func (s *Server) unsure(id metadata.ShardID, leader metadata.BrokerID, term uint64) bool {
	replica, here := s.replicas.Replica(id)
	if !here {
		return false
	}
	l := replica.Leadership()
	return l.Leader == 0 && l.Term >= term || leader == s.cluster.Self() && !l.Ready
}
