package main

import (
	"fmt"
	"slices"
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
	for name, args := range map[string][]string{"alone": {}, "classic": {"-g", "a"}, "consumer": {"-g", "b", "--group-protocol", "consumer"}} {
		for _, again := range []bool{false, true} {
			topic := fmt.Sprintf("%s-%v", name, again)
			t.Run(topic, func(t *testing.T) {
				t.Parallel() // each waits for seconds
				mustCLI(t, "", "topic", "create", topic, "-p", "1", "-b", b)
				mustCLI(t, "1\n", "produce", topic, "-q", "-b", b)
				own := slices.Clone(args)
				if len(own) > 0 {
					own[1] = topic // a group of its own
				}
				r := startReading(t, append([]string{topic, "-b", b}, own...)...)
				r.next(t)
				mustCLI(t, "", "topic", "delete", topic, "-b", b)
				want := "was deleted while"
				if again {
					mustCLI(t, "", "topic", "create", topic, "-p", "1", "-b", b)
					want = "was deleted and created again"
				}
				select {
				case err := <-r.ended:
					if err == nil || !strings.Contains(err.Error(), "topic "+topic+" "+want) {
						t.Errorf("expected %q, found %v; it said\n%s", want, err, r.said())
					}
				case <-time.After(devWithin):
					t.Errorf("it waits; it said\n%s", r.said())
				}
			})
		}
	}
}
