package group

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The names of the two kinds of groups, as ListGroups spells them.
const (
	typeClassic  = "classic"
	typeConsumer = "consumer"
)

// names lists the groups in order.
func (c *Coordinator) names() []string { return slices.Sorted(maps.Keys(c.groups)) }

// describeGroups handles DescribeGroups of one group. Groups of KIP-848 are
// described by ConsumerGroupDescribe.
//
//	v3: authorized operations (the caller's to set)   v4: instance id
//	v6: GROUP_ID_NOT_FOUND; before, such a group is Dead (KIP-1043)
func (c *Coordinator) describeGroups(call *Call, r *kmsg.DescribeGroupsRequest) {
	resp := kmsg.NewPtrDescribeGroupsResponse()
	for _, name := range r.Groups {
		out := kmsg.NewDescribeGroupsResponseGroup()
		out.Group, out.State = name, "Dead"
		g := c.group(name)
		switch {
		case g == nil || g.consumer != nil:
			if r.Version >= 6 {
				out.ErrorCode = kerr.GroupIDNotFound.Code
				text := fmt.Sprintf("Group %s not found.", name)
				if g != nil {
					text = fmt.Sprintf("Group %s is not a classic group.", name)
				}
				out.ErrorMessage = &text
			}
		default:
			g.describe(&out)
		}
		resp.Groups = append(resp.Groups, out)
	}
	c.reply(call, resp)
}

// describe tells of a classic or simple group. What members subscribe, and the
// protocol, is told of a stable one only.
func (g *groupState) describe(out *kmsg.DescribeGroupsResponseGroup) {
	cg := g.classic
	if cg == nil {
		out.State = stateEmpty.String()
		return
	}
	out.State, out.ProtocolType = cg.state.String(), cg.protocolType
	if cg.state == stateStable {
		out.Protocol = cg.protocol
	}
	for _, m := range cg.order {
		d := kmsg.NewDescribeGroupsResponseGroupMember()
		d.MemberID, d.InstanceID, d.ClientID, d.ClientHost = m.id, m.instance, m.clientID, m.clientHost
		d.MemberAssignment = append([]byte{}, m.assignment...)
		d.ProtocolMetadata = []byte{}
		if cg.state == stateStable {
			d.ProtocolMetadata = m.metadata(cg.protocol)
		}
		out.Members = append(out.Members, d)
	}
}

// listGroups handles ListGroups for this slot's groups.
//
//	v4: states (KIP-518)   v5: types (KIP-848); both whatever their case
func (c *Coordinator) listGroups(call *Call, r *kmsg.ListGroupsRequest) {
	resp := kmsg.NewPtrListGroupsResponse()
	for _, name := range c.names() {
		out := c.groups[name].list()
		if matches(r.StatesFilter, out.GroupState) && matches(r.TypesFilter, out.GroupType) {
			resp.Groups = append(resp.Groups, out)
		}
	}
	c.reply(call, resp)
}

func matches(filter []string, s string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, s) })
}

func (g *groupState) list() kmsg.ListGroupsResponseGroup {
	out := kmsg.NewListGroupsResponseGroup()
	out.Group, out.GroupState, out.GroupType = g.name, stateEmpty.String(), typeClassic
	switch {
	case g.consumer != nil:
		out.GroupState, out.GroupType, out.ProtocolType = g.consumer.stateName(), typeConsumer, consumerProtocolType
	case g.classic != nil:
		out.GroupState, out.ProtocolType = g.classic.state.String(), g.classic.protocolType
	}
	return out
}

// deleteGroups handles DeleteGroups of one group: it must have no members.
func (c *Coordinator) deleteGroups(call *Call, r *kmsg.DeleteGroupsRequest) {
	resp := kmsg.NewPtrDeleteGroupsResponse()
	for _, name := range r.Groups {
		out := kmsg.NewDeleteGroupsResponseGroup()
		out.Group = name
		if err := c.deleteGroup(name); err != nil {
			out.ErrorCode = err.Code
		}
		resp.Groups = append(resp.Groups, out)
	}
	c.reply(call, resp)
}

func (c *Coordinator) deleteGroup(name string) *kerr.Error {
	g := c.group(name)
	switch {
	case g == nil:
		return kerr.GroupIDNotFound
	case g.consumer != nil && !g.consumer.isEmpty(),
		g.classic != nil && g.classic.state != stateEmpty:
		return kerr.NonEmptyGroup
	}
	var records []Record
	for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
		for _, p := range slices.Sorted(maps.Keys(g.offsets[topic])) {
			records = append(records, c.unsetOffset(g, topic, p))
		}
	}
	for chunk := range slices.Chunk(records, writeRecordsMax) {
		c.write(chunk...)
	}
	if g.consumer != nil {
		c.dropConsumer(g)
	}
	if g.classic != nil {
		c.dropClassic(g)
	}
	c.forget(g)
	return nil
}
