package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// committed is one committed offset.
type committed struct {
	offset      int64
	leaderEpoch int32 // -1: not told
	at          int64 // when it was committed
	expires     int64 // when it expires by the client's wish (versions 2 to 4); -1: none
	topicID     [16]byte
	metadata    string
}

// commitCheck tells whether a member may commit one partition; a nil one: it may.
type commitCheck func(topic string, id [16]byte, partition int32) *kerr.Error

func (c *Coordinator) loadOffset(g *groupState, k recordKey, value []byte) error       { return nil }
func (c *Coordinator) offsetCommit(now int64, call *Call, r *kmsg.OffsetCommitRequest) {}
func (c *Coordinator) offsetFetch(call *Call, r *kmsg.OffsetFetchRequest)              {}
func (c *Coordinator) offsetDelete(call *Call, r *kmsg.OffsetDeleteRequest)            {}
func (c *Coordinator) scheduleRetention(now int64, g *groupState)                      {}
func (c *Coordinator) dropDeleted()                                                    {}
