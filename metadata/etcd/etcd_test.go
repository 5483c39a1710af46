package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	local "thermocline/localstack/etcd"
	"thermocline/metadata"
	"thermocline/metadata/etcd"
	"thermocline/metadata/storetest"
)

// bound is far above what a test takes.
const bound = time.Minute

func server(t *testing.T, dir, addr string) *local.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	s, err := local.Start(ctx, local.Config{DataDir: dir, ClientAddr: addr})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

func closing(t *testing.T, c io.Closer) func() {
	return func() {
		t.Helper()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// link is a TCP relay in front of etcd that can be cut.
type link struct {
	l      net.Listener
	target atomic.Pointer[string]
	mu     sync.Mutex
	cut    bool
	conns  map[net.Conn]struct{}
	wg     sync.WaitGroup
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{l: l, conns: map[net.Conn]struct{}{}}
	k.target.Store(&target)
	k.wg.Go(k.accept)
	t.Cleanup(func() {
		_ = l.Close()
		k.Cut(true)
		k.wg.Wait()
	})
	return k
}

func (k *link) accept() {
	for {
		in, err := k.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", *k.target.Load())
		if err != nil || !k.hold(in, out) {
			_ = in.Close()
			if err == nil {
				_ = out.Close()
			}
			continue
		}
		k.wg.Go(func() { k.relay(in, out) })
		k.wg.Go(func() { k.relay(out, in) })
	}
}

func (k *link) hold(conns ...net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range conns {
		if k.cut {
			return false
		}
		k.conns[c] = struct{}{}
	}
	return true
}

func (k *link) relay(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	_, _ = from.Close(), to.Close()
	k.mu.Lock()
	delete(k.conns, from)
	k.mu.Unlock()
}

// Cut ends all connections and refuses new ones, or lets them in again.
func (k *link) Cut(cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut = cut
	if cut {
		for c := range k.conns {
			_ = c.Close()
		}
	}
}

func open(t *testing.T, endpoint, prefix string) *etcd.Store {
	t.Helper()
	s, err := etcd.Open(etcd.Config{Endpoints: []string{endpoint}, Prefix: prefix, CallTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The contract over the network: each part has a prefix and a link of its own.
func TestContract(t *testing.T) {
	t.Parallel() // mostly waiting
	srv := server(t, filepath.Join(t.TempDir(), "etcd"), "127.0.0.1:0")
	t.Cleanup(closing(t, srv))
	n := 0
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		n++
		k := newLink(t, srv.Endpoint())
		s := open(t, k.l.Addr().String(), fmt.Sprintf("/network/%d", n))
		t.Cleanup(closing(t, s))
		return harness(t, srv, s, k.Cut)
	})
}

// The contract inside the server's process, where the store cannot be away alone.
func TestContractInProcess(t *testing.T) {
	t.Parallel() // mostly waiting
	srv := server(t, filepath.Join(t.TempDir(), "etcd"), "")
	t.Cleanup(closing(t, srv))
	n := 0
	storetest.RunWithoutOutage(t, func(t *testing.T) storetest.Harness {
		n++
		s := etcd.New(srv.Client(), etcd.Config{Prefix: fmt.Sprintf("/inside/%d", n)})
		t.Cleanup(closing(t, s))
		return harness(t, srv, s, nil)
	})
}

func harness(t *testing.T, srv *local.Server, s *etcd.Store, outage func(bool)) storetest.Harness {
	client := srv.Client()
	return storetest.Harness{
		Store:  s,
		Outage: outage,
		Expire: func(id metadata.LeaseID) {
			if _, err := client.Revoke(t.Context(), clientv3.LeaseID(id)); err != nil {
				t.Fatal(err)
			}
		},
		Compact: func() {
			r, err := client.Get(t.Context(), "any")
			if err == nil {
				_, err = client.Compact(t.Context(), r.Header.Revision)
			}
			if err != nil {
				t.Fatal(err)
			}
		},
	}
}

// A view, a registration and the controller's office survive that etcd is
// stopped and started again: nothing lapses, and what follows arrives.
func TestRestart(t *testing.T) {
	t.Parallel() // mostly waiting
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	dir := filepath.Join(t.TempDir(), "etcd")
	srv := server(t, dir, "127.0.0.1:0")
	k := newLink(t, srv.Endpoint())
	defer func() {
		k.Cut(true) // or the server waits for the end of watches
		closing(t, srv)()
	}()
	s := open(t, k.l.Addr().String(), "")
	defer closing(t, s)()
	view, err := metadata.OpenView(ctx, s, metadata.ViewOptions{ProbeEvery: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer view.Close()
	reg, err := metadata.Register(ctx, s, metadata.RegisterOptions{Broker: metadata.Broker{ID: 1, Replica: 7}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := reg.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	topic := metadata.Topic{Name: "t", ID: metadata.TopicID{1}, Shards: []metadata.ShardID{1}}
	if _, err := metadata.CreateTopic(ctx, s, topic); err != nil {
		t.Fatal(err)
	}
	waitFor(ctx, t, view, func() bool { return view.Topic("t") != nil && view.Cluster().Alive(1) })

	k.Cut(true)
	closing(t, srv)()
	waitFor(ctx, t, view, func() bool { return !view.Health().Healthy })
	if view.Topic("t") == nil || !view.Cluster().Alive(1) {
		t.Fatal("the view lost its content while etcd is away")
	}
	topic.Name, topic.ID = "u", metadata.TopicID{2}
	if _, err := metadata.CreateTopic(ctx, s, topic); !errors.Is(err, metadata.ErrUnavailable) {
		t.Fatalf("create while etcd is away: expected ErrUnavailable, found %v", err)
	}

	srv = server(t, dir, "127.0.0.1:0")
	endpoint := srv.Endpoint()
	k.target.Store(&endpoint)
	k.Cut(false)
	waitFor(ctx, t, view, func() bool { return view.Health().Healthy })
	if _, err := metadata.CreateTopic(ctx, s, topic); err != nil {
		t.Fatal(err)
	}
	waitFor(ctx, t, view, func() bool { return view.Topic("u") != nil })
	if b := reg.Broker(); b.Epoch != 1 || !view.Cluster().Alive(1) {
		t.Fatalf("registration after the restart: expected the first epoch and alive, found %+v, alive %v", b, view.Cluster().Alive(1))
	}
}

// With three members and all endpoints known, the loss of any one member is
// survived by calls, watches and leases.
func TestMemberLoss(t *testing.T) {
	t.Parallel() // mostly waiting
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	members := map[string]string{}
	var ports []net.Listener
	for i := range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, l)
		members[fmt.Sprint("m", i)] = l.Addr().String()
	}
	var servers []*local.Server
	var endpoints []string
	for i, l := range ports {
		closing(t, l)()
		s, err := local.Start(ctx, local.Config{
			Name: fmt.Sprint("m", i), DataDir: t.TempDir(), ClientAddr: "127.0.0.1:0",
			PeerAddr: l.Addr().String(), InitialCluster: members,
		})
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, s)
		endpoints = append(endpoints, s.Endpoint())
	}
	for _, s := range servers {
		if err := s.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	s, err := etcd.Open(etcd.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	view, err := metadata.OpenView(ctx, s, metadata.ViewOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reg, err := metadata.Register(ctx, s, metadata.RegisterOptions{Broker: metadata.Broker{ID: 1, Replica: 7}})
	if err != nil {
		t.Fatal(err)
	}
	closing(t, servers[0])()
	topic := metadata.Topic{Name: "t", ID: metadata.TopicID{1}, Shards: []metadata.ShardID{1}}
	for {
		if _, err = metadata.CreateTopic(ctx, s, topic); err == nil {
			break
		}
		if !errors.Is(err, metadata.ErrUnavailable) { // an election among the two
			t.Fatal(err)
		}
	}
	waitFor(ctx, t, view, func() bool { return view.Topic("t") != nil && view.Cluster().Alive(1) })
	if err := reg.Close(ctx); err != nil {
		t.Error(err)
	}
	view.Close()
	closing(t, s)()
	closing(t, servers[1])()
	closing(t, servers[2])()
}

func waitFor(ctx context.Context, t *testing.T, v *metadata.View, ok func() bool) {
	t.Helper()
	if err := v.WaitFor(ctx, ok); err != nil {
		t.Fatal(err)
	}
}

func TestOpenNeedsEndpoints(t *testing.T) {
	if s, err := etcd.Open(etcd.Config{}); err == nil {
		closing(t, s)()
		t.Fatal("expected an error")
	}
}
