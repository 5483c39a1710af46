package conform

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// script is a driver whose lines are written here.
func script(t *testing.T, text string) *Driver {
	t.Helper()
	return &Driver{Command: []string{"sh", "-c", text}, Log: io.Discard, Bootstrap: []string{"a:1", "b:2"}, Prefix: "p", Limit: 10 * time.Second,
		Asked: func(_ context.Context, a Ask) error {
			if a.Ask == "kill-leader" {
				return nil
			}
			return errors.New("not here")
		}}
}

func TestDriverIsFollowed(t *testing.T) {
	d := script(t, `
		echo '{"version":"v1"}'
		echo '{"scenario":"one","result":"pass","detail":"","seconds":1}'
		echo '{"ask":"kill-leader","topic":"t","partition":1}'; read a
		echo '{"ask":"other"}'; read b
		case "$a$b" in *'"ok":true'*'"reason":"not here"'*) r=pass;; *) r=fail;; esac
		echo "{\"scenario\":\"two\",\"result\":\"$r\"}"`)
	version, results := d.Run(t.Context(), []string{"one", "two"})
	if version != "v1" || len(results) != 2 || results[0].Result != Pass || results[1].Result != Pass {
		t.Fatalf("version %q, results %+v", version, results)
	}
}

// TestDriverThatEndsEarly: what it was at fails, and it is started again for
// the rest.
func TestDriverThatEndsEarly(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	d := script(t, `
		if [ ! -e `+marker+` ]; then touch `+marker+`
			echo '{"scenario":"one","result":"pass"}'; echo 'out of cheese' >&2; exit 3
		fi
		echo '{"scenario":"three","result":"na","detail":"no means"}'`)
	_, results := d.Run(t.Context(), []string{"one", "two", "three"})
	got := []string{}
	for _, r := range results {
		got = append(got, r.Scenario+" "+r.Result)
	}
	if want := []string{"one pass", "two fail", "three na"}; !slices.Equal(got, want) {
		t.Fatalf("%v, expected %v", got, want)
	}
	if !strings.Contains(results[1].Detail, "out of cheese") {
		t.Errorf("the failure does not tell what the driver said: %q", results[1].Detail)
	}
}

func TestDriverThatHangs(t *testing.T) {
	d := script(t, `echo '{"version":"v1"}'; cat >/dev/null`)
	d.Limit = 100 * time.Millisecond
	_, results := d.Run(t.Context(), []string{"one"})
	if len(results) != 1 || results[0].Result != Fail || !strings.Contains(results[0].Detail, "no result within") {
		t.Fatalf("%+v", results)
	}
}

func TestTable(t *testing.T) {
	var ours, oracle Record
	ours.Put(Column{"franz", "v1", []Result{{Scenario: "shapes", Result: Fail, Detail: "key lost"}, {Scenario: "codec-none", Result: Pass, Seconds: 2}}})
	ours.Put(Column{"java4", "4.3.1", []Result{{Scenario: "shapes", Result: Pass}}})
	ours.Put(Column{"franz", "v2", []Result{{Scenario: "codec-none", Result: NA, Detail: "no codec"}}})
	oracle.Put(Column{"franz", "v1", []Result{{Scenario: "shapes", Result: Pass}, {Scenario: "codec-none", Result: NA}}})
	text := Markdown(ours, oracle)
	for _, want := range []string{
		"| scenario | java4 | franz |",
		"| codec-none | – | n.a. 1 |",
		"| shapes | pass | **fail** (Kafka: pass) 2 |",
		"1. franz, codec-none: no codec",
		"2. franz, shapes: key lost",
		"franz is v2",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
}

func TestRecordIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.json")
	var r Record
	r.Put(Column{"kcat", "1.7", []Result{{Scenario: "shapes", Result: Pass, Seconds: 3}}})
	if err := r.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := LoadRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	if have, ok := got.find("kcat", "shapes"); !ok || have.Seconds != 0 || have.Result != Pass {
		t.Errorf("%+v", got)
	}
}

func TestParseTests(t *testing.T) {
	o, err := parseTests(strings.NewReader(`# some build output
{"Action":"run","Test":"TestA"}
{"Action":"pass","Test":"TestA/sub"}
{"Action":"pass","Test":"TestA"}
{"Action":"output","Test":"TestB/sub","Output":"    b_test.go:12: too | late\n"}
{"Action":"fail","Test":"TestB/sub"}
{"Action":"fail","Test":"TestB"}
{"Action":"output","Test":"TestC","Output":"    c_test.go:1: not here\n"}
{"Action":"skip","Test":"TestC"}
{"Action":"fail"}`))
	if err != nil {
		t.Fatal(err)
	}
	if o.Passed != 1 || o.failed() != 1 || len(o.Others) != 2 {
		t.Fatalf("%+v", o)
	}
	if text := o.Markdown(); !strings.Contains(text, `| TestB | fail | 12: too \| late |`) {
		t.Error(text)
	}
}

func TestExpectedHasReasons(t *testing.T) {
	expected, err := LoadExpected("expected.txt")
	if err != nil {
		t.Fatal(err)
	}
	names, scenarios := Names(), Scenarios()
	for key := range expected {
		client, name, _ := strings.Cut(key, " ")
		if !slices.Contains(names, client) || client != kgoTestsName && !slices.Contains(scenarios, name) {
			t.Errorf("expected.txt names %q, which is not there", key)
		}
	}
}
