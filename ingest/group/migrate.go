package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// upgraded is the consumer group that a living classic group becomes.
func (c *Coordinator) upgraded(g *groupState) (*consumerGroup, *refusal) {
	return nil, refuse(kerr.GroupIDNotFound, "Group %s is not a consumer group.", g.name)
}

// leaveClassic ends the classic group whose place ch.cg takes.
func (c *Coordinator) leaveClassic(now int64, ch *change) {
	c.dropClassic(ch.g)
}

func (c *Coordinator) cancelClassicTimers(group, member string) {}

func (c *Coordinator) mayDowngrade(cg *consumerGroup) bool { return false }

func (c *Coordinator) downgrade(now int64, ch *change) {}

// consumerJoin handles a JoinGroup to a group that has a consumerGroup.
func (c *Coordinator) consumerJoin(now int64, g *groupState, call *Call, r *kmsg.JoinGroupRequest) {
	c.fail(call, kerr.InconsistentGroupProtocol)
}

// consumerSync handles a SyncGroup to a group that has a consumerGroup.
func (c *Coordinator) consumerSync(now int64, g *groupState, call *Call, r *kmsg.SyncGroupRequest) {
	c.fail(call, kerr.UnknownMemberID)
}

// consumerClassicHeartbeat handles a Heartbeat to a group that has a consumerGroup.
func (c *Coordinator) consumerClassicHeartbeat(now int64, g *groupState, call *Call, r *kmsg.HeartbeatRequest) {
	c.fail(call, kerr.UnknownMemberID)
}

// consumerLeave handles a LeaveGroup to a group that has a consumerGroup.
func (c *Coordinator) consumerLeave(now int64, g *groupState, call *Call, r *kmsg.LeaveGroupRequest) {
	c.fail(call, kerr.UnknownMemberID)
}
