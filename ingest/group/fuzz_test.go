package group

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// pack joins records for a fuzz target's corpus: u16 and key, u16 and value.
func pack(store map[string][]byte) []byte {
	var b []byte
	for _, k := range slices.Sorted(maps.Keys(store)) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(k)))
		b = append(b, k...)
		b = binary.BigEndian.AppendUint16(b, uint16(len(store[k])))
		b = append(b, store[k]...)
	}
	return b
}

func unpack(b []byte) (out []Record) {
	take := func() []byte {
		if len(b) < 2 {
			b = nil
			return nil
		}
		n := min(int(binary.BigEndian.Uint16(b)), len(b)-2)
		v := b[2 : 2+n]
		b = b[2+n:]
		return v
	}
	for len(b) > 0 {
		out = append(out, Record{Key: string(take()), Value: take()})
	}
	return out
}

// FuzzLoad loads records of any content. What is taken must be stored the same
// again, and a Coordinator that has taken it must work.
func FuzzLoad(f *testing.F) {
	r := newRig(f)
	ids, gen := r.form("g", 2, "range", "cooperative")
	r.commit("g", ids[0], gen, "a", 7, nil)
	f.Add(pack(r.store))
	r.send(static(joinReq("s", ""), "i0"))
	r.pass(10_000)
	r.commit("simple", "", -1, "b", 9, nil)
	f.Add(pack(r.store))
	get[*kmsg.LeaveGroupResponse](r, r.send(leaveReq("g", ids[0])))
	f.Add(pack(r.store))
	for k, v := range r.store {
		f.Add(pack(map[string][]byte{k: v[:len(v)-1]}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := DefaultOptions()
		o.NewID = func() string { return "new" }
		c := New(o, topicsOf("a", "b"))
		taken := map[string][]byte{}
		for _, rec := range unpack(data) {
			if k, err := parseKey(rec.Key); err == nil && k.kind >= kindConsumerFirst {
				continue // FuzzLoad of consumer groups has a target of its own
			}
			if err := c.Load(rec.Key, rec.Value); err != nil {
				return
			}
			if _, twice := taken[rec.Key]; twice {
				return // a map has no key twice
			}
			taken[rec.Key] = rec.Value
		}
		for k, v := range expected(c) {
			if !bytes.Equal(taken[k], v) {
				t.Fatalf("record %q was\n%x, and would be stored as\n%x", k, taken[k], v)
			}
			delete(taken, k)
		}
		if len(taken) > 0 {
			t.Fatalf("taken, and not in memory: %q", slices.Sorted(maps.Keys(taken)))
		}
		c.Loaded(1000)
		for _, name := range c.names() {
			for _, req := range []kmsg.Request{
				joinReq(name, ""), commitReq(name, "", -1, "a", 0, 1), fetchReq(name),
				&kmsg.DescribeGroupsRequest{Version: 6, Groups: []string{name}}, kmsg.NewPtrListGroupsRequest(),
			} {
				c.Handle(2000, Call{Request: req, Reply: func(kmsg.Response) {}})
			}
		}
		for range 3 {
			if at, ok := c.Deadline(); ok {
				c.Tick(max(at, 3000))
			}
		}
		c.Tick(1 << 40)
	})
}
