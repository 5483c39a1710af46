package sim

import (
	"bytes"
	"fmt"
	"strings"
)

// liveness ends the faults and demands progress: every producer gets its
// batches and a new one acknowledged, every replica comes to the same state,
// and everything that was acknowledged can be read on each.
func (w *world) liveness() {
	w.calm = true
	w.net.cut = [nodes][nodes]bool{}
	w.log("calm")
	for _, n := range w.nodes {
		n.slow, n.failIn = false, 0
		if n.up && n.log.Err() != nil {
			n.crash(false)
		}
		if !n.up {
			n.gen++
			n.restart()
		}
	}
	acked := make([]int, len(w.clients))
	for i, c := range w.clients {
		acked[i] = c.acked
	}
	end := w.now + livenessMax
	progress := func() bool {
		for i, c := range w.clients {
			if c.idempotent && c.acked < acked[i]+3 {
				return false
			}
		}
		return true
	}
	w.runUntil(func() bool { return progress() || w.now > end })
	if !progress() {
		w.violate("liveness", "no progress within %d s of calm: %s", livenessMax/second, w.stuck())
	}
	w.quiet = true
	w.runUntil(func() bool { return w.converged() || w.now > end })
	if !w.converged() {
		w.violate("liveness", "replicas do not come together within %d s of calm: %s", livenessMax/second, w.stuck())
	}
	for _, n := range w.nodes {
		for _, r := range n.reps {
			w.checkCover(r, n.gen)
			w.checkHW(r.sm)
			w.model[r.shard].compareNow(r)
			w.model[r.shard].checkSlot(r.set.Slot(slotOf), slotKept, fmt.Sprintf("node %d at the end", n.index))
		}
	}
	w.checkAllAcked()
	w.checkScan()
}

// converged: no producer waits, and every replica has applied everything and
// knows it to be acknowledged.
func (w *world) converged() bool {
	for _, c := range w.clients {
		if c.idempotent && len(c.window) > 0 {
			return false
		}
	}
	if w.plan.loseEvery > 0 && !w.whole() {
		return false
	}
	for s := range shards {
		for _, n := range w.nodes {
			r := n.reps[s]
			if !n.up || r.core.Applied() != w.model[s].last || r.core.HW() != w.model[s].last || len(r.pending) > 0 {
				return false
			}
		}
	}
	return true
}

// stuck describes where everybody is.
func (w *world) stuck() string {
	var b strings.Builder
	for s := range shards {
		p := &w.placed[s]
		fmt.Fprintf(&b, "\nshard %d: committed %d, replicas %v, planned %v, lost %d", s, w.model[s].last, p.conf, p.row().Replacing, len(p.ghosts))
		for _, n := range w.nodes {
			if !n.up {
				fmt.Fprintf(&b, "\n  node %d is down", n.index)
				continue
			}
			st := n.reps[s].core.Status()
			fmt.Fprintf(&b, "\n  node %d: %s term %d ready %v applied %d commit %d hw %d log %d..%d snapshot %d accepting %v draining %v queue %d %s %+v",
				n.index, st.Role, st.Term, st.Ready, st.Applied, st.Commit, st.HW, st.FirstIndex, st.LastIndex, st.SnapshotIndex,
				n.reps[s].core.Accepting(), st.Draining, len(n.reps[s].pending), st.Failed, st.Peers)
		}
	}
	for i, c := range w.clients {
		fmt.Fprintf(&b, "\nclient %d: shard %d pid %d acked %d window %d", i, c.shard, c.pid, c.acked, len(c.window))
	}
	return b.String()
}

// compareNow compares whole states at the end.
func (mo *model) compareNow(r *replica) {
	var buf bytes.Buffer
	if err := r.set.Image().Encode(&buf); err != nil {
		mo.w.violate("state-agrees", "shard %d: encode: %v", mo.shard, err)
	}
	h := stateHash(buf.Bytes())
	if was, ok := mo.images[mo.last]; ok && was != h {
		mo.w.violate("state-agrees", "shard %d index %d: node %d has another state", mo.shard, mo.last, r.node.index)
	}
	mo.images[mo.last] = h
}
