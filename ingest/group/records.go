package group

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Kinds of records; doc.go draws them.
const (
	kindClassic       = 1
	kindClassicMember = 2
	kindOffset        = 3
	// kindConsumerFirst and all above are of KIP-848's groups (consumer_records.go).
	kindConsumerFirst = 16
)

// A key must fit into the replicated map's bound of 4 KiB with any of these.
const (
	groupNameMax = 2000
	topicNameMax = 249
	memberIDMax  = 400
	instanceMax  = 1000
)

var errShort = errors.New("it is cut short")

// recordKey is a parsed key. rest is what the kind adds to the group.
type recordKey struct {
	group string
	kind  byte
	rest  string
}

// key builds a key.
func key(group string, kind byte, rest string) string {
	b := make([]byte, 0, 3+len(group)+len(rest))
	b = binary.BigEndian.AppendUint16(b, uint16(len(group)))
	b = append(b, group...)
	b = append(b, kind)
	b = append(b, rest...)
	return string(b)
}

// offsetKey builds the key of a committed offset.
func offsetKey(group, topic string, partition int32) string {
	b := make([]byte, 0, 7+len(group)+len(topic))
	b = binary.BigEndian.AppendUint16(b, uint16(len(group)))
	b = append(b, group...)
	b = append(b, kindOffset)
	b = append(b, topic...)
	b = binary.BigEndian.AppendUint32(b, uint32(partition))
	return string(b)
}

func parseKey(s string) (recordKey, error) {
	if len(s) < 2 {
		return recordKey{}, fmt.Errorf("group record key %x: %w", s, errShort)
	}
	n := int(s[0])<<8 | int(s[1])
	if len(s) < 3+n {
		return recordKey{}, fmt.Errorf("group record key %x: %w", s, errShort)
	}
	if n > groupNameMax {
		return recordKey{}, fmt.Errorf("group record key %x: a group's name of %d bytes, expected %d at most", s, n, groupNameMax)
	}
	return recordKey{group: s[2 : 2+n], kind: s[2+n], rest: s[3+n:]}, nil
}

// offset takes an offset's key apart.
func (k recordKey) offset() (topic string, partition int32, err error) {
	n := len(k.rest) - 4
	if n < 1 || n > topicNameMax {
		return "", 0, fmt.Errorf("a topic's name and partition in %d bytes, expected %d to %d", len(k.rest), 5, topicNameMax+4)
	}
	partition = int32(binary.BigEndian.Uint32([]byte(k.rest[n:])))
	if partition < 0 {
		return "", 0, fmt.Errorf("partition %d, expected 0 or more", partition)
	}
	return k.rest[:n], partition, nil
}

// encoder builds a value; numbers are big-endian.
type encoder []byte

func (e *encoder) u8(v byte)      { *e = append(*e, v) }
func (e *encoder) u32(v uint32)   { *e = binary.BigEndian.AppendUint32(*e, v) }
func (e *encoder) u64(v uint64)   { *e = binary.BigEndian.AppendUint64(*e, v) }
func (e *encoder) i32(v int32)    { e.u32(uint32(v)) }
func (e *encoder) i64(v int64)    { e.u64(uint64(v)) }
func (e *encoder) id(v [16]byte)  { *e = append(*e, v[:]...) }
func (e *encoder) str(v string)   { e.u32(uint32(len(v))); *e = append(*e, v...) }
func (e *encoder) bytes(v []byte) { e.u32(uint32(len(v))); *e = append(*e, v...) }
func (e *encoder) optStr(v *string) {
	if v == nil {
		e.u8(0)
		return
	}
	e.u8(1)
	e.str(*v)
}

// decoder takes a value apart. After the first error it yields zeros; done
// tells the error. Strings and bytes are copies.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) take(n int) []byte {
	if d.err == nil && (n < 0 || n > len(d.b)) {
		d.err = errShort
	}
	if d.err != nil {
		return nil
	}
	out := d.b[:n:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) u8() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) i32() int32 { return int32(d.u32()) }
func (d *decoder) i64() int64 { return int64(d.u64()) }

func (d *decoder) id() (out [16]byte) {
	copy(out[:], d.take(16))
	return out
}

func (d *decoder) str() string { return string(d.take(int(d.u32()))) }

func (d *decoder) bytes() []byte { return append([]byte{}, d.take(int(d.u32()))...) }

func (d *decoder) optStr() *string {
	switch v := d.u8(); v {
	case 0:
		return nil
	case 1:
		s := d.str()
		return &s
	default:
		d.failf("a presence byte is %d, expected 0 or 1", v)
		return nil
	}
}

// count reads the number of items that follow, of at least size bytes each.
func (d *decoder) count(size int) int {
	n := int(d.u32())
	if d.err == nil && n > len(d.b)/size {
		d.err = errShort
	}
	if d.err != nil {
		return 0
	}
	return n
}

// version reads the first byte, and refuses versions above newest.
func (d *decoder) version(newest byte) {
	if v := d.u8(); d.err == nil && (v == 0 || v > newest) {
		d.failf("version %d is not known here, the newest is %d: run the version that wrote it", v, newest)
	}
}

func (d *decoder) failf(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

// done returns the first error; bytes that are left are one.
func (d *decoder) done() error {
	if d.err == nil && len(d.b) > 0 {
		d.failf("%d bytes are left at its end", len(d.b))
	}
	return d.err
}

func recordBytes(records []Record) int {
	n := 0
	for i := range records {
		n += len(records[i].Key) + len(records[i].Value)
	}
	return n
}

// The value of a committed offset, version 1.
func offsetValue(o committed) []byte {
	e := make(encoder, 0, 49+len(o.metadata))
	e.u8(1)
	e.i64(o.offset)
	e.i32(o.leaderEpoch)
	e.i64(o.at)
	e.i64(o.expires)
	e.id(o.topicID)
	e.str(o.metadata)
	return e
}

func parseOffset(value []byte) (committed, error) {
	d := decoder{b: value}
	d.version(1)
	o := committed{offset: d.i64(), leaderEpoch: d.i32(), at: d.i64(), expires: d.i64(), topicID: d.id(), metadata: d.str()}
	return o, d.done()
}

// The value of a classic group, version 1.
func classicValue(g *classicGroup) []byte {
	e := make(encoder, 0, 64)
	e.u8(1)
	e.u8(byte(g.state))
	e.i32(g.generation)
	e.i64(g.since)
	e.str(g.protocolType)
	e.str(g.protocol)
	e.str(g.leader)
	return e
}

func parseClassic(value []byte) (*classicGroup, error) {
	d := decoder{b: value}
	d.version(1)
	g := newClassicGroup()
	g.state = classicState(d.u8())
	if g.state < stateEmpty || g.state > stateStable {
		d.failf("state %d, expected %d to %d", g.state, stateEmpty, stateStable)
	}
	g.generation, g.since = d.i32(), d.i64()
	g.protocolType, g.protocol, g.leader = d.str(), d.str(), d.str()
	return g, d.done()
}

// The value of a classic group's member, version 1.
func memberValue(m *member) []byte {
	n := 64 + len(m.clientID) + len(m.clientHost) + len(m.assignment)
	for _, p := range m.protocols {
		n += 8 + len(p.name) + len(p.metadata)
	}
	e := make(encoder, 0, n)
	e.u8(1)
	e.u64(m.order)
	e.optStr(m.instance)
	e.str(m.clientID)
	e.str(m.clientHost)
	e.i32(m.rebalanceTimeout)
	e.i32(m.sessionTimeout)
	e.u32(uint32(len(m.protocols)))
	for _, p := range m.protocols {
		e.str(p.name)
		e.bytes(p.metadata)
	}
	e.bytes(m.assignment)
	return e
}

func parseMember(id string, value []byte) (*member, error) {
	d := decoder{b: value}
	d.version(1)
	m := &member{id: id, order: d.u64(), instance: d.optStr(), clientID: d.str(), clientHost: d.str()}
	m.rebalanceTimeout, m.sessionTimeout = d.i32(), d.i32()
	n := d.count(8)
	for range n {
		m.protocols = append(m.protocols, protocol{name: d.str(), metadata: d.bytes()})
	}
	m.assignment = d.bytes()
	return m, d.done()
}
