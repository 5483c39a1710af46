package group

import (
	"maps"
	"slices"

	"thermocline/ingest/group/assign"
)

// consumerGroup is a group whose assignment the coordinator makes (KIP-848).
//
// Two numbers drive it. The group epoch grows when anything changes that the
// assignment rests on: members, subscriptions, topics. The target epoch says
// for which group epoch the target, who shall have what, was computed. Each
// member comes to the target by itself, one heartbeat at a time: it first gives
// up what is not its any more, and gets what is new once nobody else has it.
//
// Invariant: owner has exactly the partitions that members hold or have yet to
// give up, each with the one member it belongs to.
type consumerGroup struct {
	epoch, targetEpoch int32
	// topicsHash stands for the subscribed topics that exist, and their sizes.
	topicsHash uint64
	members    map[string]*consumerMember
	static     map[string]string // instance id → member id
	target     map[string]assign.Assignment
	owner      map[partition]*consumerMember
	// subs has each distinct subscription once, by its key.
	subs map[string]*interest
	// expressions has each distinct regular expression once.
	expressions map[string]*expression
	scannedAt   int64 // when expressions were last matched with all topics
	assignedAt  int64 // when the target was last computed
	blindSince  int64 // since when assigned topics are missing; never: none is
	bytes       int   // of all members' profiles as stored
	bugs        *ConsumerBugs
}

// partition names a partition of a topic.
type partition struct {
	topic assign.TopicID
	index int32
}

// holding is a partition that a member has, and the epoch at which it got it
// (KIP-1251: commits from that epoch on are good).
type holding struct {
	partition
	epoch int32
}

// memberState is where a member stands on its way to the target.
type memberState uint8

const (
	// memberStable: it has the target of its epoch.
	memberStable memberState = 1
	// memberUnrevoked: it was told to give up partitions and has not said that it has.
	memberUnrevoked memberState = 2
	// memberUnreleased: it waits for partitions that others have not given up.
	memberUnreleased memberState = 3
)

// The member epochs that are none (KIP-848).
const (
	epochJoin        int32 = 0
	epochLeave       int32 = -1
	epochLeaveStatic int32 = -2
)

// consumerMember is one member.
type consumerMember struct {
	id string
	profile
	standing
	stored int // bytes of the profile's record
}

// profile is what a member says of itself.
type profile struct {
	instance, rack       string // empty: none
	clientID, clientHost string
	rebalanceTimeout     int32 // ms
	assignor             string
	sub                  *interest
	// classic is set for members that use the classic protocol in this group.
	classic *classicProfile
}

// standing is what a member has.
type standing struct {
	state memberState
	// epoch is the target epoch the member has come to, or epochLeaveStatic.
	// previous is the one before, for a member that missed an answer.
	epoch, previous int32
	assigned        []holding // sorted
	revoking        []holding // sorted: it has them until it says otherwise
}

// classicProfile is what a member of the classic protocol says beyond profile.
type classicProfile struct {
	sessionTimeout int32 // ms
	protocols      []protocol
}

// interest is what some members subscribe to.
type interest struct {
	key     string
	names   []string // sorted, each once
	regex   *expression
	members int
	// topics are those that exist; valid until the topics change.
	topics   []assign.TopicID
	resolved bool
}

func (c *Coordinator) newConsumerGroup() *consumerGroup {
	return &consumerGroup{
		bugs:    &c.bugs.ConsumerBugs,
		members: make(map[string]*consumerMember), static: make(map[string]string),
		target: make(map[string]assign.Assignment), owner: make(map[partition]*consumerMember),
		subs: make(map[string]*interest), expressions: make(map[string]*expression),
		scannedAt: never, assignedAt: never, blindSince: never,
	}
}

// Bounds of a group, beyond those of Options.
const (
	// profileMax bounds what one member says of itself, in bytes, so that its
	// record fits into the replicated map.
	profileMax = 2 << 20
	// profilesMax bounds that of all members.
	profilesMax = 32 << 20
	// partitionsMax bounds what one member is assigned, so that the records of
	// that fit. The rest is nobody's until more members come.
	partitionsMax = 100_000
)

// never is a time before all others.
const never = int64(-1) << 62

// ids lists the members in order.
func (g *consumerGroup) ids() []string { return slices.Sorted(maps.Keys(g.members)) }

// isEmpty: it has no members.
func (g *consumerGroup) isEmpty() bool { return len(g.members) == 0 }

// stateName is the state as Kafka spells it: Empty, Assigning, Reconciling or Stable.
func (g *consumerGroup) stateName() string {
	switch {
	case len(g.members) == 0:
		return "Empty"
	case g.epoch > g.targetEpoch:
		return "Assigning"
	}
	for _, m := range g.members {
		if !m.reconciled(g.targetEpoch) {
			return "Reconciling"
		}
	}
	return "Stable"
}

// reconciled: the member has all of the target and nothing else.
func (m *consumerMember) reconciled(targetEpoch int32) bool {
	return m.state == memberStable && m.epoch == targetEpoch
}

// isSubscribed tells whether a member subscribes the topic.
func (g *consumerGroup) isSubscribed(topic string) bool {
	for _, s := range g.subs {
		if s.has(topic) {
			return true
		}
	}
	return false
}

func (s *interest) has(topic string) bool {
	if _, ok := slices.BinarySearch(s.names, topic); ok {
		return true
	}
	return s.regex != nil && s.regex.has(topic)
}

// subscribe finds or makes a subscription, and counts one member more. The
// expression must have been checked.
func (g *consumerGroup) subscribe(names []string, regex string) *interest {
	k := subscriptionKey(names, regex)
	s := g.subs[k]
	if s == nil {
		s = &interest{key: k, names: names}
		if regex != "" {
			s.regex = g.express(regex)
			s.regex.subscriptions++
		}
		g.subs[k] = s
	}
	s.members++
	return s
}

// unsubscribe counts one member less.
func (g *consumerGroup) unsubscribe(s *interest) {
	s.members--
	if s.members > 0 {
		return
	}
	delete(g.subs, s.key)
	if s.regex != nil {
		if s.regex.subscriptions--; s.regex.subscriptions == 0 {
			delete(g.expressions, s.regex.text)
		}
	}
}

// subscriptionKey is equal for equal subscriptions only.
func subscriptionKey(names []string, regex string) string {
	n := 4 + len(regex)
	for _, name := range names {
		n += 4 + len(name)
	}
	e := make(encoder, 0, n)
	e.str(regex)
	for _, name := range names {
		e.str(name)
	}
	return string(e)
}

// regexText is the member's expression; empty for none.
func (s *interest) regexText() string {
	if s.regex == nil {
		return ""
	}
	return s.regex.text
}

// sortedNames is names sorted, each once. Never nil.
func sortedNames(names []string) []string {
	out := append(make([]string, 0, len(names)), names...)
	slices.Sort(out)
	return slices.Compact(out)
}

// add takes a member in.
func (g *consumerGroup) add(m *consumerMember) {
	g.members[m.id] = m
	if m.instance != "" {
		g.static[m.instance] = m.id
	}
	g.own(m)
}

// remove lets a member go, with its target.
func (g *consumerGroup) remove(m *consumerMember) {
	g.disown(m)
	g.unsubscribe(m.sub)
	g.bytes -= m.stored
	delete(g.members, m.id)
	delete(g.target, m.id)
	if g.static[m.instance] == m.id {
		delete(g.static, m.instance)
	}
}

// own enters the partitions of a member; disown takes them out.
func (g *consumerGroup) own(m *consumerMember) {
	for _, h := range m.assigned {
		g.owner[h.partition] = m
	}
	for _, h := range m.revoking {
		g.owner[h.partition] = m
	}
}

func (g *consumerGroup) disown(m *consumerMember) {
	for _, h := range m.assigned {
		delete(g.owner, h.partition)
	}
	for _, h := range m.revoking {
		delete(g.owner, h.partition)
	}
}

// classicMembers counts the members that use the classic protocol.
func (g *consumerGroup) classicMembers() int {
	n := 0
	for _, m := range g.members {
		if m.classic != nil {
			n++
		}
	}
	return n
}

// compare orders partitions by topic, then index.
func (p partition) compare(o partition) int {
	if c := p.topic.Compare(o.topic); c != 0 {
		return c
	}
	return int(p.index) - int(o.index)
}

// find looks a partition up among sorted holdings.
func find(list []holding, p partition) (holding, bool) {
	i, ok := slices.BinarySearchFunc(list, p, func(h holding, p partition) int { return h.compare(p) })
	if !ok {
		return holding{}, false
	}
	return list[i], true
}

// samePartitions tells whether two lists name the same partitions.
func samePartitions(a, b []holding) bool {
	return slices.EqualFunc(a, b, func(x, y holding) bool { return x.partition == y.partition })
}

// equal tells whether two standings are the same.
func (s *standing) equal(o *standing) bool {
	return s.state == o.state && s.epoch == o.epoch && s.previous == o.previous &&
		slices.Equal(s.assigned, o.assigned) && slices.Equal(s.revoking, o.revoking)
}

// equal tells whether two profiles are the same.
func (p *profile) equal(o *profile) bool {
	return p.instance == o.instance && p.rack == o.rack && p.clientID == o.clientID && p.clientHost == o.clientHost &&
		p.rebalanceTimeout == o.rebalanceTimeout && p.assignor == o.assignor && p.sub == o.sub && p.classic.equal(o.classic)
}

func (p *classicProfile) equal(o *classicProfile) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.sessionTimeout == o.sessionTimeout && slices.EqualFunc(p.protocols, o.protocols, func(a, b protocol) bool {
		return a.name == b.name && string(a.metadata) == string(b.metadata)
	})
}
