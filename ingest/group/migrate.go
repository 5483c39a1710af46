package group

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/group/assign"
)

// A living group changes its protocol without a break (KIP-848): a classic
// group whose members are consumers is upgraded when the first member of the
// new protocol joins, and downgraded when the last of them is gone. In between
// it is a consumer group, in which members of the classic protocol are served
// as migrate_classic.go says.

// mayUpgrade and mayDowngrade read the policy.
func (o *Options) mayUpgrade() bool {
	return o.ConsumerMigration == "bidirectional" || o.ConsumerMigration == "upgrade"
}

func (o *Options) mayDowngrade() bool {
	return o.ConsumerMigration == "bidirectional" || o.ConsumerMigration == "downgrade"
}

// upgraded is the consumer group that a living classic group becomes: each
// member is at the classic generation, and has what the last assignment gave
// it, and what it said to own when it last joined: a cooperative member gives
// that up once it has its assignment, and may not have it yet. The target may
// be out of date, so that the join that upgrades the group makes a new group
// epoch (KAFKA-21582).
func (c *Coordinator) upgraded(g *groupState) (*consumerGroup, *refusal) {
	cg := g.classic
	cannot := func(why string) (*consumerGroup, *refusal) {
		return nil, refuse(kerr.GroupIDNotFound, "Cannot upgrade classic group %s to consumer group because %s.", g.name, why)
	}
	switch {
	case !c.o.mayUpgrade():
		return cannot("online upgrade is disabled")
	case cg.protocolType != consumerProtocolType:
		return cannot("the group does not use the consumer embedded protocol")
	case len(cg.members) > c.o.ConsumerMaxSize:
		return cannot("the group size exceeds the consumer group maximum size")
	}
	out := c.newConsumerGroup()
	out.epoch, out.targetEpoch = cg.generation, cg.generation
	says := make([]kmsg.ConsumerMemberMetadata, len(cg.order))
	for i, m := range cg.order {
		n, err := c.upgradedMember(out, m, cg.protocol, &says[i])
		if err != nil {
			return cannot(err.Error())
		}
		if a := assignmentOf(n.assigned); len(a) > 0 {
			out.target[n.id] = a
		}
		if c.bugs.LendUpgraded {
			n.assigned, says[i].OwnedPartitions = nil, nil
		}
		out.add(n)
	}
	for i, m := range cg.order {
		n := out.members[m.id]
		for _, o := range says[i].OwnedPartitions {
			n.assigned = union(n.assigned, c.heldBefore(out, o.Topic, o.Partitions))
			out.own(n)
		}
	}
	return out, nil
}

var (
	errMalformed = errors.New("the embedded consumer protocol is malformed")
	errUserData  = errors.New("an unsupported custom assignor is in use; switch to a default assignor before re-attempting the upgrade")
)

// upgradedMember is a member of the consumer group that a classic group becomes.
func (c *Coordinator) upgradedMember(cg *consumerGroup, m *member, protocolName string, s *kmsg.ConsumerMemberMetadata) (*consumerMember, error) {
	metadata := m.metadata(protocolName)
	if len(metadata) == 0 && len(m.protocols) > 0 {
		// Before the first generation there is no protocol; all of a member's
		// name the same topics.
		metadata = m.protocols[0].metadata
	}
	if err := s.ReadFrom(metadata); err != nil {
		return nil, errMalformed
	}
	n := &consumerMember{id: m.id}
	n.clientID, n.clientHost, n.rebalanceTimeout = m.clientID, m.clientHost, m.rebalanceTimeout
	if m.instance != nil {
		n.instance = *m.instance
	}
	if s.Rack != nil {
		n.rack = *s.Rack
	}
	n.classic = &classicProfile{sessionTimeout: m.sessionTimeout, protocols: m.protocols}
	n.state, n.epoch, n.previous = memberStable, cg.epoch, cg.epoch
	if len(m.assignment) > 0 {
		var a kmsg.ConsumerMemberAssignment
		if err := a.ReadFrom(m.assignment); err != nil {
			return nil, errMalformed
		}
		if len(a.UserData) > 0 {
			return nil, errUserData
		}
		for _, t := range a.Topics {
			n.assigned = union(n.assigned, c.heldBefore(cg, t.Topic, t.Partitions))
		}
	}
	n.sub = cg.subscribe(sortedNames(s.Topics), "")
	return n, nil
}

// heldBefore are partitions of the classic protocol as holdings. What has an
// owner already stays with that one.
func (c *Coordinator) heldBefore(cg *consumerGroup, name string, indexes []int32) []holding {
	topic, ok := c.topics.Topic(name)
	if !ok {
		return nil
	}
	var out []holding
	for _, i := range sortedIndexes(indexes) {
		p := partition{topic.ID, i}
		if i >= 0 && cg.owner[p] == nil {
			out = append(out, holding{p, cg.epoch})
		}
	}
	return out
}

// sortedIndexes is list sorted, each once.
func sortedIndexes(list []int32) []int32 {
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Compact(out)
}

// assignmentOf is the target that holdings are.
func assignmentOf(list []holding) assign.Assignment {
	var a assign.Assignment
	for _, h := range list {
		if n := len(a); n == 0 || a[n-1].Topic != h.topic {
			a = append(a, assign.Partitions{Topic: h.topic})
		}
		a[len(a)-1].Indexes = append(a[len(a)-1].Indexes, h.index)
	}
	return a
}

// leaveClassic ends the classic group whose place ch.cg takes. Whoever waits
// is to join again.
func (c *Coordinator) leaveClassic(now int64, ch *change) {
	g, cg := ch.g, ch.g.classic
	for _, id := range slices.Sorted(maps.Keys(cg.pending)) {
		c.forgetPending(g, id)
	}
	for _, m := range cg.order {
		c.answerJoin(cg, m, joinError(m.id, kerr.RebalanceInProgress))
		c.answerSync(m, syncError(kerr.RebalanceInProgress))
		c.timers.cancel(sessionKey(g, m.id))
	}
	c.timers.cancel(joinKey(g))
	c.timers.cancel(syncKey(g))
	ch.add(g.classicTombstones()...)
	g.classic = nil
	if len(cg.members) == 0 {
		return
	}
	ch.upgraded = true
	for _, id := range ch.cg.ids() {
		m := ch.cg.members[id]
		if m.classic == nil {
			continue // who joins has no session yet
		}
		ch.storeProfile(m)
		ch.add(m.standingRecord(g.name))
		if a := ch.cg.target[id]; len(a) > 0 {
			ch.add(targetRecord(g.name, id, a))
		}
		c.extendSession(now, g.name, m)
	}
}

// downgradable tells whether a group has only members of the classic protocol
// left and may become a classic group.
func (c *Coordinator) downgradable(cg *consumerGroup) bool {
	n := len(cg.members)
	return n > 0 && n <= c.o.MaxSize && cg.classicMembers() == n && c.o.mayDowngrade() && c.downgraded(cg).bytes <= c.o.MaxGroupBytes
}

// downgraded is the classic group that a consumer group becomes.
func (c *Coordinator) downgraded(cg *consumerGroup) *classicGroup {
	out := newClassicGroup()
	out.generation = cg.epoch
	for _, id := range cg.ids() {
		out.add(c.downgradedMember(cg.members[id]), consumerProtocolType)
	}
	out.protocol = out.vote()
	out.subscribed = out.subscriptions()
	return out
}

// downgrade makes a group a classic one. Its generation is the group epoch,
// its assignment what everyone has; Kafka's is the target, of which a member may
// be far, and an upgrade would take it for the truth. If these differ, or
// rebalance says so, all are to join again at once.
func (c *Coordinator) downgrade(now int64, ch *change, rebalance bool) {
	g, old := ch.g, ch.cg
	cg := c.downgraded(old)
	ch.add(Record{Key: key(g.name, kindConsumerGroup, "")})
	for _, id := range old.ids() {
		rebalance = rebalance || !old.members[id].reconciled(old.epoch)
		ch.add(old.memberTombstones(g.name, id)...)
		c.cancelTimers(g.name, id)
	}
	c.timers.cancel(timerKey{timerConsumerMisc, g.name, "regex"})
	c.timers.cancel(timerKey{timerConsumerMisc, g.name, "blind"})
	rebalance = rebalance && !c.bugs.SleepAfterLast
	g.consumer, g.classic = nil, cg
	cg.enter(now, stateStable)
	stored := *cg
	if rebalance {
		// A coordinator that takes over must know that members are to rejoin.
		stored.state = statePreparing
	}
	cg.stored = true
	ch.add(Record{Key: key(g.name, kindClassic, ""), Value: classicValue(&stored)})
	for _, m := range cg.order {
		ch.add(memberRecord(g, m))
		c.touch(now, g, m)
	}
	ch.write(c)
	if rebalance {
		c.rebalance(now, g)
	}
}

// downgradedMember is a member of the classic group that a consumer group becomes.
func (c *Coordinator) downgradedMember(m *consumerMember) *member {
	out := &member{
		id: m.id, clientID: m.clientID, clientHost: m.clientHost, changed: true,
		rebalanceTimeout: m.rebalanceTimeout, sessionTimeout: m.classic.sessionTimeout, protocols: m.classic.protocols,
	}
	if m.instance != "" {
		s := m.instance
		out.instance = &s
	}
	out.assignment = c.classicAssignment(m, union(m.assigned, m.revoking))
	return out
}

// classicAssignment is an assignment as a member of the classic protocol reads
// it: with topics' names, in the version of what the member says.
func (c *Coordinator) classicAssignment(m *consumerMember, list []holding) []byte {
	a := kmsg.ConsumerMemberAssignment{}
	if metadata := m.classic.protocols[0].metadata; len(metadata) >= 2 {
		a.Version = int16(binary.BigEndian.Uint16(metadata))
	}
	at := make(map[assign.TopicID]int)
	for _, p := range list {
		i, ok := at[p.topic]
		if !ok {
			t, exists := c.topics.TopicByID(p.topic)
			if !exists {
				continue
			}
			i = len(a.Topics)
			at[p.topic] = i
			a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: t.Name})
		}
		a.Topics[i].Partitions = append(a.Topics[i].Partitions, p.index)
	}
	return a.AppendTo(nil)
}
