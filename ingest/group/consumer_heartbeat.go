package group

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/group/assign"
)

// refusal is an error and what a person should know of it.
type refusal struct {
	err  *kerr.Error
	text string
}

func refuse(err *kerr.Error, format string, args ...any) *refusal {
	return &refusal{err, fmt.Sprintf(format, args...)}
}

// consumerHeartbeat handles ConsumerGroupHeartbeat; the group may be absent, or of the classic protocol.
func (c *Coordinator) consumerHeartbeat(now int64, call *Call, r *kmsg.ConsumerGroupHeartbeatRequest) {
	no := c.checkHeartbeat(r)
	if no == nil {
		if r.MemberEpoch < 0 {
			no = c.memberLeaves(now, call, r)
		} else {
			no = c.memberBeats(now, call, r)
		}
	}
	if no != nil {
		resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
		resp.ErrorCode, resp.ErrorMessage = no.err.Code, &no.text
		c.reply(call, resp)
	}
}

// checkHeartbeat checks what needs no state: Kafka's
// throwIfConsumerGroupHeartbeatRequestIsInvalid, and our bounds.
func (c *Coordinator) checkHeartbeat(r *kmsg.ConsumerGroupHeartbeatRequest) *refusal {
	invalid := func(format string, args ...any) *refusal { return refuse(kerr.InvalidRequest, format, args...) }
	switch {
	case r.MemberID == "" && (r.Version >= 1 || r.MemberEpoch != epochJoin):
		return invalid("MemberId can't be empty.")
	case r.Group == "":
		return invalid("GroupId can't be empty.")
	case r.InstanceID != nil && *r.InstanceID == "":
		return invalid("InstanceId can't be empty.")
	case r.RackID != nil && *r.RackID == "":
		return invalid("RackId can't be empty.")
	case r.MemberEpoch < epochLeaveStatic:
		return invalid("MemberEpoch is invalid.")
	case r.MemberEpoch == epochLeaveStatic && r.InstanceID == nil:
		return invalid("InstanceId can't be null.")
	case len(r.Group) > groupNameMax:
		return refuse(kerr.InvalidGroupID, "a group's name has at most %d bytes, this one has %d", groupNameMax, len(r.Group))
	case len(r.MemberID) > memberIDMax || r.InstanceID != nil && len(*r.InstanceID) > instanceMax || r.RackID != nil && len(*r.RackID) > instanceMax:
		return invalid("member ids have at most %d bytes, instance ids and racks %d", memberIDMax, instanceMax)
	}
	if r.MemberEpoch == epochJoin {
		switch {
		case r.RebalanceTimeoutMillis == -1:
			return invalid("RebalanceTimeoutMs must be provided in first request.")
		case r.Topics == nil || len(r.Topics) > 0:
			return invalid("TopicPartitions must be empty when (re-)joining.")
		case r.SubscribedTopicNames == nil && r.SubscribedTopicRegex == nil:
			return invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
		}
	}
	if r.ServerAssignor != nil && !slices.Contains(c.o.ConsumerAssignors, *r.ServerAssignor) {
		return refuse(kerr.UnsupportedAssignor, "ServerAssignor %s is not supported. Supported assignors: %s.", *r.ServerAssignor, strings.Join(c.o.ConsumerAssignors, ", "))
	}
	if size := namesSize(r.SubscribedTopicNames); size > profileMax {
		return invalid("the names of %d subscribed topics have %d bytes, at most %d are kept; subscribe by a regular expression", len(r.SubscribedTopicNames), size, profileMax)
	}
	return nil
}

// namesSize is what names take in a record.
func namesSize(names []string) int {
	size := 0
	for _, n := range names {
		size += 4 + len(n)
	}
	return size
}

// checkRegex checks an expression.
func checkRegex(regex *string) *refusal {
	if regex == nil || *regex == "" {
		return nil
	}
	if len(*regex) > regexMax {
		return refuse(kerr.InvalidRegularExpression, "SubscribedTopicRegex has %d bytes, at most %d are taken", len(*regex), regexMax)
	}
	if _, err := compileRegex(*regex); err != nil {
		return refuse(kerr.InvalidRegularExpression, "SubscribedTopicRegex `%s` is not a valid regular expression: %v.", *regex, err)
	}
	return nil
}

// change collects what one call does to a group, to be written as one.
type change struct {
	g       *groupState
	cg      *consumerGroup
	records []Record
	// upgraded: the group was a living classic one before this call.
	upgraded bool
}

func (ch *change) add(r ...Record) { ch.records = append(ch.records, r...) }

// write hands the records over, the last one of each key.
func (ch *change) write(c *Coordinator) {
	last := make(map[string]int, len(ch.records))
	for i, r := range ch.records {
		last[r.Key] = i
	}
	n := 0
	for i, r := range ch.records {
		if last[r.Key] == i {
			ch.records[n] = r
			n++
		}
	}
	c.write(ch.records[:n]...)
	ch.records = nil
}

// memberBeats handles a heartbeat that joins or stays.
func (c *Coordinator) memberBeats(now int64, call *Call, r *kmsg.ConsumerGroupHeartbeatRequest) *refusal {
	owned, no := ownedPartitions(r.Topics)
	if no != nil {
		return no
	}
	ch, no := c.openGroup(now, r.Group, r.MemberEpoch == epochJoin)
	if no != nil {
		return no
	}
	// A member that is fenced hears of that first, as in Kafka; one that joins
	// must not be made in vain.
	badRegex := checkRegex(r.SubscribedTopicRegex)
	if badRegex != nil && r.MemberEpoch == epochJoin {
		return badRegex
	}
	m, no := c.beatingMember(ch, r, owned)
	if no == nil {
		no = badRegex
	}
	if no != nil {
		return no
	}
	c.commitOpen(now, ch)
	profileBefore, had := m.profile, m.assigned
	if r.RackID != nil {
		m.rack = *r.RackID
	}
	if r.RebalanceTimeoutMillis != -1 {
		m.rebalanceTimeout = r.RebalanceTimeoutMillis
	}
	if r.ServerAssignor != nil {
		m.assignor = *r.ServerAssignor
	}
	m.clientID, m.clientHost, m.classic = call.ClientID, call.ClientHost, nil
	changed := ch.resubscribe(m, r.SubscribedTopicNames, r.SubscribedTopicRegex)
	if profileBefore.classic != nil {
		c.cancelClassicTimers(ch.g.name, m.id)
	}
	c.updateMember(now, ch, m, &profileBefore, changed, owned)
	c.extendSession(now, ch.g.name, m)
	ch.write(c)

	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	id := m.id
	resp.MemberID, resp.MemberEpoch = &id, m.epoch
	resp.HeartbeatIntervalMillis = int32(c.o.of(r.Group).HeartbeatInterval)
	full := r.RebalanceTimeoutMillis != -1 && (r.SubscribedTopicNames != nil || r.SubscribedTopicRegex != nil) && r.Topics != nil
	if r.MemberEpoch == epochJoin || full || !samePartitions(had, m.assigned) {
		resp.Assignment = heartbeatAssignment(m.assigned)
	}
	c.reply(call, resp)
	return nil
}

// updateMember brings group and member up to date after the member's profile
// changed or it showed up: records, group epoch, target, reconciliation.
func (c *Coordinator) updateMember(now int64, ch *change, m *consumerMember, before *profile, subscriptionChanged bool, owned ownedSet) {
	cg := ch.cg
	if !m.profile.equal(before) {
		ch.storeProfile(m)
	}
	if subscriptionChanged || cg.epoch == 0 || ch.upgraded {
		c.bump(ch)
	}
	c.retarget(now, ch)
	c.reconcile(now, ch, m, subscriptionChanged, owned)
}

// openGroup finds the group of a heartbeat or makes it: an empty group of the
// classic protocol becomes one of this, a living one is upgraded. Nothing
// changes before commitOpen.
func (c *Coordinator) openGroup(now int64, name string, join bool) (*change, *refusal) {
	g := c.group(name)
	switch {
	case g == nil && !join:
		return nil, refuse(kerr.GroupIDNotFound, "Group %s not found.", name)
	case g == nil:
		return &change{g: &groupState{name: name}, cg: c.newConsumerGroup()}, nil
	case g.consumer != nil:
		return &change{g: g, cg: g.consumer}, nil
	case !join:
		// It became another after this member was fenced. Kafka says
		// GROUP_ID_NOT_FOUND, which ends its clients; this way they join again.
		return nil, refuse(kerr.UnknownMemberID, "Group %s is not a consumer group.", name)
	case g.classic == nil || len(g.classic.members) == 0:
		return &change{g: g, cg: c.newConsumerGroup()}, nil
	}
	cg, no := c.upgraded(g)
	if no != nil {
		return nil, no
	}
	return &change{g: g, cg: cg}, nil
}

// commitOpen makes the group that openGroup found or made the group of its name.
func (c *Coordinator) commitOpen(now int64, ch *change) {
	g := ch.g
	if g.consumer == ch.cg {
		return
	}
	if c.group(g.name) == nil {
		ch.g = c.ensure(now, g.name)
		g = ch.g
	}
	if g.classic != nil {
		c.leaveClassic(now, ch)
	}
	g.consumer = ch.cg
}

// beatingMember finds or makes the member that a heartbeat is of. Its errors
// come before anything has changed.
func (c *Coordinator) beatingMember(ch *change, r *kmsg.ConsumerGroupHeartbeatRequest, owned ownedSet) (*consumerMember, *refusal) {
	cg, join := ch.cg, r.MemberEpoch == epochJoin
	if no := c.checkSize(cg, r.MemberID, namesSize(r.SubscribedTopicNames)); no != nil {
		return nil, no
	}
	id := r.MemberID
	if id == "" {
		id = c.o.NewID()
	}
	m := cg.members[id]
	if r.InstanceID == nil {
		if m == nil && !join {
			return nil, refuse(kerr.UnknownMemberID, "Member %s is not a member of group %s.", id, ch.g.name)
		}
		if m != nil {
			return m, checkEpoch(m, r.MemberEpoch, owned)
		}
		return c.newMember(ch, id, ""), nil
	}
	return c.beatingStatic(ch, r, id, owned)
}

// beatingStatic is beatingMember for a static member.
func (c *Coordinator) beatingStatic(ch *change, r *kmsg.ConsumerGroupHeartbeatRequest, id string, owned ownedSet) (*consumerMember, *refusal) {
	cg, instance := ch.cg, *r.InstanceID
	old := cg.members[cg.static[instance]]
	switch {
	case r.MemberEpoch != epochJoin:
		if old == nil {
			return nil, refuse(kerr.UnknownMemberID, "Instance id %s is unknown.", instance)
		}
		if old.id != id {
			return nil, fencedInstance(old, id)
		}
		return old, checkEpoch(old, r.MemberEpoch, owned)
	case old == nil:
		if m := cg.members[id]; m != nil {
			if m.instance != "" {
				// Two instances cannot be one member: the first would lose its name.
				return nil, refuse(kerr.InvalidRequest, "Member %s has the instance id %s, it cannot take %s.", id, m.instance, instance)
			}
			m.instance = instance
			cg.static[instance] = id
			return m, nil
		}
		return c.newMember(ch, id, instance), nil
	case old.classic == nil && old.epoch != epochLeaveStatic && !c.bugs.TakeLivingInstance:
		return nil, refuse(kerr.UnreleasedInstanceID, "Static member %s with instance id %s cannot join the group because the instance id is owned by %s member.", id, instance, old.id)
	}
	if other := cg.members[id]; other != nil && other != old {
		return nil, refuse(kerr.InvalidRequest, "Member %s is in the group without the instance id %s.", id, instance)
	}
	return c.takeInstance(ch, old, id), nil
}

func fencedInstance(old *consumerMember, id string) *refusal {
	return refuse(kerr.FencedInstanceID, "Static member %s with instance id %s was fenced by member %s.", id, old.instance, old.id)
}

// checkSize refuses members beyond the limit, and more bytes of what they say
// of themselves than are kept.
func (c *Coordinator) checkSize(cg *consumerGroup, id string, size int) *refusal {
	m := cg.members[id]
	if m != nil {
		size -= m.stored
	}
	if cg.bytes+size > profilesMax {
		return refuse(kerr.GroupMaxSizeReached, "The subscriptions of the group's members have more than %d bytes.", profilesMax)
	}
	if len(cg.members) >= c.o.ConsumerMaxSize && m == nil {
		return refuse(kerr.GroupMaxSizeReached, "The consumer group has reached its maximum capacity of %d members.", c.o.ConsumerMaxSize)
	}
	return nil
}

// newMember makes a member that has nothing and subscribes to nothing yet.
func (c *Coordinator) newMember(ch *change, id, instance string) *consumerMember {
	m := &consumerMember{id: id, profile: profile{instance: instance, rebalanceTimeout: -1}, standing: standing{state: memberStable}}
	m.sub = ch.cg.subscribe(sortedNames(nil), "")
	ch.cg.add(m)
	return m
}

// takeInstance lets a static member's new incarnation take the place of the
// one before, with all it has.
func (c *Coordinator) takeInstance(ch *change, old *consumerMember, id string) *consumerMember {
	cg := ch.cg
	if old.id == id {
		old.epoch, old.previous = 0, 0
		return old
	}
	m := &consumerMember{id: id, profile: old.profile, standing: old.standing}
	m.epoch, m.previous = 0, 0
	target := cg.target[old.id]
	cg.subscribe(m.sub.names, m.sub.regexText())
	ch.add(cg.memberTombstones(ch.g.name, old.id)...)
	cg.remove(old)
	c.cancelTimers(ch.g.name, old.id)
	cg.add(m)
	if len(target) > 0 {
		cg.target[id] = target
		ch.add(targetRecord(ch.g.name, id, target))
	}
	ch.storeProfile(m)
	ch.add(m.standingRecord(ch.g.name))
	return m
}

// storeProfile stores what a member says of itself.
func (ch *change) storeProfile(m *consumerMember) {
	r := m.profileRecord(ch.g.name)
	ch.cg.bytes += len(r.Value) - m.stored
	m.stored = len(r.Value)
	ch.add(r)
}

// checkEpoch checks the epoch that a member of this protocol says it is in. The
// one before is good if the member has no more than it should: then it missed
// the answer that told it of its present one.
func checkEpoch(m *consumerMember, epoch int32, owned ownedSet) *refusal {
	switch {
	case epoch == epochJoin || epoch == m.epoch:
		return nil
	case epoch > m.epoch:
		return refuse(kerr.FencedMemberEpoch, "The consumer group member has a greater member epoch (%d) than the one known by the group coordinator (%d). The member must abandon all its partitions and rejoin.", epoch, m.epoch)
	case epoch == m.previous && owned.within(m.assigned):
		return nil
	}
	return refuse(kerr.FencedMemberEpoch, "The consumer group member has a smaller member epoch (%d) than the one known by the group coordinator (%d). The member must abandon all its partitions and rejoin.", epoch, m.epoch)
}

// resubscribe gives a member its new subscription, where nil leaves a part of
// it as it is, and tells whether it differs.
func (ch *change) resubscribe(m *consumerMember, names []string, regex *string) bool {
	if names == nil && regex == nil {
		return false
	}
	old := m.sub
	sorted, text := old.names, old.regexText()
	if names != nil {
		sorted = sortedNames(names)
	}
	if regex != nil {
		text = *regex
	}
	m.sub = ch.cg.subscribe(sorted, text)
	ch.cg.unsubscribe(old)
	return m.sub != old
}

// ownedSet is what a member says it has. The zero value: it did not say.
type ownedSet struct {
	said bool
	all  map[partition]bool
}

// ownedMax bounds the partitions that a member may say it has, as many as a
// cluster has.
const ownedMax = 400_000

func ownedPartitions(topics []kmsg.ConsumerGroupHeartbeatRequestTopic) (ownedSet, *refusal) {
	if topics == nil {
		return ownedSet{}, nil
	}
	s := ownedSet{said: true, all: make(map[partition]bool)}
	for _, t := range topics {
		if len(s.all)+len(t.Partitions) > ownedMax {
			return ownedSet{}, refuse(kerr.InvalidRequest, "TopicPartitions names more than %d partitions.", ownedMax)
		}
		for _, i := range t.Partitions {
			s.all[partition{t.TopicID, i}] = true
		}
	}
	return s, nil
}

// within: it was said, and is no more than list.
func (s ownedSet) within(list []holding) bool {
	if !s.said {
		return false
	}
	for p := range s.all {
		if _, ok := find(list, p); !ok {
			return false
		}
	}
	return true
}

// mayHave tells whether the member may still have any of a list.
func (s ownedSet) mayHave(list []holding) bool {
	if !s.said {
		return true
	}
	return slices.ContainsFunc(list, func(h holding) bool { return s.all[h.partition] })
}

func heartbeatAssignment(list []holding) *kmsg.ConsumerGroupHeartbeatResponseAssignment {
	a := &kmsg.ConsumerGroupHeartbeatResponseAssignment{}
	for _, h := range list {
		if n := len(a.Topics); n == 0 || assign.TopicID(a.Topics[n-1].TopicID) != h.topic {
			t := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
			t.TopicID = h.topic
			a.Topics = append(a.Topics, t)
		}
		t := &a.Topics[len(a.Topics)-1]
		t.Partitions = append(t.Partitions, h.index)
	}
	return a
}
