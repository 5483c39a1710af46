package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// coordinatorWithin bounds how long a command asks again for what a group's
	// coordinator knows: a broker that died is missed after some seconds, and
	// only then do its groups have another one.
	coordinatorWithin = 15 * time.Second
	// askAgain is the time between two tries.
	askAgain = 300 * time.Millisecond
)

// patiently asks until there is an answer, a refusal that waiting does not
// change, or no time left: then the last error is the result.
func patiently(ctx context.Context, until time.Time, ask func() error) error {
	tick := time.NewTicker(askAgain)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil || !mayPass(err) || !time.Now().Before(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// mayPass tells whether an error is of a broker that died or a coordinator that
// moves, and not an answer to what was asked.
func mayPass(err error) bool {
	var shards *kadm.ShardErrors
	if errors.As(err, &shards) {
		for _, s := range shards.Errs {
			if mayPass(s.Err) {
				return true
			}
		}
		return false
	}
	var network net.Error
	return kerr.IsRetriable(err) || kgo.IsRetryableBrokerErr(err) || errors.As(err, &network) || errors.Is(err, io.EOF)
}

// askGroup asks as for a consumer group first, and then as for a classic one:
// each request answers for its own type only. That there is no such group is
// known only when both were answered so.
func askGroup(ctx context.Context, adm *kadm.Client, name string, until time.Time) (g *groupState, err error) {
	err = patiently(ctx, until, func() (err error) {
		g, err = askGroupOnce(ctx, adm, name)
		return err
	})
	return g, err
}

func askGroupOnce(ctx context.Context, adm *kadm.Client, name string) (*groupState, error) {
	asConsumer, unasked := adm.DescribeConsumerGroups(ctx, name)
	d, ok := asConsumer[name]
	switch {
	case ok && d.Err == nil:
		return fromConsumerGroup(d), nil
	case ok && !errors.Is(d.Err, kerr.GroupIDNotFound) && !errors.Is(d.Err, kerr.UnsupportedVersion):
		return nil, refused(d.Err, "")
	case unasked != nil && (mayPass(unasked) || isAuth(unasked)):
		return nil, refused(unasked, "")
	}
	g, err := askClassicGroup(ctx, adm, name)
	if unasked == nil || !errors.Is(err, kerr.GroupIDNotFound) {
		return g, err
	}
	serves, problem := servesConsumerGroups(ctx, adm)
	if problem != nil || serves {
		return nil, errors.Join(refused(unasked, ""), problem)
	}
	return nil, err
}

func isAuth(err error) bool {
	var auth *kadm.AuthError
	return errors.As(err, &auth)
}

// servesConsumerGroups tells whether any broker knows groups of type consumer:
// an older one cannot be asked for them, and has none.
func servesConsumerGroups(ctx context.Context, adm *kadm.Client) (bool, error) {
	versions, err := adm.ApiVersions(ctx)
	if err != nil {
		return false, err
	}
	for _, v := range versions {
		if v.Err != nil {
			return false, v.Err
		}
		if _, ok := v.KeyMaxVersion(int16(kmsg.ConsumerGroupDescribe)); ok {
			return true, nil
		}
	}
	return false, nil
}

func askClassicGroup(ctx context.Context, adm *kadm.Client, name string) (*groupState, error) {
	described, err := adm.DescribeGroups(ctx, name)
	if err != nil {
		return nil, refused(err, "")
	}
	d, ok := described[name]
	switch {
	case !ok:
		return nil, fmt.Errorf("the answer of its coordinator does not tell of it")
	case errors.Is(d.Err, kerr.GroupIDNotFound) && d.ErrMessage != "" && !strings.Contains(d.ErrMessage, "not found"):
		return nil, errors.New(strings.TrimSuffix(d.ErrMessage, ".")) // it is there, of a third type
	case errors.Is(d.Err, kerr.GroupIDNotFound) || d.Err == nil && d.State == "Dead":
		return nil, refused(kerr.GroupIDNotFound, "")
	case d.Err != nil:
		return nil, refused(d.Err, d.ErrMessage)
	}
	return fromClassicGroup(d), nil
}

// listGroups asks every broker for its groups. The groups of a broker that died
// are soon at others; one that still does not answer then is told of to w, and
// is an error only if it is not the network that failed.
func listGroups(ctx context.Context, adm *kadm.Client, w io.Writer, within time.Duration) (kadm.ListedGroups, error) {
	var all kadm.ListedGroups
	err := patiently(ctx, time.Now().Add(within), func() (err error) {
		all, err = adm.ListGroups(ctx)
		return err
	})
	var shards *kadm.ShardErrors
	if err == nil || !errors.As(err, &shards) || shards.AllFailed {
		return all, err
	}
	var living []error
	for _, s := range shards.Errs {
		if broker := fmt.Sprintf("broker %d (%s)", s.Broker.NodeID, brokerAddr(s.Broker)); answered(s.Err) {
			living = append(living, fmt.Errorf("%s did not list its groups, which are missing here: %w", broker, refused(s.Err, "")))
		} else {
			fmt.Fprintf(w, "thermocline: %s does not answer: groups that no other broker has taken over yet are missing (%v)\n", broker, s.Err)
		}
	}
	return all, errors.Join(living...)
}

// answered tells whether an error is a broker's answer.
func answered(err error) bool {
	var code *kerr.Error
	return errors.As(err, &code)
}
