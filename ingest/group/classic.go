package group

import (
	"fmt"
	"slices"
	"sort"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// classicState is where a classic group stands. A group that Kafka calls Dead
// is not in the Coordinator's map.
type classicState uint8

const (
	stateEmpty      classicState = 1 // no members
	statePreparing  classicState = 2 // members are to join the next generation
	stateCompleting classicState = 3 // they have, and wait for the leader's assignment
	stateStable     classicState = 4 // they have it
)

// String is the state as Kafka's answers spell it.
func (s classicState) String() string {
	switch s {
	case stateEmpty:
		return "Empty"
	case statePreparing:
		return "PreparingRebalance"
	case stateCompleting:
		return "CompletingRebalance"
	case stateStable:
		return "Stable"
	}
	return "Unknown"
}

const consumerProtocolType = "consumer"

// classicGroup is a group whose members agree on an assignment among
// themselves: one of them, the leader, makes it.
type classicGroup struct {
	state, previous classicState
	since           int64 // when it came to its state
	generation      int32
	protocolType    string // empty: none yet
	protocol        string // voted for this generation; empty: none
	leader          string // a member's id; empty: none

	members   map[string]*member
	order     []*member // by order, that is, by joining
	nextOrder uint64
	static    map[string]string // instance id → member id
	supported map[string]int    // protocol → members that have it
	joining   int               // members that wait for the answer to their join
	syncing   map[string]bool   // members whose sync of this generation is awaited
	pending   map[string]bool   // ids given out that have not joined (KIP-394)
	bytes     int               // of all members' records

	// newMember: someone joined since the initial delay began, so it goes on.
	newMember bool
	// subscribed lists the topics that the members of this generation
	// subscribe; nil: not known.
	subscribed map[string]bool
	// stored: the replicated map has a record of the group itself.
	stored bool
	// removed lists members that are gone, but their records are not.
	removed []string
}

// member is one of a classic group.
type member struct {
	id                               string
	order                            uint64
	instance                         *string
	clientID, clientHost             string
	rebalanceTimeout, sessionTimeout int32
	protocols                        []protocol
	assignment                       []byte

	join, sync *Call // what it waits for
	isNew      bool  // it never was in a generation
	stored     bool  // the replicated map has a record of it
	changed    bool  // the record is not as the member is
}

// protocol is a way to assign partitions that a member can take part in, and
// what it says to its leader, its subscription.
type protocol struct {
	name     string
	metadata []byte
}

func newClassicGroup() *classicGroup {
	return &classicGroup{
		state: stateEmpty, previous: stateEmpty,
		members: make(map[string]*member), static: make(map[string]string), supported: make(map[string]int),
		syncing: make(map[string]bool), pending: make(map[string]bool),
	}
}

// add takes a member in. The first one decides the group's protocol type.
func (g *classicGroup) add(m *member, protocolType string) {
	if len(g.members) == 0 {
		g.protocolType = protocolType
	}
	if g.leader == "" {
		g.leader = m.id
	}
	if m.order == 0 {
		g.nextOrder++
		m.order = g.nextOrder
	}
	g.nextOrder = max(g.nextOrder, m.order)
	g.members[m.id] = m
	at := sort.Search(len(g.order), func(i int) bool { return g.order[i].order > m.order })
	g.order = slices.Insert(g.order, at, m)
	if m.instance != nil {
		g.static[*m.instance] = m.id
	}
	g.support(m, 1)
	g.bytes += m.size()
	if m.join != nil {
		g.joining++
	}
}

// remove lets a member go. Its calls must have been answered.
func (g *classicGroup) remove(m *member) {
	delete(g.members, m.id)
	at := sort.Search(len(g.order), func(i int) bool { return g.order[i].order >= m.order })
	g.order = slices.Delete(g.order, at, at+1)
	if m.instance != nil && g.static[*m.instance] == m.id {
		delete(g.static, *m.instance)
	}
	g.support(m, -1)
	g.bytes -= m.size()
	if m.stored {
		m.stored = false
		g.removed = append(g.removed, m.id)
	}
	delete(g.syncing, m.id)
	if g.leader == m.id {
		g.leader = ""
		if len(g.order) > 0 {
			g.leader = g.order[0].id
		}
	}
}

// support counts a member's protocols, once each.
func (g *classicGroup) support(m *member, by int) {
	for i, p := range m.protocols {
		if slices.IndexFunc(m.protocols, func(q protocol) bool { return q.name == p.name }) < i {
			continue
		}
		g.supported[p.name] += by
		if g.supported[p.name] == 0 {
			delete(g.supported, p.name)
		}
	}
}

// size is about what the member's record takes.
func (m *member) size() int {
	n := 64 + len(m.id) + len(m.clientID) + len(m.clientHost) + len(m.assignment)
	if m.instance != nil {
		n += len(*m.instance)
	}
	for _, p := range m.protocols {
		n += 8 + len(p.name) + len(p.metadata)
	}
	return n
}

// metadata is what the member says for a protocol.
func (m *member) metadata(name string) []byte {
	for _, p := range m.protocols {
		if p.name == name {
			return p.metadata
		}
	}
	return []byte{}
}

// supports tells whether some protocol is common to all members and this list.
func (g *classicGroup) supports(protocolType string, protocols []kmsg.JoinGroupRequestProtocol) bool {
	if g.state == stateEmpty {
		return protocolType != "" && len(protocols) > 0
	}
	if protocolType != g.protocolType {
		return false
	}
	return slices.ContainsFunc(protocols, func(p kmsg.JoinGroupRequestProtocol) bool {
		return g.supported[p.Name] == len(g.members)
	})
}

// vote lets each member vote for the first of its protocols that all have.
// The most votes win; among equals, the one whose name comes first.
func (g *classicGroup) vote() string {
	votes := make(map[string]int)
	for _, m := range g.order {
		for _, p := range m.protocols {
			if g.supported[p.name] == len(g.members) {
				votes[p.name]++
				break
			}
		}
	}
	best := ""
	for name, n := range votes {
		if n > votes[best] || n == votes[best] && name < best {
			best = name
		}
	}
	return best
}

// subscriptions reads which topics the members of this generation subscribe.
func (g *classicGroup) subscriptions() map[string]bool {
	topics := make(map[string]bool)
	if len(g.members) == 0 {
		return topics
	}
	if g.protocolType != consumerProtocolType || g.protocol == "" {
		return nil
	}
	for _, m := range g.order {
		var s kmsg.ConsumerMemberMetadata
		if err := s.ReadFrom(m.metadata(g.protocol)); err != nil {
			return nil
		}
		for _, t := range s.Topics {
			topics[t] = true
		}
	}
	return topics
}

// isSubscribed tells whether a topic's offsets are in use.
func (g *classicGroup) isSubscribed(topic string) bool {
	if g.subscribed != nil {
		return g.subscribed[topic]
	}
	return g.protocolType == consumerProtocolType
}

// check is Kafka's validateMember: it finds the member that a request names. To
// a static one that has no id (any more) Kafka says FENCED_INSTANCE_ID, as to
// one whose place another has taken. librdkafka forgets its id when its session
// ends by its own clock, while the coordinator is away, and may send a heartbeat
// or a commit before it has joined again: fenced, it ends for good.
func (g *classicGroup) check(id string, instance *string) (*member, *kerr.Error) {
	if id == "" {
		return nil, kerr.UnknownMemberID
	}
	if instance != nil {
		switch current, ok := g.static[*instance]; {
		case !ok:
			return nil, kerr.UnknownMemberID
		case current != id:
			return nil, kerr.FencedInstanceID
		}
	}
	if m := g.members[id]; m != nil {
		return m, nil
	}
	return nil, kerr.UnknownMemberID
}

// rebalanceTimeout is how long members may take to join: what the slowest asks.
func (g *classicGroup) rebalanceTimeout() int64 {
	var most int32
	for _, m := range g.order {
		most = max(most, m.rebalanceTimeout)
	}
	return int64(most)
}

// enter changes the state.
func (g *classicGroup) enter(now int64, s classicState) {
	g.previous, g.state, g.since = g.state, s, now
}

// storeGroup writes the group's own record, and forgets the members that are
// gone. Members that are no part of a generation yet are not stored: when the
// coordinator moves they join again.
func (c *Coordinator) storeGroup(g *groupState) { c.write(c.groupRecords(g)...) }

// storeAll writes the group with all its members, as one: a generation.
func (c *Coordinator) storeAll(g *groupState) {
	records := c.groupRecords(g)
	for _, m := range g.classic.order {
		if m.changed {
			records = append(records, memberRecord(g, m))
		}
	}
	if c.bugs.TornGeneration {
		c.write(records[:len(records)/2]...)
		c.seal()
		records = records[len(records)/2:]
	}
	c.write(records...)
}

func (c *Coordinator) groupRecords(g *groupState) []Record {
	var records []Record
	for _, id := range g.classic.removed {
		records = append(records, Record{Key: key(g.name, kindClassicMember, id)})
	}
	g.classic.removed, g.classic.stored = nil, true
	if c.bugs.ForgetRebalance && g.classic.state == statePreparing {
		return records
	}
	return append(records, Record{Key: key(g.name, kindClassic, ""), Value: classicValue(g.classic)})
}

func memberRecord(g *groupState, m *member) Record {
	m.stored, m.changed = true, false
	return Record{Key: key(g.name, kindClassicMember, m.id), Value: memberValue(m)}
}

// classicTombstones deletes all records of a classic group but its offsets.
func (g *groupState) classicTombstones() []Record {
	var out []Record
	for _, id := range g.classic.removed {
		out = append(out, Record{Key: key(g.name, kindClassicMember, id)})
	}
	for _, m := range g.classic.order {
		if m.stored {
			out = append(out, Record{Key: key(g.name, kindClassicMember, m.id)})
		}
	}
	if g.classic.stored {
		out = append(out, Record{Key: key(g.name, kindClassic, "")})
	}
	return out
}

// loadClassic takes a record of a classic group or of its member. The group's
// own comes first, as it does in the order of keys.
func loadClassic(g *groupState, k recordKey, value []byte) error {
	if g.consumer != nil {
		return fmt.Errorf("the group is of both protocols")
	}
	if k.kind == kindClassic {
		if g.classic != nil || k.rest != "" {
			return fmt.Errorf("the group's record is there twice")
		}
		cg, err := parseClassic(value)
		if err != nil {
			return err
		}
		cg.stored = true
		g.classic = cg
		return nil
	}
	if g.classic == nil {
		return fmt.Errorf("a member comes before its group")
	}
	m, err := parseMember(k.rest, value)
	if err != nil {
		return err
	}
	if m.order == 0 || g.classic.members[m.id] != nil || !g.classic.fits(m) {
		return fmt.Errorf("member %q does not fit into its group: its order, id or instance is another's, or its protocols are", m.id)
	}
	m.stored = true
	leader, protocolType := g.classic.leader, g.classic.protocolType
	g.classic.add(m, protocolType)
	g.classic.leader = leader
	return nil
}

// fits tells whether a member that is loaded breaks nothing.
func (g *classicGroup) fits(m *member) bool {
	if m.instance != nil {
		if _, ok := g.static[*m.instance]; ok {
			return false
		}
	}
	at := sort.Search(len(g.order), func(i int) bool { return g.order[i].order >= m.order })
	return at == len(g.order) || g.order[at].order != m.order
}
