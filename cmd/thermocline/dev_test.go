package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asCommand makes the test's own binary the thermocline command, so that a
// test can start the stack as a process without building anything.
const asCommand = "THERMOCLINE_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// stack is a `thermocline dev` that runs as a child process.
type stack struct {
	cmd   *exec.Cmd
	ready chan struct{}
	ended chan error

	mu  sync.Mutex
	out bytes.Buffer
}

// devPorts are five neighbouring free ports: three for Kafka, HTTP and S3. They
// lie below those that the kernel gives to connections.
func devPorts(t *testing.T) int {
	t.Helper()
	for range 100 {
		first := 10_000 + rand.IntN(20_000)
		if portsFree(first, 5) {
			return first
		}
	}
	t.Fatal("no free ports")
	return 0
}

func portsFree(first, n int) bool {
	for i := range n {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+i))
		if err != nil {
			return false
		}
		defer l.Close()
	}
	return true
}

// devProcess starts the stack below dir, with a relative data directory.
func devProcess(t *testing.T, dir string, port int, args ...string) *stack {
	t.Helper()
	args = append([]string{"dev", "--data-dir", "data", "--port", fmt.Sprint(port), "--http", fmt.Sprintf("127.0.0.1:%d", port+3),
		"--s3", fmt.Sprintf("127.0.0.1:%d", port+4)}, args...)
	s := &stack{cmd: exec.Command(os.Args[0], args...), ready: make(chan struct{}), ended: make(chan error, 1)}
	s.cmd.Dir, s.cmd.Env = dir, append(os.Environ(), asCommand+"=1")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr = w, w
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go s.read(r)
	t.Cleanup(func() { _ = s.cmd.Process.Kill() }) // ended already if all went well
	return s
}

// read collects the output to its end, and then the exit.
func (s *stack) read(r *os.File) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		s.mu.Lock()
		fmt.Fprintln(&s.out, lines.Text())
		s.mu.Unlock()
		if strings.HasPrefix(lines.Text(), "Thermocline is ready") {
			close(s.ready)
		}
	}
	r.Close()
	s.ended <- s.cmd.Wait()
}

func (s *stack) output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// devWithin is far above what a start or a stop takes, on a busy machine too.
const devWithin = time.Minute

func (s *stack) waitReady(t *testing.T) {
	t.Helper()
	select {
	case <-s.ready:
	case err := <-s.ended:
		t.Fatalf("the stack ended: %v\n%s", err, s.output())
	case <-time.After(devWithin):
		t.Fatalf("the stack is not ready after %v\n%s", devWithin, s.output())
	}
}

func (s *stack) waitEnd(t *testing.T) error {
	t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(devWithin):
		t.Fatalf("the stack has not ended after %v\n%s", devWithin, s.output())
		return nil
	}
}

// interrupt presses Ctrl-C and wants a clean end.
func (s *stack) interrupt(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := s.waitEnd(t); err != nil {
		t.Fatalf("after Ctrl-C: expected exit code 0, found %v\n%s", err, s.output())
	}
}

func numbers(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

func TestDevKeepsEverythingOverCtrlCAndKill(t *testing.T) {
	dir, port := t.TempDir(), devPorts(t)
	b := fmt.Sprintf("127.0.0.1:%d", port)
	read := func() string {
		return mustCLI(t, "", "consume", "kept", "-q", "-e", "-f", `%v\n`, "-b", b)
	}

	s := devProcess(t, dir, port)
	s.waitReady(t)
	if store := fmt.Sprintf("minio://127.0.0.1:%d/thermocline/cluster", port+4); !strings.Contains(s.output(), store) {
		t.Fatalf("expected the store's URL %s in\n%s", store, s.output())
	}
	mustCLI(t, "", "topic", "create", "kept", "-p", "1", "-b", b)
	mustCLI(t, numbers(1, 100), "produce", "kept", "-q", "-b", b)
	secondStackFails(t, dir)
	portsTaken(t, port)
	inspectStack(t, filepath.Join(dir, "data"), port)
	s.interrupt(t)
	if strings.Contains(s.output(), "WARN") {
		t.Fatalf("a start or a stop warned of itself:\n%s", s.output())
	}

	s = devProcess(t, dir, port)
	s.waitReady(t)
	if got := read(); got != numbers(1, 100) {
		t.Fatalf("after Ctrl-C: read back %q", got)
	}
	mustCLI(t, numbers(101, 200), "produce", "kept", "-q", "-b", b)
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.waitEnd(t); err == nil {
		t.Fatal("a killed process ended well")
	}

	s = devProcess(t, dir, port)
	s.waitReady(t)
	if got := read(); got != numbers(1, 200) {
		t.Fatalf("after kill -9: read back %q", got)
	}
	s.interrupt(t)

	s = devProcess(t, dir, port, "--fresh")
	s.waitReady(t)
	if out := mustCLI(t, "", "topic", "list", "-b", b); strings.Contains(out, "kept") {
		t.Fatalf("--fresh left a topic: %s", out)
	}
	s.interrupt(t)
}

// secondStackFails: a second stack on the same directory ends at once and says why.
func secondStackFails(t *testing.T, dir string) {
	t.Helper()
	s := devProcess(t, dir, devPorts(t))
	err := s.waitEnd(t)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Fatalf("a second stack on the directory: expected exit code 1, found %v", err)
	}
	if out := s.output(); !strings.Contains(out, "in use by another local stack") || !strings.Contains(out, "--data-dir") {
		t.Fatalf("a second stack on the directory said %q", out)
	}
}

// inspectStack rolls the topic and looks at it in every way that there is.
func inspectStack(t *testing.T, data string, port int) {
	t.Helper()
	b := fmt.Sprintf("127.0.0.1:%d", port)
	var p partitionReport
	inspectJSON(t, &p, "partition", "kept/0", "-b", b)
	if p.HW == nil || *p.HW != 100 || *p.LSO != 100 || *p.LogEnd != 100 || *p.LogStart != 0 {
		t.Fatalf("before the roll: %+v", p)
	}
	mustCLI(t, "", "topic", "roll", "kept", "--wait", "-b", b)
	out := mustCLI(t, "", "inspect", "partition", "kept/0", "-b", b)
	for _, want := range []string{"hot bytes     0\n", "tiered end    100\n", "HW            100\n"} {
		if !strings.Contains(out, want) {
			t.Fatalf("after the roll: expected %q in\n%s", want, out)
		}
	}
	inspectJSON(t, &p, "partition", "kept/0", "-b", b)
	if p.Cold == nil || *p.Cold == 0 || len(p.HotAt) != 3 {
		t.Fatalf("after the roll: %+v", p)
	}
	if out := mustCLI(t, "", "inspect", "wal", filepath.Join(data, "broker1")); !strings.Contains(out, "SHARD") || strings.Contains(out, "DAMAGE") {
		t.Fatalf("inspect wal printed\n%s", out)
	}
	secret, err := os.ReadFile(filepath.Join(data, "s3-secret"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("MINIO_ACCESS_KEY", "thermocline")
	t.Setenv("MINIO_SECRET_KEY", strings.TrimSpace(string(secret)))
	store := fmt.Sprintf("minio://127.0.0.1:%d/thermocline/cluster", port+4)
	_, err = cli(t, "", "inspect", "manifest", "--store", "file://"+filepath.Join(data, "s3"))
	if err == nil || !strings.Contains(err.Error(), "--store minio://") || !strings.Contains(err.Error(), ".seg") {
		t.Fatalf("the S3 server's own directory: expected what to write instead, found %v", err)
	}
	var m manifestReport
	inspectJSON(t, &m, "manifest", "--store", store, "--verify")
	records, key := uint64(0), ""
	for _, s := range m.Shards {
		records += s.Records
		key = s.Segments[0].Key
	}
	if records != 100 {
		t.Fatalf("the bucket's segments: expected 100 records, found %d: %+v", records, m.Shards)
	}
	if out := mustCLI(t, "", "inspect", "segment", key, "--store", store); !strings.Contains(out, "kept/0") {
		t.Fatalf("inspect segment printed\n%s", out)
	}
	mustCLI(t, "", "inspect", "manifest", filepath.Join(data, "broker1"), "--store", store)
}

func inspectJSON(t *testing.T, v any, args ...string) {
	t.Helper()
	out := mustCLI(t, "", append([]string{"inspect", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
}

// portsTaken: a stack in another directory says which flags give it other ports.
func portsTaken(t *testing.T, port int) {
	t.Helper()
	s := devProcess(t, t.TempDir(), port)
	if err := s.waitEnd(t); err == nil {
		t.Fatal("a second stack on the same ports ended well")
	}
	for _, want := range []string{"--port", "--http", "--s3"} {
		if !strings.Contains(s.output(), want) {
			t.Fatalf("a second stack on the same ports: expected %s in %q", want, s.output())
		}
	}
}

func TestDevChecksItsFlagsFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--brokers", "2"}, "--brokers"},
		{[]string{"--brokers", "100"}, "--brokers"},
		{[]string{"--port", "70000"}, "--port"},
		{[]string{"--s3", "9645"}, "--s3"},
		{[]string{"--http", "here"}, "--http"},
		{[]string{"--set", "wal.max.byte=1GiB"}, "wal.max.bytes"},
	} {
		if _, err := cli(t, "", append([]string{"dev", "--data-dir", dir}, tc.args...)...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: want an error with %q, got %v", tc.args, tc.want, err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data directory was touched: %v", err)
	}
}
