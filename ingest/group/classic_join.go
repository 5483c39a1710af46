package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (c *Coordinator) classicLoaded(now int64, g *groupState)                    {}
func (c *Coordinator) join(now int64, call *Call, r *kmsg.JoinGroupRequest)      {}
func (c *Coordinator) sync(now int64, call *Call, r *kmsg.SyncGroupRequest)      {}
func (c *Coordinator) heartbeat(now int64, call *Call, r *kmsg.HeartbeatRequest) {}
func (c *Coordinator) leave(now int64, call *Call, r *kmsg.LeaveGroupRequest)    {}
func (c *Coordinator) abandon(g *classicGroup, err *kerr.Error)                  {}
