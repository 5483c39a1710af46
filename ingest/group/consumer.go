package group

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerGroup is a group whose assignment the coordinator makes (KIP-848).
type consumerGroup struct{}

// loadConsumer takes a record of a kind of kindConsumerFirst or above.
func (c *Coordinator) loadConsumer(g *groupState, k recordKey, value []byte) error {
	return errors.New("groups of KIP-848 are not known here: run the version that wrote it")
}

// consumerLoaded begins to serve a group that was loaded.
func (c *Coordinator) consumerLoaded(now int64, g *groupState) {}

// consumerTopics tells a group of changed topics.
func (c *Coordinator) consumerTopics(now int64, g *groupState) {}

// consumerHeartbeat handles ConsumerGroupHeartbeat; the group may be absent, or of the classic protocol.
func (c *Coordinator) consumerHeartbeat(now int64, call *Call, r *kmsg.ConsumerGroupHeartbeatRequest) {
	c.fail(call, kerr.UnsupportedVersion)
}

// consumerDescribe handles ConsumerGroupDescribe of one group.
func (c *Coordinator) consumerDescribe(now int64, call *Call, r *kmsg.ConsumerGroupDescribeRequest) {
	c.fail(call, kerr.UnsupportedVersion)
}

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

// isEmpty: it has no members.
func (g *consumerGroup) isEmpty() bool { return true }

// stateName is the state as Kafka spells it: Empty, Assigning, Reconciling or Stable.
func (g *consumerGroup) stateName() string { return "Empty" }

// isSubscribed tells whether a member subscribes the topic.
func (g *consumerGroup) isSubscribed(topic string) bool { return false }

// tombstones deletes all records of the group but its offsets.
func (g *consumerGroup) tombstones(group string) []Record { return nil }

// checkCommit tells whether a member may commit, and which partitions (nil: all).
// epoch and memberID are -1 and empty for clients that are no members.
func (g *consumerGroup) checkCommit(memberID string, instance *string, epoch int32, version int16) (commitCheck, *kerr.Error) {
	return nil, kerr.UnknownMemberID
}

// checkFetch tells whether a member may fetch offsets (version 9 and above
// name one; nil and below 0: none is named).
func (g *consumerGroup) checkFetch(memberID *string, epoch int32) *kerr.Error { return nil }
