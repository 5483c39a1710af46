package shard

import (
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"thermocline/wal/transport"
)

// TestCommitOnlyMessagesWait: a message that only tells of a commit waits while
// entries are on their way or to be expected, gives way to a better one to the
// same peer, and leaves with the last commit or at the next tick. Everything else
// leaves at once.
func TestCommitOnlyMessagesWait(t *testing.T) {
	var sent []*transport.Message
	r := &Runner{core: &Core{}, c: Config{Send: func(m *transport.Message) { sent = append(sent, m) }}}
	message := func(kind raftpb.MessageType, to uint64, entries int) *transport.Message {
		m := &transport.Message{To: to, Raft: &raftpb.Message{Type: kind.Enum()}}
		for range entries {
			m.Raft.Entries = append(m.Raft.Entries, &raftpb.Entry{})
		}
		return m
	}
	expect := func(what string, want ...*transport.Message) {
		t.Helper()
		if len(sent) != len(want) {
			t.Fatalf("%s: %d messages left, expected %d", what, len(sent), len(want))
		}
		for i, m := range want {
			if sent[i] != m {
				t.Errorf("%s: message %d is %v to %d", what, i, sent[i].Raft.GetType(), sent[i].To)
			}
		}
		sent = nil
	}
	commitTo2, commitTo3 := message(raftpb.MsgApp, 2, 0), message(raftpb.MsgApp, 3, 0)
	entriesTo2, beatTo2 := message(raftpb.MsgApp, 2, 1), message(raftpb.MsgHeartbeat, 2, 0)

	r.core.uncommitted = 1
	r.send([]*transport.Message{commitTo2, commitTo3, beatTo2})
	expect("entries on their way", beatTo2)
	r.send([]*transport.Message{entriesTo2})
	expect("entries to one peer", entriesTo2)
	r.sendHeld()
	expect("a tick", commitTo3)
	r.send([]*transport.Message{commitTo2})
	expect("again")
	r.core.uncommitted = 0
	r.send(nil)
	expect("all is committed", commitTo2)
	r.send([]*transport.Message{commitTo3})
	expect("nothing on its way", commitTo3)

	r.rounds = busyFrom
	r.countRounds()
	r.send([]*transport.Message{commitTo2, commitTo3, entriesTo2})
	expect("entries are to be expected", entriesTo2)
	r.countRounds()
	r.send(nil)
	expect("a tick without proposals", commitTo3)
}
