package group

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"thermocline/ingest/group/assign"
)

// Kinds of records of consumer groups; doc.go draws them.
const (
	kindConsumerGroup  = kindConsumerFirst     // epochs
	kindConsumerMember = kindConsumerFirst + 1 // a member's profile
	kindConsumerTarget = kindConsumerFirst + 2 // a member's part of the target
	kindConsumerHas    = kindConsumerFirst + 3 // a member's standing
)

// groupRecord is the group's own record.
func (g *consumerGroup) groupRecord(name string) Record {
	e := make(encoder, 0, 17)
	e.u8(1)
	e.i32(g.epoch)
	e.i32(g.targetEpoch)
	e.u64(g.topicsHash)
	return Record{Key: key(name, kindConsumerGroup, ""), Value: e}
}

// profileRecord is the record of what a member says of itself.
func (m *consumerMember) profileRecord(name string) Record {
	e := make(encoder, 0, 64+len(m.sub.key))
	e.u8(1)
	e.str(m.instance)
	e.str(m.rack)
	e.str(m.clientID)
	e.str(m.clientHost)
	e.i32(m.rebalanceTimeout)
	e.str(m.assignor)
	e.str(m.sub.regexText())
	e.u32(uint32(len(m.sub.names)))
	for _, n := range m.sub.names {
		e.str(n)
	}
	if m.classic == nil {
		e.u8(0)
	} else {
		e.u8(1)
		e.i32(m.classic.sessionTimeout)
		e.u32(uint32(len(m.classic.protocols)))
		for _, p := range m.classic.protocols {
			e.str(p.name)
			e.bytes(p.metadata)
		}
	}
	return Record{Key: key(name, kindConsumerMember, m.id), Value: e}
}

// standingRecord is the record of what a member has.
func (m *consumerMember) standingRecord(name string) Record {
	e := make(encoder, 0, 18+8*(len(m.assigned)+len(m.revoking)))
	e.u8(1)
	e.u8(byte(m.state))
	e.i32(m.epoch)
	e.i32(m.previous)
	e.holdings(m.assigned)
	e.holdings(m.revoking)
	return Record{Key: key(name, kindConsumerHas, m.id), Value: e}
}

// holdings writes partitions by topic, each with its epoch.
func (e *encoder) holdings(list []holding) {
	topics := 0
	for i := range list {
		if i == 0 || list[i-1].topic != list[i].topic {
			topics++
		}
	}
	e.u32(uint32(topics))
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].topic == list[0].topic {
			n++
		}
		e.id(list[0].topic)
		e.u32(uint32(n))
		for _, h := range list[:n] {
			e.i32(h.index)
			e.i32(h.epoch)
		}
		list = list[n:]
	}
}

// holdings reads what encoder.holdings writes; it must be in order.
func (d *decoder) holdings() []holding {
	var out []holding
	for range d.count(20) {
		topic, n := d.id(), d.count(8)
		if n == 0 {
			d.failf("a topic without partitions")
		}
		for range n {
			h := holding{partition{topic, d.i32()}, d.i32()}
			if len(out) > 0 && out[len(out)-1].compare(h.partition) >= 0 {
				d.failf("partitions are not in order")
				return nil
			}
			out = append(out, h)
		}
	}
	return out
}

// targetRecord is the record of a member's part of the target: none if it is empty.
func targetRecord(name, member string, a assign.Assignment) Record {
	if len(a) == 0 {
		return Record{Key: key(name, kindConsumerTarget, member)}
	}
	e := make(encoder, 0, 5+24*len(a))
	e.u8(1)
	e.u32(uint32(len(a)))
	for _, p := range a {
		e.id(p.Topic)
		e.u32(uint32(len(p.Indexes)))
		for _, i := range p.Indexes {
			e.i32(i)
		}
	}
	return Record{Key: key(name, kindConsumerTarget, member), Value: e}
}

// strictly tells whether a list is sorted, and has nothing twice.
func strictly[T any](list []T, compare func(a, b T) int) bool {
	for i := 1; i < len(list); i++ {
		if compare(list[i-1], list[i]) >= 0 {
			return false
		}
	}
	return true
}

func parseTarget(value []byte) (assign.Assignment, error) {
	d := decoder{b: value}
	d.version(1)
	var a assign.Assignment
	for range d.count(20) {
		p := assign.Partitions{Topic: d.id()}
		for range d.count(4) {
			p.Indexes = append(p.Indexes, d.i32())
		}
		if len(p.Indexes) == 0 || !strictly(p.Indexes, cmp.Compare) || len(a) > 0 && a[len(a)-1].Topic.Compare(p.Topic) >= 0 {
			d.failf("partitions are not in order")
		}
		a = append(a, p)
	}
	return a, d.done()
}

// tombstones deletes all records of the group but its offsets.
func (g *consumerGroup) tombstones(group string) []Record {
	out := []Record{{Key: key(group, kindConsumerGroup, "")}}
	for _, id := range g.ids() {
		out = append(out, g.memberTombstones(group, id)...)
	}
	return out
}

// memberTombstones deletes the records of one member.
func (g *consumerGroup) memberTombstones(group, id string) []Record {
	out := []Record{{Key: key(group, kindConsumerMember, id)}, {Key: key(group, kindConsumerHas, id)}}
	if len(g.target[id]) > 0 {
		out = append(out, Record{Key: key(group, kindConsumerTarget, id)})
	}
	return out
}

// loadConsumer takes a record of a kind of kindConsumerFirst or above. A group's
// records come in the order of their keys: the group, profiles, targets, standings.
func (c *Coordinator) loadConsumer(g *groupState, k recordKey, value []byte) error {
	if g.classic != nil {
		return fmt.Errorf("the group is of both protocols")
	}
	if k.kind == kindConsumerGroup {
		if g.consumer != nil || k.rest != "" {
			return fmt.Errorf("the group's record is there twice")
		}
		d := decoder{b: value}
		d.version(1)
		cg := c.newConsumerGroup()
		cg.epoch, cg.targetEpoch, cg.topicsHash = d.i32(), d.i32(), d.u64()
		g.consumer = cg
		return d.done()
	}
	cg := g.consumer
	if cg == nil {
		return fmt.Errorf("a member comes before its group")
	}
	if k.kind == kindConsumerMember {
		return cg.loadProfile(k.rest, value)
	}
	m := cg.members[k.rest]
	switch {
	case k.kind > kindConsumerHas:
		return fmt.Errorf("kind %d is not known here: written by a newer version; run that", k.kind)
	case m == nil:
		return fmt.Errorf("member %q is not known", k.rest)
	case k.kind == kindConsumerTarget:
		a, err := parseTarget(value)
		if err == nil && len(a) == 0 {
			err = fmt.Errorf("member %q: an empty target", k.rest)
		}
		cg.target[k.rest] = a
		return err
	}
	return cg.loadStanding(m, value)
}

func (g *consumerGroup) loadProfile(id string, value []byte) error {
	d := decoder{b: value}
	d.version(1)
	m := &consumerMember{id: id, standing: standing{state: memberStable}}
	m.instance, m.rack, m.clientID, m.clientHost = d.str(), d.str(), d.str(), d.str()
	m.rebalanceTimeout, m.assignor = d.i32(), d.str()
	regex := d.str()
	var names []string
	for range d.count(4) {
		names = append(names, d.str())
	}
	if here := d.u8(); here > 1 {
		d.failf("a presence byte is %d, expected 0 or 1", here)
	} else if here == 1 {
		m.classic = &classicProfile{sessionTimeout: d.i32()}
		n := d.count(8)
		if n == 0 {
			d.failf("a member of the classic protocol lists none")
		}
		for range n {
			m.classic.protocols = append(m.classic.protocols, protocol{name: d.str(), metadata: d.bytes()})
		}
	}
	if err := d.done(); err != nil {
		return err
	}
	if no := checkRegex(&regex); no != nil {
		return errors.New(no.text)
	}
	if !strictly(names, strings.Compare) {
		return fmt.Errorf("member %q: its topics are not in order", id)
	}
	if _, taken := g.static[m.instance]; taken {
		return fmt.Errorf("member %q: instance %q is another's", id, m.instance)
	}
	m.sub = g.subscribe(names, regex)
	m.stored = len(value)
	g.bytes += m.stored
	g.add(m)
	return nil
}

func (g *consumerGroup) loadStanding(m *consumerMember, value []byte) error {
	d := decoder{b: value}
	d.version(1)
	m.state, m.epoch, m.previous = memberState(d.u8()), d.i32(), d.i32()
	m.assigned, m.revoking = d.holdings(), d.holdings()
	if m.state < memberStable || m.state > memberUnreleased {
		d.failf("state %d, expected %d to %d", m.state, memberStable, memberUnreleased)
	}
	for _, list := range [2][]holding{m.assigned, m.revoking} {
		for _, h := range list {
			if o := g.owner[h.partition]; o != nil {
				d.failf("partition %d of topic %x belongs to %q and to %q", h.index, h.topic, o.id, m.id)
			}
			g.owner[h.partition] = m
		}
	}
	return d.done()
}
