package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// reading is a `consume` that runs beside the test.
type reading struct {
	stop  context.CancelFunc
	lines chan string // what it writes to its output; closed at its end
	ended chan error

	mu  sync.Mutex
	err bytes.Buffer
}

// Write collects what the command says on standard error.
func (r *reading) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err.Write(b)
}

func (r *reading) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err.String()
}

func startReading(t *testing.T, args ...string) *reading {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &reading{stop: stop, lines: make(chan string, 100_000), ended: make(chan error, 1)}
	pr, pw := io.Pipe()
	cmd := root()
	cmd.SetOut(pw)
	cmd.SetErr(r)
	cmd.SetArgs(append([]string{"consume"}, args...))
	go func() { // ends with the command
		err := cmd.ExecuteContext(ctx)
		pw.CloseWithError(io.EOF)
		r.ended <- err
	}()
	go func() { // ends with the pipe
		for lines := bufio.NewScanner(pr); lines.Scan(); {
			r.lines <- lines.Text()
		}
		close(r.lines)
	}()
	t.Cleanup(stop)
	return r
}

func (r *reading) waitEnd(t *testing.T) []string {
	t.Helper()
	select {
	case err := <-r.ended:
		if err != nil {
			t.Fatalf("consume ended with %v; it said\n%s", err, r.said())
		}
	case <-time.After(devWithin):
		t.Fatalf("consume has not ended; it said\n%s", r.said())
	}
	var out []string
	for l := range r.lines {
		out = append(out, l)
	}
	return out
}

func (r *reading) next(t *testing.T) string {
	t.Helper()
	select {
	case l := <-r.lines:
		return l
	case <-time.After(devWithin):
		t.Fatalf("nothing was read; it said\n%s", r.said())
		return ""
	}
}

func TestGroupGoesOnWhereItStopped(t *testing.T) {
	b := fakeCluster(t)
	for _, protocol := range []string{"classic", "consumer"} {
		g := "g-" + protocol
		read := func(args ...string) string {
			t.Helper()
			return mustCLI(t, "", append([]string{"consume", "seeded", "-g", g, "--group-protocol", protocol, "-b", b}, args...)...)
		}
		mustCLI(t, numbers(1, 100), "produce", "seeded", "-q", "--partition", "1", "-b", b)
		all := strings.Count(read("-e"), "\n")
		if out := read("-e"); out != "" {
			t.Fatalf("%s: a second reading gave %q", protocol, out)
		}
		mustCLI(t, numbers(1, 10), "produce", "seeded", "-q", "--partition", "1", "-b", b)
		if out := read("-n", "4"); out != numbers(1, 4) {
			t.Fatalf("%s: the first four: %q", protocol, out)
		}
		if out := read("-e"); out != numbers(5, 10) {
			t.Fatalf("%s: the rest: %q", protocol, out)
		}
		var d []groupState
		groupJSON(t, &d, "describe", g, "-b", b)
		if d[0].Type != protocol || d[0].State != "Empty" || d[0].Lag != 0 || all == 0 {
			t.Fatalf("%s: %d records read, then %+v", protocol, all, d[0])
		}
	}
	for _, protocol := range []string{"classic", "consumer"} {
		g := "late-" + protocol
		if out := mustCLI(t, "", "consume", "seeded", "-g", g, "--group-protocol", protocol, "--from", "latest", "-e", "-b", b); out != "" {
			t.Fatalf("%s: from the end to the end: %q", protocol, out)
		}
		var d []groupState
		if groupJSON(t, &d, "describe", g, "-b", b); d[0].Type != protocol || d[0].State != "Empty" || len(d[0].Offsets) != 3 || d[0].Lag != 0 {
			t.Fatalf("%s: expected a group that was joined, left, and is at the end, found %+v", protocol, d[0])
		}
	}
}

func TestGroupMembersShareAndHandOver(t *testing.T) {
	b := fakeCluster(t)
	a := startReading(t, "seeded", "-g", "g", "-b", b, "--commit-every", "1h")
	mustCLI(t, numbers(1, 30), "produce", "seeded", "-q", "--partition", "0", "-b", b)
	for range 30 {
		a.next(t)
	}
	second := startReading(t, "seeded", "-g", "g", "-b", b)
	members := func() []groupMember {
		var d []groupState
		groupJSON(t, &d, "describe", "g", "-b", b)
		return d[0].Members
	}
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(devWithin); ; <-poll.C {
		m := members()
		if len(m) == 2 && len(m[0].Assigned) > 0 && len(m[1].Assigned) > 0 && strings.Contains(second.said(), "assigned") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the second member is not assigned anything: %+v", m)
		}
	}
	for _, args := range [][]string{{"reset-offsets", "g", "--all-topics", "--to-earliest"}, {"delete", "g"}} {
		if _, err := cli(t, "", append(append([]string{"group"}, args...), "-b", b)...); err == nil || !strings.Contains(err.Error(), "stop them") {
			t.Fatalf("%v with members: %v", args, err)
		}
	}
	a.stop()
	read := a.waitEnd(t)
	for p := range 3 {
		mustCLI(t, numbers(100*(p+1), 100*(p+1)+9), "produce", "seeded", "-q", "--partition", string(rune('0'+p)), "-b", b)
	}
	for range 30 {
		read = append(read, second.next(t))
	}
	second.stop()
	read = append(read, second.waitEnd(t)...)
	slices.Sort(read)
	if len(read) != 30 || len(slices.Compact(read)) != 30 {
		t.Fatalf("after the hand-over: expected the 30 new records once each, found %v", read)
	}
	var sums []lagSummary
	groupJSON(t, &sums, "lag", "-b", b)
	if len(sums) != 1 || sums[0].Lag != 0 || sums[0].Members != 0 {
		t.Fatalf("at the end: %+v", sums)
	}
}

func TestGroupReadingMistakesAreExplained(t *testing.T) {
	b := fakeCluster(t)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"seeded", "-g", "g", "--from", "2001-02-03"}, "reset-offsets g"},
		{[]string{"seeded", "-g", "g", "--partition", "1"}, "leave --partition out"},
		{[]string{"seeded", "-g", "g", "--group-protocol", "new"}, "classic or consumer"},
		{[]string{"seeded", "--commit-every", "1s"}, "need --group"},
		{[]string{"seeded", "other"}, "--group"},
		{[]string{"nosuch", "-g", "g"}, "topic nosuch: does not exist"},
		{[]string{"seeded", "--group", ""}, "--group is empty"},
		{[]string{""}, "a topic's name is empty"},
		{[]string{"seeded", "--isolation", "serializable"}, "read-committed"},
	} {
		if _, err := cli(t, "", append(append([]string{"consume"}, tc.args...), "-b", b)...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: want an error with %q, got %v", tc.args, tc.want, err)
		}
	}
}
