package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// groupJSON runs a group command with --output json.
func groupJSON(t *testing.T, v any, args ...string) {
	t.Helper()
	out := mustCLI(t, "", append([]string{"group", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		t.Fatalf("%v: %v in %s", args, err, out)
	}
}

func TestGroupOffsetsFromSettingToDeletion(t *testing.T) {
	b := fakeCluster(t)
	for _, p := range []string{"0", "1", "2"} {
		mustCLI(t, numbers(1, 100), "produce", "seeded", "-q", "--partition", p, "-b", b)
	}
	reset := func(args ...string) []resetRow {
		t.Helper()
		var r resetReport
		groupJSON(t, &r, append([]string{"reset-offsets", "g", "-b", b}, args...)...)
		return r.Partitions
	}
	if rows := reset("--topic", "seeded", "--to-offset", "40", "--dry-run"); len(rows) != 3 || rows[0].Before != nil || rows[0].After != 40 {
		t.Fatalf("dry run: %+v", rows)
	}
	if _, err := cli(t, "", "group", "describe", "g", "-b", b); !errors.Is(err, kerr.GroupIDNotFound) {
		t.Fatalf("after a dry run: expected no group, got %v", err)
	}
	for _, step := range []struct {
		args  []string
		after []int64
		note  string
	}{
		{[]string{"--topic", "seeded", "--to-offset", "40"}, []int64{40, 40, 40}, ""},
		{[]string{"--topic", "seeded:0,2", "--shift-by", "-15"}, []int64{25, 25}, ""},
		{[]string{"--topic", "seeded:0,2", "--shift-by", "70"}, []int64{95, 95}, ""},
		{[]string{"--topic", "seeded:1", "--to-offset", "500"}, []int64{100}, "500 is after the log's end"},
		{[]string{"--all-topics", "--to-latest"}, []int64{100, 100, 100}, ""},
		{[]string{"--all-topics", "--by-duration", "P1D"}, []int64{0, 0, 0}, ""},
		{[]string{"--all-topics", "--to-timestamp", "2100-01-01T00:00:00Z"}, []int64{100, 100, 100}, ""},
		{[]string{"--all-topics", "--to-earliest"}, []int64{0, 0, 0}, ""},
	} {
		rows := reset(step.args...)
		for i, r := range rows {
			if len(rows) != len(step.after) || r.After != step.after[i] || r.Note != step.note {
				t.Fatalf("%v: expected %v (%q), found %+v", step.args, step.after, step.note, rows)
			}
		}
	}
	var described []groupState
	groupJSON(t, &described, "describe", "g", "-b", b)
	if g := described[0]; g.State != "Empty" || g.Type != "classic" || g.Lag != 300 || len(g.Offsets) != 3 || *g.Offsets[0].End != 100 {
		t.Fatalf("describe: %+v", g)
	}
	var sums []lagSummary
	groupJSON(t, &sums, "lag", "-b", b)
	if len(sums) != 1 || sums[0] != (lagSummary{"g", "Empty", 0, 3, 300, 0, 0}) {
		t.Fatalf("lag of all: %+v", sums)
	}
	if out := mustCLI(t, "", "group", "lag", "g", "-b", b); !strings.Contains(out, "lag 300") {
		t.Fatalf("lag printed\n%s", out)
	}
	mustCLI(t, "", "group", "delete-offsets", "g", "--topic", "seeded:0", "-b", b)
	groupJSON(t, &described, "describe", "g", "-b", b)
	if g := described[0]; len(g.Offsets) != 2 || g.Lag != 200 || g.Uncommitted != 1 || g.UncommittedRecords != 100 {
		t.Fatalf("after delete-offsets: %+v", g)
	}
	const left = "1 partition has no committed offset (100 records)"
	for _, tc := range []struct{ line, want string }{
		{"group lag g", "lag 200 in 2 partitions; " + left},
		{"group lag", left},
		{"group describe g", left},
	} {
		if out := mustCLI(t, "", append(strings.Fields(tc.line), "-b", b)...); !strings.Contains(out, tc.want) {
			t.Errorf("%s: expected %q in\n%s", tc.line, tc.want, out)
		}
	}
	if _, err := cli(t, "", "group", "delete-offsets", "g", "--topic", "seeded:1,77", "-b", b); err == nil || !strings.Contains(err.Error(), "no committed offset of seeded/77: nothing was deleted") {
		t.Fatalf("delete-offsets of a partition that is not there: expected an error that names it, found %v", err)
	}
	if groupJSON(t, &described, "describe", "g", "-b", b); len(described[0].Offsets) != 2 {
		t.Fatalf("after delete-offsets that was refused: %+v", described[0])
	}
	if out, err := cli(t, "", "group", "delete", "g", "nosuch", "-b", b); !strings.Contains(out, "deleted g") || err == nil || !strings.Contains(err.Error(), "group nosuch: no such group") {
		t.Fatalf("delete: %q and %v", out, err)
	}
	if out := mustCLI(t, "", "group", "list", "-b", b); strings.Count(out, "\n") != 1 {
		t.Fatalf("after delete: %q", out)
	}
}

func TestGroupMistakesAreExplained(t *testing.T) {
	b := fakeCluster(t)
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"list", "--state", "sleepy"}, "PreparingRebalance"},
		{[]string{"list", "--type", "new"}, "classic, consumer"},
		{[]string{"list", "--output", "xml"}, "table or json"},
		{[]string{"describe", "nosuch"}, "no such group"},
		{[]string{"reset-offsets", "g", "--topic", "seeded"}, "say once where to"},
		{[]string{"reset-offsets", "g", "--topic", "seeded", "--to-latest", "--to-earliest"}, "given: --to-earliest, --to-latest"},
		{[]string{"reset-offsets", "g", "--to-latest"}, "--all-topics"},
		{[]string{"reset-offsets", "g", "--to-latest", "--topic", "seeded", "--all-topics"}, "not both"},
		{[]string{"reset-offsets", "g", "--to-latest", "--topic", "seeded:x"}, "seeded:0,1"},
		{[]string{"reset-offsets", "g", "--to-latest", "--topic", "seeded:7"}, "has 3 partitions"},
		{[]string{"reset-offsets", "g", "--to-latest", "--topic", "nosuch"}, "topic nosuch: does not exist"},
		{[]string{"reset-offsets", "g", "--to-latest", "--all-topics"}, "no such group"},
		{[]string{"reset-offsets", "g", "--shift-by", "5", "--topic", "seeded"}, "no committed offset to shift from"},
		{[]string{"reset-offsets", "g", "--to-offset", "-5", "--topic", "seeded"}, "--shift-by -5"},
		{[]string{"reset-offsets", "g", "--by-duration", "P1M", "--topic", "seeded"}, "P1DT12H"},
		{[]string{"reset-offsets", "g", "--to-timestamp", "yesterday", "--topic", "seeded"}, "RFC 3339"},
		{[]string{"delete-offsets", "nosuch", "--topic", "seeded"}, "no such group"},
		{[]string{"describe"}, "name a group, as in thermocline group describe audit"},
		{[]string{"delete-offsets", "a", "b"}, "takes one group, not 2"},
		{[]string{"lag", "g", "--watch=5ms"}, "100ms"},
		{[]string{"lag", "g", "--watch", "-5s"}, "100ms"},
		{[]string{"lag", "g", "--watch", "0s"}, "100ms"},
	} {
		if _, err := cli(t, "", append(append([]string{"group"}, tc.args...), "-b", b)...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: want an error with %q, got %v", tc.args, tc.want, err)
		}
	}
}

func TestLengthsOfTime(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"36h": 36 * time.Hour, "90m": 90 * time.Minute, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour,
		"P1DT12H": 36 * time.Hour, "PT30M": 30 * time.Minute, "P2W": 336 * time.Hour, "PT1.5S": 1500 * time.Millisecond, "0s": 0,
	} {
		if got, err := parseSpan(s); err != nil || got != want {
			t.Errorf("%q: expected %v, found %v, %v", s, want, got, err)
		}
	}
	for _, s := range []string{"", "P", "PT", "P1DT", "P1Y", "P1M", "12", "-5h", "1h1d", "d", "P999999999D", "99999999999999999999d"} {
		if got, err := parseSpan(s); err == nil {
			t.Errorf("%q: expected an error, found %v", s, got)
		}
	}
}

func TestShiftStaysWithinTheNumbers(t *testing.T) {
	before := int64(10)
	rows := []resetRow{{Topic: "t", Before: &before, Start: 5, End: 20}}
	for by, want := range map[int64]int64{1<<63 - 1: 20, -1 << 63: 5, 3: 13} {
		if err := moveRows(rows, &resetRule{kind: byShift, shift: by}); err != nil || rows[0].After != want {
			t.Errorf("by %d: expected %d, found %d, %v", by, want, rows[0].After, err)
		}
	}
}

func TestRefusalsSayOneThingOnce(t *testing.T) {
	for _, tc := range []struct {
		err     error
		message string
		want    string
	}{
		{kerr.TopicAlreadyExists, "Topic 'a' already exists.", "Topic 'a' already exists (TOPIC_ALREADY_EXISTS)"},
		{kerr.UnknownTopicOrPartition, "This server does not host this topic-partition.", "does not exist (UNKNOWN_TOPIC_OR_PARTITION)"},
		{kerr.InvalidPartitions, "", "Number of partitions is below 1 (INVALID_PARTITIONS)"},
		{errors.New("broken pipe"), "", "broken pipe"},
	} {
		got := refused(tc.err, tc.message)
		if got.Error() != tc.want || !errors.Is(got, tc.err) {
			t.Errorf("expected %q, found %q", tc.want, got)
		}
	}
}
