package group

import (
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/classic-v1.txt anew")

// goldenStore is a map with each kind of record of the classic protocol.
func goldenStore(t *testing.T) map[string][]byte {
	r := newRig(t)
	ids, gen := r.formStatic("static", "i0", "i1")
	commit := commitReq("static", ids[0], gen, "a", 3, 1<<40)
	commit.InstanceID = ptr("i0")
	commit.Topics[0].Partitions[0].LeaderEpoch, commit.Topics[0].Partitions[0].Metadata = 7, ptr("mëta")
	get[*kmsg.OffsetCommitResponse](r, r.send(commit))
	old := commitReq("simple", "", -1, "no such topic", 0, 5)
	old.Version, old.RetentionTimeMillis = 4, 60_000
	get[*kmsg.OffsetCommitResponse](r, r.send(old))
	lone, _ := r.form("empty", 1)
	get[*kmsg.LeaveGroupResponse](r, r.send(leaveReq("empty", lone[0])))
	return r.store
}

// TestRecordsOfVersion1 keeps the formats readable for ever.
func TestRecordsOfVersion1(t *testing.T) {
	const file = "testdata/classic-v1.txt"
	var b strings.Builder
	store := goldenStore(t)
	for _, k := range slices.Sorted(maps.Keys(store)) {
		fmt.Fprintf(&b, "%x %x\n", k, store[k])
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != b.String() {
		t.Fatalf("records are no longer those of %s: a new version is to stand beside the old one\n%s", file, b.String())
	}
	c := New(DefaultOptions(), topicsOf("a"))
	for line := range strings.Lines(string(want)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		kb, _ := hex.DecodeString(k)
		vb, err := hex.DecodeString(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Load(string(kb), vb); err != nil {
			t.Fatal(err)
		}
	}
	g := c.group("static").classic
	if g.state != stateStable || g.generation != 1 || len(g.members) != 2 || *g.order[1].instance != "i1" || string(g.order[0].assignment) != "for "+g.order[0].id {
		t.Fatalf("%+v", g)
	}
	if o := c.group("static").offsets["a"][3]; o.offset != 1<<40 || o.metadata != "mëta" || o.leaderEpoch != 7 || o.topicID != idOf("a") || o.expires != -1 {
		t.Fatalf("%+v", o)
	}
	if o := c.group("simple").offsets["no such topic"][0]; o.expires != o.at+60_000 || o.topicID != [16]byte{} {
		t.Fatalf("%+v", o)
	}
	if g := c.group("empty").classic; g.state != stateEmpty || g.generation != 2 {
		t.Fatalf("%+v", g)
	}
}

func TestDamagedRecordsAreRefused(t *testing.T) {
	group := classicValue(newClassicGroup())
	one := memberValue(&member{order: 1})
	bad := func(v []byte, at int, b byte) []byte {
		out := slices.Clone(v)
		out[at] = b
		return out
	}
	type rec struct {
		key   string
		value []byte
	}
	first := rec{key("g", kindClassic, ""), group}
	for want, records := range map[string][]rec{
		"cut short":                         {{"\x00", nil}},
		"cut short: it":                     {{"\x00\x09abc", nil}},
		"a group's name of 3000 bytes":      {{key(strings.Repeat("x", 3000), kindClassic, ""), group}},
		"kind 4 is not known":               {{key("g", 4, ""), nil}},
		"kind 0 is not known":               {{key("g", 0, ""), nil}},
		"version 2 is not known":            {{first.key, bad(group, 0, 2)}},
		"version 0 is not known":            {{first.key, bad(group, 0, 0)}},
		"state 9, expected 1 to 4":          {{first.key, bad(group, 1, 9)}},
		"1 bytes are left":                  {{first.key, append(slices.Clone(group), 0)}},
		"it is cut short":                   {{first.key, group[:len(group)-1]}},
		"there twice":                       {first, first},
		"a member comes before its group":   {{key("g", kindClassicMember, "m"), one}},
		"member \"n\" does not fit":         {first, {key("g", kindClassicMember, "m"), one}, {key("g", kindClassicMember, "n"), one}},
		"member \"m\" does not fit":         {first, {key("g", kindClassicMember, "m"), memberValue(&member{})}},
		"a presence byte is 7":              {first, {key("g", kindClassicMember, "m"), bad(one, 9, 7)}},
		"a topic's name and partition in 3": {{key("g", kindOffset, "abc"), nil}},
		"partition -1, expected":            {{offsetKey("g", "t", -1), offsetValue(committed{})}},
		"is cut short":                      {{offsetKey("g", "t", 1), offsetValue(committed{})[:20]}},
		"record of group \"g\", key 000167": {{offsetKey("g", "t", 1), nil}},
	} {
		c := New(DefaultOptions(), topicsOf())
		var err error
		for _, r := range records {
			err = c.Load(r.key, r.value)
		}
		if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(want, ": it")) {
			t.Errorf("expected %q, found %v", want, err)
		}
	}
}

// TestLargeChangesAreSeveralWrites: what need not be one change is not.
func TestLargeChangesAreSeveralWrites(t *testing.T) {
	r := newRig(t)
	req := commitReq("g", "", -1, "a", 0, 1)
	part := req.Topics[0].Partitions[0]
	for p := range int32(25_000) {
		part.Partition = p + 1
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, part)
	}
	r.hold = true
	r.send(req)
	if len(r.queued) != 1 || len(r.queued[0].Records) != 25_001 {
		t.Fatalf("a commit is %d writes", len(r.queued))
	}
	r.settle(1)
	before := len(r.queued)
	r.c.SetTopics(r.now, r.topics.without("a"))
	r.gather()
	if n := len(r.queued) - before; n != 3 {
		t.Fatalf("25,001 tombstones are %d writes, expected 3", n)
	}
	last := uint64(1)
	for _, w := range r.queued {
		if last++; w.Number != last || len(w.Records) > writeRecordsMax {
			t.Fatalf("write %d has %d records", w.Number, len(w.Records))
		}
	}
}
