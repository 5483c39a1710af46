package group

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// worldClient is a consumer of KIP-848 as clients are: it believes what it is
// told, gives up before it takes, and repeats itself when an answer is lost.
type worldClient struct {
	w        *world
	name     string
	instance string
	id       string
	version  int16
	epoch    int32
	names    []string
	regex    string
	assignor string
	tell     bool // it has something to tell: all fields go into the next heartbeat

	owns   map[partition]bool
	giveUp []partition // it was told to, and has not yet
	wait   bool        // an answer is under way
	serial int         // of the call; answers to earlier ones come too late
	gone   bool        // it left or crashed
	away   bool        // a static member that said it will be back
	lost   int         // answers lost in a row

	late    []lateCommit
	beatAt  int64 // when a heartbeat of its was last worked on
	beganAt int64 // when the first heartbeat that it has no answer to was worked on; 0: none
	toldAt  int64 // since when it may have been told to give up something; 0: it was not
	stuck   bool  // it does not give up
	robbed  bool  // a member of the classic protocol has its instance id
	failure error // a rule that was broken
}

func (w *world) join(name string) *worldClient {
	cl := &worldClient{w: w, name: name, version: 1, owns: make(map[partition]bool), names: []string{"a"}, beatAt: w.now}
	w.clients = append(w.clients, cl)
	w.ids++
	cl.id = fmt.Sprintf("%s-%d", name, w.ids)
	return cl
}

// request is the next heartbeat.
func (cl *worldClient) request() *kmsg.ConsumerGroupHeartbeatRequest {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.MemberEpoch = cl.version, "g", cl.id, cl.epoch
	r.RebalanceTimeoutMillis = -1
	if cl.instance != "" {
		r.InstanceID = &cl.instance
	}
	if cl.epoch == 0 || cl.lost > 0 || cl.tell {
		r.RebalanceTimeoutMillis = rebalanceMs
		r.SubscribedTopicNames = append([]string{}, cl.names...)
		r.SubscribedTopicRegex = &cl.regex
		if cl.assignor != "" {
			r.ServerAssignor = &cl.assignor
		}
	}
	r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for p := range cl.owns {
		r.Topics = append(r.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: p.topic, Partitions: []int32{p.index}})
	}
	return r
}

// rebalanceMs is every client's rebalance time-out.
const rebalanceMs = 20_000

// beat sends a heartbeat; lose drops its answer.
func (cl *worldClient) beat(lose bool) {
	r := cl.request()
	cl.wait = true
	cl.serial++
	serial := cl.serial
	cl.w.log("%s beats, epoch %d, %d owned", cl.name, r.MemberEpoch, len(cl.owns))
	cl.touched()
	cl.w.call(r, func(resp kmsg.Response) {
		if serial != cl.serial {
			return
		}
		cl.wait = false
		if lose {
			cl.lost++
			cl.w.log("%s: the answer is lost", cl.name)
			return
		}
		cl.answered(r, resp.(*kmsg.ConsumerGroupHeartbeatResponse))
	})
}

// touched notes that a heartbeat reached the coordinator.
func (cl *worldClient) touched() {
	if cl.w.now >= cl.beatAt+cl.w.o.of("g").SessionTimeout {
		cl.stuck = true // whatever is said to it now, it had its time
	}
	if cl.tooLate(cl.toldAt) {
		cl.stuck = true
	}
	if len(cl.giveUp) == 0 {
		cl.toldAt = 0
	}
	if cl.beganAt == 0 {
		cl.beganAt = cl.w.now
	}
	cl.beatAt = cl.w.now
}

// tooLate tells whether what it was told at a time should be done by now.
func (cl *worldClient) tooLate(at int64) bool { return at != 0 && cl.w.now >= at+rebalanceMs }

// answered believes an answer.
func (cl *worldClient) answered(r *kmsg.ConsumerGroupHeartbeatRequest, resp *kmsg.ConsumerGroupHeartbeatResponse) {
	if resp.ErrorCode != 0 {
		cl.refused(resp)
		return
	}
	began := cl.beganAt
	cl.lost, cl.tell, cl.beganAt = 0, false, 0
	cl.epoch, cl.id = resp.MemberEpoch, *resp.MemberID
	if r.MemberEpoch == 0 {
		cl.stuck, cl.toldAt = false, 0
	}
	cl.w.log("%s is in epoch %d", cl.name, cl.epoch)
	if resp.Assignment == nil {
		return
	}
	want := make(map[partition]bool)
	for _, t := range resp.Assignment.Topics {
		for _, i := range t.Partitions {
			want[partition{t.TopicID, i}] = true
		}
	}
	cl.giveUp = nil
	for p := range cl.owns {
		if !want[p] {
			cl.giveUp = append(cl.giveUp, p)
		}
	}
	for p := range want {
		cl.owns[p] = true
	}
	if len(cl.giveUp) > 0 && cl.toldAt == 0 {
		cl.toldAt = began
	}
	cl.w.log("%s owns %d, gives up %d", cl.name, len(cl.owns), len(cl.giveUp))
}

// refused handles an error.
func (cl *worldClient) refused(resp *kmsg.ConsumerGroupHeartbeatResponse) {
	err := kerr.TypedErrorForCode(resp.ErrorCode)
	cl.w.log("%s: %s", cl.name, err.Message)
	switch err {
	case kerr.NotCoordinator:
		cl.lost++
	case kerr.FencedMemberEpoch, kerr.UnknownMemberID, kerr.FencedInstanceID, kerr.GroupIDNotFound:
		if !cl.hadItComing() {
			cl.failure = fmt.Errorf("%s was fenced without a cause: %s", cl.name, err.Message)
		}
		clear(cl.owns)
		cl.giveUp, cl.epoch, cl.lost, cl.toldAt, cl.beganAt = nil, 0, 0, 0, 0
	case kerr.UnreleasedInstanceID, kerr.GroupMaxSizeReached:
	default:
		cl.failure = fmt.Errorf("%s is answered %s", cl.name, err.Message)
	}
}

// hadItComing: it was silent, too slow to give up, or missed too much.
func (cl *worldClient) hadItComing() bool {
	return cl.stuck || cl.robbed || cl.lost >= 2 || cl.epoch == 0 || cl.tooLate(cl.toldAt) || cl.tooLate(cl.beganAt)
}

// give gives up what it was told to.
func (cl *worldClient) give() {
	for _, p := range cl.giveUp {
		delete(cl.owns, p)
	}
	cl.giveUp = nil
}

// leave says goodbye, for good or (epochLeaveStatic) for now, and does not
// wait for the answer.
func (cl *worldClient) leave(epoch int32) {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.MemberEpoch = cl.version, "g", cl.id, epoch
	if cl.instance != "" {
		r.InstanceID = &cl.instance
	}
	cl.serial++
	clear(cl.owns)
	cl.gone, cl.giveUp, cl.wait = true, nil, false
	cl.w.log("%s leaves with %d", cl.name, epoch)
	cl.w.call(r, func(kmsg.Response) {})
}

// crash falls silent.
func (cl *worldClient) crash() {
	cl.serial++
	cl.gone = true
	cl.w.log("%s crashes", cl.name)
}

// lateCommit is a commit that is under way.
type lateCommit struct {
	id    string
	epoch int32
	p     partition
}

// commit commits a partition that it believed to own; if that is taken, it
// must be the owner.
func (cl *worldClient) commit(l lateCommit) {
	p, epoch := l.p, l.epoch
	t, ok := cl.w.topics.TopicByID(p.topic)
	if !ok {
		return
	}
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.MemberID, r.Generation = 9, "g", l.id, epoch
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = t.Name
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset = p.index, 1
	rt.Partitions = append(rt.Partitions, rp)
	r.Topics = append(r.Topics, rt)
	var owner string
	g := cl.w.group()
	if g != nil && g.owner[p] != nil {
		owner = g.owner[p].id
	}
	if g != nil && g.members[l.id] != nil && g.members[l.id].epoch == epoch && !cl.owns[p] {
		return // a member in its epoch may commit anything, as in Kafka
	}
	id := l.id
	cl.w.call(r, func(resp kmsg.Response) {
		code := resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
		if code == 0 && owner != id {
			cl.failure = fmt.Errorf("%s commits partition %d of %s in epoch %d, which is %q's", id, p.index, t.Name, epoch, owner)
		}
	})
}

// owned lists what it owns, in order.
func (cl *worldClient) owned() []partition {
	var out []partition
	for p := range cl.owns {
		out = append(out, p)
	}
	slices.SortFunc(out, partition.compare)
	return out
}
