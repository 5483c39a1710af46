package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// controlled is a cluster whose answers a test can change.
func controlled(t *testing.T) (*kfake.Cluster, *kadm.Client, string) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "seeded"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	b := strings.Join(c.ListenAddrs(), ",")
	adm, err := (&cluster{bootstrap: b}).admin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(adm.Close)
	return c, adm, b
}

// describeFails answers the next n requests for consumer groups with a code.
func describeFails(c *kfake.Cluster, n int, code int16) {
	c.ControlKey(int16(kmsg.ConsumerGroupDescribe), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if n == 0 {
			return nil, nil, false
		}
		n--
		c.KeepControl()
		r := req.(*kmsg.ConsumerGroupDescribeRequest)
		resp := r.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
		for _, name := range r.Groups {
			g := kmsg.NewConsumerGroupDescribeResponseGroup()
			g.Group, g.ErrorCode = name, code
			resp.Groups = append(resp.Groups, g)
		}
		return resp, nil, true
	})
}

func TestGroupThatCannotBeAskedIsNotCalledMissing(t *testing.T) {
	c, adm, b := controlled(t)
	mustCLI(t, numbers(1, 10), "produce", "seeded", "-q", "--partition", "0", "-b", b)
	mustCLI(t, "", "consume", "seeded", "-g", "g", "--group-protocol", "consumer", "-e", "-b", b)
	describeFails(c, 1, kerr.UnknownServerError.Code)
	if g, err := askGroupOnce(t.Context(), adm, "g"); !errors.Is(err, kerr.UnknownServerError) {
		t.Fatalf("the coordinator failed: expected that error, found %+v, %v", g, err)
	}
	describeFails(c, 1, kerr.UnknownServerError.Code)
	if out, err := cli(t, "", "group", "reset-offsets", "g", "--topic", "seeded", "--to-earliest", "--dry-run", "-b", b); err == nil {
		t.Fatalf("a reset of a group that is not known printed\n%s", out)
	}
	describeFails(c, 2, kerr.NotCoordinator.Code)
	g, err := askGroup(t.Context(), adm, "g", time.Now().Add(coordinatorWithin))
	if err != nil || g.Type != "consumer" {
		t.Fatalf("after the coordinator moved: %+v, %v", g, err)
	}
	if _, err := askGroup(t.Context(), adm, "nosuch", time.Now()); !errors.Is(err, kerr.GroupIDNotFound) {
		t.Fatalf("expected that there is no such group, found %v", err)
	}
}

func TestPatienceEnds(t *testing.T) {
	tries := 0
	ask := func() error { tries++; return kerr.CoordinatorNotAvailable }
	if err := patiently(t.Context(), time.Now(), ask); !errors.Is(err, kerr.CoordinatorNotAvailable) || tries != 1 {
		t.Fatalf("without time left: %d tries, %v", tries, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := patiently(ctx, time.Now().Add(time.Hour), ask); !errors.Is(err, kerr.CoordinatorNotAvailable) || tries > 3 {
		t.Fatalf("interrupted: %d tries, %v", tries, err)
	}
}

func TestListNamesTheBrokerThatDoesNotAnswer(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(1, "seeded"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	adm, err := kadm.NewOptClient(kgo.SeedBrokers(c.ListenAddrs()[0]), kgo.RetryTimeout(500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(adm.Close)
	c.ControlKey(int16(kmsg.ListGroups), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if c.CurrentNode() == 1 {
			return nil, errors.New("dead"), true // the connection ends
		}
		return nil, nil, false
	})
	var said bytes.Buffer
	if _, err := listGroups(t.Context(), adm, &said, 0); err != nil || !strings.Contains(said.String(), "broker 1 (") {
		t.Fatalf("one of two brokers is dead: %v; it said %q", err, said.String())
	}
}

func TestWatchLooksAgain(t *testing.T) {
	b := fakeCluster(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	cmd := root()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"group", "lag", "--watch", "100ms", "-b", b})
	if err := cmd.ExecuteContext(ctx); err != nil || strings.Count(out.String(), "GROUP") < 2 {
		t.Fatalf("expected several looks, found %v and\n%s", err, out.String())
	}
}
