package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// fakeCluster is a Kafka-protocol cluster that is not ours: the tools must work
// against any.
func fakeCluster(t *testing.T) string {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "seeded"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return strings.Join(c.ListenAddrs(), ",")
}

// cli runs one command line and returns what it printed.
func cli(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	cmd := root()
	var out bytes.Buffer
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func mustCLI(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := cli(t, stdin, args...)
	if err != nil {
		t.Fatalf("thermocline %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func TestTopicsFromCreationToDeletion(t *testing.T) {
	b := fakeCluster(t)
	if out := mustCLI(t, "", "topic", "create", "a", "-p", "2", "-c", "retention.ms=5", "-b", b); !strings.Contains(out, "created a") {
		t.Fatalf("create printed %q", out)
	}
	if _, err := cli(t, "", "topic", "create", "a", "-b", b); err == nil || !strings.Contains(err.Error(), "topic a") {
		t.Fatalf("creating it again: want an error that names the topic, got %v", err)
	}
	mustCLI(t, "", "topic", "create", "a", "--if-not-exists", "-b", b)
	mustCLI(t, "", "topic", "alter", "a", "-p", "4", "-c", "max.message.bytes=2000", "-b", b)
	out := mustCLI(t, "", "topic", "describe", "a", "-b", b)
	if !strings.Contains(out, "4 partitions") || !strings.Contains(out, "max.message.bytes=2000") {
		t.Fatalf("describe printed %q", out)
	}
	if out := mustCLI(t, "", "topic", "list", "-b", b); !strings.Contains(out, "seeded") {
		t.Fatalf("list printed %q", out)
	}
	mustCLI(t, "", "topic", "delete", "a", "-b", b)
	if _, err := cli(t, "", "topic", "describe", "a", "-b", b); err == nil {
		t.Fatal("describing a deleted topic succeeded")
	}
}

func TestWhatIsProducedIsConsumed(t *testing.T) {
	b := fakeCluster(t)
	var lines []string
	for i := range 500 {
		lines = append(lines, fmt.Sprintf("k%d:value %d", i%7, i))
	}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		topic := "t-" + codec
		mustCLI(t, "", "topic", "create", topic, "-p", "1", "-b", b)
		mustCLI(t, strings.Join(lines, "\n"), "produce", topic, "-q", "--key-separator", ":", "-z", codec, "-b", b)
		out := mustCLI(t, "", "consume", topic, "-q", "-e", "-f", `%k:%v\n`, "-b", b)
		if out != strings.Join(lines, "\n")+"\n" {
			t.Fatalf("%s: read back %d bytes, wrote %d lines", codec, len(out), len(lines))
		}
	}
	if out := mustCLI(t, "", "consume", "t-none", "-q", "--from", "offset:490", "-n", "2", "-f", `%o \n`, "-b", b); out != "490 \n491 \n" {
		t.Fatalf("from an offset: got %q", out)
	}
	if out := mustCLI(t, "", "consume", "t-none", "-q", "--from", "-3", "-e", "-f", `%o \n`, "-b", b); out != "497 \n498 \n499 \n" {
		t.Fatalf("the last three: got %q", out)
	}
	if out := mustCLI(t, "", "consume", "t-none", "-q", "--from", "end", "-e", "-b", b); out != "" {
		t.Fatalf("from the end until the end: got %q", out)
	}
}

func TestAnOffsetBeyondTheEndIsSaid(t *testing.T) {
	b := fakeCluster(t)
	for _, p := range []string{"0", "1", "2"} {
		mustCLI(t, numbers(1, 5), "produce", "seeded", "-q", "--partition", p, "-b", b)
	}
	for _, tc := range []struct{ line, want string }{
		{"--from offset:99999", "offset:99999 lies beyond the end of 3 of 3 partitions of seeded"},
		{"--from offset:6 --partition 1", "of 1 of 1 partition of seeded"},
		{"--from offset:5", ""},
		{"--from end", ""},
	} {
		cmd := root()
		var said bytes.Buffer
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&said)
		cmd.SetArgs(append(strings.Fields("consume seeded -e -b "+b), strings.Fields(tc.line)...))
		if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.Contains(said.String(), tc.want) || strings.Contains(said.String(), "beyond") != (tc.want != "") {
			t.Errorf("%s: expected %q, found %q and %v", tc.line, tc.want, said.String(), err)
		}
	}
}

func TestReadingFromBeyondTheEndWaitsForThatOffset(t *testing.T) {
	b := fakeCluster(t)
	mustCLI(t, numbers(1, 5), "produce", "seeded", "-q", "--partition", "0", "-b", b)
	r := startReading(t, "seeded", "--from", "offset:8", "--partition", "0", "-n", "2", "-b", b)
	tick, late := time.NewTicker(20*time.Millisecond), time.After(devWithin)
	defer tick.Stop()
	for !strings.Contains(r.said(), "nothing is there yet") {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("it has not said that nothing is there yet, but %q", r.said())
		}
	}
	mustCLI(t, numbers(6, 12), "produce", "seeded", "-q", "--partition", "0", "-b", b)
	if got := strings.Join(r.waitEnd(t), " "); got != "9 10" {
		t.Fatalf("from offset 8 on: expected 9 10, found %q; it said %s", got, r.said())
	}
}

func TestEventsOwnKeysAndTimes(t *testing.T) {
	b := fakeCluster(t)
	mustCLI(t, "", "topic", "create", "flights", "-p", "1", "-b", b)
	path := filepath.Join(t.TempDir(), "events.json")
	text := `[{"date":"2001/01/10 18:20","origin":"SEA"},
 {"date":"2001-02-01","origin":"LAX"}, {"date":981073300000,"origin":null}]`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	mustCLI(t, "", "produce", "flights", path, "-q", "--input", "json", "--key-field", "origin", "--timestamp-field", "date", "-b", b)
	got := mustCLI(t, "", "consume", "flights", "-q", "-e", "-f", `%k %T\n`, "-b", b)
	if want := "SEA 979150800000\nLAX 980985600000\n 981073300000\n"; got != want {
		t.Fatalf("want %q, got %q", want, got)
	}
	got = mustCLI(t, "", "consume", "flights", "-q", "-e", "--from", "2001-02-01", "-f", "json", "-b", b)
	if strings.Count(got, "\n") != 2 || !strings.Contains(got, `"key":null`) {
		t.Fatalf("from a date: got %q", got)
	}
}

func TestMistakesAreExplained(t *testing.T) {
	b := fakeCluster(t)
	for _, tc := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{"", []string{"consume", "seeded", "--from", "yesterday"}, "2001-02-03"},
		{"", []string{"consume", "seeded", "--format", "nice"}, "pattern"},
		{"", []string{"consume", "seeded", "--partition", "9"}, "it has 3"},
		{"", []string{"consume", "nothere", "-e"}, "nothere"},
		{"x", []string{"produce", "seeded", "-z", "brotli"}, "gzip"},
		{"x", []string{"produce", "seeded", "--key-separator", ":"}, "line 1"},
		{"{}", []string{"produce", "seeded", "--input", "json", "--key-field", "origin"}, "origin"},
		{"{", []string{"produce", "seeded", "--input", "json"}, "not JSON"},
		{`{"at":"soon"}`, []string{"produce", "seeded", "--input", "json", "--timestamp-field", "at"}, "(or give --timestamp-format)"},
		{"", []string{"produce", "seeded", "--timestamp-field", "x"}, "--input json"},
		{"", []string{"produce", "seeded", "/no/such/file"}, "no such file"},
		{"", []string{"topic", "create", "x", "-c", "oops"}, "key=value"},
		{"", []string{"topic", "alter", "seeded"}, "nothing to change"},
	} {
		if _, err := cli(t, tc.stdin, append(tc.args, "-b", b)...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: want an error with %q, got %v", tc.args, tc.want, err)
		}
	}
}

func TestUnknownCommandsAreSaid(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"topic", "nosuch"}, `unknown command "nosuch" for "thermocline topic"`},
		{[]string{"topic", "lis"}, "did you mean list?"},
		{[]string{"group", "lags"}, "did you mean lag?"},
		{[]string{"config", "print"}, "thermocline config --help"},
	} {
		if _, err := cli(t, "", tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: want an error with %q, got %v", tc.args, tc.want, err)
		}
	}
	if out := mustCLI(t, "", "topic"); !strings.Contains(out, "Available Commands") {
		t.Errorf("without a command: expected help, found %q", out)
	}
}

func TestNothingIsPublishedSilently(t *testing.T) {
	b := fakeCluster(t)
	cmd := root()
	var said bytes.Buffer
	cmd.SetErr(&said)
	cmd.SetArgs([]string{"produce", "seeded", "/no/such/file", "-b", b})
	if err := cmd.ExecuteContext(t.Context()); err == nil || said.Len() > 0 {
		t.Fatalf("expected an error and no summary, found %v and %q", err, said.String())
	}
}

func TestIdleConfigs(t *testing.T) {
	value := func(s string) *string { return &s }
	got := idleConfigs(map[string]*string{
		"segment.bytes": value("1000"), "flush.ms": value("9223372036854775807"), "max.message.bytes": value("5"), "from.the.future": value("x"),
	})
	if len(got) != 1 || got[0].Name != "segment.bytes" || got[0].Why == "" {
		t.Fatalf("expected segment.bytes alone, found %+v", got)
	}
}

func TestAReaderThatGoesAwayIsNoError(t *testing.T) {
	if err := readerWentAway(&os.PathError{Op: "write", Path: "stdout", Err: syscall.EPIPE}); err != nil {
		t.Fatalf("expected no error, found %v", err)
	}
}
