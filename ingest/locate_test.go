package ingest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"thermocline/wal/shard"
)

// outOfService is a replica whose log has failed.
type outOfService struct{ Replica }

func (outOfService) Leadership() shard.Leadership { return shard.Leadership{} }
func (outOfService) Intake(shard.Class) error {
	return fmt.Errorf("%w: free space on the volume, then restart the broker", shard.ErrStopped)
}

// A producer that asks a broker whose log is out of service is told why, beside
// the code that makes it look for another leader.
func TestOutOfServiceSaysWhy(t *testing.T) {
	err := (&target{replica: outOfService{}}).leads()
	if got := kerrOf(err); got != kerr.NotLeaderForPartition {
		t.Errorf("expected NOT_LEADER_OR_FOLLOWER, found %v", got)
	}
	if text := message(err); text == nil || !strings.Contains(*text, "free space") {
		t.Errorf("expected a text that says what to do, found %v", err)
	}
}
