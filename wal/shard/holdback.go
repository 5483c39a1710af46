package shard

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"thermocline/wal/transport"
)

// busyFrom is how many rounds of proposals in a tick make a shard a busy one,
// whose next entries are expected within a tick.
const busyFrom = 2

// send passes the core's messages on, but for those that tell a follower of a
// new commit index and nothing else while more entries are on their way, or to
// be expected: the next entries' message tells it as well. Each costs a frame,
// and an answer, for each follower: as many as the messages with entries do.
// Nobody's ack waits for them; a follower's own readers wait until the next
// message, at most a tick.
func (r *Runner) send(ms []*transport.Message) {
	for _, m := range ms {
		if m.Raft.GetType() == raftpb.MsgApp {
			r.held = slices.DeleteFunc(r.held, func(h *transport.Message) bool { return h.To == m.To })
		}
		if tellsCommit(m) && r.expectsEntries() {
			r.held = append(r.held, m)
			continue
		}
		r.c.Send(m)
	}
	if !r.expectsEntries() {
		r.sendHeld()
	}
}

func (r *Runner) expectsEntries() bool { return r.busy || r.core.uncommitted > 0 }

// countRounds ends a tick's count of proposals.
func (r *Runner) countRounds() {
	r.busy, r.rounds = r.rounds >= busyFrom, 0
}

func tellsCommit(m *transport.Message) bool {
	return m.Raft.GetType() == raftpb.MsgApp && len(m.Raft.GetEntries()) == 0
}

// sendHeld sends what was held back.
func (r *Runner) sendHeld() {
	for _, m := range r.held {
		r.c.Send(m)
	}
	clear(r.held)
	r.held = r.held[:0]
}
