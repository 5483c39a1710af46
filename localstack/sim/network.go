package sim

import (
	"bytes"

	"go.etcd.io/raft/v3/raftpb"

	"thermocline/wal"
	"thermocline/wal/shard"
	"thermocline/wal/transport"
)

// network carries frames between nodes, and loses, delays, repeats, reorders
// and damages them as the plan says.
type network struct {
	cut [nodes][nodes]bool
}

// send frames a message at once, as it leaves the node, and schedules its
// arrival.
func (w *world) send(from *replica, m *transport.Message) {
	w.checkSent(from, m)
	w.counts.Messages++
	a, b := from.node.index, indexOf(m.To)
	if m.Snapshot != nil {
		w.sendStream(from, m)
		return
	}
	frame, err := transport.AppendFrame(nil, m)
	for _, p := range m.Payloads {
		if p != nil {
			p.Release()
		}
	}
	if err != nil || w.net.cut[a][b] || uint64(w.nodes[b].id()) != m.To || w.chance(w.plan.loss) {
		w.counts.Lost++
		w.log("lost", uint64(a), uint64(b), uint64(m.Raft.GetType()), m.Raft.GetTerm(), m.Raft.GetIndex())
		if w.rng.IntN(4) == 0 {
			w.unreachable(from, shard.ReplicaID(m.To))
		}
		return
	}
	if w.chance(w.plan.corrupt) && len(m.Payloads) > 0 {
		w.counts.Corrupted++
		frame = bytes.Clone(frame)
		frame[len(frame)-1-w.rng.IntN(min(len(frame)/2, 40))] ^= 1 << w.rng.IntN(8)
	}
	for copies := 1; copies > 0; copies-- {
		if w.chance(w.plan.dup) {
			copies++
			w.counts.Duplicated++
		}
		d := w.between(0, 2)
		if w.chance(w.plan.slowMsg) {
			d += w.between(5, 400)
		}
		w.after(d, func() { w.arrive(a, b, frame) })
	}
}

func (w *world) unreachable(from *replica, to shard.ReplicaID) {
	gen := from.node.gen
	w.after(w.between(1, 20), func() {
		if from.alive(gen) {
			from.core.Unreachable(to)
			w.drain(from)
		}
	})
}

// arrive decodes a frame at its node. Damage that the frame's own checksum
// shows is the transport's to find.
func (w *world) arrive(a, b int, frame []byte) {
	n := w.nodes[b]
	if !n.up || w.net.cut[a][b] {
		return
	}
	in, _, err := transport.DecodeFrame(frame, n.bufs)
	if err != nil || in.To != uint64(n.id()) {
		return
	}
	r := n.reps[in.Shard]
	w.log("deliver", uint64(a), uint64(b)|uint64(in.Shard)<<8, uint64(in.Raft.GetType()), in.Raft.GetTerm(), in.Raft.GetIndex())
	r.core.Step(in)
	w.drain(r)
}

// sendStream writes the stream into a buffer when it leaves; the receiver
// takes it in when it arrives.
func (w *world) sendStream(from *replica, m *transport.Message) {
	gen := from.node.gen
	a, b := from.node.index, indexOf(m.To)
	src := m.Snapshot
	w.after(w.between(1, 60), func() {
		var buf bytes.Buffer
		if !from.alive(gen) {
			src.Close()
			return
		}
		_, err := src.WriteTo(&buf)
		src.Close()
		to := w.nodes[b]
		if err != nil || w.net.cut[a][b] || !to.up || w.chance(w.plan.loss) {
			w.streamDone(from, gen, m.To, errLost)
			return
		}
		w.after(w.between(1, 100), func() { w.takeStream(from, gen, m, buf.Bytes()) })
	})
}

func (w *world) streamDone(from *replica, gen int, to uint64, err error) {
	w.after(w.between(1, 30), func() {
		if from.alive(gen) {
			from.core.SnapshotSent(shard.ReplicaID(to), err)
			w.drain(from)
		}
	})
}

func (w *world) takeStream(from *replica, gen int, m *transport.Message, stream []byte) {
	a, n := from.node.index, w.nodes[indexOf(m.To)]
	if !n.up || uint64(n.id()) != m.To || w.net.cut[a][n.index] {
		w.streamDone(from, gen, m.To, errLost)
		return
	}
	r := n.reps[m.Shard]
	index := m.Raft.GetSnapshot().GetMetadata().GetIndex()
	w.log("stream", uint64(a), uint64(n.index), uint64(m.Shard), index)
	file, err := r.core.BeginReceive(index)
	if err != nil {
		w.streamDone(from, gen, m.To, err)
		return
	}
	sink := shard.StreamSink{
		FS: n.fs, Dir: logDir, File: file, Shard: wal.ShardID(m.Shard),
		Buffers: n.bufs, CheckPayload: checkPayload, StagedBytes: int(w.plan.fileBytes / 16),
		Submit: func(a *wal.Append) error { return n.commitStaged(a) },
	}
	in := &transport.Inbound{Shard: m.Shard, From: m.From, To: m.To, HW: m.HW, Raft: m.Raft}
	rs, err := sink.Receive(bytes.NewReader(stream))
	if err != nil {
		if n.log.Err() == nil {
			w.violate("stream-intact", "node %d shard %d: a whole stream is refused: %v", n.index, m.Shard, err)
		}
		w.streamDone(from, gen, m.To, err)
		return
	}
	done := false
	w.watchStream(from, gen, n, n.gen, m.To, &done)
	rs.Done = func(err error) {
		done = true
		w.counts.Streams++
		w.streamDone(from, gen, m.To, err)
		if err == nil && n.up {
			w.after(0, func() { w.checkCover(r, n.gen) })
		}
	}
	r.core.StepSnapshot(in, rs)
	w.drain(r)
}

// watchStream tells the sender when the receiver is gone, as a broken
// connection would.
func (w *world) watchStream(from *replica, gen int, n *node, ngen int, to uint64, done *bool) {
	w.after(200, func() {
		switch {
		case *done:
		case n.gen != ngen:
			w.streamDone(from, gen, to, errLost)
		default:
			w.watchStream(from, gen, n, ngen, to, done)
		}
	})
}

// checkSent holds what a replica tells others against what is durable there.
func (w *world) checkSent(r *replica, m *transport.Message) {
	raft := m.Raft
	d := &r.durable
	switch raft.GetType() {
	case raftpb.MsgAppResp:
		if !raft.GetReject() && raft.GetIndex() > d.last() && raft.GetIndex() > 1 {
			w.violate("ack-is-durable", "node %d shard %d acknowledges index %d, durable up to %d", r.node.index, r.shard, raft.GetIndex(), d.last())
		}
	case raftpb.MsgVoteResp:
		if !raft.GetReject() && (d.hard.Term < raft.GetTerm() || d.hard.Term == raft.GetTerm() && d.hard.Vote != raft.GetTo()) {
			w.violate("vote-is-durable", "node %d shard %d votes for %d in term %d, durable is term %d vote %d",
				r.node.index, r.shard, raft.GetTo(), raft.GetTerm(), d.hard.Term, d.hard.Vote)
		}
	}
}
