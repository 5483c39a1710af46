package group

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// hostile sends calls of any order and content: nothing panics, time goes on,
// memory stays what is stored, and every call is answered once.
type hostile struct {
	*rig
	rng *rand.Rand
	ids []string
	all []*answer
}

func TestHostileCalls(t *testing.T) {
	for s := uint64(1); s <= 40; s++ {
		h := &hostile{rig: newRig(t), rng: rand.New(rand.NewPCG(s, 2)), ids: []string{"", "x"}}
		h.o.MaxSize, h.o.MaxGroupBytes, h.o.InitialRebalanceDelay = 4, 3000, int64(h.rng.IntN(3000))
		h.o.MinSessionTimeout, h.o.RetentionCheck, h.o.OffsetsRetention = 0, 1000, 5000
		h.reload()
		for range 400 {
			h.step()
		}
		h.c.Unload(kerr.NotCoordinator)
		for i, a := range h.all {
			if a.n != 1 {
				t.Fatalf("seed %d: call %d was answered %d times", s, i, a.n)
			}
		}
	}
}

func (h *hostile) step() {
	switch x := h.rng.IntN(40); {
	case x == 0:
		h.reload()
	case x == 1:
		h.pass(int64(h.rng.IntN(20_000)))
	case x < 6:
		h.pass(int64(h.rng.IntN(2000)))
	case x == 6:
		h.o.MaxSize = 1 + h.rng.IntN(5)
		h.c.Configure(h.o)
	default:
		a := h.send(h.request())
		if j, ok := a.resp.(*kmsg.JoinGroupResponse); ok && j.MemberID != "" && len(h.ids) < 40 {
			h.ids = append(h.ids, j.MemberID)
		}
		h.all = append(h.all, a)
	}
}

// number is often one that matters.
func (h *hostile) number(odd ...int32) int32 {
	if h.rng.IntN(4) == 0 {
		return odd[h.rng.IntN(len(odd))]
	}
	return int32(h.rng.IntN(8))
}

func (h *hostile) instance() *string {
	if h.rng.IntN(3) > 0 {
		return nil
	}
	return ptr([]string{"", "i0", "i1"}[h.rng.IntN(3)])
}

func (h *hostile) request() kmsg.Request {
	group := fmt.Sprint("g", h.rng.IntN(2))
	id := h.ids[h.rng.IntN(len(h.ids))]
	generation := h.number(-1, -1<<31, 1<<31-1)
	if g := h.c.group(group); g != nil && g.classic != nil && h.rng.IntN(3) > 0 {
		generation = g.classic.generation
		if o := g.classic.order; len(o) > 0 && h.rng.IntN(2) == 0 {
			id = o[h.rng.IntN(len(o))].id
		}
	}
	switch h.rng.IntN(14) {
	case 0, 1, 2, 3, 4:
		return h.join(group, id)
	case 5, 6, 7:
		return h.syncOf(group, id, generation)
	case 8:
		r := heartbeatReq(group, id, generation)
		r.InstanceID = h.instance()
		return r
	case 9:
		r := leaveReq(group, id, h.ids[h.rng.IntN(len(h.ids))])
		r.Version, r.MemberID = int16(h.rng.IntN(6)), id
		r.Members[0].InstanceID = h.instance()
		return r
	case 10, 11:
		r := commitReq(group, id, generation, []string{"a", "b", "none", ""}[h.rng.IntN(4)], h.number(-1, 1<<31-1), int64(h.number(-1)))
		r.Version, r.InstanceID, r.RetentionTimeMillis = int16(2+h.rng.IntN(9)), h.instance(), int64(h.number(-1, 1<<31-1))<<32
		return r
	case 12:
		r := kmsg.NewPtrDeleteGroupsRequest()
		r.Groups = []string{group}
		return r
	default:
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = group
		dt := kmsg.NewOffsetDeleteRequestTopic()
		dt.Topic, dt.Partitions = "a", []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}, {Partition: 0}, {Partition: -1}}
		r.Topics = append(r.Topics, dt, dt)
		return r
	}
}

func (h *hostile) join(group, id string) kmsg.Request {
	r := joinReq(group, id, []string{"range", "x", "range"}[:h.rng.IntN(4)]...)
	if h.rng.IntN(8) == 0 {
		r.Protocols = nil
	}
	r.Version, r.InstanceID = int16(h.rng.IntN(10)), h.instance()
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 1000*h.number(0, -1, 1800), 1000*h.number(0, -1, 2_000_000)
	if h.rng.IntN(10) == 0 {
		r.ProtocolType = "other"
	}
	for i := range r.Protocols {
		if h.rng.IntN(4) == 0 {
			r.Protocols[i].Metadata = make([]byte, h.rng.IntN(1500))
		}
	}
	return r
}

func (h *hostile) syncOf(group, id string, generation int32) kmsg.Request {
	r := syncReq(group, id, generation)
	r.Version, r.InstanceID = int16(h.rng.IntN(6)), h.instance()
	if g := h.c.group(group); g != nil && g.classic != nil {
		r.Protocol = &g.classic.protocol
		r.ProtocolType = &g.classic.protocolType
		for _, m := range g.classic.order {
			a := kmsg.NewSyncGroupRequestGroupAssignment()
			a.MemberID, a.MemberAssignment = m.id, make([]byte, h.rng.IntN(600))
			r.GroupAssignment = append(r.GroupAssignment, a, a)
		}
	}
	return r
}
