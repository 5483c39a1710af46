package shard

import (
	"bytes"
	"encoding/binary"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"thermocline/wal/transport"
)

// A follower tells how full its broker's log is at the end of the context of
// its heartbeat answers, which Raft must not see: used share in 1/1000, one
// byte of version. The receiver takes it off before it steps the message.
const (
	roomTrailerLen     = 3
	roomTrailerVersion = 1
	// roomHeardTicksFactor: a report counts for this many heartbeat intervals
	// (1 s with heartbeats of 100 ms).
	roomHeardTicksFactor = 10
)

type peerRoom struct {
	used uint16
	tick uint64
}

// SetUsage tells how full this broker's log is, in 1/1000 of its budget.
func (c *Core) SetUsage(permille uint16) { c.usage = permille }

// WorstUsage is the fullest log, in 1/1000, among this replica's and those
// that it has heard from within a second: what the leader's intake goes by.
func (c *Core) WorstUsage() uint16 {
	worst := c.usage
	for _, r := range c.rooms {
		if r.tick+uint64(c.o.HeartbeatTicks*roomHeardTicksFactor) >= c.tick {
			worst = max(worst, r.used)
		}
	}
	return worst
}

func (c *Core) addRoom(m *raftpb.Message) *raftpb.Message {
	m = proto.CloneOf(m)
	b := binary.LittleEndian.AppendUint16(bytes.Clone(m.GetContext()), c.usage)
	m.Context = append(b, roomTrailerVersion)
	return m
}

// takeRoom takes the trailer off; false refuses the message.
func (c *Core) takeRoom(in *transport.Inbound) bool {
	ctx := in.Raft.GetContext()
	n := len(ctx) - roomTrailerLen
	if n != 0 && n != 8 || ctx[n+2] != roomTrailerVersion {
		return false
	}
	if c.rooms == nil {
		c.rooms = map[uint64]peerRoom{}
	}
	c.rooms[in.From] = peerRoom{binary.LittleEndian.Uint16(ctx[n:]), c.tick}
	in.Raft = proto.CloneOf(in.Raft)
	in.Raft.Context = nil
	if n > 0 {
		in.Raft.Context = bytes.Clone(ctx[:n])
	}
	return true
}
