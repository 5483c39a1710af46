package group

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fakeTopics is a cluster's topics; tests make new ones instead of changing it.
type fakeTopics struct {
	byName  map[string]Topic
	deleted map[[16]byte]bool
}

func topicsOf(names ...string) *fakeTopics {
	f := &fakeTopics{byName: map[string]Topic{}, deleted: map[[16]byte]bool{}}
	for _, n := range names {
		f.byName[n] = Topic{Name: n, ID: idOf(n), Partitions: 8}
	}
	return f
}

func idOf(name string) (id [16]byte) {
	copy(id[:], "id of "+name)
	return id
}

func (f *fakeTopics) Topic(name string) (Topic, bool) { t, ok := f.byName[name]; return t, ok }
func (f *fakeTopics) TopicByID(id [16]byte) (Topic, bool) {
	for _, t := range f.byName {
		if t.ID == id {
			return t, true
		}
	}
	return Topic{}, false
}
func (f *fakeTopics) Names() []string          { return slices.Sorted(maps.Keys(f.byName)) }
func (f *fakeTopics) Deleted(id [16]byte) bool { return f.deleted[id] }

// without is the same cluster after topics were deleted.
func (f *fakeTopics) without(names ...string) *fakeTopics {
	out := &fakeTopics{byName: maps.Clone(f.byName), deleted: maps.Clone(f.deleted)}
	for _, n := range names {
		out.deleted[out.byName[n].ID] = true
		delete(out.byName, n)
	}
	return out
}

// rig drives a Coordinator as a broker does: it keeps the replicated map.
type rig struct {
	t      testing.TB
	c      *Coordinator
	o      Options
	topics *fakeTopics
	bugs   Bugs
	now    int64
	store  map[string][]byte
	queued []Write
	hold   bool // writes are not written until settle
	ids    int
	host   string
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, o: DefaultOptions(), topics: topicsOf("a", "b", "c"), store: map[string][]byte{}, now: 1_000_000, host: "/10.0.0.1"}
	r.o.NewID = func() string { r.ids++; return fmt.Sprintf("%d", r.ids) }
	r.start()
	return r
}

func (r *rig) start() {
	r.c = New(r.o, r.topics)
	r.c.bugs = r.bugs
	for _, k := range slices.Sorted(maps.Keys(r.store)) {
		if err := r.c.Load(k, r.store[k]); err != nil {
			r.t.Fatal(err)
		}
	}
	r.c.Loaded(r.now)
	r.gather()
}

// reload is a change of the slot's leader.
func (r *rig) reload() {
	r.c.Unload(kerr.NotCoordinator)
	r.queued = nil
	r.start()
}

// gather takes writes, and settles them unless they are held.
func (r *rig) gather() {
	r.queued = append(r.queued, r.c.Writes()...)
	if !r.hold {
		r.settle(len(r.queued))
	}
}

// settle writes the first n of the queued writes.
func (r *rig) settle(n int) {
	if n == 0 {
		return
	}
	for _, w := range r.queued[:n] {
		apply(r.store, w)
	}
	last := r.queued[n-1].Number
	r.queued = r.queued[n:]
	r.c.Written(last)
	r.gather()
}

func apply(store map[string][]byte, w Write) {
	for _, rec := range w.Records {
		if rec.Value == nil {
			delete(store, rec.Key)
		} else {
			store[rec.Key] = bytes.Clone(rec.Value)
		}
	}
}

// answer is what a call gets.
type answer struct {
	resp kmsg.Response
	n    int
}

// send hands in a call; what is changed by then is checked against the map.
func (r *rig) send(req kmsg.Request) *answer {
	a := &answer{}
	r.c.Handle(r.now, Call{Request: req, ClientID: "client", ClientHost: r.host, Reply: func(resp kmsg.Response) {
		a.resp = resp
		a.n++
		if a.n > 1 {
			r.t.Fatalf("a call of key %d was answered %d times", req.Key(), a.n)
		}
		if resp.GetVersion() != req.GetVersion() {
			r.t.Fatalf("an answer has version %d, the request %d", resp.GetVersion(), req.GetVersion())
		}
	}})
	r.gather()
	if !r.hold {
		checkStored(r.t, r.c, r.store)
	}
	return a
}

// pass lets time pass, ticking when the Coordinator asks for it.
func (r *rig) pass(ms int64) {
	end := r.now + ms
	for {
		at, ok := r.c.Deadline()
		if !ok || at > end {
			break
		}
		r.now = max(r.now, at)
		r.c.Tick(r.now)
		r.gather()
		if next, ok := r.c.Deadline(); ok && next <= r.now {
			r.t.Fatalf("Tick(%d) left a deadline of %d", r.now, next)
		}
	}
	r.now = end
	if !r.hold {
		checkStored(r.t, r.c, r.store)
	}
}

// get is an answer that must be there.
func get[T kmsg.Response](r *rig, a *answer) T {
	r.t.Helper()
	if a.n != 1 {
		r.t.Fatalf("the call is not answered yet")
	}
	resp, ok := a.resp.(T)
	if !ok {
		r.t.Fatalf("the answer is a %T", a.resp)
	}
	return resp
}

func (r *rig) waits(a *answer) {
	r.t.Helper()
	if a.n != 0 {
		r.t.Fatalf("the call was answered with %+v, expected it to wait", a.resp)
	}
}

func (r *rig) code(what string, got int16, want *kerr.Error) {
	r.t.Helper()
	code := int16(0)
	if want != nil {
		code = want.Code
	}
	if got != code {
		r.t.Fatalf("%s: error %v, expected %v", what, kerr.ErrorForCode(got), kerr.ErrorForCode(code))
	}
}

// expected is what the replicated map must hold of a group, from what the
// Coordinator has in memory. A group whose members are joining is stored as it
// was before.
func expected(c *Coordinator) map[string][]byte {
	out := map[string][]byte{}
	for name, g := range c.groups {
		for topic, parts := range g.offsets {
			for p, o := range parts {
				out[offsetKey(name, topic, p)] = offsetValue(o)
			}
		}
		cg := g.classic
		if cg == nil || !cg.stored {
			continue
		}
		out[key(name, kindClassic, "")] = classicValue(cg)
		for _, m := range cg.order {
			if m.stored || cg.state != statePreparing {
				out[key(name, kindClassicMember, m.id)] = memberValue(m)
			}
		}
	}
	return out
}

// checkStored compares memory with the map, and with what a Coordinator that
// takes over makes of it.
func checkStored(t testing.TB, c *Coordinator, store map[string][]byte) {
	t.Helper()
	compareStored(t, "in memory", c, store)
	next := New(c.o, c.topics)
	for _, k := range slices.Sorted(maps.Keys(store)) {
		if err := next.Load(k, store[k]); err != nil {
			t.Fatal(err)
		}
	}
	compareStored(t, "after loading", next, store)
}

func compareStored(t testing.TB, where string, c *Coordinator, store map[string][]byte) {
	t.Helper()
	want := expected(c)
	for k, v := range store {
		pk, err := parseKey(k)
		if err != nil {
			t.Fatal(err)
		}
		if pk.kind >= kindConsumerFirst {
			continue
		}
		w, ok := want[k]
		if !ok {
			t.Fatalf("%s: record %q is stored, and nothing in memory says so", where, k)
		}
		delete(want, k)
		if g := c.groups[pk.group]; g != nil && g.classic != nil && g.classic.state == statePreparing && pk.kind != kindOffset {
			continue // joins of members are not stored before the generation is
		}
		if !bytes.Equal(v, w) {
			t.Fatalf("%s: record %q is stored as\n%x, memory says\n%x", where, k, v, w)
		}
	}
	for k := range want {
		t.Fatalf("%s: record %q is not stored", where, k)
	}
}

// Requests of a consumer's life.

func subscription(topics ...string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = topics
	return m.AppendTo(nil)
}

func joinReq(group, member string, protocols ...string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.ProtocolType = 9, group, member, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, 60_000
	if len(protocols) == 0 {
		protocols = []string{"range"}
	}
	for _, p := range protocols {
		jp := kmsg.NewJoinGroupRequestProtocol()
		jp.Name, jp.Metadata = p, subscription("a")
		req.Protocols = append(req.Protocols, jp)
	}
	return req
}

func static(req *kmsg.JoinGroupRequest, instance string) *kmsg.JoinGroupRequest {
	req.InstanceID = &instance
	return req
}

func atVersion(req *kmsg.JoinGroupRequest, v int16) *kmsg.JoinGroupRequest {
	req.Version = v
	return req
}

func syncReq(group, member string, generation int32) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 5, group, member, generation
	pt, p := "consumer", "range"
	req.ProtocolType, req.Protocol = &pt, &p
	return req
}

func assigning(req *kmsg.SyncGroupRequest, members ...string) *kmsg.SyncGroupRequest {
	for _, m := range members {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = m, []byte("for "+m)
		req.GroupAssignment = append(req.GroupAssignment, a)
	}
	return req
}

func heartbeatReq(group, member string, generation int32) *kmsg.HeartbeatRequest {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 4, group, member, generation
	return req
}

func leaveReq(group string, members ...string) *kmsg.LeaveGroupRequest {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = 5, group
	for _, m := range members {
		l := kmsg.NewLeaveGroupRequestMember()
		l.MemberID = m
		req.Members = append(req.Members, l)
	}
	return req
}

func commitReq(group, member string, generation int32, topic string, partition int32, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 9, group, member, generation
	ct := kmsg.NewOffsetCommitRequestTopic()
	ct.Topic = topic
	cp := kmsg.NewOffsetCommitRequestTopicPartition()
	cp.Partition, cp.Offset = partition, offset
	ct.Partitions = append(ct.Partitions, cp)
	req.Topics = append(req.Topics, ct)
	return req
}

func fetchReq(group string, topics ...string) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 9
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	for _, t := range topics {
		ft := kmsg.NewOffsetFetchRequestGroupTopic()
		ft.Topic, ft.Partitions = t, []int32{0}
		g.Topics = append(g.Topics, ft)
	}
	req.Groups = append(req.Groups, g)
	return req
}

// Short cuts that check the answer's error.

func (r *rig) heartbeat(group, member string, generation int32, want *kerr.Error) {
	r.t.Helper()
	r.code("heartbeat of "+member, get[*kmsg.HeartbeatResponse](r, r.send(heartbeatReq(group, member, generation))).ErrorCode, want)
}

func (r *rig) commit(group, member string, generation int32, topic string, offset int64, want *kerr.Error) {
	r.t.Helper()
	resp := get[*kmsg.OffsetCommitResponse](r, r.send(commitReq(group, member, generation, topic, 0, offset)))
	r.code("commit of "+member, resp.Topics[0].Partitions[0].ErrorCode, want)
}

func (r *rig) fetch(group, topic string) int64 {
	r.t.Helper()
	resp := get[*kmsg.OffsetFetchResponse](r, r.send(fetchReq(group, topic)))
	r.code("fetch", resp.Groups[0].ErrorCode, nil)
	r.code("fetch", resp.Groups[0].Topics[0].Partitions[0].ErrorCode, nil)
	return resp.Groups[0].Topics[0].Partitions[0].Offset
}

func (r *rig) join(req *kmsg.JoinGroupRequest, want *kerr.Error) *kmsg.JoinGroupResponse {
	r.t.Helper()
	resp := get[*kmsg.JoinGroupResponse](r, r.send(req))
	r.code("join of "+req.MemberID, resp.ErrorCode, want)
	return resp
}

// id asks for a member id.
func (r *rig) id(group string, protocols ...string) string {
	r.t.Helper()
	return r.join(joinReq(group, "", protocols...), kerr.MemberIDRequired).MemberID
}

// form makes a stable group of n members, the first of which leads.
func (r *rig) form(group string, n int, protocols ...string) (ids []string, generation int32) {
	r.t.Helper()
	var joins []*answer
	for range n {
		ids = append(ids, r.id(group, protocols...))
	}
	for _, id := range ids {
		joins = append(joins, r.send(joinReq(group, id, protocols...)))
	}
	r.pass(r.o.InitialRebalanceDelay * 2)
	for i, a := range joins {
		resp := get[*kmsg.JoinGroupResponse](r, a)
		r.code("join", resp.ErrorCode, nil)
		if resp.MemberID != ids[i] || resp.LeaderID != ids[0] || (len(resp.Members) > 0) != (i == 0) {
			r.t.Fatalf("member %d of %v is told %+v", i, ids, resp)
		}
		generation = resp.Generation
	}
	r.assign(group, generation, ids...)
	return ids, generation
}

// assign lets all members sync, the first of which leads.
func (r *rig) assign(group string, generation int32, ids ...string) {
	r.t.Helper()
	var syncs []*answer
	for _, id := range ids[1:] {
		syncs = append(syncs, r.send(syncReq(group, id, generation)))
		r.waits(syncs[len(syncs)-1])
	}
	syncs = append([]*answer{r.send(assigning(syncReq(group, ids[0], generation), ids...))}, syncs...)
	for i, a := range syncs {
		resp := get[*kmsg.SyncGroupResponse](r, a)
		r.code("sync", resp.ErrorCode, nil)
		if string(resp.MemberAssignment) != "for "+ids[i] {
			r.t.Fatalf("member %s is assigned %q", ids[i], resp.MemberAssignment)
		}
	}
}

func (r *rig) describe(group string) kmsg.DescribeGroupsResponseGroup {
	r.t.Helper()
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Version, req.Groups = 6, []string{group}
	return get[*kmsg.DescribeGroupsResponse](r, r.send(req)).Groups[0]
}

func (r *rig) state(group, want string) {
	r.t.Helper()
	if got := r.describe(group).State; got != want {
		r.t.Fatalf("group %s is %s, expected %s", group, got, want)
	}
}
