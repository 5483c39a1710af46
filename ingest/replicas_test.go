package ingest

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"thermocline/ingest/partition"
	"thermocline/metadata"
	"thermocline/wal"
	"thermocline/wal/shard"
	"thermocline/wal/transport"
	"thermocline/wal/vfs"
)

// realReplica is one replica of shard 1 as a broker has it: runner, state, log
// and transport, over a file system in memory.
type realReplica struct {
	*shard.Runner
	fs     *vfs.Mem
	set    *partition.Set
	writer *wal.Writer
	peers  *transport.Transport
	bufs   *shard.Buffers
	// ready is closed once there is a runner for what comes over the transport.
	ready chan struct{}
}

func (r *realReplica) State() *partition.Set { return r.set }

func (r *realReplica) Follows(metadata.ReplicaID) bool { return r.Leadership().Ready }

// The transport's handler.

func (r *realReplica) Receive(in *transport.Inbound) {
	<-r.ready
	r.Runner.Receive(in)
}

func (r *realReplica) ReceiveSnapshot(in *transport.Inbound, from io.Reader) error {
	<-r.ready
	return r.Runner.ReceiveSnapshot(in, from)
}

func (r *realReplica) Unreachable(_ uint32, to uint64) {
	<-r.ready
	r.Runner.Unreachable(shard.ReplicaID(to))
}

func (r *realReplica) SnapshotSent(_ uint32, to uint64, err error) {
	<-r.ready
	r.Runner.SnapshotSent(shard.ReplicaID(to), err)
}

// realReplicas are the replicas of one shard, with loopback between them; the
// server under test has the one that leads.
type realReplicas struct {
	t      testing.TB
	all    []*realReplica
	leader *realReplica
}

func (r *realReplicas) Replica(metadata.ShardID) (Replica, bool) { return r.leader, true }

// realTail is the tail cache of a replica: what a warm one holds.
const realTail = 8 << 20

// startReplicas starts n replicas, each with a log of one file of fileBytes
// that is written ahead, and waits until one leads.
func startReplicas(t testing.TB, n int, fileBytes int64) *realReplicas {
	t.Helper()
	rs := &realReplicas{t: t}
	var listeners []net.Listener
	var voters []shard.ReplicaID
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners, voters = append(listeners, l), append(voters, shard.ReplicaID(i+1))
	}
	resolve := func(replica uint64) (string, bool) { return listeners[replica-1].Addr().String(), true }
	for i, l := range listeners {
		rs.all = append(rs.all, rs.open(l, resolve, voters[i], fileBytes))
	}
	rs.filled(1)
	for i, r := range rs.all {
		rs.start(r, voters[i], voters)
	}
	t.Cleanup(rs.close)
	eventually(t, "a replica leads", func() bool {
		for _, r := range rs.all {
			if r.Leadership().Ready {
				rs.leader = r
			}
		}
		return rs.leader != nil
	})
	return rs
}

// filled waits until each log has had n files written ahead.
func (rs *realReplicas) filled(n int64) {
	for _, r := range rs.all {
		eventually(rs.t, "a file of the log is written ahead", func() bool { return r.writer.Stats().Filled >= n })
	}
}

func (rs *realReplicas) open(l net.Listener, resolve transport.Resolver, id shard.ReplicaID, fileBytes int64) *realReplica {
	r := &realReplica{
		fs: vfs.NewMem(uint64(id)), set: partition.NewSet(partition.Options{Shard: 1}),
		bufs: shard.NewBuffers(16<<20, false), ready: make(chan struct{}),
	}
	log, _, err := wal.Open(r.fs, "wal", wal.Options{FileBytes: fileBytes, MaxBytes: 16 * fileBytes, FillPerSecond: 1 << 40})
	if err != nil {
		rs.t.Fatal(err)
	}
	r.writer = wal.NewWriter(log)
	r.peers, err = transport.New(transport.Options{ClusterID: "c", Replica: uint64(id), Listener: l, Resolve: resolve, Handler: r, Buffers: r.bufs})
	if err != nil {
		rs.t.Fatal(err)
	}
	return r
}

func (rs *realReplicas) start(r *realReplica, id shard.ReplicaID, voters []shard.ReplicaID) {
	var err error
	r.Runner, err = shard.NewRunner(shard.Config{
		Core: shard.Options{
			Shard: 1, ID: id, CacheBytes: realTail, StateMachine: r.set, CheckPayload: partition.CheckPayload, Buffers: r.bufs,
		},
		Log: r.writer, FS: r.fs, Dir: "wal", Voters: voters,
		NewStateMachine: func() shard.StateMachine { return partition.NewSet(partition.Options{Shard: 1}) },
		Send:            r.peers.Send,
	})
	if err != nil {
		rs.t.Fatal(err)
	}
	close(r.ready)
}

func (rs *realReplicas) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, r := range rs.all {
		if err := r.Runner.Close(ctx); err != nil {
			rs.t.Error(err)
		}
	}
	for _, r := range rs.all {
		if err := r.peers.Close(); err != nil {
			rs.t.Error(err)
		}
		if err := r.writer.Close(); err != nil {
			rs.t.Error(err)
		}
	}
}

// level waits until every replica has applied what the leader has.
func (rs *realReplicas) level() {
	applied := func(r *realReplica) uint64 {
		st, err := r.Status(context.Background())
		if err != nil {
			rs.t.Fatal(err)
		}
		return st.Applied
	}
	eventually(rs.t, "the replicas are level", func() bool {
		for _, r := range rs.all {
			if applied(r) != applied(rs.leader) {
				return false
			}
		}
		return true
	})
}

// command proposes one command to the leader and waits for its outcome.
func (rs *realReplicas) command(cmd any) {
	rs.t.Helper()
	done := make(chan shard.Outcome, 1)
	if !rs.leader.Propose(&shard.Proposal{Commands: []any{cmd}, Acks: shard.AcksAll, Done: func(o []shard.Outcome) { done <- o[0] }}) {
		rs.t.Fatal("the leader takes no command")
	}
	if o := <-done; o.Err != nil {
		rs.t.Fatal(o.Err)
	}
}
