package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// goodbye bounds the last commit and the leaving.
	goodbye = 10 * time.Second
	// earlyGoodbye bounds the leaving of a member that has nothing to commit.
	earlyGoodbye = 2 * time.Second
	// leaveItself is how long the client may leave by itself: while it joins, it
	// waits for the answer, which comes when the other members have joined too.
	leaveItself = 100 * time.Millisecond
)

// leave commits what is written and leaves the group, so that the others take
// over at once. It ends within goodbye whatever the brokers do.
func (g *groupReader) leave(ctx context.Context) error {
	g.mu.Lock()
	g.leaving = true
	within := goodbye
	if len(g.position) == 0 {
		within = earlyGoodbye
	}
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	err := g.commit(ctx)
	g.cl.AllowRebalance()
	if left := g.leaveGroup(ctx); left != nil && !errors.Is(left, context.Canceled) {
		g.notice("group %s: leaving it: %v", shown(g.o.group), left)
	}
	closeWithin(ctx, g.cl)
	if err != nil {
		return fmt.Errorf("group %s: %w: the last records written are read again", shown(g.o.group), err)
	}
	return nil
}

// closeWithin closes the client. Its Close has no limit: it waits for a join
// under way, for up to the rebalance timeout. After ctx it is left to the end of
// the process.
func closeWithin(ctx context.Context, cl *kgo.Client) {
	closed := make(chan struct{})
	go func() { // ends with Close, at the latest with the process
		defer close(closed)
		cl.Close()
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
}

// leaveGroup has the client leave. If that waits for a join, the member is taken
// out by a request of its own, with the id that the coordinator gave it; the
// coordinator then answers the join, and nobody waits for a member that is gone.
func (g *groupReader) leaveGroup(ctx context.Context) error {
	left := make(chan error, 1)
	go func() { left <- g.cl.LeaveGroupContext(ctx) }() // ends with ctx
	tick := time.NewTicker(leaveItself)
	defer tick.Stop()
	said := ""
	for {
		select {
		case err := <-left:
			return err
		case <-tick.C:
		}
		id, _ := g.cl.GroupMetadata()
		if g.o.protocol != "classic" || id == "" || id == said {
			continue
		}
		if err := g.takeOut(ctx, id); err != nil {
			continue // again at the next tick, until ctx ends
		}
		said = id
	}
}

// takeOut removes this member of a classic group, over a connection of its own:
// the coordinator answers a connection's requests one after the other, and the
// join would be before it.
func (g *groupReader) takeOut(ctx context.Context, id string) error {
	cl, err := g.cluster.open()
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = g.o.group, id
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = id
	m.Reason = kmsg.StringPtr("stopped while joining")
	req.Members = append(req.Members, m)
	_, err = req.RequestWith(ctx, cl)
	return err
}
