package etcd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"thermocline/localstack/etcd"
	"thermocline/metadata"
	metadataetcd "thermocline/metadata/etcd"
)

// noLeaks checks goroutines at the test's end. Members of three leave idle
// connections of etcd's own behind in one process, so it is for lone ones.
func noLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func start(ctx context.Context, t *testing.T, c etcd.Config) *etcd.Server {
	t.Helper()
	s, err := etcd.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeServer(t *testing.T, s *etcd.Server) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A lone member is ready at once, keeps its data over a restart, and does not
// let a second one into its directory.
func TestLoneMember(t *testing.T) {
	noLeaks(t)
	ctx := bounded(t)
	dir := filepath.Join(t.TempDir(), "etcd")
	began := time.Now()
	s := start(ctx, t, etcd.Config{DataDir: dir, ClientAddr: "127.0.0.1:0"})
	if err := s.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %v", time.Since(began))
	if _, err := s.Client().Put(ctx, "k", "in-process"); err != nil {
		t.Fatal(err)
	}
	t.Logf("first put after %v", time.Since(began))
	if _, err := etcd.Start(ctx, etcd.Config{DataDir: dir}); !errors.Is(err, etcd.ErrLocked) {
		t.Fatalf("second member on one directory: expected ErrLocked, found %v", err)
	}
	outside, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := outside.Get(ctx, "k")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "in-process" {
		t.Fatalf("get through the endpoint: expected in-process, found %v, %v", got, err)
	}
	if err := outside.Close(); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	closeServer(t, s)
	t.Logf("closed after %v", time.Since(began))

	s = start(ctx, t, etcd.Config{DataDir: dir})
	defer closeServer(t, s)
	if err := s.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	got, err = s.Client().Get(ctx, "k")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "in-process" {
		t.Fatalf("get after restart: expected in-process, found %v, %v", got, err)
	}
	if s.Endpoint() != "" {
		t.Fatalf("endpoint without a client address: expected none, found %q", s.Endpoint())
	}
}

// childDir, when set, makes this binary the process that TestKilled kills.
const childDir = "THERMOCLINE_TEST_ETCD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := writeForEver(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeForEver counts up in one row and prints each number once it is acked.
func writeForEver(dir string) error {
	ctx := context.Background()
	s, err := etcd.Start(ctx, etcd.Config{DataDir: dir})
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		if _, err := s.Client().Put(ctx, "n", strconv.Itoa(n)); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// After kill -9 everything that was acked is there, and the lock is free.
func TestKilled(t *testing.T) {
	ctx := bounded(t)
	dir := filepath.Join(t.TempDir(), "etcd")
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), childDir+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	acked := -1
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if acked, err = strconv.Atoi(lines.Text()); err != nil {
			t.Fatal(err)
		}
		if acked == 100 {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := child.Wait(); err == nil || acked < 100 {
		t.Fatalf("child: expected it killed after 100 numbers, found %d, %v", acked, err)
	}
	s := start(ctx, t, etcd.Config{DataDir: dir})
	defer closeServer(t, s)
	if err := s.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	got, err := s.Client().Get(ctx, "n")
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("get after kill -9: %v, %v", got, err)
	}
	if n, err := strconv.Atoi(string(got.Kvs[0].Value)); err != nil || n < acked {
		t.Fatalf("after kill -9: expected %d or more, found %q", acked, got.Kvs[0].Value)
	}
}

// freePorts reserves n ports for a moment: members must know them beforehand.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var addrs []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// Three members may come one after the other: the first says whom it misses,
// two serve, and the loss of one of three is survived.
func TestThreeMembersOneAfterTheOther(t *testing.T) {
	ctx := bounded(t)
	addrs := freePorts(t, 3)
	members := map[string]string{"m1": addrs[0], "m2": addrs[1], "m3": addrs[2]}
	dir := t.TempDir()
	member := func(i int) *etcd.Server {
		return start(ctx, t, etcd.Config{
			Name: fmt.Sprintf("m%d", i+1), DataDir: filepath.Join(dir, fmt.Sprint(i)),
			PeerAddr: addrs[i], InitialCluster: members,
		})
	}
	first := member(0)
	select {
	case <-first.Ready():
		t.Fatal("one of three members serves alone")
	default:
	}
	if got := first.Missing(ctx); len(got) != 2 || got[0] != "m2="+addrs[1] || got[1] != "m3="+addrs[2] {
		t.Fatalf("missing peers: expected m2 and m3, found %v", got)
	}
	second := member(1)
	if err := errors.Join(first.WaitReady(ctx), second.WaitReady(ctx)); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Client().Put(ctx, "k", "by two"); err != nil {
		t.Fatal(err)
	}
	third := member(2)
	defer closeServer(t, third)
	defer closeServer(t, second)
	if err := third.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	closeServer(t, first)
	got, err := third.Client().Get(ctx, "k")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "by two" {
		t.Fatalf("get from the third member: expected 'by two', found %v, %v", got, err)
	}
}

// A member that lost its data takes its place anew, and then another one may go.
func TestMemberWithoutItsData(t *testing.T) {
	ctx := bounded(t)
	addrs := freePorts(t, 6)
	members := map[string]string{"m1": addrs[0], "m2": addrs[1], "m3": addrs[2]}
	dir := t.TempDir()
	data := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
	member := func(i int) *etcd.Server {
		return start(ctx, t, etcd.Config{
			Name: fmt.Sprintf("m%d", i+1), DataDir: data(i), PeerAddr: addrs[i], ClientAddr: addrs[3+i], InitialCluster: members,
		})
	}
	all := []*etcd.Server{member(0), member(1), member(2)}
	for _, s := range all {
		if err := s.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := all[0].Client().Put(ctx, "k", "before"); err != nil {
		t.Fatal(err)
	}
	for _, lost := range []int{2, 0} { // one after the other, each time with the rest alive
		closeServer(t, all[lost])
		if err := os.RemoveAll(data(lost)); err != nil {
			t.Fatal(err)
		}
		all[lost] = member(lost)
		if err := all[lost].WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		got, err := all[lost].Client().Get(ctx, "k")
		if err != nil || len(got.Kvs) != 1 {
			t.Fatalf("get from the new member: %v, %v", got, err)
		}
	}
	list, err := all[1].Client().MemberList(ctx)
	if err != nil || len(list.Members) != 3 {
		t.Fatalf("members: %v, %v", list, err)
	}
	closeServer(t, all[1])
	if _, err := all[2].Client().Put(ctx, "k", "by the two new ones"); err != nil {
		t.Fatal(err)
	}
	// A restart with data is an ordinary one.
	closeServer(t, all[2])
	all[2] = member(2)
	if err := all[2].WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	closeServer(t, all[2])
	closeServer(t, all[0])
}

// A member that never became ready can still be closed, also one that would
// have listened for clients.
func TestCloseBeforeReady(t *testing.T) {
	noLeaks(t)
	ctx := bounded(t)
	addrs := freePorts(t, 3)
	s := start(ctx, t, etcd.Config{
		Name: "m1", DataDir: t.TempDir(), PeerAddr: addrs[0], ClientAddr: "127.0.0.1:0",
		InitialCluster: map[string]string{"m1": addrs[0], "m2": addrs[1], "m3": addrs[2]},
	})
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := s.WaitReady(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("wait for a quorum that is not there: expected a deadline, found %v", err)
	}
	store := metadataetcd.New(s.Client(), metadataetcd.Config{CallTimeout: 50 * time.Millisecond})
	if _, err := store.Get(ctx, "k"); !errors.Is(err, metadata.ErrUnavailable) {
		t.Fatalf("get without a quorum: expected ErrUnavailable, found %v", err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	closeServer(t, s)
}

func TestConfigIsChecked(t *testing.T) {
	ctx := bounded(t)
	bad := map[string]etcd.Config{
		"no directory":   {},
		"not a member":   {DataDir: t.TempDir(), Name: "m9", InitialCluster: map[string]string{"m1": "127.0.0.1:1"}},
		"no port":        {DataDir: t.TempDir(), PeerAddr: "127.0.0.1"},
		"too many":       {DataDir: t.TempDir(), Name: "a", InitialCluster: map[string]string{"a": "h:1", "b": "h:2", "c": "h:3", "d": "h:4"}},
		"no client port": {DataDir: t.TempDir(), ClientAddr: "localhost"},
	}
	for name, c := range bad {
		t.Run(name, func(t *testing.T) {
			if s, err := etcd.Start(ctx, c); err == nil {
				closeServer(t, s)
				t.Fatalf("expected an error for %+v", c)
			}
		})
	}
}
