package group

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// names lists the groups in order.
func (c *Coordinator) names() []string { return slices.Sorted(maps.Keys(c.groups)) }

func (c *Coordinator) describeGroups(call *Call, r *kmsg.DescribeGroupsRequest) {}
func (c *Coordinator) listGroups(call *Call, r *kmsg.ListGroupsRequest)         {}
func (c *Coordinator) deleteGroups(call *Call, r *kmsg.DeleteGroupsRequest)     {}
