//go:build conform

package conform

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"thermocline/localstack/faults"
)

// patience bounds the whole run.
const patience = 50 * time.Minute

// scenarioLimit is longer than the drivers' own limit of two minutes.
const scenarioLimit = 3 * time.Minute

// suite is one run.
type suite struct {
	target Target
	faults *Faults
	logs   string
	prefix string

	mu      sync.Mutex
	columns map[string]*Column
}

// TestConform reads CLIENTS, SCENARIOS (lists; empty: all), BOOTSTRAP (a
// cluster that is there), AGAINST=kafka (Apache Kafka, whose results are kept
// as the oracle's) and PARALLEL (clients at a time, default 2).
func TestConform(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	chosen, kgoTests, err := choose(os.Getenv("CLIENTS"))
	must(t, err)
	cache, err := CacheDir()
	must(t, err)
	s := &suite{logs: filepath.Join(cache, "logs"), prefix: strconv.FormatInt(time.Now().Unix()%1_000_000, 36), columns: map[string]*Column{}}
	must(t, os.RemoveAll(s.logs))
	must(t, os.MkdirAll(s.logs, 0o755))
	commands := install(t, ctx, cache, chosen)
	s.target = startTarget(t, ctx, cache)
	s.faults = &Faults{Target: s.target}
	s.runQuiet(t, ctx, chosen, commands)
	s.runFaulty(t, ctx, chosen, commands)
	var tests *KgoOutcome
	if kgoTests {
		tests = s.runKgoTests(t, ctx, cache)
	}
	s.judge(t, tests)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func install(t *testing.T, ctx context.Context, cache string, chosen []client) map[string]command {
	t.Helper()
	sources, err := filepath.Abs("clients")
	must(t, err)
	in := installer{ctx: ctx, cache: cache, sources: sources}
	commands := map[string]command{}
	var mu sync.Mutex
	all, _ := errgroup.WithContext(ctx)
	for _, c := range chosen {
		all.Go(func() error {
			start := time.Now()
			how, err := c.install(in)
			mu.Lock()
			defer mu.Unlock()
			commands[c.name] = how
			t.Logf("%s is installed (%v)", c.name, time.Since(start).Round(time.Millisecond))
			return err
		})
	}
	must(t, all.Wait())
	return commands
}

func againstKafka() bool { return os.Getenv("AGAINST") == "kafka" }

func startTarget(t *testing.T, ctx context.Context, cache string) Target {
	t.Helper()
	if b := os.Getenv("BOOTSTRAP"); b != "" {
		return External(strings.Split(b, ","))
	}
	dir := t.TempDir()
	var target Target
	var err error
	start := time.Now()
	if againstKafka() {
		target, err = StartKafka(ctx, filepath.Dir(cache), dir)
	} else {
		var binary string
		binary, err = faults.Build(dir)
		if err == nil {
			target, err = StartThermocline(ctx, binary, dir)
		}
	}
	if err != nil {
		keepLogs(t, dir)
		t.Fatal(err)
	}
	t.Logf("the cluster runs (%v)", time.Since(start).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := target.Close(); err != nil {
			t.Error(err)
		}
		keepLogs(t, dir)
	})
	return target
}

// keepLogs copies the brokers' logs to where the drivers' are.
func keepLogs(t *testing.T, dir string) {
	t.Helper()
	cache, err := CacheDir()
	if err != nil {
		t.Error(err)
		return
	}
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log")) // the pattern is right
	for _, path := range logs {
		raw, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(cache, "logs", filepath.Base(path)), raw, 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// wanted keeps the scenarios that SCENARIOS names.
func wanted(list []string) []string {
	names := os.Getenv("SCENARIOS")
	if names == "" {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return !slices.Contains(strings.Split(names, ","), s) })
}

func (s *suite) runQuiet(t *testing.T, ctx context.Context, chosen []client, commands map[string]command) {
	parallel := 2
	if p := os.Getenv("PARALLEL"); p != "" {
		n, err := strconv.Atoi(p)
		must(t, err)
		parallel = n
	}
	places := make(chan struct{}, parallel)
	var all sync.WaitGroup
	for _, c := range chosen {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			s.run(t, ctx, c.name, commands[c.name], wanted(quiet))
		})
	}
	all.Wait()
}

func (s *suite) runFaulty(t *testing.T, ctx context.Context, chosen []client, commands map[string]command) {
	for _, c := range chosen {
		for _, scenario := range wanted(faulty) {
			s.run(t, ctx, c.name, commands[c.name], []string{scenario})
			if err := s.faults.Restore(ctx); err != nil {
				t.Errorf("after %s, %s: %v: the other scenarios of this kind are not run", c.name, scenario, err)
				return
			}
		}
	}
}

func (s *suite) run(t *testing.T, ctx context.Context, name string, c command, scenarios []string) {
	if len(scenarios) == 0 {
		return
	}
	log, err := os.OpenFile(filepath.Join(s.logs, name+".stderr"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Error(err)
		return
	}
	defer log.Close()
	start := time.Now()
	d := Driver{Command: c.args, Env: c.env, Log: log, Bootstrap: s.target.Bootstrap(), Prefix: fmt.Sprintf("%s-%s", name, s.prefix),
		Limit: scenarioLimit, Asked: s.faults.Asked}
	version, results := d.Run(ctx, scenarios)
	s.mu.Lock()
	defer s.mu.Unlock()
	col := s.columns[name]
	if col == nil {
		col = &Column{Client: name}
		s.columns[name] = col
	}
	if version != "" {
		col.Version = version
	}
	col.Results = append(col.Results, results...)
	t.Logf("%s: %d scenarios in %v", name, len(results), time.Since(start).Round(100*time.Millisecond))
}

func (s *suite) runKgoTests(t *testing.T, ctx context.Context, cache string) *KgoOutcome {
	log, err := os.Create(filepath.Join(s.logs, "kgo-tests.json"))
	must(t, err)
	defer log.Close()
	expected, err := LoadExpected("expected.txt")
	must(t, err)
	o, err := RunKgoTests(ctx, cache, s.target.Bootstrap(), expected, log)
	must(t, err)
	return &o
}

// judge writes the table, and fails for what was not expected.
func (s *suite) judge(t *testing.T, tests *KgoOutcome) {
	ours, err := LoadRecord("thermocline.json")
	must(t, err)
	oracle, err := LoadRecord("kafka.json")
	must(t, err)
	expected, err := LoadExpected("expected.txt")
	must(t, err)
	record, path := &ours, "thermocline.json"
	if againstKafka() {
		record, path, expected = &oracle, "kafka.json", Expected{}
	}
	for _, c := range s.columns {
		record.Put(*c)
	}
	if tests != nil {
		record.KgoTests = tests
	}
	if os.Getenv("BOOTSTRAP") == "" {
		must(t, record.Save(path))
		must(t, os.WriteFile("RESULTS.md", []byte(Markdown(ours, oracle)), 0o644))
	}
	for _, name := range Names() {
		if c := s.columns[name]; c != nil {
			t.Run(name, func(t *testing.T) { judgeColumn(t, *c, expected) })
		}
	}
	if tests != nil {
		t.Run(kgoTestsName, func(t *testing.T) { judgeTests(t, *tests, expected) })
	}
}

func judgeColumn(t *testing.T, c Column, expected Expected) {
	t.Log(c.Version)
	for _, r := range c.Results {
		t.Run(r.Scenario, func(t *testing.T) {
			why, known := expected.Why(c.Client, r.Scenario)
			switch {
			case r.Result == Fail && known:
				t.Logf("fails, as expected: %s (%s)", why, r.Detail)
			case r.Result == Fail:
				t.Errorf("%.1f s: %s", r.Seconds, r.Detail)
			default:
				t.Logf("%s, %.1f s %s", r.Result, r.Seconds, r.Detail)
			}
			if r.Result == Pass && known {
				t.Logf("passes; expected.txt says that it does not: %s", why)
			}
		})
	}
}

func judgeTests(t *testing.T, o KgoOutcome, expected Expected) {
	t.Logf("%s: %d passed, %d failed, %d skipped", o.Version, o.Passed, o.failed(), len(o.Others)-o.failed())
	if o.Passed == 0 {
		t.Error("no test passed")
	}
	for _, r := range o.Others {
		t.Run(r.Name, func(t *testing.T) {
			if why, known := expected.Why(kgoTestsName, r.Name); known {
				t.Logf("%s, as expected: %s (%s)", r.Result, why, r.Detail)
				return
			}
			t.Errorf("%s: %s", r.Result, r.Detail)
		})
	}
}
