package ingest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/index"
	"thermocline/tiering/object"
)

func TestColdFailuresAreHeldBack(t *testing.T) {
	var c coldFailures
	now := time.Unix(1_700_000_000, 0)
	said := func(name string, held int, ok bool) {
		t.Helper()
		if h, o := c.admit(name, now); h != held || o != ok {
			t.Errorf("%s: expected %d held back, logged: %v; found %d, %v", name, held, ok, h, o)
		}
	}
	said("a", 0, true)
	said("a", 0, false)
	said("b", 1, true)
	now = now.Add(sayColdFailure)
	said("a", 0, true)
	for i := range 10 * maxColdFailures {
		c.admit(fmt.Sprint(i), now)
	}
	if len(c.said) > maxColdFailures {
		t.Errorf("%d objects are remembered, at most %d may be", len(c.said), maxColdFailures)
	}
	now = now.Add(sayColdFailure)
	if held, ok := c.admit("new", now); !ok || held == 0 {
		t.Errorf("after a minute: logged: %v, %d held back", ok, held)
	}
}

// A read that fails is in the log once, with all that is needed to look for it.
func TestColdFailureIsLogged(t *testing.T) {
	s := startServer(t, newFakeCluster(1), nil)
	create(t, s, "cold", 1, nil)
	row := topicOf(t, s, "cold")
	fill(t, s, row, 0, "a", "b")
	s.cluster.replicas[1].tier(t, s.cold)
	s.cold.mu.Lock()
	s.cold.err = &index.ObjectError{Key: "c/segments/1/x.seg", Err: object.ErrNotFound}
	s.cold.mu.Unlock()
	w := dial(t, s.addr)
	req := fetchRequest(12, row, 0)
	for range 3 {
		if p := ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions[0]; p.ErrorCode != kerr.KafkaStorageError.Code {
			t.Fatalf("a missing object: error %d", p.ErrorCode)
		}
	}
	log := s.logs.String()
	if n := strings.Count(log, "records cannot be read from the object store"); n != 1 {
		t.Errorf("%d lines for one object, expected one:\n%s", n, log)
	}
	for _, part := range []string{"level=WARN", "topic=cold", "partition=0", "offset=0", "object=c/segments/1/x.seg", "not found"} {
		if !strings.Contains(log, part) {
			t.Errorf("expected %q in the log, found:\n%s", part, log)
		}
	}
}
