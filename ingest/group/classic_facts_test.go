package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// facts is what all clients together have been told: the slow model that
// answers are held against.
type facts struct {
	offset     int64
	commits    [worldPartitions][]*offsetOp
	generation int32 // the newest that anyone was told
	leaders    map[int32]string
	owners     map[ownerKey]string
	left       map[string]bool // members that were told that they have left
	joins      map[string]*joinFact
}

type ownerKey struct {
	generation, partition int32
}

// joinFact is a member's newest join.
type joinFact struct {
	waits      bool
	generation int32 // that it was told
}

// offsetOp changes an offset; the order of ops is that in which the
// Coordinator was given them. Its fate is open until it is answered, and
// stays so when the Coordinator was unloaded.
type offsetOp struct {
	value int64
	fate  fate
}

type fate int

const (
	fateOpen fate = iota
	fateDone
	fateRefused
)

func newFacts() facts {
	return facts{leaders: map[int32]string{}, owners: map[ownerKey]string{}, left: map[string]bool{}, joins: map[string]*joinFact{}}
}

func (f *facts) nextOffset() int64 { f.offset++; return f.offset }

func (f *facts) begin(p int32, value int64) *offsetOp {
	op := &offsetOp{value: value}
	f.commits[p] = append(f.commits[p], op)
	return op
}

// finish notes an answer: unloading says NOT_COORDINATOR (16).
func (op *offsetOp) finish(code int16) {
	switch code {
	case 0:
		op.fate = fateDone
	case 16:
	default:
		op.fate = fateRefused
	}
}

// candidates tells what a fetch that is handed in now may find, once it is answered.
func (f *facts) candidates(p int32) func() []int64 {
	before := f.commits[p][:len(f.commits[p]):len(f.commits[p])]
	return func() []int64 {
		var out []int64
		for i := len(before) - 1; i >= 0; i-- {
			switch before[i].fate {
			case fateDone:
				return append(out, before[i].value)
			case fateOpen:
				out = append(out, before[i].value)
			}
		}
		return append(out, -1)
	}
}

// restart: the group was deleted while it had no members; generations begin
// anew with other members.
func (f *facts) restart(w *classicWorld) {
	for _, cl := range w.clients {
		if !cl.zombie && len(cl.owned) > 0 {
			w.fail("the group is deleted, and client %d owns %v", cl.n, cl.owned)
		}
	}
	f.generation, f.leaders, f.owners = 0, map[int32]string{}, map[ownerKey]string{}
}

// joined takes a generation that a member was told.
func (f *facts) joined(w *classicWorld, resp *kmsg.JoinGroupResponse, handled int32) {
	if resp.Generation < handled {
		w.fail("member %s is told generation %d, and %d was told before it asked", resp.MemberID, resp.Generation, handled)
	}
	f.generation = max(f.generation, resp.Generation)
	if resp.SkipAssignment {
		return // a static leader came back: its id is new, the generation is not
	}
	if l, ok := f.leaders[resp.Generation]; ok && l != resp.LeaderID && len(resp.Members) > 0 {
		w.fail("generation %d is led by %s and by %s", resp.Generation, l, resp.LeaderID)
	}
	if len(resp.Members) > 0 {
		f.leaders[resp.Generation] = resp.LeaderID
	}
	f.joins[resp.MemberID] = &joinFact{generation: resp.Generation}
	for _, m := range resp.Members {
		if j := f.joins[m.MemberID]; m.InstanceID == nil && (j == nil || !j.waits && j.generation != resp.Generation) {
			w.fail("the leader of generation %d is told of %s, which did not join it", resp.Generation, m.MemberID)
		}
	}
}

// owner notes who may commit a partition in a generation: one member only.
func (f *facts) owner(w *classicWorld, generation, partition int32, member string) {
	k := ownerKey{generation, partition}
	if o, ok := f.owners[k]; ok && o != member {
		w.fail("partition %d is %s's and %s's in generation %d", partition, o, member, generation)
	}
	f.owners[k] = member
}
