package group

import (
	"encoding/binary"
	"hash/fnv"
	"slices"

	"thermocline/ingest/group/assign"
)

// firstEpoch is a new group's first epoch. Kafka keeps 1 for members that join
// before there is a target.
const firstEpoch = 2

// bump makes a new group epoch: what the target rests on has changed.
func (c *Coordinator) bump(ch *change) {
	cg := ch.cg
	cg.scanNew(c.topics)
	cg.topicsHash = c.hashTopics(cg)
	cg.epoch = max(cg.epoch+1, firstEpoch)
	ch.add(cg.groupRecord(ch.g.name))
}

// retarget computes the target if it is of an earlier group epoch.
func (c *Coordinator) retarget(now int64, ch *change) {
	cg := ch.cg
	if cg.targetEpoch == cg.epoch || len(cg.members) == 0 {
		return
	}
	if c.bugs.KeepTarget && cg.targetEpoch > 0 {
		cg.targetEpoch = cg.epoch
		return
	}
	if c.mustWait(now, ch.g, cg) {
		return
	}
	ids := cg.ids()
	members := make([]assign.Member, len(ids))
	counts := make(map[assign.TopicID]int32)
	for i, id := range ids {
		m := cg.members[id]
		c.resolve(m.sub)
		members[i] = assign.Member{ID: id, InstanceID: m.instance, Topics: m.sub.topics, Current: cg.target[id]}
	}
	for _, s := range cg.subs {
		for _, id := range s.topics {
			if t, ok := c.topics.TopicByID(id); ok {
				counts[id] = t.Partitions
			}
		}
	}
	for i, a := range c.assignor(cg)(members, counts) {
		id := ids[i]
		a = atMost(a, partitionsMax)
		if sameAssignment(a, cg.target[id]) {
			continue
		}
		ch.add(targetRecord(ch.g.name, id, a))
		if len(a) == 0 {
			delete(cg.target, id)
		} else {
			cg.target[id] = a
		}
	}
	cg.targetEpoch, cg.assignedAt = cg.epoch, now
	ch.add(cg.groupRecord(ch.g.name))
}

// mustWait tells whether the target cannot be computed yet: the last one is too
// young, or the view of the topics too old. The first heartbeat after that
// computes it (KIP-1263).
func (c *Coordinator) mustWait(now int64, g *groupState, cg *consumerGroup) bool {
	young := now >= cg.assignedAt && now < cg.assignedAt+c.o.of(g.name).AssignmentInterval
	return young || c.blind(now, g)
}

// atMost cuts an assignment off after so many partitions.
func atMost(a assign.Assignment, most int) assign.Assignment {
	for i, p := range a {
		if len(p.Indexes) > most {
			out := slices.Clone(a[:i])
			if most > 0 {
				out = append(out, assign.Partitions{Topic: p.Topic, Indexes: p.Indexes[:most]})
			}
			return out
		}
		most -= len(p.Indexes)
	}
	return a
}

// assignorName is the one that most members ask for. Members that ask for none
// do not count; among equals, and if nobody asks, the order of the options decides.
func (c *Coordinator) assignorName(cg *consumerGroup) string {
	votes := make(map[string]int)
	for _, m := range cg.members {
		if m.assignor != "" {
			votes[m.assignor]++
		}
	}
	best := ""
	for _, name := range c.o.ConsumerAssignors {
		if _, known := assign.ByName(name); known && (best == "" || votes[name] > votes[best]) {
			best = name
		}
	}
	return best
}

func (c *Coordinator) assignor(cg *consumerGroup) assign.Assignor {
	if a, ok := assign.ByName(c.assignorName(cg)); ok {
		return a
	}
	return assign.Uniform
}

// resolve finds the topics of a subscription.
func (c *Coordinator) resolve(s *interest) {
	if s.resolved {
		return
	}
	s.topics, s.resolved = nil, true
	s.each(func(name string) {
		if t, ok := c.topics.Topic(name); ok {
			s.topics = append(s.topics, t.ID)
		}
	})
	slices.SortFunc(s.topics, assign.TopicID.Compare)
}

// each calls fn for each subscribed name, once.
func (s *interest) each(fn func(name string)) {
	for _, n := range s.names {
		fn(n)
	}
	if s.regex == nil {
		return
	}
	for _, n := range s.regex.names {
		if _, named := slices.BinarySearch(s.names, n); !named {
			fn(n)
		}
	}
}

// hashTopics sums up the subscribed topics that exist: their ids and numbers of
// partitions. Racks are left out, unlike in Kafka: the assignors do not look at
// them, and replicas that move here should not disturb consumers.
func (c *Coordinator) hashTopics(cg *consumerGroup) uint64 {
	seen := make(map[assign.TopicID]bool)
	sum := uint64(0)
	for _, s := range cg.subs {
		c.resolve(s)
		for _, id := range s.topics {
			if seen[id] {
				continue
			}
			seen[id] = true
			if t, ok := c.topics.TopicByID(id); ok {
				h := fnv.New64a()
				h.Write(id[:])
				h.Write(binary.BigEndian.AppendUint32(nil, uint32(t.Partitions)))
				sum += h.Sum64()
			}
		}
	}
	return sum
}

// consumerTopics tells a group of changed topics. If those that members
// subscribe to changed, there is a new group epoch; the next heartbeat computes
// the target.
func (c *Coordinator) consumerTopics(now int64, g *groupState) {
	cg := g.consumer
	for _, s := range cg.subs {
		s.resolved = false
	}
	if len(cg.expressions) > 0 {
		if due := cg.scannedAt + regexRescan; now < due && now >= cg.scannedAt {
			c.timer(timerKey{timerConsumerMisc, g.name, "regex"}, due, func(now int64) {
				if g := c.group(g.name); g != nil && g.consumer != nil {
					g.consumer.rescan(now, c.topics)
					c.topicsMoved(now, g)
				}
			})
		} else {
			cg.rescan(now, c.topics)
		}
	}
	c.topicsMoved(now, g)
}

// topicsMoved bumps the group epoch if the subscribed topics are not those of
// the present one.
func (c *Coordinator) topicsMoved(now int64, g *groupState) {
	if len(g.consumer.members) == 0 || c.hashTopics(g.consumer) == g.consumer.topicsHash || c.blind(now, g) {
		return
	}
	ch := &change{g: g, cg: g.consumer}
	c.bump(ch)
	ch.write(c)
}

// blindMax is how long in ms a topic may be missing before that counts.
const blindMax = 60_000

// missing: the topic is not in view, and was not seen to be deleted. The view of
// a broker that has just begun to lead may be behind the one that assigned it.
func (c *Coordinator) missing(id assign.TopicID) bool {
	_, ok := c.topics.TopicByID(id)
	return !ok && !c.topics.Deleted(id)
}

// blind tells whether a topic of the target is missing, and has not been for
// long: then it is better to wait than to take its partitions from everyone.
func (c *Coordinator) blind(now int64, g *groupState) bool {
	cg := g.consumer
	if cg == nil || !c.targetMisses(cg) {
		if cg != nil {
			cg.blindSince = never
		}
		return false
	}
	if cg.blindSince == never || now < cg.blindSince {
		cg.blindSince = now
		name := g.name
		c.timer(timerKey{timerConsumerMisc, name, "blind"}, now+blindMax, func(now int64) {
			if g := c.group(name); g != nil && g.consumer != nil {
				c.topicsMoved(now, g)
			}
		})
	}
	return now < cg.blindSince+blindMax
}

func (c *Coordinator) targetMisses(cg *consumerGroup) bool {
	checked := make(map[assign.TopicID]bool)
	for _, a := range cg.target {
		for _, p := range a {
			if !checked[p.Topic] && c.missing(p.Topic) {
				return true
			}
			checked[p.Topic] = true
		}
	}
	return false
}

// sameAssignment tells whether two assignments are equal.
func sameAssignment(a, b assign.Assignment) bool {
	return slices.EqualFunc(a, b, func(x, y assign.Partitions) bool {
		return x.Topic == y.Topic && slices.Equal(x.Indexes, y.Indexes)
	})
}

// reconcile takes a member one step towards its target (KIP-848; Kafka's
// CurrentAssignmentBuilder). owned is what the member says it has; changed says
// that its subscription has just changed, so that what it does not subscribe to
// any more must go at once.
func (c *Coordinator) reconcile(now int64, ch *change, m *consumerMember, changed bool, owned ownedSet) {
	cg := ch.cg
	if !changed && m.reconciled(cg.targetEpoch) {
		return
	}
	before := m.standing
	switch {
	case m.state == memberStable && m.epoch == cg.targetEpoch:
		c.strip(cg, m, owned)
	case m.state == memberUnrevoked && owned.mayHave(m.revoking) && !c.bugs.RevokeUnasked:
		if changed {
			c.strip(cg, m, owned)
		}
	default:
		c.approach(cg, m, owned)
	}
	if m.standing.equal(&before) {
		return
	}
	after := m.standing
	m.standing = before
	cg.disown(m)
	m.standing = after
	cg.own(m)
	if !c.bugs.ForgetStanding {
		ch.add(m.standingRecord(ch.g.name))
	}
	c.watchRevocation(now, ch.g.name, m)
}

// strip takes from a member what it does not subscribe to any more.
func (c *Coordinator) strip(cg *consumerGroup, m *consumerMember, owned ownedSet) {
	subscribed := c.subscribedTo(m.sub)
	var keep, gone []holding
	for _, h := range m.assigned {
		if subscribed(h.topic) {
			keep = append(keep, h)
		} else {
			gone = append(gone, h)
		}
	}
	if len(gone) == 0 {
		return
	}
	gone = union(m.revoking, gone)
	m.previous, m.assigned = m.epoch, keep
	if owned.mayHave(gone) {
		m.state, m.revoking = memberUnrevoked, gone
	}
}

// approach computes what a member has next: what it has of the target, and, once
// it has given up all else, what of the target nobody has.
func (c *Coordinator) approach(cg *consumerGroup, m *consumerMember, owned ownedSet) {
	target := c.targetOf(cg, m)
	var keep, gone, free []holding
	waits := false
	for _, h := range m.assigned {
		if _, ok := slices.BinarySearchFunc(target, h.partition, partition.compare); ok {
			keep = append(keep, h)
		} else {
			gone = append(gone, h)
		}
	}
	for _, p := range target {
		if _, ok := find(keep, p); ok {
			continue
		}
		if o := cg.owner[p]; o != nil && o != m && !c.bugs.AssignOwned {
			waits = true
			continue
		}
		free = append(free, holding{p, cg.targetEpoch})
	}
	if len(gone) > 0 && owned.mayHave(gone) {
		// It stays in its epoch until it has given these up.
		m.state, m.previous, m.assigned, m.revoking = memberUnrevoked, m.epoch, keep, gone
		return
	}
	m.state = memberStable
	if waits {
		m.state = memberUnreleased
	}
	m.previous, m.epoch = m.epoch, cg.targetEpoch
	m.assigned, m.revoking = union(keep, free), nil
}

// targetOf is a member's target, without topics that it has unsubscribed since.
func (c *Coordinator) targetOf(cg *consumerGroup, m *consumerMember) []partition {
	subscribed := c.subscribedTo(m.sub)
	var out []partition
	for _, p := range cg.target[m.id] {
		if !subscribed(p.Topic) {
			continue
		}
		for _, i := range p.Indexes {
			out = append(out, partition{p.Topic, i})
		}
	}
	return out
}

// subscribedTo tells of a topic whether s wants it. Of one that is missing
// nobody knows the name: what has it keeps it, while the target says so.
func (c *Coordinator) subscribedTo(s *interest) func(assign.TopicID) bool {
	c.resolve(s)
	return func(id assign.TopicID) bool {
		_, ok := slices.BinarySearchFunc(s.topics, id, assign.TopicID.Compare)
		return ok || c.missing(id)
	}
}

// union merges two sorted lists that have nothing in common.
func union(a, b []holding) []holding {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := append(append(make([]holding, 0, len(a)+len(b)), a...), b...)
	slices.SortFunc(out, func(x, y holding) int { return x.compare(y.partition) })
	return out
}
