package sim

import (
	"math/rand/v2"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"thermocline/metadata"
	"thermocline/metadata/controller"
	"thermocline/wal"
	"thermocline/wal/shard"
	"thermocline/wal/vfs"
)

// placement is what the metadata store says of a shard, and what of a lost
// replica still counts.
type placement struct {
	// rows are every version of the shard's row, newest last: a broker may act
	// on an old one.
	rows []*metadata.Shard
	// ghosts are the durable logs of replicas that are lost and still in the
	// configuration: what they held was acknowledged with them, and must be on
	// a majority again before they leave it.
	ghosts map[shard.ReplicaID]*durable
	// conf is the newest configuration that any replica has applied.
	conf *raftpb.ConfState
}

func (p *placement) row() *metadata.Shard { return p.rows[len(p.rows)-1] }

// write adds a version of the row, if it was made from the newest one.
func (p *placement) write(s metadata.Shard) bool {
	if s.Revision != p.row().Revision {
		return false
	}
	s.Revision++
	p.rows = append(p.rows, &s)
	return true
}

func idOf(index, disk int) shard.ReplicaID { return shard.ReplicaID(disk*nodes + index + 1) }

// indexOf is the node that a replica lives, or lived, on.
func indexOf(id uint64) int { return int((id - 1) % nodes) }

// drawLosses decides whether the run loses disks, or has logs without room: from a source of its own, so
// that seeds without are the runs that they were before.
func (w *world) drawLosses() {
	r := rand.New(rand.NewPCG(w.o.Seed, 0x6c6f_7365))
	if r.Float64() < 0.25 {
		w.plan.loseEvery = 1200 + r.Int64N(2500)
	}
	if r.Float64() < 0.25 {
		w.plan.logFull = 0.03 * r.Float64()
	}
}

// place writes the first rows.
func (w *world) place() {
	for s := range shards {
		row := &metadata.Shard{ID: metadata.ShardID(s + 1), Home: 0}
		cs := &raftpb.ConfState{}
		for i := range nodes {
			row.Replicas = append(row.Replicas, metadata.Replica{ID: metadata.ReplicaID(idOf(i, 0)), Broker: metadata.BrokerID(i)})
			cs.Voters = append(cs.Voters, uint64(idOf(i, 0)))
		}
		w.placed[s] = placement{rows: []*metadata.Shard{row}, ghosts: map[shard.ReplicaID]*durable{}, conf: cs}
	}
}

// startReplacing starts the controller and the brokers' part in its plans;
// neither ends with the faults.
func (w *world) startReplacing() {
	if w.plan.loseEvery == 0 {
		return
	}
	w.repeat(w.plan.loseEvery, w.loseDisk)
	w.control()
	w.approach()
}

// whole: no replica is being replaced. Only then may another disk be lost: one
// broker at any moment is what is promised.
func (w *world) whole() bool {
	for s := range shards {
		p := &w.placed[s]
		if p.row().Replacing != nil || len(p.ghosts) > 0 || len(p.conf.GetVoters()) != nodes ||
			len(p.conf.GetLearners())+len(p.conf.GetVotersOutgoing()) > 0 {
			return false
		}
		for _, n := range w.nodes {
			if !slices.Contains(p.conf.GetVoters(), uint64(n.id())) {
				return false
			}
		}
	}
	return true
}

// loseDisk takes everything from a node: it comes back as another replica.
func (w *world) loseDisk() {
	n := w.nodes[w.rng.IntN(nodes)]
	if !w.whole() || !n.up {
		return
	}
	w.counts.DisksLost++
	w.log("lose-disk", uint64(n.index), uint64(n.id()))
	old := n.id()
	n.crash(true)
	n.mem = vfs.NewMem(w.rng.Uint64())
	if !w.o.KeepReplicaID {
		n.disk++
	}
	for s, r := range n.reps {
		ghost := r.durable
		w.placed[s].ghosts[old] = &ghost
		n.reps[s] = &replica{node: n, shard: s, empty: true}
	}
}

// control is the controller: it plans, and writes what it planned.
func (w *world) control() {
	w.after(w.between(100, 500), func() {
		var brokers []*metadata.Broker
		for _, n := range w.nodes {
			brokers = append(brokers, &metadata.Broker{ID: metadata.BrokerID(n.index), Replica: metadata.ReplicaID(n.id()), Alive: n.up})
		}
		var rows []*metadata.Shard
		for s := range shards {
			rows = append(rows, w.placed[s].row())
		}
		for _, p := range controller.Replacements(metadata.NewCluster(metadata.ClusterInfo{}, brokers, rows, nil)) {
			next := *p.Shard
			next.Replacing = &p.Replacement
			w.log("plan", uint64(p.Shard.ID), uint64(p.Old.ID), uint64(p.New.ID))
			w.placed[p.Shard.ID-1].write(next)
		}
		w.control()
	})
}

// approach is each leader's part: a step now and then, sometimes by a row that
// is not the newest, and sometimes not told of.
func (w *world) approach() {
	w.after(w.between(50, 300), func() {
		for _, n := range w.nodes {
			for s, r := range n.reps {
				if n.up && r.core.Leadership().Ready {
					w.step(r, s)
				}
			}
		}
		w.approach()
	})
}

func (w *world) step(r *replica, s int) {
	p := &w.placed[s]
	row := p.row()
	if w.chance(0.2) {
		row = p.rows[max(0, len(p.rows)-2)]
	}
	if row.Replacing == nil {
		return
	}
	var target []shard.ReplicaID
	for _, m := range row.Target() {
		target = append(target, shard.ReplicaID(m.ID))
	}
	got := r.core.Approach(target)
	w.log("approach", uint64(r.node.index), uint64(s), got.Match, got.Commit)
	w.drain(r)
	if got.Step != shard.StepDone || w.chance(0.3) {
		return
	}
	done := *row
	done.Replicas, done.Replacing = row.Target(), nil
	if p.write(done) {
		w.counts.Replaced++
		w.log("replaced", uint64(s), uint64(row.Replacing.Old.ID), uint64(row.Replacing.New.ID))
	}
}

// checkPromotion looks at changes of replicas that a leader has just appended:
// who becomes a voter must hold, durably, all that the leader knows to be
// committed at this moment.
func (w *world) checkPromotion(r *replica, a *wal.Append) {
	if w.plan.loseEvery == 0 {
		return
	}
	for i := range a.Entries {
		e := &a.Entries[i]
		if e.Type != uint8(raftpb.EntryConfChangeV2) || len(e.Descriptor) == 0 {
			continue
		}
		st := r.core.Status()
		if st.Leader != r.node.id() || st.Term != e.Term {
			continue
		}
		cc := &raftpb.ConfChangeV2{}
		if err := proto.Unmarshal(e.Descriptor, cc); err != nil {
			w.violate("committed-agrees", "shard %d index %d: change of replicas: %v", r.shard, e.Index, err)
		}
		for _, c := range cc.GetChanges() {
			if c.GetType() != raftpb.ConfChangeAddNode {
				continue
			}
			n := w.nodes[indexOf(c.GetNodeId())]
			has := uint64(0)
			if uint64(n.id()) == c.GetNodeId() {
				has = n.reps[r.shard].durable.last()
			}
			if has < st.Commit {
				w.violate("promoted-has-commit", "shard %d: node %d makes replica %d a voter at index %d, which holds the log up to %d; committed is %d",
					r.shard, r.node.index, c.GetNodeId(), e.Index, has, st.Commit)
			}
		}
	}
}

// configured takes a configuration that a replica is the first to apply.
func (mo *model) configured(r *replica, index uint64) {
	w, p := mo.w, &mo.w.placed[mo.shard]
	cs := r.core.ConfState()
	if w.plan.loseEvery == 0 || proto.Equal(cs, p.conf) {
		return
	}
	w.log("configured", uint64(mo.shard), index, uint64(len(cs.GetVoters())), uint64(len(cs.GetVotersOutgoing())), uint64(len(cs.GetLearners())))
	p.conf = cs
	if len(cs.GetVoters()) < nodes {
		w.violate("quorum-kept", "shard %d index %d: %d voters are left of %d", mo.shard, index, len(cs.GetVoters()), nodes)
	}
	gone := false
	for id := range p.ghosts {
		if !slices.Contains(cs.GetVoters(), uint64(id)) && !slices.Contains(cs.GetVotersOutgoing(), uint64(id)) {
			delete(p.ghosts, id)
			gone = true
		}
	}
	if gone {
		for _, a := range mo.acked {
			mo.checkHeld(a.index, a.term, "when a lost replica leaves, an acknowledged record")
		}
	}
}
