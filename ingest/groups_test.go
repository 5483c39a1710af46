package ingest

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thermocline/ingest/group"
	"thermocline/metadata"
)

// fakeCoordinators is one real coordinator for every slot, whose writes are
// replicated at once. Its time stands still but for what tests add.
type fakeCoordinators struct {
	mu     sync.Mutex
	c      *group.Coordinator
	now    int64
	refuse *kerr.Error
	held   bool // calls are taken and not answered
	calls  []group.Call
}

func newFakeCoordinators(c *fakeCluster) *fakeCoordinators {
	o := group.DefaultOptions()
	ids := 0
	o.NewID = func() string { ids++; return fmt.Sprintf("id-%d", ids) }
	o.InitialRebalanceDelay = 0
	f := &fakeCoordinators{c: group.New(o, clusterTopics{c})}
	f.c.Loaded(0)
	return f
}

// clusterTopics shows a cluster's topics to a coordinator.
type clusterTopics struct{ c *fakeCluster }

func (t clusterTopics) Topic(name string) (group.Topic, bool) {
	row, ok := t.c.TopicByName(name)
	return groupTopic(row), ok
}

func (t clusterTopics) TopicByID(id [16]byte) (group.Topic, bool) {
	row, ok := t.c.TopicByID(metadata.TopicID(id))
	return groupTopic(row), ok
}

func (t clusterTopics) Deleted(id [16]byte) bool {
	_, ok := t.c.TopicByID(metadata.TopicID(id))
	return !ok
}

func (t clusterTopics) Names() []string {
	var names []string
	for _, row := range t.c.Topics() {
		names = append(names, row.Name)
	}
	return names
}

func groupTopic(row *metadata.Topic) group.Topic {
	if row == nil {
		return group.Topic{}
	}
	return group.Topic{Name: row.Name, ID: row.ID, Partitions: int32(len(row.Shards))}
}

func (f *fakeCoordinators) Slots() []uint32 { return []uint32{0} }

func (f *fakeCoordinators) SubmitSlot(_ uint32, c group.Call) *kerr.Error { return f.Submit("", c) }

func (f *fakeCoordinators) Submit(_ string, c group.Call) *kerr.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return f.refuse
	}
	if f.held {
		f.calls = append(f.calls, c)
		return nil
	}
	f.c.Handle(f.now, c)
	f.settle()
	return nil
}

// settle writes what is to be written and fires what is due.
func (f *fakeCoordinators) settle() {
	for {
		writes := f.c.Writes()
		for _, w := range writes {
			f.c.Written(w.Number)
		}
		due, ok := f.c.Deadline()
		if ok && due <= f.now {
			f.c.Tick(f.now)
		} else if len(writes) == 0 {
			return
		}
	}
}

// startGroups starts a server whose groups live in a real coordinator.
func startGroups(t *testing.T) (*testServer, *fakeCoordinators, *wire) {
	t.Helper()
	cluster := newFakeCluster(2)
	s := startServer(t, cluster, nil)
	create(t, s, "orders", 3, nil)
	return s, cluster.coordinators, dial(t, s.addr)
}

func joinRequest(version int16, groupID, member string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID = version, groupID, member
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 30_000, 60_000, "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte("subscription")
	req.Protocols = append(req.Protocols, p)
	return req
}

// joinAlone makes a group of one member, in its first generation, synced.
func joinAlone(t testing.TB, w *wire, groupID string) (member string, generation int32) {
	t.Helper()
	resp := ask[*kmsg.JoinGroupResponse](w, joinRequest(5, groupID, ""))
	if resp.ErrorCode != kerr.MemberIDRequired.Code || resp.MemberID == "" {
		t.Fatalf("first join: expected MEMBER_ID_REQUIRED and an id, found %+v", resp)
	}
	resp = ask[*kmsg.JoinGroupResponse](w, joinRequest(5, groupID, resp.MemberID))
	if resp.ErrorCode != 0 || resp.LeaderID != resp.MemberID || len(resp.Members) != 1 {
		t.Fatalf("second join: %+v", resp)
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.Generation, sync.MemberID = 3, groupID, resp.Generation, resp.MemberID
	a := kmsg.NewSyncGroupRequestGroupAssignment()
	a.MemberID, a.MemberAssignment = resp.MemberID, []byte("all of it")
	sync.GroupAssignment = append(sync.GroupAssignment, a)
	if s := ask[*kmsg.SyncGroupResponse](w, sync); s.ErrorCode != 0 || string(s.MemberAssignment) != "all of it" {
		t.Fatalf("sync: %+v", s)
	}
	return resp.MemberID, resp.Generation
}

func commitRequest(version int16, groupID string, row *metadata.Topic, offset int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = version, groupID, -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = row.Name, row.ID
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch = 1, offset, 3
	meta := "note"
	p.Metadata = &meta
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func offsetsRequest(version int16, row *metadata.Topic, groups ...string) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = version
	if version < 8 {
		req.Group = groups[0]
		t := kmsg.NewOffsetFetchRequestTopic()
		t.Topic, t.Partitions = row.Name, []int32{0, 1}
		req.Topics = append(req.Topics, t)
		return req
	}
	for _, g := range groups {
		rg := kmsg.NewOffsetFetchRequestGroup()
		rg.Group = g
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.TopicID, t.Partitions = row.Name, row.ID, []int32{0, 1}
		rg.Topics = append(rg.Topics, t)
		req.Groups = append(req.Groups, rg)
	}
	return req
}

// fetchedOffset finds a group's offset in an answer of any version.
func fetchedOffset(resp *kmsg.OffsetFetchResponse, groupID string, partition int32) (offset int64, code int16) {
	if resp.Version < 8 {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.Partition == partition {
					return p.Offset, p.ErrorCode | resp.ErrorCode
				}
			}
		}
		return -2, resp.ErrorCode
	}
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if g.Group == groupID && p.Partition == partition {
					return p.Offset, p.ErrorCode | g.ErrorCode
				}
			}
		}
	}
	return -2, -2
}

func TestOffsetsAtEveryVersion(t *testing.T) {
	s, _, w := startGroups(t)
	row := topicOf(t, s, "orders")
	for v := int16(2); v <= 10; v++ {
		resp := ask[*kmsg.OffsetCommitResponse](w, commitRequest(v, "g", row, int64(100+v)))
		if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 || p.Partition != 1 {
			t.Errorf("commit v%d: %+v", v, p)
		}
		for fv := int16(1); fv <= 10; fv++ {
			resp := ask[*kmsg.OffsetFetchResponse](w, offsetsRequest(fv, row, "g"))
			if o, c := fetchedOffset(resp, "g", 1); o != int64(100+v) || c != 0 {
				t.Errorf("fetch v%d after commit v%d: offset %d, error %d", fv, v, o, c)
			}
			if o, c := fetchedOffset(resp, "g", 0); o != -1 || c != 0 {
				t.Errorf("fetch v%d of what was never committed: offset %d, error %d", fv, o, c)
			}
		}
	}
	all := kmsg.NewPtrOffsetFetchRequest()
	all.Version, all.Group = 7, "g"
	if o, c := fetchedOffset(ask[*kmsg.OffsetFetchResponse](w, all), "g", 1); o != 110 || c != 0 {
		t.Errorf("all offsets, v7: offset %d, error %d", o, c)
	}
	all.Version = 10
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group = "g"
	all.Groups = append(all.Groups, rg)
	resp := ask[*kmsg.OffsetFetchResponse](w, all)
	if o, c := fetchedOffset(resp, "g", 1); o != 110 || c != 0 || resp.Groups[0].Topics[0].TopicID != row.ID {
		t.Errorf("all offsets, v10: offset %d, error %d, %+v", o, c, resp.Groups)
	}
	for fv := int16(1); fv <= 10; fv++ {
		resp := ask[*kmsg.OffsetFetchResponse](w, offsetsRequest(fv, row, "nobody"))
		if o, c := fetchedOffset(resp, "nobody", 1); o != -1 || c != 0 {
			t.Errorf("fetch v%d of an unknown group: offset %d, error %d", fv, o, c)
		}
	}
}

func TestCommitOfUnknownTopics(t *testing.T) {
	s, _, w := startGroups(t)
	row := topicOf(t, s, "orders")
	for v := int16(2); v <= 10; v++ {
		req := commitRequest(v, "mixed", &metadata.Topic{Name: "nowhere", ID: metadata.TopicID{1}}, 5)
		req.Topics = append(req.Topics, commitRequest(v, "mixed", row, int64(v)).Topics...)
		resp := ask[*kmsg.OffsetCommitResponse](w, req)
		want := kerr.UnknownTopicOrPartition.Code
		if v >= 10 {
			want = kerr.UnknownTopicID.Code
		}
		if c := resp.Topics[0].Partitions[0].ErrorCode; c != want {
			t.Errorf("v%d, unknown topic: expected %d, found %d", v, want, c)
		}
		if c := resp.Topics[1].Partitions[0].ErrorCode; c != 0 {
			t.Errorf("v%d, known topic beside it: error %d", v, c)
		}
		if o, _ := fetchedOffset(ask[*kmsg.OffsetFetchResponse](w, offsetsRequest(8, row, "mixed")), "mixed", 1); o != int64(v) {
			t.Errorf("v%d: the known topic's offset is %d", v, o)
		}
	}
}

func TestOffsetsOfUnknownPartitions(t *testing.T) {
	s, _, w := startGroups(t)
	row := topicOf(t, s, "orders") // of three partitions
	for v := int16(2); v <= 10; v++ {
		req := commitRequest(v, "parts", row, int64(v))
		beyond := req.Topics[0].Partitions[0]
		beyond.Partition = 3
		negative := beyond
		negative.Partition = -1
		req.Topics[0].Partitions = append([]kmsg.OffsetCommitRequestTopicPartition{beyond}, append(req.Topics[0].Partitions, negative)...)
		got := ask[*kmsg.OffsetCommitResponse](w, req).Topics[0].Partitions
		if len(got) != 3 || got[0].Partition != 3 || got[1].Partition != 1 || got[2].Partition != -1 ||
			got[0].ErrorCode != kerr.UnknownTopicOrPartition.Code || got[1].ErrorCode != 0 || got[2].ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("commit v%d: %+v", v, got)
		}
	}
	del := kmsg.NewPtrOffsetDeleteRequest()
	del.Group = "parts"
	rt := kmsg.NewOffsetDeleteRequestTopic()
	rt.Topic = "orders"
	rt.Partitions = []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 3}, {Partition: 1}}
	del.Topics = append(del.Topics, rt)
	resp := ask[*kmsg.OffsetDeleteResponse](w, del)
	codes := map[int32]int16{}
	for _, p := range resp.Topics[0].Partitions {
		codes[p.Partition] = p.ErrorCode
	}
	if len(resp.Topics) != 1 || len(codes) != 2 || codes[3] != kerr.UnknownTopicOrPartition.Code || codes[1] != 0 {
		t.Errorf("delete: %+v", resp)
	}
}

func TestGroupLife(t *testing.T) {
	_, _, w := startGroups(t)
	member, generation := joinAlone(t, w, "life")
	for v := int16(0); v <= 4; v++ {
		hb := kmsg.NewPtrHeartbeatRequest()
		hb.Version, hb.Group, hb.MemberID, hb.Generation = v, "life", member, generation
		if c := ask[*kmsg.HeartbeatResponse](w, hb).ErrorCode; c != 0 {
			t.Errorf("heartbeat v%d: error %d", v, c)
		}
	}
	for v := int16(0); v <= 6; v++ {
		d := kmsg.NewPtrDescribeGroupsRequest()
		d.Version, d.Groups, d.IncludeAuthorizedOperations = v, []string{"life", "nobody", "life"}, true
		resp := ask[*kmsg.DescribeGroupsResponse](w, d)
		if len(resp.Groups) != 2 || resp.Groups[0].State != "Stable" || len(resp.Groups[0].Members) != 1 {
			t.Fatalf("describe v%d: %+v", v, resp.Groups)
		}
		if v >= 3 && resp.Groups[0].AuthorizedOperations != groupOperations {
			t.Errorf("describe v%d: operations %b", v, resp.Groups[0].AuthorizedOperations)
		}
		dead := resp.Groups[1]
		if v == 6 && dead.AuthorizedOperations == groupOperations {
			t.Error("operations on a group that is not there")
		}
		if v < 6 && (dead.ErrorCode != 0 || dead.State != "Dead") || v == 6 && dead.ErrorCode != kerr.GroupIDNotFound.Code {
			t.Errorf("describe v%d of an unknown group: %+v", v, dead)
		}
	}
	for v := int16(0); v <= 5; v++ {
		l := kmsg.NewPtrListGroupsRequest()
		l.Version = v
		if v >= 4 {
			l.StatesFilter = []string{"Stable"}
		}
		resp := ask[*kmsg.ListGroupsResponse](w, l)
		if len(resp.Groups) != 1 || resp.Groups[0].Group != "life" || resp.ErrorCode != 0 {
			t.Errorf("list v%d: %+v", v, resp)
		}
	}
	del := kmsg.NewPtrDeleteGroupsRequest()
	del.Groups = []string{"life", "nobody"}
	if resp := ask[*kmsg.DeleteGroupsResponse](w, del); resp.Groups[0].ErrorCode != kerr.NonEmptyGroup.Code || resp.Groups[1].ErrorCode != kerr.GroupIDNotFound.Code {
		t.Errorf("delete of a group with a member: %+v", resp.Groups)
	}
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Version, leave.Group = 3, "life"
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = member
	leave.Members = append(leave.Members, m)
	if resp := ask[*kmsg.LeaveGroupResponse](w, leave); resp.ErrorCode != 0 || resp.Members[0].ErrorCode != 0 {
		t.Errorf("leave: %+v", resp)
	}
	if resp := ask[*kmsg.DeleteGroupsResponse](w, del); resp.Groups[0].ErrorCode != 0 {
		t.Errorf("delete: %+v", resp.Groups)
	}
}

// groupRequests is one request of each key that a coordinator answers.
func groupRequests(row *metadata.Topic) []kmsg.Request {
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.Version = "g", 1
	hb := kmsg.NewPtrHeartbeatRequest()
	hb.Group = "g"
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group = "g"
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{"g"}
	del := kmsg.NewPtrDeleteGroupsRequest()
	del.Groups = []string{"g"}
	offsets := kmsg.NewPtrOffsetDeleteRequest()
	offsets.Group = "g"
	rt := kmsg.NewOffsetDeleteRequestTopic()
	rt.Topic = row.Name
	offsets.Topics = append(offsets.Topics, rt)
	return []kmsg.Request{
		joinRequest(5, "g", ""), leave, hb, sync, describe, del, offsets,
		commitRequest(5, "g", row, 1), offsetsRequest(1, row, "g"), offsetsRequest(5, row, "g"), offsetsRequest(10, row, "g"),
		kmsg.NewPtrListGroupsRequest(),
	}
}

// sampleGroupRequest is a request that must succeed at any version, for a group
// of its own; nil for other keys.
func sampleGroupRequest(f *fakeCoordinators, key, version int16, row *metadata.Topic) kmsg.Request {
	name := fmt.Sprintf("group-%d-%d", key, version)
	switch key {
	case 8:
		return commitRequest(version, name, row, 5)
	case 9:
		return offsetsRequest(version, row, name)
	case 10:
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey, req.CoordinatorKeys = name, []string{name}
		return req
	case 11:
		// A static member needs no id from v5 on.
		req := joinRequest(version, name, "")
		if version >= 5 {
			req.InstanceID = &name
		}
		if version == 4 {
			req.MemberID = f.ask(joinRequest(4, name, "")).(*kmsg.JoinGroupResponse).MemberID
		}
		return req
	case 15:
		req := kmsg.NewPtrDescribeGroupsRequest()
		return req
	case 16:
		return kmsg.NewPtrListGroupsRequest()
	case 69:
		return kmsg.NewPtrConsumerGroupDescribeRequest()
	case 68:
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.SubscribedTopicNames, req.RebalanceTimeoutMillis = name, "member", []string{row.Name}, 60_000
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		if version == 0 {
			req.MemberID = ""
		}
		return req
	case 12:
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group = name
		req.MemberID, req.Generation = f.member(name)
		return req
	case 13:
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group = name
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID, _ = f.member(name)
		req.MemberID, req.Members = m.MemberID, append(req.Members, m)
		return req
	case 14:
		req := kmsg.NewPtrSyncGroupRequest()
		req.Group = name
		req.MemberID, req.Generation = f.member(name)
		kind, protocol := "consumer", "range"
		req.ProtocolType, req.Protocol = &kind, &protocol
		return req
	case 42:
		f.ask(commitRequest(8, name, row, 5))
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{name}
		return req
	case 47:
		f.ask(commitRequest(8, name, row, 5))
		req := kmsg.NewPtrOffsetDeleteRequest()
		req.Group = name
		rt := kmsg.NewOffsetDeleteRequestTopic()
		rt.Topic = row.Name
		req.Topics = append(req.Topics, rt)
		return req
	}
	return nil
}

// ask calls the coordinator without a server.
func (f *fakeCoordinators) ask(req kmsg.Request) (resp kmsg.Response) {
	f.Submit("", group.Call{Request: req, Reply: func(r kmsg.Response) { resp = r }})
	return resp
}

// member makes a group of one member that is in sync.
func (f *fakeCoordinators) member(groupID string) (id string, generation int32) {
	join := joinRequest(3, groupID, "")
	j := f.ask(join).(*kmsg.JoinGroupResponse)
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.Generation, sync.MemberID = 3, groupID, j.Generation, j.MemberID
	f.ask(sync)
	return j.MemberID, j.Generation
}

// groupError digs the error out of an answer, wherever its version keeps it.
func groupError(resp kmsg.Response) int16 {
	switch r := resp.(type) {
	case *kmsg.JoinGroupResponse:
		return r.ErrorCode
	case *kmsg.SyncGroupResponse:
		return r.ErrorCode
	case *kmsg.HeartbeatResponse:
		return r.ErrorCode
	case *kmsg.LeaveGroupResponse:
		return r.ErrorCode
	case *kmsg.OffsetCommitResponse:
		return r.Topics[0].Partitions[0].ErrorCode
	case *kmsg.OffsetFetchResponse:
		switch {
		case r.Version < 2:
			return r.Topics[0].Partitions[0].ErrorCode
		case r.Version < 8:
			return r.ErrorCode
		}
		return r.Groups[0].ErrorCode
	case *kmsg.DescribeGroupsResponse:
		if len(r.Groups) == 0 {
			return 0
		}
		return r.Groups[0].ErrorCode
	case *kmsg.DeleteGroupsResponse:
		return r.Groups[0].ErrorCode
	case *kmsg.OffsetDeleteResponse:
		return r.ErrorCode
	case *kmsg.ListGroupsResponse:
		return r.ErrorCode
	case *kmsg.FindCoordinatorResponse:
		if r.Version >= 4 {
			return r.Coordinators[0].ErrorCode
		}
		return r.ErrorCode
	case *kmsg.ConsumerGroupHeartbeatResponse:
		return r.ErrorCode
	case *kmsg.ConsumerGroupDescribeResponse:
		return 0
	}
	return -2
}

func TestNoCoordinatorHere(t *testing.T) {
	s, f, w := startGroups(t)
	for _, k := range []*kerr.Error{kerr.NotCoordinator, kerr.CoordinatorLoadInProgress} {
		f.mu.Lock()
		f.refuse = k
		f.mu.Unlock()
		for _, req := range groupRequests(topicOf(t, s, "orders")) {
			want := k.Code
			if req.Key() == 16 && k == kerr.NotCoordinator {
				want = 0 // such a slot's groups are listed elsewhere
			}
			if c := groupError(ask[kmsg.Response](w, req)); c != want {
				t.Errorf("%s v%d: expected %d, found %d", kmsg.NameForKey(req.Key()), req.GetVersion(), want, c)
			}
		}
	}
}

// TestWaitingCallsOfALostConnection: what a client left waiting holds neither
// its connection nor the byte budget once the coordinator answers.
func TestWaitingCallsOfALostConnection(t *testing.T) {
	s, f, w := startGroups(t)
	f.mu.Lock()
	f.held = true
	f.mu.Unlock()
	for _, req := range groupRequests(topicOf(t, s, "orders")) {
		w.send(req)
	}
	total := len(groupRequests(topicOf(t, s, "orders")))
	calls := func() []group.Call {
		f.mu.Lock()
		defer f.mu.Unlock()
		return slices.Clone(f.calls)
	}
	eventually(t, "every call is with the coordinator", func() bool { return len(calls()) == total })
	connections := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns)
	}
	before := connections()
	w.nc.Close()
	eventually(t, "the connection is gone", func() bool { return connections() == before-1 })
	for _, c := range calls() {
		c.Reply(emptyAnswer(c.Request))
	}
	eventually(t, "the byte budget is whole", func() bool {
		whole := s.requestBytes.sem.TryAcquire(s.requestBytes.total)
		if whole {
			s.requestBytes.sem.Release(s.requestBytes.total)
		}
		return whole
	})
}

// emptyAnswer is a response with one entry for what the request names.
func emptyAnswer(req kmsg.Request) kmsg.Response {
	resp := req.ResponseKind()
	switch r := resp.(type) {
	case *kmsg.OffsetCommitResponse:
		r.Topics = append(r.Topics, kmsg.NewOffsetCommitResponseTopic())
	case *kmsg.OffsetFetchResponse:
		r.Groups = append(r.Groups, kmsg.NewOffsetFetchResponseGroup())
	case *kmsg.DescribeGroupsResponse:
		r.Groups = append(r.Groups, kmsg.NewDescribeGroupsResponseGroup())
	case *kmsg.DeleteGroupsResponse:
		r.Groups = append(r.Groups, kmsg.NewDeleteGroupsResponseGroup())
	}
	return resp
}

func TestFindCoordinator(t *testing.T) {
	s, _, w := startGroups(t)
	for v := int16(0); v <= 6; v++ {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorKey, req.CoordinatorKeys = v, "g", []string{"g", "h"}
		resp := ask[*kmsg.FindCoordinatorResponse](w, req)
		if v < 4 {
			if resp.ErrorCode != 0 || resp.NodeID != 1 || resp.Port != int32(s.cluster.Brokers()[0].KafkaPort) {
				t.Errorf("v%d: %+v", v, resp)
			}
			continue
		}
		if len(resp.Coordinators) != 2 || resp.Coordinators[1].Key != "h" || resp.Coordinators[1].NodeID != 1 {
			t.Errorf("v%d: %+v", v, resp)
		}
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorType = 3, 7
	if c := ask[*kmsg.FindCoordinatorResponse](w, req).ErrorCode; c != kerr.InvalidRequest.Code {
		t.Errorf("unknown type: error %d", c)
	}
	req.CoordinatorType = 1
	if c := ask[*kmsg.FindCoordinatorResponse](w, req).ErrorCode; c != 0 {
		t.Errorf("of transactions: error %d", c)
	}
	req.Version, req.CoordinatorType = 6, coordinatorShare
	req.CoordinatorKeys = []string{"g:AAAAAAAAAAAAAAAAAAAAAQ:0", "g:h:AAAAAAAAAAAAAAAAAAAAAQ:7", "g", "g:AAAA:0", " :AAAAAAAAAAAAAAAAAAAAAQ:0", "g:AAAAAAAAAAAAAAAAAAAAAQ:x", ""}
	for i, c := range ask[*kmsg.FindCoordinatorResponse](w, req).Coordinators {
		if want := i >= 2; (c.ErrorCode == kerr.InvalidRequest.Code) != want || !want && c.ErrorCode != 0 {
			t.Errorf("share coordinator of %q: error %d", c.Key, c.ErrorCode)
		}
	}
	req.Version, req.CoordinatorType = 3, coordinatorTxn
	s.cluster.mu.Lock()
	clear(s.cluster.leaders)
	s.cluster.mu.Unlock()
	if resp := ask[*kmsg.FindCoordinatorResponse](w, req); resp.ErrorCode != kerr.CoordinatorNotAvailable.Code || resp.NodeID != -1 {
		t.Errorf("without a leader: %+v", resp)
	}
}

// An error of the group stands for all of its topics, also those of unknown ids.
func TestOffsetFetchOfARefusedMemberNamesNoTopics(t *testing.T) {
	s, _, w := startGroups(t)
	hb := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	hb.Version, hb.Group, hb.MemberID, hb.RebalanceTimeoutMillis = 1, "modern", "member", 60_000
	hb.SubscribedTopicNames, hb.Topics = []string{topicOf(t, s, "orders").Name}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](w, hb); resp.ErrorCode != 0 {
		t.Fatalf("%+v", resp)
	}
	for member, want := range map[string]*kerr.Error{"member": kerr.StaleMemberEpoch, "nobody": kerr.UnknownMemberID} {
		req := kmsg.NewPtrOffsetFetchRequest()
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.MemberID, g.MemberEpoch = "modern", &member, 99
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{TopicID: [16]byte{1}, Partitions: []int32{0}}}
		req.Version, req.Groups = 10, []kmsg.OffsetFetchRequestGroup{g}
		if got := ask[*kmsg.OffsetFetchResponse](w, req).Groups[0]; got.ErrorCode != want.Code || len(got.Topics) != 0 {
			t.Errorf("%s: %+v, expected %s and no topics", member, got, want.Message)
		}
	}
}
