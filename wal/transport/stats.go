package transport

import (
	"cmp"
	"slices"
	"sync/atomic"
)

// PeerStats are one peer's counters since the start.
type PeerStats struct {
	Replica                     uint64
	BytesOut, BytesIn           uint64
	FramesOut, FramesIn         uint64
	Drops                       uint64 // messages that were not sent
	Connects, ConnectFailures   uint64 // of ours to the peer
	Accepts                     uint64 // of the peer's to us
	QueuedBytes, QueuedMessages int64  // now, both lanes
}

// Stats is a snapshot of the transport's counters; peers are in order of replica.
type Stats struct {
	Peers []PeerStats
	// Refused counts connections turned away in the handshake.
	Refused uint64
	// BadFrames counts connections closed for what came over them.
	BadFrames uint64
	// SnapshotsSent, SnapshotsReceived and their failures count whole streams.
	SnapshotsSent, SnapshotSendFailures        uint64
	SnapshotsReceived, SnapshotReceiveFailures uint64
}

type peerCounters struct {
	bytesOut, bytesIn, framesOut, framesIn atomic.Uint64
	drops, connects, failures, accepts     atomic.Uint64
}

type counters struct {
	refused, badFrames       atomic.Uint64
	snapsOut, snapsOutFailed atomic.Uint64
	snapsIn, snapsInFailed   atomic.Uint64
}

// Stats returns the counters as they are now.
func (t *Transport) Stats() Stats {
	s := Stats{
		Refused: t.count.refused.Load(), BadFrames: t.count.badFrames.Load(),
		SnapshotsSent: t.count.snapsOut.Load(), SnapshotSendFailures: t.count.snapsOutFailed.Load(),
		SnapshotsReceived: t.count.snapsIn.Load(), SnapshotReceiveFailures: t.count.snapsInFailed.Load(),
	}
	t.mu.Lock()
	peers := make([]*peer, 0, len(t.peers))
	for _, p := range t.peers {
		peers = append(peers, p)
	}
	t.mu.Unlock()
	for _, p := range peers {
		c := &p.count
		ps := PeerStats{
			Replica: p.replica, BytesOut: c.bytesOut.Load(), BytesIn: c.bytesIn.Load(),
			FramesOut: c.framesOut.Load(), FramesIn: c.framesIn.Load(), Drops: c.drops.Load(),
			Connects: c.connects.Load(), ConnectFailures: c.failures.Load(), Accepts: c.accepts.Load(),
		}
		for _, l := range p.lanes {
			messages, bytes := l.queued()
			ps.QueuedMessages += int64(messages)
			ps.QueuedBytes += int64(bytes)
		}
		s.Peers = append(s.Peers, ps)
	}
	slices.SortFunc(s.Peers, func(a, b PeerStats) int { return cmp.Compare(a.Replica, b.Replica) })
	return s
}
