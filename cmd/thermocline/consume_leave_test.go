package main

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// waitFor polls until something is so.
func waitFor(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(devWithin); !so(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// A member that does not poll, as one that is busy, does not join again, so that
// whoever joins waits for it until its rebalance timeout.
func TestStoppingWhileJoiningLeavesNobodyBehind(t *testing.T) {
	c, _, b := controlled(t)
	var joins, leaves atomic.Int32
	c.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		joins.Add(1)
		return nil, nil, false
	})
	c.ControlKey(int16(kmsg.LeaveGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		leaves.Add(1)
		return nil, nil, false
	})
	mustCLI(t, numbers(1, 10), "produce", "seeded", "-q", "--partition", "0", "-b", b)
	busy, err := kgo.NewClient(kgo.SeedBrokers(b), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("seeded"), kgo.BlockRebalanceOnPoll(), kgo.Balancers(kgo.CooperativeStickyBalancer()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { busy.CloseAllowingRebalance() })
	for got := 0; got == 0; { // after it the member holds rebalances back
		got = busy.PollFetches(t.Context()).NumRecords()
	}
	before := joins.Load()
	r := startReading(t, "seeded", "-g", "g", "-b", b)
	waitFor(t, "it joins with the id it was given", func() bool { return joins.Load() >= before+2 })
	r.stop()
	started := time.Now()
	r.waitEnd(t)
	if took := time.Since(started); took > goodbye {
		t.Fatalf("stopping took %v", took)
	}
	if leaves.Load() == 0 {
		t.Fatal("it did not leave the group")
	}
	var d []groupState
	groupJSON(t, &d, "describe", "g", "-b", b)
	if len(d[0].Members) != 1 {
		t.Fatalf("a member is left behind: %+v", d[0].Members)
	}
}

func TestTopicThatIsCreatedAgainIsNoticed(t *testing.T) {
	b := fakeCluster(t)
	for _, args := range [][]string{{}, {"-g", "a"}, {"-g", "b", "--group-protocol", "consumer"}} {
		for _, again := range []bool{false, true} {
			mustCLI(t, "", "topic", "create", "rec", "-p", "1", "-b", b)
			mustCLI(t, "1\n", "produce", "rec", "-q", "-b", b)
			r := startReading(t, append([]string{"rec", "-b", b}, args...)...)
			r.next(t)
			mustCLI(t, "", "topic", "delete", "rec", "-b", b)
			want := "topic rec was deleted while"
			if again {
				mustCLI(t, "", "topic", "create", "rec", "-p", "1", "-b", b)
				want = "topic rec was deleted and created again"
			}
			select {
			case err := <-r.ended:
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v: expected %q, found %v; it said\n%s", args, want, err, r.said())
				}
			case <-time.After(devWithin):
				t.Errorf("%v, created again %v: waits; it said\n%s", args, again, r.said())
			}
			if again {
				mustCLI(t, "", "topic", "delete", "rec", "-b", b)
			}
			if len(args) > 0 {
				_, _ = cli(t, "", "group", "delete", args[1], "-b", b)
			}
		}
	}
}
