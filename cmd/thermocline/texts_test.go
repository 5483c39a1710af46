package main

import (
	"encoding/json"
	"strings"
	"testing"

	"thermocline/wal/vfs"
)

func TestNamesAreShownAsATerminalMay(t *testing.T) {
	for name, want := range map[string]string{
		"audit": "audit", "": `""`, "a\x1b[31mb": `"a\x1b[31mb"`, "a\nb": `"a\nb"`, "zürich": "zürich", "\xff": `"\xff"`, `a"b`: `"a\"b"`,
		strings.Repeat("x", 10_000): strings.Repeat("x", nameShown) + "… (10000 bytes)",
	} {
		if got := shown(name); got != want {
			t.Errorf("%q: expected %s, found %s", name, want, got)
		}
	}
}

func TestTextsOfMistakes(t *testing.T) {
	b := fakeCluster(t)
	for _, tc := range []struct{ line, want, not string }{
		{"group reset-offsets g --topic seeded --to-offset x", "write a whole number", "strconv"},
		{"group reset-offsets g --topic seeded --to-offset 99999999999999999999", "out of range", "strconv"},
		{"group reset-offsets g --topic seeded --to-timestamp=-5", "--to-timestamp", "parse"},
		{"group reset-offsets g --topic seeded --to-timestamp 2001-13-45", "write 2001-02-03", "--timestamp-format"},
		{"consume seeded --from foo", "write 2001-02-03", "--timestamp-format"},
		{"consume", "name a topic, as in thermocline consume flights", "arg(s)"},
		{"topic roll", "name a topic", "arg(s)"},
		{"consume seeded nosuch -g g", "topic nosuch: does not exist", "seeded"},
		{"group delete nosuch", "group nosuch: no such group", "not found"},
		{"topic describe " + strings.Repeat("x", 10_000), "10000 bytes", strings.Repeat("x", 1000)},
		{"dev --set nokey", "--set key=value", "--config"},
	} {
		args := strings.Fields(tc.line)
		if args[0] != "dev" {
			args = append(args, "-b", b)
		} else {
			args = append(args, "--data-dir", t.TempDir())
		}
		_, err := cli(t, "", args...)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), tc.not) {
			t.Errorf("%.80s: expected an error with %q and without %.20q, found %.600v", tc.line, tc.want, tc.not, err)
		}
	}
}

func TestLinesWithoutKeySpread(t *testing.T) {
	b := fakeCluster(t)
	mustCLI(t, numbers(1, 9), "produce", "seeded", "-q", "-b", b)
	seen := map[int32]int{}
	for line := range strings.Lines(mustCLI(t, "", "consume", "seeded", "-e", "-q", "-f", "json", "-b", b)) {
		var r struct{ Partition int32 }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		seen[r.Partition]++
	}
	if len(seen) != 3 || seen[0] != 3 || seen[1] != 3 {
		t.Fatalf("nine lines in three partitions: %v", seen)
	}
}

func TestDevWaitsForALockThatIsAboutToGo(t *testing.T) {
	dir := t.TempDir()
	o := &devOptions{dir: dir}
	held, err := vfs.OS(dir).Lock("lock")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockWithin(dir, 0); err == nil {
		t.Fatal("a lock that is held was given again")
	}
	taken := make(chan error, 1)
	go func() { // ends with lockWithin
		l, err := lockWithin(o.dir, devWithin)
		if err == nil {
			err = l.Close()
		}
		taken <- err
	}()
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
}
