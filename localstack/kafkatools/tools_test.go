//go:build kafkatools

package kafkatools

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"thermocline/localstack/bench"
	"thermocline/localstack/faults/clustertest"
	"thermocline/localstack/processes"
)

var binary string

func TestMain(m *testing.M) {
	os.Exit(processes.Main(m, &binary, "Debian: apt-get install openjdk-17-jdk-headless maven", "java", "mvn"))
}

// each is how long one call of a tool may take.
const each = 2 * time.Minute

// TestKafkaTools runs all steps, and writes the table.
func TestKafkaTools(t *testing.T) {
	cache, err := os.UserCacheDir()
	must(t, err)
	libs, err := bench.KafkaJars(t.Context(), filepath.Join(cache, "thermocline"))
	must(t, err)
	dir := t.TempDir()
	c, ctx := clustertest.Start(t, 25*time.Minute, processes.Options{Binary: binary})
	fill := strings.NewReplacer("{b}", strings.Join(c.Bootstrap(), ","), "{dir}", dir)
	var table strings.Builder
	failed := 0
	for _, s := range steps {
		out, err := s.run(ctx, libs, dir, fill)
		result := "as expected"
		if wrong := s.check(out, err); wrong != nil {
			failed++
			result = "**" + wrong.Error() + "**"
			t.Errorf("%s %s: %v\n%s", s.tool, s.args, wrong, out)
		}
		fmt.Fprintf(&table, "| %s | `%s` | %s |\n", s.tool, strings.TrimSpace(strings.ReplaceAll(s.args, server, "")), result)
	}
	head := fmt.Sprintf(`# Apache Kafka's tools

Written by `+"`make kafka-tools`"+`: the tools of Apache Kafka %s against three broker processes, in this
order; steps.go says what each is to print. %d calls, %d not as expected. Left out are --bootstrap-server
and what needs transactions.

| tool | arguments | result |
|--|--|--|
`, bench.KafkaVersion, len(steps), failed)
	must(t, os.WriteFile("RESULTS.md", []byte(head+table.String()), 0o644))
}

// run starts the tool's class and returns what it printed.
func (s *step) run(ctx context.Context, libs, dir string, fill *strings.Replacer) (string, error) {
	class, ok := classes[s.tool]
	if !ok {
		return "", fmt.Errorf("no class for %s", s.tool)
	}
	if s.file != "" {
		if err := os.WriteFile(filepath.Join(dir, "in.json"), []byte(s.file), 0o644); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	args := append([]string{"-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", filepath.Join(libs, "*"), class}, strings.Fields(fill.Replace(s.args))...)
	cmd := exec.CommandContext(ctx, "java", args...)
	cmd.Stdin = strings.NewReader(s.stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("still running after %v", each)
	}
	return out.String(), err
}

// check compares what a tool did with what it was to do.
func (s *step) check(out string, err error) error {
	if (err != nil) != s.refused {
		return fmt.Errorf("ended with %v, refused: %v", err, s.refused)
	}
	for _, want := range s.want {
		if !regexp.MustCompile(want).MatchString(out) {
			return fmt.Errorf("nothing printed matches %s", want)
		}
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
