package ingest

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/metadata"
	"thermocline/wal/shard"
)

// TestFindCoordinatorWhileUnsure: a leader is named only while the replica here
// does not know better.
func TestFindCoordinatorWhileUnsure(t *testing.T) {
	s, _, w := startGroups(t)
	c := s.cluster
	c.mu.Lock()
	c.brokers = append(c.brokers, metadata.Broker{ID: 2, KafkaHost: "127.0.0.1", KafkaPort: 2})
	c.mu.Unlock()
	for name, tc := range map[string]struct {
		known metadata.BrokerID // leader in fakeTerm
		here  shard.Leadership
		code  int16
	}{
		"another leads":                         {2, shard.Leadership{Leader: 7, Term: fakeTerm}, 0},
		"the replica here is behind":            {2, shard.Leadership{Term: fakeTerm - 1}, 0},
		"the replica here knows of no leader":   {2, shard.Leadership{Term: fakeTerm}, kerr.CoordinatorNotAvailable.Code},
		"an election, in a later term":          {2, shard.Leadership{Term: fakeTerm + 1}, kerr.CoordinatorNotAvailable.Code},
		"this broker leads":                     {1, shard.Leadership{Leader: 7, Term: fakeTerm, Ready: true}, 0},
		"this broker leads, and is not ready":   {1, shard.Leadership{Leader: 7, Term: fakeTerm}, kerr.CoordinatorNotAvailable.Code},
		"this broker led before it was started": {1, shard.Leadership{Term: fakeTerm - 1}, kerr.CoordinatorNotAvailable.Code},
	} {
		c.mu.Lock()
		c.leaders[1] = tc.known
		c.mu.Unlock()
		r := c.replicas[1]
		r.mu.Lock()
		r.lead = tc.here
		r.mu.Unlock()
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorKey = 3, "g"
		resp := ask[*kmsg.FindCoordinatorResponse](w, req)
		if resp.ErrorCode != tc.code || tc.code == 0 && resp.NodeID != int32(tc.known) {
			t.Errorf("%s: expected error %d, found %+v", name, tc.code, resp)
		}
	}
}
